"""Is a run safe to kill, and safe from a full disk?

Commands of Reticent run at toy size in forked processes. They are killed (SIGKILL) at moments that cover all of their
time and all of their changes to the disk, begun over nothing or over the result of another job, and started again with
the same or the earlier job; they are asked to stop (SIGTERM, SIGINT); and the disk is full at every write. Checked
every time: each earlier result is whole until the new one is; the final bytes are those of a run that nothing
interrupted; no temporary file or folder is left; what was up to date was not touched.

The clock of the evidence is held (SOURCE_DATE_EPOCH), otherwise every byte of every file is compared. The empty
`.NAME.lock` files stay: to delete the file of a lock that another process may be waiting for would give it to both.
`.timings.jsonl` is a log of how long things took and `.verified.json` one of inodes and times; they differ from run to
run, are no results, and are not compared.

    python -m benchmarks.kill [--trials 500] [--part 1/10]
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import math
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults import GROWING, Change, Ended, available, run_process, run_unwatched
from benchmarks.record_io import RECORD, machine, write_record
from reticent.core.verified import VERIFIED
from reticent.job.eta import TIMINGS

Files = dict[str, bytes]

#: Shares of the trials: case, what stands there at the start, which job comes after the kill.
SHARES = {
    ("synth", "nothing", "new"): 60,
    ("synth", "old", "new"): 60,
    ("engine", "nothing", "new"): 260,
    ("engine", "old", "new"): 260,
    ("engine", "old", "old"): 280,
    ("update", "nothing", "new"): 60,
    ("update", "old", "new"): 60,
    ("whole", "nothing", "new"): 40,
    ("whole", "old", "old"): 40,
}
CASES = ("artefact", "synth", "engine", "update", "whole")
#: Content at the start, and the job after the kill.
KINDS = (("nothing", "new"), ("old", "new"), ("old", "old"))
STOPPED = {signal.SIGTERM: 143, signal.SIGINT: 130}


@dataclass(slots=True)
class Case:
    """Two jobs for one place, and what uninterrupted runs of them leave there."""

    name: str
    root: Path
    jobs: dict[str, Callable[[], int]]  # old and new; each returns an exit status
    keeps: bool = True  # what is up to date is not made again
    source: Path | None = None  # a run that is read, and must stay as it is
    expected: dict[str, Files] = field(default_factory=dict)
    changes: dict[str, list[Change]] = field(default_factory=dict)  # of the new job, by what it begins over
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def saved(self) -> Path:
        return self.root.with_name(f"{self.name}-old")

    @property
    def log(self) -> Path:
        return self.root.with_name(f"{self.name}.log")

    def run(self, job: str, fault: Callable[[Change], int | None] | None = None) -> Ended:
        """Run a job in a process of its own, watched."""
        return run_process(lambda: self._logged(job), self.root, fault)

    def run_for(self, job: str, seconds: float | None = None) -> Ended:
        """Run a job in a process of its own, for so long at most."""
        return run_unwatched(lambda: self._logged(job), seconds)

    def _logged(self, job: str) -> int:
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        try:
            return self.jobs[job]()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    def begin(self, start: str) -> None:
        """Put the place into its state at the start of a trial."""
        shutil.rmtree(self.root, ignore_errors=True)
        if start == "old":
            shutil.copytree(self.saved, self.root)
        else:
            self.root.mkdir()

    def learn(self) -> None:
        """Run both jobs undisturbed: what they leave, what they change, how long they take."""
        if self.source is not None:
            self.expected["source"] = content(self.source)
        self.begin("nothing")
        self._must(self.run_for("old"))
        shutil.copytree(self.root, self.saved)
        self.expected["old"] = content(self.root)
        for start in ("nothing", "old"):
            self.begin(start)
            if available():
                ended = self.run("new")
                self._must(ended)
                self.changes[start] = ended.changes
            self.seconds[start] = math.inf
            for _ in range(3):
                self.begin(start)
                started = time.perf_counter()
                self._must(self.run_for("new"))
                self.seconds[start] = min(time.perf_counter() - started, self.seconds[start])
                files = content(self.root)
                first = self.expected.setdefault("new", files)
                differ = sorted(name for name in first | files if first.get(name) != files.get(name))
                assert not differ, f"{self.name}: two uninterrupted runs differ: {differ}"
                if self.seconds[start] > 1:
                    break
        assert self.expected["old"] != self.expected["new"]

    def import_all(self) -> None:
        """Import here what the job imports, load its compiled functions and compile its patterns, so that no trial has
        to: these take most of the time of so small a job.
        """
        listed = self.root.with_name("modules")

        def main() -> int:
            status = self._logged("new")
            listed.write_bytes(pickle.dumps((list(sys.modules), _compiled())))
            return status

        self.begin("nothing")
        self._must(run_unwatched(main))
        modules, compiled = pickle.loads(listed.read_bytes())
        for name in modules:
            with suppress(ImportError):  # some packages make names up
                importlib.import_module(name)
        for module, name, signature in compiled:
            getattr(sys.modules[module], name).compile(signature)
        if "reticent.engine.detect.rules" in sys.modules:
            _compile_patterns()

    def _must(self, ended: Ended) -> None:
        assert ended.status == 0, f"{self.name}: {self.log.read_text()}"


def _compiled() -> list[tuple[str, str, Any]]:
    """Return module, name and signature of every function of the product that Numba has compiled or loaded."""
    own = [module for name, module in sys.modules.items() if name.startswith("reticent.")]
    return [
        (module.__name__, name, signature)
        for module in own
        for name, value in vars(module).items()
        for signature in getattr(value, "nopython_signatures", ())
    ]


def _compile_patterns() -> None:
    """Have the rules compile their patterns; a pool of threads that this makes is of this process alone."""
    import pyarrow as pa

    from reticent.engine.detect.rules import RulesDetector

    RulesDetector(num_threads=1).detect(pa.record_batch({"text": pa.array([], pa.string())}))


def content(root: Path) -> Files:
    """Every file (bytes) and folder (name with a slash) under ``root`` but the empty locks and the two logs."""
    found: Files = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_dir():
            found[name + "/"] = b""
        elif path.name not in (TIMINGS, VERIFIED) and not (path.match(".*.lock") and path.stat().st_size == 0):
            found[name] = path.read_bytes()
    return found


def artefacts(files: Files) -> dict[str, Files]:
    """Artefact -> its files."""
    folders = [name.removesuffix("manifest.json") for name in files if name.endswith("/manifest.json")]
    return {folder: {n: data for n, data in files.items() if n.startswith(folder)} for folder in folders}


# ------------------------------------------------------------------ one trial


def check_between(case: Case, start: str, *, clean: bool) -> list[str]:
    """Errors after the interruption, before a restart; ``clean``: nothing may be left over."""
    files = content(case.root)
    wrong, asides = [], []
    old, new = artefacts(case.expected["old"] if start == "old" else {}), artefacts(case.expected["new"])
    for folder in new:
        here = {name: data for name, data in files.items() if name.startswith(folder)}
        if not here and folder in old:  # between two renames: the old one must stand aside, to be brought back
            name = Path(folder)
            aside = f"{name.parent / f'.{name.name}.old'}/"
            asides.append(aside)
            here = {folder + n.removeprefix(aside): data for n, data in files.items() if n.startswith(aside)}
        if here and here not in (old.get(folder), new[folder]):
            wrong.append(f"{folder}: neither the old nor the new result")
        if not here and folder in old:
            wrong.append(f"{folder}: the old result is gone")
    if case.source is not None and content(case.source) != case.expected["source"]:
        wrong.append("the run that is read has changed")
    if clean:  # a disk so full that nothing can be renamed back is the only reason for a result that stands aside
        wrong += leftovers({name for name in files if not name.startswith(tuple(asides))})
    return wrong


def leftovers(files: Collection[str]) -> list[str]:
    """Temporary files and folders; one that a training goes on from is none."""
    found = (name for name in files if name.endswith(".tmp") or re.search(r"(^|/)\.[^/]*/?$", name))
    found = (name for name in found if not re.search(r"\.part-[0-9a-f]{12}/$", name))
    return [f"{_shown(name)}: left over" for name in found]


def _shown(name: str) -> str:
    return re.sub("[0-9a-f]{12}", "x", name)


def times(root: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Artefact -> inode and time of its files."""
    return {
        f"{manifest.parent.relative_to(root)}/": {
            str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in manifest.parent.rglob("*")
        }
        for manifest in root.rglob("manifest.json")
    }


def check_after(case: Case, job: str) -> list[str]:
    """Start again with ``job`` and say what is wrong in the end."""
    before, stamps = artefacts(content(case.root)), times(case.root)
    ended = case.run_for(job)
    if ended.status != 0:
        return [f"the restart ended with {ended.status}: {case.log.read_text()[-500:]}"]
    files, expected = content(case.root), case.expected[job]
    differ = sorted(name for name in files.keys() & expected if files[name] != expected[name])
    wrong = [f"{name}: other bytes" for name in differ]
    wrong += [f"{name}: missing" for name in sorted(expected.keys() - files)]
    wrong += [f"{_shown(name)}: left over" for name in sorted(files.keys() - expected)]
    if case.keeps:
        current = {name for name, files in artefacts(expected).items() if before.get(name) == files}
        after = times(case.root)
        wrong += [f"{name}: up to date, and run again" for name in sorted(current) if after[name] != stamps[name]]
    return wrong


def kill_trial(case: Case, start: str, after: str, moment: float, *, by_change: bool) -> tuple[str, list[str]]:
    """Kill at this share of all changes (or of the time); returns where that was, and what was wrong."""
    if by_change:
        case.begin(start)
        number = int(moment * len(case.changes[start])) + 1
        ended = case.run("new", lambda change: -signal.SIGKILL if change.number == number else None)
        where = "before a change"
    else:
        seconds = case.seconds[start]
        for _ in range(5):  # how long a run takes changes with what else the machine does
            case.begin(start)
            started = time.perf_counter()
            ended = case.run_for("new", moment * seconds)
            if ended.status == -signal.SIGKILL:
                break
            seconds = min(0.9 * seconds, time.perf_counter() - started)
        where = "at a time"
    if ended.status not in (0, -signal.SIGKILL):
        return where, [f"ended with {ended.status}: {case.log.read_text()[-500:]}"]
    wrong = check_between(case, start, clean=ended.status == 0) + check_after(case, after)
    return where if ended.status else "already done", wrong


def stop_trial(case: Case, start: str, number: int, how: signal.Signals) -> tuple[str, list[str]]:
    """Ask the process to stop before this change: it cleans up itself."""
    case.begin(start)
    ended = case.run("new", lambda change: -how if change.number == number else None)
    wrong = [] if ended.status in (0, STOPPED[how]) else [f"ended with {ended.status}: {case.log.read_text()[-500:]}"]
    if "Traceback" in case.log.read_text():
        wrong.append("a traceback")
    wrong += check_between(case, start, clean=True) + check_after(case, "new")
    return "stopped" if ended.status else "already done", wrong


def full_disk_trial(case: Case, start: str, number: int, *, once: bool) -> tuple[str, list[str]]:
    """Fail this growing change, and unless ``once`` those after it, with "no space left on device"."""
    case.begin(start)
    grown = 0

    def fault(change: Change) -> int | None:
        nonlocal grown
        grown += change.call in GROWING
        full = grown == number if once else grown >= number
        return errno.ENOSPC if full and change.call in GROWING else None

    ended = case.run("new", fault)
    if grown < number:
        return "not reached", check_between(case, start, clean=True) + check_after(case, "new")
    return _after_full_disk(case, start, ended)


def _after_full_disk(case: Case, start: str, ended: Ended) -> tuple[str, list[str]]:
    if ended.status == 0:
        wrong = [] if content(case.root) == case.expected["new"] else ["the job says done, and its files are others"]
        return "got by without", wrong
    said = case.log.read_text()
    *_, last = said.strip().splitlines() or [""]
    wrong = [] if ended.status == 1 else [f"ended with {ended.status}"]
    if "Traceback" in said or "File " in said:
        wrong.append("a traceback")
    if not (last.startswith(f"reticent: {case.root}") and "No space left on device" in last):
        wrong.append(f"an unclear message: {said[-500:]}")
    return "failed", wrong + check_between(case, start, clean=True) + check_after(case, "new")


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[bool]:
    """Mount a disk of this size on ``folder``; False where this user may not."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={num_bytes},mode=0700", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


# ------------------------------------------------------------------ the cases


def make_cases(folder: Path, names: Collection[str] = CASES) -> dict[str, Case]:
    """Write the documents and jobs and learn what undisturbed runs leave; this process imports all they need.

    artefact: one artefact of two files; synth: `reticent synth`; engine: `reticent run` up to the protected tokens;
    update: `reticent update` of such a run, which takes spans and tokens from it; whole: a model trained from nothing,
    attacked, and reported. A fork costs as much as what was imported before it: trials of "artefact" alone, which needs
    next to nothing, are twenty times as fast before the others are made.
    """
    os.environ |= {"SOURCE_DATE_EPOCH": "1700000000", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {"OMP_NUM_THREADS": "1"}  # toy models: threads cost more than they bring
    folder = folder.resolve()
    hospital = folder / "hospital" / "out"
    if set(names) - {"artefact"}:
        Case("hospital", hospital.parent, {"new": _synth(hospital, 0)}).import_all()
    both = (("old", 1, 2), ("new", 0, 3))
    cases = {
        "artefact": {job: _artefact(folder / "artefact" / "out", job) for job, _, _ in both},
        "synth": {job: _synth(folder / "synth" / "out", seed) for job, seed, _ in both},
        "engine": {job: _run(folder / "engine", hospital, seed, k, "protect") for job, seed, k in both},
        "update": {job: _update(folder / "update", folder / "monday", job) for job, _, _ in both},
        "whole": {job: _run(folder / "whole", hospital, seed, k, "report") for job, seed, k in both},
    }
    found = {}
    for name in names:
        found[name] = case = Case(name, folder / name, cases[name], keeps=name in ("engine", "update", "whole"))
        if name == "update":
            case.source = folder / "monday" / "run"
            assert run_unwatched(lambda: _write_monday(folder / "monday", hospital)).status == 0
        case.import_all()
        case.learn()
    return found


def _command(*words: object) -> Callable[[], int]:
    """The command line itself."""

    def main() -> int:
        sys.argv = ["reticent", *map(str, words)]
        from reticent import cli

        try:
            cli.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        return 0

    return main


def _synth(out: Path, seed: int) -> Callable[[], int]:
    size = ("--individuals", 24, "--words-per-document", 20, "--language", "en", "--public-documents", 30)
    return _command("synth", out, *size, "--seed", seed)


def _artefact(out: Path, text: str) -> Callable[[], int]:
    def main() -> int:
        from reticent.core.artifact import write_artifact
        from reticent.core.errors import ArtifactError

        try:
            with write_artifact(out, kind="index", config={"text": text}, inputs={}) as writer:
                (writer.path / "words.txt").write_text(text)
                (writer.path / "deep").mkdir()
                (writer.path / "deep" / "part.txt").write_text(text * 2)
        except ArtifactError as error:
            print(f"reticent: {error}")
            return 1
        return 0

    return main


def _run(folder: Path, hospital: Path, seed: int, k: int, until: str) -> Callable[[], int]:
    """A job of the engine with a tokenizer that is given, or a whole one with a model of its own."""
    base = folder.with_name("base")
    if until == "protect" and not base.exists():
        assert run_unwatched(lambda: _write_tokenizer(base)).status == 0
    foundation = {"kind": "gpt2", "text": str(hospital / "public"), "vocab_size": 300, "num_epochs": 1}
    foundation |= {"hidden_size": 16, "num_layers": 1, "num_heads": 2}
    model = {
        "protect": {"base": str(base), "objective": "mlm", "recipes": ["ppmlm", "mlma"]},
        "report": {"foundation": foundation, "objective": "clm", "recipes": ["ppclm"]},
    }[until]
    values = {
        "out": str(folder / "run"),
        "seed": seed,
        "corpus": {"source": str(hospital / "documents"), "spans": "spans", "household_id": "household_id"},
        "detect": {"detectors": ["gold", "rules", "records"], "records": str(hospital / "records.parquet")},
        "index": {"max_n": k},
        "split": {"heldout": 0.5},
        "protect": {"k": k, "n": 2, "policy": "cover"},
        "model": [{"name": "toy", **model}],
        "train": {"num_epochs": 1, "checkpoint_epochs": [1], "window_length": 32, "batch_size": 16},
        "audit": {"num_bootstrap": 100},
    }
    path = folder.with_name(f"{until}-{seed}.json")
    path.write_text(json.dumps(values))
    return _command("run", path, "--until", until)


def _update(folder: Path, monday: Path, job: str) -> Callable[[], int]:
    """An update of the run in ``monday``; the new job adds documents, too."""
    added = ("--add", monday / "added") if job == "new" else ()
    return _command("update", monday / "run", *added, "--remove", monday / f"gone-{job}.txt", "--out", folder / "run")


def _write_monday(folder: Path, hospital: Path) -> int:
    """A run with tokens of some of the documents; the others, and lists of individuals who withdraw."""
    import pyarrow.parquet as pq

    table = pq.read_table(hospital / "documents")
    ids = table.column("individual_id").to_pylist()
    for name, chosen in (
        ("notes", [owner != ids[-1] for owner in ids]),
        ("added", [owner == ids[-1] for owner in ids]),
    ):
        (folder / name).mkdir(parents=True)
        pq.write_table(table.filter(chosen), folder / name / f"{name}.parquet", row_group_size=8)
    for job, owner in (("old", ids[0]), ("new", ids[len(ids) // 2])):
        (folder / f"gone-{job}.txt").write_text(f"{owner}\n")
    (folder / "common.txt").write_text("will\n")
    _run(folder, hospital, 0, 2, "protect")
    values = json.loads((folder.with_name("protect-0.json")).read_text())
    values["out"], values["corpus"]["source"] = str(folder / "run"), str(folder / "notes")
    values["index"]["updatable"] = True
    values["detect"]["records"] = {"table": values["detect"]["records"], "common": str(folder / "common.txt")}
    (folder / "job.json").write_text(json.dumps(values))
    return _command("run", folder / "job.json", "--until", "protect", "--quiet")()


def _write_tokenizer(folder: Path) -> int:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import BertPreTokenizer

    folder.mkdir()
    words = ["[UNK]", "the", "was", "seen", "."]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    return 0


# ------------------------------------------------------------------ the runner


@dataclass(slots=True)
class Table:
    """Counts of trials by row and outcome; every failure in words."""

    rows: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, row: str, outcome: str, wrong: list[str], where: object) -> None:
        counts = self.rows.setdefault(row, Counter())
        counts["trials"] += 1
        counts[outcome] += 1
        if wrong:
            counts["wrong"] += 1
            self.failures.append(f"{row}, at {where}: {'; '.join(wrong)}")
            print(f"WRONG {self.failures[-1]}", flush=True)


def kill_all(cases: dict[str, Case], trials: int, seed: int, part: tuple[int, int] = (1, 1)) -> Table:
    """Kill at ``trials`` moments, which cover each kind of trial evenly."""
    table, draw = Table(), random.Random(seed)
    shares = {kind: share for kind, share in SHARES.items() if kind[0] in cases}
    plan = []
    for (name, start, after), share in shares.items():
        many = max(round(trials * share / sum(shares.values())), 1)
        plan += [(name, start, after, (at + draw.random()) / many, at) for at in range(many)]
    for name, start, after, moment, at in plan[part[0] - 1 :: part[1]]:
        where, wrong = kill_trial(cases[name], start, after, moment, by_change=available() and at % 2 == 0)
        table.add(f"{name} over {start}, then {after}", where, wrong, f"{where} {moment:.4f}")
    return table


def kill_at_every_change(case: Case, kinds: Iterable[tuple[str, str]] = KINDS) -> Table:
    """Kill before every single change: every state that a killed process can leave."""
    table = Table()
    for start, after in kinds:
        many = len(case.changes[start])
        for number in range(many):
            where, wrong = kill_trial(case, start, after, (number + 0.5) / many, by_change=True)
            table.add(f"{case.name} over {start}, then {after}", where, wrong, case.changes[start][number])
    return table


def stop_all(cases: dict[str, Case], trials: int, part: tuple[int, int] = (1, 1)) -> Table:
    """Ask to stop at about ``trials`` changes of each case."""
    table = Table()
    for name, case in cases.items():
        many = len(case.changes["old"])
        numbers = range(1, many + 1, -(-many // (trials if name != "whole" else -(-trials // 4))))
        for at, number in list(enumerate(numbers))[part[0] - 1 :: part[1]]:
            how = (signal.SIGTERM, signal.SIGINT)[at // part[1] % 2]
            outcome, wrong = stop_trial(case, "old", number, how)
            table.add(f"{name} over old, {how.name}", outcome, wrong, case.changes["old"][number - 1])
    return table


def fill_all(cases: dict[str, Case], every: int = 1, part: tuple[int, int] = (1, 1)) -> Table:
    """Have no space at every growing change: from there on (over an old result), or once (over nothing)."""
    table = Table()
    for name, case in cases.items():
        for start, once in (("old", False), ("nothing", True)):
            grown = [change for change in case.changes[start] if change.call in GROWING]
            numbers = [at + 1 for at in range(len(grown)) if name != "whole" or _is_of_a_model(grown, at)]
            if name == "whole":  # seconds each: a sixth of them in each way
                numbers = numbers[3 * once :: 6]
            for number in numbers[:: every if name != "artefact" else 1][part[0] - 1 :: part[1]]:
                outcome, wrong = full_disk_trial(case, start, number, once=once)
                row = f"{name} over {start}, {'for one change' if once else 'from a change on'}"
                table.add(row, outcome, wrong, grown[number - 1])
    return table


def _is_of_a_model(grown: list[Change], at: int) -> bool:
    """Is this one of the stages after the engine's, and the first or last of the calls of its name on its file?"""
    if not re.match(r"run/(foundation|models|\.?audit|\.?report)", grown[at].path):
        return False
    same = [number for number, change in enumerate(grown) if _what(change) == _what(grown[at])]
    return at in (same[0], same[-1])


def _what(change: Change) -> tuple[str, str]:
    return change.call, re.sub(r"\.tmp-[0-9a-f]{12}|\.tmp\w{6}$", "", change.path)


def fill_small_disk(case: Case, part: tuple[int, int] = (1, 1)) -> Table:
    """Run over an old result on a real disk of one size after another, a page more each, until the job fits."""
    table = Table()
    page = os.sysconf("SC_PAGE_SIZE")
    for pages in range(part[0] - 1, 4096, part[1]):
        case.begin("nothing")
        with small_disk(case.root, 1 << 26) as mounted:
            if not mounted:
                print("a real small disk: skipped, this user may not mount one")
                return table
            shutil.copytree(case.saved, case.root, dirs_exist_ok=True)
            free, ballast = os.statvfs(case.root), case.root / "ballast"
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - pages * page)
            ended = case.run_for("new")
            ballast.unlink()
            outcome, wrong = _after_full_disk(case, "old", ended)
            table.add(f"{case.name} over old, a disk of some pages", outcome, wrong, f"{pages} pages")
        if ended.status == 0:
            break
    return table


def show(tables: dict[str, Table]) -> None:
    """Print a line for each kind of trial."""
    for name, table in tables.items():
        for row, counts in table.rows.items():
            outcomes = ", ".join(f"{what} {many}" for what, many in counts.items() if what not in ("trials", "wrong"))
            print(f"{name:9s} {row:40s} {counts['trials']:4d} trials {counts['wrong']:3d} wrong   {outcomes}")


def run(size: str, trials: int = 500, part: tuple[int, int] = (1, 1), seed: int = 0) -> dict[str, Any]:
    """Run the trials and add their outcome to ``record/kill.json``; `AssertionError` where something was wrong.

    It must start in a process that has run nothing yet: threads do not survive a fork.
    """
    if size == "toy":
        print("kill: see tests/job/test_kill.py")
        return {}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
        cases = make_cases(Path(folder))
        tables = {"killed": kill_all(cases, trials, seed, part)}
        if available():
            few = {name: case for name, case in cases.items() if name != "artefact"}
            tables |= {"stopped": stop_all(few, 40, part), "full disk": fill_all(cases, 1, part)}
        else:
            print("signals and calls that fail: skipped, this kernel does not let a process be watched")
        tables["small disk"] = fill_small_disk(cases["engine"], part)
    show(tables)
    failures = [failure for table in tables.values() for failure in table.failures]
    result = {
        "parts": [part[0]],
        "of": part[1],
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "tables": {name: {row: dict(counts) for row, counts in table.rows.items()} for name, table in tables.items()},
        "failures": failures,
    }
    write_record("kill", _joined(result), size)
    assert not failures
    return result


def _joined(result: dict[str, Any]) -> dict[str, Any]:
    """Add the parts that were run before on the same commit."""
    path = RECORD / "kill.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    same = all(before.get(key) == result[key] for key in ("of", "seed"))
    if not same or before["machine"]["commit"] != machine()["commit"] or result["parts"][0] in before["parts"]:
        return result
    tables: dict[str, dict[str, Counter[str]]] = {}
    for one in (before, result):
        for name, rows in one["tables"].items():
            for row, counts in rows.items():
                tables.setdefault(name, {}).setdefault(row, Counter()).update(counts)
    return {
        **result,
        "parts": sorted(before["parts"] + result["parts"]),
        "seconds": round(before["seconds"] + result["seconds"], 1),
        "tables": tables,
        "failures": before["failures"] + result["failures"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=500, help="moments at which to kill")
    parser.add_argument("--part", default="1/1", help="run one part of all, and add it to the record: 1/10, 2/10, …")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    number, _, parts = arguments.part.partition("/")
    run("cpu", arguments.trials, (int(number), int(parts)), arguments.seed)


if __name__ == "__main__":
    main()
