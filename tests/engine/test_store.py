"""Protected tokens on disk: what was written is what is opened, mapped and not copied; what is damaged is refused."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.packing import packed, write_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.artifact import HashedFile, read_manifest, write_artifact, written_digest
from reticent.core.errors import ArtifactError
from reticent.engine import packed as packed_module
from reticent.engine import store_writer
from reticent.engine.store import LISTS, TokenStore, open_tokens
from reticent.engine.store_writer import ViewWriter

DTYPES = {"input_ids": np.uint16, "word_ids": np.int32, "flags": np.uint8, "ngram_starts": np.uint8}
FILES = {
    *("ids.bin", "begins.bits", "outside.bits", "direct.bits", "indirect.bits"),
    *("documents.parquet", "exceptions.parquet", "ngram_starts.parquet", "view.parquet"),
}


def store_of(lengths: list[int], seed: int = 0, vocab_size: int = 1000, *, jumps: float = 0.1) -> TokenStore:
    """Documents of these lengths: some words have no token, some tokens no word, a word goes on after one outside."""
    draw = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    num = int(offsets[-1])
    ids = draw.integers(0, vocab_size, num).astype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
    words = np.concatenate([np.empty(0, np.int32), *(words_of(draw, length, jumps) for length in lengths)])
    columns = [ids, words.astype(np.int32), *draw.integers(0, 4, (2, num), dtype=np.uint8)]
    individual = draw.integers(0, 5, len(lengths), dtype=np.uint32)
    return TokenStore(*columns, offsets, individual, pa.array([f"d{i}" for i in range(len(lengths))], pa.string()))


def words_of(draw: np.random.Generator, length: int, jumps: float) -> np.ndarray:
    steps = draw.integers(0, 2, length) + (draw.random(length) < jumps) * draw.integers(0, 70_000, length)
    return np.where(draw.random(length) < 0.2, -1, np.cumsum(steps))


def test_a_store_shows_how_large_it_is_and_nothing_of_a_document() -> None:
    store = store_of([1200, 0, 34])
    assert len(store) == 3
    assert repr(store) == "TokenStore(3 documents, 1,234 tokens)"


def assert_equal(found: TokenStore, expected: TokenStore) -> None:
    for name in (*LISTS, "doc_offsets", "individual"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.doc_ids.to_pylist() == expected.doc_ids.to_pylist()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=examples(80))
@given(
    st.lists(st.integers(0, 150), max_size=12),
    st.integers(0, 2**32),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([1000, 100_000]),
    st.sampled_from([0.0, 0.1, 0.9]),
)
def test_what_is_written_is_opened_and_the_bytes_do_not_depend_on_batches(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    seed: int,
    batches: int,
    others: int,
    vocab_size: int,
    jumps: float,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = store_of(lengths, seed, vocab_size, jumps=jumps)
    writer = write_store(store, folder / "a", vocab_size, batches=batches)
    assert (writer.num_documents, writer.num_tokens) == (store.num_documents, store.num_tokens)
    opened = open_tokens(folder / "a")
    assert_equal(opened, store)
    assert opened.flags_fingerprint() == store.flags_fingerprint()
    write_store(store, folder / "b", vocab_size, batches=others)
    assert content(folder / "a") == content(folder / "b")
    assert set(content(folder / "a")) == FILES | ({"ids_high.bin"} if vocab_size > 1 << 16 else set())


@settings(max_examples=examples(60))
@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=8),
    st.integers(0, 2**32),
    st.sampled_from([1000, 100_000]),
    st.sampled_from([0.0, 0.2]),
)
def test_windows_are_gathered_from_packed_tokens_as_from_flat_ones(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], seed: int, vocab_size: int, jumps: float
) -> None:
    folder, store, draw = (
        tmp_path_factory.mktemp("store"),
        store_of(lengths, seed, vocab_size, jumps=jumps),
        random.Random(seed),
    )
    write_store(store, folder, vocab_size)
    opened = open_tokens(folder)
    documents = np.array([draw.randrange(len(lengths)) for _ in range(9)])
    starts = np.array([store.doc_offsets[d] + draw.randrange(lengths[d]) for d in documents])
    room = np.array([int(store.doc_offsets[d + 1] - s) for d, s in zip(documents, starts, strict=True)])
    sizes = np.array([draw.randint(0, int(most)) for most in room])

    def gathered(tokens: TokenStore) -> tuple[np.ndarray, ...]:
        shape = (len(sizes), int(sizes.max()) + 3)
        out = np.full(shape, 77, np.int64), np.full(shape, 77, np.int32), np.full(shape, 77, np.uint8)
        tokens.gather(documents, starts, sizes, 1, 5, out)
        return out

    for found, expected in zip(gathered(opened), gathered(store), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_rank_directory_counts_over_many_blocks(tmp_path: Path) -> None:
    lengths = [3, 30_000, 0, 9_000]
    store = store_of(lengths, jumps=0.01)
    write_store(store, tmp_path, 1000)
    opened = open_tokens(tmp_path)
    starts = np.array([3, 4098, 4099, 29_000, 30_003, 39_002])
    documents, sizes = np.array([1, 1, 1, 1, 3, 3]), np.array([600, 10, 10, 900, 4096, 1])
    for tokens in (opened, store):
        out = np.zeros((6, 4096), np.int64), np.zeros((6, 4096), np.int32), np.zeros((6, 4096), np.uint8)
        tokens.gather(documents, starts, sizes, 0, 0, out)
        for row in range(6):
            own = slice(starts[row], starts[row] + sizes[row])
            assert out[1][row, : sizes[row]].tolist() == store.word_ids[own].tolist()


def view_of(store: TokenStore, chosen: list[int], folder: Path, vocab_size: int = 1000) -> TokenStore:
    """Write a store, and a view of some of its documents, and open the view."""
    write_store(store, folder / "ids", vocab_size)
    (folder / "view").mkdir()
    own = store.select(np.array(chosen, dtype=np.int64))
    with ViewWriter(folder / "view") as writer:
        writer.write(np.array(chosen, dtype=np.int64), own.individual, packed(own), own.num_tokens)
    return open_tokens(folder / "view")


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=9),
    st.integers(0, 2**32),
    st.sampled_from([1000, 100_000]),
    st.sampled_from([1, 50, 1 << 20]),
)
def test_a_view_of_some_documents_has_what_these_have(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, bool]], seed: int, vocab_size: int, at_once: int
) -> None:
    store = store_of([length for length, _ in drawn], seed, vocab_size, jumps=0.3)
    chosen = [row for row, (_, is_in) in enumerate(drawn) if is_in]
    opened = view_of(store, chosen, tmp_path_factory.mktemp("view"), vocab_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_module, "TOKENS_AT_ONCE", at_once)
        assert_equal(opened, store.select(np.array(chosen, dtype=np.int64)))
        assert opened.input_ids.dtype == (np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def test_documents_that_stand_far_apart_are_unpacked_without_those_between(tmp_path: Path) -> None:
    store = store_of([30, 60_000, 0, 40], jumps=0.001)
    opened = view_of(store, [0, 3], tmp_path)
    tracemalloc.start()
    words = opened.word_ids
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words.tolist() == store.select(np.array([0, 3])).word_ids.tolist()
    assert peak < 2 * 60_000  # bytes: less than the numbers of the words of all 60,070 tokens take


def test_columns_are_unpacked_in_blocks_of_whole_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of([5, 0, 300, 1, 1, 40, 0])
    write_store(store, tmp_path, 1000)
    for at_once in (1, 7, 46, 10_000):
        monkeypatch.setattr(packed_module, "TOKENS_AT_ONCE", at_once)
        opened = open_tokens(tmp_path)
        for name in ("input_ids", "word_ids", "flags"):
            blocks = list(opened.blocks(name))
            assert len(blocks) > 1 or at_once > 300
            assert np.concatenate(blocks).tolist() == getattr(store, name).tolist()
        assert opened.flags_fingerprint() == store.flags_fingerprint()


def test_tables_are_the_same_bytes_however_their_rows_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_writer, "ROWS_PER_GROUP", 16)
    store = store_of([9] * 60, jumps=0.5)
    for name, batches in (("a", 1), ("b", 7), ("c", 60)):
        write_store(store, tmp_path / name, 1000, batches=batches)
    assert content(tmp_path / "a") == content(tmp_path / "b") == content(tmp_path / "c")
    file = pq.ParquetFile(tmp_path / "a" / "documents.parquet")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [16, 16, 16, 12]
    assert_equal(open_tokens(tmp_path / "a"), store)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_take_two_bytes_where_the_vocabulary_fits(tmp_path: Path, vocab_size: int, dtype: Any) -> None:
    store = store_of([5, 0, 40], vocab_size=vocab_size)
    store.input_ids[0] = vocab_size - 1
    write_store(store, tmp_path, vocab_size)
    opened = open_tokens(tmp_path)
    assert opened.input_ids.dtype == dtype
    assert opened.input_ids[0] == opened.largest_id() == vocab_size - 1
    assert {name: getattr(opened, name).dtype for name in LISTS[1:]} == {n: DTYPES[n] for n in LISTS[1:]}


def mapped(array: np.ndarray) -> str:
    """File of the memory mapping that an array lies in."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
        if first <= address < last:
            return line.split(maxsplit=5)[-1]
    return ""


@pytest.mark.parametrize("chosen", [[2, 1, 2, 0], [0, 1, 2, 3], [3], [1, 2, 0, 1], []])
def test_documents_of_an_opened_store_are_selected_as_of_one_in_memory(tmp_path: Path, chosen: list[int]) -> None:
    store = store_of([70, 0, 131, 5], jumps=0.3)
    write_store(store, tmp_path, 1000)
    documents = np.array(chosen, dtype=np.int64)
    assert_equal(open_tokens(tmp_path).select(documents), store.select(documents))


def test_select_gives_these_documents_in_this_order() -> None:
    store = store_of([2, 0, 3, 1])
    chosen = store.select(np.array([2, 1, 2, 0]))
    assert chosen.doc_ids.to_pylist() == ["d2", "d1", "d2", "d0"]
    assert chosen.doc_offsets.tolist() == [0, 3, 3, 6, 8]
    two, none = store.input_ids[2:5].tolist(), store.input_ids[:2].tolist()
    assert chosen.input_ids.tolist() == [*two, *two, *none]
    assert chosen.individual.tolist() == store.individual[[2, 1, 2, 0]].tolist()
    assert store.select(np.array([], dtype=int)).num_tokens == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flags": np.zeros(5, np.uint8)}, "flags has 5 entries for 6 tokens"),
        ({"doc_offsets": np.array([0, 2, 7])}, "offsets do not match"),
        ({"doc_offsets": np.array([0, 6])}, "offsets do not match"),
        ({"doc_offsets": np.array([1, 2, 6])}, "offsets do not match"),
        ({"doc_offsets": np.array([0, 7, 6])}, "offsets do not match"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        store_of([2, 4]).with_columns(**change)
    with pytest.raises(TypeError, match="other"):
        store_of([2, 4]).with_columns(other=np.zeros(6))


def test_a_folder_without_tokens_or_with_older_ones_is_an_artifact_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ArtifactError, match=r"no protected tokens here; expected view\.parquet"):
            open_tokens(folder)
    (tmp_path / "shard-00000.arrow").write_bytes(b"")
    with pytest.raises(ArtifactError, match="an older version of Reticent; run protect again"):
        open_tokens(tmp_path)


@pytest.mark.parametrize("harm", ["missing", "no bytes", "first half", "end cut", "more"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_damaged_file_is_an_artifact_error_with_its_name(tmp_path: Path, harm: str, name: str) -> None:
    write_store(store_of([4] * 300), tmp_path, 1000)
    path = tmp_path / name
    sound = path.read_bytes()
    path.unlink()
    others = {"no bytes": b"", "first half": sound[: len(sound) // 2], "end cut": sound[:-8], "more": sound + bytes(8)}
    if harm != "missing":
        path.write_bytes(others[harm])
    with pytest.raises(ArtifactError, match=rf"{name}|expected view|ids, or tokens"):
        open_tokens(tmp_path)


def test_a_table_of_another_schema_is_refused(tmp_path: Path) -> None:
    write_store(store_of([4] * 30), tmp_path, 1000)
    pq.write_table(pa.table({"doc_id": ["d"], "text": ["x"]}), tmp_path / "documents.parquet")
    with pytest.raises(ArtifactError, match=r"documents\.parquet: not a table of protected tokens of this version"):
        open_tokens(tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("documents", "end", [3, 2, 4]),
        ("view", "document", [0, 3]),
        ("view", "document", [0, 0, 2]),
        ("view", "document", [-1, 2]),
        ("exceptions", "token", [-1, 2]),
        ("exceptions", "token", [2, 2]),
        ("ngram_starts", "token", [1, 12]),
        ("ngram_starts", "token", [-1, 2]),
    ],
)
def test_tables_that_do_not_fit_the_tokens_are_refused(
    name: str, column: str, values: list[int], tmp_path: Path
) -> None:
    write_store(store_of([4] * 3), tmp_path, 1000)
    path = tmp_path / f"{name}.parquet"
    schema = pq.read_schema(path)
    strings = pa.array(["d"] * len(values), pa.string())
    rows = {f.name: strings if f.type == pa.string() else pa.array([1] * len(values), f.type) for f in schema}
    rows[column] = pa.array(values, pa.int64())
    pq.write_table(pa.table(rows, schema=schema), path)
    with pytest.raises(ArtifactError, match=r"do not ascend|not there|entries"):
        open_tokens(tmp_path)


def test_bytes_changed_anywhere_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    write_store(store_of([3] * 40), tmp_path, 1000)
    draw, refused = random.Random(0), 0
    sound = content(tmp_path)
    for _ in range(200):
        name = draw.choice(sorted(FILES))
        damaged = bytearray(sound[name])
        for _ in range(draw.choice((1, 3, 20))):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 255, draw.randrange(256)))
        (tmp_path / name).unlink()  # and not written over: an earlier mapping of it may still be open
        (tmp_path / name).write_bytes(damaged)
        try:
            opened = open_tokens(tmp_path)
            opened.select(np.arange(opened.num_documents))  # n-gram starts are read where they are asked for
        except ArtifactError:
            refused += 1
        (tmp_path / name).write_bytes(sound[name])
    assert refused > 30


@pytest.mark.parametrize("rows_per_group", [1, 2, 7])
def test_ngram_starts_are_the_same_wherever_row_groups_begin(
    rows_per_group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_writer, "ROWS_PER_GROUP", rows_per_group)
    store = store_of([3, 0, 9, 1, 30, 2])
    write_store(store, tmp_path, 1000)
    opened = open_tokens(tmp_path)
    chosen = [np.array(rows) for rows in ([4], [0, 5], [1], [5, 0, 2], [0, 1, 2, 3, 4, 5])]
    with ThreadPoolExecutor(4) as pool:  # of one file, which knows what was read last
        found = list(pool.map(lambda number: opened.select(chosen[number % len(chosen)]), range(40)))
    for number, selected in enumerate(found):
        assert_equal(selected, store.select(chosen[number % len(chosen)]))


def test_a_store_that_was_built_in_memory_has_no_file_of_a_tokenizer() -> None:
    with pytest.raises(ArtifactError, match="built in memory"):
        _ = store_of([1]).tokenizer_path


@pytest.mark.parametrize(
    ("name", "value", "says"), [("flags", 4, "flags"), ("flags", 255, "flags"), ("word_ids", -2, "out of order")]
)
def test_values_that_no_writer_puts_there_are_found_when_asked_for(name: str, value: int, says: str) -> None:
    store = store_of([3, 2])
    store.word_ids[:] = [0, -1, 1, 0, 0]
    store.check()
    getattr(store, name)[3] = value
    with pytest.raises(ArtifactError, match=says):
        store.check()


def test_flags_that_are_there_are_said_to_be_there(tmp_path: Path) -> None:
    for flags in ([0, 0, 0], [0, 1, 0], [2, 0, 0], [1, 2, 3]):
        store = store_of([3]).with_columns(flags=np.array(flags, dtype=np.uint8))
        folder = tmp_path / str(flags)
        write_store(store, folder, 1000)
        for tokens in (store, open_tokens(folder)):
            assert [tokens.has_flag(bits) for bits in (1, 2, 3)] == [
                any(flag & bits for flag in flags) for bits in (1, 2, 3)
            ]
            ids = store.input_ids[np.array(flags) > 0]
            assert np.flatnonzero(tokens.ids_with(3, 1000)).tolist() == sorted(set(ids.tolist()))


def test_a_file_is_hashed_while_it_is_written_and_read_again_where_it_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = HashedFile(path)
    for part in (b"abc", np.arange(5, dtype=np.uint16), b""):
        file.write(part)
    file.close()
    assert written_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert written_digest(path) is None  # told once
    with write_artifact(tmp_path / "artefact", kind="tokens", config={}, inputs={}) as writer:
        for name in ("kept", "changed"):
            file = HashedFile(writer.path / name)
            file.write(b"before")
            file.close()
        (writer.path / "changed").write_bytes(b"after!")
    found = {name: about["sha256"] for name, about in read_manifest(tmp_path / "artefact").files.items()}
    assert found == {n: hashlib.sha256(b).hexdigest() for n, b in (("kept", b"before"), ("changed", b"after!"))}
