"""Taggers of the package: names, places and what else has no form, in English, French, German and Spanish notes.

`tools/train_taggers.py` makes them, from notes about invented people. They read what rules and context find beside
them, where these are.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from reticent.engine.detect.detector import BATCH_SPANS, FOUND
from reticent.engine.detect.learned import Tagger, read_tagger
from reticent.engine.languages import KNOWN, told_of_known

__all__ = ["ShippedDetector", "shipped_tagger"]

FOLDER: Final = Path(__file__).parent / "taggers"


@cache
def shipped_tagger(language: str) -> Tagger:
    """Return the tagger of a language of `KNOWN`."""
    return read_tagger(FOLDER / f"{language}.parquet")


class ShippedDetector:
    """What the tagger of each document's language finds; in another language, nothing.

    >>> batch = pa.record_batch({"text": ["Later Melinda Hargrove told the nurse that she was well."]})
    >>> ShippedDetector().detect(batch).select(["start", "end", "label"]).to_pylist()
    [{'start': 6, 'end': 22, 'label': 'NAME'}]
    """

    name = "shipped"
    columns: tuple[str, ...] = ()
    exact_offsets = True

    def __init__(self, *, num_threads: int = 0):
        self.num_threads = num_threads

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the spans of a batch with no other detector beside it."""
        return self.detect_beside(batch, FOUND.empty_table())

    def detect_beside(self, batch: pa.RecordBatch, found: pa.Table) -> pa.Table:
        """Return the spans of a batch (`BATCH_SPANS`), in which other detectors found these (`FOUND`)."""
        texts = batch.column("text")
        language = told_of_known(texts)
        tables = [BATCH_SPANS.empty_table()]
        for number in np.unique(language[language >= 0]).tolist():
            rows = np.flatnonzero(language == number)
            place = np.full(len(texts), -1, dtype=np.int64)
            place[rows] = np.arange(len(rows))
            document = place[found.column("document").to_numpy()]
            own = found.set_column(0, FOUND.field(0), pa.array(document)).filter(pa.array(document >= 0))
            spans = shipped_tagger(KNOWN[number]).find(texts.take(pa.array(rows)), own, num_threads=self.num_threads)
            at = pa.array(rows).take(spans.column("document").combine_chunks())
            tables.append(spans.set_column(0, BATCH_SPANS.field(0), at))
        return pa.concat_tables(tables).sort_by([("document", "ascending"), ("start", "ascending")])
