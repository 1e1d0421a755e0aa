"""The benchmark of taggers: a name that repeats in a note is found as in a run."""

from __future__ import annotations

from benchmarks.learned import Notes, _rows, _spread


def test_a_name_that_is_found_once_is_found_again_in_the_same_note() -> None:
    """Also in a dialogue in small letters, where nothing but the other mention tells it."""
    text = "[doctor] hi ms. Trubman\n[patient] hello\n[doctor] so trubman tell me about your headache\n"
    notes = Notes.of([(text, [(16, 23, "NAME"), (52, 59, "NAME")])])
    found = notes.found_by("shipped")
    starts = {start for _, start, *_ in _rows(found)}
    assert 52 not in starts, "the tagger finds it alone: take another text"
    assert {start for _, start, *_ in _rows(_spread(notes, found))} == starts | {52}
