"""Builds under a memory limit: the same tables, memory held, nothing left on the disk, and errors that say so.

What must be measured or killed runs in a process of its own.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from fixtures.drawing import examples
from fixtures.indexes import build, tables
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.index import IndexConfig, build_index, build_nested_indexes, write_index
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import Individuals, SplitConfig, split_individuals
from reticent.engine.synthetic import SynthConfig, synthesize

words = st.sampled_from(["a", "b", "c", "é", "12/03", "electroencephalography", "e\u0301"])
#: A few words many times over, so that pages fill.
documents = st.tuples(st.lists(words, max_size=9).map(" ".join), st.sampled_from([1, 300])).map(
    lambda drawn: f"{drawn[0]} " * drawn[1]
)
#: 40 individuals; half the words are one individual's own.
MANY = [
    (" ".join(f"w{(i * j) % 97}" if j % 2 else f"own{i % 40}x{j % 31}" for j in range(400)), i % 40) for i in range(120)
]
corpora = st.lists(st.tuples(documents, st.integers(0, 12)), max_size=12)


def limited(
    corpus: list[tuple[str, int]],
    limit: int | None,
    *,
    max_n: int,
    min_support: int = 2,
    batch: int = 40,
    surface: str = "exact",
    known: bool = False,
) -> _rust.NgramIndex:
    """An index of documents added in batches; a dictionary is closed after each.

    ``known``: the builder is told how many documents each unit has.
    """
    builder = filled(corpus, limit, max_n=max_n, batch=batch, surface=surface, known=known)
    return builder.finish(min_support=min_support)


def filled(
    corpus: list[tuple[str, int]],
    limit: int | None,
    *,
    max_n: int,
    batch: int,
    surface: str,
    known: bool,
    subset: np.ndarray | None = None,
) -> _rust.IndexBuilder:
    """A builder with these documents; `limited`."""
    builder = _rust.IndexBuilder(
        max_n=max_n,
        surface=surface,
        documents_per_unit=np.bincount([unit for _, unit in corpus]).astype(np.uint32) if known else None,
        subset=subset,
        num_threads=2,
        memory_limit=limit,
    )
    for start in range(0, len(corpus), batch):
        texts, units = zip(*corpus[start : start + batch], strict=True)
        builder.add(pa.array(texts, pa.string()), np.array(units, dtype=np.uint32))
    return builder


@settings(max_examples=examples(60))
@given(
    corpora,
    st.sampled_from([0, 4096, 40_000, 1 << 24]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 10]),
    st.sampled_from([1, 5]),
)
def test_a_limit_does_not_change_the_index(
    corpus: list[tuple[str, int]], limit: int, max_n: int, min_support: int, batch: int
) -> None:
    index = limited(corpus, limit, max_n=max_n, min_support=min_support, batch=batch)
    assert tables(index) == tables(build(corpus, max_n=max_n, min_support=min_support))


@settings(max_examples=examples(200))
@given(
    corpora.filter(len),
    st.sampled_from([None, 0, 40_000]),
    st.integers(1, 3),
    st.sampled_from([1, 3, 40]),
    st.sampled_from(["exact", "casefold", "fold"]),
    st.booleans(),
)
def test_knowing_how_many_documents_a_unit_has_does_not_change_the_index(
    corpus: list[tuple[str, int]], limit: int | None, max_n: int, batch: int, surface: str, by_unit: bool
) -> None:
    if by_unit:  # most units' documents come in one call, next to each other
        corpus = sorted(corpus, key=lambda document: document[1])
    index, known = (
        limited(corpus, limit, max_n=max_n, batch=batch, surface=surface, known=known) for known in (False, True)
    )
    assert tables(known) == tables(index)
    assert (known.num_units, known.num_documents) == (index.num_units, index.num_documents)


@pytest.mark.heavy
@settings(max_examples=examples(300))
@given(
    corpora.filter(len),
    st.lists(st.booleans(), min_size=13, max_size=13),
    st.sampled_from([None, 0, 40_000]),
    st.integers(1, 4),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 3, 40]),
    st.sampled_from(["exact", "fold"]),
    st.booleans(),
)
def test_the_index_of_a_subset_is_that_of_its_documents_alone(
    corpus: list[tuple[str, int]],
    subset: list[bool],
    limit: int | None,
    max_n: int,
    min_support: int,
    batch: int,
    surface: str,
    known: bool,
) -> None:
    inner = [document for document in corpus if subset[document[1]]]
    builder = filled(corpus, limit, max_n=max_n, batch=batch, surface=surface, known=known, subset=np.array(subset))
    if not inner:
        with pytest.raises(CorpusError, match="no document belongs to the subset"):
            builder.finish_both(min_support=min_support)
        return
    part, whole = builder.finish_both(min_support=min_support)
    assert part is not None
    for found, documents in ((part, inner), (whole, corpus)):
        alone = limited(documents, None, max_n=max_n, min_support=min_support, surface=surface)
        assert tables(found) == tables(alone)
        assert (found.num_units, found.num_documents) == (alone.num_units, alone.num_documents)


@pytest.mark.parametrize("limit", [None, 20_000])
@pytest.mark.parametrize("min_support", [1, 2, 10])
def test_subsets_of_many_documents_with_and_without_a_limit(limit: int | None, min_support: int) -> None:
    subset = np.arange(40) % 3 > 0
    builder = filled(MANY, limit, max_n=4, batch=7, surface="exact", known=True, subset=subset)
    part, whole = builder.finish_both(min_support=min_support)
    assert part is not None
    assert (whole.spilled_bytes > 20_000) == (limit is not None)
    inner = [document for document in MANY if subset[document[1]]]
    for found, documents in ((part, inner), (whole, MANY)):
        assert tables(found) == tables(build(documents, max_n=4, min_support=min_support))


@pytest.mark.parametrize("households", [False, True])
@pytest.mark.parametrize("config", [IndexConfig(), IndexConfig(max_n=3), IndexConfig(max_n=2, min_support=1)])
def test_nested_indexes_have_the_files_of_two_builds(
    corpus: tuple[Corpus, Individuals], tmp_path: Path, config: IndexConfig, households: bool
) -> None:
    both = (MEMBERS, HELDOUT)
    if households:
        opened = open_corpus(corpus[0].files, columns=Columns(household_id="household_id"))
        corpus = opened, split_individuals(opened, SplitConfig(heldout=0.3, reference=0.2))
        assert corpus[1].num_units < len(corpus[1].units)
    nested = build_nested_indexes(*corpus, splits=both, within=(MEMBERS,), config=config)
    for name, found, splits in zip("ab", nested, ((MEMBERS,), both), strict=True):
        for folder, index in ((f"{name}1", found), (f"{name}2", build_index(*corpus, splits=splits, config=config))):
            (tmp_path / folder).mkdir()
            write_index(index, tmp_path / folder)
        files = sorted(path.name for path in (tmp_path / f"{name}1").iterdir())
        assert len(files) == config.max_n
        for file in files:
            assert (tmp_path / f"{name}1" / file).read_bytes() == (tmp_path / f"{name}2" / file).read_bytes()
    with pytest.raises(PolicyError, match="not among members"):
        build_nested_indexes(*corpus, splits=(MEMBERS,), within=both)


def test_a_builder_without_a_subset_has_no_index_of_one() -> None:
    assert filled(MANY, None, max_n=2, batch=7, surface="exact", known=True).finish_both()[0] is None


@settings(max_examples=examples(60))
@given(corpora, st.integers(0, 12), st.integers(1, 3))
def test_documents_left_out_leave_no_trace(corpus: list[tuple[str, int]], unit: int, max_n: int) -> None:
    rows = [(text, _rust.LEFT_OUT if owner == unit else owner) for text, owner in corpus]
    kept = [(text, owner) for text, owner in corpus if owner != unit]
    found, expected = (limited(each, None, max_n=max_n, min_support=1) for each in (rows, kept))
    assert (found.num_units, found.num_documents) == (expected.num_units, expected.num_documents)
    assert tables(found) == tables(expected)


def test_documents_that_were_not_announced_are_refused() -> None:
    for announced, batches in (([2, 1], [[0, 0], [0, 0]]), ([1], [[0, 1, 0]]), ([3, 1], [[0, 0, 1]])):
        builder = _rust.IndexBuilder(documents_per_unit=np.array(announced, dtype=np.uint32))
        for units in batches:
            builder.add(pa.array(["a b"] * len(units)), np.array(units, dtype=np.uint32))
        with pytest.raises(PolicyError, match="documents_per_unit"):
            builder.finish()


@pytest.mark.parametrize("max_n", [1, 2, 8])
@pytest.mark.parametrize("min_support", [1, 2, 10])
def test_spilled_pages_come_back(max_n: int, min_support: int) -> None:
    index = limited(MANY, 20_000, max_n=max_n, min_support=min_support)
    assert index.spilled_bytes > 20_000
    unlimited = build(MANY, max_n=max_n, min_support=min_support)
    assert unlimited.spilled_bytes == 0
    assert tables(index) == tables(unlimited)


@pytest.mark.parametrize("limit", [None, 0])
def test_corpora_of_odd_shapes_have_the_supports_worked_by_hand(limit: int | None) -> None:
    def index(corpus: list[tuple[str, int]]) -> _rust.NgramIndex:
        if limit is None:
            return build(corpus, min_support=1)
        return limited(corpus, limit, max_n=3, min_support=1, batch=5000)

    def columns(table: object) -> list[list[object]]:
        return list(pa.record_batch(table).to_pydict().values())

    nothing = index([])
    assert (nothing.num_units, nothing.num_words, nothing.num_ngrams(2)) == (0, 0, 0)
    one_word_each = index([("x", unit) for unit in range(20_000)])
    assert columns(one_word_each.words()) == [["x"], [20_000], [20_000]]
    assert one_word_each.num_ngrams(2) == 0
    one_unit = index([("a b c " * 20_000, 7)])
    assert columns(one_unit.level(3)) == [[0, 1, 2], [1, 2, 0], [1, 1, 1]]
    long = "z" * 3_000_000
    found = index([(f"{long} y", 0), (long, 2**32 - 2), ("", 5)])
    assert columns(found.words()) == [["y", long], [1, 2], [1, 2]]
    assert found.num_units == 3


@pytest.mark.parametrize("limit", [None, 20_000])
def test_documents_added_while_the_builder_is_finished_are_counted_or_refused(limit: int | None) -> None:
    builder = _rust.IndexBuilder(max_n=2, num_threads=2, memory_limit=limit)
    batch, units = pa.array([text for text, _ in MANY[:5]]), np.arange(5, dtype=np.uint32)
    begun = threading.Barrier(5)

    def add() -> int:
        """Add until it is refused; returns how often it was not."""
        builder.add(batch, units)
        begun.wait()
        for num_added in itertools.count(1):
            try:
                builder.add(batch, units)
            except PolicyError:
                return num_added
        raise AssertionError

    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(add) for _ in range(4)]
        begun.wait()
        index = builder.finish(min_support=1)
        added = [future.result() for future in adding]
    assert index.num_documents == 5 * sum(added)
    assert index.num_occurrences == 5 * 400 * sum(added)
    assert set(pa.record_batch(index.words()).column("support").to_pylist()) <= {1, 2, 3, 4, 5}


# ------------------------------------------------------------------ memory


BUILD = """
import json, os, sys
from pathlib import Path
from reticent.engine import index
from reticent.engine.corpus import open_corpus
from reticent.engine.split import SplitConfig, split_individuals

source, spill, out, max_n, room = sys.argv[1:]
corpus = open_corpus(Path(source))
individuals = split_individuals(corpus, SplitConfig(heldout=0.1))
index._release_memory()
used = index.resident_bytes() + 2 * index.BYTES_PER_READER
limit = used + int(room) if int(room) else None
Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
seen = set()
config = index.IndexConfig(max_n=int(max_n), num_threads=2, memory_limit=limit, spill_folder=Path(spill))
built = index.build_index(corpus, individuals, config=config, progress=lambda _: seen.update(os.listdir(spill)))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
index.write_index(built, out)
print(json.dumps({
    "limit": limit, "peak": int(status["VmHWM"].split()[0]) * 1024, "spilled": built.spilled_bytes,
    "seen": sorted(seen | set(os.listdir(spill))),
}))
"""


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_stays_within_the_limit_and_the_files_are_the_same_bytes(tmp_path: Path) -> None:
    config = SynthConfig(num_individuals=14_000, words_per_document=735, vocabulary=350_000, languages=("en",))
    num_bytes = synthesize(tmp_path, config)["num_bytes"]
    room = 48 << 20
    peaks = {}
    for max_n, allowed in ((1, room), (3, room), (1, 0), (3, 0)):
        spill, out = tmp_path / f"spill-{max_n}-{allowed}", tmp_path / f"{max_n}-{allowed}"
        spill.mkdir()
        out.mkdir()
        done = run(BUILD, tmp_path / "documents", spill, out, max_n, allowed)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["seen"] == []
        # Words alone are counted as they come and fit into the limit.
        assert (result["spilled"] > 0) == (allowed > 0 and max_n > 1)
        peaks[max_n, allowed] = result["peak"]
        if allowed:
            assert result["peak"] <= 1.1 * result["limit"]
    assert peaks[3, 0] - peaks[3, room] > 1.5 * room  # the limit is what holds it
    assert num_bytes > 3 * room
    for max_n in (1, 3):
        files = sorted(path.name for path in (tmp_path / f"{max_n}-0").iterdir())
        assert len(files) == max_n if max_n == 1 else 3
        for name in files:
            assert (tmp_path / f"{max_n}-0" / name).read_bytes() == (tmp_path / f"{max_n}-{room}" / name).read_bytes()


HOLD = """
import re, sys
from pathlib import Path
from reticent.engine import index
from reticent.engine.corpus import open_corpus
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import SplitConfig, split_individuals
from reticent.core.errors import PolicyError

source, spill, max_n, limit, room = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
corpus = open_corpus(source)
individuals = split_individuals(corpus, SplitConfig(heldout=0.4))
index._release_memory()
limit = limit or index.check_memory_limit(None, 2) + room
Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
config = index.IndexConfig(max_n=max_n, num_threads=2, memory_limit=limit, spill_folder=spill)
try:
    _, whole = index.build_nested_indexes(corpus, individuals, splits=(MEMBERS, HELDOUT), config=config)
    print(whole.num_words)
except PolicyError as error:
    print(re.search(r"(\\d+)MB(?: to be sure)?$", str(error))[1])
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(limit, int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1.2 million distinct words, each in one of them."""
    folder = tmp_path_factory.mktemp("rich")
    letters = np.random.default_rng(0).integers(97, 123, size=(1_200_000, 10), dtype=np.uint8)
    words = letters.view("S10").ravel().astype("U10").reshape(20_000, 60)
    numbers = np.arange(len(words))
    table = {
        "doc_id": pa.array(numbers.astype(str)),
        "individual_id": pa.array((numbers // 2).astype(str)),
        "text": pa.array([f"of the {' and '.join(row)}" for row in words.tolist()], pa.large_string()),
    }
    pyarrow.parquet.write_table(pa.table(table), folder / "documents.parquet")
    return folder


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("max_n", [1, 2])
def test_a_limit_that_distinct_words_do_not_fit_into_is_refused_and_the_least_that_is_named_holds(
    rich: Path, tmp_path: Path, max_n: int
) -> None:
    refused = run(HOLD, rich, tmp_path, max_n, 0, 40 << 20)
    assert refused.returncode == 0, refused.stderr
    least, limit, peak = map(int, refused.stdout.split())
    assert peak <= limit < least * 1_000_000
    done = run(HOLD, rich, tmp_path, max_n, least * 1_000_000, 0)
    assert done.returncode == 0, done.stderr
    num_words, limit, peak = map(int, done.stdout.split())
    assert num_words > 1_190_000
    assert peak <= limit == least * 1_000_000
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ the disk


ADD = """
import os, sys
import numpy as np, pyarrow as pa
from reticent import _rust

text = pa.array([" ".join(f"w{i}x" for i in range(20_000))])

def add(builder, times):
    for unit in range(times):
        builder.add(text, np.array([unit], dtype=np.uint32))
    return builder
"""


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked up in /proc")
def test_a_killed_process_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    script = ADD + "builder = add(_rust.IndexBuilder(max_n=2, memory_limit=0, folder=sys.argv[1]), 5)\n"
    script += "print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        descriptors = Path(f"/proc/{child.pid}/fd")
        spilled = [fd for fd in descriptors.iterdir() if str(fd.readlink()).startswith(str(tmp_path))]
        assert sum(fd.stat().st_size for fd in spilled) > 0
        assert {fd.stat().st_mode & 0o777 for fd in spilled} == {0o600}
        assert list(tmp_path.iterdir()) == []
        child.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_process_builds_as_its_parent_did(tmp_path: Path) -> None:
    """No thread of the parent's is waited for."""
    script = ADD + (
        "def build(): return add(_rust.IndexBuilder(max_n=2, memory_limit=0, folder=sys.argv[1]), 3).finish()\n"
        "build()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(build().num_documents)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert run(script, tmp_path).stdout == "3\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("a small disk cannot be mounted here")
    except FileNotFoundError:
        pytest.skip("a small disk cannot be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("step", ["add", "finish"])
def test_a_full_disk_is_an_error_with_its_number_and_leaves_no_file(small_disk: Path, step: str) -> None:
    builder = _rust.IndexBuilder(max_n=3, num_threads=2, memory_limit=1 << 16, folder=small_disk)
    batch, units = pa.array([text for text, _ in MANY]), np.array([unit for _, unit in MANY], dtype=np.uint32)

    def fill(times: int) -> None:
        for _ in range(times):
            builder.add(batch, units)
        builder.finish(min_support=1)

    with pytest.raises(OSError, match="No space left on device") as error:
        fill(100 if step == "add" else 2)
    assert error.value.errno == errno.ENOSPC
    assert list(small_disk.iterdir()) == []
    with pytest.raises(PolicyError, match="add has failed" if step == "add" else "is finished"):
        builder.finish()  # it would lack documents


def test_a_builder_gives_its_part_of_the_disk_back(small_disk: Path) -> None:
    builder = _rust.IndexBuilder(memory_limit=0, folder=small_disk)
    builder.add(pa.array([text for text, _ in MANY]), np.array([unit for _, unit in MANY], dtype=np.uint32))
    assert os.statvfs(small_disk).f_bfree < os.statvfs(small_disk).f_blocks
    del builder
    assert os.statvfs(small_disk).f_bfree == os.statvfs(small_disk).f_blocks


def test_a_file_that_cannot_grow_stops_every_reader(tmp_path: Path) -> None:
    """Where no disk can be mounted: the system's limit on the size of files stands for a full one."""
    script = """
import os, resource, sys, threading
from pathlib import Path
from reticent.engine import index
from reticent.engine.corpus import open_corpus
from reticent.engine.split import SplitConfig, split_individuals

corpus = open_corpus(Path(sys.argv[1]))
individuals = split_individuals(corpus, SplitConfig(heldout=0.1))
index._builder_limit = lambda limit, *_: (limit, None)
config = index.IndexConfig(max_n=2, num_threads=3, memory_limit=1 << 20, spill_folder=Path(sys.argv[2]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 15))
try:
    index.build_index(corpus, individuals, config=config)
except OSError as error:
    print(error.errno, os.listdir(sys.argv[2]), [thread.name for thread in threading.enumerate()])
print(index.build_index(corpus, individuals).num_words > 1000)
"""
    spill = tmp_path / "spill"
    spill.mkdir()
    synthesize(tmp_path, SynthConfig(num_individuals=1000))
    done = run(script, tmp_path / "documents", spill)
    assert done.stdout == f"{errno.EFBIG} [] ['MainThread']\nTrue\n", done.stderr


# ------------------------------------------------------------------ errors


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Individuals]:
    folder = tmp_path_factory.mktemp("synthetic")
    synthesize(folder, SynthConfig(num_individuals=4000, words_per_document=20))
    opened = open_corpus(folder / "documents")
    return opened, split_individuals(opened, SplitConfig(heldout=0.1))


def test_a_limit_too_small_is_refused_with_the_least(corpus: tuple[Corpus, Individuals]) -> None:
    with pytest.raises(PolicyError, match=r"memory limit of 100MB cannot be held: .* allow at least \d+MB"):
        build_index(*corpus, config=IndexConfig(memory_limit=10**8, num_threads=8))


def test_a_spill_folder_that_is_not_there_is_named_at_once(corpus: tuple[Corpus, Individuals], tmp_path: Path) -> None:
    config = IndexConfig(memory_limit=1 << 40, spill_folder=tmp_path / "none")
    with pytest.raises(FileNotFoundError) as error:
        build_index(*corpus, config=config, progress=lambda _: pytest.fail("documents were read"))
    assert error.value.filename == str(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        _rust.IndexBuilder(memory_limit=1 << 20, folder=tmp_path / "file")


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_an_error_while_documents_are_added_ends_every_thread(
    corpus: tuple[Corpus, Individuals], num_threads: int, failure: type[BaseException]
) -> None:
    calls = []

    def fail(done: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise failure

    with pytest.raises(failure):
        build_index(*corpus, config=IndexConfig(num_threads=num_threads), progress=fail)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("reticent")]
    assert len(calls) < 3 + num_threads


def without_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def with_a_row_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize("change", [without_a_row, with_a_row_twice])
def test_files_that_changed_since_they_were_scanned_are_refused(
    tmp_path: Path, format: str, change: Callable[[pa.Table], pa.Table]
) -> None:
    """Also when they hold as many rows together: no text is taken for another individual's."""
    rows = [{"doc_id": f"d{i}", "individual_id": f"p{i}", "text": f"t{i}"} for i in range(60)]
    parts = [pa.Table.from_pylist(rows[start : start + 30]) for start in (0, 30)]

    def write(number: int, table: pa.Table) -> None:
        path = tmp_path / f"{number}.{format}"
        if format == "parquet":
            pa.parquet.write_table(table, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))

    for number, part in enumerate(parts):
        write(number, part)
    opened = open_corpus(tmp_path)
    individuals = split_individuals(opened, SplitConfig(heldout=0.1))
    other = {without_a_row: with_a_row_twice, with_a_row_twice: without_a_row}[change]
    write(0, change(parts[0]))
    write(1, other(parts[1]))
    with pytest.raises(CorpusError, match="changed since they were scanned"):
        build_index(opened, individuals)


def test_an_index_of_a_limited_build_is_written_like_another(tmp_path: Path) -> None:
    for name, index in (("limited", limited(MANY, 20_000, max_n=3)), ("other", build(MANY, max_n=3))):
        (tmp_path / name).mkdir()
        write_index(index, tmp_path / name)
    for path in (tmp_path / "other").iterdir():
        assert path.read_bytes() == (tmp_path / "limited" / path.name).read_bytes()
