"""One name in a hundred spellings, and which of them counting protects whole where only one individual uses them.

A mark protects every spelling whole. Counting protects words: ``reason`` says why some characters of a spelling are in
no word of the individual's own, and is None where every character is. The lab fails where the list is not true.
"""

from __future__ import annotations

import base64
import codecs
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

__all__ = ["NAME", "SPELLINGS", "TOY_SPELLINGS", "Spelling"]

NAME = "Zorvaline Quibbeck"

SIGNS = "signs between words are no words"
SYMBOLS = "symbols that stay punctuation"
COMMON = "pieces that others use"
UNSPACED = "a script without spaces: each character is a word, and others use it"
UNSEEN = "what prints nothing and hangs on no word"
CONTROLS = "control characters are no words"


@dataclass(frozen=True, slots=True)
class Spelling:
    """A way to write an identifier; ``reason``: why counting does not protect it whole."""

    name: str
    text: str
    reason: str | None = None

    @property
    def counted_holds(self) -> bool:
        return self.reason is None


def _between(sign: str, text: str = NAME) -> str:
    """``sign`` between the letters of each word."""
    return " ".join(sign.join(word) for word in text.split())


def _after(sign: str) -> str:
    return "".join(c + sign if c != " " else c for c in NAME)


def _shift(upper: int, lower: int | None = None, text: str = NAME) -> str:
    """Letters moved to the blocks where A and a are."""
    lower = upper + 26 if lower is None else lower
    return "".join(
        chr(ord(c) - ord("A") + upper) if c.isupper() else chr(ord(c) - ord("a") + lower) if c.islower() else c
        for c in text
    )


def _map(froms: str, tos: str, text: str = NAME) -> str:
    return text.translate(str.maketrans(froms, tos))


def _of(*spellings: tuple[str, str] | tuple[str, str, str]) -> list[Spelling]:
    return [Spelling(*spelling) for spelling in spellings]


_LOWER = NAME.lower()
_UPPER = NAME.upper()
_SMALL = _map("abceiklnoqruvz", "ᴀʙᴄᴇɪᴋʟɴᴏǫʀᴜᴠᴢ", _LOWER)
_HIDDEN = "".join(chr(0xE0000 + ord(c)) for c in NAME)

LETTERS = _of(
    ("plain", NAME),
    ("upper case", _UPPER),
    ("lower case", _LOWER),
    ("camel case", NAME.replace(" ", "")),
    ("accents, composed", "Zörvålïné Qüîbbèçk"),
    ("accents, decomposed", unicodedata.normalize("NFD", "Zörvålïné Qüîbbèçk")),
    ("full width", _shift(0xFF21, 0xFF41)),
    ("mathematical bold", _shift(0x1D400)),
    ("mathematical script", _shift(0x1D4D0)),
    ("mathematical double-struck", "ℤ" + _shift(0x1D538, 0x1D552, NAME[1:]).replace("\U0001d548", "ℚ")),
    ("mathematical fraktur", _shift(0x1D56C)),
    ("mathematical monospace", _shift(0x1D670)),
    ("small capitals", _SMALL),
    ("superscript letters", _map("abceiklnorvz", "ᵃᵇᶜᵉⁱᵏˡⁿᵒʳᵛᶻ", "zorvaline beckon")),
    ("circled letters", _shift(0x24B6)),
    ("squared letters", _shift(0x1F130, text=_UPPER)),
    ("negative squared letters", _shift(0x1F170, text=_UPPER)),
    ("parenthesised letters", _shift(0x249C, 0x249C, _LOWER), SYMBOLS),
    ("regional-indicator letters", _shift(0x1F1E6, text=_UPPER)),
    ("leet digits", _map("aeio", "4310", NAME)),
    ("Cyrillic look-alikes", _map("aeocik", "аеосік", NAME)),
    ("Greek look-alikes", _map("aeovik", "αεονικ", NAME)),
    ("ligatures", "Zoﬁrvaﬂine Quiﬀeck"),
    ("dotless and dotted i", "Zorvalıne QUİBBECK"),
    ("sharp s", "Zorvaßline QUIẞECK"),
    ("title-case digraphs", "ǅorvaǈine ǋuibbeck"),
    ("Roman numeral characters", "ⅯⅩⅬⅤⅦ ⅿⅹⅼⅴ"),
    ("reversed", NAME[::-1]),
    ("ROT13", codecs.encode(NAME, "rot13")),
    ("base64", base64.b64encode(NAME.encode()).decode()),
    ("hexadecimal", NAME.encode().hex()),
)

SIGNED = _of(
    ("Braille", "".join(chr(0x2800 + 37 * ord(c) % 255 + 1) for c in _LOWER.replace(" ", ""))),
    ("Morse", "--.. --- .-. ...- / --.- ..- .. -...", SIGNS),
    ("hyphens between letters", _between("-"), SIGNS),
    ("full stops between letters", _between(".")),
    ("underscores between letters", _between("_")),
    ("middle dots between letters", _between("·")),
    ("apostrophes between letters", _between("'")),
    ("bullets between letters", _between("•"), SIGNS),
    ("slashes between letters", _between("/"), SIGNS),
    ("spaces between letters", " ".join(_LOWER), COMMON),
    ("no-break spaces between letters", _between("\u00a0"), COMMON),
    ("thin spaces between letters", _between("\u2009"), COMMON),
    ("a line for each letter", "\n".join("zorva"), COMMON),
    ("e-mail", "zorvaline.quibbeck@quib-mail.zor", SIGNS),
    ("URL", "https://quib.zor/~zorvaline?of=7302", SIGNS),
    ("address with commas", "73, Quibbeckallee, 7302 Zorvastadt", SIGNS),
    ("phone, joined", "079-730-2739"),
    ("phone, spaced", "+41 (0)79 730 27 39", SIGNS),
    ("quoted", "«Zorvaline» “Quibbeck”", SIGNS),
    ("in parentheses", "(Zorvaline) [Quibbeck]", SIGNS),
    ("HTML entities", "Zorv&auml;line &#81;uibbeck", SIGNS),
    ("percent encoding", quote("Zorvälïne Qüibbeck"), SIGNS),
    ("base64, padded", base64.b64encode(b"Zorvaline Quib").decode(), SIGNS),
    ("escapes of a program", NAME.encode("utf-16-be").hex("\\"), SIGNS),
    ("a face of signs", "(づ｡◕‿‿◕｡)づ", SIGNS),
    ("fractions", "½¾⅞⅓", COMMON),
    ("superscript digits", "⁷³⁰²", COMMON),
    ("circled digits", "⑦③⓪②", COMMON),
    ("keycaps", "7\ufe0f\u20e33\ufe0f\u20e30\ufe0f\u20e32\ufe0f\u20e3"),
    ("digits of Arabic", "٠٧٩-٧٣٠-٢٧٣٩"),
    ("digits of Devanagari", "०७९७३०२७३९"),
)

UNSEEN_CHARACTERS = _of(
    ("zero-width spaces", _between("\u200b")),
    ("zero-width joiners", _between("\u200d")),
    ("zero-width non-joiners", _between("\u200c")),
    ("word joiners", _between("\u2060")),
    ("soft hyphens", _between("\u00ad")),
    ("byte order marks inside", _between("\ufeff")),
    ("a byte order mark in front", "\ufeff" + NAME, UNSEEN),
    ("left-to-right marks", _between("\u200e")),
    ("right-to-left override", "\u202e" + NAME[::-1] + "\u202c", UNSEEN),
    ("isolates", "\u2068Zorvaline\u2069 \u2068Quibbeck\u2069", UNSEEN),
    ("variation selectors", _after("\ufe0e")),
    ("supplementary variation selectors", _after("\U000e0101")),
    ("unassigned ignorable characters", _between("\U000e0fff")),
    ("tag characters alone", _HIDDEN, UNSEEN),
    ("tag characters behind a word", "Zorva" + _HIDDEN),
    ("combining grapheme joiners", _between("\u034f")),
    ("Hangul fillers", _between("\u3164")),
    ("invisible times", _between("\u2062")),
    ("annotation anchors", _between("\ufff9")),
    ("marks upon marks", _after("\u0301\u0335\u0489")),
    ("enclosing keycaps", _after("\u20e3")),
    ("NUL inside", NAME.replace("v", "\0"), CONTROLS),
    ("control characters inside", NAME.replace("v", "\x07"), CONTROLS),
    ("control characters in front", "\x01\x02\x03" + NAME, CONTROLS),
    ("escape sequence", "\x1b[31m" + NAME, CONTROLS),
    ("line separator inside", NAME.replace("v", "\u2028v")),
    ("next line inside", NAME.replace("v", "\u0085v")),
    ("CRLF inside", NAME.replace(" ", "\r\n")),
    ("form feed inside", NAME.replace(" ", "\f")),
    ("replacement character", NAME.replace("v", "\ufffd"), SYMBOLS),
    ("object replacement", NAME.replace("v", "\ufffc"), SYMBOLS),
)

SYMBOLS_FOR_A_NAME = _of(
    ("emoji", "🦄🐙🪕"),
    ("one emoji", "🪕"),
    ("emoji ZWJ sequences", "👩\u200d🚀👨\u200d🌾"),
    ("flags", "🇨🇭🇱🇮"),
    ("skin tones", "👍🏽👋🏿"),
    ("subdivision flag", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f🏴\u200d☠\ufe0f"),
    ("zodiac signs", "♈♓"),
    ("emoji arrows", "↗\ufe0f➡\ufe0f", SYMBOLS),
    ("private use alone", "\ue123\ue124"),
    ("private use in a word", "Zor\ue123va"),
    ("private use between letters", "Z\ue123q", COMMON),
    ("private use of planes 15 and 16", "\U000f1234\U0010f123"),
    ("unassigned", "\u0378\u0379\U0001fffd"),
    ("noncharacters", "\ufdd0\uffff\U0010fffe"),
    ("letters of Unicode 18", "\U0003d001\U0003d002"),
    ("musical symbols", "𝄞𝄢𝅘𝅥𝅮", SYMBOLS),
    ("alchemical symbols", "🜁🜂🜃", SYMBOLS),
    ("domino tiles", "🁳🀙🂡", SYMBOLS),
    ("box drawing", "┌┤│└", SYMBOLS),
    ("geometric shapes", "◇◈◉", SYMBOLS),
    ("mathematical operators", "∑∫∇", SYMBOLS),
    ("currency", "₿₲₴", SYMBOLS),
    ("chess pieces", "♔♕♖", SYMBOLS),
    ("hexagrams", "䷀䷁䷂", SYMBOLS),
    ("sign writing", "𝠀𝠁𝠂", SYMBOLS),
)

SCRIPTS = _of(
    ("ideographic description", "⿰木林", UNSPACED),
    ("CJK compatibility ideographs", "豈更車", UNSPACED),
    ("CJK squares", "㍿㌔㍻", SYMBOLS),
    ("Han", "田中花子", UNSPACED),
    ("Han of plane 2", "𠮷野𡈽", UNSPACED),
    ("Hiragana", "ぞるばりん", UNSPACED),
    ("Katakana", "ゾルバリン"),
    ("half-width Katakana", "ｿﾞﾙﾊﾞﾘﾝ"),
    ("Hangul syllables", "조르발린 퀴벡"),
    ("Hangul conjoining jamo", unicodedata.normalize("NFD", "조르발린 퀴벡")),
    ("Hangul compatibility jamo", "ㅈㅗㄹㅡㅂㅏㄹ"),
    ("Thai", "โซวาลิน", UNSPACED),
    ("Lao", "ໂຊວາລິນ", UNSPACED),
    ("Khmer", "ហ្សរវ៉ាលីន", UNSPACED),
    ("Burmese", "ဇော်ဗာလင်း", UNSPACED),
    ("Tibetan", "ཟོར་བ་ལིན", SIGNS),
    ("Tangut", "𗀀𗀁𗀂", UNSPACED),
    ("Devanagari with virama", "ज़ोर्वलीन क्विब्बेक"),
    ("Tamil", "சோர்வலின்"),
    ("Arabic with tatweel", "زورڤـــالين"),
    ("Arabic with harakat", "زُورْڤَالِين"),
    ("Arabic presentation forms", "ﺯﻭﺭﻓﺎﻟﻴﻦ"),
    ("Hebrew with niqqud", "זוֹרְוָלִין"),
    ("Hebrew with gershayim", 'צה"ל'),
    ("Mongolian with FVS", "ᠵᠣᠷ᠋ᠸᠠ᠎ᠯᠢᠨ"),
    ("Ethiopic", "ዞርቫሊን"),
    ("Cherokee", "ᏃᎳᏍᎩ"),
    ("Yi", "ꀀꀁꀂ"),
    ("hieroglyphs", "𓀀𓂀𓃠"),
    ("Cyrillic", "Зорвалина Квибек"),
    ("Greek", "Ζορβαλίνη Κουίμπεκ"),
    ("Armenian", "Զորվալին"),
)

SPELLINGS: tuple[Spelling, ...] = (*LETTERS, *SIGNED, *UNSEEN_CHARACTERS, *SYMBOLS_FOR_A_NAME, *SCRIPTS)
_TOY = (
    "plain", "zero-width spaces", "e-mail", "spaces between letters", "emoji", "private use in a word",
    "musical symbols", "Han", "a byte order mark in front",
)  # fmt: skip
TOY_SPELLINGS: tuple[Spelling, ...] = tuple(spelling for spelling in SPELLINGS if spelling.name in _TOY)


def check_names(spellings: Iterable[Spelling] = SPELLINGS) -> None:
    """`AssertionError` where two spellings have one name or one text."""
    for column in ("name", "text"):
        values = [getattr(spelling, column) for spelling in spellings]
        assert len(set(values)) == len(values), f"two spellings have one {column}"
