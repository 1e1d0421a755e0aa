"""Write results as PostgreSQL tables through ADBC: all in one transaction, or none.

A new table is created. An existing one is replaced only if this is requested and its comment says that an export wrote
it, so that no other table is lost. Rows of OMOP's ``note_nlp`` are added to the table of the warehouse: a category
stands for the text of a span, never the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError, ReticentError
from reticent.engine.sources.table import check_address, shown
from reticent.engine.withdrawn import LeftOut
from reticent.ext.warehouse.database import CONNECTING, failure, literal, quoted
from reticent.ext.warehouse.postgres import open_postgres
from reticent.ext.warehouse.tables import ResultTable

#: Ids of a statement.
IDS_PER_STATEMENT: Final = 10_000
#: Begins the comment of a table that this file wrote.
OURS: Final = "reticent export"
CANNOT: Final = "cannot be written; nothing was"
#: ``nlp_system`` of rows of note_nlp.
SYSTEM: Final = "reticent"
NAME: Final = r'(?:[A-Za-z_][A-Za-z0-9_$]*|"[^"\0]+")'
#: ``lexical_variant`` may not be null in OMOP, and is meant for the text itself: here it is the category in brackets,
#: as in ``[NAME]``, and ``snippet`` is null. ``offset`` is the first character, and a modifier the number of them.
INSERT: Final = """
INSERT INTO {table} ({key}note_id, section_concept_id, snippet, "offset", lexical_variant, note_nlp_concept_id,
                     note_nlp_source_concept_id, nlp_system, nlp_date, nlp_datetime, term_modifiers)
SELECT {number}CAST(doc_id AS {note_id}), 0, NULL, CAST(start::text AS {offset}), '[' || left(label, 248) || ']', 0,
       0, '{system}', current_date, localtimestamp, 'length=' || ("end" - start) || ' detector=' || detector
FROM pg_temp.{spans} ORDER BY doc_id::bigint, start, "end"
"""
#: The number of a row where neither the table nor a sequence makes it.
NUMBER: Final = """(SELECT coalesce(max(note_nlp_id), 0) FROM {table})
       + row_number() OVER (ORDER BY doc_id::bigint, start, "end"), """
#: Columns of a table: name, type as SQL writes it, and whether the table makes the value itself.
COLUMNS: Final = """
SELECT attname::text, format_type(atttypid, atttypmod), (attidentity <> '' OR atthasdef)::text
FROM pg_attribute WHERE attrelid = {table}::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


def parse_name(table: str) -> tuple[str | None, str]:
    """Split ``SCHEMA.TABLE`` as SQL reads it; return schema (None: the first of the search path) and table name.

    Raises
    ------
    PolicyError
        It is no such name.
    """
    found = re.fullmatch(f"(?:({NAME})\\.)?({NAME})", table)
    if found is None:
        raise PolicyError("expected TABLE or SCHEMA.TABLE, with double quotes around names of other characters")
    schema, name = (part and (part[1:-1] if part[0] == '"' else part.lower()) for part in found.groups())
    return schema, str(name)


def write_tables(
    address: str,
    tables: Sequence[tuple[ResultTable, str]],
    *,
    note_nlp: tuple[ResultTable, ResultTable, str] | None = None,
    overwrite: bool = False,
    left_out: LeftOut | None = None,
    check: Callable[[], object] = lambda: None,
) -> dict[str, int]:
    """Write results into PostgreSQL tables in one transaction; return the number of rows of each table.

    Parameters
    ----------
    address : of PostgreSQL, without a password
    tables : results, and the names of their tables
    note_nlp : documents (a column ``doc_id``), their spans, and the name of the warehouse's table of OMOP
    overwrite : replace the rows of tables that an earlier export wrote, which keep owner, grants and policies, and its
        rows of these documents in note_nlp; those of documents of who withdrew are deleted
    left_out : the record of who withdrew
    check : called before what was written is kept; its error is raised, and nothing is written then

    Raises
    ------
    PolicyError
        The address holds a secret, a name is none, a table is there (or one that is not ours), no driver.
    CorpusError
        The database refuses, with its SQLSTATE alone; or an id of a document is no whole number, which note_nlp needs.
        Nothing is written then.
    """
    if not address.lower().startswith(("postgresql://", "postgres://")):
        raise PolicyError("--into: expected an address of PostgreSQL, postgresql://HOST/DATABASE")
    check_address(address)
    names = [parse_name(name) for _, name in tables]
    if len(set(names)) < len(names):
        raise PolicyError("--into: two results go into one table; give each its own")
    with _transaction(address) as transaction:
        counts = {
            result.name: transaction.replace(result, *name, overwrite)
            for (result, _), name in zip(tables, names, strict=True)
        }
        if note_nlp is not None:
            documents, spans, table = note_nlp
            counts["note_nlp"], left = transaction.add_note_nlp(
                documents, spans, parse_name(table), overwrite, left_out
            )
            counts |= {"withdrawn": left} if left else {}
        check()
    return counts


@contextmanager
def _transaction(address: str) -> Iterator[_Transaction]:
    """Context manager: a database transaction, committed at the end of the block and rolled back on an error."""
    where = shown(address)
    try:
        connection = open_postgres(address, "--into", autocommit=False)
    except PolicyError:
        raise
    except Exception as error:
        raise failure(where, error, CONNECTING) from None
    try:
        transaction = _Transaction(connection, where)
        transaction.execute("SET client_encoding TO 'UTF8'")
        yield transaction
        try:
            connection.commit()
        except Exception as error:
            raise failure(where, error, CANNOT) from None
    finally:
        with suppress(Exception):  # its message may quote a row
            connection.close()  # without a commit the server rolls back


class _Transaction:
    """One database transaction, with the statements of an export."""

    def __init__(self, connection: Any, where: str):
        self._connection, self._where = connection, where

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows, if it has any."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
                return rows
        except Exception as error:
            raise failure(self._where, error, CANNOT) from None

    def _ingest(self, result: ResultTable, name: str, mode: str = "create", **more: Any) -> int:
        """Create the table ``name`` from a result or, with the ``mode`` "append", add rows to it. Return the number of
        rows written.
        """
        own: list[Exception] = []
        count = 0

        def batches() -> Iterator[pa.RecordBatch]:
            """Yield the record batches of the result and count their rows. An error is stored for the caller, since the
            driver would raise one of its own instead.
            """
            nonlocal count
            try:
                for _, batch in result.rows():
                    count += batch.num_rows
                    yield batch
            except Exception as error:  # the driver would pass it on as its own
                own.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(result.schema, batches())
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_ingest(name, reader, mode=mode, **more)
        except Exception as error:
            if own and (isinstance(own[0], ReticentError) or getattr(own[0], "errno", None)):
                raise own[0] from None
            raise failure(self._where, error, CANNOT) from None
        return count

    def replace(self, result: ResultTable, schema: str | None, name: str, overwrite: bool) -> int:
        """Write a result to its table, which is created, or emptied first if an earlier export wrote it and
        ``overwrite`` is true; return the number of rows.
        """
        table = quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"
        found = f"to_regclass({literal(table)})"
        ((there, comment),) = self.execute(f"SELECT {found}::text, obj_description({found}, 'pg_class')")
        if there is not None:
            if not overwrite:
                raise PolicyError(f"{self._where}: the table {there} is there; --overwrite replaces one of an export")
            if not str(comment or "").startswith(OURS):
                raise PolicyError(f"{self._where}: the table {there} was not written by an export, and is left alone")
            self._truncate(result, str(there))
        more = {} if schema is None else {"db_schema_name": schema}
        rows = self._ingest(result, name, "create" if there is None else "append", **more)
        self.execute(f"COMMENT ON TABLE {table} IS '{OURS}: {result.name}'")
        return rows

    def _truncate(self, result: ResultTable, table: str) -> None:
        """Empty a table, and replace its columns by those of the result if they differ."""
        shape = ResultTable(result.name, result.schema, lambda: iter(()))
        self._ingest(shape, "reticent_shape", temporary=True)
        now, wanted = self._describe_columns(table), self._describe_columns("pg_temp.reticent_shape")
        self.execute("DROP TABLE pg_temp.reticent_shape")
        self.execute(f"TRUNCATE {table}")
        if [column[:2] for column in now] != [column[:2] for column in wanted]:
            for name, _, _ in now:
                self.execute(f"ALTER TABLE {table} DROP COLUMN {quoted(name)}")
            for name, kind, _ in wanted:
                self.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {kind}")

    def _describe_columns(self, table: str) -> list[tuple[Any, ...]]:
        """Return one row for each column of a table, from the database's catalogue: its name, its type, and whether it
        has a default (as text).
        """
        return self.execute(COLUMNS.format(table=literal(table)))

    def add_note_nlp(
        self,
        documents: ResultTable,
        spans: ResultTable,
        name: tuple[str | None, str],
        overwrite: bool,
        left_out: LeftOut | None,
    ) -> tuple[int, int]:
        """Add detected spans to a table ``name`` with the layout of OMOP's NOTE_NLP, one row for each; with
        ``overwrite`` rows of earlier exports are replaced. Return the number of rows added, and of rows that still
        belong to withdrawn individuals.
        """
        table = ".".join(quoted(part) for part in name if part is not None)
        self._ingest(_with_checked_ids(documents), "reticent_documents", temporary=True)
        count = self._ingest(_with_checked_ids(spans), "reticent_spans", temporary=True)
        self.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        ours = f"FROM {table} WHERE nlp_system = '{SYSTEM}'"
        earlier = f"{ours} AND note_id IN (SELECT doc_id::bigint FROM pg_temp.reticent_documents)"
        if overwrite:
            self.execute(f"DELETE {earlier}")
        elif self.execute(f"SELECT 1 {earlier} LIMIT 1"):
            raise PolicyError(
                f"{self._where}: {table} has rows of an export; --overwrite replaces those of these notes"
            )
        left = self._delete_withdrawn(ours, left_out, overwrite)
        kinds = {column: (kind, makes) for column, kind, makes in self._describe_columns(table)}
        if missing := [column for column in ("note_nlp_id", "note_id", "offset") if column not in kinds]:
            raise CorpusError(f"{self._where}: {table} has no column {missing[0]}, so it is no note_nlp of OMOP")
        makes_key = kinds["note_nlp_id"][1] == "true"
        if makes_key:
            self._advance_key_sequence(table)
        self.execute(
            INSERT.format(
                table=table,
                key="" if makes_key else "note_nlp_id, ",
                number="" if makes_key else NUMBER.format(table=table),
                note_id=kinds["note_id"][0],
                offset=kinds["offset"][0],
                system=SYSTEM,
                spans="reticent_spans",
            )
        )
        return count, left

    def _delete_withdrawn(self, exported_rows: str, left_out: LeftOut | None, delete: bool) -> int:
        """Delete the exported rows of withdrawn individuals' documents if ``delete``, and return how many remain;
        ``exported_rows`` is the SQL (FROM and WHERE) of all exported rows.
        """
        if not left_out:
            return 0
        rows = self.execute(f"SELECT note_id::text, count(*) {exported_rows} GROUP BY note_id")
        gone = left_out.has("document", pa.array([row[0] for row in rows], pa.string()))
        notes = [row for row, is_gone in zip(rows, gone, strict=True) if is_gone]
        if not delete:
            return sum(int(row[1]) for row in notes)
        for start in range(0, len(notes), IDS_PER_STATEMENT):
            numbers = ", ".join(str(int(row[0])) for row in notes[start : start + IDS_PER_STATEMENT])
            self.execute(f"DELETE {exported_rows} AND note_id IN ({numbers})")
        return 0

    def _advance_key_sequence(self, table: str) -> None:
        """Set the sequence of the table's key beyond its largest value, since earlier exports chose numbers
        themselves.
        """
        ((sequence,),) = self.execute(f"SELECT pg_get_serial_sequence({literal(table)}, 'note_nlp_id')")
        if sequence is not None:
            greatest = f"(SELECT max(note_nlp_id) FROM {table})"
            name = literal(str(sequence))
            self.execute(f"SELECT setval({name}, {greatest}) WHERE {greatest} > (SELECT last_value FROM {sequence})")


def _with_checked_ids(result: ResultTable) -> ResultTable:
    """Return the result table with a check while it is read: `CorpusError` if a document id is no 64-bit integer."""

    def rows() -> Iterator[Any]:
        """Yield the result's rows, checked."""
        for numbers, batch in result.rows():
            try:
                batch.column("doc_id").cast(pa.int64())
            except pa.ArrowInvalid:
                raise CorpusError(
                    "note_nlp: an id of a document is no whole number of 64 bits, so it is no note_id of OMOP"
                ) from None
            yield numbers, batch

    return ResultTable(result.name, result.schema, rows)
