"""Passages: a trained NER sees each distinct passage once, the longest ones first, and none that it saw before.

A passage is a paragraph, or lines up to one that ends a sentence. Notes are copied forward passage by passage, so the
spans of a passage are kept (:mod:`reticent.engine.detect.span_cache`) and not those of a document. A recogniser of
entities looks a few words to each side, and seldom across a line that ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from reticent.engine.detect.windows import Found, Window

if TYPE_CHECKING:
    from reticent.engine.detect.span_cache import SpanCache

__all__ = ["cut_passages", "find_in_pieces"]

#: An empty line; or the end of a line that ends a sentence, and not in what is cut short ("Dr.").
_END: Final = re.compile(r"\n[^\S\n]*\n\s*|(?<=\w{4}[.!?:;])[^\S\n]*\n\s*")


def cut_passages(texts: Sequence[str], length: int) -> list[Window]:
    """Return the passages of all texts in order, none longer than ``length`` characters but for one without a cut.

    >>> text = "Seen by Dr.\\nRoy today.\\nNo pain.\\n\\nPlan"
    >>> [text[w.start : w.end] for w in cut_passages([text], 1000)]
    ['Seen by Dr.\\nRoy today.\\n', 'No pain.\\n\\n', 'Plan']
    """
    windows = []
    for document, text in enumerate(texts):
        start = 0
        for match in _END.finditer(text):
            windows.append(Window(document, start, match.end(), start, match.end()))
            start = match.end()
        if start < len(text) or not text:
            windows.append(Window(document, start, len(text), start, len(text)))
    return [part for window in windows for part in _halved(texts[window.document], window, length)]


def _halved(text: str, window: Window, length: int) -> list[Window]:
    """Cut a passage that is too long at the white space nearest before each ``length`` characters."""
    parts, start = [], window.start
    while window.end - start > length:
        end = max(text.rfind(" ", start, start + length), text.rfind("\n", start, start + length)) + 1 or start + length
        parts.append(Window(window.document, start, end, start, end))
        start = end
    return [*parts, Window(window.document, start, window.end, start, window.end)]


def find_in_pieces(
    pieces: Sequence[str], find: Callable[[list[str]], Sequence[list[Found]]], cache: SpanCache | None = None
) -> list[list[Found]]:
    """Return the spans of each piece; ``find`` is asked once for each distinct piece that has a letter or digit and is
    not in the cache, the longest first, so that those of like length go together.

    Raises
    ------
    ValueError
        ``find`` returned another number of lists than it was given pieces, or a span that does not fit its piece.

    >>> find_in_pieces(["b", "aa", "b", "--"], lambda asked: [[(0, len(a), "X", 1.0)] for a in asked])
    [[(0, 1, 'X', 1.0)], [(0, 2, 'X', 1.0)], [(0, 1, 'X', 1.0)], []]
    """
    distinct = dict.fromkeys(text for text in pieces if any(map(str.isalnum, text)))
    known: dict[str, list[Found]] = cache.look_up(list(distinct)) if cache is not None else {}
    wanted = sorted((text for text in distinct if text not in known), key=len, reverse=True)
    found = find(wanted) if wanted else ()
    if len(found) != len(wanted):
        raise ValueError(f"{len(wanted)} pieces have {len(found)} lists of spans")
    new = dict(zip(wanted, map(list, found), strict=True))
    for text, spans in new.items():
        if not all(0 <= start < end <= len(text) for start, end, *_ in spans):
            raise ValueError(f"a span does not fit its piece of {len(text)} characters")
    if cache is not None:
        cache.add(new)
    known |= new
    return [known.get(text, []) for text in pieces]
