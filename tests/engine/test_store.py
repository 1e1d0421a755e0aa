"""Protected tokens on disk: what was written is what is opened, mapped and not copied; what is damaged is refused."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import ArtifactError
from reticent.engine.schema import protected_tokens_schema
from reticent.engine.store import LISTS, ShardWriter, TokenStore, open_tokens, tokenizer_fingerprint

DTYPES = {"input_ids": np.uint16, "word_ids": np.int32, "flags": np.uint8, "ngram_starts": np.uint8}


def store_of(lengths: list[int], seed: int = 0, vocab_size: int = 1000) -> TokenStore:
    draw = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    num = int(offsets[-1])
    ids = draw.integers(0, vocab_size, num).astype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
    columns = [ids, draw.integers(-1, 9, num, dtype=np.int32), *draw.integers(0, 4, (2, num), dtype=np.uint8)]
    individual = draw.integers(0, 5, len(lengths), dtype=np.uint32)
    return TokenStore(*columns, offsets, individual, pa.array([f"d{i}" for i in range(len(lengths))], pa.string()))


def write(store: TokenStore, folder: Path, *, batches: int = 1, vocab_size: int = 1000, **options: int) -> ShardWriter:
    folder.mkdir(parents=True, exist_ok=True)
    writer = ShardWriter(folder, vocab_size, **options)
    cuts = np.linspace(0, store.num_documents, batches + 1).astype(int)
    for first, end in itertools.pairwise(cuts):
        part = store.select(np.arange(first, end))
        writer.write(part.doc_ids, part.individual, part.doc_offsets, *(getattr(part, name) for name in LISTS))
    writer.close()
    return writer


def assert_equal(found: TokenStore, expected: TokenStore) -> None:
    for name in (*LISTS, "doc_offsets", "individual"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.doc_ids.to_pylist() == expected.doc_ids.to_pylist()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def shards_by_hand(lengths: list[int], tokens_per_shard: int) -> list[int]:
    """Documents of each shard: a document is never cut, and the one that fills a shard is its last."""
    shards, documents, tokens = [], 0, 0
    for length in lengths:
        documents, tokens = documents + 1, tokens + length
        if tokens >= tokens_per_shard:
            shards.append(documents)
            documents = tokens = 0
    return [*shards, documents] if documents or not shards else shards


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
def test_written_tokens_are_opened_whatever_the_shards_and_the_bytes_do_not_depend_on_batches(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], tokens_per_shard: int, batches: int, others: int
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = store_of(lengths)
    writer = write(store, folder / "a", batches=batches, tokens_per_shard=tokens_per_shard)
    assert (writer.num_documents, writer.num_tokens) == (store.num_documents, store.num_tokens)
    assert_equal(open_tokens(folder / "a"), store)
    expected = shards_by_hand(lengths, tokens_per_shard)
    found = [pa.ipc.open_file(str(path)).read_all().num_rows for path in sorted((folder / "a").iterdir())]
    assert found == expected
    assert writer.num_shards == len(expected)
    write(store, folder / "b", batches=others, tokens_per_shard=tokens_per_shard)
    assert content(folder / "a") == content(folder / "b")
    assert sorted(content(folder / "a")) == [f"shard-{i:05d}.arrow" for i in range(len(expected))]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, np.uint16), ((1 << 16) + 1, np.uint32)])
def test_ids_take_two_bytes_where_the_vocabulary_fits(tmp_path: Path, vocab_size: int, dtype: Any) -> None:
    store = store_of([5, 0, 40], vocab_size=vocab_size)
    store.input_ids[0] = vocab_size - 1
    write(store, tmp_path, vocab_size=vocab_size)
    opened = open_tokens(tmp_path)
    assert opened.input_ids.dtype == dtype
    assert opened.input_ids[0] == vocab_size - 1
    assert {name: getattr(opened, name).dtype for name in LISTS[1:]} == {n: DTYPES[n] for n in LISTS[1:]}


def mapped(array: np.ndarray) -> str:
    """File of the memory mapping that an array lies in."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(bound, 16) for bound in line.split()[0].split("-"))
        if first <= address < last:
            return line.split(maxsplit=5)[-1]
    return ""


def test_one_shard_is_mapped_and_its_tokens_are_not_copied(tmp_path: Path) -> None:
    write(store_of([3] * 20_000), tmp_path, batches=7)
    opened = open_tokens(tmp_path)
    assert opened.num_documents == 20_000
    for name in LISTS:
        assert mapped(getattr(opened, name)) == str(tmp_path / "shard-00000.arrow"), name
    with pytest.raises(ValueError, match="read-only"):
        opened.input_ids[0] = 1


def test_select_gives_these_documents_in_this_order(tmp_path: Path) -> None:
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
    store = store_of([2, 4])
    values = {name: getattr(store, name) for name in (*LISTS, "doc_offsets", "individual", "doc_ids")}
    with pytest.raises(ArtifactError, match=message):
        TokenStore(**{**values, **change})


def test_a_folder_without_shards_is_an_artifact_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ArtifactError, match=r"no protected-token shards here; expected shard-00000\.arrow"):
            open_tokens(folder)


@pytest.mark.parametrize("harm", ["no bytes", "garbage", "first half", "end cut"])
@pytest.mark.parametrize("shard", [0, 1])
def test_a_damaged_shard_is_an_artifact_error_with_its_name(tmp_path: Path, harm: str, shard: int) -> None:
    write(store_of([4] * 30), tmp_path, tokens_per_shard=60)
    path = tmp_path / f"shard-{shard:05d}.arrow"
    sound = path.read_bytes()
    damaged = {"no bytes": b"", "garbage": b"x" * 500, "first half": sound[: len(sound) // 2], "end cut": sound[:-8]}
    path.write_bytes(damaged[harm])
    with pytest.raises(ArtifactError, match=rf"{path.name}: not a readable shard of protected tokens"):
        open_tokens(tmp_path)


def test_a_shard_of_another_schema_is_refused(tmp_path: Path) -> None:
    write(store_of([4] * 30), tmp_path, tokens_per_shard=60)
    first, second = sorted(tmp_path.iterdir())
    other = pa.table({"doc_id": ["d"], "text": ["x"]})
    with pa.OSFile(str(second), "wb") as file, pa.ipc.new_file(file, other.schema) as writer:
        writer.write_table(other)
    with pytest.raises(ArtifactError, match=r"shard-00001\.arrow: another schema than the first shard's"):
        open_tokens(tmp_path)
    second.rename(first)
    with pytest.raises(ArtifactError, match=r"shard-00000\.arrow: not a shard of protected tokens of this version"):
        open_tokens(tmp_path)


def test_lists_of_other_lengths_are_refused(tmp_path: Path) -> None:
    schema = protected_tokens_schema(1000)
    columns: list[list[Any]] = [["a", "b"], [0, 1], [[1, 2], [3]], [[0, 1], [0]], [[0], [0, 0]], [[0, 0], [0]]]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    with pa.OSFile(str(tmp_path / "shard-00000.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(ArtifactError, match="column flags has other lengths than input_ids"):
        open_tokens(tmp_path)


def test_bytes_changed_anywhere_are_refused_or_read_and_never_crash(tmp_path: Path) -> None:
    write(store_of([3] * 40), tmp_path)
    path, draw, refused = tmp_path / "shard-00000.arrow", random.Random(0), 0
    sound = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(sound)
        for _ in range(draw.choice((1, 3, 20))):
            damaged[draw.randrange(len(damaged))] = draw.choice((0, 255, draw.randrange(256)))
        path.unlink()  # and not written over: an earlier mapping of it may still be open
        path.write_bytes(damaged)
        try:
            opened = open_tokens(tmp_path)
        except ArtifactError:
            refused += 1
        else:
            opened.select(np.arange(opened.num_documents))
    assert refused > 50


def test_fingerprint_of_a_tokenizer_is_of_its_bytes(tmp_path: Path) -> None:
    for name, text in (("a", "{}"), ("b", "{}"), ("c", "{ }")):
        (tmp_path / name).write_text(text)
    a, b, c = (tokenizer_fingerprint(tmp_path / name) for name in "abc")
    assert a == b != c
    with pytest.raises(ArtifactError, match="built in memory"):
        _ = store_of([1]).tokenizer_path


@pytest.mark.parametrize("offsets", [[0, 3, 2, 4]])
def test_offsets_that_do_not_fit_the_tokens_are_refused_with_the_shard_s_name(
    offsets: list[int], tmp_path: Path
) -> None:
    schema = protected_tokens_schema(1000)
    columns: list[pa.Array] = [pa.array(["a", "b", "c"]), pa.array([0, 1, 2], pa.uint32())]
    for name in LISTS:
        values = pa.array([0, 1, 2, 3], schema.field(name).type.value_type)
        columns.append(
            pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values, type=schema.field(name).type)
        )
    with pa.OSFile(str(tmp_path / "shard-00000.arrow"), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    with pytest.raises(ArtifactError, match="shard-00000"):
        open_tokens(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "says"), [("flags", 4, "flags"), ("flags", 255, "flags"), ("word_ids", -2, "out of order")]
)
def test_values_that_no_writer_gives_are_found_when_asked_for(name: str, value: int, says: str, tmp_path: Path) -> None:
    store = store_of([3, 2])
    store.word_ids[:] = [0, -1, 1, 0, 0]
    store.check()
    getattr(store, name)[3] = value
    write(store, tmp_path)
    with pytest.raises(ArtifactError, match=rf"{tmp_path.name}.*{says}"):
        open_tokens(tmp_path).check()
