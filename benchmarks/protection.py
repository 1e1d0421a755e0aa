"""How long does it take from documents to protected tokens, and how large are these?

A hospital by `reticent synth` goes through ``reticent run --until protect`` (rules and records, n = 1..3, an index over
the members and one over everybody) in a process of its own, in turns with tokenisers alone, which have the same texts
in memory (``peers.py``). The library's release of this project runs in the first round, as it takes a minute. Before a
time is shown the ids are compared document by document: a tokeniser that makes others is told with how many documents
differ, and is none to compare with.

    python -m benchmarks.protection --peers PYTHON [--documents 50000] [--rounds 3] [--growth 12500 …] [--size toy]

``--peers`` is the Python of an environment that has the tokenisers of today (``make peers``).

Goals: P13 (everything before training beside the fastest tokeniser that is right), P14 (bytes on disk).
"""

from __future__ import annotations

import compileall
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc

from benchmarks.engine_workers import make_corpus, resident
from benchmarks.peers import LIBRARIES, digest
from benchmarks.record_io import DATA, estimate_text, exponent, machine, markdown, spread, write_record
from benchmarks.runner import command
from reticent.engine.corpus import open_corpus

__all__ = ["fastest", "protection_goals", "protection_table", "run"]

ROOT = Path(__file__).parents[1]
#: BPE of 128,000 entries that splits as Llama 3 does, learned from the hospital's own texts.
LARGE_BPE = "bpe-128k"
#: The vocabularies that are tried: WordPiece and byte-level BPE of two bytes an id, and both of three.
VOCABULARIES = ("bert-base-cased", "gpt2", "bert-base-multilingual-cased", LARGE_BPE)
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
[[model]]
name = "model"
objective = "{objective}"
base = "{base}"
recipes = ["pp{objective}"]
"""


def learn_large_bpe(documents: Path, num_characters: int = 100_000_000) -> str:
    """Return the ``tokenizer.json`` of `LARGE_BPE`, learned from so much of the texts."""
    from fixtures.tokenizer_kinds import LLAMA3, split_by
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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


def spent(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command to its end; returns its wall and processor seconds, and its peak of memory as last seen."""
    started, peak = time.perf_counter(), 0
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, env=environment)
        # What the system says of a child at its end is no less than what its parent held when it started.
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, resident("VmHWM", str(process.pid)))
            time.sleep(0.01)
    seconds = time.perf_counter() - started
    _, status, usage = ended
    assert os.waitstatus_to_exitcode(status) == 0, f"{command[:4]} failed:\n{log.read_text()[-2000:]}"
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_bytes": peak}


def encode_alone(python: str, library: str, documents: Path, tokenizer: Path, passes: int = 2) -> dict[str, Any]:
    """Tokenise all texts, held in memory, by a library alone, in a process of its own."""
    command = [python, str(ROOT / "benchmarks" / "peers.py"), library, str(documents), str(tokenizer), str(passes)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(answer.stdout))


def digests_of(ids: Path) -> list[str]:
    """Return the digest of the ids of each document that a run has made."""
    from reticent.engine.packed import StoredIds

    stored = StoredIds(ids)
    whole = stored.ids.astype(np.int64)
    if stored.is_wide:
        whole += stored.high.astype(np.int64) << 16
    return [digest(whole[start:end].tolist()) for start, end in itertools.pairwise(stored.doc_offsets.tolist())]


def num_bytes(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Trial:
    """One hospital and one base model, in a folder of its own."""

    def __init__(self, folder: Path, hospital: Path, vocabulary: str):
        self.folder, self.hospital = folder, hospital
        folder.mkdir()
        self.base = folder / "base"
        texts = (batch.column("text") for batch in open_corpus(hospital / "documents").batches(columns=("text",)))
        self.text_bytes = sum(pc.sum(pc.binary_length(batch)).as_py() for batch in texts)
        objective = make_base(self.base, vocabulary, hospital / "documents")
        text = SETTINGS.format(hospital=hospital, base=self.base, objective=objective)
        (folder / "job.toml").write_text(f'out = "{folder / "run"}"\n{text}')

    def run(self) -> dict[str, Any]:
        """Protect; returns what the command took."""
        command = [sys.executable, "-m", "reticent", "run", str(self.folder / "job.toml"), "--quiet"]
        return spent([*command, "--until", "protect"], self.folder / "log")

    def round(self, peers: str | None, *, first: bool) -> dict[str, dict[str, Any]]:
        """Everything once, from nothing: our run, then each tokeniser alone."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        found = {"protect": self.run()}
        ids = self.folder / "run/tokens/model/ids"
        counts = json.loads((ids / "manifest.json").read_text())["counts"]
        found["protect"] |= {name: num_bytes(self.folder / "run" / name) for name in STORED}
        found["protect"] |= {"run_bytes": num_bytes(self.folder / "run"), "num_tokens": counts["tokens"]}
        found["protect"]["text_bytes"] = self.text_bytes
        ours = digests_of(ids)
        asked = [(sys.executable, "tokenizers", 1)] if first else []
        asked += [(peers, library, 2) for library in LIBRARIES] if peers else []
        for python, library, passes in asked:
            alone = encode_alone(python, library, self.hospital / "documents", self.base / "tokenizer.json", passes)
            if "error" in alone:  # a tokeniser of another kind
                continue
            theirs = alone.pop("digests")
            assert len(theirs) == len(ours), f"{library}: {len(theirs)} documents, ours are {len(ours)}"
            alone["other_ids"] = sum(one != other for one, other in zip(theirs, ours, strict=True))
            found[f"{library} {alone.pop('version')}"] = alone
        return found


def run(
    size: Annotated[str, ("toy", "cpu")] = "cpu",
    documents: int = 50_000,
    rounds: int = 3,
    growth: Sequence[int] = (),
    vocabularies: Annotated[Sequence[str], VOCABULARIES] = VOCABULARIES,
    peers: Annotated[str | None, "Python of an environment with the tokenisers of today"] = None,
) -> None:
    """Measure, write the record and print its tables; at toy size of one vocabulary."""
    if size == "toy":
        documents, rounds, growth, vocabularies = 300, 1, (), VOCABULARIES[:1]
    found = [name for name in vocabularies if name == LARGE_BPE or (DATA / "tokenizer_vocabs" / name).exists()]
    if missing := {*vocabularies} - {*found}:
        print(f"skipped: no {', '.join(sorted(missing))} under {DATA} (RETICENT_DATA)", file=sys.stderr)
    if not found:
        return
    result: dict[str, Any] = {
        "machine": machine(),
        "documents": documents,
        "rounds": rounds,
        "trials": {},
        "growth": [],
    }
    if size == "cpu":
        compileall.compile_dir(ROOT / "reticent", quiet=1)  # as an installation does
    with tempfile.TemporaryDirectory(prefix="protection-") as place:
        folder = Path(place)
        (folder / "hospital").mkdir()
        make_corpus(folder / "hospital", documents)
        for name in found:
            trial = Trial(folder / name, folder / "hospital", name)
            result["trials"][name] = [trial.round(peers, first=number == 0) for number in range(rounds)]
        for number in growth:
            (folder / str(number)).mkdir()
            make_corpus(folder / str(number), number)
            trial = Trial(folder / f"growth-{number}", folder / str(number), found[0])
            result["growth"].append({"documents": number, **trial.run(), "run_bytes": num_bytes(trial.folder / "run")})
    result["goals"] = list(protection_goals(result))
    write_record("protection", result, size)
    print(protection_table(result))


def fastest(rounds: list[dict[str, dict[str, Any]]]) -> str | None:
    """Return the tokeniser of the least seconds among those that make the ids that we make."""
    times: dict[str, list[float]] = {}
    for found in rounds:
        for name, alone in found.items():
            if name != "protect" and not alone.get("other_ids"):
                times.setdefault(name, []).append(alone["seconds"])
    return min(times, key=lambda name: median(times[name]), default=None)


def protection_goals(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield {"id", "what", "value", "first", "goal"}: ratios within a round, their median and range over rounds."""
    for name, rounds in record["trials"].items():
        peer = fastest(rounds)
        compared = [found for found in rounds if peer in found]
        values: list[tuple[str, str, list[float], str, str]] = [
            ("P13", "seconds of everything before training", [own["protect"]["seconds"] for own in rounds], "8", "5"),
            (
                "P13",
                f"everything before training / {peer} alone",
                [own["protect"]["seconds"] / own[str(peer)]["seconds"] for own in compared],
                "-",
                "-",
            ),
            *(
                (of, what, [value(own["protect"]) for own in rounds], first, goal)
                for (of, what, first, goal), value in GOALS.items()
            ),
        ]
        for of, what, each, first, goal in values:
            if each:
                yield {"id": of, "what": f"{what}: {name}", "value": spread(each), "first": first, "goal": goal}
    steps = record["growth"]
    for key in ("cpu_seconds", "peak_bytes") if len(steps) > 1 else ():
        slope = exponent([step["documents"] for step in steps], [step[key] for step in steps])
        what = f"exponent of {key} over documents"
        yield {"id": "growth", "what": what, "value": spread([slope]), "first": "-", "goal": "-"}


#: Goal, what it is, the first value and the one to reach -> its value of a run.
GOALS: dict[tuple[str, str, str, str], Callable[[dict[str, Any]], float]] = {
    ("P14", "bytes on disk a token, ids and both views", "3.0", "2.7"): lambda own: own[TOKENS] / own["num_tokens"],
    ("P14", "bytes on disk a byte of text, the whole run", "2", "1.3"): lambda own: (
        own["run_bytes"] / own["text_bytes"]
    ),
}


def protection_table(record: dict[str, Any]) -> str:
    """Return the goals, and seconds and memory of each run."""
    goals = [
        (goal["id"], goal["what"], estimate_text(goal["value"], 2), goal["first"], goal["goal"])
        for goal in record["goals"]
    ]
    times = [
        (name, what, *_speeds([found[what] for found in rounds if what in found], rounds[0]["protect"]["text_bytes"]))
        for name, rounds in record["trials"].items()
        for what in dict.fromkeys(what for found in rounds for what in found)
    ]
    steps = [
        (f"{step['documents']:,}", *(f"{value:.2f}" for value in (step["seconds"], step["cpu_seconds"])), _gb(step))
        for step in record["growth"]
    ]
    peaks = [(name, _gb(max((r["protect"] for r in rounds), key=_peak))) for name, rounds in record["trials"].items()]
    tables = [
        markdown(("goal", "what", "median [least, most]", "first", "goal"), goals),
        markdown(("vocabulary", "what", "seconds", "MB/s", "MB per CPU second", "documents of other ids"), times),
        markdown(("vocabulary", "GB at the peak of the protecting run"), peaks),
        markdown(("documents", "seconds", "CPU seconds", "GB at the peak"), steps) if steps else "",
    ]
    return "\n".join(table for table in tables if table)


def _speeds(found: list[dict[str, Any]], num_bytes: int) -> tuple[str, ...]:
    seconds, cpu = (median([own[key] for own in found]) for key in ("seconds", "cpu_seconds"))
    others = found[0].get("other_ids", "-")
    shown = estimate_text(spread([own["seconds"] for own in found]), 2)
    return shown, f"{num_bytes / seconds / 1e6:.0f}", f"{num_bytes / cpu / 1e6:.1f}", others


def _peak(spent: dict[str, Any]) -> int:
    return int(spent["peak_bytes"])


def _gb(spent: dict[str, Any]) -> str:
    return f"{_peak(spent) / 1e9:.2f}"


if __name__ == "__main__":
    command(run)
