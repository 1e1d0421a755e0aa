"""A corpus source for any database with an ADBC driver: one SQL statement, whose rows are read as they arrive.

``adbc://NAME`` is a connection profile of the ADBC driver manager: a file NAME.toml with the driver and its options;
credentials come from the environment. One statement is one snapshot, and therefore one part. A table of withdrawn
individuals is read before it, in the same transaction if the database has them. Whether the database hides rows from
the role cannot be determined; which SQL expression computes the SHA-256 of a text is tried on a text of known digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import canonical, plain_ids, require_columns
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown
from reticent.engine.withdrawn import DOCUMENTS_LEFT
from reticent.ext.warehouse.database import Connection, Selection, literal


class AdbcDatabase:
    """The documents that one SQL statement returns; a `Source`.

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
        self._sha256: str | None = None

    #: What a manifest says of rows that the database may hide.
    row_security = "not known: this database cannot be asked whether it hides rows"

    def version(self) -> bytes:
        """Return the time of the first call, as bytes, in place of a snapshot id, which drivers lack."""
        self._read_at = self._read_at or datetime.now(UTC).isoformat(timespec="seconds")
        return self._read_at.encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the documents as record batches of these columns in part 0; other parts are empty."""
        if part:
            return
        yield from self._read(columns, batch_rows)

    def ids_of(self, table: str | None) -> pa.Array:
        """Return the distinct individual ids in a withdrawal ``table``, or in the documents if it is None."""
        name, where = self._settings.individual_id, f"{self.name} {table or ''}".rstrip()
        selection = self._selection([name])
        if table is not None:
            selection = selection.of_register(table, name)
        column = self._column_sql(selection, name)
        statement = selection.statement({name: column}, f"{column} IS NOT NULL", quote=str, distinct=True)
        found = [pa.array([], pa.string())]
        try:
            for batch in self._open_connection().batches(statement, 1 << 16):
                plain = pa.record_batch([plain_ids(batch.column(0))], names=[name])
                found.append(canonical(plain, {"individual_id": name}, where, 0).column(0))
        except CorpusError as error:
            raise CorpusError(str(error).replace(self.name, where, 1)) from None
        return pa.concat_arrays(found).unique()

    def leave_out(self, ids: pa.Array) -> None:
        """Exclude the documents of these individuals from all later reads."""
        self._gone = ids.to_pylist()

    def left_out(self) -> Iterator[pa.RecordBatch]:
        """Yield doc_id and individual_id of each excluded document, with the SHA-256 of its text if the database can
        compute it.
        """
        names = self._settings
        columns = [names.doc_id, names.individual_id, *([names.text] if self._sha256 else [])]
        for batch in self._read(columns, 1 << 16, excluded=True) if self._gone else ():
            ids = [plain_ids(batch.column(number)).cast(pa.string()) for number in range(2)]
            digests = _binary_digests(batch.column(2)) if self._sha256 else pa.nulls(len(batch), pa.binary())
            yield pa.record_batch([*ids, digests], schema=DOCUMENTS_LEFT)

    def query_of(self, column: str, condition: str | None = None) -> str:
        """Return an SQL query that a user can run to see the rows whose ``column`` fulfils the SQL ``condition``;
        without a condition, the values of the column that occur more than once.
        """
        return self._selection([column]).query_of(column, condition)

    def _selection(self, columns: Sequence[str]) -> Selection:
        """Return the job's table, query or preset as a `Selection` of these columns."""
        return Selection.of(self._settings.table, self._settings.query, self._settings.preset, columns)

    def _column_sql(self, selection: Selection, name: str) -> str:
        """Return the SQL expression of a column, unquoted, so that each database resolves the case of its name."""
        return selection.expressions[name] if selection.expressions is not None else f"n.{name}"

    def _read(self, columns: Sequence[str], batch_rows: int, excluded: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield these columns of the documents that are not excluded, or with ``excluded`` of those that are."""
        selection = self._selection(columns)
        chosen = None
        if selection.expressions is not None or excluded:
            chosen = {name: self._column_sql(selection, name) for name in columns}
            if excluded and self._sha256 and self._settings.text in chosen:
                chosen[self._settings.text] = self._sha256.format(chosen[self._settings.text])
        owner = self._column_sql(selection, self._settings.individual_id) if self._gone else ""
        if excluded:
            condition = " OR ".join(f"{owner} IN ({part})" for part in _literal_lists(self._gone))
        else:
            apart = " AND ".join(f"{owner} NOT IN ({part})" for part in _literal_lists(self._gone))
            condition = f"{owner} IS NULL OR ({apart})" if apart else ""
        for batch in self._open_connection().batches(
            selection.statement(chosen, condition or None, quote=str), batch_rows
        ):
            names = {name.lower(): name for name in batch.schema.names}  # some databases return names in capitals
            present = [names.get(name.lower(), name) for name in columns]
            require_columns(batch.schema.names, present, self.name)
            yield pa.record_batch([batch.column(name) for name in present], names=list(columns))

    def close(self) -> None:
        """Close the connection."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _open_connection(self) -> Connection:
        """Return the connection, opened at the first call."""
        try:
            from adbc_driver_manager import dbapi
        except ImportError:
            raise PolicyError("corpus.source: ADBC needs its driver manager; pip install adbc-driver-manager") from None

        settings = self._settings
        leaves_out = settings.opt_out is not None or bool(settings.withdrawn or settings.readmitted)

        def connect(autocommit: bool) -> Any:
            """Open a connection of the job's ADBC profile."""
            return dbapi.connect(profile=self._profile, autocommit=autocommit)

        if self._held is None:
            if leaves_out:  # a statement that fails would end the transaction, so it has a connection of its own
                asked = Connection(self.name, lambda: connect(True))
                self._sha256 = next(filter(partial(self._makes_sha256, asked), SHA256), None)
                asked.close()
            self._held = Connection(self.name, lambda: connect(not leaves_out))
        return self._held

    def _makes_sha256(self, connection: Connection, expression: str) -> bool:
        """Return whether an SQL expression gives the SHA-256 of a UTF-8 text in this database, also for the text
        column.
        """
        selection, text = self._selection([self._settings.text]), self._settings.text
        of_column = {text: expression.format(self._column_sql(selection, text))}
        try:
            (made,) = connection.batches(f"SELECT {expression.format(literal(_KNOWN))} AS digest", 1)
            connection.schema(selection.statement(of_column, "1 = 0", quote=str))
            return _binary_digests(made.column(0)).to_pylist() == [hashlib.sha256(_KNOWN.encode()).digest()]
        except (CorpusError, ValueError):
            return False


#: How databases write the SHA-256 of a text, and a text by which it is found out.
SHA256: Final = ("sha256({})", "sha2({}, 256)", "sha256(to_utf8({}))", "sha256(convert_to({}, 'UTF8'))")
_KNOWN: Final = "fièvre"


def _binary_digests(column: pa.Array) -> pa.Array:
    """Return SHA-256 digests as a binary array; some databases give hexadecimal text."""
    found = column.to_pylist()
    return pa.array([bytes.fromhex(each) if isinstance(each, str) else each for each in found], pa.binary())


#: Ids of a list in a statement: some databases take a thousand.
_IDS_OF_A_LIST: Final = 1000


def _literal_lists(ids: Sequence[str]) -> Iterator[str]:
    """Yield the ids as comma-separated SQL literals, at most `_IDS_OF_A_LIST` in one string."""
    for start in range(0, len(ids), _IDS_OF_A_LIST):
        yield ", ".join(map(literal, ids[start : start + _IDS_OF_A_LIST]))
