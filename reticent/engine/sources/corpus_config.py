"""Settings of a corpus: where the documents are, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from reticent.core.errors import PolicyError
from reticent.core.section import PUBLISHED, Section
from reticent.engine.identity import Ids
from reticent.engine.sources.config import Columns, CsvDialect, Markup, OnNull
from reticent.engine.sources.files import format_options
from reticent.engine.sources.formats import FORMATS
from reticent.engine.sources.table import check_address, is_remote, refuse_secrets, row_of

_PART: Final = r'(?:"(?:[^"\0]|"")+"|`[^`\0]+`|\[[^\]\0]+\]|[\w$#]+(?:-[\w$#]+)*)'
#: The name of a table, as databases write it.
_TABLE: Final = re.compile(rf"{_PART}(?:\.{_PART}){{0,3}}")


class Warehouse(Section):
    """How documents in databases, object stores and data lakes are selected and read."""

    section: ClassVar[str] = "corpus"

    table: str | None = Field(
        default=None, description="databases: the table or view of the notes, SCHEMA.TABLE, with the columns above"
    )
    query: str | None = Field(default=None, description="databases: a SELECT with the columns above")
    preset: Literal["omop", "i2b2"] | None = Field(
        default=None, description="databases: tables and columns of a model of clinical data; table names its notes"
    )
    opt_out: str | None = Field(
        default=None,
        description="databases: a table of individuals who withdrew, SCHEMA.TABLE, none of whose notes is read; its "
        "column of their ids is called as that of the notes, and its ids are compared as corpus.ids says",
    )
    row_security: Literal["stop", "filtered"] = Field(
        default="stop",
        description="PostgreSQL: where a policy hides rows of the notes from the role, the reading stops, or only the "
        "rows that it shows are wanted; of opt_out no row may be hidden",
    )
    version: str | None = Field(
        default=None, description="Delta: number of the version; Iceberg: id of the snapshot (default: the newest)"
    )
    connections: int = Field(
        default=1,
        ge=1,
        le=64,
        description="stretches that are read at the same time, each by a connection of its own; of one snapshot",
    )

    def check_remote(self, sources: Sequence[str]) -> None:
        """Raise `PolicyError` for contradictory settings of remote sources, or an address that contains a secret.

        Raises
        ------
        PolicyError
            No value is quoted: it may be the secret.
        """
        for source in sources:
            refuse_secrets(source, "corpus.source")
        remote = [source for source in sources if is_remote(source)]
        choices = ("table", "query", "preset", "opt_out", "version", "row_security")
        given = [name for name in choices if getattr(self, name) not in (None, "stop")]
        if not remote:
            if given or self.connections != 1:
                names = ", ".join(f"corpus.{name}" for name in given or ["connections"])
                raise PolicyError(f"{names}: means nothing for local files")
            return
        for source in remote:
            check_address(source)
        if len(sources) > 1:
            raise PolicyError("corpus.source: a database, an object store or a lake is the only source of a job")
        self._check_settings_of_kind(row_of(remote[0]).kind, given)

    def _check_settings_of_kind(self, kind: str, given: Sequence[str]) -> None:
        """Raise `PolicyError` if the settings named in ``given`` do not apply to this kind of source ("database",
        "lake" or other), or if those of a database are incomplete or contradictory."""
        chosen = [name for name in given if name not in ("version", "opt_out", "row_security")]
        if kind != "database":
            if chosen := [name for name in given if name != "version"]:
                raise PolicyError(f"corpus.{chosen[0]}: means something for a database alone")
            if "version" in given and kind != "lake":
                raise PolicyError("corpus.version: means something for Delta and Iceberg alone")
            return
        for name in ("table", "opt_out"):
            if (given_name := getattr(self, name)) is not None and not _TABLE.fullmatch(given_name):
                raise PolicyError(
                    f"corpus.{name}: expected the name of a table, SCHEMA.TABLE, and no expression of SQL"
                )
        if "version" in given:
            raise PolicyError("corpus.version: a database has none; its snapshot is taken when it is read")
        if ("query" in chosen and len(chosen) > 1) or not chosen:
            raise PolicyError("corpus: a database needs table, query or preset (table and preset go together)")


def _check_format(name: str) -> str:
    """Return the name of a document format unchanged; `PolicyError` if it is unknown."""
    if name != "auto":
        format_options(name)
    return name


def _check_time_zone(name: str | None) -> str | None:
    """Return the name of a time zone unchanged; `ValueError` if it is unknown."""
    if name is not None and name not in available_timezones():
        raise ValueError("expected the name of a time zone, such as Europe/Paris")
    return name


class CorpusConfig(Columns, CsvDialect, Markup, Warehouse):
    """The source of the documents, and settings of reading them."""

    source: str | tuple[str, ...] = Field(
        description="file, folder or glob of documents, or the address of a database, a store, a lake or an export"
    )
    format: Annotated[str, AfterValidator(_check_format), PUBLISHED] = Field(
        default="auto", description="auto: Parquet, Arrow, CSV or JSONL by the suffix"
    )
    ids: Ids = Field(
        default="stop",
        description="ids of individuals or households that differ only in case, blanks, invisible characters, Unicode "
        "form, zero padding or a trailing .0: they stop the run, are joined, or stay different",
    )
    real_ids: tuple[str, ...] = Field(
        default=(),
        description="ids of individuals or households that look like a word for no id (NULL, nan, N/A, -, unknown) and "
        "are real; any other such word stops the run",
    )
    withdrawn: tuple[str, ...] = Field(
        default=(), description="files of individual ids, one a line, whose documents are left out everywhere"
    )
    readmitted: tuple[str, ...] = Field(
        default=(),
        description="files, or tables of the database, of ids of individuals whose documents may be read though an "
        "earlier reading left them, or whose they were, out; who is in withdrawn or opt_out stays out",
    )
    on_unmatched: Literal["warn", "stop"] = Field(
        default="warn", description="where none of the ids of a list or table of who withdrew is an individual here"
    )
    time_zone: Annotated[str | None, AfterValidator(_check_time_zone), PUBLISHED] = Field(
        default=None,
        description="in which times with a zone are read, such as birth dates of records (Europe/Paris); without it "
        "each must be midnight in UTC",
    )
    on_null: OnNull = Field(
        default="stop", description="a document whose text is null stops the run, or is left out and counted"
    )

    @model_validator(mode="after")
    def _check_source(self) -> CorpusConfig:
        """Raise `ValueError` or `PolicyError` for settings that do not apply to the configured source."""
        self.check_remote(self.sources)
        if self.is_database and not all(_TABLE.fullmatch(name) or Path(name).is_file() for name in self.readmitted):
            raise ValueError("corpus.readmitted: expected files, or names of tables")
        if self.remote is not None:
            named = {"format", *CsvDialect.model_fields, *Markup.model_fields}
            given = [name for name in sorted(named) if getattr(self, name) != type(self).model_fields[name].default]
            row = row_of(self.remote)
            if row.scheme == "pages" and {*given} <= {"individual", "individuals"}:
                self.check_markup(row.scheme, {"individual", "individuals"})
            elif given and (row.kind != "store" or self.marked or self.format == "txt"):
                raise ValueError(f"corpus.{given[0]}: means nothing for this source")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The configured sources as a tuple."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def remote(self) -> str | None:
        """Address of the remote source, whose documents are copied once into the run folder; None for local files."""
        return next(filter(is_remote, self.sources), None)

    @property
    def is_database(self) -> bool:
        """Whether the documents are read from a database."""
        return self.remote is not None and row_of(self.remote).kind == "database"

    @property
    def marked(self) -> bool:
        """Whether the document format includes annotated identifier spans."""
        if self.format == "auto":
            return False
        return self.format in FORMATS and FORMATS[self.format].is_marked
