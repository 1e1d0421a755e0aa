"""The text of a file or an attachment, by its kind: plain, HTML, RTF, DOCX, ODT, PDF with a text layer, mail.

Nothing is fetched and nothing is run: no address, no external entity, no macro. What grows beyond `MAX_BYTES` when it
is unpacked is refused. HTML is read by the Rust core, XML by lxml, RTF by striprtf, PDF by PDFium, mail by the standard
library.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import ctypes
import email
import email.policy
import importlib
import io
import logging
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from email.headerregistry import HeaderRegistry, UnstructuredHeader
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import lxml.etree

from reticent import _rust
from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from email.message import EmailMessage

T = TypeVar("T")

#: Bytes of a file, of an attachment, and of a part of an archive once it is unpacked.
MAX_BYTES: Final = 256 << 20
#: Characters of a head of mail: the library takes memory by their square.
MAX_HEAD: Final = 64 << 10
#: Fonts of RTF, for the same reason.
MAX_FONTS: Final = 2000
#: Marks of elements and attributes of XML: the tree of so many takes a gibibyte.
MAX_MARKS: Final = 8_000_000


class UnreadableError(Exception):
    """The reason why a content is not read: a few words that quote nothing of it."""


class PartlyRead(str):
    """A text that is not the whole of its content, with the reason of each part that was not read."""

    reasons: tuple[str, ...] = ()


def base64_bytes(data: str) -> bytes:
    """Return the bytes that base64 text encodes; white space in it is ignored. Raise `UnreadableError` if it is not
    base64.
    """
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except ValueError:
        raise UnreadableError("its data are not base64") from None


def text_of(data: bytes, kind: str, charset: str | None = None) -> str:
    """Return the text of bytes in the format ``kind`` ("html", "pdf" …, a key of `KINDS`); raise `UnreadableError` if
    there is none. ``charset`` is the encoding that its source names.

    Parameters
    ----------
    charset : the encoding that something beside the content names

    Raises
    ------
    UnreadableError
        It is not of this kind, has no text, or is too large.
    """
    (text,) = texts_of([(data, kind)], charset)
    if isinstance(text, UnreadableError):
        raise text
    if isinstance(text, PartlyRead):
        raise UnreadableError(f"a part of it: {text.reasons[0]}")
    return text


def texts_of(contents: Sequence[tuple[bytes, str]], charset: str | None = None) -> list[str | UnreadableError]:
    """Return for each (bytes, kind) its text (a `PartlyRead` where a part of it is not read), or the `UnreadableError`
    with the reason it cannot be read; kinds are the keys of `KINDS`.

    Pages of HTML are read all at once, without the interpreter's lock: so other threads go on meanwhile.
    """
    found = [_try_call(_decode_content, data, kind, charset) for data, kind in contents]
    pages = [page for page in found if isinstance(page, bytes)]
    texts = iter(_html_texts(pages) if pages else ())  # the core lets go of the interpreter's lock, and may wait for it
    read = (next(texts) if isinstance(each, bytes) else each for each in found)
    return [_try_call(_require_text, text) if isinstance(text, str) else text for text in read]


def _try_call(function: Callable[..., T], *arguments: Any) -> T | UnreadableError:
    """Return the result of calling a function, or the `UnreadableError` that it raises."""
    try:
        return function(*arguments)
    except UnreadableError as error:
        return error


def _decode_content(data: bytes, kind: str, charset: str | None) -> str | bytes:
    """Return the text of bytes in a format ("pdf", "plain" …); for "html" the page with its tags, in UTF-8. Raise
    `UnreadableError` if damaged or too large."""
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return KINDS[kind](data, charset)
    except (UnreadableError, PolicyError):
        raise
    except Exception:  # the libraries raise anything at a content that is damaged
        raise UnreadableError("damaged, or of another kind than it says") from None


def _require_text(text: str) -> str:
    """Return the text unchanged; raise `UnreadableError` if it is blank or not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnreadableError("half of a surrogate pair in its text") from None
    if not text.strip():
        raise UnreadableError("no text in it")
    return text


# ------------------------------------------------------------------------------------------------------ plain and HTML


#: Byte-order mark -> encoding.
_MARKS: Final = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def _plain(data: bytes, charset: str | None) -> str:
    """Decode plain text: by its byte-order mark, else ``charset``, else UTF-8 or Windows-1252."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            charset = name
    try:
        if charset is not None and codecs.lookup(charset).name == "iso8859-1":
            with suppress(UnicodeDecodeError):
                return data.decode("cp1252")  # which programs for mail and pages mean by this name
        return data.decode(charset or "utf-8")
    except LookupError:
        raise UnreadableError("its encoding is unknown") from None
    except UnicodeDecodeError:
        if charset is not None:
            raise UnreadableError("it is not in the encoding that is named") from None
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        raise UnreadableError("in no encoding that can be told") from None


#: Signs that end a line and a cell until white space is folded; of a range that no standard gives a meaning.
LINE: Final = "\uf8f0"
CELL: Final = "\uf8f1"
_DECLARED: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([\w.:-]+)")


def html_text(page: str) -> str:
    """Return the text of an HTML page without scripts and styles. Paragraphs, rows and breaks end a line; a tab follows
    each cell.
    """
    (text,) = _html_texts([page.encode(errors="replace")])
    if isinstance(text, UnreadableError):
        raise text
    return text


def _html_texts(pages: Sequence[bytes]) -> list[str | UnreadableError]:
    """Return for each HTML page in UTF-8 its text, or an `UnreadableError` if its elements are nested too deep; see
    `html_text`."""
    texts = _rust.html_texts([page.replace(b"\0", b"\xef\xbf\xbd") for page in pages])  # U+FFFD, as the standard says
    return [UnreadableError("nested too deep") if text is None else text.strip() for text in texts]


def fold_white_space(text: str) -> str:
    """Return a text with each run of white space as one space; then `LINE` becomes a line break and `CELL` a tab. Blank
    lines are left out."""
    for sign in "\t\n\r\f":  # a pass of memory each, where an expression stops at every space
        text = text.replace(sign, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    lines = (line.strip(" \t") for line in text.replace(CELL, "\t").split(LINE))
    return "\n".join(filter(None, lines)).strip()


def _html_page(data: bytes, charset: str | None) -> bytes:
    """Return an HTML page, tags included, in UTF-8; it is decoded by ``charset`` or else by the encoding that the page
    declares."""
    declared = _DECLARED.search(data[:16384])
    named = charset or (next(filter(None, declared.groups())).decode() if declared else None)
    if charset is None and named is not None and named.lower().startswith(("utf-16", "utf-32", "unicode")):
        named = None  # the name could not be read if it were true
    if (named or "utf-8").lower() == "utf-8" and not data.startswith(tuple(_MARKS)) and _rust.is_utf8(data):
        return data
    return _plain(data, named).encode(errors="replace")


# --------------------------------------------------------------------------------------------------------- RTF and PDF


#: The begin of a picture, of bytes that are no text, an escaped sign, a brace.
_OF_PICTURES: Final = re.compile(r"\\(pict|bin)(?![A-Za-z])(-?\d*) ?|\\[^A-Za-z]|[{}]")


def _without_pictures(text: str) -> str:
    """Return RTF up to the end of its document, without what stands behind ``\\pict`` in a group and the bytes of
    ``\\binN``: striprtf would lose the text after them. Raise `UnreadableError` where their end cannot be told."""
    if "\\pict" not in text and "\\bin" not in text:
        return text
    error = UnreadableError("a picture in it whose end cannot be told")
    kept, start, at, depth, picture = list[str](), 0, 0, 0, 0
    while found := _OF_PICTURES.search(text, at):
        at, sign = found.end(), found[1] or found[0]
        depth += (sign == "{") - (sign == "}")
        if sign == "bin":
            num_bytes = int(found[2] or 0)
            if not 0 <= num_bytes <= len(text) - at:
                raise error
            if not picture:
                kept += text[start : found.start()], "{}"  # which ends the word before it
            start = at = at + num_bytes
        elif sign == "pict" and not picture:
            if depth < 2:
                raise error
            kept.append(text[start : found.start()])
            picture = depth
        elif sign == "}" and depth < picture:
            start, picture = found.start(), 0
        elif sign == "\\\\" and not picture:  # of a path, say, whose next letters striprtf takes for those words
            kept += text[start:at], "{}"
            start = at
        if sign == "}" and depth < 1:
            text = text[:at]
    kept.append(text[start:])
    result = "".join(kept)
    if picture or ("\\pict" in result and "\\bin" in result):
        raise error
    return result


#: Groups of RTF whose text striprtf would leave out (boxes, and what objects show), signs of escapes, and braces.
_OF_BOXES: Final = re.compile(
    r"\{\s*(?:\\\*\s*)?\\(?:(shptxt|dptxbxtext|result)|shp|shpgrp|shpinst|do|object)(?![A-Za-z])|\\[^A-Za-z]|[{}]"
)


def _with_boxes(text: str) -> str:
    """Return RTF in which text boxes and the results of objects are text on lines of their own, for striprtf."""
    if not re.search(r"\\(?:shptxt|dptxbxtext|result)(?![A-Za-z])", text):
        return text
    is_box: list[bool] = []

    def rewritten(found: re.Match[str]) -> str:
        """Return what stands for the beginning or the end of a group."""
        if found[0].startswith("{"):
            is_box.append(found[1] is not None)
            return "{\\par" if found[1] else "{\\none" if len(found[0]) > 1 else "{"
        return "\\par}" if found[0] == "}" and is_box and is_box.pop() else found[0]

    return _OF_BOXES.sub(rewritten, text)


#: A font of RTF and its set of characters.
_FONT: Final = re.compile(r"(?s)\\f(\d++)(?:(?!\\f\d).)*?\\fcharset(\d+)")


def _rtf(data: bytes, _: str | None) -> str:
    """Return the text of an RTF document; raise `UnreadableError` if it is not RTF."""
    striprtf = _library("striprtf.striprtf")
    if not data.lstrip().startswith(b"{\\rtf"):
        raise UnreadableError("not RTF")
    if data.count(b"\\fcharset") > MAX_FONTS:
        raise UnreadableError(f"more than {MAX_FONTS:,} fonts")
    # striprtf takes all between two links of a line for one, in quadratic time, where a brace stands behind the word.
    marked = re.sub(r"(?i)(\\fldinst)\{", r"\1 {", _with_boxes(_without_pictures(data.decode("latin-1"))))
    # It leaves out the rest of a group behind \* wherever that stands; it is a mark of the beginning alone.
    marked = re.sub(r"(\{\s*+\\\*|\\[\\{])|\\\*", r"\1", marked)
    marked = marked.replace("{\\pntext", "{\\listtext")  # the numbers of lists: of these two words it leaves out one
    tabbed = re.sub(
        r"(?<!\\)((?:\\\\)*)\\(?:nest)?cell(?![A-Za-z])", r"\1\\tab", marked
    )  # striprtf writes | for a cell
    # striprtf looks for fonts in the first table alone, in cubic time: before it goes one that it reads in linear time.
    charsets = {font: code for font, code in _FONT.findall(striprtf.font_table_group(tabbed)) if code != "1"}
    fonts = "".join(rf"{{\f{font}\fcharset{code} x;}}" for font, code in charsets.items())
    # Nor does it know the default font, in which a document begins and goes on behind \plain.
    found = re.search(r"\\deff(\d++)", tabbed)
    default = rf"\f{found[1]}" if found and charsets.get(found[1], "0") != "0" else r"\f"
    plain = re.sub(r"(?<!\\)((?:\\\\)*\\plain)(?![A-Za-z])", lambda begun: begun[0] + default, tabbed)
    headed = re.sub(r"\{\\rtf\w*(?:-\d+)? ?", lambda begun: rf"{begun[0]}{{\fonttbl{fonts}}}{default} ", plain, count=1)
    try:
        text: str = striprtf.rtf_to_text(headed, errors="strict")
    except UnicodeDecodeError:
        raise UnreadableError("letters in it that are not in the character set of their font") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16")  # it leaves a pair in halves


#: PDFium is for one thread at a time.
_PDFIUM: Final = Lock()


def _pdf(data: bytes, _: str | None) -> str:
    """Return the text of all pages of a PDF, filled fields included; raise `UnreadableError` for a scan or a locked
    file."""
    pdfium = _library("pypdfium2")
    with _PDFIUM:
        try:
            document = pdfium.PdfDocument(data)
        except pdfium.PdfiumError:
            raise UnreadableError("not PDF, or locked by a password") from None
        pages, size = [], 0
        try:
            if document.get_formtype() == pdfium.raw.FORMTYPE_XFA_FULL:  # its page says that it cannot be shown
                raise UnreadableError("a PDF form of the kind XFA")
            logging.getLogger("pypdfium2").setLevel(logging.ERROR)  # it warns of other forms that have XFA, too
            document.init_forms()
            for number in range(len(document)):
                page, combs = document[number], list[str]()
                # What is filled in or written onto a page becomes a part of it, and it is opened anew.
                if pdfium.raw.FPDFPage_GetAnnotCount(page):
                    combs = _comb_values(pdfium.raw, document, page) if document.formenv else []
                    if pdfium.raw.FPDFPage_Flatten(page, pdfium.raw.FLAT_NORMALDISPLAY) == pdfium.raw.FLATTEN_FAIL:
                        raise UnreadableError("a page of the PDF cannot be read")
                    page.close()
                    page = document[number]
                part = page.get_textpage()
                if (size := size + part.count_chars()) > MAX_BYTES:
                    raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
                pages.append(_joined(part.get_text_range().replace("\r\n", "\n").replace("\ufffe", "-"), combs))
                part.close()
                page.close()
        except pdfium.PdfiumError:
            raise UnreadableError("a page of the PDF cannot be read") from None
        finally:
            document.close()
    text = "\n".join(pages)
    if not text.strip():
        raise UnreadableError("a PDF without a layer of text (a scan)")
    return text


#: The flag of a field of a PDF form that has a cell for each letter.
_COMB: Final = 1 << 24


def _comb_values(raw: Any, document: Any, page: Any) -> list[str]:
    """Return what is filled into the fields of a page that have a cell for each letter; ``raw`` is PDFium itself."""
    values = []
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        field = raw.FPDFPage_GetAnnot(page, number)
        if raw.FPDFAnnot_GetFormFieldFlags(document.formenv, field) & _COMB:
            value = (ctypes.c_ushort * (raw.FPDFAnnot_GetFormFieldValue(document.formenv, field, None, 0) // 2))()
            raw.FPDFAnnot_GetFormFieldValue(document.formenv, field, value, ctypes.sizeof(value))
            values.append(bytes(value).decode("utf-16-le", errors="replace").rstrip("\0"))
        raw.FPDFPage_CloseAnnot(field)
    return values


def _joined(text: str, values: Sequence[str]) -> str:
    """Return a text in which values that stand there letter by letter are written whole, each once."""
    for value in values:
        if len(letters := "".join(value.split())) > 1:
            whole, apart = re.escape(letters), r"\s*".join(map(re.escape, letters))
            text = re.sub(rf"(?<!\w)(?!{whole}){apart}(?!\w)", value.replace("\\", r"\\"), text, count=1)
    return text


def _library(name: str) -> Any:
    """Import a library of the extra ``exports``; raise `PolicyError` if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise PolicyError(f"{name.partition('.')[0]} is not installed; pip install 'reticent[exports]'") from None


# ------------------------------------------------------------------------------------------------------- DOCX and ODT


def _zip_files(data: bytes, accepts: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file in a ZIP archive whose name ``accepts`` returns True for, sorted by name."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [each for each in archive.infolist() if accepts(each.filename)]
            if sum(each.file_size for each in entries) > MAX_BYTES:
                raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
            for entry in sorted(entries, key=lambda each: each.filename):
                with archive.open(entry) as opened:
                    part = opened.read(MAX_BYTES + 1)  # what the archive says of its sizes may be wrong
                if len(part) > MAX_BYTES:
                    raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
                yield entry.filename, part
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError):
        raise UnreadableError("a damaged or locked archive") from None


def _require_few(data: bytes) -> None:
    """Raise `UnreadableError` if XML has too many elements and attributes, which take far more memory than bytes."""
    if data.count(b"<") + data.count(b"=") > MAX_MARKS:
        raise UnreadableError(f"more than {MAX_MARKS:,} elements and attributes")


def _require_no_doctype(root: Any) -> None:
    """Raise `UnreadableError` if the document of this root element has a document type."""
    if root.getroottree().docinfo.doctype:
        raise UnreadableError("a document type (DOCTYPE) is not read")


def elements(data: bytes, skipped: frozenset[str]) -> Iterator[tuple[str, str, Any]]:
    """Parse XML without entities; yield ("start", local name, element), ("text", text, element) and ("end", local name,
    element). The elements ``skipped`` are left out.
    """
    _require_few(data)
    options: dict[str, Any] = {
        "resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": True, "remove_comments": True,
        "remove_pis": True,
    }  # fmt: skip
    try:
        if b"DOCTYPE" in data.replace(b"\0", b""):  # before the tree is made: each entity in it takes memory
            _require_no_doctype(next(lxml.etree.iterparse(io.BytesIO(data), ("start",), **options))[1])
        root = lxml.etree.fromstring(data, lxml.etree.XMLParser(**options))
    except lxml.etree.LxmlError:
        raise UnreadableError("its XML is damaged") from None
    _require_no_doctype(root)
    hidden = 0
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        name = element.tag.rpartition("}")[2]
        if event == "start":
            hidden += name in skipped
            if not hidden:
                yield "start", name, element
                if element.text:
                    yield "text", element.text, element
        else:
            if not hidden:
                yield "end", name, element
            hidden -= name in skipped
            if not hidden and element.tail:
                yield "text", element.tail, element.getparent()


_OF_WORD: Final = re.compile(
    r"word/(?:header\d*|document\d*|diagrams/data\d*|charts/chart\d*|footnotes|endnotes|footer\d*)\.xml"
)
_HIDDEN_OF_WORD: Final = frozenset({"Fallback", "instrText", "delText", "moveFrom"})
_SIGNS_OF_WORD: Final = {
    "tab": "\t",
    "br": "\n",
    "cr": "\n",
    "ptab": "\t",
    "noBreakHyphen": "-",
    "softHyphen": "\u00ad",
}


def _docx(data: bytes, _: str | None) -> str:
    """Return the text of a Word document with its headers, drawings, charts, footnotes, endnotes and footers."""
    order = ("header", "document", "diagrams", "charts", "footnotes", "endnotes", "footer")
    parts = dict(_zip_files(data, lambda name: _OF_WORD.fullmatch(name) is not None))
    if not any("document" in name for name in parts):
        raise UnreadableError("not DOCX")
    lines: list[str] = []
    for kind in order:
        for name in (name for name in parts if name.removeprefix("word/").startswith(kind)):
            inside: list[str] = []
            for event, value, element in elements(parts[name], _HIDDEN_OF_WORD):
                if value == "altChunk" and event == "start":
                    raise UnreadableError("a part of it is of another format (altChunk)")
                if event == "text" and element.tag.endswith("}t"):
                    inside.append(value)
                elif event == "start" and value in _SIGNS_OF_WORD and element.getparent().tag.endswith("}r"):
                    inside.append(_SIGNS_OF_WORD[value])
                elif value == "p" and (event == "end" or (inside and inside[-1] != "\n")):  # a box within a line
                    inside.append("\n")
            lines.append("".join(inside))
    return "".join(lines).strip("\n")


_HIDDEN_OF_ODT: Final = frozenset({"tracked-changes", "annotation", "binary-data"})


def _odt(data: bytes, _: str | None) -> str:
    """Return the text of an OpenDocument file with its headers and footers."""
    parts = dict(_zip_files(data, lambda name: name in ("content.xml", "styles.xml", "META-INF/manifest.xml")))
    if b"encryption-data" in parts.pop("META-INF/manifest.xml", b""):
        raise UnreadableError("a damaged or locked archive")
    if "content.xml" not in parts:
        raise UnreadableError("not ODT")
    pages: list[str] = []
    size = sum(map(len, parts.values()))  # with the spaces that a number stands for
    for name in ("styles.xml", "content.xml"):  # heads and feet of pages stand in the styles
        depth, inside = 0, list[str]()
        for event, value, element in elements(parts.get(name, b"<none/>"), _HIDDEN_OF_ODT):
            if event == "text" and depth:
                inside.append(value)
            elif event == "start" and value in ("p", "h"):
                if depth:  # a note or a box within a line
                    inside.append("\n")
                depth += 1
            elif event == "start" and depth and value in ("s", "tab", "line-break"):
                count = next((number for key, number in element.items() if key.endswith("}c")), "1")
                spaces = " " * (int(count) if count.isdecimal() and len(count) < 5 else 1)
                if (size := size + len(spaces)) > MAX_BYTES:
                    raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
                inside.append({"s": spaces, "tab": "\t", "line-break": "\n"}[value])
            elif event == "end" and value in ("p", "h"):
                depth -= 1
                inside.append("\n")
        pages.append("".join(inside))
    return "".join(pages).strip("\n")


# ---------------------------------------------------------------------------------------------------------------- mail


_PLAIN_OF_MAIL: Final = ("7bit", "8bit", "binary", "7-bit", "8-bit")
_ENCODINGS_OF_MAIL: Final = (
    *_PLAIN_OF_MAIL, "quoted-printable", "base64", "x-uuencode", "uuencode", "x-uue", "uue",
)  # fmt: skip
#: Main types of parts that hold no text.
_WITHOUT_TEXT: Final = ("image", "audio", "video")
#: The lines before and behind uuencoded data.
_BEGIN_OF_UU: Final = re.compile(r"(?m)^begin [0-7]{3,4} .*\n")
_END_OF_UU: Final = re.compile(r"(?m)^end[ \t\r]*$")
#: Base64, and behind it a line of words, or one that sets them off.
_BASE64_AND_FOOTER: Final = re.compile(r"(?s)\s*+((?:[A-Za-z0-9+/]++={0,2}[ \t]*+\r?\n)++)(\s*(?:[-_=*#~]{2}|\S+ ).*)")
#: A line of base64, where there should be none.
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/]{60}")
#: A boundary without quotes, which the library cuts at the first sign that needs them.
_BARE_BOUNDARY: Final = re.compile(rb"(?i)(\bboundary=)([^\s;\"]+)")
#: The main heads of a mail, as texts: as addresses or a date the library leaves out what it does not understand.
_MAIN_HEADS: Final = ("From", "To", "Cc", "Date", "Subject")
_HEADS_AS_TEXT: Final = HeaderRegistry()
for _name in _MAIN_HEADS:
    _HEADS_AS_TEXT.map_to_type(_name, UnstructuredHeader)  # type: ignore[arg-type]
#: A line may end with a carriage return alone, as for the library. (To look back from behind the word is faster.)
_HEADS_OF_PARTS: Final = re.compile(rb"(?i)content-(?<![^\r\n].{8})[\w-]+:[^\r\n]*(?:(?:\r\n?|\n)[ \t][^\r\n]*)*")


def _mail(data: bytes, _: str | None) -> str:
    """Return the main header fields of a mail message and the text of its parts; a `PartlyRead` if one is not read."""
    if any(len(found[0]) > MAX_HEAD for found in _HEADS_OF_PARTS.finditer(data)):
        raise UnreadableError(f"a head of mail larger than {MAX_HEAD >> 10} KiB")
    data = _HEADS_OF_PARTS.sub(lambda found: _BARE_BOUNDARY.sub(rb'\1"\2"', found[0]), data)
    policy = email.policy.default.clone(header_factory=_HEADS_AS_TEXT)
    message: EmailMessage = email.message_from_bytes(data, policy=policy)  # type: ignore[assignment]
    if not message.keys():
        raise UnreadableError("not a message of mail")
    unread: list[str] = []
    result = PartlyRead("\n".join(text for text, _ in _message_texts(message, unread)).replace("\r\n", "\n"))
    result.reasons = tuple(unread)
    return result if unread else str(result)


def _message_texts(message: EmailMessage, unread: list[str]) -> list[tuple[str, bool]]:
    """Return the main header fields of a mail message (From, To, Cc, Date, Subject) as lines, a blank line, and the
    texts of its parts, each with whether it is of a file. Reasons of parts that are not read go into ``unread``."""
    texts = _part_texts(message, unread)
    heads = [f"{name}: {value}" for name in _MAIN_HEADS for value in message.get_all(name, []) if value]
    return [*((line, False) for line in [*heads, ""]), *texts]


def _part_texts(part: Any, unread: list[str]) -> list[tuple[str, bool]]:
    """Return the texts of a part of a mail message, and of the parts inside it, each with whether it is of a file that
    is attached. Of alternative forms one is taken, plain text preferred. Reasons of parts that are not read are added
    to ``unread``; the part is an error if nothing in it is read."""
    if any(len(value) > MAX_HEAD for _, value in part.raw_items()):
        raise UnreadableError(f"a head of mail larger than {MAX_HEAD >> 10} KiB")
    kind = kind_of_type(part.get_content_type())
    if part.get_content_type() == "application/octet-stream":  # its name says more
        kind = SUFFIXES.get(f".{(part.get_filename() or '').lower().rpartition('.')[2]}")
    # What is damaged, in an encoding that it does not know, or has a comment there, the library gives back encoded.
    head = part["content-transfer-encoding"]
    encoding = head.cte if head else "7bit"
    if kind is not None and encoding not in (_PLAIN_OF_MAIL if part.is_multipart() else _ENCODINGS_OF_MAIL):
        raise UnreadableError("in an encoding of mail that is not read")
    if head:
        part.replace_header("content-transfer-encoding", encoding)
    if part.is_multipart():
        inner = part.get_payload()
        if kind == "mail":
            found = _message_texts(inner[0], unread)
        elif part.get_content_type() == "multipart/alternative":
            forms = [
                (each.get_content_type(), texts)
                for each, texts in zip(inner, _texts_of_parts(inner, unread), strict=True)
                if texts
            ]
            types = [form for form, _ in forms]
            if forms:
                forms.insert(0, forms.pop(types.index("text/plain" if "text/plain" in types else types[-1])))
            # A file that is attached to another alternative is none of the text that is chosen.
            found = [text for number, (_, texts) in enumerate(forms) for text in texts if number == 0 or text[1]]
        else:
            found = [text for texts in _texts_of_parts(inner, unread) for text in texts]
    else:
        content = part.get_payload(decode=True)
        if not isinstance(content, bytes) or not content.strip():
            return []
        if kind is None:
            if part.get_content_maintype() not in _WITHOUT_TEXT and not part.get_content_type().endswith("-signature"):
                unread.append("a type of content that is not read")
            return []
        if encoding not in (*_PLAIN_OF_MAIL, "quoted-printable"):
            content, around = _decode_part(part.get_payload(), encoding)
        else:
            around = ""
        texts = [text_of(content, kind, part.get_content_charset()), around]
        found = [(text.strip("\r\n"), False) for text in texts if text.strip()]
    return [(text, True) for text, _ in found] if part.get_filename() else found


def _texts_of_parts(parts: Sequence[Any], unread: list[str]) -> list[list[tuple[str, bool]]]:
    """Return the texts of each of several parts of mail, none of one that is not read, whose reason is added to
    ``unread``; raise the last `UnreadableError` if no part has a text."""
    found, errors = list[list[tuple[str, bool]]](), list[UnreadableError]()
    for part in parts:
        texts = _try_call(_part_texts, part, unread)
        errors += [texts] if isinstance(texts, UnreadableError) else []
        found.append([] if isinstance(texts, UnreadableError) else texts)
    if errors and not any(found):
        raise errors[-1]
    unread += map(str, errors)
    return found


def _decode_part(data: str, encoding: str) -> tuple[bytes, str]:
    """Return the bytes that a part of mail has in base64 or uuencoded, and the text around them, which a program that
    sends mail on may have added, such as the footer of a mailing list."""
    if encoding != "base64":
        begin = _BEGIN_OF_UU.search(data)
        end = _END_OF_UU.search(data, begin.end()) if begin else None
        try:
            if begin and end:
                lines = data[begin.end() : end.start()].splitlines()
                return b"".join(map(binascii.a2b_uu, lines)), data[: begin.start()] + data[end.end() :]
        except ValueError:
            pass
        raise UnreadableError("its data are not uuencoded")
    footer = _BASE64_AND_FOOTER.fullmatch(data)
    body, around = footer.groups() if footer and not _ENCODED.search(footer[2]) else (data, "")
    joined = "".join(body.split())  # which may lack the signs that fill it up
    return base64_bytes(joined + "=" * (-len(joined) % 4)), around


#: Kind -> reader of its text; of a page of HTML, of the page in UTF-8.
KINDS: Final[Mapping[str, Callable[[bytes, str | None], str | bytes]]] = MappingProxyType(
    {"plain": _plain, "html": _html_page, "rtf": _rtf, "pdf": _pdf, "docx": _docx, "odt": _odt, "mail": _mail}
)
#: Suffix of a file -> kind.
SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".txt": "plain", ".html": "html", ".htm": "html", ".xhtml": "html", ".rtf": "rtf", ".pdf": "pdf",
        ".docx": "docx", ".odt": "odt", ".eml": "mail",
    }
)  # fmt: skip
_TYPES: Final = {
    "text/plain": "plain",
    "text/markdown": "plain",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/rtf": "rtf",
    "application/rtf": "rtf",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.oasis.opendocument.text": "odt",
    "message/rfc822": "mail",
}


def kind_of_type(content_type: str) -> str | None:
    """Return the kind of a MIME type, whatever its parameters; None for one that is not read.

    >>> kind_of_type("text/HTML; charset=utf-8"), kind_of_type("image/png")
    ('html', None)
    """
    return _TYPES.get(content_type.partition(";")[0].strip().lower())
