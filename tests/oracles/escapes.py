"""Escapes of an export undone, the slow way: one escape at a time, by the words of the definition.

The definition is that of `rust_ext/src/text/escapes.rs` and `layout.rs`. Each character of the result comes with the
bounds, in characters, of what it was read from.
"""

from __future__ import annotations

import html
import re

__all__ = ["unescape"]

Read = tuple[str, int] | None

#: Names of HTML that are read: Latin-1, and what word processors write.
LATIN = {name: char for name, char in html.entities.html5.items() if "\xa0" <= char <= "\xff"}
NAMES = {name[:-1]: char for name, char in LATIN.items() if name.endswith(";")}
OTHERS = (
    "amp lt gt quot apos OElig oelig Scaron scaron Yuml ndash mdash lsquo rsquo ldquo rdquo sbquo bdquo hellip euro "
)
OTHERS += "bull Zcaron zcaron Ccaron ccaron"
NAMES |= {name: html.entities.html5[f"{name};"] for name in OTHERS.split()}
#: One of several names of a character that browsers know; the table has these.
KNOWN = set(html.entities.entitydefs) | {"apos", "Zcaron", "zcaron", "Ccaron", "ccaron"}
LOW, UP = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LETTERS, DIGITS = LOW + UP, "0123456789"


def windows(number: int) -> str | None:
    """Return the character of a number as HTML and Windows mean it."""
    if number in (9, 10, 13) or 0x20 <= number <= 0x7E:
        return chr(number)
    if 0x80 <= number <= 0x9F:
        return bytes([number]).decode("cp1252", "ignore") or None
    return chr(number) if 0xA0 <= number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else None


def is_word(char: str) -> bool:
    """Return whether the bytes of a character count as a word's."""
    return bool(char) and (char in LETTERS + DIGITS or ord(char) > 127)


def unescape(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without escapes, and the bounds in ``text`` of each of its characters."""
    out: list[str] = []
    bounds: list[tuple[int, int]] = []
    layout = edits_apart(text) | edits_broken(text)
    at = 0
    while at < len(text):
        char, end = escape(text, at) or layout.get(at) or (text[at], at + 1)
        if char:
            out.append(char)
            bounds.append((at, end))
        at = end
    return "".join(out), bounds


def edits_apart(text: str) -> dict[int, tuple[str, int]]:
    """Return, by start, what stands for each gap of letters apart: nothing within a word, one space between two."""
    edits: dict[int, tuple[str, int]] = {}
    free = 0
    for at, char in enumerate(text):
        if at < free or not char.isupper() or (at and is_word(text[at - 1])):
            continue
        words: list[tuple[int, list[int], str]] = []
        place = at
        while place < len(text) and text[place].isupper():
            found = word_apart(text, place)
            if not found or (words and words[-1][2] != found[1]):
                break
            words.append((place, *found))
            place = found[0][-1] + 1
            wide = re.compile(" {1,9}").match(text, place)
            if not wide or not len(found[1]) < len(wide[0]) <= 8:
                break
            place = wide.end()
        if max((len(letters) for _, letters, _ in words), default=0) < 4:
            continue
        for number, (start, letters, gap) in enumerate(words):
            edits |= {letter + 1: ("", letter + 1 + len(gap)) for letter in letters[:-1]}
            if number:
                end = words[number - 1][1][-1] + 1
                edits[end] = (" ", start)
        free = words[-1][1][-1] + 1
    return edits


def word_apart(text: str, start: int) -> tuple[list[int], str] | None:
    """Return the places of letters with one gap between each and the next, one case behind the first; and the gap."""
    wide = re.compile(" {1,2}(?! )").match(text, start + 1)
    if not wide:
        return None
    gap, best = wide[0], [start]
    for fits in (str.isupper, str.islower):
        letters = [start]
        while text.startswith(gap, letters[-1] + 1):
            place = letters[-1] + 1 + len(gap)
            if not (place < len(text) and fits(text[place])) or is_word(text[place + 1 : place + 2]):
                break
            letters.append(place)
        best = max(best, letters, key=len)
    return (best, gap) if len(best) >= 2 else None


def edits_broken(text: str) -> dict[int, tuple[str, int]]:
    """Return, by start, what stands for each end of a line within a number: nothing behind its sign, else a space."""
    longest = max(len(line.removesuffix("\r").encode()) for line in text.split("\n"))
    edits: dict[int, tuple[str, int]] = {}
    for found in re.finditer(r"(?<=[0-9])([-/]?)(\r?\n {0,8})(?=[0-9])", text):
        start = found.start(2)
        if not found[1]:
            line = text[text.rfind("\n", 0, start) + 1 : start]
            word = re.split(r"[ \t\n\r\f]", text[found.end() :])[0]
            if not 60 <= longest <= 160 or len(line.encode()) + 1 + len(word.encode()) <= longest:
                continue
        edits[start] = (" " if not found[1] else "", found.end())
    return edits


def escape(text: str, at: int) -> Read:
    """Return what the escape that begins here stands for ("" for nothing), and where it ends."""
    match text[at]:
        case "&":
            return entity(text, at)
        case "<":
            return tags(text, at)
        case "=":
            return soft_break(text, at) or pairs(text, at)
        case "%":
            return pairs(text, at)
        case "\\":
            return hl7(text, at) or backslash(text, at)
        case char if "Â" <= char <= "é":
            return garbled(text, at)
    return None


def tags(text: str, at: int) -> Read:
    found = re.compile(r"(?:<!--(?:(?!-->).)*-->|<wbr[ /]*>)+", re.IGNORECASE | re.DOTALL).match(text, at)
    within = found and text[at - 1 : at].isalpha() and text[found.end() : found.end() + 1].isalpha()
    return ("", found.end()) if found and within else None


def hl7(text: str, at: int) -> Read:
    if found := re.compile(r"\\\.(?:br|sp)\\", re.IGNORECASE).match(text, at):
        return "\n", found.end()
    found = re.compile(r"\\X((?:[0-9A-Fa-f]{2}){1,4})\\").match(text, at)
    if not found:
        return None
    data = bytes.fromhex(found[1])
    if data in (b"\r", b"\n", b"\r\n"):
        return "\n", found.end()
    if len(data) == 1:
        char = windows(data[0]) if data[0] >= 0x80 else None
    else:
        char = data.decode("utf-8", "ignore")
        char = char if len(char) == 1 and char.encode() == data else None
    return (char, found.end()) if char else None


#: Signs that stand right behind a word.
BEHIND = "«»’‘“”„‚…–—•›‹™®°²³¹ºª\xa0\xad´·"


def byte_of(char: str) -> int | None:
    if 0x80 <= ord(char) <= 0xFF:
        return ord(char)
    try:
        return char.encode("cp1252")[0] if ord(char) > 0xFF else None
    except UnicodeEncodeError:
        return None


def garbled(text: str, at: int) -> Read:
    once = garbled_once(text, at)
    if once and (again := garbled_once(text, once[1])):
        two = [byte_of(once[0]), byte_of(again[0])]
        if None not in two and two[0] >= 0xC2:
            try:
                char = bytes(two).decode()
            except UnicodeDecodeError:
                char = ""
            if len(char) == 1:
                return char, again[1]
    return once if once and once[0] >= "\xa0" else None


def garbled_once(text: str, at: int) -> Read:
    lead = byte_of(text[at]) if at < len(text) else None
    if lead is None:
        return None
    two = 0xC2 <= lead <= 0xC5 or 0xCE <= lead <= 0xD1 or lead in (0xD8, 0xD9)
    width = 2 if two else 3 if 0xE1 <= lead <= 0xE9 else 0
    rest = text[at + 1 : at + width]
    read = [lead, *map(byte_of, rest)]
    if not width or len(read) < width or None in read:
        return None
    try:
        char = bytes(read).decode()
    except UnicodeDecodeError:
        return None
    after = text[at + width : at + width + 1]
    within = (two and text[at - 1 : at].islower()) if at else False
    within = within or (rest[-1] != "\xa0" and is_small(after))
    within = within or (at >= 2 and is_pair(text[at - 2 : at])) or is_pair(text[at + width : at + width + 2])
    return (char, at + width) if within or any(sign not in BEHIND for sign in rest) else None


def is_pair(two: str) -> bool:
    lead, second = (byte_of(char) or 0 for char in two) if len(two) == 2 else (0, 0)
    return (0xC2 <= lead <= 0xC5 or 0xCE <= lead <= 0xD1 or lead in (0xD8, 0xD9)) and 0x80 <= second <= 0xBF


def is_small(char: str) -> bool:
    return char.islower()


def entity(text: str, at: int) -> Read:
    found = re.compile(r"&((?:amp;)*)(#[0-9]+|#[xX][0-9a-fA-F]+|[A-Za-z0-9]+);").match(text, at)
    if not found or len(found[2].encode()) > 9:
        return None
    body = found[2]
    if body.startswith("#"):
        hexadecimal = body[1] in "xX"
        number = int(body[2:], 16) if hexadecimal else int(body[1:])
        char = windows(number)
    else:
        char = NAMES.get(body) if body in KNOWN else None
    if char is None:
        # "&amp;" before what is no entity stands for itself.
        return ("&", at + 5) if found[1] else None
    return char, found.end()


def soft_break(text: str, at: int) -> Read:
    found = re.compile(r"=\r?\n").match(text, at)
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return ("", found.end()) if found and 60 <= len(line.encode()) <= 80 else None


def over_break(text: str, at: int) -> int:
    """Return where the text goes on behind a soft break that is here."""
    found = soft_break(text, at)
    return found[1] if found else at


def pairs(text: str, at: int) -> Read:
    sign = text[at]
    digits = "0-9A-F" if sign == "=" else "0-9A-Fa-f"
    one = re.compile(rf"{sign}([{digits}]{{2}})")
    found = one.match(text, at)
    if not found:
        return None
    first = int(found[1], 16)
    width = 2 if 0xC2 <= first <= 0xDF else 3 if 0xE0 <= first <= 0xEF else 4 if 0xF0 <= first <= 0xF4 else 1
    several, end = found[1], at + 3
    while len(several) < 2 * width and (more := one.match(text, over_break(text, end))):
        several, end = several + more[1], more.end()
    if width > 1 and len(several) == 2 * width:
        try:
            return bytes.fromhex(several).decode(), end
        except UnicodeDecodeError:
            pass
    broken = re.search(r"=\r?\n\Z", text[:at])
    start = broken.start() if broken and soft_break(text, broken.start()) else at
    goes_on = over_break(text, at + 3)
    before, after = text[start - 1 : start] or " ", text[goes_on : goes_on + 1] or " "
    word = before in LETTERS or (start >= 3 and one.match(text, start - 3) is not None)
    if first >= 0xC0:
        reads = word and (after in LOW or (before in LOW and after not in LETTERS + DIGITS))
    else:
        token = re.split(r"[ \t\n\r\f]", text[:at])[-1]
        address = "://" in token or token[:4].lower() == "www."
        reads = sign == "%" and 0x20 <= first < 0x7F and word and after in LETTERS + DIGITS + "%" and not address
    char = windows(first) if reads else None
    return (char, at + 3) if char else None


def backslash(text: str, at: int) -> Read:
    if found := re.compile(r"\\'([0-9a-fA-F]{2})").match(text, at):
        char = windows(int(found[1], 16)) if int(found[1], 16) >= 0x80 else None
        return (char, found.end()) if char else None
    if text.startswith(r"\\u", at):  # JSON within JSON
        return backslash(text, at + 1)
    if found := re.compile(r"\\u([1-9][0-9]{1,4})(?:\?|\\'[0-9a-fA-F]{2})").match(text, at):
        char = windows(int(found[1]))
        return (char, found.end()) if char and char >= "\xa0" else None
    if found := re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE).match(text, at):
        return chr(0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00), found.end()
    if found := re.compile(r"\\u([0-9a-fA-F]{4})").match(text, at):
        number = int(found[1], 16)
        shown = 0x20 <= number < 0x7F or number >= 0xA0
        return (chr(number), found.end()) if shown and not 0xD800 <= number <= 0xDFFF else None
    return None
