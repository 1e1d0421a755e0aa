"""Does the epsilon from documents to weights hold? A one-run audit with canary individuals, and with less noise.

Each training of `private-clm` sees 40 people and, by fair coins, about half of the canary individuals: people with a
document of their own, two words in turn that no other canary has. They vote for the private vocabulary and are sampled
as units, like everybody. The audit sees the last weights and those before, and guesses of the canaries with the highest
and the lowest gain whether they took part. Its bound (Steinke et al. 2023, 95 %) may lie over the epsilon that is
promised in one of 20 trainings, so in at most 9 of 100; with noise divided by 10 it has to lie over it.

That 400 canaries have words of their own was chosen on seeds 1000 to 1002, where a tenth of the noise then gave a bound
of 1.51 to 1.62. With 200 that shared 25 words it gave 0.34: an audit that could not have found anything.

    python -m studies.private_audit [--size toy|cpu]
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.record_io import STUDIES, markdown, range_text, spread, write_record
from benchmarks.runner import command
from reticent import _rust
from reticent.core.progress import Progress
from reticent.engine.dp_vocabulary import gaussian_sigma
from reticent.ext.extraction.canaries import one_run
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.config import PrivacyConfig
from reticent.trainer.models import load_model
from reticent.trainer.privacy import plan_privacy

#: Epochs, canary individuals, trainings as promised, and with a tenth of the noise.
SIZES = {"toy": (2, 40, 1, 1), "cpu": (12, 400, 100, 10)}
PEOPLE, HELDOUT, SEED = 40, 0.05, 3
EPSILON, DELTA = 1.0, 1e-5
VOCABULARY: dict[str, Any] = {"epsilon": 0.4, "delta": 2e-6, "unit": "individual", "max_words": 1}
SAMPLE_RATE = 0.5
#: Two of them are a canary individual's own.
PUBLIC = [f"word{number:03}" for number in range(2 * SIZES["cpu"][1])]
#: Words on no list, for one of which everybody votes.
VOTED = ["ague", "zoster"]


def write_base(folder: Path) -> None:
    """A small causal model that has learned nothing."""
    torch.manual_seed(0)
    names = ["<unk>", "<end>", *PUBLIC, *VOTED]
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    end = {"unk_token": "<unk>", "eos_token": "<end>", "bos_token": "<end>", "pad_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end).save_pretrained(folder)
    size: dict[str, Any] = {
        "n_positions": 32,
        "n_embd": 64,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    dropout: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(names), **size, **dropout)).save_pretrained(folder)


def canary_texts(num: int) -> dict[str, str]:
    """The documents of canary individuals by id, all of whom are members where they take part."""
    ids = [f"c{number:04}" for number in range(2 * num)]
    sides = _rust.hash_units(pa.array(ids), seed=SEED).astype(np.float64) / 2.0**64
    chosen = [name for name, side in zip(ids, sides, strict=True) if side >= HELDOUT][:num]
    pairs = zip(PUBLIC[::2], PUBLIC[1::2], strict=True)
    return {
        name: " ".join([*(first, second) * 8, VOTED[number % 2]])
        for number, (name, (first, second)) in enumerate(zip(chosen, pairs, strict=False))
    }


def train_once(
    folder: Path, base: Path, noise: float, canaries: dict[str, str], seed: int, num_epochs: int
) -> tuple[Any, Path]:
    """Train on people and on the canaries whose coin says so; returns the coins and the checkpoint."""
    random = np.random.default_rng(seed)
    included = random.random(len(canaries)) < 0.5
    texts = {f"p{number:03}": " ".join([*random.choice(PUBLIC, 16), VOTED[number % 2]]) for number in range(PEOPLE)}
    texts["p000"] += " 12/03/2021"  # without any identifier a recipe that protects is refused
    texts |= {name: text for (name, text), is_in in zip(canaries.items(), included, strict=True) if is_in}
    rows = [{"doc_id": name, "individual_id": name, "text": text} for name, text in texts.items()]
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    (folder / "public.txt").write_text("\n".join(PUBLIC))
    dp = {"sample_rate": SAMPLE_RATE, "num_units": PEOPLE + len(canaries) // 2, "target_delta": DELTA}
    values = {
        "out": str(folder / "run"),
        "seed": SEED,
        "corpus": {"source": str(folder / "documents.parquet")},
        "split": {"heldout": HELDOUT},
        "protect": {"public_words": str(folder / "public.txt")},
        "threshold": VOCABULARY,
        "model": [{"name": "toy", "base": str(base), "objective": "clm", "recipes": ["private-clm"]}],
        "train": {
            "num_epochs": num_epochs,
            "checkpoint_epochs": [num_epochs],
            "window_length": 32,
            "learning_rate": 2e-3,
            "lr_scheduler_type": "constant_with_warmup",
            "weight_decay": 0.0,
            "device": "cpu",
            "dp": {**dp, "noise_multiplier": noise, "max_physical_batch_size": 256, "clipping": "hooks"},
        },
    }
    run = Run(parse_job(values), Progress(quiet=True))
    execute(run, "train")
    return included, run.folder / "models/toy/private-clm" / f"epoch-{num_epochs:04d}"


@torch.no_grad()
def gains(base: Path, trained: Path, texts: list[str]) -> np.ndarray:
    """By how much the mean log-probability of each text rose."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(base)
    ids = tokenizer(texts, return_tensors="pt")["input_ids"]
    found = []
    for path in (base, trained):
        logits = load_model(path, "clm").eval()(input_ids=ids).logits[:, :-1].log_softmax(-1)
        found.append(logits.gather(2, ids[:, 1:, None])[..., 0].mean(1).double().numpy())
    return found[1] - found[0]


def run(size: Annotated[str, SIZES] = "cpu") -> None:
    """Audit, print and write the record."""
    num_epochs, num_canaries, *numbers = SIZES[size]
    canaries = canary_texts(num_canaries)
    vocabulary = gaussian_sigma(VOCABULARY["epsilon"], VOCABULARY["delta"] / 2), VOCABULARY["delta"] / 2
    asked: dict[str, Any] = {"target_epsilon": EPSILON, "target_delta": DELTA, "sample_rate": SAMPLE_RATE}
    plan = plan_privacy(PrivacyConfig(**asked, vocabulary=vocabulary), PEOPLE + num_canaries // 2, num_epochs, 1)
    began = time.process_time()
    result: dict[str, Any] = {"canaries": num_canaries, "epsilon": EPSILON, "delta": DELTA, "arms": {}}
    for name, number, noise in zip(
        ("as promised", "a tenth of the noise"),
        numbers,
        (plan.noise_multiplier, plan.noise_multiplier / 10),
        strict=True,
    ):
        bounds, right = [], []
        for seed in range(number):
            with tempfile.TemporaryDirectory(prefix="reticent-bench-") as scratch:
                write_base(base := Path(scratch) / "base")
                included, trained = train_once(Path(scratch) / "training", base, noise, canaries, seed, num_epochs)
                found = one_run(gains(base, trained, list(canaries.values())), included, guesses=0.5, delta=DELTA)
            bounds.append(found.at_least or 0.0)
            right.append(found.num_right / found.num_guesses)
        over = sum(bound > EPSILON for bound in bounds)
        row = {"trainings": number, "over": over, "bound": spread(bounds), "right": spread(right)}
        result["arms"][name] = {**row, "noise_multiplier": noise, "guesses": found.num_guesses, "most": found.most}
    result["cpu_seconds"] = round(time.process_time() - began)
    print(table(result))
    print(write_record("private_audit", result, size, STUDIES))
    if size == "cpu":
        promised, control = result["arms"].values()
        assert promised["over"] <= 9
        assert control["over"] == control["trainings"]


def table(result: dict[str, Any]) -> str:
    """Return a row a kind of training."""
    heads = [
        "noise",
        "trainings",
        f"bound over {result['epsilon']:g}",
        "bound",
        "guesses that are right",
        "highest bound",
    ]
    rows = [
        [
            name,
            str(row["trainings"]),
            str(row["over"]),
            range_text(row["bound"]),
            range_text(row["right"]),
            f"{row['most']:.2f}",
        ]
        for name, row in result["arms"].items()
    ]
    return markdown(heads, rows)


if __name__ == "__main__":
    command(run)
