"""An index whose n-grams stay in their files: rows, texts of others, damaged files, and the memory of its tables."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import share_of
from fixtures.indexes import build, protected
from oracles.ngrams import protected_words, split, supports

from reticent import _rust
from reticent.core import memory
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.index import open_index, write_index
from reticent.job import views
from reticent.job.variants import Variant

Corpus = list[tuple[str, int]]


def drawn(seed: int, num_words: int = 40) -> Corpus:
    rng = random.Random(seed)
    words = [f"w{number:03}" for number in range(num_words)]
    return [(" ".join(rng.choices(words, k=rng.randint(1, 9))), rng.randrange(6)) for _ in range(60)]


def test_words_that_no_ngram_holds_make_an_identifying_one_of_another_text() -> None:
    """Every word is used by two, and of all pairs just one: a table made for the ids that pairs name knows too few."""
    index = build([("a b", 0), ("a b", 1)] + [(word, unit) for word in "cdefgh" for unit in (0, 1)], max_n=2)
    texts = [f"{left} {right}" for left in "abcdefgh" for right in "abcdefgh"]
    found = protected(index, texts, k=2, n=2)
    assert [text for text, flagged in zip(texts, found, strict=True) if not flagged] == ["a b"]


@pytest.mark.parametrize("seed", range(20))
def test_texts_of_others_match_the_oracle(seed: int, tmp_path: Path) -> None:
    corpus = drawn(seed, num_words=(3, 9, 40, 300)[seed % 4])
    others = [text for text, _ in drawn(seed + 100, num_words=(3, 9, 40, 300)[seed % 4])]
    write_index(index := build(corpus), tmp_path)
    opened = open_index(tmp_path)
    for k, n in ((2, 2), (3, 3), (2, 3), (5, 2)):
        expected = [set(protected_words(tokens, supports(corpus, n), k, n, "all")) for tokens in split(others)]
        assert protected(index, others, k=k, n=n) == protected(opened, others, k=k, n=n) == expected


def test_rows_are_read_wherever_row_groups_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.engine.index.ROWS_PER_GROUP", 7)
    write_index(index := build(drawn(3)), tmp_path)
    opened, num_rows = open_index(tmp_path), index.num_ngrams(2)
    assert opened.num_ngrams(2) == num_rows > 50
    whole = pa.record_batch(index.level(2))
    for start, length in itertools.product((0, 1, 6, 7, 8, num_rows - 1, num_rows, num_rows + 5), (0, 1, 7, 20, 999)):
        assert opened.level(2, start, length).equals(whole.slice(start, length)), (start, length)
    assert opened.level(2).equals(whole)


def test_an_index_is_written_over_the_files_it_is_read_from(tmp_path: Path) -> None:
    write_index(build(drawn(1)), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_index(open_index(tmp_path), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_file_that_takes_the_place_of_another_is_not_read(tmp_path: Path) -> None:
    write_index(index := build(drawn(1)), tmp_path)
    opened = open_index(tmp_path)
    write_index(build(drawn(2)), tmp_path)
    texts = [text for text, _ in drawn(4)]
    assert protected(opened, texts, k=2, n=3) == protected(index, texts, k=2, n=3)


@pytest.mark.parametrize(("name", "number"), [("max_n", 3_000_000), ("max_n", 0), ("min_support", 300)])
def test_numbers_that_no_index_has_are_refused(name: str, number: int, tmp_path: Path) -> None:
    write_index(build(drawn(1)), tmp_path)
    table = pq.read_table(path := tmp_path / "words.parquet")
    metadata = {**table.schema.metadata, f"reticent.{name}".encode(): str(number).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with pytest.raises(ArtifactError, match=str(tmp_path)):
        open_index(tmp_path)


def test_tables_of_longer_n_grams_than_the_core_counts_are_refused() -> None:
    words = pa.record_batch(build(drawn(1)).words())
    level = pa.record_batch(build(drawn(1)).level(2, 0, 0))
    about: dict[str, Any] = {"num_units": 9, "num_documents": 9, "min_support": 2, "surface": "exact"}
    assert _rust.NgramIndex.from_tables(words, [level] * 7, max_n=8, **about).max_n == 8
    with pytest.raises(ArtifactError, match="max_n is beyond 8"):
        _rust.NgramIndex.from_tables(words, [level] * 8, max_n=9, **about)


def test_damage_of_a_level_ends_in_an_error_that_names_the_folder(tmp_path: Path) -> None:
    write_index(build(drawn(1)), tmp_path)
    content = (path := tmp_path / "ngrams_2.parquet").read_bytes()
    texts = [text for text, _ in drawn(1)]
    rng, whole, messages = random.Random(0), protected(open_index(tmp_path), texts, k=2, n=3), []
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged[: len(damaged) - rng.choice((0, 0, 0, 9))])
        try:
            found = protected(open_index(tmp_path), texts, k=2, n=3)
        except ArtifactError as error:
            messages.append(str(error))
        else:
            assert found == whole
    assert len(messages) > 200
    assert all(str(tmp_path) in message for message in messages)


def test_damage_of_a_level_without_checksums_ends_in_an_error_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without checksums damage reaches the library that reads pages, which panics on some of it."""
    write_index(build(drawn(1)), tmp_path)
    table = pq.read_table(path := tmp_path / "ngrams_2.parquet")
    pq.write_table(table, path, compression="none", data_page_size=512)
    content, num_told = path.read_bytes(), 0
    for at in share_of(range(4, len(content) - 8)):
        for value in (0, 33, 255):
            path.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
            try:
                open_index(tmp_path).level(2)
            except ArtifactError:
                num_told += 1
    assert num_told > 12
    assert capfd.readouterr().err == ""


def test_damage_of_words_is_told_or_changes_none(tmp_path: Path) -> None:
    """A support that is one too large would let a word of one individual be a target."""
    write_index(index := build(drawn(1)), tmp_path)
    content = (path := tmp_path / "words.parquet").read_bytes()
    whole, num_told = pa.record_batch(index.words()), 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            found = open_index(tmp_path).words()
        except ArtifactError:
            num_told += 1
        else:
            assert found.equals(whole), at
    assert num_told > 200


def test_room_is_asked_for_once_whatever_tables_are_held(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(map("w{}".format, rng.integers(0, 3000, 20_000))) for _ in range(20)]
    write_index(build([(text, unit) for i, text in enumerate(texts) for unit in (2 * i, 2 * i + 1)], max_n=2), tmp_path)
    index = open_index(tmp_path)
    tables = index.table_bytes(k=2, n=2)
    assert index.table_bytes(k=3, n=2) < tables
    assert tables > 8 * index.num_ngrams(2)
    array = pa.array(texts[:2])
    words = _rust.segment(array)
    index.protect(array, words, k=255, n=2)  # the table of words, which stays
    index.forget_tables()
    job = SimpleNamespace(memory_limit=memory.own_bytes() + tables + (32 << 20))
    run: Any = SimpleNamespace(
        job=job, policy=SimpleNamespace(k=2, n=2), index=lambda _: index, forget_tables=lambda *_: index.forget_tables()
    )
    for _ in range(3):
        views.require_room(run, [Variant("train")], 16 << 20)
        index.protect(array, words, k=2, n=2)
    job.memory_limit = 10 << 20
    with pytest.raises(
        PolicyError, match=r"memory limit of 10MB cannot be held: n-grams that protect tokens take \d+MB"
    ):
        views.require_room(run, [Variant("train")], 16 << 20)
