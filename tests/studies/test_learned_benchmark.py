"""The benchmark of taggers: what it times is read once, and a name that repeats in a note is found as in a run."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.learned import FAST, Notes, _rows, _spread, speed
from reticent.engine.detect.learned import Tagger


def test_rules_records_and_tagger_are_timed_with_one_pass_of_the_tagger(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but while a tagger reads, a second a text."""
    seconds, find = 0.0, Tagger.find

    def slow_find(tagger: Tagger, texts: pa.Array, *rest: Any, **options: Any) -> pa.Table:
        nonlocal seconds
        seconds += len(texts)
        return find(tagger, texts, *rest, **options)

    monkeypatch.setattr(Tagger, "find", slow_find)
    monkeypatch.setattr(time, "process_time", lambda: seconds)
    rates = speed("toy")
    assert rates[FAST]["median"] == pytest.approx(rates["alone"]["median"], rel=0.02)


def test_a_name_that_is_found_once_is_found_again_in_the_same_note() -> None:
    """Also in a dialogue in small letters, where nothing but the other mention tells it."""
    text = "[doctor] hi ms. Trubman\n[patient] hello\n[doctor] so trubman tell me about your headache\n"
    notes = Notes.of([(text, [(16, 23, "NAME"), (52, 59, "NAME")])])
    found = notes.found_by("shipped")
    starts = {start for _, start, *_ in _rows(found)}
    assert 52 not in starts, "the tagger finds it alone: take another text"
    assert {start for _, start, *_ in _rows(_spread(notes, found))} == starts | {52}
