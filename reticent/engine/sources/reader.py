"""The columns of `DOCUMENTS` from the fragments of a source: mapped, cast and checked, value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.columns import REQUIRED, SOURCE_COLUMN, NullError, canonical
from reticent.engine.sources.config import Columns
from reticent.engine.sources.nulls import count_nulls
from reticent.engine.sources.source import Fragment, LocalSource, Request

__all__ = ["Reader"]


@dataclass(frozen=True)
class Reader:
    """How documents are read from a source.

    Parameters
    ----------
    fold : read ids of individuals and households in their folded form
    null_texts : a text may be null; else it is an error, which counts all nulls of the source
    """

    source: LocalSource
    columns: Columns
    fold: bool
    null_texts: bool

    def read(
        self,
        fragment: Fragment,
        columns: Sequence[str],
        batch_rows: int,
        row_groups: Sequence[int] | None = None,
        row: int = 0,
        repaired: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a fragment; one that is not mapped is skipped.

        Parameters
        ----------
        row_groups, row : those to read, and the number of the first row in them, for errors
        repaired : counts repairs, by kind
        """
        mapped = {name: self.column_of(name) for name in columns}
        wanted = {name: column for name, column in mapped.items() if column is not None}
        request = Request(
            columns=list(dict.fromkeys(wanted.values())),
            batch_rows=batch_rows,
            row_groups=row_groups,
            large=[wanted["text"]] if "text" in wanted else [],
            repaired=Counter() if repaired is None else repaired,
        )
        for batch in fragment.read(request):
            try:
                checked = canonical(batch, wanted, fragment.place, row, fold=self.fold, null_texts=self.null_texts)
            except NullError as error:
                raise CorpusError(f"{error}{self._all_nulls}") from None
            yield checked
            row += batch.num_rows

    def column_of(self, name: str) -> str | None:
        """Return the source's name of a column; None where it has none."""
        is_of_source = name.startswith(SOURCE_COLUMN)
        return name.removeprefix(SOURCE_COLUMN) if is_of_source else getattr(self.columns, name)

    @cached_property
    def _all_nulls(self) -> str:
        columns = list(dict.fromkeys(getattr(self.columns, name) for name in REQUIRED))
        batches = ((fragment.place, fragment.read(Request(columns=columns))) for fragment in self.source.fragments)
        return count_nulls(batches, columns, self.columns.text)
