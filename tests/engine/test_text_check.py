"""Tokens are held to their text without the core: what was written holds, and whatever was changed is found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fixtures.cases import Case, written_case
from fixtures.drawing import examples
from fixtures.tokenizer_kinds import tokenizer_json
from fixtures.tokenizers import KINDS, plain_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine import text_sample
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.oracle.documents import WordTable
from reticent.engine.oracle.retokenizer import Retokenizer
from reticent.engine.protect import POLICIES, Policy
from reticent.engine.schema import DIRECT, INDIRECT, MEMBERS
from reticent.engine.store import TokenStore
from reticent.engine.text_sample import TextSample
from reticent.engine.verify import CheckedText, TextCheck, verify_tokens

TOKENIZERS = {name: make() for name, (make, _) in KINDS.items()}
SPLITS = (MEMBERS,)


def write(case: Case, name: str, tokenizer: str, policy: Policy, surface: str = "exact", **options: Any) -> TokenStore:
    index = build_index(case.corpus, case.individuals, config=IndexConfig(max_n=policy.n, surface=surface))
    options = {"spans": case.spans, "splits": SPLITS, **options}
    return case.tokens(name, tokenizer, index=index, policy=policy, **options)[0]


def checked(case: Case, store: TokenStore, policy: Policy, surface: str = "exact") -> TextCheck:
    text = CheckedText(case.corpus, case.individuals, splits=SPLITS)
    return verify_tokens(store, text, policy=policy, splits=SPLITS, spans=case.spans, surface=surface)


def sampled(case: Case, store: TokenStore, policy: Policy, surface: str = "exact", seed: int = 0) -> TextCheck:
    """The spot check of as many documents as it takes."""
    sample = TextSample(case.corpus, case.individuals, SPLITS, seed)
    first = 0
    for batch in case.corpus.batches(columns=("doc_id", "individual_id", "text")):
        sample.take(first, batch)
        first += batch.num_rows
    config = IndexConfig(max_n=policy.n, surface=surface, min_support=1 + seed % 2)
    index = build_index(case.corpus, case.individuals, config=config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_sample, "ROWS_AT_ONCE", 3)
        read = sample.read(case.spans, index, Retokenizer(store.tokenizer_path), max_n=policy.n)
    return read.check(store, policy)


# Everything `write_tokens` writes holds.

pieces = st.sampled_from(
    [
        *("a", "b", "a", "b", "Smith", "été", "e\u0301t", "12", "12/05", "-", "@", ".", " ", " ", "  ", "\n"),
        *("\u00a0", "\u202f", "\u200b", "\u00ad", "\ue123", "😀", "👩\u200d⚕\ufe0f", "🇫🇷", "⠓", "田中", "ก", "カナ"),
        *("א'", "\u0301", "\u0e34", "ß", "ﬁ", "Σς", "[MASK]", "<s>", "\u115f", "½", "€"),
    ]
)  # fmt: skip
plain = st.lists(pieces, max_size=6).map("".join)
labels = st.sampled_from(["NAME", "CITY", "DATE", "ID"])
marked = st.tuples(st.lists(pieces, min_size=1, max_size=3).map("".join), labels).map(lambda m: f"«{m[0]}|{m[1]}»")
documents = st.lists(st.one_of(plain, plain, marked), max_size=5).map("".join)
people = st.sampled_from(["p0", "p1", "p2", "p3", "held"])
corpora = st.lists(st.tuples(people, documents), min_size=2, max_size=8)


@pytest.mark.heavy
@settings(max_examples=examples(120))
@given(
    corpora,
    st.sampled_from(list(TOKENIZERS)),
    st.sampled_from(["exact", "casefold", "fold"]),
    st.integers(2, 3),
    st.integers(1, 3),
    st.sampled_from(POLICIES),
    st.sampled_from([None, 0.5, 0.75]),
    st.booleans(),
)
def test_written_tokens_have_no_violation(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str]],
    tokenizer: str,
    surface: str,
    k: int,
    n: int,
    policy: Any,
    share: float | None,
    households: bool,
) -> None:
    homes = {"p0": "h", "p1": "h", "p2": "i", "p3": "j", "held": "k"} if households else None
    # BERT drops private-use and lone combining characters, and a document without a token is refused: each has a word.
    documents = [("p0", "a b"), ("p2", "b a"), ("held", "a"), *((person, f"{text} a") for person, text in documents)]
    case = written_case(tmp_path_factory.mktemp("case"), documents, homes)
    settings = Policy(k=k, n=n, policy=policy, max_document_frequency=share)
    store = write(case, "tokens", TOKENIZERS[tokenizer], settings, surface)
    check = checked(case, store, settings, surface)
    assert check.holds, check
    assert check.documents == store.num_documents
    assert check.tokens == store.num_tokens
    assert check.unexplained == 0
    assert sampled(case, store, settings, surface, seed=k) == replace(check, whole=False, fingerprint="")


# Changes are found.

DOCUMENTS = [
    ("p0", "mail «ann.lee@mail.org/x-y|EMAIL» was seen with fever"),
    ("p0", "was seen with cough, rare"),
    ("p1", "was seen by «Quorvel|NAME» with fever"),
    ("p2", "was seen by Quorvel with cough \U0001f600"),
    ("held", "unseen"),
]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return written_case(tmp_path_factory.mktemp("case"), DOCUMENTS)


@pytest.fixture(scope="module", params=["bytelevel", "wordpiece"])
def store(request: pytest.FixtureRequest, case: Case) -> TokenStore:
    return write(case, request.param, TOKENIZERS[request.param], Policy())


def test_written_tokens_hold(case: Case, store: TokenStore) -> None:
    check = checked(case, store, Policy())
    assert check.holds
    assert check.whole
    assert (check.violations, check.mismatches, check.unexplained, check.found_in) == (0, 0, 0, ())
    assert check.direct_characters == len("ann.lee@mail.org/x-y") + 2 * len("Quorvel")
    assert check.indirect_characters == sum(map(len, ["mail", "ann.lee", "mail.org", "x", "y", "rare", "😀"]))
    assert check.fingerprint == store.flags_fingerprint()
    assert TextCheck.from_dict(check.to_dict()) == check
    assert sampled(case, store, Policy()) == replace(check, whole=False, fingerprint="")


@pytest.mark.parametrize("name", ["Zor", "Zoﬁ\x01", "\x01\x02Zoﬁ"])
def test_characters_that_a_sentencepiece_map_deletes_move_nothing(tmp_path: Path, name: str) -> None:
    """The library's offsets are wrong behind deleted characters; ours and the oracle's are not."""
    texts = [f"\x01\x02«{name}|NAME» was seen", f"the \x0b{name} was seen", "was seen\x01", "the \x01was\x01 seen"]
    case = written_case(tmp_path, [(f"p{number}", text) for number, text in enumerate(texts)])
    store = write(case, "tokens", tokenizer_json("Unigram, SentencePiece"), Policy())
    check = checked(case, store, Policy())
    assert check.holds
    assert check.direct_characters >= 2 * len(name.strip("\x01\x02"))
    flags = store.flags & ~np.uint8(DIRECT)
    assert checked(case, store.with_columns(flags=flags), Policy()).direct_violations > 0


@pytest.mark.parametrize("bit", [DIRECT, INDIRECT])
def test_every_flag_that_is_dropped_is_found_as_what_it_is(case: Case, store: TokenStore, bit: int) -> None:
    for at in np.flatnonzero(store.flags & bit).tolist():
        flags = store.flags.copy()
        flags[at] ^= bit
        document = int(np.searchsorted(store.doc_offsets, at, side="right")) - 1
        for check in (look(case, store.with_columns(flags=flags), Policy()) for look in (checked, sampled)):
            assert (check.direct_violations, check.indirect_violations) == (int(bit == DIRECT), int(bit == INDIRECT))
            assert check.found_in == (document,)
            assert not check.holds


def test_a_flag_for_nothing_is_counted_and_does_not_fail(case: Case, store: TokenStore) -> None:
    at = np.flatnonzero(store.flags == 0)[2]
    flags = store.flags.copy()
    flags[at] = INDIRECT
    check = checked(case, store.with_columns(flags=flags), Policy())
    assert check.holds
    assert check.unexplained == 1


def test_flags_of_words_alone_leave_the_punctuation_of_an_identifier_open(case: Case, store: TokenStore) -> None:
    """As it was: what a span holds between its words was a target."""
    flags = np.where(store.word_ids < 0, 0, store.flags).astype(np.uint8)
    check = checked(case, store.with_columns(flags=flags), Policy())
    assert check.direct_violations >= 3
    assert check.found_in == (0,)
    assert "document" in check.failure()
    assert not any(word in check.failure() for _, text in DOCUMENTS for word in ("ann", "Quorvel", "mail"))


@pytest.mark.parametrize("column", ["word_ids", "input_ids"])
def test_words_and_ids_of_another_text_are_found(case: Case, store: TokenStore, column: str) -> None:
    values = getattr(store, column).copy()
    first, last = store.doc_offsets[2:4]
    values[first:last] += 1
    check = checked(case, store.with_columns(**{column: values}), Policy())
    assert check.mismatches == 1
    assert check.found_in == (2,)
    assert not check.holds


def test_documents_in_another_order_are_found(case: Case, store: TokenStore) -> None:
    check = checked(case, store.select(np.array([0, 1, 3, 2])), Policy())
    assert check.mismatches == 2
    assert check.found_in == (2, 3)


def test_a_store_of_other_documents_is_refused(case: Case, store: TokenStore) -> None:
    with pytest.raises(ArtifactError, match="holds 2 documents, the text has 4"):
        checked(case, store.select(np.array([0, 1])), Policy())


@pytest.mark.parametrize("made", [Policy(), Policy(k=3, policy="last"), Policy(k=3, n=2, policy="cover")])
def test_a_store_of_a_weaker_policy_is_found(case: Case, tmp_path: Path, made: Policy) -> None:
    case = written_case(tmp_path, DOCUMENTS)
    store = write(case, "tokens", TOKENIZERS["bytelevel"], made)
    wanted = Policy(k=3, n=2)
    assert checked(case, store, made).holds
    for look in (checked, sampled):
        check = look(case, store, wanted)
        assert check.indirect_violations > 0
        assert check.direct_violations == 0


@pytest.mark.parametrize(("label", "reach"), [("NAME", [2, 3]), ("CITY", [2]), ("DATE", [2])])
def test_a_surface_that_a_span_of_another_document_protects_is_found(
    tmp_path: Path, label: str, reach: list[int]
) -> None:
    documents = [(person, text.replace("Quorvel|NAME", f"Quorvel|{label}")) for person, text in DOCUMENTS]
    case = written_case(tmp_path, documents)
    weak = Policy(scopes={"NAME": "occurrence", "CITY": "occurrence"})
    store = write(case, "tokens", plain_tokenizer("was"), weak)
    check = checked(case, store, Policy())
    assert check.found_in == tuple(reach[1:])
    assert check.direct_violations == len(reach) - 1


def test_letters_of_private_use_that_are_in_no_count_are_found(tmp_path: Path) -> None:
    """As it was: they were no words, so one person's were a target."""
    documents = [("p0", "name \ue123\ue124 seen"), ("p1", "name seen"), ("p2", "du\u200bpont dupont"), ("p3", "dupont")]
    case = written_case(tmp_path, documents)
    store = write(case, "tokens", TOKENIZERS["bytelevel"], Policy())
    check = checked(case, store, Policy())
    assert check.holds
    assert check.indirect_characters == len("\ue123\ue124") + len("du\u200bpont")
    without = store.with_columns(flags=np.where(np.arange(store.num_tokens) < store.doc_offsets[1], 0, store.flags))
    assert not checked(case, without, Policy()).holds


def test_a_span_that_cuts_a_character_from_its_marks_protects_both(tmp_path: Path) -> None:
    case = written_case(
        tmp_path, [("p0", "is -«\u0301|DATE» and «\U0001f469|DATE»\u200d\u2695 seen"), ("p1", "is and seen")]
    )
    store = write(case, "tokens", TOKENIZERS["bytelevel"], Policy())
    check = checked(case, store, Policy())
    assert check.direct_characters == len("-\u0301") + len("\U0001f469\u200d\u2695")
    assert check.holds
    assert check.unexplained == 0


def test_a_record_that_is_none_is_refused() -> None:
    for values in ({}, {"found_in": []}, {"found_in": None}, {"found_in": [], "more": 1}):
        with pytest.raises(ArtifactError, match="not the record"):
            TextCheck.from_dict(values)


# Foundations of the oracle.


#: Characters that Python's tables know, which may be of an older Unicode than the core's.
known = st.text(st.characters(exclude_categories=("Cs", "Cn", "Zs", "Zl", "Zp", "Cc")), min_size=1, max_size=4)


@pytest.mark.parametrize("surface", ["exact", "casefold", "fold"])
@settings(max_examples=examples(200))
@given(st.lists(known, min_size=1, max_size=30))
def test_surfaces_are_those_of_the_index(surface: str, texts: list[str]) -> None:
    builder = _rust.IndexBuilder(surface=surface)
    builder.add(pa.array(texts), np.zeros(len(texts), dtype=np.uint32))
    listed = pa.record_batch(builder.finish().words()).column("word").to_pylist()
    array = pa.array(texts)
    table = WordTable()
    for word in pa.record_batch(_rust.segment(array).surfaces(array)).column("word").to_pylist():
        _ = table[word]
    assert sorted(set(table.surfaces(surface)), key=str.encode) == listed


def test_the_check_needs_no_core() -> None:
    code = (
        "import sys; sys.modules['reticent._rust'] = None\n"
        "import reticent.engine.verify, reticent.engine.text_sample\n"
        "print(*(n for n in ('torch', 'reticent.engine.tokens', 'reticent.engine.flagged_words') if n in sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
