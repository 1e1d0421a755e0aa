"""Context: names in running text that stand in no header and behind no title, by the words around them.

"his wife Anna", "Roy denies pain", "Anna Roy is a 43-year-old woman", "Dear Anna", "se llama Ana", an initial within, a
line above an address, a list with a name in it, "dr. roy" in a dialogue typed small: in English, French, Spanish and
German. What makes a word with a capital no name is learned from the corpus: it writes the word in small letters too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from reticent import _rust
from reticent.engine.detect.common import read_common_words
from reticent.engine.detect.detector import spans_batch

if TYPE_CHECKING:
    from reticent._rust import CommonWords

__all__ = ["ContextDetector"]


class ContextDetector:
    """Names that the words around them announce. The label is NAME.

    Parameters
    ----------
    common : path, optional
        Text file of words that are no names, one a line; by default they are learned from the corpus, in a pass of its
        own. A text that is looked at alone (in the guard) has no corpus: there only what stands before a name counts.

    >>> detector = ContextDetector()
    >>> batch = pa.record_batch({"text": ["He came with his wife Anna Roy."]})
    >>> detector.detect(batch).select(["start", "end", "label"]).to_pylist()
    [{'start': 22, 'end': 30, 'label': 'NAME'}]
    """

    name = "context"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(self, *, common: str | Path | None = None, num_threads: int = 0):
        self.num_threads = num_threads
        #: None until they are learned.
        self.common_words: CommonWords | None = read_common_words(common) if common is not None else None

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        texts = batch.column("text")
        found = pa.record_batch(_rust.find_running(texts, common=self.common_words, num_threads=self.num_threads))
        return spans_batch(*(found.column(name) for name in ("document", "start", "end", "label")))
