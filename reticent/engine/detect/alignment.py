"""Check that a detector's spans lie on word boundaries, and are not offsets in bytes or into another text.

Offsets that fit the text can still be wrong: a span in bytes lies further right with every accent before it, one of a
text with other line ends with every line. Identifiers are whole words, so spans that cut words give both away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from reticent.core.errors import CorpusError

#: Spans from which on a share is judged: of all spans, and of those that bytes would explain.
_MIN_SPANS: Final = 20
_MIN_SHIFTED: Final = 5


@dataclass(slots=True)
class Alignment:
    """Counts, over batches, one detector's spans that begin or end inside a word."""

    name: str
    num_spans: int = 0
    num_cutting: int = 0
    #: Of the spans after a character of more bytes than one: how many there are, cut a word, would cut one in bytes.
    num_shifted: int = 0
    num_shifted_cutting: int = 0
    num_cutting_in_bytes: int = 0

    def check(self, found: pa.Table, texts: pa.Array, first: int) -> None:
        """Count a batch's spans, and how many of them start or end inside a word. Raise `CorpusError` if more than half
        of all spans so far do. ``first`` is the row number of the batch's first document."""
        if not found.num_rows:
            return
        document, start, end = (found.column(name).to_numpy() for name in ("document", "start", "end"))
        rows, inverse = np.unique(document, return_inverse=True)
        data, doc_bytes = utf8_bytes(texts.take(pa.array(rows)))
        at = np.flatnonzero((data & 0xC0) != 0x80)  # where each character begins
        doc_chars = np.searchsorted(at, doc_bytes)
        joined = _splits_word(data)
        joined[doc_bytes] = False
        begins = np.append(at, len(data))

        first_byte, last_byte = begins[doc_chars[inverse] + start], begins[doc_chars[inverse] + end]
        cutting = joined[first_byte] | joined[last_byte]
        shifted = last_byte - doc_bytes[inverse] != end
        as_first, as_last = (np.minimum(doc_bytes[inverse] + offset, len(data)) for offset in (start, end))
        self.num_spans += len(start)
        self.num_cutting += int(cutting.sum())
        self.num_shifted += int(shifted.sum())
        self.num_shifted_cutting += int((cutting & shifted).sum())
        self.num_cutting_in_bytes += int(((joined[as_first] | joined[as_last]) & shifted).sum())
        self._raise_if_misaligned(first + len(texts))

    def _raise_if_misaligned(self, num_documents: int) -> None:
        """Raise `CorpusError` if so many spans in the first ``num_documents`` documents cut words that their offsets
        must count bytes, or belong to another text."""
        where = f"detector {self.name}, documents 1 to {num_documents}"
        if (
            self.num_shifted >= _MIN_SHIFTED
            and 2 * self.num_shifted_cutting > self.num_shifted
            and 10 * self.num_cutting_in_bytes < self.num_shifted
        ):
            raise CorpusError(
                f"{where}: {self.num_shifted_cutting} of {self.num_shifted} spans after an accent or another character "
                "of several bytes begin or end inside a word, as offsets in bytes do; they must count characters"
            )
        if self.num_spans >= _MIN_SPANS and 2 * self.num_cutting > self.num_spans:
            raise CorpusError(
                f"{where}: {self.num_cutting} of {self.num_spans} spans begin or end inside a word; are they offsets "
                "of this text, in characters?"
            )


def utf8_bytes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the concatenated UTF-8 bytes of the texts (uint8), and their byte offsets (int64, one more than texts)."""
    texts = pa.array(texts).cast(pa.large_string())
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    buffer = texts.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8)[offsets[0] : offsets[-1]] if buffer else np.empty(0, dtype=np.uint8)
    return data, offsets - offsets[0]


def _splits_word(data: np.ndarray) -> np.ndarray:
    """Return for each byte position of UTF-8 text, its end included, whether a cut there would split a word or a
    character; bool. Words are of ASCII letters and digits, and letters from U+00C0 to U+06FF; scripts without spaces
    have no word to cut."""
    letter = np.zeros(256, dtype=bool)
    for low, high in (("0", "9"), ("A", "Z"), ("a", "z")):
        letter[ord(low) : ord(high) + 1] = True
    letter[0xC3:0xDC] = True  # first bytes of U+00C0 to U+06FF
    inside = np.append((data & 0xC0) == 0x80, False)
    word = np.append(letter[data], False)
    # A byte inside a character has the class of the character's first byte.
    first_bytes = np.maximum.accumulate(np.where(inside, 0, np.arange(len(inside))))
    word = word[first_bytes]
    before = np.concatenate([[False], word[:-1]])
    return (word & before) | inside
