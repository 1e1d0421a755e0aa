"""Settings of reading documents: names of columns, CSV dialect and marked-up formats."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from reticent.core.errors import PolicyError
from reticent.core.section import PUBLISHED, Section

OnNull = Literal["stop", "skip"]

_BY_NAME: Final = {"tab": "\t", "\\t": "\t", "space": " ", "none": None}


class Columns(Section):
    """The source's name of each column; None for a column that is not there."""

    section: ClassVar[str] = "corpus"

    doc_id: str = "doc_id"
    individual_id: str = "individual_id"
    text: str = "text"
    household_id: str | None = None
    label: str | None = None
    spans: str | None = None
    mentions: str | None = Field(default=None, description="column of marks with entity_id and identifier_type")


class CsvDialect(Section):
    """Settings of reading CSV files; "auto": decided for each file."""

    section: ClassVar[str] = "corpus"

    delimiter: Annotated[str, PUBLISHED] = Field(
        default="auto",
        description='CSV only: one character of ASCII, or "tab"; auto: the one of , ; tab | that fits the header',
    )
    quote: Annotated[str, PUBLISHED] = Field(
        default="auto",
        description='CSV only: one character of ASCII, or "none" if quotes are part of the text; auto: double quotes, '
        "unless the header names the columns in single ones only",
    )
    encoding: Annotated[str, PUBLISHED] = Field(
        default="auto",
        description="CSV and text files: an encoding of Python; auto: that of the byte order mark, or else UTF-8 or "
        "cp1252",
    )

    def check_dialect(self, format: str) -> None:
        """Raise `PolicyError` for a CSV setting that is invalid, or that does not apply to this file format."""
        for name in CsvDialect.model_fields:
            if format != "csv" and getattr(self, name) != "auto" and (format, name) != ("txt", "encoding"):
                raise PolicyError(f"corpus.{name}: means nothing for format {format}, only for csv")
        for name, words in (("delimiter", "auto, tab"), ("quote", "auto, none")):
            value = self.given(name)
            if name == "delimiter" and self.delimiter == "none":
                raise PolicyError("corpus.delimiter: none cannot be it; a file of one column has no document")
            if value is not None and (
                len(value) != 1 or not value.isascii() or value.isalnum() or not (value.isprintable() or value == "\t")
            ):
                raise PolicyError(f"corpus.{name}: expected {words} or one character of ASCII, got {value!r}")
        if self.delimiter != "auto" and self.given("delimiter") == self.given("quote"):
            raise PolicyError("corpus.delimiter and corpus.quote are the same character")
        if self.encoding != "auto":
            try:
                "a,b\n".encode(self.encoding)
            except (LookupError, ValueError):
                raise PolicyError(
                    f"corpus.encoding: expected auto or a text encoding, such as utf-8, cp1252, utf-16, "
                    f"got {self.encoding!r}"
                ) from None

    def given(self, name: str) -> str | None:
        """Return the configured character of the setting "delimiter" or "quote"; None for "none" and "auto"."""
        value: str = getattr(self, name)
        return None if value == "auto" else _BY_NAME.get(value, value)


class Markup(Section):
    """Settings of reading a marked-up corpus (i2b2, MEDDOCAN, BRAT, TAB).

    ``individual`` is by default the part of the id before the first ``-`` for i2b2 2014; elsewhere every document is an
    individual of its own. If individuals have several documents, this must be given: otherwise
    n-grams of one individual count as used by several.
    """

    section: ClassVar[str] = "corpus"

    offsets: Literal["characters", "bytes", "utf-16"] = Field(
        default="characters", description="unit of the offsets of a marked-up format"
    )
    individual: str | None = Field(
        default=None,
        description="regular expression of the whole id of a marked-up document or a text file, its group the "
        "individual",
    )
    individuals: str | None = Field(
        default=None,
        description="text files: a table (Parquet or CSV) of the ids or names of files and their individuals",
    )
    annotator: str | None = Field(default=None, description="the annotator of TAB whose marks are read; default: all")
    identifiers: tuple[Literal["DIRECT", "QUASI", "NO_MASK"], ...] = Field(
        default=("DIRECT", "QUASI"), description="types of TAB whose mentions are spans"
    )

    def check_markup(self, format: str, options: Set[str]) -> None:
        """Raise `PolicyError` for an invalid setting of annotated formats, or one that is not among this format's
        ``options``."""
        default = Markup()
        given = {name for name in Markup.model_fields if getattr(self, name) != getattr(default, name)}
        for name in sorted(given - options):
            raise PolicyError(f"corpus.{name}: means nothing for format {format}")
        if self.individual is not None and self.individuals is not None:
            raise PolicyError("corpus.individual and corpus.individuals exclude each other")
        if not self.identifiers:
            raise PolicyError("corpus.identifiers: expected some of DIRECT, QUASI, NO_MASK")
        if self.individual is not None:
            try:
                groups = re.compile(self.individual).groups
            except re.error as error:
                raise PolicyError(f"corpus.individual: not a regular expression ({error})") from None
            if groups != 1:
                raise PolicyError(f"corpus.individual: expected one group, the individual, got {groups}")
