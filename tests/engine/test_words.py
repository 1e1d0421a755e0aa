"""Words: hand-worked cases, properties on any text, and Unicode's own test file.

A word is a segment of UAX #29 that holds a letter or a digit; numbers joined by one of - / . : are one word
(definitions.md#documents-and-words). Two readings of that definition are the code's, and these tests hold it to them:

- "Letter" is Unicode's property Alphabetic, so a few marks and symbols count (Thai vowel signs, circled letters).
  Python has no such property: `may_be_alphabetic` is the wider set of categories it lies in.
- The core knows the Unicode of its crates, Python that of its `unicodedata`, which may be older: texts are drawn from
  the characters Python knows.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from fixtures.drawing import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.word_rules import is_space

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.oracle.words import is_counted_symbol, word_bounds, words_of

# Cn: characters this Python does not know; Cs: surrogates, which no UTF-8 text holds.
known = st.characters(blacklist_categories=("Cn", "Cs"))
tricky = st.sampled_from(
    [
        *"aZ09_.':,;-/ \n\t\0@",
        *("\u0301", "\u0345", "\u0e34", "\u0e01", "\u00ad", "\u200b", "\u200c", "\u200d", "\ufe0f", "\ufeff"),
        *(
            "\u3000",
            "\u00a0",
            "\u2028",
            "\u0085",
            "é",
            "ß",
            "ﬁ",
            "Ⓐ",
            "½",
            "²",
            "٣",
            "中",
            "か",
            "カ",
            "한",
            "ש",
            "\u202e",
        ),
        *("\U0001f469", "\U0001f3fd", "\U0001f1eb", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"),
    ]
)
texts = st.text(st.one_of(tricky, known), max_size=60)


def words(text: str) -> list[str]:
    array = pa.array([text], pa.string())
    return pa.record_batch(_rust.segment(array).surfaces(array)).column("word").to_pylist()


def is_digit(c: str) -> bool:
    return unicodedata.category(c).startswith("N")


def may_be_alphabetic(c: str) -> bool:
    return unicodedata.category(c)[0] in "LNM" or unicodedata.category(c) == "So"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n", []),
        ("--- ... ___", []),
        ("Mr. Smith's BP 120/80", ["Mr", "Smith's", "BP", "120/80"]),
        ("2021-03-04 at 10:45", ["2021-03-04", "at", "10:45"]),
        ("Tel 555-123-4567.", ["Tel", "555-123-4567"]),
        ("192.168.0.1, A1-B2/C3", ["192.168.0.1", "A1-B2/C3"]),
        ("1,234.5 mg, 12--30, 12 -30", ["1,234.5", "mg", "12", "30", "12", "30"]),
        ("post-op day 2, COVID-19", ["post", "op", "day", "2", "COVID", "19"]),
        ("e.g. A.B. U.S.A: C", ["e.g", "A.B", "U.S.A", "C"]),
        ("j.doe@x.org", ["j.doe", "x.org"]),
        ("l'hôpital Saint-Élie", ["l'hôpital", "Saint", "Élie"]),
        ("e\u0301te\u0301 été", ["e\u0301te\u0301", "été"]),
        ("é 12/05 ٣-٤", ["é", "12/05", "٣-٤"]),
        ("שלום עולם", ["שלום", "עולם"]),
        ("👩‍⚕️ ok", ["👩‍⚕️", "ok"]),
        ("Z\ue123\ue124q", ["Z", "\ue123\ue124", "q"]),
        ("🇫🇷🇨🇭, ⠓⠊; \u0378!", ["🇫🇷🇨🇭", "⠓⠊", "\u0378"]),
        ("© ® € → + × ■ 𝄞 ‼", []),
        ("Du\u200bpont Du\u00adpont Du\ufeffpont", ["Du\u200bpont", "Du\u00adpont", "Du\ufeffpont"]),
        ("Dupont\u202f: 10\u202f000, Ann\u202fLee", ["Dupont", "10", "000", "Ann", "Lee"]),
        ("12\u200b-\u206005 ก\u200bข", ["12\u200b-\u206005", "ก", "ข"]),
        ("カナ\u200bカナ 田\u200b中", ["カナ", "カナ", "田", "中"]),
        ("患者 田中", ["患", "者", "田", "中"]),
        ("nul\0byte", ["nul", "byte"]),
        ("a \u0e34b", ["a", "\u0e34", "b"]),
    ],
)
def test_words_of_hand_worked_texts(text: str, expected: list[str]) -> None:
    assert words(text) == words_of(text) == expected


@settings(max_examples=examples(300))
@given(texts)
@example(" \u0e34")  # a vowel sign on a space
@example("a\u3000\u0345")
def test_bounds_are_ordered_disjoint_and_in_the_text(text: str) -> None:
    array = pa.array([text], pa.string())
    segmented = _rust.segment(array)
    starts, ends = segmented.char_spans(array)
    pieces = [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    assert pieces == pa.record_batch(segmented.surfaces(array)).column("word").to_pylist()
    assert all(b <= c for b, c in zip(ends[:-1], starts[1:], strict=True))
    assert not any(is_space(c) for piece in pieces for c in piece)
    assert all(any(map(may_be_alphabetic, piece)) or is_counted_symbol(piece[0]) for piece in pieces)


def cut(texts: pa.Array, **options: str) -> list[list[int]]:
    """Offsets, starts and ends of all words."""
    found = _rust.segment(texts, **options)
    return [found.doc_offsets.tolist(), found.starts.tolist(), found.ends.tolist()]


@settings(max_examples=examples(300))
@given(st.lists(texts, max_size=4))
def test_words_do_not_depend_on_the_instruction_set(texts: list[str]) -> None:
    """Machines without AVX2 (aarch64) take the table."""
    batch = pa.array([*texts, " ".join(texts) * 3], pa.string())
    assert cut(batch, instruction_set="table") == cut(batch, instruction_set=_rust.instruction_set()) == cut(batch)


def test_words_of_real_texts_do_not_depend_on_the_instruction_set(data: Path) -> None:
    files = sorted(file for file in data.rglob("*") if file.suffix in (".csv", ".txt", ".json", ".xml"))
    texts = pa.array([file.read_text(encoding="utf-8", errors="replace") for file in files], pa.large_string())
    found = cut(texts)
    assert found == cut(texts, instruction_set="table")
    assert len(found[1]) > 500_000


def test_an_instruction_set_that_is_not_there_is_refused() -> None:
    with pytest.raises(PolicyError, match="instruction_set"):
        _rust.segment(pa.array(["a"]), instruction_set="avx1024")


@settings(max_examples=examples(300))
@given(texts)
def test_every_letter_and_digit_is_in_a_word(text: str) -> None:
    array = pa.array([text], pa.string())
    starts, ends = _rust.segment(array).char_spans(array)
    covered = {i for a, b in zip(starts.tolist(), ends.tolist(), strict=True) for i in range(a, b)}
    assert covered >= {i for i, c in enumerate(text) if c.isalnum()}


@settings(max_examples=examples(300))
@given(st.text(st.sampled_from("aZ09_.':,;-/ \n\0@"), max_size=30))
def test_ascii_words_are_the_same_beside_another_script(text: str) -> None:
    """Documents in ASCII take a scanner of their own; one more letter sends them to the full rule."""
    assert [*words(text), "é"] == words(f"{text} é")


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["12", "a1", "٣", "ab", "é", "½"]), min_size=1, max_size=6), st.data())
def test_numbers_joined_by_one_sign_are_one_word(pieces: list[str], data: st.DataObject) -> None:
    signs = [data.draw(st.sampled_from(["-", "/", "--", " ", "-/", "*"])) for _ in pieces[1:]]
    expected = [pieces[0]]
    for before, sign, piece in zip(pieces, signs, pieces[1:], strict=False):
        if sign in ("-", "/") and any(map(is_digit, before)) and any(map(is_digit, piece)):
            expected[-1] += sign + piece
        else:
            expected.append(piece)
    assert words("".join(a + b for a, b in zip(pieces, [*signs, ""], strict=True))) == expected


#: Rows of the file (Unicode 14) where the core follows a later Unicode: U+2701 is no pictograph there since 15.1, so a
#: zero-width joiner does not bind it to what stands before.
LATER_UNICODE = {"0061 200D 2701": ["a\u200d"]}


def joined(segments: list[str]) -> list[str]:
    """The rules of our own, upon Unicode's segments: a single - / . : between two that hold digits joins them, and a
    run of segments that begin with a counted symbol is a word.
    """
    found: list[str] = []
    in_symbols = False
    for i, segment in enumerate(segments):
        digit = any(map(is_digit, segment))
        was_in_symbols, in_symbols = in_symbols, False
        if digit and i >= 2 and segments[i - 1] in ("-", "/", ".", ":") and any(map(is_digit, segments[i - 2])):
            found[-1] += segments[i - 1] + segment
        elif any(c.isalnum() for c in segment):
            found.append(segment)
        elif in_symbols := is_counted_symbol(segment[0]):
            if was_in_symbols:
                found[-1] += segment
            else:
                found.append(segment)
    return found


def test_words_are_those_of_the_unicode_word_break_test(data: Path) -> None:
    """Every segment Unicode names that holds a letter or a digit is a word of ours, and nothing else.

    Two kinds of row deviate on purpose: numbers joined by one of - / . : are one word here (a date, a phone number),
    and `LATER_UNICODE`.
    """
    path = data / "unicode_break_tests" / "14.0" / "WordBreakTest.txt"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    rows = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row]
    num_joined = 0
    for row in rows:
        codes = [part.split() for part in row.strip("÷ ").split("÷")]
        segments = ["".join(chr(int(code, 16)) for code in part if code != "×") for part in codes]
        num_joined += len(joined(segments)) < sum(any(c.isalnum() for c in segment) for segment in segments)
        expected = LATER_UNICODE.get(re.sub("[÷× ]+", " ", row).strip(), joined(segments))
        assert words("".join(segments)) == expected, row
        assert words_of("".join(segments)) == expected, row
    assert len(rows) > 1800
    assert num_joined == 5


#: Characters of Unicode 18, which the oracle's tables may know; the core cuts words by Unicode 17.
LATER_CHARACTERS = "[" + (
    "\u0558\u058b-\u058c\u05c8-\u05c9\u0b53-\u0b54\u1ade-\u1adf\u1aec-\u1af0\u208f\u209d-\u209f\ua7dd\ua7e2\uab6c-\uab6d"
    "\U000107bb-\U000107bf\U00010ecb-\U00010ecf\U00010ed9-\U00010ef9\U00011b0a\U00011df0-\U00011df1\U0001246f"
    "\U00012475-\U0001247f\U00012550-\U00012686\U00018cd6-\U00018cda\U00018d1f-\U00018d20\U00018e00-\U000191d2"
    "\U0001b123-\U0001b128\U0001b168\U0001d127-\U0001d128\U0001d250-\U0001d281\U0001d6a6\U0001df1f-\U0001dfff\U0002b81e"
    "\U0003d000-\U0003fc3f"
) + "]"  # fmt: skip
#: Where the core's crate leaves UAX #29: a letter that is a pictograph, bound by a joiner, is no letter to it any more;
#: and the modifier of an emoji on a white space beyond ASCII is not looked at.
LEFT_OUT = re.compile(
    "\u200d[\u2139\u24c2\U0001f170-\U0001f189]|[^\\S \t\n\r].*[\U0001f3fb-\U0001f3ff]|" + LATER_CHARACTERS
)
anything = st.one_of(
    tricky, st.sampled_from("\u05d0\u05f4\u202fⓂ©½7カ〇ຂ\u115f🏽🇨"), st.characters(exclude_categories=("Cs",))
)


def bounds_of(texts: list[str], joined_by: str = "\n") -> tuple[list[list[int]], list[list[int]]]:
    """Bounds of all words by the core, and by the oracle of the joined text."""
    starts, ends = _rust.segment(pa.array([joined_by.join(texts)], pa.large_string())).char_spans(
        pa.array([joined_by.join(texts)], pa.large_string())
    )
    return [starts.tolist(), ends.tolist()], [bounds.tolist() for bounds in word_bounds(joined_by.join(texts))]


@settings(max_examples=examples(1500))
@given(st.text(anything, max_size=24))
@example("א' א'א א\"א א\"")
@example("a\u200b\u0e01 カ\u200bא'_")
def test_words_of_any_text_match_oracle(text: str) -> None:
    text = LEFT_OUT.sub("", text)
    if not LEFT_OUT.search(text):
        core, oracle = bounds_of([text])
        assert core == oracle


def test_every_character_between_letters_matches_oracle() -> None:
    codes = itertools.chain(range(0xD800), range(0xE000, 0x20000), range(0xE0000, 0xE1000))
    texts = [f"a{chr(code)}b 1{chr(code)}2" for code in codes]
    texts = [text for text in texts if not LEFT_OUT.search(text)]
    core, oracle = bounds_of(texts)
    assert core == oracle
    assert len(core[0]) > 250_000


@settings(max_examples=examples(100))
@given(st.lists(st.text(anything, max_size=8), min_size=1, max_size=5))
def test_words_of_texts_joined_by_newlines_are_their_own(texts: list[str]) -> None:
    assert words_of("\n".join(texts)) == [word for text in texts for word in words_of(text)]


def test_words_of_real_texts_match_oracle(data: Path) -> None:
    files = sorted(file for file in data.rglob("*") if file.suffix in (".csv", ".txt", ".json", ".xml"))[:400]
    texts = [file.read_text(encoding="utf-8", errors="replace")[:50_000] for file in files]
    core, oracle = bounds_of([LEFT_OUT.sub("", text) for text in texts])
    assert core == oracle
    assert len(core[0]) > 100_000


def test_texts_that_the_words_were_not_cut_from_are_checked_again():
    """Words remember the texts they were cut from, and that these are UTF-8; no other column of as many rows passes."""
    texts = pa.array(["fever", "cough"])
    words = _rust.segment(texts)
    assert pa.record_batch(words.surfaces(texts)).column(0).to_pylist() == ["fever", "cough"]
    offsets = pa.array([0, 5, 10], pa.int32()).buffers()[1]
    broken = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"fever\xff\xfe\xfd\xfc\xfb"))
    with pytest.raises(CorpusError, match="row 1 is not valid UTF-8"):
        words.surfaces(broken)
    longer = pa.array(["fever", "coughs"])
    assert pa.record_batch(words.surfaces(longer)).column(0).to_pylist() == ["fever", "cough"]
    assert pa.record_batch(words.surfaces(texts.slice(0))).column(0).to_pylist() == ["fever", "cough"]
