"""Passages that a trained NER sees once: cuts, order, and a cache that holds no text and changes no result."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures.processor_time import processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.detect import detect_spans
from reticent.engine.detect.passages import (
    Found,
    SpanCache,
    cached,
    copy_cache,
    cut_passages,
    find_in_pieces,
    join_spans,
)
from reticent.engine.detect.workers import Workers
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.job.status import job_status
from tests.detect.test_detectors import corpus_of


class Finder:
    """Finds "Ann"; keeps all that it was asked."""

    name = "finder"
    cache: SpanCache | None = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cache_key(self) -> str:
        return "finder 1"

    def __call__(self, texts: Sequence[str]) -> list[list[Found]]:
        self.asked += texts
        return [
            [(at, at + 3, "PERSON", 0.5) for at in range(len(text)) if text.startswith("Ann", at)] for text in texts
        ]


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        ("", [""]),
        ("one line", ["one line"]),
        ("One line.\nAnother", ["One line.\n", "Another"]),
        ("a line that\ngoes on", ["a line that\ngoes on"]),
        ("Seen by Dr.\nRoy", ["Seen by Dr.\nRoy"]),
        ("Seen by J.\nRoy", ["Seen by J.\nRoy"]),
        ("Plan:\n\n \n  none", ["Plan:\n\n \n  ", "none"]),
        ("Hx:\nnone", ["Hx:\nnone"]),
        ("History:\nnone", ["History:\n", "none"]),
    ],
)
def test_passages_by_hand(text: str, passages: list[str]) -> None:
    assert [text[w.start : w.end] for w in cut_passages([text], 1000)] == passages


@given(st.lists(st.text("ab.\n é😀", max_size=80), max_size=4), st.integers(1, 30))
def test_passages_cover_every_text_and_none_is_longer_than_asked(texts: list[str], length: int) -> None:
    windows = cut_passages(texts, length)
    joined = ["".join(text[w.start : w.end] for w in windows if w.document == d) for d, text in enumerate(texts)]
    assert joined == texts
    assert all(w.end - w.start <= length and (w.first, w.last) == (w.start, w.end) for w in windows)
    assert {w.document for w in windows} == set(range(len(texts)))


def test_each_distinct_piece_with_a_letter_is_asked_once_and_the_longest_first() -> None:
    find = Finder()
    found = find_in_pieces(["Ann", "", "-- ", "seen by Ann", "Ann"], find)
    assert find.asked == ["seen by Ann", "Ann"]
    assert [[span[:2] for span in of] for of in found] == [[(0, 3)], [], [], [(8, 11)], [(0, 3)]]


def test_a_ner_that_loses_a_text_is_an_error_and_no_shift_of_spans() -> None:
    with pytest.raises(ValueError, match="2 pieces have 1 lists"):
        find_in_pieces(["a", "b"], lambda texts: [[]])


@pytest.mark.parametrize("span", [(0, 4), (-1, 2), (1, 1), (3, 5)])
def test_a_span_outside_of_its_passage_is_an_error_and_is_not_kept(tmp_path: Path, span: tuple[int, int]) -> None:
    cache = SpanCache(tmp_path / "cache", "finder 1")
    with pytest.raises(ValueError, match="does not fit its piece of 3 characters"):
        find_in_pieces(["Ann"], lambda texts: [[(*span, "PERSON", 0.5)]], cache)
    assert not cache.look_up(["Ann"])


def test_a_ner_that_fails_on_one_document_costs_that_document_alone(tmp_path: Path) -> None:
    """The passages of the others are found and kept; the one it fails on is in quarantine."""

    class Failing(Finder):
        name = "failing"
        columns: tuple[str, ...] = ()

        def detect(self, batch: pa.RecordBatch) -> pa.Table:
            texts = batch.column("text").to_pylist()
            windows = cut_passages(texts, 1000)
            pieces = [texts[w.document][w.start : w.end] for w in windows]
            return join_spans(windows, find_in_pieces(pieces, self.find, self.cache))

        def find(self, texts: list[str]) -> list[list[Found]]:
            if any("bad" in text for text in texts):
                raise KeyError("a text")
            return self(texts)

    corpus = corpus_of(tmp_path / "d.parquet", ["Ann is here", "bad", "and Ann"])
    detector = Failing()
    with cached(tmp_path / "cache", [detector]):
        counts = detect_spans(corpus, [detector], tmp_path, on_error="quarantine")
    assert counts == {"failing": 2, "spans": 2, "quarantined": 1}
    kept = SpanCache(tmp_path / "cache" / "failing", "finder 1").look_up(["Ann is here", "bad", "and Ann"])
    assert set(kept) == {"Ann is here", "and Ann"}


def test_a_second_run_asks_nothing_and_finds_the_same(tmp_path: Path) -> None:
    pieces = ["Ann is here", "nobody", "Ann and Ann \ud800"]
    for run in range(3):
        find = Finder()
        with cached(tmp_path, [find]):
            assert find.cache is not None
            found = find_in_pieces(pieces, find, find.cache)
            assert find_in_pieces(pieces[:1], find, find.cache) == found[:1]
        assert found == Finder()(pieces)
        assert len(find.asked) == (0 if run else 3)
    assert (find.cache.num_asked, find.cache.num_known) == (4, 4)


def test_the_cache_holds_no_text_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    find = Finder()
    with cached(tmp_path, [find]):
        find_in_pieces(["Ann Zzyzx is here"], find, find.cache)
    files = [path for path in (tmp_path / "finder").iterdir() if path.suffix != ".lock"]
    assert {path.name for path in files} == {"key", "part-000001.arrow"}
    assert all(b"Zzyzx" not in path.read_bytes() and b"Ann" not in path.read_bytes() for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "finder").stat().st_mode) == 0o700
    other = SpanCache(tmp_path / "other", "finder 1")
    assert other._hash("Ann") != find.cache._hash("Ann"), "the hash must need the folder's key"


def test_passages_that_left_the_corpus_leave_the_cache(tmp_path: Path) -> None:
    for pieces in (["Ann", "Bob", "Eve"], ["Bob", "Ann new"]):
        find = Finder()
        with cached(tmp_path, [find]):
            find_in_pieces(pieces, find, find.cache)
    assert find.asked == ["Ann new"]
    cache = SpanCache(tmp_path / "finder", "finder 1")
    assert set(cache.look_up(["Ann", "Bob", "Eve", "Ann new"])) == {"Bob", "Ann new"}


def test_the_cache_of_another_run_is_taken_whole_or_taken_again(tmp_path: Path) -> None:
    with cached(tmp_path / "old", [find := Finder()]):
        find_in_pieces(["Ann", "Bob"], find, find.cache)
    place = tmp_path / "new" / "finder"
    copy_cache(tmp_path / "new", tmp_path / "old")
    (place / "key").unlink()  # as an interrupted copy leaves it
    copy_cache(tmp_path / "new", tmp_path / "old")
    with cached(tmp_path / "new", [again := Finder()]):
        assert len(find_in_pieces(["Ann", "Eve"], again, again.cache)[0]) == 1
    assert again.asked == ["Eve"]
    held = {path.name: path.read_bytes() for path in place.iterdir()}
    copy_cache(tmp_path / "new", tmp_path / "old")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == held  # its own stays
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    copy_cache(tmp_path / "new", tmp_path / "nothing")


def test_after_an_error_the_next_run_goes_on_from_there(tmp_path: Path) -> None:
    find = Finder()

    def fail(texts: list[str]) -> list[list[Found]]:
        raise CorpusError("stopped")

    def run() -> None:
        with cached(tmp_path, [find]):
            find_in_pieces(["Ann"], find, find.cache)
            find_in_pieces(["Bob"], fail, find.cache)

    with pytest.raises(CorpusError, match="stopped"):
        run()
    assert set(SpanCache(tmp_path / "finder", "finder 1").look_up(["Ann", "Bob"])) == {"Ann"}


@pytest.mark.parametrize("damage", ["cut", "text", "key", "model"])
def test_a_cache_of_no_use_is_made_anew_and_never_believed(tmp_path: Path, damage: str) -> None:
    with cached(tmp_path, [find := Finder()]):
        find_in_pieces(["Ann"], find, find.cache)
    part = tmp_path / "finder" / "part-000001.arrow"
    if damage == "cut":
        part.write_bytes(part.read_bytes()[:-40])
    elif damage == "text":
        part.write_bytes(b"Ann")
    elif damage == "key":
        (tmp_path / "finder" / "key").unlink()
    again = Finder()
    again.cache = SpanCache(tmp_path / "finder", "finder 2" if damage == "model" else "finder 1")
    assert len(find_in_pieces(["Ann"], again, again.cache)[0]) == 1
    assert again.asked == ["Ann"]


def test_passages_find_what_whole_texts_do_and_a_copied_one_is_read_once() -> None:
    pytest.importorskip("spacy")
    from reticent.engine.detect.spacy import SpacyDetector

    patterns = [{"label": "NAME", "pattern": "Ann"}]
    whole, parts = (SpacyDetector("blank:en", patterns=patterns, passages=cut) for cut in (False, True))
    copied = "Ann was seen in May.\n\n"
    texts = pa.array([copied + "No pain.", "", copied + copied + "Home with Ann"], pa.large_string())
    batch = pa.record_batch({"text": texts})
    asked: list[str] = []
    find = parts._find_entities
    parts._find_entities = lambda texts: asked.extend(texts) or find(texts)  # type: ignore[method-assign, func-returns-value]
    assert parts.detect(batch).equals(whole.detect(batch))
    assert sorted(asked) == sorted([copied, "No pain.", "Home with Ann"])


def raising() -> Any:
    raise PolicyError("no such pipeline")


def dying() -> Any:
    def find(texts: list[str]) -> list[list[Found]]:
        if texts == ["error"]:
            raise KeyError("a text")
        raise SystemExit

    return find


@pytest.mark.heavy
def test_processes_that_fail_or_end_are_errors_without_text() -> None:
    with pytest.raises(PolicyError, match="no such pipeline"):
        Workers(raising, (), 2, "finder")
    workers = Workers(dying, (), 2, "finder")
    with pytest.raises(KeyError) as error:
        workers.find(["error"], 1)
    assert not error.value.args, "the message of an error may quote a text"
    with pytest.raises(CorpusError, match="a process of the detector finder has ended"):
        workers.find(["end"] * 3, 1)


def test_what_an_earlier_run_kept_goes_where_nothing_is_to_be_kept(tmp_path: Path) -> None:
    ids = ["1", "2"]
    pq.write_table(
        pa.table({"doc_id": ids, "individual_id": ids, "text": ["Ann is here", "Bob"]}), tmp_path / "notes.parquet"
    )
    values = {"out": str(tmp_path / "run"), "corpus": {"source": str(tmp_path / "notes.parquet")}}
    for detect, is_kept in (({}, True), ({"cache": False}, False)):  # the spans are up to date
        execute(Run(parse_job({**values, "detect": detect})), "detect")
        with cached(tmp_path / "run" / "ner-cache", [find := Finder()]):
            find_in_pieces(["Ann is here"], find, find.cache)
        job_status(Run(parse_job({**values, "detect": detect})))
        assert (tmp_path / "run" / "ner-cache").exists()
        execute(Run(parse_job({**values, "detect": detect})), "detect")
        assert (tmp_path / "run" / "ner-cache").exists() is is_kept


def test_a_cache_of_many_parts_costs_no_more_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reticent.engine.detect.passages.PART", 4)

    def seconds(num: int) -> float:
        tries = iter(range(3))

        def fill() -> None:
            cache = SpanCache(tmp_path / f"{num}-{next(tries)}", "finder 1")
            for number in range(num):
                cache.add({f"passage {number}": [(0, 3, "PERSON", 0.5)]})
            assert len(cache.look_up([f"passage {number}" for number in range(num)])) == num

        return processor_seconds(fill)

    assert seconds(640) < 16 * seconds(80)
