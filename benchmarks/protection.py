"""How long does it take from documents to protected tokens, and how large are these?

A hospital by `reticent synth` goes through ``reticent run --until protect`` (rules and records, n = 1..3, an index over
the members and one over everybody) in a process of its own, in turns with `encode_batch_fast` of the tokenizers library
on the same texts. The tokens must be as many before a time is shown. Then the same run is started again with nothing to
do, with another k, and with a recipe that has a k, n and policy of its own: the last two read neither text nor
tokenizer.

    python -m benchmarks.protection [--documents 50000] [--rounds 3] [--growth 12500 25000 ...] [--size toy]

Goals: P13 (everything before training beside tokenising), P14 (bytes on disk), P16 (another protection), P18 (nothing
to do).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.record_io import DATA, machine, markdown, spread, write_record

__all__ = ["protection_goals", "protection_table", "run"]

ROOT = Path(__file__).parents[1]
#: BPE of 128,000 entries that splits as Llama 3 does, learned from the hospital's own texts.
LARGE_BPE = "bpe-128k"
#: The vocabularies that are tried: WordPiece and byte-level BPE of two bytes an id, and both of three.
VOCABULARIES = ("bert-base-cased", "gpt2", "bert-base-multilingual-cased", LARGE_BPE)
TOY_VOCABULARIES = VOCABULARIES[:1]
#: Folder of the run -> bytes that count as tokens, all planes of both views among them.
TOKENS = "tokens"
#: Folders whose bytes are told.
STORED = (TOKENS, "words", "word-spans")
SETTINGS = """
seed = 3
[corpus]
source = "{hospital}/documents"
[detect]
detectors = ["rules", "records"]
records = "{hospital}/records.parquet"
[index]
max_n = 3
[protect]
k = 2
n = 3
[recipes.other]
base = "{recipe}"
k = 5
n = 2
policy = "cover"
[[model]]
name = "model"
objective = "{objective}"
base = "{base}"
recipes = {recipes}
"""


def learn_large_bpe(documents: Path, num_characters: int = 100_000_000) -> str:
    """Return the ``tokenizer.json`` of `LARGE_BPE`, learned from so much of the texts."""
    from fixtures.tokenizer_kinds import LLAMA3, split_by
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from reticent.engine.corpus import open_corpus

    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = split_by(LLAMA3)

    def texts() -> Iterator[list[str]]:
        left = num_characters
        for batch in open_corpus(documents).batches(columns=("text",)):
            yield (part := batch.column("text").to_pylist())
            left -= sum(map(len, part))
            if left <= 0:
                return

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end_of_text|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=128_000, initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer.to_str()


def make_base(folder: Path, name: str, documents: Path) -> str:
    """Write a model of nearly no weights with a published vocabulary or `LARGE_BPE`; returns its objective."""
    from reticent.engine.vocabularies import bytelevel_tokenizer_json, wordpiece_tokenizer_json
    from reticent.trainer.foundation import new_model

    source = DATA / "tokenizer_vocabs" / name
    if name == LARGE_BPE:
        kind, objective, tokenizer = "gpt2", "clm", learn_large_bpe(documents)
    elif (source / "vocab.txt").exists():
        kind, objective = "bert", "mlm"
        tokenizer = wordpiece_tokenizer_json(source / "vocab.txt", lowercase="uncased" in name)
    else:
        kind, objective = "gpt2", "clm"
        tokenizer = bytelevel_tokenizer_json(source / "vocab.json", source / "merges.txt")
    new_model(kind, tokenizer, hidden_size=8, num_layers=1, num_heads=1, max_length=64).save_pretrained(folder)  # type: ignore[arg-type]
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    return objective


def spent(command: list[str], log: Path) -> dict[str, Any]:
    """Run a command to its end; returns its wall and processor seconds, and its peak of memory as last seen."""
    started, peak = time.perf_counter(), 0
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT)
        # What the system says of a child at its end is no less than what its parent held when it started.
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, _peak_of(process.pid))
            time.sleep(0.01)
    seconds = time.perf_counter() - started
    _, status, usage = ended
    assert os.waitstatus_to_exitcode(status) == 0, f"{command[:4]} failed:\n{log.read_text()[-2000:]}"
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": peak}


def _peak_of(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def encode_alone(documents: str, tokenizer: str) -> dict[str, Any]:
    """Tokenise all texts, held in memory, by the library alone. The worker: a process of its own."""
    from tokenizers import Tokenizer

    from reticent.engine.corpus import open_corpus

    batches = open_corpus(documents).batches(columns=("doc_id", "text"))
    texts = [text for batch in batches for text in batch.column("text").to_pylist()]
    library = Tokenizer.from_file(tokenizer)
    started, before = time.perf_counter(), time.process_time()
    num_tokens = sum(len(encoding.ids) for encoding in library.encode_batch_fast(texts, add_special_tokens=False))
    seconds, cpu = time.perf_counter() - started, time.process_time() - before
    num_bytes = sum(len(text.encode()) for text in texts)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens": num_tokens,
        "documents": len(texts),
        "text_bytes": num_bytes,
    }


def num_bytes(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Trial:
    """One hospital and one base model, in a folder of its own."""

    def __init__(self, folder: Path, hospital: Path, vocabulary: str):
        self.folder, self.hospital = folder, hospital
        folder.mkdir()
        self.base = folder / "base"
        objective = make_base(self.base, vocabulary, hospital / "documents")
        self.recipe = f"pp{objective}"
        for name, recipes in (("job", [self.recipe]), ("other", [self.recipe, "other"])):
            values = {"hospital": hospital, "base": self.base, "objective": objective, "recipe": self.recipe}
            text = SETTINGS.format(**values, recipes=json.dumps(recipes))
            (folder / f"{name}.toml").write_text(f'out = "{folder / "run"}"\n{text}')

    def run(self, job: str = "job", *settings: str) -> dict[str, Any]:
        """Protect; returns what the command took."""
        command = [sys.executable, "-m", "reticent", "run", str(self.folder / f"{job}.toml"), "--quiet"]
        return spent([*command, "--until", "protect", *settings], self.folder / "log")

    def round(self) -> dict[str, dict[str, Any]]:
        """Everything once, from nothing."""
        worker = [sys.executable, "-m", "benchmarks.protection", "--worker", str(self.hospital / "documents")]
        answer = subprocess.run(
            [*worker, str(self.base / "tokenizer.json")], stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True
        )
        alone = json.loads(answer.stdout)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        found = {"encode_batch_fast": alone, "protect": self.run()}
        counts = json.loads((self.folder / "run/tokens/model/ids/manifest.json").read_text())["counts"]
        assert (counts["tokens"], counts["documents"]) == (alone["tokens"], alone["documents"]), "other tokens"
        found["protect"] |= {name: num_bytes(self.folder / "run" / name) for name in STORED}
        found["protect"]["run_bytes"] = num_bytes(self.folder / "run")
        found["again"] = self.run()
        found["recipe"] = self.run("other")
        found["k = 3"] = self.run("job", "--set", "protect.k=3")
        return found


def run(
    size: str,
    documents: int = 50_000,
    rounds: int = 3,
    growth: tuple[int, ...] = (),
    wanted: tuple[str, ...] = VOCABULARIES,
) -> dict[str, Any]:
    """Measure, and write the record; at toy size of one vocabulary."""
    if size == "toy":
        documents, rounds, growth, wanted = 300, 1, (), tuple(name for name in wanted if name in TOY_VOCABULARIES)
    from benchmarks.engine_workers import make_corpus

    vocabularies = [name for name in wanted if name == LARGE_BPE or (DATA / "tokenizer_vocabs" / name).exists()]
    if missing := set(wanted) - {*vocabularies}:
        print(f"skipped: no {', '.join(sorted(missing))} under {DATA} (RETICENT_DATA)", file=sys.stderr)
    if not vocabularies:
        return {}
    result: dict[str, Any] = {
        "machine": machine(),
        "documents": documents,
        "rounds": rounds,
        "trials": {},
        "growth": [],
    }
    with tempfile.TemporaryDirectory(prefix="protection-") as place:
        folder = Path(place)
        (folder / "hospital").mkdir()
        make_corpus(folder / "hospital", documents)
        for name in vocabularies:
            trial = Trial(folder / name, folder / "hospital", name)
            result["trials"][name] = [trial.round() for _ in range(rounds)]
        for number in growth:
            (folder / str(number)).mkdir()
            make_corpus(folder / str(number), number)
            trial = Trial(folder / f"growth-{number}", folder / str(number), vocabularies[0])
            result["growth"].append({"documents": number, **trial.run(), "run_bytes": num_bytes(trial.folder / "run")})
    result["goals"] = list(protection_goals(result))
    write_record("protection", result, size)
    return result


def protection_goals(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield {"id", "what", "value", "first", "goal"}: ratios within a round, their median and range over rounds."""
    for name, rounds in record["trials"].items():
        for (of, what, first, goal), value in GOALS.items():
            values = spread([value(found) for found in rounds])
            yield {"id": of, "what": f"{what}: {name}", "value": values, "first": first, "goal": goal}
    steps = record["growth"]
    for key in ("cpu_seconds", "peak_bytes") if len(steps) > 1 else ():
        slope = _exponent([step["documents"] for step in steps], [step[key] for step in steps])
        what = f"exponent of {key} over documents"
        yield {"id": "growth", "what": what, "value": spread([slope]), "first": "-", "goal": "-"}


def _beyond(other: str) -> Callable[[dict[str, Any]], float]:
    return lambda found: found[other]["seconds"] - found["again"]["seconds"]


#: Goal, what it is, the first value and the one to reach -> its value of a round.
GOALS: dict[tuple[str, str, str, str], Callable[[dict[str, Any]], float]] = {
    ("P13", "encode_batch_fast / everything before training", "5", "8"): lambda found: (
        found["encode_batch_fast"]["seconds"] / found["protect"]["seconds"]
    ),
    ("P14", "bytes on disk a token, ids and both views", "3.0", "2.7"): lambda found: (
        found["protect"][TOKENS] / found["encode_batch_fast"]["tokens"]
    ),
    ("P14", "bytes on disk a byte of text, the whole run", "2", "1.3"): lambda found: (
        found["protect"]["run_bytes"] / found["encode_batch_fast"]["text_bytes"]
    ),
    ("P16", "seconds of both views with another k", "0.5", "0.25"): _beyond("k = 3"),
    ("P16", "seconds of a view of a recipe's own k, n, policy", "0.5", "0.25"): _beyond("recipe"),
    ("P18", "seconds of a run with nothing to do", "0.5", "0.25"): lambda found: found["again"]["seconds"],
}


def _exponent(sizes: list[int], values: list[float]) -> float:
    """Slope of the logarithms by least squares.

    >>> round(_exponent([1, 10, 100], [2, 20, 200]), 9)
    1.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - middle[0]) * (b - middle[1]) for a, b in zip(x, y, strict=True))
    return above / sum((a - middle[0]) ** 2 for a in x)


def protection_table(record: dict[str, Any]) -> str:
    """Return the goals, and seconds and memory of each run."""
    goals = [(goal["id"], goal["what"], _shown(goal["value"]), goal["first"], goal["goal"]) for goal in record["goals"]]
    times = [
        (name, what, *(_shown(spread([found[what][key] for found in rounds])) for key in ("seconds", "cpu_seconds")))
        for name, rounds in record["trials"].items()
        for what in rounds[0]
    ]
    steps = [
        (f"{step['documents']:,}", *(f"{value:.2f}" for value in (step["seconds"], step["cpu_seconds"])), _gb(step))
        for step in record["growth"]
    ]
    peaks = [(name, _gb(max((r["protect"] for r in rounds), key=_peak))) for name, rounds in record["trials"].items()]
    tables = [
        markdown(("goal", "what", "median [least, most]", "first", "goal"), goals),
        markdown(("vocabulary", "what", "seconds", "CPU seconds"), times),
        markdown(("vocabulary", "GB at the peak of the protecting run"), peaks),
        markdown(("documents", "seconds", "CPU seconds", "GB at the peak"), steps) if steps else "",
    ]
    return "\n".join(table for table in tables if table)


def _shown(value: dict[str, float]) -> str:
    return f"{value['median']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def _peak(spent: dict[str, Any]) -> int:
    return int(spent["peak_bytes"])


def _gb(spent: dict[str, Any]) -> str:
    return f"{_peak(spent) / 1e9:.2f}"


def main() -> None:
    """Read the command line."""
    if "--worker" in sys.argv:
        print(json.dumps(encode_alone(*sys.argv[sys.argv.index("--worker") + 1 :])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabularies", nargs="+", choices=VOCABULARIES, default=VOCABULARIES)
    parser.add_argument("--growth", type=int, nargs="*", default=[])
    parser.add_argument("--size", choices=("toy", "cpu"), default="cpu")
    given = parser.parse_args()
    record = run(given.size, given.documents, given.rounds, tuple(given.growth), tuple(given.vocabularies))
    if record:
        print(protection_table(record))


if __name__ == "__main__":
    main()
