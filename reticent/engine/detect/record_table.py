"""The file that holds a table of records: Parquet, or CSV in any dialect in which documents may be.

CSV is read as documents are (`reticent.engine.sources.csv_rows`), every value as it stands: a number that is read as
one loses its zeros. An error never shows the columns of a CSV file: a file without a header has data there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import CorpusError, cause
from reticent.engine.sources.compressed import COMPRESSIONS
from reticent.engine.sources.config import CsvDialect
from reticent.engine.sources.csv_dialect import find_form
from reticent.engine.sources.csv_rows import CsvSource, read_csv
from reticent.engine.sources.reading import Reading
from reticent.engine.sources.source import Request

__all__ = ["columns_of", "read_record_table"]


def read_record_table(path: Path, wanted: Sequence[str]) -> tuple[pa.Table, str | None]:
    """Read a table of records, and say how CSV was read where it is not commas, double quotes and UTF-8.

    Parameters
    ----------
    wanted : sequence of str
        Columns that the table must have; the dialect of CSV is the one in which its first line names them.

    Raises
    ------
    CorpusError
        The file cannot be read, a line is no row, a column stands twice or a wanted one is missing.
    """
    try:
        if not _is_csv(path):
            table, said = pq.ParquetFile(path).read(), None
            _check(path, table.column_names, wanted)
            return table, said
        form = find_form(path, CsvDialect(), wanted)
        _check(path, form.header, wanted)
        reading, columns = Reading(), list(form.header)
        source = CsvSource(columns=tuple(wanted), reading=reading)
        batches = list(read_csv(path, Request(columns=columns, csv=source)))
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"{path}: not a readable table of records in Parquet or CSV ({cause(error)})") from None
    table = pa.Table.from_batches(batches, pa.schema([(name, pa.large_string()) for name in columns]))
    said = reading.dialects.get(path)
    return table, f"{path}: read {said}" if said else None


def columns_of(path: Path, names: Sequence[str]) -> str:
    """Say which columns a table has; of CSV only how many."""
    if not _is_csv(path):
        return f"it has {', '.join(names)}"
    said = f"the first line must name each once, and names {len(names)} column(s)"
    return said + ("; a comma, a semicolon, a tab or | stands between columns" if len(names) == 1 else "")


def _check(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise CorpusError(f"{path}: a column name stands twice; {columns_of(path, names)}")
    if missing := set(wanted) - set(names):
        column = min(missing, key=lambda name: (name == "individual_id", name))
        other = ' (detect.records.fields = { individual_id = "COLUMN" } names another)'
        other = other if column == "individual_id" else ""
        raise CorpusError(f"{path}: column {column} is missing{other}; {columns_of(path, names)}")


def _is_csv(path: Path) -> bool:
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return plain.suffix.lower() in (".csv", ".tsv")
