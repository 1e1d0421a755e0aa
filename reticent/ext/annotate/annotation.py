"""Export of documents for annotators, and reading of their annotations: BRAT standoff, or one HTML page that needs no
network.

A sample is written as a private folder::

    annotate.html    the documents with the found spans in them, to correct in a browser; saves a JSON file
    brat/            NNNN.txt and NNNN.ann, and annotation.conf; sample.json, the sample and its spans without any text

Either comes back: the JSON file that the page saves, which holds offsets and labels and no text, or the folder of BRAT.
What comes back is checked against the sample and the texts. An error names the file, the document by its number and
the span by its own, and never a word of text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from reticent.core.artifact import make_private_folder, writing_to
from reticent.core.errors import ArtifactError, CorpusError
from reticent.core.json_toml import read_json
from reticent.engine.detect.labels import CATEGORIES, category
from reticent.engine.sources.markup import read_brat
from reticent.ext.annotate.sample import Sample, SampledDocument, text_digest

FORMAT: Final = "reticent.annotation/1"
SAMPLE: Final = "sample.json"
PAGE: Final = "annotate.html"
#: Start and end in characters, end exclusive, and the label.
Span = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Annotation:
    """A sample of documents, and the spans in each after annotation, in the sample's order.

    ``unchanged`` names the documents of a folder of BRAT whose spans are those that were written, or are not known to
    differ: whether these were read, the folder does not say.
    """

    sample: Sample
    spans: tuple[tuple[Span, ...], ...]
    unchanged: tuple[str, ...] = ()


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return sorted, non-overlapping spans. Spans that overlap are merged into one, which has the category of the
    longest.

    >>> merge_spans([(0, 4, "PER"), (2, 9, "LOC"), (9, 12, "DATE")])
    [(0, 9, 'LOCATION'), (9, 12, 'DATE')]
    """
    merged: list[tuple[int, int, int, str]] = []  # start, end, length of the longest, its category
    for start, end, label in sorted(spans):
        if merged and start < merged[-1][1]:
            first, last, longest, name = merged[-1]
            if end - start > longest:
                longest, name = end - start, category(label)
            merged[-1] = (first, max(last, end), longest, name)
        else:
            merged.append((start, end, end - start, category(label)))
    return [(start, end, name) for start, end, _, name in merged]


# ------------------------------------------------------------------------------------------------------------- written


def write_annotation(
    folder: Path | str, sample: Sample, texts: Mapping[int, str], spans: Mapping[int, Sequence[Span]]
) -> None:
    """Write sampled documents and their detected spans, both given by corpus row, into ``folder`` for annotators, as an
    HTML page and BRAT files. Files have mode 0600, folders 0700; nothing is left there if it fails.

    Parameters
    ----------
    texts, spans : row -> text, and row -> spans, of every document of the sample

    Raises
    ------
    ArtifactError
        The folder is there and not empty: it may hold an annotator's work. Or it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder}: not empty, it may hold an annotator's work; choose another --out")
    with writing_to(folder):
        _write_folder(folder, sample, texts, spans)


def _write_folder(folder: Path, sample: Sample, texts: Mapping[int, str], found: Mapping[int, Sequence[Span]]) -> None:
    """Write the HTML page and the BRAT files into a temporary folder, then move it to ``folder``."""
    make_private_folder(folder.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (temporary / "brat").mkdir(mode=0o700)
        labels = [*CATEGORIES]
        documents = []
        for document in sample.documents:
            text = texts[document.row]
            spans = merge_spans(found.get(document.row, ()))
            labels += [label for _, _, label in spans]
            documents.append({**asdict(document), "text": text, "spans": [_as_json(span) for span in spans]})
            _write(temporary / "brat" / f"{document.name}.txt", text.encode())
            _write(temporary / "brat" / f"{document.name}.ann", _brat_lines(text, spans).encode())
        labels = list(dict.fromkeys(labels))
        configuration = "[entities]\n" + "".join(f"{label}\n" for label in labels) + "[relations]\n[events]\n"
        _write(temporary / "brat" / "annotation.conf", f"{configuration}[attributes]\n".encode())
        without_text = [{key: value for key, value in row.items() if key != "text"} for row in documents]
        kept = {**_metadata(sample), "documents": without_text}
        _write(temporary / "brat" / SAMPLE, json.dumps(kept, indent=1).encode())
        _write(temporary / PAGE, _annotation_page({**_metadata(sample), "documents": documents}, labels).encode())
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only the owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def _metadata(sample: Sample) -> dict[str, Any]:
    """Return the sample's metadata (format, corpus, strata, documents) as JSON values."""
    strata = [{"documents": size, "drawn": int(n)} for size, n in zip(sample.strata, sample.drawn, strict=True)]
    documents = [asdict(document) for document in sample.documents]
    return {"format": FORMAT, "corpus": sample.corpus, "strata": strata, "documents": documents}


def _as_json(span: Span) -> dict[str, Any]:
    """Return a span as a JSON object with ``start``, ``end`` and ``label``."""
    return dict(zip(("start", "end", "label"), span, strict=True))


def _brat_lines(text: str, spans: Iterable[Span]) -> str:
    """Return the spans of a text as the lines of a BRAT ``.ann`` file."""
    return "".join(
        f"T{number}\t{label} {start} {end}\t{_without_tabs_and_line_ends(text[start:end])}\n"
        for number, (start, end, label) in enumerate(spans, start=1)
    )


def _without_tabs_and_line_ends(text: str) -> str:
    """Return a text on one line, as BRAT quotes it: without tabs and line ends."""
    return text.replace("\r", " ").replace("\n", " ").replace("\t", " ")


def _annotation_page(data: Mapping[str, Any], labels: Sequence[str]) -> str:
    """Return the HTML annotation page with the documents in ``data``, the labels to choose from, script and style."""
    here = Path(__file__).parent
    script = (here / "annotate.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    filled = {
        "@SCRIPT_DIGEST@": f"sha256-{digest}",
        "@STYLE@": (here / "annotate.css").read_text(encoding="utf-8"),
        "@SCRIPT@": script,
        # Last: what a document says is not looked through for more.
        "@DATA@": json.dumps({**data, "labels": list(labels)}, ensure_ascii=True).replace("<", "\\u003c"),
    }
    page = (here / "annotate.html").read_text(encoding="utf-8")
    for mark, value in filled.items():
        page = page.replace(mark, value)
    return page


# ---------------------------------------------------------------------------------------------------------------- read


def read_annotation(path: Path | str) -> Annotation:
    """Return an annotator's spans of each sampled document, from the JSON file that the HTML page saves or the BRAT
    folder.

    Raises
    ------
    CorpusError
        It is no annotation of ours, documents are missing or not marked as reviewed, a span has no offsets or a text of
        BRAT is not the one that was written.
    """
    path = Path(path)
    if path.is_dir():
        return _read_brat(path if (path / SAMPLE).is_file() else path / "brat")
    if path.suffix.lower() in (".html", ".htm"):
        raise CorpusError(f"{path}: the page itself holds no corrections; give the file that it saves")
    content = read_json(path, CorpusError)
    sample = _read_sample(content, path)
    spans = []
    for number, document in enumerate(content["documents"]):
        where = f"{path}: document {sample.documents[number].name}"
        if document.get("reviewed") is not True:
            raise CorpusError(f"{where}: not marked as reviewed")
        marks = document.get("spans")
        if not isinstance(marks, list):
            raise CorpusError(f"{where}: its spans are missing")
        spans.append(tuple(_read_span(mark, f"{where} span {row}") for row, mark in enumerate(marks, start=1)))
    return Annotation(sample, tuple(spans))


def check_texts(annotation: Annotation, texts: Mapping[int, str], path: Path | str) -> None:
    """Raise `CorpusError` unless each text (by corpus row) has the digest stored in the sample and contains all its
    spans.
    """
    for document, spans in zip(annotation.sample.documents, annotation.spans, strict=True):
        where = f"{path}: document {document.name}"
        text = texts.get(document.row)
        if text is None or text_digest(text) != document.sha256:
            raise CorpusError(f"{where}: its text is not the one that was drawn (document {document.row} of the run)")
        check_ends(spans, len(text), where)


def check_ends(spans: Iterable[Span], length: int, where: str) -> None:
    """Raise `CorpusError` if a span ends beyond a text of this length; ``where`` names the document."""
    for number, (_, end, _) in enumerate(spans, start=1):
        if end > length:
            raise CorpusError(f"{where} span {number}: ends at {end}, outside of its {length} characters")


def _read_sample(content: Any, path: Path) -> Sample:
    """Return the sample described by a parsed annotation file; raise `CorpusError` if it is incomplete."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CorpusError(f"{path}: not an annotation of format {FORMAT}")
    try:
        strata = [(_require_count(row["documents"]), _require_count(row["drawn"])) for row in content["strata"]]
        documents = tuple(
            SampledDocument(
                name=str(row["name"]),
                row=_require_count(row["row"]),
                stratum=_require_count(row["stratum"]),
                sha256=str(row["sha256"]),
            )
            for row in content["documents"]
        )
        sample = Sample(corpus=str(content["corpus"]), strata=tuple(size for size, _ in strata), documents=documents)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise CorpusError(f"{path}: not a whole sample: its strata or documents cannot be read") from None
    names = [document.name for document in documents]
    for name, count in Counter(names).items():
        if count > 1:
            raise CorpusError(f"{path}: document {name} stands there {count} times")
    wanted = sum(drawn for _, drawn in strata)
    width = max(4, len(str(wanted)))
    missing = [name for name in (f"{number:0{width}d}" for number in range(1, wanted + 1)) if name not in set(names)]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CorpusError(f"{path}: document {missing[0]}{more} of the {wanted} that were drawn is missing")
    if any(document.stratum >= len(strata) for document in documents) or any(
        n != drawn for n, (_, drawn) in zip(sample.drawn, strata, strict=True)
    ):
        raise CorpusError(f"{path}: its documents are not those of its strata")
    return sample


def _require_count(value: Any) -> int:
    """Return a value that is an integer of at least 0; raise `ValueError` for any other."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("not a count")
    return value


def _read_span(mark: Any, where: str) -> Span:
    """Return (start, end, label) from a JSON span; raise `CorpusError`, with ``where`` in its message, if malformed."""
    if not isinstance(mark, dict):
        raise CorpusError(f"{where}: not a span")
    start, end, label = (mark.get(name) for name in ("start", "end", "label"))
    if not all(isinstance(place, int) and not isinstance(place, bool) for place in (start, end)):
        raise CorpusError(f"{where}: has lost its offsets; expected whole numbers start and end")
    assert isinstance(start, int)
    assert isinstance(end, int)
    if not 0 <= start < end:
        raise CorpusError(f"{where}: from {start} to {end} is no stretch of a text")
    if not isinstance(label, str) or not label.strip():
        raise CorpusError(f"{where}: has no label")
    return start, end, label


def _read_brat(folder: Path) -> Annotation:
    """Return an annotator's spans from a BRAT folder, checked against the texts that they quote."""
    if not (folder / SAMPLE).is_file():
        raise CorpusError(f"{folder}: no {SAMPLE} here; it was written beside the documents, and holds their weights")
    content = read_json(folder / SAMPLE, CorpusError)
    sample = _read_sample(content, folder / SAMPLE)
    spans, unchanged = [], []
    for document, written in zip(sample.documents, content["documents"], strict=True):
        file = folder / f"{document.name}.txt"
        if not file.is_file() or not file.with_suffix(".ann").is_file():
            raise CorpusError(f"{folder}: document {document.name} is missing (its .txt or .ann)")
        (read,) = read_brat(file, file.read_bytes(), None, Counter())
        if text_digest(read.text) != document.sha256:
            raise CorpusError(f"{file}: its text was changed; offsets no longer mean what they did")
        own = []
        for mark in read.marks:
            where = f"{read.where} annotation {mark.entity_id}"
            for start, end in mark.parts:
                if not 0 <= start < end <= len(read.text):
                    raise CorpusError(
                        f"{where}: from {start} to {end} is no stretch of its {len(read.text)} characters"
                    )
                own.append((start, end, mark.label))
            quoted = " ".join(_without_tabs_and_line_ends(read.text[start:end]) for start, end in mark.parts)
            if mark.quoted is None or quoted.split() != mark.quoted.split():
                raise CorpusError(f"{where}: its offsets do not hold the text that it quotes")
        spans.append(tuple(own))
        before = written.get("spans")  # an earlier version wrote none
        if before is None or sorted(map(_as_json, own), key=str) == sorted(before, key=str):
            unchanged.append(document.name)
    return Annotation(sample, tuple(spans), tuple(unchanged))
