"""A pass over documents before surrogates are drawn: real identifiers, date order and language."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.engine.languages import LanguageCount
from reticent.engine.names import SurrogateNames
from reticent.engine.pseudonymize import DateOptions, SpanArrays, category_codes


@dataclass(frozen=True, slots=True)
class Survey:
    """Properties of a corpus that its surrogates depend on.

    Attributes
    ----------
    identifiers : uint64 array, ascending: hashes of the names and ids that were found (`_rust.real_identifiers`)
    date_order : "dmy" or "mdy", as most dates that only have one reading
    language : see `LanguageCount.most`
    """

    identifiers: np.ndarray
    date_order: Literal["dmy", "mdy"]
    language: str | None

    def options(self, names: SurrogateNames, dates: DateOptions | None = None) -> dict[str, Any]:
        """Return the corpus-dependent keyword arguments of `pseudonymise_batch`: identifiers to avoid, date order and
        name pool."""
        given = dates or DateOptions()
        read = DateOptions(shift_days=given.shift_days, order=given.order, otherwise=self.date_order)
        return {"avoid": self.identifiers, "dates": read, "names": names.pool(self.language)}


def survey_documents(batches: Iterable[tuple[pa.Array, SpanArrays]], *, num_threads: int = 0) -> Survey:
    """Return the corpus properties that surrogates depend on (real identifiers, date order, language), from batches of
    texts with their identifier spans.

    Cost: one pass over the text; 8 bytes for each distinct name or id.
    """

    known = np.zeros(0, dtype=np.uint64)
    waiting: list[np.ndarray] = []
    day_first = month_first = 0
    languages = LanguageCount()
    for texts, (offsets, starts, ends, labels) in batches:
        codes, categories = category_codes(labels)
        found, days, months = _rust.real_identifiers(
            texts, offsets, starts, ends, codes, categories, num_threads=num_threads
        )
        day_first, month_first = day_first + days, month_first + months
        languages.add(texts)
        waiting.append(found)
        if sum(map(len, waiting)) > len(known) + (1 << 20):
            known, waiting = np.unique(np.concatenate([known, *waiting])), []
    identifiers = np.unique(np.concatenate([known, *waiting]))
    return Survey(identifiers, "dmy" if day_first > month_first else "mdy", languages.most)
