"""Windows: texts longer than a library takes are cut at white space into pieces that overlap.

A span belongs to the piece in which it begins and is farther from the cut than in the other, so each is taken once,
and one that is shorter than half the overlap is seen whole by the piece it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reticent.engine.detect import spans_batch

__all__ = ["Found", "Window", "cut_texts", "join_spans"]

#: start, end, label and score of a span in its window.
Found = tuple[int, int, str, float]


class Window(NamedTuple):
    """Characters ``start`` to ``end`` of a document; it owns the spans that begin from ``first`` up to ``last``."""

    document: int
    start: int
    end: int
    first: int
    last: int


def cut_texts(texts: Sequence[str], length: int, overlap: int) -> list[Window]:
    """Return the windows of all texts in order; a text of at most ``length`` characters is one.

    >>> ["one two six ten"[w.start : w.end] for w in cut_texts(["one two six ten"], 9, 4)]
    ['one two ', 'two six ', 'six ten']
    """
    windows = []
    for document, text in enumerate(texts):
        start = first = 0
        while len(text) - start > length:
            end = _after_space(text, start + length, start + length // 2)
            following = max(_after_space(text, end - overlap, end - 2 * overlap), start + 1)
            last = _after_space(text, (following + end) // 2, following)
            windows.append(Window(document, start, end, first, last))
            start, first = following, last
        windows.append(Window(document, start, len(text), first, len(text)))
    return windows


def _after_space(text: str, at: int, lowest: int) -> int:
    """Largest offset up to ``at`` that follows white space; ``at`` where there is none above ``lowest``."""
    for offset in range(at, max(lowest, 0), -1):
        if text[offset - 1].isspace():
            return offset
    return at


def join_spans(windows: Sequence[Window], found: Sequence[Sequence[Found]]) -> pa.Table:
    """Return `BATCH_SPANS` of the spans of all windows, each span once."""
    rows = [
        (window.document, window.start + start, window.start + end, label, score)
        for window, spans in zip(windows, found, strict=True)
        for start, end, label, score in spans
        if window.first <= window.start + start < window.last
    ]
    document, start, end, label, score = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    numbers = np.array([document, start, end], dtype=np.int64)
    return spans_batch(numbers[0], numbers[1], numbers[2], pa.array(label, pa.string()), np.array(score, np.float32))
