"""Any database with an ADBC driver as a source: one statement, whose rows are read as they arrive.

``adbc://NAME`` is a connection profile of the ADBC driver manager. It is a file NAME.toml with the driver and its
options; credentials come from the environment. One statement is one snapshot, and therefore one part. A table of who
withdrew is read before it, in the same transaction where the database has them. Whether the database hides rows from
the role cannot be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import canonical, plain_ids, require_columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown
from reticent.ext.warehouse.database import Connection, Selection, literal

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
        self._gone: list[str] = []

    #: What a manifest says of rows that the database may hide.
    row_security = "not known: this database cannot be asked whether it hides rows"

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
        yield from self._read(columns, batch_rows)

    def ids_of(self, table: str | None) -> pa.Array:
        """Return the distinct ids in a register, or of the individuals of the notes."""
        name, where = self._settings.individual_id, f"{self.name} {table or ''}".rstrip()
        selection = self._selection([name])
        if table is not None:
            selection = selection.of_register(table, name)
        column = self._written(selection, name)
        statement = selection.statement({name: column}, f"{column} IS NOT NULL", quote=str, distinct=True)
        found = [pa.array([], pa.string())]
        try:
            for batch in self._hold().batches(statement, 1 << 16):
                plain = pa.record_batch([plain_ids(batch.column(0))], names=[name])
                found.append(canonical(plain, {"individual_id": name}, where, 0).column(0))
        except CorpusError as error:
            raise CorpusError(str(error).replace(self.name, where, 1)) from None
        return pa.concat_arrays(found).unique()

    def leave_out(self, ids: pa.Array) -> None:
        """Read no document of these individuals from now on."""
        self._gone = ids.to_pylist()

    def left_out(self) -> Iterator[pa.RecordBatch]:
        """Yield doc_id and individual_id of each document left out; digests of texts are not made by every database."""
        names = self._settings
        for batch in self._read([names.doc_id, names.individual_id], 1 << 16, gone=True) if self._gone else ():
            ids = [plain_ids(column).cast(pa.string()) for column in batch.columns]
            yield pa.record_batch(
                [*ids, pa.nulls(len(batch), pa.binary())], names=["doc_id", "individual_id", "sha256"]
            )

    def query_of(self, column: str, condition: str | None = None) -> str:
        """Return a query that finds rows of a fault."""
        return self._selection([column]).query_of(column, condition)

    def _selection(self, columns: Sequence[str]) -> Selection:
        return Selection.of(self._settings.table, self._settings.query, self._settings.preset, columns)

    def _written(self, selection: Selection, name: str) -> str:
        """The expression of a column. Databases quote names in different ways; without quotes each finds its own."""
        return selection.expressions[name] if selection.expressions is not None else f"n.{name}"

    def _read(self, columns: Sequence[str], batch_rows: int, gone: bool = False) -> Iterator[pa.RecordBatch]:
        selection = self._selection(columns)
        chosen = None
        if selection.expressions is not None or gone:
            chosen = {name: self._written(selection, name) for name in columns}
        owner = self._written(selection, self._settings.individual_id) if self._gone else ""
        if gone:
            condition = " OR ".join(f"{owner} IN ({part})" for part in _literals(self._gone))
        else:
            apart = " AND ".join(f"{owner} NOT IN ({part})" for part in _literals(self._gone))
            condition = f"{owner} IS NULL OR ({apart})" if apart else ""
        for batch in self._hold().batches(selection.statement(chosen, condition or None, quote=str), batch_rows):
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
            return dbapi.connect(profile=self._profile, autocommit=self._settings.opt_out is None)

        if self._held is None:
            self._held = Connection(self.name, connect)
        return self._held


#: Ids of a list in a statement: some databases take a thousand.
_IDS_OF_A_LIST: Final = 1000


def _literals(ids: Sequence[str]) -> Iterator[str]:
    """Lists of literals: the database makes each what its column is."""
    for start in range(0, len(ids), _IDS_OF_A_LIST):
        yield ", ".join(map(literal, ids[start : start + _IDS_OF_A_LIST]))
