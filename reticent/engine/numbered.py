"""Words and spans as numbers: what protection needs of a text, so that another k, n or policy reads none.

*Words* (``words.bin``, ``word_ends.bin``) are the rows that the words of each document have in an index: three bytes
each, four where the index has more words than three count, all bits set for a word that it does not hold. *Word spans*
(``span_firsts.bin``, ``span_ends.bin``) are the words of its document that each span meets, by the rows of the table
of spans. Files are raw little-endian numbers, mapped when they are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.core.written import HashedFile
from reticent.engine.packed import mapped_column

if TYPE_CHECKING:
    from reticent._rust import MarkedSpans

__all__ = ["NumberedWords", "SpanWriter", "WordSpans", "WordWriter"]

WORDS, WORD_ENDS = "words.bin", "word_ends.bin"
FIRSTS, ENDS = "span_firsts.bin", "span_ends.bin"


class WordWriter:
    """Appends the numbers of the words of documents to a folder."""

    def __init__(self, folder: Path):
        self.num_words = 0
        self._words, self._ends = HashedFile(folder / WORDS), HashedFile(folder / WORD_ENDS)

    def write(self, numbers: np.ndarray, doc_offsets: np.ndarray) -> None:
        """Append documents: the bytes of all numbers, uint8, and words before each document, int64 (D + 1,)."""
        self._words.write(numbers)
        self._ends.write(np.ascontiguousarray(doc_offsets[1:] + self.num_words, dtype="<i8"))
        self.num_words += int(doc_offsets[-1])

    def close(self) -> None:
        self._words.close()
        self._ends.close()


class NumberedWords:
    """The numbers of the words of all documents.

    Attributes
    ----------
    doc_offsets : int64 array, shape (num_documents + 1,)
    width : int, bytes a number
    """

    def __init__(self, folder: Path):
        try:
            num_documents = (folder / WORD_ENDS).stat().st_size // 8
            num_bytes = (folder / WORDS).stat().st_size
        except OSError as error:
            raise ArtifactError(f"{folder}: word numbers that cannot be read ({type(error).__name__})") from None
        ends = mapped_column(folder / WORD_ENDS, np.dtype("<i8"), num_documents)
        self.doc_offsets = np.concatenate([[0], ends]).astype(np.int64)
        num_words = int(self.doc_offsets[-1])
        self.width = num_bytes // num_words if num_words > 0 else 3
        if self.width not in (3, 4) or (np.diff(self.doc_offsets) < 0).any():
            raise ArtifactError(f"{folder}: word numbers do not fit their documents; damaged, run protect again")
        self._bytes = mapped_column(folder / WORDS, np.dtype("u1"), num_words * self.width)

    @property
    def num_documents(self) -> int:
        return len(self.doc_offsets) - 1

    def of(self, first: int, end: int) -> np.ndarray:
        """Return the bytes of the numbers of the documents from ``first`` to ``end``."""
        start, stop = self.doc_offsets[[first, end]] * self.width
        return self._bytes[start:stop]


class SpanWriter:
    """Appends the words that spans meet to a folder."""

    def __init__(self, folder: Path):
        self._firsts, self._ends = HashedFile(folder / FIRSTS), HashedFile(folder / ENDS)

    def write(self, marked: MarkedSpans) -> None:
        """Append the spans of some documents."""
        self._firsts.write(marked.firsts)
        self._ends.write(marked.ends)

    def close(self) -> None:
        self._firsts.close()
        self._ends.close()


class WordSpans:
    """The words that spans meet, ``first:end`` in their document: uint32 arrays, shape (num_spans,)."""

    def __init__(self, folder: Path):
        try:
            num_spans = (folder / FIRSTS).stat().st_size // 4
        except OSError as error:
            raise ArtifactError(f"{folder}: word spans that cannot be read ({type(error).__name__})") from None
        self.firsts, self.ends = (mapped_column(folder / name, np.dtype("<u4"), num_spans) for name in (FIRSTS, ENDS))
