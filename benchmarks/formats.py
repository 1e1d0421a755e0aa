"""Is every text of a hospital's formats read whole and in order, and how fast?

Generated notes, with signs that each format writes by an escape, become files: paragraphs, headings, items of lists,
rows of tables; in DOCX and ODT a head of the page, in DOCX a foot; in PDF ligatures (a note is written with ``fi`` as
one sign, and read for the two letters), a head, and every other note in two columns. DOCX, ODT and PDF are written by
others' libraries (group ``formats``); where they are not installed the format is skipped. What is read is compared,
word by word, with what was written; so is what an extractor of others reads, where there is one.

Speed is of the whole way, from the folder to files of Parquet that every later pass reads: MB of the files a second, by
the clock of this machine, and a second of one core's time. Where each note is a file, many of them are small; a row
with 16 notes a file shows what the files cost by themselves.

    python -m benchmarks.formats [--size toy|cpu]
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from email.message import EmailMessage
from functools import partial
from html import escape
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import pyarrow.parquet as pq

from benchmarks.engine_workers import synth_notes
from benchmarks.record_io import spread, write_record
from benchmarks.runner import command
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.staged import open_remote, stage, staged_files

#: Notes of a format of text, and of one of office files; readings.
SIZES = {"toy": (20, 6, 1), "cpu": (2000, 500, 3)}
#: Signs that a format has for itself, as a last line of each note.
SIGNS = r"5 < 7 & 9 > 3 | ~50 % ^2 \x {y} [z] °C é – “quoted”"
#: Ligatures of PDF, and what they are read for.
LIGATURES = {"fi": "\ufb01", "fl": "\ufb02"}


def notes(num_documents: int) -> list[list[str]]:
    """Lines of each note, of 6 to 14 words."""
    batch = synth_notes(
        range(num_documents), 300, languages=("en", "fr"), documents_per_individual=1.5, vocabulary=50_000
    )
    rng, found = random.Random(0), []
    for text in batch.column("text").to_pylist()[:num_documents]:
        words, lines = text.split(), []
        while words:
            count = rng.randint(6, 14)
            lines.append(" ".join(words[:count]))
            words = words[count:]
        found.append([*lines, SIGNS])
    assert len(found) == num_documents
    return found


def blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A "row" of two cells, a "head", an "item" of a list or a "line", and its texts."""
    for number, line in enumerate(lines):
        if number % 7 == 3:
            first, _, rest = line.partition(" ")
            yield "row", [first, rest]
        else:
            yield "head" if number % 11 == 5 else "item" if number % 5 == 4 else "line", [line]


# ------------------------------------------------------------------------------------------------------------- writers


def _fhir(lines: list[str], number: int) -> bytes:
    data = base64.b64encode("\n".join(lines).encode()).decode()
    resource = {
        "resourceType": "DocumentReference",
        "id": f"d{number}",
        "status": "current",
        "subject": {"reference": f"Patient/{number}"},
        "content": [{"attachment": {"contentType": "text/plain; charset=utf-8", "data": data}}],
    }
    return json.dumps(resource).encode() + b"\n"


def _hl7(lines: list[str], number: int) -> bytes:
    table = str.maketrans({"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\"})
    texts = "".join(f"OBX|{at}|TX|||{line.translate(table)}||||||F\r" for at, line in enumerate(lines, 1))
    head = f"MSH|^~\\&|A|B|C|D|202601020304||MDM^T02|M{number}|P|2.5||||||UNICODE UTF-8\r"
    return f"{head}PID|1||{number}\rTXA|1|CN||202601||||||||D{number}\r{texts}".encode()


def _html(lines: list[str], _: int) -> bytes:
    made = ["<!DOCTYPE html><html><head><style>p {color: red}</style></head><body>"]
    for kind, texts in blocks(lines):
        own = [escape(text).replace(" de ", " <b>de</b> ").replace(" the ", " <b>the</b> ") for text in texts]
        made.append(
            {
                "row": f"<table><tr><td>{own[0]}</td><td>{own[-1]}</td></tr></table>\n",
                "item": f"<ul><li>{own[0]}</li></ul>\n",
                "head": f"<h2>{own[0]}</h2>\n",
                "line": f"<p>{own[0]}</p>\n",
            }[kind]
        )
    return "".join([*made, "</body></html>"]).encode()


def _cda(lines: list[str], number: int) -> bytes:
    made = []
    for kind, texts in blocks(lines):
        own = [escape(text) for text in texts]
        made.append(
            {
                "row": f"<table><tbody><tr><td>{own[0]}</td><td>{own[-1]}</td></tr></tbody></table>",
                "item": f"<list><item>{own[0]}</item></list>",
            }.get(kind, f"<paragraph>{own[0]}</paragraph>")
        )
    return (
        f'<ClinicalDocument xmlns="urn:hl7-org:v3"><id root="1.2" extension="d{number}"/><recordTarget><patientRole>'
        f'<id root="1.3" extension="{number}"/></patientRole></recordTarget><component><structuredBody><component>'
        f"<section><text>{''.join(made)}</text></section></component></structuredBody></component></ClinicalDocument>"
    ).encode()


def _rtf(lines: list[str], _: int) -> bytes:
    def sign(character: str) -> str:
        if character in "\\{}":
            return f"\\{character}"
        return character if character.isascii() else f"\\u{ord(character)}?"

    made = [r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\froman\fcharset0 Times;}}{\info{\title Secret}}\uc1\pard\f0 "]
    for kind, texts in blocks(lines):
        own = ["".join(map(sign, text)) for text in texts]
        row = rf"\trowd\cellx2000\cellx8000\pard\intbl {own[0]}\cell {own[-1]}\cell\row\pard "
        made.append(row if kind == "row" else rf"{{\b {own[0]}}}\par" + "\r\n")
    return ("".join(made) + "}").encode("ascii")


def _docx(lines: list[str], _: int) -> bytes:
    import docx

    document, made = docx.Document(), io.BytesIO()
    page = document.sections[0]
    page.header.paragraphs[0].text, page.footer.paragraphs[0].text = lines[0], lines[-1]
    for kind, texts in blocks(lines[1:-1]):
        if kind == "row":
            for cell, text in zip(document.add_table(rows=1, cols=2).rows[0].cells, texts, strict=True):
                cell.text = text
        elif kind == "head":
            document.add_heading(texts[0], level=2)
        else:
            paragraph = document.add_paragraph(style="List Bullet" if kind == "item" else None)
            first, space, rest = texts[0].partition(" ")
            paragraph.add_run(first).bold = True
            paragraph.add_run(space + rest)
    document.save(made)
    return made.getvalue()


def _odt(lines: list[str], _: int) -> bytes:
    from odf.opendocument import OpenDocumentText
    from odf.style import Header, MasterPage, PageLayout
    from odf.table import Table, TableCell, TableColumn, TableRow
    from odf.teletype import addTextToElement
    from odf.text import H, List, ListItem, P

    def within(parent: Any, *kinds: Any) -> Any:
        for kind in kinds:
            child = kind()
            parent.addElement(child)
            parent = child
        return parent

    document, made = OpenDocumentText(), io.BytesIO()
    document.automaticstyles.addElement(PageLayout(name="page"))
    master = partial(MasterPage, name="Standard", pagelayoutname="page")
    addTextToElement(within(document.masterstyles, master, Header, P), lines[0])
    places = {"head": [partial(H, outlinelevel=2)], "item": [List, ListItem, P], "line": [P]}
    for kind, texts in blocks(lines[1:]):
        if kind == "row":
            table = within(document.text, Table)
            table.addElement(TableColumn(numbercolumnsrepeated=2))
            row = within(table, TableRow)
            for text in texts:
                addTextToElement(within(row, TableCell, P), text)
        else:
            addTextToElement(within(document.text, *places[kind]), texts[0])
    document.write(made)
    return made.getvalue()


def _pdf(lines: list[str], number: int) -> bytes:
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.pdfbase import pdfmetrics, ttfonts
    from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph, Table

    pdfmetrics.registerFont(ttfonts.TTFont("Vera", "Vera.ttf"))
    style, made = ParagraphStyle("body", fontName="Vera", fontSize=9), io.BytesIO()
    document, num_columns = BaseDocTemplate(made), 1 + number % 2
    width = 500 / num_columns
    written = [
        "".join(LIGATURES.get(part, part) for part in re.split(f"({'|'.join(LIGATURES)})", line)) for line in lines
    ]

    def head(canvas: Any, page: Any) -> None:
        if page.page == 1:
            canvas.setFont("Vera", 6)
            canvas.drawString(50, 800, written[0])

    frames = [Frame(50 + width * column, 50, width, 720) for column in range(num_columns)]
    document.addPageTemplates(PageTemplate(frames=frames, onPage=head))
    story: list[Any] = []
    for kind, texts in blocks(written[1:]):
        own = [Paragraph(escape(text), style, bulletText="•" if kind == "item" else None) for text in texts]
        story.append(Table([own], colWidths=[width / 3, width / 2]) if kind == "row" else own[0])
    document.build(story)
    return made.getvalue()


def _mail(lines: list[str], _: int) -> bytes:
    message = EmailMessage()
    message.set_content("\n".join(lines))
    message.add_alternative("<p>the same as a page</p>", subtype="html")
    return bytes(message)


# ---------------------------------------------------------------------------------------------- extractors of others


def _peer_fhir(data: bytes) -> str:
    return base64.b64decode(json.loads(data)["content"][0]["attachment"]["data"]).decode()


def _peer_hl7(data: bytes) -> str:
    import hl7

    message = hl7.parse(data.decode())
    return "\n".join(message.unescape(str(each[5])) for each in message.segments("OBX"))


def _peer_html(data: bytes) -> str:
    from bs4 import BeautifulSoup

    page = BeautifulSoup(data, "html.parser")
    if page.style is not None:
        page.style.decompose()
    for each in page.find_all(["p", "td", "li", "h2"]):
        each.append("\n")
    return page.get_text()


def _peer_cda(data: bytes) -> str:
    return "\n".join(ET.fromstring(data).itertext())


def _peer_docx(data: bytes) -> str:
    import docx2txt

    return docx2txt.process(io.BytesIO(data))


def _peer_odt(data: bytes) -> str:
    from odf.opendocument import load
    from odf.teletype import extractText

    def texts(node: Any) -> Iterator[str]:
        for child in node.childNodes:
            if getattr(child, "qname", ("", ""))[1] in ("p", "h"):
                yield extractText(child)
            else:
                yield from texts(child)

    return "\n".join(texts(load(io.BytesIO(data)).topnode))


def _peer_pdf(data: bytes) -> str:
    from pypdf import PdfReader

    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(data)).pages)


@dataclass(frozen=True)
class Format:
    """A format, how a note of it is written, and who else reads it."""

    name: str
    #: Scheme of the source; where it is ``pages`` or ``cda`` each note is a file, else all are one.
    scheme: str
    suffix: str
    write: Callable[[list[str], int], bytes]
    #: Modules that the writer and the other reader take, and the package that is named for the reader.
    modules: tuple[str, ...] = ()
    peer: Callable[[bytes], str] | None = None
    peer_name: str = "standard library"
    #: Whether all words must be read; of office files 999 of 1,000.
    is_text: bool = True
    #: Notes of a file, where each is no file of its own.
    notes_a_file: int = 1


FORMATS = (
    Format("FHIR NDJSON", "fhir", ".ndjson", _fhir, (), _peer_fhir),
    Format("HL7 v2", "hl7", ".hl7", _hl7, ("hl7",), _peer_hl7, "hl7"),
    Format("HTML", "pages", ".html", _html, ("bs4",), _peer_html, "beautifulsoup4"),
    Format("HTML, 16 notes a file", "pages", ".html", _html, notes_a_file=16),
    Format("CDA", "cda", ".xml", _cda, (), _peer_cda),
    Format("mail", "pages", ".eml", _mail),
    Format("RTF", "pages", ".rtf", _rtf, is_text=False),
    Format("DOCX", "pages", ".docx", _docx, ("docx", "docx2txt"), _peer_docx, "docx2txt", is_text=False),
    Format("ODT", "pages", ".odt", _odt, ("odf",), _peer_odt, "odfpy", is_text=False),
    Format("PDF", "pages", ".pdf", _pdf, ("reportlab", "pypdf"), _peer_pdf, "pypdf", is_text=False),
)


def lost(written: list[str], read: list[str]) -> tuple[int, int]:
    """Return how many of the words that were written are not read in order, and how many characters they have.

    >>> lost(["a", "bc", "d"], ["a", "x", "d"]), lost(["a"], ["a", "b"])
    ((1, 2), (0, 0))
    """
    if written == read:
        return 0, 0
    matched = SequenceMatcher(None, written, read, autojunk=False).get_matching_blocks()
    kept = {at for block in matched for at in range(block.a, block.a + block.size)}
    gone = [word for at, word in enumerate(written) if at not in kept]
    return len(gone), sum(map(len, gone))


def measure(form: Format, written: list[list[str]], rounds: int, folder: Path) -> dict[str, Any]:
    """Write the files of a format, read them, and compare."""
    made = [form.write(lines, number) for number, lines in enumerate(written)]
    export = folder / "export"
    if form.scheme in ("fhir", "hl7"):
        export.mkdir()
        (export / f"all{form.suffix}").write_bytes(b"".join(made))
    else:
        for number, data in enumerate(made):
            (export / f"{number:06}").mkdir(parents=True)
            (export / f"{number:06}" / f"note{form.suffix}").write_bytes(data)
    megabytes, seconds, core_seconds = sum(map(len, made)) / 1e6, list[float](), list[float]()
    settings = CorpusConfig(source=f"{form.scheme}://{export}")
    for number in range(rounds):
        staged = folder / f"staged-{number}"
        staged.mkdir()
        started, began = time.perf_counter(), time.process_time()
        with open_remote(settings, staged) as source:
            stage(source, settings, staged)
        seconds.append(time.perf_counter() - started)
        core_seconds.append(time.process_time() - began)
        assert getattr(source, "num_unread", None) == 0, f"{form.name}: some files are not read"
    texts = [text for file in staged_files(staged) for text in pq.read_table(file).column("text").to_pylist()]
    words = [" ".join(lines).split() for lines in written]
    result = {
        "documents": len(made),
        "bytes": sum(map(len, made)),
        "words": sum(map(len, words)),
        **_losses(words, texts),
        "mb_per_second": spread([megabytes / taken for taken in seconds]),
        "mb_per_core_second": spread([megabytes / taken for taken in core_seconds]),
    }
    if form.peer is not None:
        began = time.process_time()
        peer_texts = [form.peer(data) for data in made]
        taken = time.process_time() - began
        result["peer"] = {
            "name": f"{form.peer_name} {version(form.peer_name)}" if form.modules else form.peer_name,
            "words_lost": _losses(words, peer_texts)["words_lost"],
            "mb_per_core_second": megabytes / taken,
        }
    return result


def _losses(words: list[list[str]], texts: list[str]) -> dict[str, int]:
    """Words and characters that are lost of all documents; a ligature that is read is its letters."""
    plain = {ord(sign): letters for letters, sign in LIGATURES.items()}
    found = [lost(own, text.translate(plain).split()) for own, text in zip(words, texts, strict=True)]
    return {
        "words_lost": sum(number for number, _ in found),
        "characters_lost": sum(number for _, number in found),
    }


def run(size: Annotated[str, SIZES] = "cpu") -> None:
    """Measure every format whose libraries are installed, check it, print and write the record."""
    num_text, num_office, rounds = SIZES[size]
    load = os.getloadavg()[0]  # of what else runs
    written, result = notes(num_text), {}
    for form in FORMATS:
        missing = [name for name in form.modules if find_spec(name) is None]
        if missing:
            print(f"skipped {form.name}: {', '.join(missing)} not installed (group formats)")
            continue
        own = written[: num_text if form.is_text else num_office]
        files = [list(chain(*own[at : at + form.notes_a_file])) for at in range(0, len(own), form.notes_a_file)]
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
            found = result[form.name] = measure(form, files, rounds, Path(folder))
        print(
            f"{form.name}: {found['words_lost']} of {found['words']:,} words lost, "
            f"{found['mb_per_second']['median']:.1f} MB a second, {found['mb_per_core_second']['median']:.1f} MB a "
            f"core second; {found.get('peer', 'no other reader')}",
            flush=True,
        )
        allowed = 0 if form.is_text else found["words"] / 1000
        assert found["words_lost"] <= allowed, f"{form.name}: {found['words_lost']} words are lost"
    write_record("formats", {"load_before": load, "formats": result}, size)


if __name__ == "__main__":
    command(run)
