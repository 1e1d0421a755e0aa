"""Words and identifier spans of documents as numbers, so that protection by another k, n or policy reads no text.

*Words* (``words.bin``, ``word_ends.bin``) are the rows that the words of each document have in an index: as many bits
each as its rows need, all set for a word that it does not hold. The first byte of the file says how many, and each
document begins with a byte of its own. *Word spans*
(``span_firsts.bin``, ``span_ends.bin``) are the words of its document that each span meets, by the rows of the table
of spans, with the label of each (``span_labels.bin``, two bytes, by place in ``labels.json``) and how many there are up
to the end of each document (``span_counts.bin``). Files are raw little-endian numbers, mapped when they are read.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.artifact import HashedFile
from reticent.core.errors import ArtifactError
from reticent.engine.packed import mapped_column

WORDS, WORD_ENDS = "words.bin", "word_ends.bin"
FIRSTS, ENDS, LABELS, COUNTS = (f"span_{name}.bin" for name in ("firsts", "ends", "labels", "counts"))
#: The labels of spans, in the order in which they first appear.
LABEL_NAMES = "labels.json"


class WordWriter:
    """Appends documents' word numbers (index rows) to a folder; ``num_listed`` is the number of indexed words."""

    def __init__(self, folder: Path, num_listed: int):
        self.num_words = 0
        # Also for one more than the last row, which stands for a word that the index does not hold.
        self._bits = max(num_listed.bit_length(), 1)
        self._words, self._ends = HashedFile(folder / WORDS), HashedFile(folder / WORD_ENDS)
        self._words.write(np.array([self._bits], dtype=np.uint8))

    def write(self, numbers: np.ndarray, doc_offsets: np.ndarray) -> None:
        """Append the words of documents, each as its row in the n-gram index (``numbers``, uint32); ``doc_offsets``,
        int64 (D + 1,), bounds the documents."""

        self._words.write(_rust.pack_numbers(numbers, doc_offsets, self._bits))
        self._ends.write(np.ascontiguousarray(doc_offsets[1:] + self.num_words, dtype="<i8"))
        self.num_words += int(doc_offsets[-1])

    def close(self) -> None:
        """Close the files."""
        self._words.close()
        self._ends.close()


class NumberedWords:
    """The word numbers of all documents, bit-packed and memory-mapped from a folder.

    Attributes
    ----------
    doc_offsets : int64 array, shape (num_documents + 1,)
        Words before each document.
    first_bytes : int64 array, shape (num_documents + 1,)
        The first byte of each document in ``stored``, and the end.
    stored : the bytes of the file, uint8, and the bits of a number
    """

    def __init__(self, folder: Path):
        try:
            num_documents = (folder / WORD_ENDS).stat().st_size // 8
            num_bytes = (folder / WORDS).stat().st_size
        except OSError as error:
            raise ArtifactError(f"{folder}: word numbers that cannot be read ({type(error).__name__})") from None
        ends = mapped_column(folder / WORD_ENDS, np.dtype("<i8"), num_documents)
        self.doc_offsets = np.concatenate([[0], ends]).astype(np.int64)
        packed = mapped_column(folder / WORDS, np.dtype("u1"), num_bytes)
        bits, lengths = int(packed[0]) if num_bytes else 0, np.diff(self.doc_offsets)
        self.first_bytes = 1 + np.concatenate([[0], np.cumsum(-(-lengths * bits // 8))]).astype(np.int64)
        if not 1 <= bits <= 32 or (lengths < 0).any() or self.first_bytes[-1] != num_bytes:
            raise ArtifactError(f"{folder}: word numbers do not fit their documents; damaged, run protect again")
        self.stored = packed, bits

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.doc_offsets) - 1

    def index_rows(self, documents: np.ndarray) -> np.ndarray:
        """Return the index rows of all words of these documents, concatenated, uint32."""

        lengths = self.doc_offsets[documents + 1] - self.doc_offsets[documents]
        return _rust.unpack_numbers(*self.stored, self.first_bytes[documents], lengths)


class SpanWriter:
    """Appends the word ranges that identifier spans cover, with their labels, to a folder."""

    def __init__(self, folder: Path):
        self._folder, self._codes, self._num_spans = folder, dict[str, int](), 0
        self._files = [HashedFile(folder / name) for name in (FIRSTS, ENDS, LABELS, COUNTS)]

    def write(self, offsets: np.ndarray, firsts: np.ndarray, ends: np.ndarray, labels: pa.Array) -> None:
        """Append the identifier spans of documents, as ranges of word numbers.

        Parameters
        ----------
        offsets : int64 array, shape (D + 1,)
            Spans before each document.
        firsts, ends : uint32 arrays, shape (S,)
        labels : string array, shape (S,)
        """
        encoded = labels.dictionary_encode()
        codes = np.array([self._label_code(label) for label in encoded.dictionary.to_pylist()], dtype="<u2")
        counts = (offsets[1:] + self._num_spans).astype("<i8")
        self._num_spans += int(offsets[-1])
        columns = firsts, ends, codes[encoded.indices.to_numpy()], counts
        for file, column in zip(self._files, columns, strict=True):
            file.write(np.ascontiguousarray(column))

    def _label_code(self, label: str) -> int:
        """Return the integer code of a label; a new label gets the next code."""
        code = self._codes.setdefault(label, len(self._codes))
        if code > np.iinfo(np.uint16).max:
            raise ArtifactError(f"{self._folder}: spans have more than 65,536 different labels")
        return code

    def close(self) -> None:
        """Close the files, and write the labels that the codes stand for."""
        for file in self._files:
            file.close()
        (self._folder / LABEL_NAMES).write_text(json.dumps(list(self._codes)), encoding="utf-8")


class WordSpans:
    """The word ranges that the identifier spans of all documents cover, memory-mapped from a folder.

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
