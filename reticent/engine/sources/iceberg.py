"""An Iceberg table as a source, at one of its snapshots: ``iceberg://CATALOGUE/namespace.table``.

The catalogue is one of pyiceberg's own configuration, which has the credentials too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.remote_config import shown

__all__ = ["IcebergSource"]


class IcebergSource:
    """The rows of an Iceberg table at a snapshot, the current one unless one is given; a `Source`.

    Parameters
    ----------
    settings : the address, and perhaps the id of a snapshot
    scratch : not used
    """

    passed_over = 0

    def __init__(self, settings: CorpusConfig, scratch: Path):
        self._settings, self.name = settings, shown(str(settings.remote))
        self._table: Any = None
        self._snapshot = 0

    def version(self) -> bytes:
        """Return the id of the snapshot."""
        self._open()
        return f"snapshot {self._snapshot}".encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns; every part but the first is empty. Raises as `Source.batches` does."""
        if part:
            return
        table = self._open()
        try:
            schema = table.scan(snapshot_id=self._snapshot).projection().as_arrow()
        except Exception as error:
            raise self._failure(error, "cannot be read") from None
        require_columns(schema.names, columns, self.name)
        for batch in self._scan(table, columns):
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows).select(list(columns))

    def _scan(self, table: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            scan = table.scan(snapshot_id=self._snapshot, selected_fields=tuple(columns))
            yield from scan.to_arrow_batch_reader()
        except Exception as error:
            raise self._failure(error, "a file of this snapshot cannot be read") from None

    def close(self) -> None:
        """Nothing is held open."""

    def _open(self) -> Any:
        if self._table is None:
            try:
                from pyiceberg.catalog import load_catalog
            except ImportError:
                raise PolicyError("corpus.source: Iceberg needs a library; pip install 'reticent[lake]'") from None
            wanted = self._settings.version
            if wanted is not None and not wanted.isdecimal():
                raise PolicyError("corpus.version: expected the id of a snapshot of the Iceberg table")
            catalogue, _, name = str(self._settings.remote).partition("://")[2].partition("/")
            try:
                table = load_catalog(catalogue).load_table(name)
                found = table.current_snapshot() if wanted is None else table.snapshot_by_id(int(wanted))
            except Exception as error:
                raise self._failure(error, "cannot be opened") from None
            if found is None:
                raise CorpusError(
                    f"{self.name}: {'no snapshot' if wanted is None else f'snapshot {wanted} is not there'}"
                )
            self._table, self._snapshot = table, found.snapshot_id
        return self._table

    def _failure(self, error: Exception, said: str) -> CorpusError:
        return CorpusError(f"{self.name}: {said} ({type(error).__name__})")
