"""The Privacy metric, excess leakage and low-cost membership against sets of words, and by hand."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from reticent import _rust
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.leakage import LowCost
from reticent.audit.leakage.leakage import (
    PARTS,
    excess_leakage,
    excess_over_base,
    low_cost_membership,
    predicted_surfaces,
    privacy,
    privacy_by_category,
    privacy_by_n,
)
from reticent.audit.leakage.words import NO_SURFACE, SurfaceTable, Words, fold, words_of
from reticent.audit.stats.statistics import clopper_pearson
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
        self.everywhere = predicted_surfaces(self.predicted)

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


@settings(max_examples=150, deadline=None)
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
    assert len(case.everywhere) == 0


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


@settings(max_examples=150, deadline=None)
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


def chosen(case: Case, bits: int) -> list[tuple[int, str, str | None]]:
    return [(i, true, guess) for i, true, guess, flags in words_in(case) if flags & bits and true is not None]


@settings(max_examples=200, deadline=None)
@given(cases)
def test_privacy_matches_the_oracle(case: Case) -> None:
    anywhere = {guess for _, _, guess, _ in words_in(case) if guess is not None}
    measured = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)
    assert set(measured) == {"direct", "indirect", "both"}
    for part, bits in PARTS.items():
        own, found = measured[part], chosen(case, bits)
        identifiers, owners = {true for _, true, _ in found}, {i for i, _, _ in found}
        unknown = [1 for _, true, _, flags in words_in(case) if flags & bits and true is None]
        assert own.num_identifiers == len(identifiers)
        assert own.num_leaked == len(identifiers & anywhere)
        assert own.num_unpredictable == len(unknown)
        if not found:
            continue
        leaky = {i for i, true, _ in found if true in anywhere}
        expected = {
            "types": len(identifiers & anywhere) / len(identifiers),
            "occurrences": sum(true in anywhere for _, true, _ in found) / len(found),
            "individuals": len(leaky) / len(owners),
            "in_place": sum(true == guess for _, true, guess in found) / len(found),
        }
        for level, leak in expected.items():
            assert getattr(own, level).value == pytest.approx(1 - leak)
            assert getattr(own, level).n == len(owners)


@settings(max_examples=150, deadline=None)
@given(cases)
def test_privacy_by_n_matches_the_oracle(case: Case) -> None:
    documents = [(i, [(spelled(w[0]), spelled(w[1]), w[3]) for w in words]) for i, words in case.documents]
    slots = case.words
    measured = privacy_by_n(slots, case.true, case.predicted, (slots, case.predicted), **OPTIONS)
    for n in (1, 2, 3):
        guessed = {
            tuple(guess for _, guess, _ in run)
            for _, words in documents
            for run in (words[i : i + n] for i in range(len(words) - n + 1))
        }
        started = [
            (i, words[at : at + n]) for i, words in documents for at in range(len(words)) if words[at][2] >> n - 1 & 1
        ]
        names = {tuple(true for true, _, _ in run) for _, run in started}
        names = {name for name in names if None not in name}
        if not started:
            assert str(n) not in measured
            continue
        assert measured[str(n)].num_identifiers == len(names)
        assert measured[str(n)].num_leaked == len(names & guessed)
        if names:
            assert measured[str(n)].value == pytest.approx(1 - len(names & guessed) / len(names))


def test_an_ngram_is_predicted_only_within_one_document() -> None:
    a, b = (("a",), ("a",), INDIRECT, 0), (("b",), ("b",), INDIRECT, 0)
    pair = (("a",), None, INDIRECT, 0b10)
    apart = Case([(0, [pair, (("b",), None, INDIRECT, 0)]), (1, [a]), (2, [b])])
    together = Case([(0, [pair, (("b",), None, INDIRECT, 0)]), (1, [a, b])])
    for case, leaked in ((apart, 0), (together, 1)):
        measured = privacy_by_n(case.words, case.true, case.predicted, (case.words, case.predicted), **OPTIONS)
        assert set(measured) == {"2"}
        assert (measured["2"].num_identifiers, measured["2"].num_leaked) == (1, leaked)


def test_a_prediction_counts_wherever_it_appears() -> None:
    # "a" is individual 0's and is predicted only in the ordinary word of individual 7, who is not a member.
    case = Case([(0, [(("a",), ("c",), INDIRECT, 1), (("b",), ("c",), DIRECT, 1)]), (7, [(("c",), ("A",), 0, 0)])])
    first = case.words.individuals == 0
    member_slots = words_of(case.store.select(np.array([0])))
    measured = privacy(member_slots, case.true[first], case.predicted[first], case.everywhere, **OPTIONS)
    assert measured["indirect"].types.value == 0.0
    assert measured["indirect"].occurrences.value == 0.0
    assert measured["indirect"].in_place.value == 1.0
    assert measured["direct"].types.value == 1.0
    assert measured["both"].types.value == 0.5
    assert measured["both"].individuals.value == 0.0


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
    measured = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)
    for part, level in itertools.product(PARTS, ("types", "occurrences", "individuals", "in_place")):
        estimate = getattr(measured[part], level)
        assert estimate.value == estimate.low == 0.0
        assert estimate.high == pytest.approx(clopper_pearson(0, 4, one_sided=True)[1])
    by_n = privacy_by_n(case.words, case.true, case.predicted, (case.words, case.predicted), **OPTIONS)
    assert by_n["1"].value == 0.0


@pytest.mark.parametrize("guess", [lambda name: None, lambda name: ("A",) * len(name)], ids=["nothing", "one word"])
def test_a_model_that_predicts_no_identifier_has_full_privacy_with_its_bound(guess: Any) -> None:
    case = everyone(guess)
    measured = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)
    for part, level in itertools.product(PARTS, ("types", "occurrences", "individuals", "in_place")):
        estimate = getattr(measured[part], level)
        assert estimate.value == estimate.high == 1.0
        assert estimate.low == pytest.approx(1 - clopper_pearson(0, 4, one_sided=True)[1])


def test_identifiers_that_cannot_be_predicted_do_not_flatter_the_model() -> None:
    known, unknown = (("a",), ("a",), INDIRECT, 1), (("[UNK]",), ("[UNK]",), INDIRECT, 1)
    case = Case([(0, [known, unknown, unknown]), (1, [unknown])])
    own = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)["indirect"]
    assert (own.num_identifiers, own.num_unpredictable) == (1, 3)
    assert {getattr(own, level).value for level in ("types", "occurrences", "individuals")} == {0.0}


@pytest.mark.parametrize("documents", [[], [(0, [])], [(0, [(("a",), ("a",), 0, 0)])]], ids=["none", "empty", "common"])
def test_nothing_to_leak_is_stated_not_nan(documents: Any) -> None:
    case = Case(documents)
    is_member = np.ones(len(case.words), dtype=bool)
    found = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)
    by_n = privacy_by_n(case.words, case.true, case.predicted, (case.words, case.predicted), **OPTIONS)
    excess = excess_leakage(case.words, case.true, case.everywhere, is_member, **OPTIONS)
    calls = low_cost_membership(case.words, case.true, case.everywhere, is_member, **OPTIONS)
    json.dumps(to_json([found, by_n, excess, calls]), allow_nan=False)
    types = found["both"].types
    assert (types.value, types.n, types.method) == (None, 0, "no individual has any")
    assert by_n == {}
    assert excess["both"].excess.method == "one side has no individual"
    assert calls.precision.method == "no individual was called a member"


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
        case.measured = privacy(case.words, case.true, case.predicted, case.everywhere, **OPTIONS)  # type: ignore[attr-defined]
    for part, level in itertools.product(PARTS, ("types", "occurrences", "individuals")):
        a, b = (getattr(case.measured[part], level) for case in (first, second))  # type: ignore[attr-defined]
        for mine, other in ((a.value, b.value), (a.low, b.low), (a.high, b.high)):
            assert mine == other or mine == pytest.approx(other, abs=1e-12)


# ------------------------------------------------------------------ excess leakage


@settings(max_examples=150, deadline=None)
@given(cases, st.sets(st.integers(0, 4)))
def test_excess_matches_the_oracle(case: Case, members: set[int]) -> None:
    anywhere = {guess for _, _, guess, _ in words_in(case) if guess is not None}
    measured = excess_leakage(case.words, case.true, case.everywhere, case.is_member(members), **OPTIONS)
    for part, bits in PARTS.items():
        rates = {}
        for name, inside in (("members", True), ("heldout", False)):
            identifiers = {true for i, true, _ in chosen(case, bits) if (i in members) == inside}
            rates[name] = len(identifiers & anywhere) / len(identifiers) if identifiers else None
            assert getattr(measured[part], name).value == (None if rates[name] is None else pytest.approx(rates[name]))
        if None in rates.values():
            assert measured[part].excess.value is None
        else:
            assert measured[part].excess.value == pytest.approx(rates["members"] - rates["heldout"])  # type: ignore[operator]


def test_excess_is_zero_when_heldout_individuals_leak_as_much() -> None:
    words = [(("a", "##b"), None), (("a", "##c"), ("a", "##c")), (("b", "##b"), None), (("b", "##c"), ("b", "##c"))]
    case = Case([(i, [(*words[i], INDIRECT, 1)]) for i in range(4)])
    measured = excess_leakage(case.words, case.true, case.everywhere, case.is_member({0, 1}), **OPTIONS)["indirect"]
    assert measured.members.value == measured.heldout.value == 0.5
    assert measured.excess.value == 0.0
    assert measured.excess.low < 0 < measured.excess.high


@settings(max_examples=100, deadline=None)
@given(cases, st.sets(st.integers(0, 4)), st.sets(st.sampled_from(["b", "bc", "c", "a"])))
def test_excess_over_the_base_matches_the_oracle(case: Case, members: set[int], known: set[str]) -> None:
    anywhere = {guess for _, _, guess, _ in words_in(case) if guess is not None}
    numbers = [
        number for (_, true, _, _), number in zip(words_in(case), case.true.tolist(), strict=True) if true in known
    ]
    found = excess_over_base(
        case.words, case.true, case.everywhere, np.array(numbers, dtype=np.int64), case.is_member(members), **OPTIONS
    )
    rates = {}
    for name, inside in (("members", True), ("heldout", False)):
        identifiers = {true for i, true, _ in chosen(case, DIRECT | INDIRECT) if (i in members) == inside}
        more = len(identifiers & anywhere) - len(identifiers & known)
        rates[name] = more / len(identifiers) if identifiers else None
        value = getattr(found["both"], name).value
        assert value == (None if rates[name] is None else pytest.approx(rates[name]))
    if None not in rates.values():
        expected = rates["members"] - rates["heldout"]  # type: ignore[operator]
        assert found["both"].excess.value == pytest.approx(expected)


def test_a_model_that_is_its_base_leaks_nothing_more() -> None:
    case = Case([(i, [(("a", "##b"), ("a", "##b"), DIRECT, 0), (("b", "##c"), None, DIRECT, 0)]) for i in range(6)])
    found = excess_over_base(
        case.words, case.true, case.everywhere, case.everywhere, case.is_member({0, 1, 2}), **OPTIONS
    )["direct"]
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
        case.words, case.true, case.everywhere, case.is_member({0, 1}), categories, ("", "NAME", "ID"), **OPTIONS
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


def calls(case: Case, **options: Any) -> LowCost:
    is_member = case.is_member({0, 1, 2, 3})
    return low_cost_membership(case.words, case.true, case.everywhere, is_member, **{**OPTIONS, **options})


def test_low_cost_membership_of_a_hand_worked_graph() -> None:
    # "a" calls 0, "bc" calls 1 and 2, "b##b" calls the held-out 4; 3 is missed.
    measured = calls(graph_case({"a", "bc", "b##b"}))
    assert measured.precision.value == pytest.approx(3 / 4)
    assert measured.recall.value == pytest.approx(3 / 4)
    assert measured.f1.value == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))
    assert [getattr(measured, name).n for name in ("precision", "recall", "f1")] == [4, 4, 7]


def test_direct_identifiers_call_nobody_a_member() -> None:
    case = Case([(0, [(("a",), ("a",), DIRECT, 0)]), (4, [(("b",), None, INDIRECT, 1)])])
    measured = low_cost_membership(case.words, case.true, case.everywhere, case.is_member({0}), **OPTIONS)
    assert measured.recall.value == 0.0
    assert (measured.precision.value, measured.precision.n) == (None, 0)
    assert measured.precision.method == "no individual was called a member"


def test_a_smaller_graph_calls_no_one_else() -> None:
    shares = (1.0, 0.75, 0.5, 0.25, 1e-9)
    for seed in range(20):
        rows = calls(graph_case({"a", "bc", "b##b", "c", "bc##b"}), shares=shares, seed=seed).by_graph_share
        assert [row.share for row in rows] == list(shares)
        recalls = [row.recall.value for row in rows]
        assert recalls == sorted(recalls, reverse=True)
        assert recalls[0] == 3 / 4
        assert recalls[-1] == 0.0
        assert rows[-1].precision.value is None


def test_the_adversary_knows_the_stated_share_of_the_graph() -> None:
    slots = 4000  # one identifier an individual, all of them predicted
    graph = Words(*[np.arange(slots)] * 4, np.full(slots, INDIRECT, dtype=np.uint8), np.zeros(slots, dtype=np.uint8))
    surfaces = np.arange(slots)
    rows = low_cost_membership(
        graph, surfaces, surfaces, surfaces % 2 == 0, shares=(1.0, 0.5, 0.1), num_bootstrap=2, seed=1
    ).by_graph_share
    assert [row.recall.value for row in rows] == [
        1.0,
        pytest.approx(0.5, abs=0.05),
        pytest.approx(0.1, abs=0.03),
    ]


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
    measured = calls(graph_case({"a", "bc", "A##b"}))
    for name in ("precision", "recall", "f1"):
        estimate = getattr(measured, name)
        assert estimate.value == estimate.high == 1.0
        assert estimate.low == pytest.approx(1 - clopper_pearson(0, 4, one_sided=True)[1])


def test_without_members_there_is_no_recall() -> None:
    case = graph_case({"b##b"})
    measured = low_cost_membership(case.words, case.true, case.everywhere, case.is_member(set()), **OPTIONS)
    assert measured.precision.value == 0.0
    for name in ("recall", "f1"):
        estimate = getattr(measured, name)
        assert (estimate.value, estimate.method) == (None, "there is no member")
