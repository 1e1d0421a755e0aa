"""The text of a file or an attachment, by its kind: plain, HTML, RTF, DOCX, ODT, PDF with a text layer, mail.

Nothing is fetched and nothing is run: no address, no external entity, no macro. What grows beyond `MAX_BYTES` when it
is unpacked is refused. HTML and XML are read by lxml, RTF by striprtf, PDF by PDFium, mail by the standard library.
"""

from __future__ import annotations

import email
import email.policy
import importlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import lxml.etree
import lxml.html

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    from email.message import EmailMessage

__all__ = [
    "CELL",
    "KINDS",
    "LINE",
    "MAX_BYTES",
    "SUFFIXES",
    "UnreadableError",
    "elements",
    "folded",
    "html_text",
    "kind_of_type",
    "text_of",
]

#: Bytes of a file, of an attachment, and of a part of an archive once it is unpacked.
MAX_BYTES: Final = 256 << 20


class UnreadableError(Exception):
    """The reason why a content is not read: a few words that quote nothing of it."""


def text_of(data: bytes, kind: str, charset: str | None = None) -> str:
    """Return the text of a content of one of the `KINDS`.

    Parameters
    ----------
    charset : the encoding that something beside the content names

    Raises
    ------
    UnreadableError
        It is not of this kind, has no text, or is too large.
    """
    if len(data) > MAX_BYTES:
        raise UnreadableError(f"larger than {MAX_BYTES >> 20} MiB")
    text = KINDS[kind](data, charset)
    if not text.strip():
        raise UnreadableError("no text in it")
    return text


# ------------------------------------------------------------------------------------------------------ plain and HTML


def _plain(data: bytes, charset: str | None) -> str:
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            charset = name
    try:
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
#: Elements of HTML that stand on lines of their own.
_BLOCKS: Final = (
    "address|article|aside|blockquote|caption|dd|div|dl|dt|fieldset|figcaption|figure|footer|form|h1|h2|h3|h4|h5|h6|"
    "header|legend|li|main|nav|ol|option|p|pre|section|table|tbody|tfoot|thead|title|tr|ul"
)
_PAGE_TEXT: Final = f"""
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="text"/>
  <xsl:template match="script|style|template|comment()|processing-instruction()"/>
  <xsl:template match="br|hr">{LINE}</xsl:template>
  <xsl:template match="{_BLOCKS}">{LINE}<xsl:apply-templates/>{LINE}</xsl:template>
  <xsl:template match="td|th"><xsl:apply-templates/>{CELL}</xsl:template>
  <xsl:template match="pre//text()"><xsl:value-of select="translate(., '&#10;', '{LINE}')"/></xsl:template>
</xsl:stylesheet>
"""
_DECLARED: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml[^>]+encoding\s*=\s*[\"']([\w.:-]+)")


@cache
def _page_text() -> lxml.etree.XSLT:
    return lxml.etree.XSLT(lxml.etree.fromstring(_PAGE_TEXT))


def html_text(page: str) -> str:
    """Return the text of a page: a line for a paragraph, a row or a break, a tab behind a cell; no script, no style."""
    page = re.sub(r"^\s*<\?xml[^>]*\?>", "", page.replace("\0", "\ufffd").replace(LINE, " ").replace(CELL, " "))
    if not page.strip():
        return ""
    try:
        tree = lxml.html.document_fromstring(page, parser=lxml.html.HTMLParser(huge_tree=True))
        return folded(str(_page_text()(tree)))
    except (lxml.etree.LxmlError, ValueError, AssertionError):
        raise UnreadableError("not HTML, or nested too deep") from None


def folded(text: str) -> str:
    """Return a text in which white space is one space, `LINE` ends a line and `CELL` a cell; no line is blank."""
    text = re.sub(r"[ \t\n\r\f]+", " ", text).replace(CELL, "\t")
    return re.sub(rf"[ \t]*{LINE}[ \t{LINE}]*", "\n", text).strip()


def _html(data: bytes, charset: str | None) -> str:
    declared = _DECLARED.search(data[:4096])
    named = charset or (next(filter(None, declared.groups())).decode() if declared else None)
    return html_text(_plain(data, named))


# --------------------------------------------------------------------------------------------------------- RTF and PDF


def _rtf(data: bytes, _: str | None) -> str:
    striprtf = _library("striprtf.striprtf")
    if not data.lstrip().startswith(b"{\\rtf"):
        raise UnreadableError("not RTF")
    try:
        text: str = striprtf.rtf_to_text(data.decode("latin-1"), errors="strict")
        text = text.encode("utf-16", "surrogatepass").decode("utf-16")  # it leaves a pair in halves
    except (ValueError, LookupError, IndexError, KeyError):
        raise UnreadableError("not RTF that can be read") from None
    return text


def _pdf(data: bytes, _: str | None) -> str:
    pdfium = _library("pypdfium2")
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError:
        raise UnreadableError("not PDF, or locked by a password") from None
    pages = []
    try:
        for page in document:
            part = page.get_textpage()
            pages.append(part.get_text_range().replace("\r\n", "\n").replace("\ufffe", "-"))
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


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise PolicyError(f"{name.partition('.')[0]} is not installed; pip install 'reticent[exports]'") from None


# ------------------------------------------------------------------------------------------------------- DOCX and ODT


def _parts(data: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The parts of an archive whose names are wanted, in the order of their names."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [each for each in archive.infolist() if wanted(each.filename)]
            if sum(each.file_size for each in entries) > MAX_BYTES:
                raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
            for entry in sorted(entries, key=lambda each: each.filename):
                with archive.open(entry) as opened:
                    part = opened.read(MAX_BYTES + 1)  # what the archive says of its sizes may be wrong
                if len(part) > MAX_BYTES:
                    raise UnreadableError(f"unpacked it is larger than {MAX_BYTES >> 20} MiB")
                yield entry.filename, part
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError, NotImplementedError, RuntimeError):
        raise UnreadableError("a damaged or locked archive") from None


def elements(data: bytes, skipped: frozenset[str]) -> Iterator[tuple[str, str, Any]]:
    """("start" | "text" | "end", local name or text, element) of XML without entities, but for the skipped elements."""
    parser = lxml.etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True)
    try:
        root = lxml.etree.fromstring(data, parser)
    except lxml.etree.LxmlError:
        raise UnreadableError("its XML is damaged") from None
    if root.getroottree().docinfo.doctype:
        raise UnreadableError("a document type (DOCTYPE) is not read")
    hidden = 0
    for event, element in lxml.etree.iterwalk(root, events=("start", "end")):
        if not isinstance(element.tag, str):
            continue
        name = lxml.etree.QName(element).localname
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


_OF_WORD: Final = re.compile(r"word/(?:header\d*|document\d*|footnotes|endnotes|footer\d*)\.xml")
_SIGNS_OF_WORD: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": "\u00ad"}


def _docx(data: bytes, _: str | None) -> str:
    order = ("header", "document", "footnotes", "endnotes", "footer")
    parts = dict(_parts(data, lambda name: _OF_WORD.fullmatch(name) is not None))
    if not any("document" in name for name in parts):
        raise UnreadableError("not DOCX")
    lines: list[str] = []
    for kind in order:
        for name in (name for name in parts if name.removeprefix("word/").startswith(kind)):
            inside: list[str] = []
            for event, value, element in elements(parts[name], frozenset({"Fallback", "instrText", "delText"})):
                if event == "text" and element.tag.endswith("}t"):
                    inside.append(value)
                elif event == "start" and value in _SIGNS_OF_WORD and element.getparent().tag.endswith("}r"):
                    inside.append(_SIGNS_OF_WORD[value])
                elif event == "end" and value == "p":
                    inside.append("\n")
            lines.append("".join(inside))
    return "".join(lines).strip("\n")


def _odt(data: bytes, _: str | None) -> str:
    parts = dict(_parts(data, lambda name: name in ("content.xml", "styles.xml")))
    if "content.xml" not in parts:
        raise UnreadableError("not ODT")
    pages: list[str] = []
    for name in ("styles.xml", "content.xml"):  # heads and feet of pages stand in the styles
        depth, inside = 0, list[str]()
        for event, value, element in elements(parts.get(name, b"<none/>"), frozenset({"tracked-changes"})):
            if event == "text" and depth:
                inside.append(value)
            elif event == "start" and value in ("p", "h"):
                depth += 1
            elif event == "start" and depth and value in ("s", "tab", "line-break"):
                count = next((number for key, number in element.items() if key.endswith("}c")), "1")
                spaces = " " * (int(count) if count.isdecimal() and len(count) < 5 else 1)
                inside.append({"s": spaces, "tab": "\t", "line-break": "\n"}[value])
            elif event == "end" and value in ("p", "h"):
                depth -= 1
                inside.append("\n")
        pages.append("".join(inside))
    return "".join(pages).strip("\n")


# ---------------------------------------------------------------------------------------------------------------- mail


def _mail(data: bytes, _: str | None) -> str:
    message: EmailMessage = email.message_from_bytes(data, policy=email.policy.default)  # type: ignore[assignment]
    if not message.keys():
        raise UnreadableError("not a message of mail")
    try:
        heads = [f"{name}: {message[name]}" for name in ("From", "To", "Cc", "Date", "Subject") if message[name]]
        texts = []
        body = message.get_body(("plain", "html"))
        for part in [*([body] if body is not None else []), *message.iter_attachments()]:
            kind = kind_of_type(part.get_content_type())
            content = part.get_payload(decode=True)
            if kind is not None and isinstance(content, bytes):
                texts.append(text_of(content, kind, part.get_content_charset()).strip("\r\n"))
    except (ValueError, LookupError, KeyError, AttributeError, TypeError):
        raise UnreadableError("a damaged message of mail") from None
    return "\n".join([*heads, "", *texts]).replace("\r\n", "\n")


#: Kind -> reader of its text.
KINDS: Final[Mapping[str, Callable[[bytes, str | None], str]]] = MappingProxyType(
    {"plain": _plain, "html": _html, "rtf": _rtf, "pdf": _pdf, "docx": _docx, "odt": _odt, "mail": _mail}
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
