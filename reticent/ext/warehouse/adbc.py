"""Any database with an ADBC driver as a source: one statement, whose rows are read as they arrive.

``adbc://NAME`` is a connection profile of the ADBC driver manager. It is a file NAME.toml with the driver and its
options; credentials come from the environment. One statement is one snapshot, and therefore one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from reticent.core.errors import PolicyError
from reticent.engine.sources.columns import require_columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown
from reticent.ext.warehouse.database import Connection, Selection

__all__ = ["AdbcDatabase"]


class AdbcDatabase:
    """Documents of one statement; a `Source`.

    Parameters
    ----------
    settings : the address, and the table, query or preset
    scratch : not used
    """

    passed_over = 0

    def __init__(self, settings: CorpusConfig, scratch: Path):
        self._settings, self._profile = settings, str(settings.remote).partition("://")[2]
        self.name = f"{shown(str(settings.remote))} {settings.table or settings.preset or 'query'}"
        self._held: Connection | None = None
        self._read_at = ""

    def version(self) -> bytes:
        """Return the time of the first call: a driver names no snapshot."""
        self._read_at = self._read_at or datetime.now(UTC).isoformat(timespec="seconds")
        return self._read_at.encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns; every part but the first is empty. Raises as `Source.batches` does."""
        if part:
            return
        settings = self._settings
        selection = Selection.of(settings.table, settings.query, settings.preset, columns)
        # Databases quote names in different ways. A query for all columns needs no names.
        chosen = None
        if selection.expressions is not None:
            chosen = {name: selection.expression(name) for name in columns}
        staying = selection.staying(settings.individual_id, settings.opt_out)
        for batch in self._hold().batches(selection.statement(chosen, staying, quote=str), batch_rows):
            names = {name.lower(): name for name in batch.schema.names}  # some databases return names in capitals
            present = [names.get(name.lower(), name) for name in columns]
            require_columns(batch.schema.names, present, self.name)
            yield pa.record_batch([batch.column(name) for name in present], names=list(columns))

    def close(self) -> None:
        """End the connection."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _hold(self) -> Connection:
        try:
            from adbc_driver_manager import dbapi
        except ImportError:
            raise PolicyError("corpus.source: ADBC needs its driver manager; pip install adbc-driver-manager") from None

        def connect() -> Any:
            return dbapi.connect(profile=self._profile, autocommit=True)

        if self._held is None:
            self._held = Connection(self.name, connect)
        return self._held
