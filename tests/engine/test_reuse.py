"""Spans that are taken over from another run are, byte for byte, those that are found from nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import alignment, detect_spans, quarantined_rows
from reticent.engine.detect import spans as span_file
from reticent.engine.detect.detector import spans_batch
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.reuse import ReusedSpans, differing_texts, rows_before, with_same_individual
from reticent.engine.schema import SPAN_TYPE

#: Id of a document, id of an individual, text with its gold spans marked «like this|LABEL».
Note = tuple[str, str, str]


def write(folder: Path, notes: list[Note], rows_per_group: int = 3) -> Corpus:
    columns: dict[str, list[Any]] = {"doc_id": [], "individual_id": [], "text": [], "spans": []}
    for doc_id, individual, marked in notes:
        text, spans = "", []
        for part in marked.replace("»", "«").split("«"):
            inside, bar, label = part.partition("|")
            if bar:
                spans.append({"start": len(text), "end": len(text) + len(inside), "label": label})
            text += inside
        for name, value in zip(columns, (doc_id, individual, text, spans), strict=True):
            columns[name].append(value)
    types = [pa.string(), pa.string(), pa.large_string(), pa.list_(SPAN_TYPE)]
    table = pa.table([pa.array(column, kind) for column, kind in zip(columns.values(), types, strict=True)], [*columns])
    folder.mkdir(parents=True)
    half = len(notes) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=rows_per_group)
    return open_corpus(folder, columns=Columns(spans="spans"))


def bare(marked: str) -> str:
    return re.sub(r"«([^|»]*)\|[A-Z]+»", r"\1", marked)


@dataclass
class Made:
    """The spans of one run over some documents."""

    folder: Path
    corpus: Corpus

    def find(self, name: str, rows: np.ndarray | None = None, before: Made | None = None) -> None:
        (self.folder / name).mkdir()
        reused = None if before is None or rows is None else ReusedSpans(before.folder / "found", rows)
        self.counts = detect_spans(self.corpus, [GoldDetector()], self.folder / name, carried=reused)


def content(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found
    return found


def same_documents(before: Corpus, after: Corpus) -> np.ndarray:
    rows = rows_before(before, after)
    differing = differing_texts(before, after, rows)
    rows = with_same_individual(before, after, rows)
    rows[differing] = -1
    return rows


def check(folder: Path, old: list[Note], new: list[Note]) -> np.ndarray:
    """Find the spans of the new notes from nothing, and from those of the old ones; return the rows that are read."""
    before = Made(folder, write(folder / "old", old))
    (folder / "new").mkdir()
    after = Made(folder / "new", write(folder / "new" / "notes", new))
    before.find("found")
    rows = same_documents(before.corpus, after.corpus)
    after.find("expected")
    counts = after.counts
    after.find("found", rows, before)
    assert content(after.folder / "found") == content(after.folder / "expected")
    assert after.counts == counts
    return np.flatnonzero(rows < 0)


pieces = st.sampled_from(
    [
        *("a", "b", "Smith", "smith", "e\u0301t", "12", "12/05", "-", ".", " ", " ", "\u00a0", "Smi\u00adth"),
        *("th\x0be", "was seen by", "\ue123", "😀", "田中", "\u0301", "ß", "ﬁ", "[MASK]", "\n"),
    ]
)
marked = st.tuples(st.lists(pieces, min_size=1, max_size=3).map("".join), st.sampled_from(["NAME", "DATE"]))
texts = st.lists(st.one_of(pieces, pieces, marked.map(lambda m: f"«{m[0]}|{m[1]}»")), max_size=9).map(
    lambda parts: "".join(parts) + " a"
)  # a document without a token is refused
#: What becomes of a document: it stays, goes, has another text, is another individual's, or comes after a new one.
fates = st.sampled_from(["stays"] * 5 + ["goes", "changes", "moves", "new before"])
individuals = st.sampled_from([f"p{i}" for i in range(12)])
#: Individuals of every side.
SIDES = [(f"s{i}", f"p{i}", "a b") for i in range(12)]


@pytest.mark.heavy
@settings(max_examples=30)
@given(
    st.lists(st.tuples(individuals, texts, fates, texts), max_size=14),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_spans_that_are_taken_over_are_those_that_are_found_from_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str, str, str]],
    at_once: int,
    random: Any,
) -> None:
    old = SIDES + [(f"d{number}", person, text) for number, (person, text, _, _) in enumerate(documents)]
    new = list(SIDES)
    for number, (person, text, fate, other) in enumerate(documents):
        if fate == "new before":
            new.append((f"n{number}", person, other))
        if fate != "goes":
            # Other marks in the same text are no change: where `gold` reads a column anew, nothing is taken over.
            changes = fate == "changes" and bare(other) != bare(text)
            new.append((f"d{number}", "p1" if fate == "moves" else person, other if changes else text))
    if at_once == 4:  # a database may give its rows in another order
        random.shuffle(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MIN_SPANS", 1000)  # those drawn cut words
        patch.setattr(alignment, "_MIN_SHIFTED", 1000)
        patch.setattr(ReusedSpans, "AT_ONCE", at_once)
        patch.setattr(span_file, "DOCUMENTS_PER_GROUP", 1 + at_once % 3)
        check(tmp_path_factory.mktemp("reuse"), old, new)


def test_only_documents_that_are_new_or_changed_are_searched(tmp_path: Path) -> None:
    said = "th\x0be patient was seen by Dr. «Smith|NAME» on 12/«05|DATE»-b " * 3
    old = [(f"d{i:03}", f"p{i % 30}", f"{said if i % 7 else ''}a b{i % 11}") for i in range(200)]
    new = [(doc_id, person, text) for doc_id, person, text in old if person != "p3"]
    new[20:20] = [("n1", "p5", f"unheard {said}"), ("n2", "q1", "a")]
    new[100] = (*new[100][:2], new[100][2] + " more")
    new += [(f"z{i}", "q2", "words that nobody used") for i in range(3)]
    assert check(tmp_path, old, new).tolist() == [20, 21, 100, len(new) - 3, len(new) - 2, len(new) - 1]


def test_nothing_and_everything_is_taken_over(tmp_path: Path) -> None:
    old = [(f"d{i}", f"p{i}", "a «Smith|NAME» b" * (i % 3) + " a") for i in range(30)]
    assert len(check(tmp_path / "other", old, [(f"n{i}", f"q{i}", "a «b|CITY»") for i in range(30)])) == 30
    assert len(check(tmp_path / "same", old, old)) == 0


class Failing:
    """Finds the first character, and fails on some documents."""

    name, columns = "failing", ()

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text").to_pylist()
        if any("fail" in text for text in texts):
            raise ValueError
        rows = np.arange(len(texts))
        return spans_batch(rows, rows * 0, rows * 0 + 1, pa.array(["NAME"] * len(texts)))


def test_documents_in_quarantine_shift_those_that_are_taken_over(tmp_path: Path) -> None:
    old = [(f"d{i:02}", f"p{i}", "a b" if i % 5 else "fail") for i in range(20)]
    new = [*old[:7], ("n1", "p1", "fail"), ("n2", "p1", "c"), *old[8:], ("n3", "p3", "fail"), ("n4", "p3", "d")]
    for name, notes in (("old", old), ("new", new)):
        corpus = write(tmp_path / name, notes)
        (tmp_path / f"{name}-found").mkdir()
        counts = detect_spans(corpus, [Failing()], tmp_path / f"{name}-found", on_error="quarantine")
    before = open_corpus(tmp_path / "old").without(quarantined_rows(tmp_path / "old-found"))
    rows = rows_before(before, corpus)
    assert np.count_nonzero(rows < 0) == 8
    (tmp_path / "reused").mkdir()
    reused = ReusedSpans(tmp_path / "old-found", rows)
    found = detect_spans(corpus, [Failing()], tmp_path / "reused", on_error="quarantine", carried=reused)
    assert content(tmp_path / "reused") == content(tmp_path / "new-found")
    assert found == counts
    assert found["quarantined"] == 6


def test_an_error_names_the_row_of_a_document_among_those_that_are_taken_over(tmp_path: Path) -> None:
    corpus = write(tmp_path / "notes", [(f"d{i}", f"p{i}", "fail" if i == 7 else "a") for i in range(9)])
    (tmp_path / "old").mkdir()
    detect_spans(corpus, [GoldDetector()], tmp_path / "old")
    rows = np.arange(9)
    rows[[2, 7]] = -1
    with pytest.raises(Exception, match=r"failed on document 8 of the corpus \(ValueError\)"):
        detect_spans(corpus, [Failing()], tmp_path, carried=ReusedSpans(tmp_path / "old", rows))


def test_texts_that_differ_in_one_byte_differ(tmp_path: Path) -> None:
    long = "x" * 5000
    old = write(tmp_path / "old", [("d0", "p0", long), ("d1", "p1", "a"), ("d2", "p2", ""), ("d3", "p3", "é")])
    new = write(
        tmp_path / "new",
        [("d3", "p3", "e\u0301"), ("d2", "p2", ""), ("d1", "p2", "a"), ("d0", "p0", long[1:] + "y"), ("d4", "p4", "a")],
    )
    rows = rows_before(old, new)
    assert rows.tolist() == [3, 2, 1, 0, -1]
    assert differing_texts(old, new, rows).tolist() == [0, 3]
    assert with_same_individual(old, new, rows).tolist() == [3, 2, -1, 0, -1]
