"""Policy and index -> flags of words, against definitions.md#identifiers in plain Python.

`test_index.py` holds the policies to brute force; here they come with the document-frequency cut, other surfaces,
documents the index has never seen, and the settings of `Policy`.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.engine.protect import DEFAULT_SCOPES, POLICIES, Policy

Corpus = list[tuple[str, int]]
Flags = list[str]

words = st.sampled_from(["a", "b", "c", "d", "é", "e\u0301", "É", "12/03"])
documents = st.lists(words, max_size=9).map(" ".join)
corpora = st.lists(st.tuples(documents, st.integers(0, 5)), min_size=1, max_size=9)
shares = st.one_of(st.none(), st.sampled_from(["0.1", "0.2", "0.25", "0.34", "0.5", "0.6", "0.75", "1"]))

SURFACES: dict[str, Callable[[str], str]] = {
    "exact": lambda word: unicodedata.normalize("NFC", word),
    "casefold": lambda word: unicodedata.normalize("NFC", word).casefold(),
    "fold": lambda word: "".join(
        c for c in unicodedata.normalize("NFD", word.casefold()) if not unicodedata.combining(c)
    ),
}


def oracle(corpus: Corpus, texts: list[str], surface: str, k: int, n: int, policy: str, share: str | None) -> Flags:
    """The definitions, word by word: supports are sets of units, an n-gram counts when no word of it is too common."""
    normalise = SURFACES[surface]
    units: dict[tuple[str, ...], set[int]] = {}
    for text, unit in corpus:
        tokens = list(map(normalise, text.split()))
        for m in range(1, n + 1):
            for i in range(len(tokens) - m + 1):
                units.setdefault(tuple(tokens[i : i + m]), set()).add(unit)
    num_units = len({unit for _, unit in corpus})

    def support(gram: tuple[str, ...]) -> int:
        return len(units.get(gram, ()))

    def is_rare(word: str) -> bool:
        return share is None or Fraction(support((word,)), num_units) < Fraction(share)

    def identifies(gram: tuple[str, ...]) -> bool:
        return support(gram) < k and (len(gram) == 1 or all(map(is_rare, gram)))

    found = []
    for text in texts:
        tokens = list(map(normalise, text.split()))
        grams = [(i, m, tuple(tokens[i : i + m])) for m in range(1, n + 1) for i in range(len(tokens) - m + 1)]
        every = [(i, i + m - 1) for i, m, gram in grams if identifies(gram)]
        minimal = [
            (i, i + m - 1)
            for i, m, gram in grams
            if identifies(gram) and (m == 1 or (support(gram[1:]) >= k and support(gram[:-1]) >= k))
        ]
        if policy == "last":
            protected = {b for _, b in minimal}
        elif policy == "cover":
            protected = smallest_cover(minimal, len(tokens))
        else:
            intervals = minimal if policy == "all" else every
            protected = {w for a, b in intervals for w in range(a, b + 1)}
        found.append("".join("1" if w in protected else "0" for w in range(len(tokens))))
    return found


def smallest_cover(intervals: list[tuple[int, int]], num_words: int) -> set[int]:
    for size in range(num_words + 1):
        for chosen in itertools.combinations(range(num_words), size):
            if all(any(a <= w <= b for w in chosen) for a, b in intervals):
                return set(chosen)
    raise AssertionError


def index_of(corpus: Corpus, n: int, surface: str = "exact") -> _rust.NgramIndex:
    builder = _rust.IndexBuilder(max_n=n, surface=surface)
    builder.add(pa.array([text for text, _ in corpus], pa.string()), np.array([u for _, u in corpus], dtype=np.uint32))
    return builder.finish()


def flags(index: _rust.NgramIndex, texts: list[str], **options: Any) -> Flags:
    array = pa.array(texts, pa.string())
    segmented = _rust.segment(array)
    got, _ = index.protect(array, segmented, **options)
    assert set(got.tolist()) <= {0, 2}
    bounds = itertools.pairwise(segmented.doc_offsets.tolist())
    return ["".join("1" if flag else "0" for flag in got[a:b]) for a, b in bounds]


@settings(max_examples=examples(300))
@given(
    corpora,
    st.lists(documents, max_size=3),
    st.sampled_from(list(SURFACES)),
    st.integers(2, 4),
    st.integers(1, 4),
    st.sampled_from(POLICIES),
    shares,
)
@example([("a b", 0), ("b a", 1), ("a c", 2), ("b c", 3)], [], "exact", 2, 3, "paper", "0.6")
def test_protect_matches_oracle(
    corpus: Corpus, new: list[str], surface: str, k: int, n: int, policy: str, share: str | None
) -> None:
    texts = [text for text, _ in corpus] + new
    expected = oracle(corpus, texts, surface, k, n, policy, share)
    got = flags(
        index_of(corpus, n, surface),
        texts,
        k=k,
        n=n,
        policy=policy,
        max_document_frequency=None if share is None else float(share),
    )
    if policy != "cover":
        assert got == expected
        return
    last = oracle(corpus, texts, surface, k, n, "last", share)
    assert [flag.count("1") for flag in got] == [flag.count("1") for flag in expected]  # as small as any cover,
    assert all(a <= b for g, e in zip(got, last, strict=True) for a, b in zip(g, e, strict=True))  # and within `last`


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        # Of 100 individuals 7 use "x" and "y", never side by side: 7 % is not less than 7 %.
        (None, "11"),
        (0.08, "11"),
        (0.07, "00"),
        (0.0701, "11"),
        (0.01, "00"),
        (1.0, "11"),
    ],
)
def test_document_frequency_cut_is_a_strict_bound(share: float | None, expected: str) -> None:
    corpus = [("x z", i) for i in range(7)] + [("y z", i) for i in range(7)] + [("z", i) for i in range(100)]
    assert flags(index_of(corpus, 2), ["x y"], k=2, n=2, max_document_frequency=share) == [expected]


@pytest.mark.parametrize("num_units", [3, 7, 10, 30, 49, 100, 300])
def test_document_frequency_cut_is_exact_for_every_share_of_the_individuals(num_units: int) -> None:
    """The product of a share and a number of individuals may be rounded past a whole number; the bound is not."""
    corpus = [(" ".join(f"w{s}" for s in range(1, num_units + 1) if s > i), i) for i in range(num_units)]
    index = index_of(corpus, 2)  # word w<s> is used by s individuals, never before itself
    for support in range(2, num_units + 1):
        text = [f"w{support} w{support}"]
        at = {"k": 2, "n": 2, "max_document_frequency": support / num_units}
        assert flags(index, text, **at) == ["00"]
        at["max_document_frequency"] = np.nextafter(support / num_units, 2)
        assert flags(index, text, **at) == ["11"]


def test_cut_never_spares_a_word_that_few_individuals_use() -> None:
    corpus = [("a b", 0), ("b c", 1), ("c a", 2)]
    for policy in POLICIES:
        got = flags(index_of(corpus, 3), ["a new b"], k=3, n=3, policy=policy, max_document_frequency=0.01)
        assert got == ["111"]


# Hand-worked: each line is its own individual, k = 2. "a" and "b" have support 3, "c" 2, "x" 1; "a b" has support 2.
HAND = ["a b c", "a b", "c a", "b x"]
HAND_TABLE = [
    # policy, n, "a b c", "a b", "c a", "b x"
    ("all", 1, None, "000 00 00 01"),
    ("all", 2, None, "011 00 11 01"),
    ("all", 3, None, "011 00 11 01"),
    ("last", 2, None, "001 00 01 01"),
    ("cover", 2, None, "001 00 01 01"),
    ("paper", 1, None, "000 00 00 01"),
    ("paper", 2, None, "011 00 11 11"),
    ("paper", 3, None, "111 00 11 11"),
    # Words of 3 of 4 individuals are too common at 75 %: no pair with "a" or "b" counts.
    ("all", 2, 0.75, "000 00 00 01"),
    ("paper", 3, 0.75, "000 00 00 01"),
]


@pytest.mark.parametrize(("policy", "n", "share", "expected"), HAND_TABLE)
def test_policies_by_hand(policy: str, n: int, share: float | None, expected: str) -> None:
    index = index_of([(text, i) for i, text in enumerate(HAND)], 3)
    got = flags(index, HAND, k=2, n=n, policy=policy, max_document_frequency=share)
    assert got == expected.split()
    by_oracle = oracle([(t, i) for i, t in enumerate(HAND)], HAND, "exact", 2, n, policy, share and str(share))
    assert policy == "cover" or got == by_oracle  # of several smallest covers either will do


@settings(max_examples=examples(60))
@given(corpora, st.sampled_from(POLICIES), shares)
def test_flags_of_a_document_do_not_depend_on_the_others_or_on_threads(
    corpus: Corpus, policy: str, share: str | None
) -> None:
    index = index_of(corpus, 3)
    texts = [text for text, _ in corpus]
    options = {"k": 2, "n": 3, "policy": policy, "max_document_frequency": None if share is None else float(share)}
    together = flags(index, texts, num_threads=2, **options)
    assert together == [flags(index, [text], num_threads=1, **options)[0] for text in texts]


def test_scopes_are_by_label_in_any_case_and_unknown_labels_reach_everywhere() -> None:
    policy = Policy(scopes={"Room": "occurrence"})
    assert policy.scope_of("NAME") == policy.scope_of("name") == "corpus"
    assert policy.scope_of("CITY") == "individual"
    assert policy.scope_of("Date") == "occurrence"
    assert policy.scope_of("Room") == "occurrence"
    assert policy.scope_of("FAVOURITE_COLOUR") == "corpus"
    assert Policy(scopes={"DATE": "corpus"}).scope_of("DATE") == "corpus"


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ({"DATE": "corpus"}, {"DATE_TIME": "corpus", "FECHAS": "corpus", "BIRTH_DATE": "corpus", "time": "corpus"}),
        ({"location": "corpus"}, {"LOCATION": "corpus", "CITY": "corpus", "AGE": "occurrence"}),
        ({"LOCATION": "corpus", "City": "occurrence"}, {"CITY": "occurrence", "STREET": "corpus"}),
        ({"date": "individual", "DATE": "corpus", "colour": "occurrence"},
         {"DATE": "corpus", "date": "individual", "FECHAS": "corpus", "Colour": "occurrence"}),
    ],
)  # fmt: skip
def test_scopes_of_the_job_are_looked_up_by_label_any_case_and_category(
    scopes: dict[str, Any], expected: dict[str, str]
) -> None:
    policy = Policy(scopes=scopes)
    assert {label: policy.scope_of(label) for label in expected} == expected
    assert policy.cache_key() != {**Policy().cache_key(), "scopes": scopes}  # flags of before are of other scopes
    assert policy.unused_scopes(expected) == []
    assert Policy(scopes={**scopes, "datte": "corpus"}).unused_scopes(expected) == ["datte"]


def test_defaults_follow_the_protocol() -> None:
    """Names, ids and contacts everywhere; dates, ages and bare numbers where they stand."""
    assert {DEFAULT_SCOPES[label] for label in ("NAME", "PERSON", "ID", "SSN", "NIR", "PHONE", "EMAIL")} == {"corpus"}
    assert {DEFAULT_SCOPES[label] for label in ("DATE", "AGE", "NUMBER", "CARDINAL")} == {"occurrence"}
    assert (Policy().k, Policy().n, Policy().policy, Policy().max_document_frequency) == (2, 1, "all", None)
