"""What is carried from one run to another is, byte for byte, what is made from nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.tokenizer_kinds import KINDS, tokenizer_json
from fixtures.tokenizers import plain_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.engine import carried_text
from reticent.engine.carried_text import CarriedText, CarriedTokens, CarriedWords, same_spans
from reticent.engine.carry import CarriedSpans, differing_texts, rows_before, with_same_individual
from reticent.engine.carry_kernels import copy_bits
from reticent.engine.corpus import Columns, Corpus, open_corpus
from reticent.engine.detect import alignment, detect_spans, quarantined_rows
from reticent.engine.detect import spans as span_file
from reticent.engine.detect.detector import spans_batch
from reticent.engine.detect.gold import GoldDetector
from reticent.engine.detect.spans import SpanReader
from reticent.engine.index import IndexConfig, build_index
from reticent.engine.numbered import WordSpans
from reticent.engine.packed import StoredIds
from reticent.engine.schema import SPAN_TYPE
from reticent.engine.split import SplitConfig, split_individuals
from reticent.engine.text_pass import Encoding, TextPass

#: Of every way that a text comes to tokens, and one whose ids need three bytes.
WIDE = plain_tokenizer(*(f"none{i}" for i in range(70_000)), "a", "b", "Smith", "12")
PLAIN = plain_tokenizer("a", "b", "c", "d")
TOKENIZERS = {**{name: tokenizer_json(name) for name in KINDS}, "wide": WIDE}
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
    """The results of one run over some documents."""

    folder: Path
    corpus: Corpus
    tokenizers: list[str]
    surface: str = "exact"
    #: Share of the individuals whose words no index counts.
    reference: float = 0.3

    def __post_init__(self) -> None:
        individuals = split_individuals(self.corpus, SplitConfig(heldout=0.3, reference=self.reference))
        config = IndexConfig(max_n=1, surface=self.surface)
        self.index = build_index(self.corpus, individuals, splits=("members", "heldout"), config=config)

    def find(self, name: str, rows: np.ndarray | None = None, before: Made | None = None) -> None:
        (self.folder / name).mkdir()
        carried = None if before is None or rows is None else CarriedSpans(before.folder / "found", rows)
        self.counts = detect_spans(self.corpus, [GoldDetector()], self.folder / name, carried=carried)

    def read(self, name: str, spans: str, rows: np.ndarray | None = None, before: Made | None = None) -> None:
        folders = [self.folder / name / part for part in ("words", "word-spans")]
        encodings = []
        for number, tokenizer in enumerate(self.tokenizers):
            ids, gaps = (self.folder / name / f"{part}-{number}" for part in ("ids", "gaps"))
            folders += [ids, gaps]
            encodings.append(Encoding(tokenizer, ids, gaps))
        for folder in folders:
            folder.mkdir(parents=True)
        text = TextPass(self.corpus, folders[0], self.index, folders[1], SpanReader(self.folder / spans), encodings)
        if before is not None and rows is not None:
            text.carried = self._carried(text, rows, before)
        self.read_rows = None if text.carried is None else np.flatnonzero(text.carried.rows < 0)
        self.counts = text.run()

    def _carried(self, text: TextPass, rows: np.ndarray, before: Made) -> CarriedText:
        old = before.folder / "made"
        words = CarriedWords(old / "words", *(each.index.words().column("word") for each in (before, self)))
        rows = same_spans(SpanReader(before.folder / "found"), text.spans, words.known(rows))
        tokens = [CarriedTokens(old / f"ids-{at}", old / f"gaps-{at}") for at in range(len(self.tokenizers))]
        return CarriedText(rows, words, WordSpans(old / "word-spans"), tokens)


def content(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found
    return found


def carried_rows(before: Corpus, after: Corpus) -> np.ndarray:
    rows = rows_before(before, after)
    differing = differing_texts(before, after, rows)
    rows = with_same_individual(before, after, rows)
    rows[differing] = -1
    return rows


def check(folder: Path, old: list[Note], new: list[Note], tokenizers: list[str], **options: Any) -> Made:
    """Make the results of the new notes from nothing, and from those of the old ones."""
    before = Made(folder, write(folder / "old", old), tokenizers, **options)
    (folder / "new").mkdir()
    after = Made(folder / "new", write(folder / "new" / "notes", new), tokenizers, **options)
    before.find("found")
    before.read("made", "found")
    rows = carried_rows(before.corpus, after.corpus)
    after.find("expected")
    counts = after.counts
    after.find("found", rows, before)
    assert content(after.folder / "found") == content(after.folder / "expected")
    assert after.counts == counts
    after.read("all", "found")
    expected = {folder.name: dict(counts) for folder, counts in after.counts.items()}
    after.read("made", "found", rows, before)
    assert content(after.folder / "made") == content(after.folder / "all")
    assert {folder.name: dict(counts) for folder, counts in after.counts.items()} == expected
    return after


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
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(individuals, texts, fates, texts), max_size=14),
    st.lists(st.sampled_from(list(TOKENIZERS)), min_size=1, max_size=2, unique=True),
    st.sampled_from(["exact", "fold"]),
    st.sampled_from([0.0, 0.3]),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_what_is_carried_is_what_is_made_from_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    documents: list[tuple[str, str, str, str]],
    tokenizers: list[str],
    surface: str,
    reference: float,
    at_once: int,
    random: Any,
) -> None:
    old = SIDES + [(f"d{number}", person, text) for number, (person, text, _, _) in enumerate(documents)]
    new = list(SIDES)
    for number, (person, text, fate, other) in enumerate(documents):
        if fate == "new before":
            new.append((f"n{number}", person, other))
        if fate != "goes":
            # Other marks in the same text are no change: where `gold` reads a column anew, nothing is carried.
            changes = fate == "changes" and bare(other) != bare(text)
            new.append((f"d{number}", "p1" if fate == "moves" else person, other if changes else text))
    if at_once == 4:  # a database may give its rows in another order
        random.shuffle(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MIN_SPANS", 1000)  # those drawn cut words
        patch.setattr(alignment, "_MIN_SHIFTED", 1000)
        patch.setattr(carried_text, "AT_ONCE", at_once)
        patch.setattr(CarriedSpans, "AT_ONCE", at_once)
        patch.setattr(span_file, "DOCUMENTS_PER_GROUP", 1 + at_once % 3)
        json = [TOKENIZERS[name] for name in tokenizers]
        check(tmp_path_factory.mktemp("carry"), old, new, json, surface=surface, reference=reference)


def test_only_documents_that_are_new_or_changed_are_read(tmp_path: Path) -> None:
    said = "th\x0be patient was seen by Dr. «Smith|NAME» on 12/«05|DATE»-b " * 3
    old = [(f"d{i:03}", f"p{i % 30}", f"{said if i % 7 else ''}a b{i % 11}") for i in range(200)]
    new = [(doc_id, person, text) for doc_id, person, text in old if person != "p3"]
    new[20:20] = [("n1", "p5", f"unheard {said}"), ("n2", "q1", "a")]
    new[100] = (*new[100][:2], new[100][2] + " more")
    new += [(f"z{i}", "q2", "words that nobody used") for i in range(3)]
    made = check(tmp_path, old, new, [WIDE, TOKENIZERS["superword BPE"]], reference=0.0)
    assert made.read_rows is not None
    assert made.read_rows.tolist() == [20, 21, 100, len(new) - 3, len(new) - 2, len(new) - 1]
    ids = made.folder / "made" / "ids-1"
    assert StoredIds(ids).more.max() > 0  # a token of several words
    assert StoredIds(made.folder / "made" / "ids-0").is_wide


def test_a_document_with_words_that_no_index_held_is_read_where_an_index_may_hold_them_now(tmp_path: Path) -> None:
    old = [(f"d{i}", f"p{i}", f"a word{i}") for i in range(40)]
    same = check(tmp_path / "same", old, old[:-1], [PLAIN])
    assert same.read_rows is not None
    assert len(same.read_rows) == 0
    more = check(tmp_path / "more", old, [*old, ("n", "p1", " ".join(f"word{i}" for i in range(40)))], [PLAIN])
    assert more.read_rows is not None
    sides = split_individuals(more.corpus, SplitConfig(heldout=0.3, reference=0.3))
    codes = sides.individual_codes(more.corpus.scan().column("individual_id"))
    reference = sides.mask("reference")[codes]
    assert more.read_rows.tolist() == sorted({*np.flatnonzero(reference).tolist(), 40})
    assert reference.any()


def test_nothing_and_everything_is_carried(tmp_path: Path) -> None:
    old = [(f"d{i}", f"p{i}", "a «Smith|NAME» b" * (i % 3) + " a") for i in range(30)]
    made = check(tmp_path / "other", old, [(f"n{i}", f"q{i}", "a «b|CITY»") for i in range(30)], [PLAIN])
    assert made.read_rows is not None
    assert len(made.read_rows) == 30
    made = check(tmp_path / "same", old, old, [PLAIN])
    assert made.read_rows is not None
    assert len(made.read_rows) == 0


def test_documents_whose_spans_are_elsewhere_now_are_read(tmp_path: Path) -> None:
    old = [(f"d{i}", f"p{i}", "«a|NAME» b «c d|NAME»") for i in range(12)]
    before = Made(tmp_path, write(tmp_path / "old", old), [PLAIN])
    before.find("found")
    new = [*old]
    new[2], new[5] = ("d2", "p2", "a b «c d|NAME»"), ("d5", "p5", "«a|DATE» b «c d|NAME»")
    new[7], new[8] = ("d7", "p7", "«a b|X»"), ("d8", "p8", "«a|NAME» b «c|NAME» d")
    new[9] = ("d9", "p9", "«a|NAME» «b|NAME» c d")
    (tmp_path / "new").mkdir()
    after = Made(tmp_path / "new", write(tmp_path / "new" / "notes", new), [PLAIN])
    after.find("found")
    readers = [SpanReader(each.folder / "found") for each in (before, after)]
    rows = np.arange(12)
    rows[11] = -1
    kept = same_spans(*readers, rows)
    assert np.flatnonzero(kept < 0).tolist() == [2, 7, 8, 9, 11]  # another label needs no other words
    assert kept[kept >= 0].tolist() == [0, 1, 3, 4, 5, 6, 10]


class Failing:
    """Finds the first character, and fails on some documents."""

    name, columns = "failing", ()

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text").to_pylist()
        if any("fail" in text for text in texts):
            raise ValueError
        rows = np.arange(len(texts))
        return spans_batch(rows, rows * 0, rows * 0 + 1, pa.array(["NAME"] * len(texts)))


def test_documents_in_quarantine_shift_those_that_are_carried(tmp_path: Path) -> None:
    old = [(f"d{i:02}", f"p{i}", "a b" if i % 5 else "fail") for i in range(20)]
    new = [*old[:7], ("n1", "p1", "fail"), ("n2", "p1", "c"), *old[8:], ("n3", "p3", "fail"), ("n4", "p3", "d")]
    for name, notes in (("old", old), ("new", new)):
        corpus = write(tmp_path / name, notes)
        (tmp_path / f"{name}-found").mkdir()
        counts = detect_spans(corpus, [Failing()], tmp_path / f"{name}-found", on_error="quarantine")
    before = open_corpus(tmp_path / "old").without(quarantined_rows(tmp_path / "old-found"))
    rows = rows_before(before, corpus)
    assert np.count_nonzero(rows < 0) == 8
    (tmp_path / "carried").mkdir()
    carried = CarriedSpans(tmp_path / "old-found", rows)
    found = detect_spans(corpus, [Failing()], tmp_path / "carried", on_error="quarantine", carried=carried)
    assert content(tmp_path / "carried") == content(tmp_path / "new-found")
    assert found == counts
    assert found["quarantined"] == 6


def test_an_error_names_the_row_of_a_document_among_those_that_are_carried(tmp_path: Path) -> None:
    corpus = write(tmp_path / "notes", [(f"d{i}", f"p{i}", "fail" if i == 7 else "a") for i in range(9)])
    (tmp_path / "old").mkdir()
    detect_spans(corpus, [GoldDetector()], tmp_path / "old")
    rows = np.arange(9)
    rows[[2, 7]] = -1
    with pytest.raises(Exception, match=r"failed on document 8 of the corpus \(ValueError\)"):
        detect_spans(corpus, [Failing()], tmp_path, carried=CarriedSpans(tmp_path / "old", rows))


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


# ------------------------------------------------------------------ kernels

spans_of_bits = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 150)), max_size=6)


@given(st.lists(st.booleans(), min_size=350, max_size=350), spans_of_bits)
def test_copy_bits_matches_oracle(bits: list[bool], spans: list[tuple[int, int]]) -> None:
    packed = np.packbits([*bits, *[False] * 34], bitorder="little").view(np.uint64)
    starts, lengths = (np.array([span[at] for span in spans], dtype=np.int64) for at in range(2))
    places = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()) // 64 + 1, dtype=np.uint64)
    copy_bits(packed, starts, lengths, out, places)
    expected = [bit for start, length in spans for bit in bits[start : start + length]]
    assert np.unpackbits(out.view(np.uint8), bitorder="little")[: len(expected)].tolist() == expected
    assert not np.unpackbits(out.view(np.uint8), bitorder="little")[len(expected) :].any()
