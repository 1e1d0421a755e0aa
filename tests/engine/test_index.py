"""The index and the policies against brute force."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.drawing import examples
from fixtures.indexes import build, corpora, documents, protected
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.ngrams import minimal, protected_words, split, supports

from reticent import _rust
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.index import open_index, write_index

LEVEL = ("left", "right", "support")
POLICIES = ("all", "last", "cover", "paper")


@settings(max_examples=examples(150))
@given(corpora, st.integers(1, 4))
def test_supports_match_the_oracle(corpus: list[tuple[str, int]], max_n: int) -> None:
    index = build(corpus, max_n=max_n, min_support=1)
    counts = supports(corpus, max_n)
    table = pa.record_batch(index.words())
    names: list[tuple[str, ...]] = [(word,) for word in table.column("word").to_pylist()]
    found = dict(zip(names, table.column("support").to_pylist(), strict=True))
    for n in range(2, max_n + 1):
        level = pa.record_batch(index.level(n))
        grams = [
            names[left] + names[right][-1:]
            for left, right in zip(level.column("left").to_pylist(), level.column("right").to_pylist(), strict=True)
        ]
        found |= dict(zip(grams, level.column("support").to_pylist(), strict=True))
        names = grams
    assert found == counts


@settings(max_examples=examples(150))
@given(corpora, st.integers(2, 4), st.integers(1, 4), st.sampled_from(POLICIES))
def test_policies_match_the_oracle(corpus: list[tuple[str, int]], k: int, n: int, policy: str) -> None:
    texts = [text for text, _ in corpus]
    counts = supports(corpus, n)
    got = protected(build(corpus, max_n=n), texts, k=k, n=n, policy=policy)
    for tokens, flagged in zip(split(texts), got, strict=True):
        expected = protected_words(tokens, counts, k, n, policy)
        if policy == "cover":
            intervals = minimal(tokens, counts, k, n)
            assert all(any(first <= i <= last for i in flagged) for first, last in intervals)
            assert len(flagged) == len(expected)
        else:
            assert flagged == expected


@pytest.mark.parametrize("surface", ["casefold", "fold"])
@pytest.mark.parametrize(
    ("spelling", "other", "is_same"),
    [
        ("STRAẞE", "straße", True),  # the capital is its own upper case, and ß its lower case
        ("\u1ffc\u0308", "\u03c9\u03b9\u0308", False),  # folded, the first is the second, whose last two compose
    ],
)
def test_a_spelling_is_not_taken_for_the_surface_of_another(
    surface: str, spelling: str, other: str, is_same: bool
) -> None:
    """One individual uses a word that others do not: it is protected though their word is folded to how it is spelt."""
    texts = [spelling, spelling, spelling, other]
    builder = _rust.IndexBuilder(max_n=1, surface=surface)
    builder.add(pa.array(texts), np.arange(4, dtype=np.uint32))
    words = pa.record_batch(_rust.apply_surface(pa.array(texts), surface=surface)).column("word").to_pylist()
    assert (len(set(words)) == 1) == (is_same or surface == "fold")
    alone = set() if len(set(words)) == 1 else {0}
    assert protected(builder.finish(), texts, k=2, n=1) == [set(), set(), set(), alone]


@settings(max_examples=examples(60))
@given(corpora, st.integers(2, 4))
def test_starts_mark_exactly_the_minimal_ngrams(corpus: list[tuple[str, int]], k: int) -> None:
    texts = [text for text, _ in corpus]
    array = pa.array(texts, pa.string())
    segmented = _rust.segment(array)
    _, starts = build(corpus).protect(array, segmented, k=k, n=3)
    counts = supports(corpus, 3)
    for tokens, (a, b) in zip(split(texts), itertools.pairwise(segmented.doc_offsets), strict=True):
        marked = {(i, i + n) for i in range(b - a) for n in range(3) if starts[a + i] >> n & 1}
        assert marked == set(minimal(tokens, counts, k, 3))


@settings(max_examples=examples(60))
@given(corpora)
def test_paper_policy_grows_with_k_and_n(corpus: list[tuple[str, int]]) -> None:
    texts = [text for text, _ in corpus]
    index = build(corpus, max_n=3)
    for k, n in itertools.product((2, 3), (1, 2)):
        small = protected(index, texts, k=k, n=n, policy="paper")
        for larger in ({"k": k + 1, "n": n}, {"k": k, "n": n + 1}):
            assert all(a <= b for a, b in zip(small, protected(index, texts, policy="paper", **larger), strict=True))


@settings(max_examples=examples(60))
@given(corpora, st.integers(2, 4))
def test_cover_is_within_last(corpus: list[tuple[str, int]], k: int) -> None:
    texts = [text for text, _ in corpus]
    index = build(corpus)
    cover, last = (protected(index, texts, k=k, n=3, policy=policy) for policy in ("cover", "last"))
    assert all(a <= b for a, b in zip(cover, last, strict=True))


@settings(max_examples=examples(60))
@given(corpora, st.randoms(use_true_random=False), st.integers(1, 4))
def test_tables_depend_on_documents_alone(corpus: list[tuple[str, int]], random: object, threads: int) -> None:
    shuffled = list(corpus)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    builder = _rust.IndexBuilder(max_n=3, num_threads=threads)
    for text, unit in shuffled:  # one document a batch, in another order, one of them twice
        builder.add(pa.array([text], pa.large_string()), np.array([unit], dtype=np.uint32))
    text, unit = shuffled[0]
    builder.add(pa.array([text], pa.string_view()), np.array([unit], dtype=np.uint32))
    again = builder.finish()
    once = build(corpus, threads=1)
    assert pa.record_batch(once.words()).select(["word", "support"]) == pa.record_batch(again.words()).select(
        ["word", "support"]
    )
    for n in (2, 3):
        assert pa.record_batch(once.level(n)) == pa.record_batch(again.level(n))


@settings(max_examples=examples(60))
@given(corpora, corpora)
def test_merging_disjoint_individuals_equals_indexing_the_union(
    first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    second = [(text, unit + 10) for text, unit in second]
    merged = build(first, min_support=1).merge(build(second, min_support=1))
    union = build(first + second, min_support=1)
    assert pa.record_batch(merged.words()) == pa.record_batch(union.words())
    for n in (2, 3):
        assert pa.record_batch(merged.level(n)) == pa.record_batch(union.level(n))
    assert merged.num_units == union.num_units


@settings(max_examples=40)
@given(corpora, documents)
def test_adding_an_individual_never_lowers_a_support(corpus: list[tuple[str, int]], text: str) -> None:
    before, after = supports(corpus, 2), supports([*corpus, (text, 99)], 2)
    table = pa.record_batch(build([*corpus, (text, 99)], max_n=2).words())
    found = dict(zip(table.column("word").to_pylist(), table.column("support").to_pylist(), strict=True))
    assert all(found[gram[0]] >= count for gram, count in before.items() if len(gram) == 1)
    assert all(after[gram] >= count for gram, count in before.items())


def test_supports_are_exact_however_many() -> None:
    index = build([("common pair", unit) for unit in range(300)], max_n=2)
    assert pa.record_batch(index.words()).column("support").to_pylist() == [300, 300]
    assert pa.record_batch(index.level(2)).column("support").to_pylist() == [300]


def test_unknown_words_are_identifying() -> None:
    assert protected(build([("a b", 0), ("a b", 1)]), ["a new b"], k=2, n=1) == [{1}]


def test_document_frequency_cut_ignores_ngrams_of_common_words() -> None:
    index = build([("a b", 0), ("b a", 1), ("a x", 2), ("b x", 3)], max_n=2)
    assert protected(index, ["a b"], k=2, n=2) == [{0, 1}]
    assert protected(index, ["a b"], k=2, n=2, max_document_frequency=0.5) == [set()]


@pytest.mark.parametrize("texts", [[], [""], [" \n"], ["."], ["one"], ["e\u0301 é", "\u202eabc", "👩‍⚕️ x", "nul\0byte"]])
def test_edges_do_not_fail(texts: list[str]) -> None:
    index = build([(text, i) for i, text in enumerate(texts)])
    assert len(protected(index, texts, k=2, n=3)) == len(texts)


def test_composed_and_decomposed_letters_are_one_word() -> None:
    assert protected(build([("e\u0301te", 0), ("éte", 1)]), ["éte", "e\u0301te"], k=2, n=1) == [set(), set()]


@pytest.mark.parametrize(
    ("text", "num"),
    [
        ("the fever", 0),
        ("患者は発熱", 5),
        ("カルテ 患", 1),
        ("ไข้ กา x", 4),
        ("ຄົນ မြန် ខ្មែរ", 7),
        ("한국어 é", 0),
        ("", 0),
    ],
)
def test_letters_of_scripts_without_spaces_are_counted(text: str, num: int) -> None:
    """UAX #29 makes a word of each, with the marks on it; runs of Katakana and Hangul have words."""
    index = build([(text, 0), (text, 1)], max_n=1)
    assert index.num_unspaced == 2 * num


@pytest.mark.parametrize(
    "options",
    [{"k": 1, "n": 1}, {"k": 256, "n": 1}, {"k": 2, "n": 4}, {"k": 2, "n": 0}, {"k": 2, "n": 1, "policy": "x"}],
)
def test_settings_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        protected(build([("a", 0), ("b", 1)]), ["a"], **options)


def test_pruned_indexes_cannot_be_merged() -> None:
    with pytest.raises(PolicyError, match="min_support"):
        build([("a", 0)]).merge(build([("a", 1)]))


def test_null_text_is_refused_with_its_row() -> None:
    with pytest.raises(ValueError, match="row 1 is null"):
        _rust.segment(pa.array(["a", None]))


def test_files_are_the_same_bytes_for_any_number_of_threads(tmp_path: Path) -> None:
    corpus = [(" ".join(f"w{(i * j) % 97}" for j in range(60)), i % 40) for i in range(200)]
    for threads in (1, 2, 3):
        (tmp_path / str(threads)).mkdir()
        write_index(build(corpus, threads=threads), tmp_path / str(threads))
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert names == ["ngrams_2.parquet", "ngrams_3.parquet", "words.parquet"]
    for name in names:
        assert len({(tmp_path / str(threads) / name).read_bytes() for threads in (1, 2, 3)}) == 1


@settings(max_examples=25)
@given(corpora)
def test_a_written_index_protects_like_the_one_in_memory(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("index")
    index = build(corpus)
    write_index(index, folder)
    texts = [text for text, _ in corpus]
    assert protected(open_index(folder), texts, k=2, n=3) == protected(index, texts, k=2, n=3)


def test_a_broken_table_is_an_artifact_error(tmp_path: Path) -> None:
    write_index(build([("a b", 0), ("a b", 1)]), tmp_path)
    (tmp_path / "ngrams_2.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ArtifactError, match=r"ngrams_2\.parquet"):
        open_index(tmp_path)


@pytest.mark.parametrize(
    ("left", "right", "support", "message"),
    [
        ([0, 0], [1, 1], [2, 2], "not sorted, or not distinct"),
        ([0, 1], [1, 2], [2, 2], "names a word or an n-gram that is not there"),
        ([0, 2**32 - 1], [1, 0], [2, 2], "names a word or an n-gram that is not there"),
        ([0, 1], [1, None], [2, 2], "column right has nulls"),
    ],
)
def test_a_table_that_does_not_fit_is_an_artifact_error(
    left: list[int], right: list[int | None], support: list[int], message: str
) -> None:
    index = build([("a b", 0), ("a b", 1)], max_n=2)
    columns = {"left": left, "right": right, "support": support}
    level = pa.record_batch({name: pa.array(values, pa.uint32()) for name, values in columns.items()})
    about = {"max_n": 2, "num_units": 2, "num_documents": 2, "min_support": 2, "surface": "exact"}
    with pytest.raises(ArtifactError, match=message):
        _rust.NgramIndex.from_tables(pa.record_batch(index.words()), [level], **about)


def test_an_ngram_is_made_of_those_that_are_kept(tmp_path: Path) -> None:
    """The level of n = 3 numbers the kept pairs, of which there is one."""
    index = build([("a b c a b", 0), ("a b", 1)], max_n=3)
    write_index(index, tmp_path)
    assert open_index(tmp_path).num_ngrams(3) == index.num_ngrams(3)
    levels = [pa.record_batch(index.level(2)), pa.record_batch({name: pa.array([1], pa.uint32()) for name in LEVEL})]
    about = {"max_n": 3, "num_units": 2, "num_documents": 2, "min_support": 2, "surface": "exact"}
    with pytest.raises(ArtifactError, match="not there"):
        _rust.NgramIndex.from_tables(pa.record_batch(index.words()), levels, **about)


def test_an_index_whose_numbers_are_none_is_an_artifact_error(tmp_path: Path) -> None:
    write_index(build([("a b", 0), ("a b", 1)]), tmp_path)
    table = pq.read_table(tmp_path / "words.parquet")
    pq.write_table(
        table.replace_schema_metadata({**table.schema.metadata, b"reticent.max_n": b"-3"}), tmp_path / "words.parquet"
    )
    with pytest.raises(ArtifactError, match="not numbers"):
        open_index(tmp_path)


def test_hash_of_units_never_changes() -> None:
    """The split rests on it. The first is XXH3-64 of nothing from its specification; the second is pinned here."""
    assert _rust.hash_units(pa.array([""]), seed=0).tolist() == [3244421341483603138]
    assert _rust.hash_units(pa.array(["é", "a"]), seed=7).tolist()[1] == 11445204161929584788
