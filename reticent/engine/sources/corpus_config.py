"""Settings of a corpus: where the documents are, and how they are read."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from reticent.core.section import PUBLISHED
from reticent.engine.identity import Ids
from reticent.engine.sources.config import Columns, CsvDialect, Markup, OnNull
from reticent.engine.sources.remote_config import STORES, Warehouse, is_remote, scheme_of

__all__ = ["CorpusConfig"]


def _known_format(name: str) -> str:
    if name != "auto":
        from reticent.engine.sources.files import format_options  # with the readers of all formats

        format_options(name)
    return name


class CorpusConfig(Columns, CsvDialect, Markup, Warehouse):
    """The source of the documents, and settings of reading them."""

    source: str | tuple[str, ...] = Field(
        description="file, folder or glob of documents, or the address of a database, an object store or a lake"
    )
    format: Annotated[str, AfterValidator(_known_format), PUBLISHED] = Field(
        default="auto", description="auto: Parquet, Arrow, CSV or JSONL by the suffix"
    )
    ids: Ids = Field(
        default="stop",
        description="ids of individuals or households that differ only in case, blanks, invisible characters, Unicode "
        "form, zero padding or a trailing .0: they stop the run, are joined, or stay different",
    )
    withdrawn: tuple[str, ...] = Field(
        default=(), description="files of individual ids, one a line, whose documents are left out everywhere"
    )
    on_null: OnNull = Field(
        default="stop", description="a document whose text is null stops the run, or is left out and counted"
    )

    @model_validator(mode="after")
    def _one_source(self) -> CorpusConfig:
        self.check_remote(self.sources)
        if self.remote is not None:
            named = {"format", *CsvDialect.model_fields, *Markup.model_fields}
            given = [name for name in sorted(named) if getattr(self, name) != type(self).model_fields[name].default]
            if given and (scheme_of(self.remote) not in STORES or self.marked):
                raise ValueError(f"corpus.{given[0]}: means nothing for this source")
        return self

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources, of which there may be one."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def remote(self) -> str | None:
        """The address of the documents, which are read once into the run folder; None for local files."""
        return next(filter(is_remote, self.sources), None)

    @property
    def marked(self) -> bool:
        """Whether the format has annotated spans."""
        if self.format == "auto":
            return False
        from reticent.engine.sources.formats import FORMATS

        return self.format in FORMATS and FORMATS[self.format].is_marked
