"""Is every text of a hospital's formats read whole and in order, and how fast?

Generated notes, with signs that each format writes by an escape, become files of nine formats: paragraphs, items of
lists, rows of tables. DOCX, ODT and PDF are written by others' libraries (group ``formats``); where they are not
installed the format is skipped. What is read is compared, word by word, with what was written; so is what an extractor
of others reads, where there is one. Speed is of the whole way, from the folder to batches of documents, which one core
goes: MB of the files a second of its time.

    python -m benchmarks.formats [--size toy|cpu]
"""

from __future__ import annotations

import base64
import io
import json
import random
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from email.message import EmailMessage
from html import escape
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from benchmarks.engine_workers import synth_notes
from benchmarks.record_io import spread, write_record
from benchmarks.runner import command
from reticent.engine.sources.corpus_config import CorpusConfig

SIZES = {"toy": (20, 1), "cpu": (2000, 3)}
#: Signs that a format has for itself, as a last line of each note.
SIGNS = r"5 < 7 & 9 > 3 | ~50 % ^2 \x {y} [z] °C é – “quoted”"


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
    """A "row" of two cells, an "item" of a list or a "line", and its texts."""
    for number, line in enumerate(lines):
        if number % 7 == 3:
            first, _, rest = line.partition(" ")
            yield "row", [first, rest]
        else:
            yield "item" if number % 5 == 4 else "line", [line]


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
                "line": f"<paragraph>{own[0]}</paragraph>",
            }[kind]
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
    for kind, texts in blocks(lines):
        if kind == "row":
            for cell, text in zip(document.add_table(rows=1, cols=2).rows[0].cells, texts, strict=True):
                cell.text = text
        else:
            paragraph = document.add_paragraph(style="List Bullet" if kind == "item" else None)
            first, space, rest = texts[0].partition(" ")
            paragraph.add_run(first).bold = True
            paragraph.add_run(space + rest)
    document.save(made)
    return made.getvalue()


def _odt(lines: list[str], _: int) -> bytes:
    from odf.opendocument import OpenDocumentText
    from odf.table import Table, TableCell, TableColumn, TableRow
    from odf.teletype import addTextToElement
    from odf.text import List, ListItem, P

    def within(parent: Any, *kinds: Any) -> Any:
        for kind in kinds:
            child = kind()
            parent.addElement(child)
            parent = child
        return parent

    document, made = OpenDocumentText(), io.BytesIO()
    for kind, texts in blocks(lines):
        if kind == "row":
            table = within(document.text, Table)
            table.addElement(TableColumn(numbercolumnsrepeated=2))
            row = within(table, TableRow)
            for text in texts:
                addTextToElement(within(row, TableCell, P), text)
        else:
            addTextToElement(within(document.text, *((List, ListItem) if kind == "item" else ()), P), texts[0])
    document.write(made)
    return made.getvalue()


def _pdf(lines: list[str], _: int) -> bytes:
    from reportlab.lib.styles import getSampleStyleSheet
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    style, made = getSampleStyleSheet()["BodyText"], io.BytesIO()
    SimpleDocTemplate(made).build([Paragraph(escape(line), style) for line in lines])
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
    page.style.decompose()
    for each in page.find_all(["p", "td", "li"]):
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
    from odf.text import P

    return "\n".join(map(extractText, load(io.BytesIO(data)).getElementsByType(P)))


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


FORMATS = (
    Format("FHIR NDJSON", "fhir", ".ndjson", _fhir, (), _peer_fhir),
    Format("HL7 v2", "hl7", ".hl7", _hl7, ("hl7",), _peer_hl7, "hl7"),
    Format("HTML", "pages", ".html", _html, ("bs4",), _peer_html, "beautifulsoup4"),
    Format("CDA", "cda", ".xml", _cda, (), _peer_cda),
    Format("mail", "pages", ".eml", _mail),
    Format("RTF", "pages", ".rtf", _rtf),
    Format("DOCX", "pages", ".docx", _docx, ("docx", "docx2txt"), _peer_docx, "docx2txt"),
    Format("ODT", "pages", ".odt", _odt, ("odf",), _peer_odt, "odfpy"),
    Format("PDF", "pages", ".pdf", _pdf, ("reportlab", "pypdf"), _peer_pdf, "pypdf"),
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
    from reticent.ext.exports.source import Exports

    made = [form.write(lines, number) for number, lines in enumerate(written)]
    export = folder / "export"
    if form.scheme in ("fhir", "hl7"):
        export.mkdir()
        (export / f"all{form.suffix}").write_bytes(b"".join(made))
    else:
        for number, data in enumerate(made):
            (export / f"{number:06}").mkdir(parents=True)
            (export / f"{number:06}" / f"note{form.suffix}").write_bytes(data)
    megabytes, times, texts = sum(map(len, made)) / 1e6, [], list[str]()
    for _ in range(rounds):
        started = time.process_time()
        source = Exports(CorpusConfig(source=f"{form.scheme}://{export}"), folder)
        source.version()
        batches = list(source.batches(("doc_id", "individual_id", "text")))
        times.append(time.process_time() - started)
        texts = [text for batch in batches for text in batch.column("text").to_pylist()]
    words = [" ".join(lines).split() for lines in written]
    assert source.num_unread == 0, f"{form.name}: {source.num_unread} files are not read"
    found = [lost(own, text.split()) for own, text in zip(words, texts, strict=True)]
    result = {
        "documents": len(made),
        "bytes": sum(map(len, made)),
        "words": sum(map(len, words)),
        "words_lost": sum(number for number, _ in found),
        "characters_lost": sum(number for _, number in found),
        "mb_per_core_second": spread([megabytes / seconds for seconds in times]),
    }
    if form.peer is not None:
        started = time.process_time()
        peer_texts = [form.peer(data) for data in made]
        seconds = time.process_time() - started
        compared = [lost(own, text.split()) for own, text in zip(words, peer_texts, strict=True)]
        result["peer"] = {
            "name": f"{form.peer_name} {version(form.peer_name)}" if form.modules else form.peer_name,
            "words_lost": sum(number for number, _ in compared),
            "mb_per_core_second": megabytes / seconds,
        }
    return result


def run(size: Annotated[str, SIZES] = "cpu") -> None:
    """Measure every format whose libraries are installed, check it, print and write the record."""
    num_documents, rounds = SIZES[size]
    written, result = notes(num_documents), {}
    for form in FORMATS:
        missing = [name for name in form.modules if find_spec(name) is None]
        if missing:
            print(f"skipped {form.name}: {', '.join(missing)} not installed (group formats)")
            continue
        with tempfile.TemporaryDirectory(prefix="reticent-bench-") as folder:
            found = result[form.name] = measure(form, written, rounds, Path(folder))
        print(
            f"{form.name}: {found['words_lost']} of {found['words']:,} words lost, "
            f"{found['mb_per_core_second']['median']:.1f} MB a core second; {found.get('peer', 'no other reader')}",
            flush=True,
        )
        allowed = 0 if form.name in ("FHIR NDJSON", "HL7 v2", "HTML", "CDA", "mail") else found["words"] / 1000
        assert found["words_lost"] <= allowed, f"{form.name}: {found['words_lost']} words are lost"
    write_record("formats", {"formats": result}, size)


if __name__ == "__main__":
    command(run)
