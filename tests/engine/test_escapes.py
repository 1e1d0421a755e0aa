"""No character that is protected is a target, for every kind of tokenizer: properties over all of Unicode.

The lab (`oracles.escape_lab`) tries named spellings in files; here any text goes through the same kernels. Which
characters are targets is told by `oracles.characters`: offsets of the library in characters and, if a tokenizer loses
nothing, what its tokens spell. Words are those of `oracles.word_rules`, the rule in plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import regex
from fixtures.drawing import examples
from fixtures.spellings import SPELLINGS, TOY_SPELLINGS, check_names
from fixtures.tokenizer_kinds import KINDS, TOY_KINDS, tokenizer_json
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oracles import escape_lab
from oracles.characters import PROTECTED, characters_met, characters_of, open_tokenizer, rare_characters
from oracles.word_rules import is_space, words_of
from tokenizers import Tokenizer

from reticent import _rust
from reticent.engine.schema import DIRECT
from reticent.engine.store import TokenStore

pieces = st.sampled_from(
    [
        *("the", "Zor", "Quib", "line", "was", "ward", "zo", "a", "Z", "q", "é", "e\u0301", "12", "7", "5.", "½"),
        *(" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2009", "\u3000", "\u2028", "\x1c", "\x01", "\0", "\x85"),
        *(".", "'", "-", "_", "/", ":", "@", "(", ")", "…", "##", "▁", "Ġ", "⁄", "¨", "©", "→", "€", "𝄞", "■"),
        *("\u0301", "\u0345", "\u0338", "\u0e34", "\u200b", "\u200c", "\u200d", "\u2060", "\u00ad", "\ufe0f", "\ufeff"),
        *("\u202e", "\u2066", "\u2065", "\u3164", "\u115f", "\u180e", "\U000e0041", "\U000e0101", "\U000e0fff"),
        *("ﬁ", "ß", "İ", "ǆ", "ﷺ", "㍻", "\u212b", "\u1e9b\u0323", "각", "\u1100\u1161", "ｶﾞ", "\u0f73", "\u0385"),
        *("שלום", "مرحبا", "患者", "田中", "かな", "カナ", "ไทย", "नमस्ते", "ང་", "ᠵᠣ\u180b", "Ⓜ", "Ⓐ"),
        *("😀", "🦄", "👩\u200d⚕\ufe0f", "🇫🇷", "🇨", "👍🏽", "⠓", "⠀", "7\ufe0f\u20e3", "➡"),
        *("\ud7ff", "\ue000", "\ue123", "\U000f1234", "\U0010fffd", "\u0378", "\U0001fffd", "\ufdd0", "\uffff"),
        *("<s>", "[MASK]", "[UNK]", "<unk>", "<|endoftext|>", "<0x41>"),
    ]
)
#: Any character of any plane; the planes above the first are as likely as the rest together.
anything = st.one_of(
    st.characters(exclude_categories=["Cs"]), st.integers(0x10000, 0x10FFFF).map(chr), st.integers(0, 0xD7FF).map(chr)
)
texts = st.lists(st.one_of(pieces, pieces, anything), min_size=1, max_size=14).map("".join)


@dataclass(frozen=True)
class Kind:
    name: str
    encoder: _rust.TokenEncoder
    python: Tokenizer


@cache
def kind_of(name: str) -> Kind:
    json = tokenizer_json(name)
    return Kind(name, _rust.TokenEncoder(json, num_threads=1), open_tokenizer(json))


def stored(kind: Kind, batch: list[str], flags: np.ndarray, words: _rust.Words, gaps: Any = None) -> TokenStore:
    tokens = kind.encoder.encode(pa.array(batch, pa.large_string()), words, flags, np.zeros_like(flags), gaps=gaps)
    ids = [f"d{number}" for number in range(len(batch))]
    return TokenStore(
        tokens.input_ids, tokens.word_ids, tokens.flags, tokens.ngram_starts, tokens.doc_offsets,
        np.arange(len(batch), dtype=np.uint32), pa.array(ids),
    )  # fmt: skip


def marked(kind: Kind, text: str, start: int, end: int) -> TokenStore:
    """The tokens of a text with a marked span, by the kernels that the engine calls."""
    array = pa.array([text], pa.large_string())
    words = _rust.segment(array)
    span = np.array([0, 1], np.int64), np.array([start], np.int32), np.array([end], np.int32)
    gaps = _rust.mark_spans(array, words, *span).gaps
    return stored(kind, [text], _rust.mark_spans(array, words, *span).mask * np.uint8(DIRECT), words, gaps)


def escaped(kind: Kind, text: str, store: TokenStore, protected: set[int]) -> list[int]:
    """Protected characters, white space aside, that the causal recipe predicts or the masked one drew."""
    met = characters_met(kind.name, kind.python, text)
    free = (store.flags & PROTECTED) == 0
    asked = characters_of(met, free) | characters_of(
        met, escape_lab.drawn_tokens(store, share=1.0, seeds=(0,), epochs=1)
    )
    return sorted(at for at in asked & protected if not is_space(text[at]))


def check_marked(text: str, first: int, length: int) -> None:
    start = first % len(text)
    end = min(len(text), start + length)
    for name in KINDS:
        kind, span = kind_of(name), (start, end)
        store = marked(kind, text, *span)
        assert not escaped(kind, text, store, set(range(*span))), name


def check_counted(of: list[list[str]], k: int, n: int) -> None:
    """``of``: the texts of each individual."""
    batch = [text for own in of for text in own]
    people = [number for number, own in enumerate(of) for _ in own]
    array = pa.array(batch, pa.large_string())
    words = _rust.segment(array)
    builder = _rust.IndexBuilder(max_n=2)
    builder.add(array, np.array(people, np.uint32))
    flags, _ = builder.finish().protect(array, words, k=k, n=n, policy="all")
    rare = rare_characters(batch, [str(person) for person in people], k=k, n=n)
    for name in KINDS:
        store = stored(kind_of(name), batch, flags, words)
        for number, text in enumerate(batch):
            one = store.select(np.array([number]))
            assert not escaped(kind_of(name), text, one, rare[number]), name


#: Letters and marks of Unicode 18, which the oracle's tables know and the core's cutter does not: it counts letters in
#: runs, where the oracle has words.
newer = regex.compile(
    "[\u0558\u058b\u058c\u05c8\u05c9\u208f\u209d-\u209f\ua7dd\ua7e2\uab6c\uab6d\U000107bb-\U000107bf\U00010ecb-\U00010ef8"
    "\U00011b0a\U00011df0\U00011df1\U0001246f-\U0001247f\U00012550-\U00012686\U00018cd6-\U00018cda\U00018d1f\U00018d20"
    "\U00018e00-\U000191d2\U0001b123-\U0001b128\U0001b168\U0001d6a6\U0001df1f-\U0001df96\U0001dfcd-\U0001dfff\U0002b81e"
    "\U0003d000-\U0003fc3f"
    "\u0b53\u0b54\u1ade\u1adf\u1aec-\u1af0\U00010ef9\U0001d127\U0001d128\U0001d250-\U0001d252\U0001d25b\U0001d25c"
    "\U0001d25f\U0001d280\U0001d281]"
)
known_texts = texts.filter(lambda text: not newer.search(text))
quick = settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
thorough = settings(max_examples=examples(4000), suppress_health_check=list(HealthCheck))
spans = given(text=texts, first=st.integers(0, 40), length=st.integers(1, 12))
crowds = given(
    of=st.lists(st.lists(known_texts, min_size=1, max_size=2), min_size=1, max_size=3),
    k=st.integers(2, 3),
    n=st.integers(1, 2),
)


@quick
@spans
@example(text="Z\ue123q", first=1, length=1)
@example(text="write to a@b.org, or", first=9, length=7)
@example(text="👩\u200d⚕\ufe0f", first=0, length=1)
def test_no_character_of_a_marked_span_is_a_target(text: str, first: int, length: int) -> None:
    check_marked(text, first, length)


@quick
@crowds
@example(of=[["seen 🦄🐙 on"], ["seen on"], ["seen on"]], k=2, n=1)
@example(of=[["Du\u200bpont"], ["Du pont"], ["\u0378"]], k=2, n=1)
def test_no_word_that_fewer_than_k_individuals_use_is_a_target(of: list[list[str]], k: int, n: int) -> None:
    check_counted(of, k, n)


@pytest.mark.slow
@thorough
@spans
def test_no_character_of_a_marked_span_is_a_target_in_many_texts(text: str, first: int, length: int) -> None:
    check_marked(text, first, length)


@pytest.mark.slow
@thorough
@crowds
def test_no_word_that_fewer_than_k_individuals_use_is_a_target_in_many(of: list[list[str]], k: int, n: int) -> None:
    check_counted(of, k, n)


#: Characters that count as a word by their property alone, whatever stands beside them.
_NAMING = regex.compile(r"(?V1)[[\p{Alphabetic}\p{N}\p{Co}\p{Cn}\p{RI}\p{Block=Braille_Patterns}]--\p{DI}]")


@quick
@given(texts)
def test_no_character_that_can_name_an_individual_is_a_target_where_no_other_writes(text: str) -> None:
    array = pa.array([text], pa.large_string())
    words = _rust.segment(array)
    builder = _rust.IndexBuilder(max_n=1)
    builder.add(array, np.zeros(1, np.uint32))
    flags, _ = builder.finish().protect(array, words, k=2, n=1, policy="all")
    naming = {at for at, c in enumerate(text) if _NAMING.match(c)}
    for name in KINDS:
        kind = kind_of(name)
        assert not escaped(kind, text, stored(kind, [text], flags, words), naming), name


def test_every_character_that_can_name_an_individual_is_a_word() -> None:
    every = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    naming = regex.compile(r"(?V1)[[\p{L}\p{N}\p{Co}\p{Cn}\p{RI}\p{Block=Braille_Patterns}]--\p{DI}]")
    num_words = np.diff(_rust.segment(pa.array(every, pa.large_string())).doc_offsets)
    without = [f"{ord(c):x}" for c, num in zip(every, num_words, strict=True) if not num and naming.match(c)]
    assert not without


def met_and_flagged(name: str, text: str, start: int, end: int) -> list[int]:
    kind = kind_of(name)
    return escaped(kind, text, marked(kind, text, start, end), set(range(start, end)))


@pytest.mark.parametrize("text", ["\x01\x02\x03Zor was", "\x0bthe Zor was"])
def test_characters_that_a_map_deletes_in_front_of_a_text_move_no_protection(text: str) -> None:
    start = text.index("Zor")
    assert not met_and_flagged("Unigram, SentencePiece", text, start, start + 3)


def test_characters_that_a_map_deletes_behind_a_ligature_take_none_of_its_letters() -> None:
    assert not met_and_flagged("Unigram, SentencePiece", "Zoﬁ\x01 was", 0, 3)


def test_a_marked_combining_mark_protects_the_sign_it_is_composed_into() -> None:
    assert not met_and_flagged("Unigram, NFKC", "a =\u0338 b", 3, 4)


def test_the_oracle_of_words_is_the_product_on_any_text() -> None:
    @settings(max_examples=examples(400))
    @given(known_texts)
    def check(text: str) -> None:
        array = pa.array([text], pa.large_string())
        starts, ends = _rust.segment(array).char_spans(array)
        assert words_of(text, "new") == list(zip(starts.tolist(), ends.tolist(), strict=True))

    check()


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("Mr. Smith's 120/80", ["Mr", "Smith's", "120/80"], ["Mr", "Smith's", "120/80"]),
        ("Du\u200bpont", ["Du", "pont"], ["Du\u200bpont"]),
        ("Z\ue123q 🦄🐙", ["Z", "q"], ["Z", "\ue123", "q", "🦄🐙"]),
        ("ก\u200bข © →", ["ก", "ข"], ["ก", "ข"]),
    ],
)
def test_the_two_word_rules_of_hand_worked_texts(text: str, old: list[str], new: list[str]) -> None:
    assert [text[a:b] for a, b in words_of(text, "old")] == old
    assert [text[a:b] for a, b in words_of(text, "new")] == new


# The lab itself.


@pytest.mark.heavy
def test_the_lab_finds_no_escape_in_some_spellings(tmp_path: Path) -> None:
    kinds = {kind: tokenizer_json(kind) for kind in TOY_KINDS}
    found = {s.name: escape_lab.measure(s, kinds, tmp_path / str(number)) for number, s in enumerate(TOY_SPELLINGS)}
    assert not escape_lab.verdicts(found)
    outcomes = [outcome for ways in found.values() for way in ways.values() for outcome in way.values()]
    assert len(outcomes) == len(TOY_SPELLINGS) * len(TOY_KINDS) * len(escape_lab.WAYS)
    assert all(outcome.characters and not outcome.escaped and not outcome.drawn for outcome in outcomes)


def test_spellings_are_distinct() -> None:
    check_names()
    assert len(SPELLINGS) >= 70


def lab(tmp_path: Path, name: str, kind: str = "byte-level BPE") -> dict[str, dict[str, dict[str, escape_lab.Outcome]]]:
    (spelling,) = [spelling for spelling in SPELLINGS if spelling.name == name]
    return {name: escape_lab.measure(spelling, {kind: tokenizer_json(kind)}, tmp_path)}


def test_the_lab_fails_where_protection_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = escape_lab.write_tokens

    def without_spans(*args: Any, **options: Any) -> Any:
        return write(*args, **options | {"spans": None, "index": None})

    monkeypatch.setattr(escape_lab, "write_tokens", without_spans)
    found = lab(tmp_path, "plain")
    assert all(outcome.escaped and outcome.drawn for outcome in found["plain"]["byte-level BPE"].values())
    assert len(escape_lab.verdicts(found)) == len(escape_lab.WAYS)


def test_the_lab_fails_where_its_list_is_not_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, signs = lab(tmp_path / "a", "plain"), lab(tmp_path / "b", "e-mail")
    assert not escape_lab.verdicts(plain | signs)
    turned = [replace(s, reason=None if s.reason else "why not") for s in SPELLINGS]
    monkeypatch.setattr(escape_lab, "SPELLINGS", turned)
    assert [line.split(":")[0] for line in escape_lab.verdicts(plain | signs)] == ["plain", "e-mail"]
    monkeypatch.setattr(escape_lab, "SPELLINGS", SPELLINGS)
    monkeypatch.setattr(escape_lab, "OPEN", {(None, "plain"): "no longer"})
    assert escape_lab.verdicts(plain) == ["plain: listed as open, and holds now"]
