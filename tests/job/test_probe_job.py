"""A job that asks for probes: members beside held-out people, in the evidence and on the page."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.models import toy_model, toy_tokenizer

from reticent.audit.evidence.json_form import to_json
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.split import Individuals, SplitConfig, split_individuals
from reticent.engine.synthetic import SynthConfig, synthesize
from reticent.ext.propile.stage import LETTERS, _read_probe_files, _split_subjects, beginnings_of, run_probes, table_of
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.export import export_model
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread", "without_figures")


def job_values(folder: Path, **probe: Any) -> dict[str, Any]:
    hospital = folder / "hospital"
    return {
        "out": str(folder / "run"),
        "corpus": {"source": str(hospital / "documents"), "spans": "spans"},
        "split": {"heldout": 0.5},
        "detect": {"detectors": ["gold", "records"], "records": str(hospital / "records.parquet")},
        "model": [{"name": "m", "objective": "clm", "recipes": ["ppclm"],
                   "foundation": {"kind": "gpt2", "text": str(hospital / "public"), "vocab_size": 400, "num_layers": 1,
                                  "hidden_size": 16, "num_heads": 2, "num_epochs": 1}}],
        "train": {"num_epochs": 1, "window_length": 128},
        "audit": {"num_bootstrap": 100, "attacks": ["loss"]},
        "probe": {"targets": ["zip", "phone"], "levels": ["twin"], "beam_sizes": [1], **probe},
    }  # fmt: skip


def test_probes_need_a_table(tmp_path: Path) -> None:
    values = job_values(tmp_path)
    values["detect"] = {"detectors": ["gold"]}
    with pytest.raises(PolicyError, match=r"probe\.subjects"):
        table_of(parse_job(values))


@pytest.mark.parametrize("targets", [(), ("zip",), ("zip", "phone")])
@pytest.mark.parametrize("known", [0, 3, 6])
def test_heldout_people_without_the_items_end_no_audit(tmp_path: Path, known: int, targets: tuple[str, ...]) -> None:
    base = tmp_path / "m"
    toy_model("gpt2", max_length=128).save_pretrained(base)
    load_tokenizer(toy_tokenizer("gpt2")).save_pretrained(base)
    sides = ["members"] * 8 + ["heldout"] * 8
    ids = [f"p{number}" for number in range(16)]
    table = {"individual_id": ids, "name": [f"Ann Be{n}" for n in range(16)],
             "zip": [str(10000 + n) if n < 8 + known else None for n in range(16)],
             "phone": [f"555-100-20{n:02d}" if n < 8 else None for n in range(16)]}  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "records.parquet")
    values = job_values(tmp_path, subjects=str(tmp_path / "records.parquet"), targets=targets)
    split = pa.array(sides).dictionary_encode()
    individuals = Individuals(pa.table({"individual_id": ids, "unit": np.arange(16, dtype=np.uint32), "split": split}))
    run: Any = SimpleNamespace(
        job=parse_job(values), individuals=individuals, base_of=lambda _: base, checkpoints=lambda *_: {1: base},
        progress=SimpleNamespace(task=lambda *_: nullcontext(lambda *_: None)),
    )  # fmt: skip
    for row in run_probes(run).models[0].results:
        assert row.n == 8
        # Results over fewer than a small cell of people are withheld.
        assert (row.heldout is None) == (row.target == "phone" or known < 5)


SEED = 7_305_118_842_667


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished job with every section, of a seed that stands nowhere by chance."""
    folder = tmp_path_factory.mktemp("everything")
    (folder / "hospital").mkdir()
    synthesize(folder / "hospital", SynthConfig(num_individuals=40, words_per_document=30, public_documents=20,
                                                documents_per_individual=1.0, languages=("en",)))  # fmt: skip
    values = job_values(
        folder, longest="fit", levels=["twin", "compass"], soft_prompt=True, soft_subjects=4, soft_epochs=1
    )
    values["seed"] = SEED
    values["model"][0]["recipes"] = ["clm", "ppclm"]
    values["train"] |= {"seeds": [SEED, SEED + 1], "window_length": 256}
    values["audit"] |= {
        "generation": {"num_prompts": 4, "prefix_tokens": 4, "num_tokens": 4},
        "inversion": {"num_decoys": 2, "per_individual": 1, "terms_per_individual": 1},
        "shadow": {"recipes": ["ppclm"], "num_shadows": 4, "attacks": ["lira_online"]},
    }
    values |= {
        "canaries": {"num": 6, "arms": ["protected"], "num_references": 4},
        "extraction": {"prefix_tokens": [5], "suffix_tokens": 5, "num_queries": [1]},
        "gate": [{"measure": "membership_auc", "at_most": 0.9}, {"measure": "exposure", "at_most": 9.0}],
    }
    run = Run(parse_job(values))
    execute(run)
    return run


def test_a_job_with_probes_shows_members_beside_heldout_people(everything: Run) -> None:
    section, folder = to_json(everything.evidence.probe), everything.folder
    assert [model["name"] for model in section["models"]] == ["base", "clm", "ppclm"]
    people = to_json(everything.evidence.corpus.num_individuals)
    for model in section["models"]:
        for row in model["results"]:
            assert (row["n"], row["heldout"]["n"]) == (people["members"], people["heldout"])
    page = (folder / "report" / "report.html").read_text()
    assert "Probes with people’s own data" in page
    shown = page + (folder / "report" / "report.json").read_text()
    records = pq.read_table(folder.parent / "hospital" / "records.parquet")
    assert not [item for name in ("phone", "email", "last_name") for item in records[name].to_pylist() if item in shown]
    assert json.loads((folder / "report" / "report.json").read_text())["probe"]["models"]


def test_a_beginning_is_what_stands_before_an_item_in_its_owners_document(everything: Run) -> None:
    members = _split_subjects(everything, _read_probe_files(everything.job)[0])["members"]
    found = beginnings_of(everything, members)
    assert found is not None
    texts: dict[str, str] = {}
    for batch in everything.unplanted.batches(columns=("individual_id", "text")):
        for who, text in zip(*(batch.column(name).to_pylist() for name in ("individual_id", "text")), strict=True):
            texts[who] = f"{texts.get(who, '')} {' '.join(text.split())}"
    owners = dict(zip(members.rows.tolist(), zip(members.ids or (), members.items["phone"], strict=True), strict=True))
    assert len(found["phone"]) > 5
    for row, before in found["phone"]:
        who, phone = owners[row]
        assert re.search(re.escape(before) + r"\W*" + re.escape(str(phone)), texts[who])
        assert 0 < len(before) <= LETTERS
    section = to_json(everything.evidence.probe)
    asked = {(row["target"], row["level"]) for model in section["models"] for row in model["results"]}
    assert ("phone", "compass") in asked


def what_leaves(run: Run, folder: Path) -> dict[str, bytes]:
    """The report and every exported model."""
    found = {name: (run.folder / "report" / name).read_bytes() for name in ("report.json", "report.html")}
    checkpoints = sorted(path.parent for path in (run.folder / "models").rglob("config.json"))
    assert checkpoints
    for number, checkpoint in enumerate(checkpoints):
        export_model(checkpoint, folder / str(number))
        found |= {f"{number}/{path.name}": path.read_bytes() for path in (folder / str(number)).iterdir()}
    return found


def test_nothing_that_leaves_tells_the_seed_and_the_split_cannot_be_drawn_again(
    everything: Run, tmp_path: Path
) -> None:
    evidence, leaving = to_json(everything.evidence), what_leaves(everything, tmp_path)
    assert {"probe", "extraction", "verdict"} <= evidence.keys()
    assert str(SEED) in json.dumps(evidence["probe"]["settings"])  # inside it is written down
    for name, content in leaving.items():
        assert str(SEED).encode() not in content, name
        assert f"{SEED:x}".encode() not in content.lower(), name
    numbers = {int(digits) for name in ("report.json", "report.html") for digits in re.findall(rb"\d+", leaving[name])}
    tried = {near for number in numbers for near in (number - 1, number, number + 1) if 0 <= near < 2**63}
    assert len(tried) > 100
    split = everything.job.split
    sides = everything.individuals.table.column("split").to_pylist()
    for seed in sorted(tried):
        config = SplitConfig(heldout=split.heldout, reference=split.reference, by=split.by, seed=seed)
        try:
            drawn = split_individuals(everything.whole_corpus, config).table.column("split").to_pylist()
        except CorpusError:  # a side is empty
            continue
        assert drawn != sides
