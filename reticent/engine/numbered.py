"""Words and spans as numbers: what protection needs of a text, so that another k, n or policy reads none.

*Words* (``words.bin``, ``word_ends.bin``) are the rows that the words of each document have in an index: three bytes
each, four where the index has more words than three count, all bits set for a word that it does not hold. *Word spans*
(``span_firsts.bin``, ``span_ends.bin``) are the words of its document that each span meets, by the rows of the table
of spans, with the label of each (``span_labels.bin``, two bytes, by place in ``labels.json``) and how many there are up
to the end of each document (``span_counts.bin``). Files are raw little-endian numbers, mapped when they are read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.core.written import HashedFile
from reticent.engine.packed import mapped_column

__all__ = ["NumberedWords", "SpanWriter", "WordSpans", "WordWriter"]

WORDS, WORD_ENDS = "words.bin", "word_ends.bin"
FIRSTS, ENDS, LABELS, COUNTS = (f"span_{name}.bin" for name in ("firsts", "ends", "labels", "counts"))
#: The labels of spans, in the order in which they first appear.
LABEL_NAMES = "labels.json"


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
        self._folder, self._codes, self._num_spans = folder, dict[str, int](), 0
        self._files = [HashedFile(folder / name) for name in (FIRSTS, ENDS, LABELS, COUNTS)]

    def write(self, offsets: np.ndarray, firsts: np.ndarray, ends: np.ndarray, labels: pa.Array) -> None:
        """Append the spans of some documents.

        Parameters
        ----------
        offsets : int64 array, shape (D + 1,)
            Spans before each document.
        firsts, ends : uint32 arrays, shape (S,)
        labels : string array, shape (S,)
        """
        encoded = labels.dictionary_encode()
        codes = np.array([self._code(label) for label in encoded.dictionary.to_pylist()], dtype="<u2")
        counts = (offsets[1:] + self._num_spans).astype("<i8")
        self._num_spans += int(offsets[-1])
        columns = firsts, ends, codes[encoded.indices.to_numpy()], counts
        for file, column in zip(self._files, columns, strict=True):
            file.write(np.ascontiguousarray(column))

    def _code(self, label: str) -> int:
        code = self._codes.setdefault(label, len(self._codes))
        if code > np.iinfo(np.uint16).max:
            raise ArtifactError(f"{self._folder}: spans have more than 65,536 different labels")
        return code

    def close(self) -> None:
        for file in self._files:
            file.close()
        (self._folder / LABEL_NAMES).write_text(json.dumps(list(self._codes)), encoding="utf-8")


class WordSpans:
    """The words that the spans of all documents meet.

    Attributes
    ----------
    doc_offsets : int64 array, shape (num_documents + 1,)
        Spans before each document.
    firsts, ends : uint32 arrays, shape (num_spans,)
        The words ``first:end`` of its document that a span meets.
    labels : uint16 array, shape (num_spans,)
        Places in ``names``.
    names : list of str
    """

    def __init__(self, folder: Path):
        try:
            num_documents = (folder / COUNTS).stat().st_size // 8
            self.names = [str(name) for name in json.loads((folder / LABEL_NAMES).read_text(encoding="utf-8"))]
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{folder}: word spans that cannot be read ({type(error).__name__})") from None
        counts = mapped_column(folder / COUNTS, np.dtype("<i8"), num_documents)
        self.doc_offsets = np.concatenate([[0], counts]).astype(np.int64)
        num_spans = int(self.doc_offsets[-1])
        columns = ((FIRSTS, "<u4"), (ENDS, "<u4"), (LABELS, "<u2"))
        self.firsts, self.ends, self.labels = (
            mapped_column(folder / name, np.dtype(dtype), num_spans) for name, dtype in columns
        )
        if (np.diff(self.doc_offsets) < 0).any() or self.labels.max(initial=0) >= max(len(self.names), 1):
            raise ArtifactError(f"{folder}: word spans do not fit their documents; damaged, run protect again")
