"""Word segmentation by Unicode properties, independent of the Rust core: other author, tables and code.

The rule is that of definitions.md#documents-and-words.

A text becomes a string of as many letters, one for each character: its class. Words are then defined by two
regular expressions over classes, after UAX #29 (rules WB3c and WB4 to WB16) and the three rules of our own. Properties
are those of the `regex` library. Cost: 15 to 50 MB of text a second, one thread.
"""

from __future__ import annotations

import re
import sys

import numpy as np
import regex

IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
IGNORABLE_RUN = regex.compile(r"\p{Default_Ignorable_Code_Point}+")
COUNTED = regex.compile(
    r"(?V1)(?![\p{Default_Ignorable_Code_Point}\x00-\xff\u2190-\u21ff\u27a1\u2900-\u297f\u2b00-\u2b11])"
    r"[\p{Co}\p{Cn}\p{RI}\p{Block=Braille_Patterns}\p{Emoji}&&[\p{Co}\p{Cn}\p{So}\p{Sk}]]"
)
#: Letters of scripts that write no spaces, less some iteration marks and archaic kana that the core does not list.
UNSPACED = regex.compile(
    r"(?V1)[[\p{L}\u3007&&[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Line_Break=SA}]]"
    r"--[\u3031-\u3035\u303c\U00016fe0-\U00016fff\U0001aff0-\U0001b000\U0001b120-\U0001b14f\U0001b153-\U0001b168]]"
)

#: Class of a character, the first pattern that fits. Upper case is what makes a word; the table is worked out below.
CLASSES = {
    "\n": r"[\p{WB=Newline}\p{WB=CR}\p{WB=LF}]",
    "z": r"\p{WB=ZWJ}",
    "E": r"(?V1)[[\p{WB=Extend}\p{WB=Format}]&&[\p{Alphabetic}\p{N}]]",
    "f": r"(?V1)[\p{WB=Extend}&&\p{Emoji}&&\p{Sk}]",  # modifiers of an emoji: counted where they begin a segment
    "e": r"[\p{WB=Extend}\p{WB=Format}]",
    "M": r"(?V1)[\p{WB=ALetter}&&\p{Extended_Pictographic}]",
    "A": r"(?V1)[\p{WB=ALetter}&&[\p{Alphabetic}\p{N}]]",
    "a": r"\p{WB=ALetter}",
    "H": r"\p{WB=Hebrew_Letter}",
    "N": r"(?V1)[\p{WB=Numeric}&&\p{N}]",
    "n": r"\p{WB=Numeric}",
    "K": r"(?V1)[\p{WB=Katakana}&&\p{Alphabetic}]",
    "k": r"\p{WB=Katakana}",
    "_": r"(?V1)[\p{WB=ExtendNumLet}--\p{White_Space}]",  # the narrow no-break space is white space here
    ":": r"\p{WB=MidLetter}",
    ",": r"\p{WB=MidNum}",
    ".": r"\p{WB=MidNumLet}",
    "'": r"\p{WB=Single_Quote}",
    '"': r"\p{WB=Double_Quote}",
    "R": r"\p{WB=Regional_Indicator}",
    "O": r"[\p{Alphabetic}\p{N}]",
    "~": IGNORABLE.pattern,  # UAX #29 ends a word here; see `_mark_ignorable`
    " ": r"\p{White_Space}",
}
#: The remaining class by (counted, pictographic).
SYMBOLS = {(True, True): "P", (True, False): "S", (False, True): "p", (False, False): "o"}
LETTERS = frozenset("AMHNKOE")

_CLASSES = [(name, regex.compile(pattern)) for name, pattern in CLASSES.items()]
_PICTOGRAPH = regex.compile(r"\p{Extended_Pictographic}")


def is_counted_symbol(c: str) -> bool:
    """Whether a character is a symbol that counts as a word: private-use and unassigned characters, regional
    indicators, Braille and emoji, but not punctuation, currency, mathematical signs, arrows and invisible
    characters."""
    return COUNTED.match(c) is not None


class _Table(dict[int, str]):
    """Class of each character, computed at first use; for `str.translate`."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        found = next((name for name, pattern in _CLASSES if pattern.match(c)), None)
        found = found or SYMBOLS[is_counted_symbol(c), _PICTOGRAPH.match(c) is not None]
        self[code] = found
        return found


_TABLE = _Table()

# X: marks that hang on the character before (WB4); *+ takes all of them and gives none back. AL: letters; MQ: marks
# that join two letters (WB6, WB7); h: an apostrophe after Hebrew that joins nothing more (WB7a, `_close_quotes`).
_ITEM = r"""(?:(?:[AaM]X)++(?:[:.']X(?=[AaMH]))?|HX(?:[:.']X(?=[AaMH])|"X(?=H))?|(?:[Nn]X)++(?:[,.']X(?=[Nn]))?)"""
_RUN = rf"(?:{_ITEM}++|(?:[Kk]X)++)"
_CHAIN = rf"(?:(?:_X)*+{_RUN}(?:(?:_X)++{_RUN})*+(?:_X)*+(?:hX)?|(?:_X)++)"
#: A joiner before a pictograph goes on (WB3c).
_JOINED = rf"(?:(?<=z)(?:[Pp]X|(?=M){_CHAIN}))*+"
#: Group 1: segments that begin with a letter or digit. Else: those that may be a word, which `_look` decides. Segments
#: of one sign and white space are passed over.
_PLAIN = rf"((?=[AMHNK]){_CHAIN}|O)|(?=[ank_]){_CHAIN}|RR?|[PS]"
_FULL = (
    rf"((?=[AMHNK]){_CHAIN}{_JOINED}|OX{_JOINED})|(?:(?=[ank_]){_CHAIN}|RX(?:RX)?|[PS]X){_JOINED}"
    rf"|(?:[o ph:,.'\"][eEfz]X|[eEfz]X){_JOINED}"
)
_MARKS = "[eEfz]*+"
#: The faster library, but for its possessive quantifiers, which are wrong before Python 3.11.5.
_patterns = re if sys.version_info >= (3, 11, 5) else regex
_find_plain = _patterns.compile(_PLAIN.replace("X", "")).finditer
_find_full = _patterns.compile(_FULL.replace("X", _MARKS)).finditer
_find_simple = _patterns.compile(f"(?=[AMHNK]){_CHAIN}|O".replace("X", "")).finditer
_needs_a_look = re.compile("[ank_PSReEfz]").search
_has_marks = re.compile("[eEfz]").search
_last_quote = _patterns.compile(f"(H{_MARKS})'(?!{_MARKS}[AaMH])")
_has_digit = regex.compile(r"\p{N}").search


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    starts, ends = word_bounds(text)
    return [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def word_bounds(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end (exclusive) of each word, in characters, int64. Several texts may be joined by newlines: no
    word spans two of them."""
    classes = text.translate(_TABLE)
    if "~" in classes:
        classes = _mark_ignorable(text, classes)
    if "H" in classes and "'" in classes:
        classes = _last_quote.sub(r"\1h", classes)
    pieces = _candidate_segments(classes) if _needs_a_look(classes) else [m.span() for m in _find_simple(classes)]
    bounds = np.array(pieces, dtype=np.int64).reshape(-1, 2)
    return _join_numbers(text, bounds[:, 0], bounds[:, 1])


def _mark_ignorable(text: str, classes: str) -> str:
    """Return ``classes``, one letter per character of ``text`` for its word-break class by UAX #29, with the letters of
    some invisible characters replaced: by "o" next to a script without spaces, by "e" where a word ends."""
    parts, done = [], 0
    for m in IGNORABLE_RUN.finditer(text):
        start, end = m.span()
        if "~" in classes[start:end]:
            beside = text[max(start - 1, 0) : start] + text[end : end + 1]
            parts += [classes[done:start], classes[start:end].replace("~", "o" if UNSPACED.search(beside) else "e")]
            done = end
    return "".join([*parts, classes[done:]])


def _candidate_segments(classes: str) -> list[tuple[int, int]]:
    """Return the (start, end) of each segment of a text that can be a word: one with a letter or digit, without leading
    space, or a run of symbols. ``classes`` has one letter per character of the text, its word-break class."""
    pieces: list[tuple[int, int]] = []
    symbols_end = -1
    for m in (_find_full if _has_marks(classes) else _find_plain)(classes):
        start, end = m.span()
        if m.lastindex is None:
            segment = classes[start:end]
            if not LETTERS.isdisjoint(segment):
                start = end - len(segment.lstrip(" w"))
            elif segment.lstrip(" w")[:1] not in tuple("PSRf"):
                continue
            else:
                start = end - len(segment.lstrip(" w"))
                if start == symbols_end:
                    start, _ = pieces.pop()
                symbols_end = end
        pieces.append((start, end))
    return pieces


def _join_numbers(text: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the word bounds (starts, ends), with neighbouring words merged that both hold a digit and have a single -
    / . : between them."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    after = codes[ends[:-1]] if len(ends) else codes[:0]
    joins = np.zeros(len(after), dtype=bool)
    signs = (starts[1:] > ends[:-1]) & ((after == 0x2D) | (after == 0x2F) | (after == 0x2E) | (after == 0x3A))
    for i in np.flatnonzero(signs).tolist():
        between = text[ends[i] + 1 : starts[i + 1]]
        joins[i] = bool(
            (not between or IGNORABLE_RUN.fullmatch(between))
            and _has_digit(text, starts[i], ends[i])
            and _has_digit(text, starts[i + 1], ends[i + 1])
        )
    first, last = np.ones((2, len(starts)), dtype=bool)
    first[1:], last[:-1] = ~joins, ~joins
    return starts[first], ends[last]
