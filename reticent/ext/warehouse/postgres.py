"""PostgreSQL as a source: one snapshot, which several connections share; read through ADBC.

A table is read in physical order. Its parts are ranges of its blocks, each read on a connection of its own; a view or a
query is one part. The snapshot stays open until the source is closed, and the server keeps the rows visible in it that
long. A reader takes about ten megabytes beside the batch that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.table import shown
from reticent.engine.withdrawn import DOCUMENTS_LEFT
from reticent.ext.warehouse.database import PRESETS, Connection, Selection, literal

#: Bytes of a batch: with the driver's own default a reader takes six times the memory and is no faster.
NUM_BYTES_PER_BATCH: Final = 1 << 20
#: Ids of a statement that reads some documents: it passes over the whole table, but for their texts.
IDS_PER_STATEMENT: Final = 100_000
OPTIONS: Final = {"adbc.postgresql.batch_size_hint_bytes": str(NUM_BYTES_PER_BATCH)}
UNLIMITED: Final = "options=-c%20statement_timeout%3D0"
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
    "SET LOCAL row_security TO off",  # where a policy would hide rows, an error
)


def open_postgres(address: str, setting: str, *, autocommit: bool) -> Any:
    """Open an ADBC connection to PostgreSQL; connect without statement timeout if the role's own timeout stops the
    driver's first query.

    Raises
    ------
    PolicyError
        The driver is not installed.
    """
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise PolicyError(f"{setting}: PostgreSQL needs a driver; pip install 'reticent[postgres]'") from None
    try:
        return dbapi.connect(address, autocommit=autocommit)
    except dbapi.Error as error:
        if error.sqlstate != "57014":
            raise
    return dbapi.connect(f"{address}{'&' if '?' in address else '?'}{UNLIMITED}", autocommit=autocommit)


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
        self._gone: pa.Array = pa.array([], pa.string())

    @property
    def row_security(self) -> str:
        """A sentence on whether row-level security may hide rows, for the manifest."""
        return "only the rows that policies show to the role" if self._accepts_filtered_rows else "no row is hidden"

    @property
    def _accepts_filtered_rows(self) -> bool:
        """Whether the job accepts that row-level security hides rows."""
        return self._settings.row_security == "filtered"

    def version(self) -> bytes:
        """Return the id of the database snapshot that all reads see, as bytes; the snapshot is taken at the
        first call.
        """
        self._open_snapshot()
        return self._snapshot.encode()

    def batches(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in a part of the table as record batches of these columns, as text except spans."""
        with self._part_reader(part, parts) as reader:
            if reader is not None:
                yield from self._read(*reader, columns, self._as_text, batch_rows)

    def digests(
        self, columns: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same rows as `batches` with the SHA-256 of each text, computed by the server, in place of the text.

        The server makes them, so that no text travels. Not MD5: a server in FIPS mode has none, and two texts of one
        digest can be made.
        """
        with self._part_reader(part, parts) as reader:
            if reader is not None:
                yield from self._read(*reader, columns, self._text_digest_expression, batch_rows)

    def texts(
        self, doc_ids: Sequence[str], *, part: int = 0, parts: int = 1, batch_rows: int = 1024
    ) -> Iterator[pa.RecordBatch]:
        """Yield the texts of the documents with these ids in a part of the table, in any order."""
        with self._part_reader(part, parts) as reader:
            for start in range(0, len(doc_ids) if reader else 0, IDS_PER_STATEMENT):
                assert reader is not None
                wanted = doc_ids[start : start + IDS_PER_STATEMENT]
                yield from self._read(*reader, [self._settings.text], self._as_text, batch_rows, wanted)

    def ids_of(self, table: str | None) -> pa.Array:
        """Return the distinct individual ids in a withdrawal ``table``, or in the documents if it is None."""
        held, name = self._open_snapshot(), self._settings.individual_id
        try:
            if table is None:
                return self._distinct_individuals(held, self._selection([name]))
            held.execute("SET LOCAL row_security TO off")  # of a register no row may be hidden
            found = self._distinct_individuals(
                held, self._selection([name]).of_register(self._look_up_table(held, table)[0], name)
            )
            if self._accepts_filtered_rows:
                held.execute("SET LOCAL row_security TO on")
            return found
        except CorpusError as error:
            raise CorpusError(str(error).replace(self.name, f"{self.name} {table or ''}".rstrip(), 1)) from None

    def _distinct_individuals(self, held: Connection, selection: Selection) -> pa.Array:
        """Return the distinct individual ids that an SQL selection gives, as text, without null and blank ones.
        ``held`` is the connection that sees the snapshot.
        """
        name = self._settings.individual_id
        (column,) = selection.describe_columns(held, [name], self.name)
        expression = self._as_text(column, selection.expression(name))
        statement = selection.statement({name: expression}, f"{expression} IS NOT NULL", distinct=True)
        batches = [self._require_whole_ids(batch, {name: column}) for batch in held.batches(statement, 1 << 16)]
        ids = pa.concat_arrays([pa.array([], pa.string()), *(batch.column(0).cast(pa.string()) for batch in batches)])
        return ids.filter(pc.not_equal(pc.utf8_trim_whitespace(ids), ""))

    def leave_out(self, ids: pa.Array) -> None:
        """Exclude the documents of these individuals from all later reads."""
        self._gone = ids

    def left_out(self) -> Iterator[pa.RecordBatch]:
        """Yield doc_id, individual_id and the SHA-256 of the text of each excluded document."""
        names = self._settings
        columns = [names.doc_id, names.individual_id, names.text]
        for batch in (
            self._read(self._open_snapshot(), None, columns, self._text_digest_expression, 1 << 16, excluded=True)
            if len(self._gone)
            else ()
        ):
            values = [column.cast(field.type) for column, field in zip(batch.columns, DOCUMENTS_LEFT, strict=True)]
            yield pa.record_batch(values, schema=DOCUMENTS_LEFT)

    def _text_digest_expression(self, field: pa.Field, name: str) -> str:
        """Return the SQL expression that reads a column as text; for the column with the documents' text, the
        expression of the text's SHA-256.
        """
        text = self._as_text(field, name)
        return f"sha256(convert_to({text}, 'UTF8'))" if field.name == self._settings.text else text

    @contextmanager
    def _part_reader(self, part: int, parts: int) -> Iterator[tuple[Connection, str | None] | None]:
        """Context manager for reading one of ``parts`` equal parts of the table: it yields (connection that sees the
        snapshot, SQL condition that selects the part's rows; None: all). For a part without rows it yields None.
        """
        held = self._open_snapshot()
        if parts == 1 or self._num_blocks is None:
            yield (held, None) if part == 0 else None
            return
        reader = self._connect()
        try:
            reader.execute(f"SET TRANSACTION SNAPSHOT '{self._exported}'")
            yield reader, block_range_condition(self._num_blocks, part, parts)
        finally:
            reader.close()

    def close(self) -> None:
        """Close the connection that holds the snapshot."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def _connect(self) -> Connection:
        """Open a connection for reading: a read-only transaction, without time limits, text as UTF-8."""
        connect = partial(open_postgres, self._address, "corpus.source", autocommit=True)
        connection = Connection(self.name, connect, OPTIONS)
        for setting in (*SETTINGS, *(["SET LOCAL row_security TO on"] if self._accepts_filtered_rows else [])):
            connection.execute(setting)
        return connection

    def _open_snapshot(self) -> Connection:
        """Return the connection that holds the snapshot; both are made at the first call."""
        if self._held is None:
            held = self._connect()
            try:
                self._relation, self._num_blocks = self._find_relation(held)
                self._snapshot = str(held.rows("SELECT current_database() || ' ' || pg_current_snapshot()::text")[0][0])
                if self._settings.connections > 1:
                    self._exported = str(held.rows("SELECT pg_export_snapshot()")[0][0])
            except BaseException:
                held.close()
                raise
            self._held = held
        return self._held

    def _find_relation(self, held: Connection) -> tuple[str | None, int | None]:
        """Return the SQL name of the table that the job reads, and its number of disk blocks, by which it can be read
        in parts. The name is None for a query, the number None for a query or a view.
        """
        preset = self._settings.preset
        table = self._settings.table or (PRESETS[preset].notes if preset else None)
        if table is None:
            return None, None
        relation, kind, num_blocks = self._look_up_table(held, table)
        held.schema(f"SELECT 1 FROM {relation} LIMIT 0")  # until the end of the transaction nothing may move its rows
        return relation, int(num_blocks) if kind in ("r", "p", "m") and num_blocks is not None else None

    def _look_up_table(self, held: Connection, table: str) -> tuple[str, str, Any]:
        """Look up a table in the catalogue; return its SQL name, kind and number of blocks. Only this SQL name enters
        statements.
        """
        found = held.rows(
            "SELECT c.oid::regclass::text, c.relkind::text, (greatest(pg_relation_size(c.oid, 'main'), "
            "(SELECT max(pg_relation_size(relid, 'main')) FROM pg_partition_tree(c.oid) WHERE isleaf)) "
            "/ current_setting('block_size')::bigint)::bigint FROM pg_class c "
            f"WHERE c.oid = to_regclass({literal(table)})"
        )
        if not found:
            hint = (
                "" if table == table.lower() or '"' in table else "; a name with capitals stands in quotes: '\"Note\"'"
            )
            raise CorpusError(f"{shown(self._address)} {table}: there is no such table, or no right to see it{hint}")
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
        excluded: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of the rows that fulfil the SQL condition ``blocks`` and have one of ``doc_ids`` (None:
        all). Rows of excluded individuals are left out, or with ``excluded`` are the only ones.
        """
        settings = self._settings
        asked = list(dict.fromkeys([*columns, settings.doc_id, settings.individual_id]))
        selection = self._selection(asked)
        described = {field.name: field for field in selection.describe_columns(connection, asked, self.name)}
        as_text = {name: self._as_text(field, selection.expression(name)) for name, field in described.items()}
        expressions = {name: expression_of(described[name], selection.expression(name)) for name in columns}
        conditions = [blocks]
        if len(self._gone):
            owner = as_text[settings.individual_id]
            listed = f"{owner} {'' if excluded else 'NOT '}IN (SELECT unnest({_array_literal(self._gone.to_pylist())}))"
            conditions.append(listed if excluded else f"{owner} IS NULL OR {listed}")
        if doc_ids is not None:
            conditions.append(f"{as_text[settings.doc_id]} = ANY({_array_literal(doc_ids)})")
        for batch in connection.batches(selection.statement(expressions, *conditions), batch_rows):
            yield self._require_whole_ids(batch, described)

    def query_of(self, column: str, condition: str | None = None) -> str:
        """Return an SQL query, for an error message, of the rows whose ``column`` fulfils ``condition``; without
        one, the values of the column that occur more than once."""
        return self._selection([column]).query_of(column, condition)

    def _selection(self, columns: Sequence[str]) -> Selection:
        """Return the job's table, query or preset as a `Selection` of these columns."""
        return Selection.of(self._relation, self._settings.query, self._settings.preset, columns)

    def _is_id(self, name: str) -> bool:
        """Return whether a column is one of the id columns."""
        names = self._settings
        return name in (names.doc_id, names.individual_id, names.household_id)

    def _require_whole_ids(self, batch: pa.RecordBatch, described: Mapping[str, pa.Field]) -> pa.RecordBatch:
        """Return the batch, or raise `CorpusError` if an id column of type numeric has a value that is no
        whole number.
        """
        for name in batch.schema.names:
            if self._is_id(name) and _type_name(described[name]) == "numeric":
                found = pc.match_substring_regex(batch.column(name), "^-?[0-9]+$")
                if not pc.all(found).as_py():
                    raise CorpusError(f"{self.name} column {name}: expected whole numbers, got some that are none")
        return batch

    def _as_text(self, field: pa.Field, expression: str) -> str:
        """Return the SQL expression of a column cast to text; spans, mentions and times with a zone stay as they are.
        Raise `CorpusError` for a type that cannot be an id or text.
        """
        names = self._settings
        is_time = pa.types.is_timestamp(field.type) and field.type.tz is not None
        if field.name in (names.spans, names.mentions) or (is_time and not self._is_id(field.name)):
            return expression  # of a time with a zone whoever checks the rows says the day
        text, kind = f"({expression})::text", _type_name(field)
        if self._is_id(field.name):
            whole = pa.types.is_integer(field.type) and kind != "money"  # which is sent as cents
            plain = pa.types.is_string(field.type) or field.type == pa.uuid() or kind == "numeric"
            if not (whole or plain) or _num_decimals(field):
                got = f"{kind} with digits behind the point" if kind == "numeric" else kind
                raise CorpusError(
                    f"{self.name} column {field.name}: expected text, integers, uuid or numeric without digits behind "
                    f"the point, got {got}; cast it in a query"
                )
            if kind == "numeric":  # 12.0 is 12
                return f"CASE WHEN ({expression}) = trunc({expression}) THEN trunc({expression})::text ELSE {text} END"
        elif kind == "bytea" or (field.name == names.text and not _is_text(field.type)):
            raise CorpusError(f"{self.name} column {field.name}: expected text, got {kind}")
        return text


def _is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type may hold text: a string, or an extension type, which a driver makes of JSON, say."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or isinstance(kind, pa.BaseExtensionType)


def _type_name(field: pa.Field) -> str:
    """Return the PostgreSQL type name of a column."""
    known = getattr(field.type, "type_name", None) or str(field.type)  # of a driver that names no other
    return (field.metadata or {}).get(b"POSTGRESQL:type", known.encode()).decode()


def _num_decimals(field: pa.Field) -> int:
    """Return the number of decimals of a type numeric(precision, scale); 0 for plain numeric."""
    modifier = int((field.metadata or {}).get(b"POSTGRESQL:typmod", b"-1"))
    return 0 if modifier < 4 else (modifier - 4) & 0x7FF


def _array_literal(values: Sequence[str]) -> str:
    """Return strings as an SQL literal of type text[]."""
    items = ",".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return literal("{" + items + "}") + "::text[]"


def block_range_condition(num_blocks: int, part: int, parts: int) -> str:
    """Return the SQL condition for one of ``parts`` block ranges of a table; the last range is open-ended."""
    first, end = num_blocks * part // parts, num_blocks * (part + 1) // parts
    condition = f"n.ctid >= '({first},0)'::tid"
    return condition if part == parts - 1 else f"{condition} AND n.ctid < '({end},0)'::tid"
