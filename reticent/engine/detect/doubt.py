"""Doubt: names that a trained NER finds, and the corpus says are words.

A small NER takes headings ("CHIEF COMPLAINT") and fillers for names. A name is left out where each of its words is one
that the corpus writes small more often than not, in many documents (:mod:`reticent.engine.detect.common`): a name of
individuals stands in few, also where dialogues are written small. Other categories are not touched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from reticent.engine.detect.labels import category

if TYPE_CHECKING:
    from reticent._rust import CommonWords

__all__ = ["without_common_words"]

_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def without_common_words(found: pa.Table, texts: pa.Array | pa.ChunkedArray, common: CommonWords) -> pa.Table:
    """Return the spans (`BATCH_SPANS`) but for names that are all common words.

    Cost: a look-up a word of the names.
    """
    names = [category(label) == "NAME" for label in found.column("label").to_pylist()]
    rows = np.flatnonzero(names)
    columns = [found.column(name).to_numpy()[rows] for name in ("document", "start", "end")]
    read = {document: texts[document].as_py() for document in np.unique(columns[0]).tolist()} if len(rows) else {}
    words = [_WORD.findall(read[document][start:end]) for document, start, end in zip(*map(list, columns), strict=True)]
    distinct = sorted({word for of_span in words for word in of_span})
    widespread = dict(zip(distinct, common.are_widespread(pa.array(distinct, pa.string())).tolist(), strict=True))
    keep = np.ones(found.num_rows, dtype=bool)
    keep[rows] = [not of_span or not all(widespread[word] for word in of_span) for of_span in words]
    return found.filter(pa.array(keep))
