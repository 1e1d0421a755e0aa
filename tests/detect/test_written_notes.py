"""Written notes by kind of fault: identifiers missed and passages taken that identify nobody, of the preset "fast".

``written_notes.jsonl`` has notes of our own; all persons are invented. ``[[LABEL|text]]`` must be found whole under
whatever label, ``{{text}}`` must not be touched. Each note is of an individual of its own, beside generated notes of
others, of which the corpus learns its words. The numbers are what was measured; they must not rise.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow.parquet as pq
import pytest
import regex

from reticent.engine.corpus import open_corpus
from reticent.engine.detect import detect_spans, make_detectors
from reticent.engine.detect.common import counted_words
from reticent.engine.detect.config import DetectConfig
from reticent.engine.detect.propagate import propagate
from reticent.engine.synthetic import SynthConfig, synthesize

NOTES = Path(__file__).with_name("written_notes.jsonl")
KNOWN = ("de", "en", "es", "fr")
MARK = regex.compile(r"\[\[\w+\|(?P<id>.*?)\]\]|\{\{(?P<other>.*?)\}\}", regex.DOTALL)


class Note(NamedTuple):
    kind: str
    text: str
    identifiers: list[tuple[int, int]]
    others: list[tuple[int, int]]


def read_notes() -> Iterator[Note]:
    """The notes in languages that the rules know, with the places of their marks."""
    for line in NOTES.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text, end = "", 0
        places: dict[str, list[tuple[int, int]]] = {"id": [], "other": []}
        for mark in MARK.finditer(row["marked"]):
            text += row["marked"][end : mark.start()]
            name = "id" if mark["id"] is not None else "other"
            places[name].append((len(text), len(text) + len(mark[name])))
            text, end = text + mark[name], mark.end()
        if row["language"] in KNOWN:
            yield Note(row["kind"], text + row["marked"][end:], places["id"], places["other"])


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counter[str], Counter[str]]:
    """Identifiers missed and other passages touched, by kind."""
    folder = tmp_path_factory.mktemp("notes")
    synthesize(folder, SynthConfig(num_individuals=160))
    others = pl.read_parquet(folder / "documents" / "*.parquet").get_column("text").to_list()[:390]
    notes = list(read_notes())
    texts = [*(note.text for note in notes), *others]
    ids = [str(number) for number in range(len(texts))]
    pl.DataFrame({"doc_id": ids, "individual_id": ids, "text": texts}).write_parquet(folder / "notes.parquet")
    corpus, config = open_corpus(folder / "notes.parquet"), DetectConfig(preset="fast")
    detectors = make_detectors(config.detectors, config.options)
    detect_spans(corpus, detectors, folder)
    propagate(corpus, folder / "spans.parquet", folder / "all.parquet", common=counted_words(corpus, detectors))
    taken: list[set[int]] = [set() for _ in texts]
    for row in pq.read_table(folder / "all.parquet").to_pylist():
        taken[row["document"]].update(range(row["start"], row["end"]))
    missed, touched = Counter[str](), Counter[str]()
    for note, found in zip(notes, taken, strict=False):
        letters = {at for at, c in enumerate(note.text) if c.isalnum()}
        missed[note.kind] += sum(not found.issuperset(letters & {*range(*place)}) for place in note.identifiers)
        touched[note.kind] += sum(not found.isdisjoint(range(*place)) for place in note.others)
    return missed, touched


#: Kind -> identifiers, those missed; passages that identify nobody, those taken.
MEASURED = {
    "FP-clinical": (0, 0, 52, 0),
    "FP-duration": (0, 0, 18, 0),
    "FP-eponym": (0, 0, 35, 2),
    "address": (14, 0, 0, 0),
    "age-over-89": (10, 0, 0, 0),
    "contact-net": (8, 4, 0, 0),
    "date-numeric": (10, 0, 0, 0),
    "date-range": (7, 0, 0, 0),
    "date-words": (19, 0, 0, 0),
    "device-plate": (12, 2, 0, 0),
    "escapes": (11, 0, 0, 0),
    "line-break-inside": (7, 1, 0, 0),
    "month-foreign": (12, 0, 0, 0),
    "mrn-accession": (11, 3, 0, 0),
    "name-all-caps": (6, 1, 0, 0),
    "name-apostrophe": (6, 0, 0, 0),
    "name-common-word": (9, 0, 0, 0),
    "name-hyphen": (5, 0, 0, 0),
    "name-initials": (6, 0, 0, 0),
    "name-lower-case": (6, 0, 0, 0),
    "name-non-western": (8, 0, 0, 0),
    "name-title-particle": (7, 0, 0, 0),
    "national-id": (11, 4, 0, 0),
    "ocr-noise": (11, 0, 0, 0),
    "offsets": (9, 0, 0, 0),
    "other-scripts": (4, 0, 0, 0),
    "overlap": (9, 1, 0, 0),
    "phone": (13, 0, 0, 0),
    "spaces": (9, 1, 0, 0),
    "table": (11, 1, 0, 0),
    "unicode-lookalike": (10, 0, 0, 0),
}


@pytest.mark.parametrize("kind", MEASURED)
def test_no_more_is_missed_or_taken_than_was_measured(counted: tuple[Counter[str], Counter[str]], kind: str) -> None:
    num_ids, missed, num_others, touched = MEASURED[kind]
    notes = [note for note in read_notes() if note.kind == kind]
    assert sum(len(note.identifiers) for note in notes) == num_ids
    assert sum(len(note.others) for note in notes) == num_others
    assert counted[0][kind] <= missed
    assert counted[1][kind] <= touched


def test_every_kind_is_measured() -> None:
    assert {note.kind for note in read_notes()} == set(MEASURED)
