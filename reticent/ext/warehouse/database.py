"""Databases through ADBC: a connection, a statement as record batches, and the SQL that selects documents.

A driver's message may quote the values of a row, so none is passed on: an error gives its code (SQLSTATE) alone. A
preset describes a standard schema of clinical data: it has the columns ``doc_id``, ``individual_id`` and ``text`` of a
job, and further ones under the names that they have in that schema, for a label or a household. A table is joined only
if one of its columns is selected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import require_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The notes table of a standard clinical data model (OMOP, i2b2), as SQL.

    Attributes
    ----------
    notes : the table of the notes, which is called ``n`` in the expressions
    columns : name -> expression of SQL
    joins : alias of a further table -> the table and the condition that joins it, ``{schema}`` before its name
    condition : rows that are notes; None: all
    """

    notes: str
    columns: Mapping[str, str]
    joins: Mapping[str, str] = field(default_factory=dict)
    condition: str | None = None


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        # OMOP CDM 5.4
        "omop": Preset(
            notes="note",
            columns={
                "doc_id": "n.note_id",
                "individual_id": "n.person_id",
                "text": "n.note_text",
                "note_title": "n.note_title",
                "note_date": "n.note_date",
                "note_type_concept_id": "n.note_type_concept_id",
                "note_class_concept_id": "n.note_class_concept_id",
                "language_concept_id": "n.language_concept_id",
                "provider_id": "n.provider_id",
                "visit_occurrence_id": "n.visit_occurrence_id",
                "visit_concept_id": "v.visit_concept_id",
                "visit_start_date": "v.visit_start_date",
                "care_site_id": "v.care_site_id",
                "gender_concept_id": "p.gender_concept_id",
                "year_of_birth": "p.year_of_birth",
            },
            joins={
                "v": "LEFT JOIN {schema}visit_occurrence v ON v.visit_occurrence_id = n.visit_occurrence_id",
                "p": "LEFT JOIN {schema}person p ON p.person_id = n.person_id",
            },
        ),
        # i2b2 has no id of a note: it is the key of the fact, joined by bars. A fact without a blob is no note.
        "i2b2": Preset(
            notes="observation_fact",
            columns={
                "doc_id": "concat_ws('|', n.encounter_num, n.patient_num, n.concept_cd, n.provider_id, n.start_date, "
                "n.modifier_cd, n.instance_num)",
                "individual_id": "n.patient_num",
                "text": "n.observation_blob",
                "encounter_num": "n.encounter_num",
                "concept_cd": "n.concept_cd",
                "provider_id": "n.provider_id",
                "start_date": "n.start_date",
                "sourcesystem_cd": "n.sourcesystem_cd",
            },
            condition="n.observation_blob <> ''",
        ),
    }
)


CONNECTING: Final = "cannot connect with the credentials of the environment"
#: SQLSTATE, or its first two characters -> its meaning.
MEANINGS: Final[Mapping[str, str]] = {
    "42501": "the role has no right to do this",
    "2BP01": "something else depends on it, such as a view",
    "23505": "a key is there already",
    "42P01": "there is no such table",
    "42703": "there is no such column",
    "25006": "the query would change the database",
    "3D": "there is no such database",
    "28": "the server does not know the user, or not with these credentials",
    "42": "the query is wrong",
    "22": "a value cannot be converted as the query asks",
    "40": "the server gave the snapshot up; start again",
    "53": "the server lacks resources",
    "57": "the server stopped the query",
    "08": "the connection is lost",
}
#: Part of the message of an error 42501, and its meaning.
ROW_SECURITY: Final = "row-level security"
HIDDEN: Final = (
    "row-level security hides rows of it from this role; read a view of the table's owner, or with a role that sees "
    'all, or say of notes that only the rows it shows are wanted: corpus.row_security = "filtered"'
)
#: Patterns of the messages of errors in the middle of a reading, which have no code -> their meaning. They are looked
#: for, and the message is never shown.
PHRASES: Final[Mapping[str, str]] = {
    "server closed the connection": MEANINGS["08"],
    "terminating connection": MEANINGS["08"],
    "no connection to the server": MEANINGS["08"],
    "invalid byte sequence": "a text is not valid in its encoding",
    "conflict with recovery": MEANINGS["40"],
    "in a read-only transaction": MEANINGS["25006"],
    "non-volatile function": MEANINGS["25006"],
    "permission denied": MEANINGS["42501"],
    "invalid input syntax": MEANINGS["22"],
}
_ADDRESS: Final = "postgresql://USER@HOST:PORT/DATABASE"
#: Patterns of what libpq says of a connection that it does not get, which has no code -> what is wrong, and what to do.
#: The message is never shown.
CONNECTIONS: Final[Mapping[str, str]] = {
    r'role ".*" does not exist': (f"the server has no such role; give its name as USER in {_ADDRESS}"),
    r'database ".*" does not exist': (f"the server has no such database; give its name as DATABASE in {_ADDRESS}"),
    r"authentication failed|no password supplied": (
        "the role or its password is wrong, or none was found; write a line HOST:PORT:DATABASE:USER:PASSWORD "
        "into ~/.pgpass, or the file of PGPASSFILE, which only you may read"
    ),
    r"permission denied for database": ("the role may not connect to this database; ask for GRANT CONNECT"),
    r"pg_hba\.conf": (
        "the server admits no such user from this machine; whoever runs it adds a line to pg_hba.conf, or "
        "sslmode=require is missing in the address"
    ),
    r"could not translate host name": (f"there is no host of this name; give another as HOST in {_ADDRESS}"),
    r"Connection refused|No such file or directory|No route to host": (
        f"no server listens there; give its host and port as in {_ADDRESS}, or start it"
    ),
    r"timeout expired|timed out": (
        "the server does not answer in time; see whether host and port are right, and whether a firewall stands between"
    ),
    r"SSL negotiation|expected authentication request": (
        f"what listens at this port is no PostgreSQL server; give another PORT in {_ADDRESS}"
    ),
    r"does not support SSL|SSL error|certificate": (
        "no encrypted connection could be agreed on; see sslmode and sslrootcert of the address"
    ),
    r"too many connections|too many clients|connection slots": (
        "the server has no connection left; try again later, or with a smaller corpus.connections"
    ),
    r"starting up|shutting down": ("the server is starting or stopping; try again"),
}


class Connection:
    """A database connection, used by one thread.

    Parameters
    ----------
    where : its name in errors
    connect : opens the connection of ADBC, in which each statement is its own transaction
    options : of each statement
    """

    def __init__(self, where: str, connect: Callable[[], Any], options: Mapping[str, str] | None = None):
        self.where = where
        self._options = dict(options or {})
        try:
            self._adbc = connect()
        except (ImportError, PolicyError):
            raise
        except Exception as error:
            raise failure(where, error, CONNECTING) from None

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement with a small result; return all rows."""
        try:
            with self._cursor() as cursor:
                cursor.execute(statement)
                found: list[tuple[Any, ...]] = cursor.fetchall()
                return found
        except Exception as error:
            raise failure(self.where, error) from None

    def execute(self, statement: str) -> None:
        """Run a statement that returns no rows."""
        try:
            with self._cursor() as cursor:
                cursor.execute(statement)
        except Exception as error:
            raise failure(self.where, error) from None

    def schema(self, statement: str) -> pa.Schema:
        """Run a statement without rows; return the Arrow schema of its result."""
        try:
            with self._cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetch_arrow_table().schema
        except Exception as error:
            raise failure(self.where, error) from None

    def batches(self, statement: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Run a statement, and yield its rows as they arrive in record batches of at most ``batch_rows``."""
        cursor = self._cursor()
        is_whole = False
        try:
            for batch in self._read(cursor, statement):
                for start in range(0, batch.num_rows, batch_rows):
                    yield batch.slice(start, batch_rows)
            is_whole = True
        finally:
            self._close_cursor(cursor, is_whole)

    def _read(self, cursor: Any, statement: str) -> Iterator[pa.RecordBatch]:
        """Run a statement with a cursor, and yield its record batches."""
        try:
            cursor.execute(statement)
            yield from cursor.fetch_record_batch()
        except Exception as error:
            raise failure(self.where, error) from None

    def _close_cursor(self, cursor: Any, is_whole: bool) -> None:
        """Close a cursor; cancel its statement if it was not read to the end."""
        try:
            if not is_whole:
                cursor.adbc_cancel()
            cursor.close()
        except Exception as error:
            if is_whole:
                raise failure(self.where, error) from None

    def _cursor(self) -> Any:
        """Return a new cursor with the options of this connection."""
        return self._adbc.cursor(adbc_stmt_kwargs=self._options)

    def close(self) -> None:
        """Close the connection, whatever its state."""
        try:
            self._adbc.close()
        except Exception:  # a cursor that its server left; its message may quote a row
            return


def failure(where: str, error: Exception, doing: str = "cannot be read") -> Exception:
    """Return a `CorpusError` for a database driver's error, which says what failed (``doing``), SQLSTATE and its
    meaning, but not the driver's message.
    """
    code = getattr(error, "sqlstate", None)
    code = code if isinstance(code, str) and re.fullmatch("[0-9A-Z]{5}", code) and code != "00000" else None
    meaning = next((MEANINGS[key] for key in (code or "", (code or "")[:2]) if key in MEANINGS), None)
    if code == "42501" and ROW_SECURITY in str(error):
        meaning = HIDDEN
    if code is None:
        status = getattr(getattr(error, "status_code", None), "name", None) or type(error).__name__
        known = CONNECTIONS if doing == CONNECTING else PHRASES
        meaning = next((said for pattern, said in known.items() if re.search(pattern, str(error))), None)
        parts = [meaning, f"no SQLSTATE, {status}"]
    else:
        parts = [meaning, f"SQLSTATE {code}"]
    return CorpusError(f"{where}: {doing} ({'; '.join(filter(None, parts))})")


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: str) -> str:
    """Return a string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows and columns of the documents in a database.

    Attributes
    ----------
    rows : what stands after FROM
    expressions : column -> expression; None: every column is called by its own name
    condition : what stands after WHERE
    """

    rows: str
    expressions: Mapping[str, str] | None = None
    condition: str | None = None

    @classmethod
    def of(cls, table: str | None, query: str | None, preset: str | None, columns: Sequence[str]) -> Selection:
        """Return the SQL selection (source of rows, columns, condition) of a job's documents, from its table, query or
        preset (known table layout).

        Raises
        ------
        PolicyError
            A column is none of the preset's.
        """
        if query is not None:
            return cls(f"({query.strip().rstrip(';')}\n) AS n")
        if preset is None:
            return cls(f"{table} AS n")
        model = PRESETS[preset]
        for name in columns:
            if name not in model.columns:
                raise PolicyError(f"corpus.preset: {preset} has no column {name}; it has {', '.join(model.columns)}")
        notes = table or model.notes
        schema = notes.rpartition(".")[0]
        used = {model.columns[name].partition(".")[0] for name in columns}
        joins = [
            join.format(schema=f"{schema}." if schema else "") for alias, join in model.joins.items() if alias in used
        ]
        return cls(" ".join([f"{notes} AS n", *joins]), model.columns, model.condition)

    def expression(self, column: str) -> str:
        """Return the SQL expression of a column."""
        return f"n.{quoted(column)}" if self.expressions is None else self.expressions[column]

    def of_register(self, table: str, individual_id: str) -> Selection:
        """Return the SQL selection of a table of withdrawn individuals, whose id column has the same name as in the
        table of documents.
        """
        return Selection(f"{table} AS n", {individual_id: f"n.{self.expression(individual_id).partition('.')[2]}"})

    def statement(
        self,
        expressions: Mapping[str, str] | None,
        *conditions: str | None,
        limit: int | None = None,
        quote: Callable[[str], str] = quoted,
        distinct: bool = False,
    ) -> str:
        """Return a SELECT statement of these expressions (column -> SQL; None: all columns) with all conditions."""
        chosen = "n.*"
        if expressions is not None:
            chosen = ", ".join(f"{expression} AS {quote(name)}" for name, expression in expressions.items())
        wanted = [f"({condition})" for condition in (self.condition, *conditions) if condition]
        where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
        chosen = f"DISTINCT {chosen}" if distinct else chosen
        return f"SELECT {chosen} FROM {self.rows}{where}{'' if limit is None else f' LIMIT {limit}'}"

    def query_of(self, column: str, condition: str | None = None) -> str:
        """Return an SQL query that a user can run to see the rows whose ``column`` fulfils ``condition``; without one,
        the values that occur more than once.
        """
        expression = self.expression(column)
        if condition is not None:
            return f"SELECT n.* FROM {self.rows} WHERE {expression} {condition}"
        return f"SELECT {expression}, count(*) FROM {self.rows} GROUP BY {expression} HAVING count(*) > 1"

    def describe_columns(self, connection: Connection, columns: Sequence[str], where: str) -> pa.Schema:
        """Return the Arrow schema of these columns as the database reports it. Raise `CorpusError` if a column does not
        exist.
        """
        if self.expressions is None:
            schema = connection.schema(self.statement(None, limit=0))
            require_columns(schema.names, columns, where)
            return pa.schema([schema.field(name) for name in columns])
        return connection.schema(self.statement({name: self.expression(name) for name in columns}, limit=0))
