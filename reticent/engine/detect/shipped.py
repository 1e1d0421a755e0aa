"""Built-in taggers for names, places and other identifiers without a fixed form: English, French, German, Spanish.

`tools/train_taggers.py` makes them, from notes about invented people. They read what the rules find beside them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.engine.detect.common import read_common_words, without_common_words
from reticent.engine.detect.detector import BATCH_SPANS, FOUND, found_in, texts_of
from reticent.engine.detect.learned import Tagger, read_tagger
from reticent.engine.languages import KNOWN, known_languages

if TYPE_CHECKING:
    from reticent._rust import CommonWords

#: Categories whose values have no form that a rule could know.
FORMLESS: Final = ("NAME", "LOCATION", "ORGANIZATION", "PROFESSION")
FOLDER: Final = Path(__file__).parent / "taggers"


@cache
def shipped_tagger(language: str) -> Tagger:
    """Return the trained tagger that the package includes for a language ("en", "fr", "de" or "es")."""
    return read_tagger(FOLDER / f"{language}.parquet")


class ShippedDetector:
    """Detects names, places and organisations with a tagger for the document's language, if there is one.

    A name of words that are of a thing ("a Roy catheter"), or that the corpus writes small in many documents, is none.

    Parameters
    ----------
    common : path, optional
        Text file of words that are no names, one a line; by default they are learned from the corpus.

    >>> batch = pa.record_batch({"text": ["She was seen with her wife Melinda Hargrove and is well."]})
    >>> ShippedDetector().detect(batch).select(["start", "end", "label"]).to_pylist()
    [{'start': 27, 'end': 43, 'label': 'NAME'}]
    """

    name = "shipped"
    columns: tuple[str, ...] = ()
    exact_offsets = True
    #: A word of many documents is one of many of the sample.
    learns_from_sample = True

    def __init__(self, *, common: str | Path | None = None, num_threads: int = 0):
        self.num_threads = num_threads
        #: None until they are learned.
        self.common_words: CommonWords | None = read_common_words(common) if common is not None else None

    def detect(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the spans predicted in a batch (schema `BATCH_SPANS`), without other detectors' spans as features."""
        return self.detect_beside(batch, FOUND.empty_table())

    def detect_beside(self, batch: pa.RecordBatch, found: pa.Table) -> pa.Table:
        """Return the spans predicted in a batch (schema `BATCH_SPANS`), each document by its language's tagger, with
        other detectors' spans ``found`` (schema `FOUND`) as features."""
        texts = texts_of(batch)
        language = known_languages(texts)
        tables = [BATCH_SPANS.empty_table()]
        for number in np.unique(language[language >= 0]).tolist():
            rows, tagger = np.flatnonzero(language == number), shipped_tagger(KNOWN[number])
            if len(rows) == len(texts):  # mostly
                tables.append(tagger.find(texts, found, num_threads=self.num_threads))
                continue
            spans = tagger.find(texts.take(pa.array(rows)), found_in(found, rows), num_threads=self.num_threads)
            at = pa.array(rows).take(spans.column("document").combine_chunks())
            tables.append(spans.set_column(0, BATCH_SPANS.field(0), at))
        spans = _refine_spans(pa.concat_tables(tables), texts, self.num_threads)
        if self.common_words is not None:
            spans = without_common_words(spans, texts, self.common_words)
        return spans.sort_by([("document", "ascending"), ("start", "ascending")])


def _refine_spans(spans: pa.Table, texts: pa.Array, num_threads: int = 0) -> pa.Table:
    """Return the spans of categories without a fixed form (`FORMLESS`, such as names), corrected: a name includes a
    following initial ("Anna T."), and spans without a letter and names with a number ("EVA 7/10") or of things ("a Roy
    catheter") are dropped. ``spans`` are grouped by document, with ascending starts."""
    spans = spans.filter(pc.is_in(spans.column("label"), pa.array(FORMLESS)))
    documents, starts, ends = (spans.column(name).to_numpy() for name in ("document", "start", "end"))
    are_names = pc.equal(spans.column("label"), "NAME").to_numpy(zero_copy_only=False).astype(bool)
    ends, kept = _rust.refine_formless(texts, documents, starts, ends, are_names, num_threads=num_threads)
    spans = spans.set_column(spans.schema.get_field_index("end"), BATCH_SPANS.field("end"), pa.array(ends))
    return spans.filter(pa.array(kept))
