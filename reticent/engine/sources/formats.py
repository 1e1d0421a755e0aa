"""The table of formats. To add one, write its reader in a file of its own and its row here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from reticent.core.errors import CorpusError
from reticent.engine.sources.arrow_ipc import read_arrow
from reticent.engine.sources.compressed import COMPRESSIONS
from reticent.engine.sources.csv_rows import read_csv
from reticent.engine.sources.format import Format
from reticent.engine.sources.json_lines import read_jsonl
from reticent.engine.sources.markup import read_brat, read_i2b2_2006, read_i2b2_2014, read_tab
from reticent.engine.sources.parquet import read_parquet, row_groups
from reticent.engine.sources.source import Request
from reticent.engine.sources.standoff import marked_reader

__all__ = ["FORMATS", "Format", "document_suffix", "format_names", "format_of", "read_batches"]

_ROWS: Final = (
    Format(
        name="parquet",
        title="Parquet",
        suffixes=(".parquet", ".pq"),
        read=read_parquet,
        row_groups=row_groups,
    ),
    Format(name="arrow", title="Arrow", suffixes=(".arrow", ".ipc", ".feather"), read=read_arrow),
    Format(name="csv", title="CSV", suffixes=(".csv",), read=read_csv, is_compressible=True),
    Format(name="jsonl", title="JSONL", suffixes=(".jsonl", ".ndjson"), read=read_jsonl, is_compressible=True),
    Format(
        name="i2b2-2006",
        title="i2b2 2006",
        suffixes=(".xml",),
        read=marked_reader("i2b2-2006", read_i2b2_2006),
        is_marked=True,
        names_individuals=False,
        options=frozenset({"individual"}),
    ),
    Format(
        name="i2b2-2014",
        title="i2b2 2014",
        suffixes=(".xml",),
        read=marked_reader("i2b2-2014", read_i2b2_2014, individual=r"(?s)([^-]+)-.*", counts_line_ends=True),
        is_marked=True,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="meddocan",
        title="MEDDOCAN",
        suffixes=(".xml",),
        read=marked_reader("meddocan", read_i2b2_2014, counts_line_ends=True),
        is_marked=True,
        names_individuals=False,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="brat",
        title="BRAT",
        suffixes=(".txt", ".ann"),
        read=marked_reader("brat", read_brat),
        is_marked=True,
        names_individuals=False,
        options=frozenset({"individual", "offsets"}),
    ),
    Format(
        name="tab",
        title="TAB",
        suffixes=(".json", ".jsonl"),
        read=marked_reader("tab", read_tab),
        is_marked=True,
        options=frozenset({"individual", "offsets", "annotator", "identifiers"}),
    ),
)
#: Name -> format, in the order in which messages list them.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({row.name: row for row in _ROWS})
#: Suffix -> format, of those that need not be named.
_BY_SUFFIX: Final = MappingProxyType({suffix: row for row in _ROWS if not row.is_marked for suffix in row.suffixes})


def format_names() -> tuple[str, ...]:
    """Return the values of ``corpus.format``: "auto", and the name of every format."""
    return ("auto", *FORMATS)


def format_of(file: Path) -> Format | None:
    """Return the format that a file's suffix tells; None for another suffix, and for formats that must be named."""
    return _BY_SUFFIX.get(document_suffix(file))


def document_suffix(file: Path) -> str:
    """Return the suffix that tells a format, in small letters: ``.csv`` of ``notes.csv`` and of ``notes.csv.gz``."""
    inner, outer = Path(file.stem).suffix.lower(), file.suffix.lower()
    known = _BY_SUFFIX.get(inner)
    return inner if outer in COMPRESSIONS and known is not None and known.is_compressible else outer


def read_batches(file: Path, format: str, request: Request) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of a file, in batches of at most ``request.batch_rows`` rows.

    The readers' own messages may quote the data, so none is passed on.

    Raises
    ------
    CorpusError
        The file cannot be read or is not of this format, or a column is missing or stands there twice.
    """
    try:
        for batch in FORMATS[format].read(file, request):
            for start in range(0, batch.num_rows, request.batch_rows):
                yield batch.slice(start, request.batch_rows)
    except CorpusError:
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"not valid {format}"
        reason = reason if not file.is_file() or file.stat().st_size else "an empty file"
        raise CorpusError(f"{file}: cannot be read as {format} ({reason})") from None
