"""The Privacy metric, excess leakage and low-cost membership against sets of words, and by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from reticent import _rust
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.leakage import LowCost
from reticent.audit.evidence.rules import publish
from reticent.audit.leakage.identifiers import PART_FLAGS, Context, Identifiers
from reticent.audit.leakage.leakage import (
    _measure_calls,
    adversary_graphs,
    documents_held,
    excess_leakage,
    low_cost_membership,
    privacy,
    privacy_by_category,
    privacy_by_n,
)
from reticent.audit.leakage.words import NO_SURFACE, SurfaceTable, Words, fold, words_of
from reticent.audit.stats.intervals import clopper_pearson
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore

OPTIONS: dict[str, Any] = {"num_bootstrap": 20, "seed": 0}
PIECES = ["[UNK]", "[PAD]", "a", "A", "á", "b", "##b", "##B", "c", "##c", "bc", "##bc", "."]
ID = {piece: number for number, piece in enumerate(PIECES)}


@pytest.fixture(scope="module")
def table() -> SurfaceTable:
    return SurfaceTable(wordpiece())


def wordpiece() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(ID, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")


class Case:
    """Documents of words, what was predicted in their slots, and whose they are.

    A word is (pieces, predicted pieces or None, flags, n-gram bits); a document is (individual, words).
    """

    def __init__(self, documents: list[tuple[int, list[Any]]]):
        self.documents = documents
        tokens = [
            (piece, None if guess is None else guess[i], flags, bits if i == 0 else 0, number, document)
            for document, (_, words) in enumerate(documents)
            for number, (pieces, guess, flags, bits) in enumerate(words)
            for i, piece in enumerate(pieces)
        ]
        sizes = [sum(len(word[0]) for word in words) for _, words in documents]
        self.store = TokenStore(
            np.array([ID[t[0]] for t in tokens], dtype=np.uint16),
            np.array([t[4] for t in tokens], dtype=np.int32),
            np.array([t[2] for t in tokens], dtype=np.uint8),
            np.array([t[3] for t in tokens], dtype=np.uint8),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.array([individual for individual, _ in documents], dtype=np.uint32),
            pa.array([str(i) for i in range(len(documents))], pa.string()),
        )
        argmax = np.array([-1 if t[1] is None else ID[t[1]] for t in tokens], dtype=np.int32)
        table = SurfaceTable(wordpiece())
        self.words = words_of(self.store)
        self.true = table.surfaces(self.store.input_ids, self.words)
        self.predicted = table.surfaces(argmax, self.words)
        self.identifiers = self.identify()
        self.found = self.identifiers.predicted(self.predicted, self.words, self.true)
        self.leaked = self.found.anywhere

    def identify(self, n: int = 1, max_n: int = 3, **options: Any) -> Identifiers:
        return Identifiers(self.words, self.true, **{"k": 2, "n": n, "max_n": max_n, **options})

    def is_member(self, members: set[int]) -> np.ndarray:
        return np.isin(self.words.individuals, list(members))


def spelled(pieces: tuple[str, ...] | None) -> str | None:
    """The coarse surface by hand; None when it cannot be known."""
    if pieces is None or None in pieces or "[UNK]" in pieces:
        return None
    inner = [piece.removeprefix("##") for piece in pieces[1:]]
    return "".join([pieces[0], *inner]).lower().replace("á", "a")


def words_in(case: Case) -> list[tuple[int, str | None, str | None, int]]:
    """(individual, true, predicted, flags) of every slot."""
    return [
        (individual, spelled(pieces), spelled(guess), flags)
        for individual, words in case.documents
        for pieces, guess, flags, _ in words
    ]


def pieces(length: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.tuples(
        st.sampled_from(["[UNK]", "a", "A", "á", "b", "c", "bc"]),
        *[st.sampled_from(["[UNK]", "##b", "##B", "##c", "##bc"])] * (length - 1),
    )


def word(length: int) -> st.SearchStrategy[Any]:
    return st.tuples(pieces(length), st.none() | pieces(length), st.integers(0, 3), st.integers(0, 7))


def within(words: list[Any]) -> list[Any]:
    """Clear the bits of n-grams that would run over the end of the document; the index never sets them."""
    return [(*word[:3], word[3] & (1 << len(words) - number) - 1) for number, word in enumerate(words)]


# Three strategies that are made once: `flatmap` would make one for every word, which takes most of the time.
documents = st.lists(st.one_of(*map(word, (1, 2, 3))), max_size=6).map(within)
cases = st.lists(st.tuples(st.integers(0, 4), documents), max_size=6).map(Case)


# ----------------------------------------------------------------------- surfaces


@settings(max_examples=examples(150))
@given(cases)
def test_surfaces_match_the_oracle(case: Case) -> None:
    words = words_in(case)
    assert len(words) == len(case.words)
    numbered: dict[str, int] = {}
    for (_, true, predicted, _), own, guess in zip(words, case.true, case.predicted, strict=True):
        for surface, number in ((true, own), (predicted, guess)):
            assert (surface is None) == (number == NO_SURFACE)
            if surface is not None:
                assert numbered.setdefault(surface, number) == number
    assert len(set(numbered.values())) == len(numbered)


def test_a_word_counts_only_when_every_token_of_it_is_predicted() -> None:
    abc = ("a", "##b", "##c")
    guesses: list[Any] = [abc, ("a", "##b", "##bc"), ("b", "##b", "##c"), ("a", None, "##c"), None]
    case = Case([(0, [(abc, guess, DIRECT, 0) for guess in guesses])])
    assert (case.predicted == case.true).tolist() == [True, False, False, False, False]


def test_unknown_tokens_match_nothing_not_even_each_other() -> None:
    case = Case([(0, [(("[UNK]",), ("[UNK]",), INDIRECT, 1), (("a", "[UNK]"), ("a", "[UNK]"), INDIRECT, 1)])])
    assert case.true.tolist() == case.predicted.tolist() == [NO_SURFACE, NO_SURFACE]
    assert case.identifiers.num == 0


def test_words_of_bytes_match_with_and_without_their_space() -> None:
    alphabet = {"Ġ": 0, "M": 1, "m": 2, "a": 3, "x": 4, "ĠM": 5, "Ã": 6, "¡": 7}  # "Ã¡" are the bytes of á
    tokenizer = Tokenizer(models.BPE(alphabet, [("Ġ", "M")]))
    tokenizer.decoder = decoders.ByteLevel()
    surfaces = SurfaceTable(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    ids = np.array([5, 3, 4, 2, 3, 4, 1, 3, 4, 0, 2, 4], dtype=np.uint16)
    slots = Words(np.array([0, 3, 6, 9]), np.full(4, 3, dtype=np.int32), *[np.zeros(4, dtype=np.uint8)] * 4)
    first, second, third, other = surfaces.surfaces(ids, slots)  # " Max", "max", "Max" and " mx"
    assert first == second == third != other
    accented = Words(np.array([0, 2]), np.array([2, 3], dtype=np.int32), *[np.zeros(2, dtype=np.uint8)] * 4)
    plain, marked = surfaces.surfaces(np.array([2, 3, 1, 6, 7], dtype=np.uint16), accented)  # "ma" and "Má"
    assert plain == marked


@pytest.mark.parametrize(
    "spellings",
    [
        ("Élodie", "elodie", "ÉLODIE", " élodie", "E\u0301lodie"),
        ("Straße", "STRASSE"),
        ("Dupont", "Ｄｕｐｏｎｔ", "Du\u00adpo\u200bnt", "\ufeffdupont"),
        ("12/03", "12 / 03"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("Mapт", "Март"),  # a Cyrillic letter that prints like a Latin one
    ],
)
def test_case_accents_and_invisible_characters_do_not_tell_words_apart(spellings: tuple[str, ...]) -> None:
    assert len({fold(spelling) for spelling in spellings}) == 1


def test_other_words_stay_apart() -> None:
    words = ["Martin", "Martins", "Marti", "12/03", "1203", "é", "u", "marten"]
    assert len({fold(word) for word in words}) == len(words)


letters = st.characters(categories=("Lu", "Ll", "Lt", "Lo", "Mn", "Mc", "Nd", "Cf"))


@settings(max_examples=examples(150))
@given(
    st.lists(st.text(letters, min_size=1, max_size=6), min_size=1, max_size=8), st.sampled_from(["casefold", "fold"])
)
def test_leaks_are_matched_at_least_as_coarsely_as_support_is_counted(texts: list[str], surface: str) -> None:
    for text in texts:
        builder = _rust.IndexBuilder(max_n=1, num_threads=1, surface=surface)
        array = pa.array([text], pa.string())
        builder.add(array, np.zeros(1, dtype=np.uint32))
        counted = pa.record_batch(builder.finish(min_support=1).words()).column("word").to_pylist()
        segmented = _rust.segment(array)
        written = pa.record_batch(segmented.surfaces(array)).column("word").to_pylist()
        assert {fold(word) for word in counted} == {fold(word) for word in written}


# ------------------------------------------------------------------------ Privacy


def by_document(case: Case) -> list[tuple[int, list[tuple[str | None, str | None, int]]]]:
    """Individual and words of each document: (true, predicted, flags)."""
    return [(i, [(spelled(w[0]), spelled(w[1]), w[2]) for w in words]) for i, words in case.documents]


def runs(case: Case, n: int, which: int) -> list[tuple[int, tuple[str, ...]]]:
    """(individual, n-gram) of every place where n words follow each other: true ones (0) or predicted ones (1)."""
    found = []
    for individual, words in by_document(case):
        for at in range(len(words) - n + 1):
            run = tuple(word[which] for word in words[at : at + n])
            if None not in run:
                found.append((individual, run))
    return found  # type: ignore[return-value]


def support(case: Case, ngram: tuple[str, ...]) -> int:
    return len({individual for individual, run in runs(case, len(ngram), 0) if run == ngram})


def is_indirect(case: Case, ngram: tuple[str, ...]) -> bool:
    """Whether one individual alone uses an n-gram, and two or more each shorter part."""
    shorter = (ngram[1:], ngram[:-1]) if len(ngram) > 1 else ()
    return support(case, ngram) < 2 and all(support(case, part) >= 2 for part in shorter)


def is_direct(case: Case, word: str) -> bool:
    """Whether fewer than two individuals use a word outside of direct spans."""
    return len({i for i, true, _, flags in words_in(case) if true == word and not flags & DIRECT}) < 2


def chosen(case: Case, bits: int, n: int = 1) -> list[tuple[int, tuple[str, ...], bool]]:
    """(individual, identifier, whether it is predicted where it stands) of each occurrence of a part."""
    found = []
    for individual, words in by_document(case):
        for length in range(1, n + 1):
            for at in range(len(words) - length + 1):
                run = words[at : at + length]
                name = tuple(true for true, _, _ in run)
                if None in name:
                    continue
                indirect = bits & INDIRECT and is_indirect(case, name)  # type: ignore[arg-type]
                direct = bits & DIRECT and length == 1 and run[0][2] & DIRECT and is_direct(case, name[0])  # type: ignore[arg-type]
                if indirect or direct:
                    found.append((individual, name, all(true == guess for true, guess, _ in run)))
    return found  # type: ignore[return-value]


def predicted_runs(case: Case) -> set[tuple[str, ...]]:
    return {run for n in (1, 2, 3) for _, run in runs(case, n, 1)}


@settings(max_examples=examples(200))
@given(cases, st.integers(1, 3))
def test_privacy_matches_the_oracle(case: Case, n: int) -> None:
    anywhere = predicted_runs(case)
    identifiers = case.identify(n)
    measured = privacy(identifiers, identifiers.predicted(case.predicted, case.words, case.true), **OPTIONS)
    assert set(measured) == {"direct", "indirect", "both"}
    for part, bits in PART_FLAGS.items():
        own, found = measured[part], chosen(case, bits, n)
        names, owners = {name for _, name, _ in found}, {i for i, _, _ in found}
        unknown = [1 for _, true, _, flags in words_in(case) if flags & bits and true is None]
        assert own.num_identifiers == len(names)
        assert own.num_leaked == len(names & anywhere)
        assert own.num_unpredictable == len(unknown)
        if not found:
            continue
        leaky = {i for i, name, _ in found if name in anywhere}
        expected = {
            "types": len(names & anywhere) / len(names),
            "occurrences": sum(name in anywhere for _, name, _ in found) / len(found),
            "individuals": len(leaky) / len(owners),
            "in_place": sum(right for _, _, right in found) / len(found),
        }
        for level, leak in expected.items():
            assert getattr(own, level).value == pytest.approx(1 - leak)
            assert getattr(own, level).n == len(owners)


@settings(max_examples=examples(150))
@given(cases)
def test_privacy_by_n_matches_the_oracle(case: Case) -> None:
    measured = privacy_by_n(case.identifiers, case.found, **OPTIONS)
    anywhere = predicted_runs(case)
    for n in (1, 2, 3):
        names = {run for _, run in runs(case, n, 0) if is_indirect(case, run)}
        assert (str(n) in measured) == bool(names)
        if names:
            assert measured[str(n)].num_identifiers == len(names)
            assert measured[str(n)].num_leaked == len(names & anywhere)
            assert measured[str(n)].value == pytest.approx(1 - len(names & anywhere) / len(names))


@settings(max_examples=examples(100))
@given(cases, st.integers(1, 3))
def test_the_headline_is_the_sum_of_its_lengths(case: Case, n: int) -> None:
    identifiers = case.identify(n)
    found = identifiers.predicted(case.predicted, case.words, case.true)
    headline = privacy(identifiers, found, **OPTIONS)["indirect"]
    rows = [row for length, row in privacy_by_n(identifiers, found, **OPTIONS).items() if int(length) <= n]
    assert headline.num_identifiers == sum(row.num_identifiers or 0 for row in rows)
    assert headline.num_leaked == sum(row.num_leaked or 0 for row in rows)


def plain(*words: str, guesses: tuple[str | None, ...] = (), flags: int = 0, bits: int = 0) -> list[Any]:
    """Words of one piece, the first with ``bits``, each with its guess."""
    guessed = (*guesses, *[None] * len(words))
    return [
        ((word,), None if guess is None else (guess,), flags, bits if number == 0 else 0)
        for number, (word, guess) in enumerate(zip(words, guessed, strict=False))
    ]


#: Two individuals use "a", "b", "c" and both pairs; "a b c" is individual 0's alone, and the one identifier.
TRIGRAM = [(0, plain("a", "b", "c")), (1, plain("a", "b")), (1, plain("b", "c"))]


def test_the_words_of_an_ngram_are_no_leak_and_the_ngram_is() -> None:
    """n = 3: "a", "b" and "c" are predicted, in no place one after the other; then all three in a row."""
    alone = (2, plain("bc", "bc", "bc", guesses=("c", "b", "a")))
    together = (2, plain("bc", "bc", "bc", guesses=("a", "b", "c")))
    for more, leaked in ((alone, 0), (together, 1)):
        case = Case([*TRIGRAM, (3, plain("bc", "bc", "bc")), more])
        identifiers = case.identify(3)
        found = identifiers.predicted(case.predicted, case.words, case.true)
        own = privacy(identifiers, found, **OPTIONS)
        assert (own["both"].num_identifiers, own["both"].num_leaked) == (1, leaked)
        assert own["both"].individuals.value == 1 - leaked
        by_n = privacy_by_n(identifiers, found, **OPTIONS)
        assert {n: (row.num_identifiers, row.num_leaked) for n, row in by_n.items()} == {"3": (1, leaked)}
        is_member = case.is_member({0, 1})
        excess = excess_leakage(identifiers, found.anywhere, is_member, **OPTIONS)["indirect"]
        assert excess.members.value == leaked
        called = calls(case, {0, 1}, n=3)
        assert called.recall.value == leaked / 2  # individual 0, and not 1, who uses the same words


def test_ngrams_are_measured_beyond_the_length_that_is_protected() -> None:
    case = Case([*TRIGRAM, (2, plain("bc", "bc", "bc", guesses=("a", "b", "c"))), (3, plain("bc", "bc", "bc"))])
    identifiers = case.identify(1)
    found = identifiers.predicted(case.predicted, case.words, case.true)
    assert privacy(identifiers, found, **OPTIONS)["both"].num_identifiers == 0
    by_n = privacy_by_n(identifiers, found, **OPTIONS)
    assert {n: (row.num_identifiers, row.num_leaked) for n, row in by_n.items()} == {"3": (1, 1)}


def test_a_case_variant_of_a_common_word_is_protected_and_no_identifier() -> None:
    """ "A" is individual 0's alone as it is spelt; three use it as leaks are matched. "bc" is an identifier."""
    case = Case([
        (0, [(("A",), None, INDIRECT, 1), (("bc",), None, INDIRECT, 1)]),
        (1, [(("a",), ("a",), 0, 0)]),
        (2, [(("á",), ("a",), INDIRECT, 1)]),
    ])  # fmt: skip
    own = privacy(case.identifiers, case.found, **OPTIONS)["indirect"]
    assert (own.num_identifiers, own.num_common, own.num_leaked) == (1, 1, 0)
    assert own.types.value == own.individuals.value == 1.0
    assert calls(case, {0, 2}).recall.value == 0.0


def test_a_shared_name_is_an_identifier_and_a_word_of_an_address_that_all_use_is_none() -> None:
    """ "a" is a name that three individuals' documents hold; "b" stands in one street and in two others' sentences."""
    case = Case([
        (0, [(("a",), None, DIRECT, 0), (("b",), None, DIRECT, 0)]),
        (1, [(("a",), None, DIRECT, 0), (("b",), ("b",), 0, 0)]),
        (2, [(("A",), ("a",), DIRECT, 0), (("b",), None, 0, 0)]),
    ])  # fmt: skip
    own = privacy(case.identifiers, case.found, **OPTIONS)["direct"]
    assert (own.num_identifiers, own.num_common, own.num_leaked) == (1, 1, 1)
    assert own.individuals.n == 3


def test_support_counts_households_where_documents_are_of_some() -> None:
    case = Case([(0, plain("a", "b")), (1, plain("a", "c")), (2, plain("b"))])
    units = np.array([7, 7, 8])
    names = {n: case.identify(1, 1, units=own).num for n, own in (("individuals", None), ("households", units))}
    assert names == {"individuals": 1, "households": 2}  # "c" alone; and "a", which one household uses


def test_a_word_that_no_token_stands_for_joins_no_ngram() -> None:
    case = Case([(0, plain("a", "b")), (1, plain("b", "a")), (2, plain("a")), (2, plain("b"))])
    assert case.identify(2, 2).num == 2
    passed_over = case.store.with_columns(word_ids=case.store.word_ids + (np.arange(6) == 1))  # a word between a and b
    words = words_of(passed_over)
    assert Identifiers(words, case.true, k=2, n=2, max_n=2).num == 1


def test_what_stands_before_a_causal_model_is_in_its_context() -> None:
    """ "a" is predicted after "a": copied. "b" is predicted where it was not read yet, and in another window."""
    case = Case([(0, plain("a", "c", "b", "c", guesses=("b", "a"))), (1, plain("c", "c", guesses=(None, "b")))])
    windows = np.array([0, 0, 0, 0, 1, 1])
    found = case.identifiers.predicted(case.predicted, case.words, case.true, Context(windows))
    own = privacy(case.identifiers, found, **OPTIONS)["indirect"]
    assert (own.num_identifiers, own.num_leaked, own.num_leaked_unseen) == (2, 2, 1)
    assert (own.types.value, own.unseen.value) == (0.0, 0.5)  # type: ignore[union-attr]


def test_what_a_masked_model_sees_elsewhere_in_its_window_is_in_its_context() -> None:
    """ "a" stands twice: it is seen where the other one is masked in another pass, and not where in the same."""
    case = Case([(0, plain("a", "c", "a", guesses=("a",))), (1, plain("c"))])
    for folds, unseen in (([0, 1, 1, 0], 0), ([0, 1, 0, 0], 1)):
        context = Context(np.array([0, 0, 0, 1]), np.array(folds))
        found = case.identifiers.predicted(case.predicted, case.words, case.true, context)
        own = privacy(case.identifiers, found, **OPTIONS)["indirect"]
        assert (own.num_leaked, own.num_leaked_unseen) == (1, unseen)


def test_an_ngram_that_is_read_before_or_beside_its_place_is_in_the_context() -> None:
    words = ("a", "b", "c", "a", "b")
    case = Case([(0, plain(*words, guesses=(None, None, None, "a", "b"))), (1, plain("a", "c")), (2, plain("b"))])
    identifiers = case.identify(2, 2)
    for folds, seen in ((None, True), (np.zeros(8, dtype=np.int64), True)):
        context = Context(np.array([0, 0, 0, 0, 0, 1, 1, 2]), folds)
        found = identifiers.predicted(case.predicted, case.words, case.true, context)
        pair = np.unique(identifiers.numbers[(identifiers.lengths == 2) & (identifiers.places == 3)])
        assert len(pair) == 1
        assert found.unseen is not None
        assert (found.anywhere[pair[0]], found.unseen[pair[0]]) == (True, not seen)


def test_an_ngram_is_predicted_only_within_one_document() -> None:
    a, b = (("a",), ("a",), 0, 0), (("b",), ("b",), 0, 0)
    common = [(3, plain("a")), (4, plain("b"))]
    pair = (0, plain("a", "b"))
    apart = Case([pair, *common, (1, [a]), (2, [b])])
    together = Case([pair, *common, (1, [b]), (1, [(("c",), ("a",), 0, 0), (("c",), ("b",), 0, 0)])])
    for case, leaked in ((apart, 0), (together, 1)):
        measured = privacy_by_n(case.identifiers, case.found, **OPTIONS)
        assert (measured["2"].num_identifiers, measured["2"].num_leaked) == (1, leaked)


def test_a_prediction_counts_wherever_it_appears() -> None:
    # "a" is individual 0's and is predicted only in the ordinary word of individual 7, who is not a member.
    b = (("b",), ("c",), DIRECT, 0)
    case = Case([(0, [(("a",), ("c",), INDIRECT, 1), b]), (1, [b]), (7, [(("c",), ("A",), 0, 0)])])
    first = case.words.individuals < 2
    mine = words_of(case.store.select(np.array([0, 1])))
    identifiers = Identifiers(mine, case.true[first], k=2, n=1, max_n=1)
    measured = privacy(identifiers, identifiers.predicted(case.predicted, case.words, case.true, own=first), **OPTIONS)
    assert measured["indirect"].types.value == 0.0
    assert measured["indirect"].occurrences.value == 0.0
    assert measured["indirect"].in_place.value == 1.0
    assert measured["direct"].types.value == 1.0
    assert measured["both"].types.value == 0.5
    assert measured["both"].individuals.value == 0.5


def everyone(guess_of: Any) -> Case:
    """Four individuals with two identifiers each, one of two tokens; ``guess_of`` gives each prediction."""
    names = [("a", "##b"), ("a", "##c"), ("b", "##b"), ("b", "##c"), ("c", "##b"), ("c", "##c"), ("bc",), ("bc", "##b")]
    return Case(
        [
            (
                i,
                [
                    (name, guess_of(name), flags, 1)
                    for name, flags in zip(names[2 * i : 2 * i + 2], (1, 2), strict=True)
                ],
            )
            for i in range(4)
        ]
    )


def test_a_perfect_memoriser_has_no_privacy() -> None:
    case = everyone(lambda name: name)
    measured = privacy(case.identifiers, case.found, **OPTIONS)
    for part, level in itertools.product(PART_FLAGS, ("types", "occurrences", "individuals", "in_place")):
        estimate = getattr(measured[part], level)
        assert estimate.value == estimate.low == 0.0
        assert estimate.high == pytest.approx(clopper_pearson(0, 4, one_sided=True)[1])
    by_n = privacy_by_n(case.identifiers, case.found, **OPTIONS)
    assert by_n["1"].value == 0.0


@pytest.mark.parametrize("guess", [lambda name: None, lambda name: ("A",) * len(name)], ids=["nothing", "one word"])
def test_a_model_that_predicts_no_identifier_has_full_privacy_with_its_bound(guess: Any) -> None:
    case = everyone(guess)
    measured = privacy(case.identifiers, case.found, **OPTIONS)
    for part, level in itertools.product(PART_FLAGS, ("types", "occurrences", "individuals", "in_place")):
        estimate = getattr(measured[part], level)
        assert estimate.value == estimate.high == 1.0
        assert estimate.low == pytest.approx(1 - clopper_pearson(0, 4, one_sided=True)[1])


def test_identifiers_that_cannot_be_predicted_do_not_flatter_the_model() -> None:
    known, unknown = (("a",), ("a",), INDIRECT, 1), (("[UNK]",), ("[UNK]",), INDIRECT, 1)
    case = Case([(0, [known, unknown, unknown]), (1, [unknown])])
    own = privacy(case.identifiers, case.found, **OPTIONS)["indirect"]
    assert (own.num_identifiers, own.num_unpredictable) == (1, 3)
    assert {getattr(own, level).value for level in ("types", "occurrences", "individuals")} == {0.0}


@pytest.mark.parametrize(
    "documents", [[], [(0, [])], [(i, [(("a",), ("a",), 0, 0)]) for i in (0, 1)]], ids=["none", "empty", "common"]
)
def test_nothing_to_leak_is_stated_not_nan(documents: Any) -> None:
    case = Case(documents)
    is_member = np.ones(len(case.words), dtype=bool)
    found = privacy(case.identifiers, case.found, **OPTIONS)
    by_n = privacy_by_n(case.identifiers, case.found, **OPTIONS)
    excess = excess_leakage(case.identifiers, case.leaked, is_member, **OPTIONS)
    called = calls(case, {0, 1})
    json.dumps(to_json([found, by_n, excess, called]), allow_nan=False)
    types = found["both"].types
    assert (types.value, types.n, types.method) == (None, 0, "no individual has any")
    assert by_n == {}
    assert excess["both"].excess.method == "one side has no individual"
    assert called.precision.method == "no individual was called a member"


def test_a_document_more_or_another_order_changes_no_interval() -> None:
    random = np.random.default_rng(3)
    names = [("a", "##b"), ("b", "##c"), ("c",), ("bc", "##c"), ("b",)]
    documents = [
        (
            int(i) % 9,
            [(names[j], names[j] if random.random() < 0.4 else None, INDIRECT, 1) for j in random.integers(0, 5, 3)],
        )
        for i in range(30)
    ]
    first, second = Case(documents), Case(documents[::-1])
    for case in (first, second):
        case.measured = privacy(case.identifiers, case.found, **OPTIONS)  # type: ignore[attr-defined]
    for part, level in itertools.product(PART_FLAGS, ("types", "occurrences", "individuals")):
        a, b = (getattr(case.measured[part], level) for case in (first, second))  # type: ignore[attr-defined]
        for mine, other in ((a.value, b.value), (a.low, b.low), (a.high, b.high)):
            assert mine == other or mine == pytest.approx(other, abs=1e-12)


# ------------------------------------------------------------------ excess leakage


@settings(max_examples=examples(150))
@given(cases, st.sets(st.integers(0, 4)))
def test_excess_matches_the_oracle(case: Case, members: set[int]) -> None:
    anywhere = predicted_runs(case)
    measured = excess_leakage(case.identifiers, case.leaked, case.is_member(members), **OPTIONS)
    for part, bits in PART_FLAGS.items():
        rates = {}
        for name, inside in (("members", True), ("heldout", False)):
            identifiers = {name for i, name, _ in chosen(case, bits) if (i in members) == inside}
            rates[name] = len(identifiers & anywhere) / len(identifiers) if identifiers else None
            assert getattr(measured[part], name).value == (None if rates[name] is None else pytest.approx(rates[name]))
        if None in rates.values():
            assert measured[part].excess.value is None
        else:
            assert measured[part].excess.value == pytest.approx(rates["members"] - rates["heldout"])  # type: ignore[operator]


def test_excess_is_zero_when_heldout_individuals_leak_as_much() -> None:
    words = [(("a", "##b"), None), (("a", "##c"), ("a", "##c")), (("b", "##b"), None), (("b", "##c"), ("b", "##c"))]
    case = Case([(i, [(*words[i], INDIRECT, 1)]) for i in range(4)])
    measured = excess_leakage(case.identifiers, case.leaked, case.is_member({0, 1}), **OPTIONS)["indirect"]
    assert measured.members.value == measured.heldout.value == 0.5
    assert measured.excess.value == 0.0
    assert measured.excess.low < 0 < measured.excess.high


@settings(max_examples=examples(100))
@given(cases, st.sets(st.integers(0, 4)), st.sets(st.sampled_from(["b", "bc", "c", "a"])))
def test_excess_over_the_base_matches_the_oracle(case: Case, members: set[int], known: set[str]) -> None:
    anywhere = predicted_runs(case)
    said = np.array([true in known for _, true, _, _ in words_in(case)], dtype=bool)
    before = case.identifiers.predicted(np.where(said, case.true, NO_SURFACE), case.words, case.true).anywhere
    found = excess_leakage(case.identifiers, case.leaked, case.is_member(members), before=before, **OPTIONS)
    rates = {}
    for name, inside in (("members", True), ("heldout", False)):
        identifiers = {name for i, name, _ in chosen(case, DIRECT | INDIRECT) if (i in members) == inside}
        more = len(identifiers & anywhere) - len(identifiers & {(word,) for word in known})
        rates[name] = more / len(identifiers) if identifiers else None
        value = getattr(found["both"], name).value
        assert value == (None if rates[name] is None else pytest.approx(rates[name]))
    if None not in rates.values():
        expected = rates["members"] - rates["heldout"]  # type: ignore[operator]
        assert found["both"].excess.value == pytest.approx(expected)


def test_a_model_that_is_its_base_leaks_nothing_more() -> None:
    case = Case([(i, [(("a", "##b"), ("a", "##b"), DIRECT, 0), (("b", "##c"), None, DIRECT, 0)]) for i in range(6)])
    same = {"before": case.leaked, **OPTIONS}
    found = excess_leakage(case.identifiers, case.leaked, case.is_member({0, 1, 2}), **same)["direct"]
    assert found.members.value == found.heldout.value == found.excess.value == 0.0


def test_direct_identifiers_are_told_apart_by_category() -> None:
    name, code, word = (("a", "##b"), ("a", "##b")), (("b", "##c"), None), (("c",), ("c",))
    case = Case([
        (0, [(*name, DIRECT, 0), (*code, DIRECT, 0), (*word, INDIRECT, 0)]),
        (1, [(*code, DIRECT, 0)]),
        (2, [(*name, DIRECT, 0)]),
    ])  # fmt: skip
    categories = np.array([1, 2, 0, 2, 1])
    found = privacy_by_category(
        case.identifiers, case.leaked, case.is_member({0, 1}), categories, ("", "NAME", "ID"), **OPTIONS
    )
    assert {name: (e.value, e.num_identifiers, e.num_leaked) for name, e in found.items()} == {
        "NAME": (0.0, 1, 1),
        "ID": (1.0, 1, 0),
    }
    assert found["NAME"].excess.heldout.value == 1.0
    assert found["ID"].excess.excess.value is None  # no held-out individual has one


# ------------------------------------------------------------- low-cost membership

#: individual -> indirect identifiers; 0-3 are members, 4-6 are held out. "bc" has two owners.
GRAPH = {0: ["a", "b"], 1: ["bc"], 2: ["c", "bc"], 3: ["A##b"], 4: ["b##b"], 5: ["bc##b"], 6: ["c##c"]}


def graph_case(leaked: set[str]) -> Case:
    def pieces_of(name: str) -> tuple[str, ...]:
        first, *rest = name.split("##")
        return (first, *(f"##{piece}" for piece in rest))

    return Case(
        [
            (i, [(pieces_of(name), pieces_of(name) if name in leaked else None, INDIRECT, 1) for name in names])
            for i, names in GRAPH.items()
        ]
    )


def calls(case: Case, members: set[int] = frozenset({0, 1, 2, 3}), n: int = 1, **options: Any) -> LowCost:  # type: ignore[assignment]
    given = {**OPTIONS, **options}
    is_member, shares = case.is_member(set(members)), given.pop("shares", (1.0,))
    k = given.pop("k", 2)
    graphs = adversary_graphs(case.words, case.true, is_member, k=k, n=n, shares=shares, seed=given["seed"])
    leaked = [g.identifiers.predicted(case.predicted, case.words, case.true).anywhere for g in graphs]
    return low_cost_membership(graphs, leaked, is_member, **given)


def test_low_cost_membership_of_a_hand_worked_graph() -> None:
    # "a" calls 0, "bc" calls 1 and 2, "b##b" calls the held-out 4; 3 is missed.
    measured = calls(graph_case({"a", "bc", "b##b"}), k=3)
    assert measured.precision.value == pytest.approx(3 / 4)
    assert measured.recall.value == pytest.approx(3 / 4)
    assert measured.f1.value == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    assert [getattr(measured, name).n for name in ("precision", "recall", "f1")] == [4, 4, 7]


def test_direct_identifiers_call_nobody_a_member() -> None:
    # A name that two individuals' documents hold is a direct identifier, and no indirect one.
    name = (("a",), ("a",), DIRECT, 0)
    case = Case([(0, [name]), (4, [name, (("b",), None, INDIRECT, 1)])])
    measured = calls(case, {0})
    assert measured.recall.value == 0.0
    assert (measured.precision.value, measured.precision.n) == (None, 0)
    assert measured.precision.method == "no individual was called a member"


#: Four documents; "b" is used by 0, 1 and 5, "a" by 0, "c" by 5. Members are 0 and 1. "b" and "a" are predicted.
KNOWN = [(0, plain("a", "b")), (1, plain("b")), (5, plain("b", "c")), (6, plain("bc", "bc", guesses=("a", "b")))]


def test_a_graph_of_some_documents_holds_false_identifiers() -> None:
    """Worked by hand, k = 2. Of all documents the identifiers are "a", "c" and "bc"; of the documents of 1 and 6 they
    are "b" and "bc", and "b" is false: it calls 1, of whom nothing identifying was predicted.
    """
    case = Case(KNOWN)
    seed = next(s for s in range(1000) if documents_held(4, 0.5, s).tolist() == [False, True, False, True])
    measured = calls(case, {0, 1}, shares=(1.0, 0.5), seed=seed)
    whole, half = measured.by_graph_share
    assert (whole.num_identifiers, whole.num_false) == (3, 0)
    assert (whole.precision.value, whole.recall.value) == (1.0, 0.5)  # 0, by "a"
    assert (half.num_identifiers, half.num_false) == (2, 1)
    assert (half.precision.value, half.precision.n, half.recall.value) == (1.0, 1, 0.5)  # 1, by "b"


def test_a_smaller_graph_calls_held_out_individuals_whom_the_whole_one_does_not() -> None:
    """The document of 5 alone: "b" looks like theirs, and it was predicted as members use it."""
    case = Case(KNOWN)
    seed = next(s for s in range(1000) if documents_held(4, 0.5, s).tolist() == [False, False, True, False])
    half = calls(case, {0, 1}, shares=(1.0, 0.5), seed=seed).by_graph_share[1]
    assert (half.num_identifiers, half.num_false) == (2, 1)
    assert (half.precision.value, half.recall.value) == (0.0, 0.0)


def test_the_graph_of_the_training_documents_knows_nobody_else() -> None:
    """Of the members' documents "a" is 0's; "b" is shared by 0 and 1. With one member alone, "b" is theirs, and the
    held-out 1 and 5, who use it too, are called with them.
    """
    case = Case(KNOWN)
    both = calls(case, {0, 1}).training_graph
    assert both is not None
    assert (both.num_identifiers, both.num_false, both.precision.n, both.recall.value) == (1, 0, 1, 0.5)
    alone = calls(case, {0}).training_graph
    assert alone is not None
    assert (alone.num_identifiers, alone.num_false, alone.precision.n) == (2, 1, 3)
    assert (alone.precision.value, alone.recall.value) == (pytest.approx(1 / 3), 1.0)


def test_an_adversary_has_the_stated_share_of_the_documents_and_more_with_a_larger_one() -> None:
    held = [documents_held(4000, share, 1) for share in (1.0, 0.5, 0.1)]
    assert [own.mean() for own in held] == [1.0, pytest.approx(0.5, abs=0.03), pytest.approx(0.1, abs=0.02)]
    assert not (held[2] & ~held[1]).any()


def test_few_hits_are_less_certain_than_none() -> None:
    """A bootstrap of one hit ends at three, as the bound of none does."""
    member, called = np.arange(80) < 40, np.isin(np.arange(80), [0, 41, 42, 43])
    measured = _measure_calls(called, member, np.arange(len(member)), num_bootstrap=1000, seed=0)
    assert (measured.recall.value, measured.precision.value) == (1 / 40, 1 / 4)
    assert measured.recall.high >= clopper_pearson(1, 40)[1]  # type: ignore[operator]
    assert measured.precision.high >= clopper_pearson(1, 4)[1]  # type: ignore[operator]
    jaccard = clopper_pearson(1, 43)[1]  # F1 is 2 J / (1 + J) of the hits among all who are members or called
    assert measured.f1.high >= 2 * jaccard / (1 + jaccard)  # type: ignore[operator]
    all_but_one = _measure_calls(np.arange(80) < 39, member, np.arange(len(member)), num_bootstrap=1000, seed=0)
    assert all_but_one.recall.low <= clopper_pearson(39, 40)[0]  # type: ignore[operator]
    assert all_but_one.f1.low <= 2 / (1 / clopper_pearson(39, 40)[0] + 1)  # type: ignore[operator]


@pytest.mark.parametrize("hits", [1, 2, 3, 4])
def test_published_bounds_do_not_count_few_hits(hits: int) -> None:
    """Four hits of twenty calls had the precision "below 25 %, at most 40 %", one hit "at most 25 %"."""
    member = np.arange(200) < 100
    first, same = (
        publish(
            _measure_calls(
                np.isin(np.arange(200), [*range(n), *range(100, 120 - n)]),
                member,
                np.arange(len(member)),
                num_bootstrap=1000,
                seed=0,
            ),
            5,
        )
        for n in (1, hits)
    )
    assert same == first
    assert first.precision.bound == first.f1.bound == first.recall.bound == "below"


def test_no_hit_has_the_upper_bounds_of_what_members_there_are() -> None:
    measured = calls(graph_case({"b##b"}))  # one held-out individual is called, no member
    recall = clopper_pearson(0, 4, one_sided=True)[1]
    assert measured.precision.high == clopper_pearson(0, 1, one_sided=True)[1]
    assert measured.recall.high == recall
    assert measured.f1.value == 0.0
    assert measured.f1.high == pytest.approx(2 * recall / (recall + 1))
    silent = calls(graph_case(set()))
    assert silent.f1.high == measured.f1.high


def test_perfect_calls_have_a_lower_bound() -> None:
    measured = calls(graph_case({"a", "bc", "A##b"}), k=3)
    for name in ("precision", "recall", "f1"):
        estimate = getattr(measured, name)
        assert estimate.value == estimate.high == 1.0
        assert estimate.low == pytest.approx(1 - clopper_pearson(0, 4, one_sided=True)[1])


def test_without_members_there_is_no_recall() -> None:
    case = graph_case({"b##b"})
    measured = calls(case, set())
    assert measured.precision.value == 0.0
    for name in ("recall", "f1"):
        estimate = getattr(measured, name)
        assert (estimate.value, estimate.method) == (None, "there is no member")


# ------------------------------------------------------------------ beside the index


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from("abcd"), max_size=8)), min_size=1, max_size=8),
    st.integers(2, 3),
)
def test_where_spelling_does_not_differ_identifiers_are_those_that_the_index_protects(
    documents: list[tuple[int, list[str]]], k: int
) -> None:
    documents = sorted(documents, key=lambda document: document[0])
    texts = pa.array([" ".join(words) for _, words in documents], pa.string())
    individuals = np.array([individual for individual, _ in documents], dtype=np.uint32)
    builder = _rust.IndexBuilder(max_n=3, num_threads=1)
    builder.add(texts, individuals)
    index = NgramIndex(builder.finish(min_support=1))
    _, starts = index.protect(texts, _rust.segment(texts), k=k, n=3)
    sizes = [len(words) for _, words in documents]
    numbers = np.repeat(np.arange(len(documents)), sizes)
    surfaces = np.array(["abcd".index(word) for _, words in documents for word in words], dtype=np.int64)
    empty = np.zeros(len(surfaces), dtype=np.uint8)
    words = Words(np.arange(len(surfaces)), np.ones_like(surfaces), numbers, individuals[numbers], empty, starts)
    identifiers = Identifiers(words, surfaces, k=k, n=3, max_n=3)
    bits = np.zeros(len(surfaces), dtype=np.uint8)
    np.bitwise_or.at(bits, identifiers.places, (1 << (identifiers.lengths - 1)).astype(np.uint8))
    assert bits.tolist() == starts.tolist()
    assert identifiers.num_common == {"direct": 0, "indirect": 0}
