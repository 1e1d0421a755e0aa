"""PostgreSQL as a source: one snapshot, which several connections share; read through ADBC.

A table is read in the order in which it lies. Its parts are stretches of its blocks, each read by a connection of its
own; a view or a query is one part. The snapshot stays open until the source is closed, and as long the server keeps the
rows that it sees. A reader takes about ten megabytes beside the batch that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import REQUIRED
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown
from reticent.ext.warehouse.database import PRESETS, Connection, Selection

__all__ = ["Postgres"]


#: Bytes of a batch: with the driver's own default a reader takes six times the memory and is no faster.
NUM_BYTES_PER_BATCH: Final = 1 << 20
#: Ids of a statement that reads some documents: it passes over the whole table, but for their texts.
IDS_PER_STATEMENT: Final = 100_000
OPTIONS: Final = {"adbc.postgresql.batch_size_hint_bytes": str(NUM_BYTES_PER_BATCH)}
#: A session of a reader: text as UTF-8, dates as ISO writes them, rows in the order of the table, no limit of time.
SETTINGS: Final = (
    "SET client_encoding TO 'UTF8'",
    "SET standard_conforming_strings TO on",
    "SET DateStyle TO 'ISO, YMD'",
    "SET synchronize_seqscans TO off",
    "SET max_parallel_workers_per_gather TO 0",
    "SET statement_timeout TO 0",
    "SET idle_in_transaction_session_timeout TO 0",
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
)


class Postgres:
    """Documents of a PostgreSQL database, in one snapshot; a `Source`.

    Parameters
    ----------
    settings : an address without a password; the table, query or preset; how many connections read at the same time
    scratch : not used
    """

    passed_over = 0

    def __init__(self, settings: CorpusConfig, scratch: Path):
        self._settings, self._address = settings, str(settings.remote)
        self.name = f"{shown(self._address)} {settings.table or settings.preset or 'query'}"
        self._held: Connection | None = None
        self._snapshot = self._exported = ""
        self._relation: str | None = None
        self._num_blocks: int | None = None
        self._opt_out: str | None = None

    def version(self) -> bytes:
        """Return the snapshot, in which all batches are read; it is taken at the first call."""
        self._hold()
        return self._snapshot.encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield these columns, all but spans as text; raises as `Source.batches` does."""
        with self._reader(part, parts) as reader:
            if reader is not None:
                yield from self._read(*reader, columns, self._as_text, batch_rows)

    def digests(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `batches` in the same order, with the SHA-256 of each text (of its UTF-8) for the text.

        The server makes them, so that no text travels. Not MD5: a server in FIPS mode has none, and two texts of one
        digest can be made.
        """

        def expression(field: pa.Field, name: str) -> str:
            text = self._as_text(field, name)
            return f"sha256(convert_to({text}, 'UTF8'))" if field.name == self._settings.text else text

        with self._reader(part, parts) as reader:
            if reader is not None:
                yield from self._read(*reader, columns, expression, batch_rows)

    def texts(
        self, doc_ids: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the texts of the documents of a part that have one of these ids, in any order."""
        with self._reader(part, parts) as reader:
            for start in range(0, len(doc_ids) if reader else 0, IDS_PER_STATEMENT):
                assert reader is not None
                wanted = doc_ids[start : start + IDS_PER_STATEMENT]
                yield from self._read(*reader, [self._settings.text], self._as_text, batch_rows, wanted)

    @contextmanager
    def _reader(self, part: int, parts: int) -> Iterator[tuple[Connection, str | None] | None]:
        """A connection that sees the snapshot, and the condition of the part; None where the part is empty."""
        held = self._hold()
        if parts == 1 or self._num_blocks is None:
            yield (held, None) if part == 0 else None
            return
        reader = self._connect()
        try:
            reader.execute(f"SET TRANSACTION SNAPSHOT '{self._exported}'")
            yield reader, stretch(self._num_blocks, part, parts)
        finally:
            reader.close()

    def close(self) -> None:
        """Give the snapshot up."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _connect(self) -> Connection:
        try:
            from adbc_driver_postgresql import dbapi
        except ImportError:
            raise PolicyError("corpus.source: PostgreSQL needs a driver; pip install 'reticent[postgres]'") from None

        def connect() -> Any:
            return dbapi.connect(self._address, autocommit=True)

        connection = Connection(self.name, connect, OPTIONS)
        for setting in SETTINGS:
            connection.execute(setting)
        return connection

    def _hold(self) -> Connection:
        """The connection that holds the snapshot."""
        if self._held is None:
            held = self._connect()
            try:
                self._relation, self._num_blocks = self._find(held)
                if self._settings.opt_out is not None:
                    self._opt_out, _, _ = self._look_up(held, self._settings.opt_out, "opt_out")
                self._snapshot = str(held.rows("SELECT current_database() || ' ' || pg_current_snapshot()::text")[0][0])
                if self._settings.connections > 1:
                    self._exported = str(held.rows("SELECT pg_export_snapshot()")[0][0])
            except BaseException:
                held.close()
                raise
            self._held = held
        return self._held

    def _find(self, held: Connection) -> tuple[str | None, int | None]:
        """The name of the table as SQL has it, and its blocks, where it is one and not a view."""
        preset = self._settings.preset
        table = self._settings.table or (PRESETS[preset].notes if preset else None)
        if table is None:
            return None, None
        relation, kind, num_blocks = self._look_up(held, table)
        held.schema(f"SELECT 1 FROM {relation} LIMIT 0")  # until the end of the transaction nothing may move its rows
        return relation, int(num_blocks) if kind in ("r", "p", "m") and num_blocks is not None else None

    def _look_up(self, held: Connection, table: str, setting: str = "") -> tuple[str, str, Any]:
        """The name of a table as SQL has it, its kind, and its blocks; nothing else gets into a statement."""
        name = table.replace("'", "''")
        found = held.rows(
            "SELECT c.oid::regclass::text, c.relkind::text, (greatest(pg_relation_size(c.oid, 'main'), "
            "(SELECT max(pg_relation_size(relid, 'main')) FROM pg_partition_tree(c.oid) WHERE isleaf)) "
            f"/ current_setting('block_size')::bigint)::bigint FROM pg_class c WHERE c.oid = to_regclass('{name}')"
        )
        if not found:
            raise CorpusError(f"{self.name}{setting and ' ' + setting}: there is no such table, or no right to see it")
        relation, kind, num_blocks = found[0]
        return str(relation), str(kind), num_blocks

    def _read(
        self,
        connection: Connection,
        blocks: str | None,
        columns: Sequence[str],
        expression_of: Callable[[pa.Field, str], str],
        batch_rows: int,
        doc_ids: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        settings = self._settings
        asked = [*columns, settings.doc_id, settings.individual_id]
        selection = Selection.of(self._relation, settings.query, settings.preset, asked)
        expressions = {}
        for field in selection.described(connection, columns, self.name):
            expressions[field.name] = expression_of(field, selection.expression(field.name))
        staying = selection.staying(settings.individual_id, self._opt_out)
        chosen = None if doc_ids is None else f"({selection.expression(settings.doc_id)})::text = {_any_of(doc_ids)}"
        yield from connection.batches(selection.statement(expressions, blocks, staying, chosen), batch_rows)

    def _as_text(self, field: pa.Field, expression: str) -> str:
        """The expression of a column, cast to text by the server, which knows every type of its own."""
        kind, names = field.type, self._settings
        if field.name in (names.spans, names.mentions):
            return expression
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if field.name == names.text:
            wrong, expected = not (text or isinstance(kind, pa.BaseExtensionType)), "text"
        else:
            is_id = field.name in [getattr(names, name) for name in (*REQUIRED, "household_id")]
            number = pa.types.is_integer(kind) or isinstance(kind, pa.BaseExtensionType)
            wrong, expected = (is_id and not (text or number)) or pa.types.is_binary(kind), "text, integers or uuid"
        if wrong:
            raise CorpusError(f"{self.name} column {field.name}: expected {expected}, got {kind}")
        return f"({expression})::text"


def _any_of(values: Sequence[str]) -> str:
    """Some strings as an operand of a comparison."""
    items = ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return "ANY('{" + items.replace("'", "''") + "}'::text[])"


def stretch(num_blocks: int, part: int, parts: int) -> str:
    """Return the condition of a part of the blocks of a table; the last part has no end."""
    first, end = num_blocks * part // parts, num_blocks * (part + 1) // parts
    condition = f"n.ctid >= '({first},0)'::tid"
    return condition if part == parts - 1 else f"{condition} AND n.ctid < '({end},0)'::tid"
