"""Common words of a sample: what records need to know of a large corpus, and that no own name is lost by it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reticent._rust import CommonWords
from reticent.engine.corpus import Corpus, open_corpus
from reticent.engine.detect import common as common_module
from reticent.engine.detect.common import counted_words, learn_common_words
from reticent.engine.detect.gazetteer import GazetteerDetector
from reticent.engine.detect.records import RecordsDetector

NUM_DOCUMENTS = 400
NUM_DRAWN = 50


def hospital(folder: Path) -> Corpus:
    """Notes of 200 individuals, half of them called Will, who all use "will" as a word; each has a word of its own."""
    rows = range(NUM_DOCUMENTS)
    texts = [f"Mr. Stone is well and will rest, says word{number}a." for number in rows]
    texts[:2] = ["Seen: Will Stone. The stone moved, and Stome went.", "Here stone and will alone, said Will."]
    individuals = [f"p{number // 2}" for number in rows]
    table = {"doc_id": [f"d{number}" for number in rows], "individual_id": individuals, "text": texts}
    pq.write_table(pa.table(table), folder / "documents.parquet")
    people = [f"p{number}" for number in range(NUM_DOCUMENTS // 2)]
    names = {"first_name": ["Will", "Ann"] * (len(people) // 2), "last_name": ["Stone", *["Roy"] * (len(people) - 1)]}
    pq.write_table(pa.table({"individual_id": people, **names}), folder / "r.parquet")
    return open_corpus(folder / "documents.parquet")


def learned(corpus: Corpus, folder: Path, *, with_list: bool = False) -> RecordsDetector:
    records = RecordsDetector(folder / "r.parquet", num_threads=1)
    others: list[GazetteerDetector] = []
    if with_list:
        (folder / "names.txt").write_text("Stone\n")
        others = [GazetteerDetector({"NAME": folder / "names.txt"}, num_threads=1)]
    learn_common_words(corpus, [records, *others])
    return records


def words_of(detector: RecordsDetector) -> CommonWords:
    assert detector.common_words is not None
    return detector.common_words


def spans(corpus: Corpus, detector: RecordsDetector) -> set[tuple[int, int, int]]:
    found: set[tuple[int, int, int]] = set()
    first = 0
    for batch in corpus.batches(columns=("doc_id", "individual_id", "text")):
        rows = detector.detect(batch).select(["document", "start", "end"]).to_pylist()
        found |= {(first + row["document"], row["start"], row["end"]) for row in rows}
        first += batch.num_rows
    return found


def test_records_learn_from_a_sample_that_is_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = hospital(tmp_path)
    everything = learned(corpus, tmp_path)
    assert words_of(everything).num_words > NUM_DOCUMENTS
    monkeypatch.setattr(common_module, "SAMPLE_DOCUMENTS", NUM_DRAWN)
    sample, again = learned(corpus, tmp_path), learned(corpus, tmp_path)
    num_words = words_of(sample).num_words
    assert NUM_DRAWN / 2 < num_words < 2 * NUM_DRAWN
    assert words_of(again).num_words == num_words
    assert spans(corpus, sample) >= spans(corpus, everything)


@pytest.mark.parametrize(("drawn", "with_list"), [(NUM_DRAWN, True), (NUM_DOCUMENTS, False)])
def test_a_list_of_names_and_a_corpus_of_no_more_documents_are_learned_from_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: int, with_list: bool
) -> None:
    corpus = hospital(tmp_path)
    num_words = words_of(learned(corpus, tmp_path)).num_words
    monkeypatch.setattr(common_module, "SAMPLE_DOCUMENTS", drawn)
    assert words_of(learned(corpus, tmp_path, with_list=with_list)).num_words == num_words


def test_only_words_of_all_documents_count_as_those_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = hospital(tmp_path)
    whole = learned(corpus, tmp_path)
    assert counted_words(corpus, [whole]) is whole.common_words
    assert counted_words(corpus.without([3]), [whole]) is None
    monkeypatch.setattr(common_module, "SAMPLE_DOCUMENTS", NUM_DRAWN)
    assert counted_words(corpus, [learned(corpus, tmp_path)]) is None
    (tmp_path / "words.txt").write_text("will\n")
    of_a_list = RecordsDetector(tmp_path / "r.parquet", common=tmp_path / "words.txt")
    assert counted_words(corpus, [of_a_list]) is None
