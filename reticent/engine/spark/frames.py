"""Data frames of documents: those of Parquet files, with the place of each row, and the columns that are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.sources.columns import SOURCE_COLUMN
from reticent.engine.sources.config import Columns
from reticent.engine.spark.tasks import SparkError, errors_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FILE", "ROW", "of_files", "selected"]

#: Columns of where a document stands in files.
FILE: Final = "file"
ROW: Final = "row"


def of_files(spark: SparkSession, documents: Any) -> tuple[DataFrame, dict[str, int]]:
    """A data frame of Parquet files with places, and the number of each file in the order of their names."""
    paths = [str(path) for path in ([documents] if isinstance(documents, str | Path) else documents)]
    try:
        with errors_of_tasks():
            frame = spark.read.parquet(*paths).select("*", "_metadata.file_path", "_metadata.row_index")
            frame = frame.withColumnsRenamed({"file_path": FILE, "row_index": ROW})
            names = sorted(frame.inputFiles(), key=lambda name: unquote(urlparse(name).path))
    except SparkError as error:
        if error.kind == "PATH_NOT_FOUND":
            raise CorpusError(f"{paths[0]}: Spark finds nothing there") from None
        raise CorpusError(f"{paths[0]}: Spark cannot read it as Parquet ({error.kind or 'no kind is named'})") from None
    return frame, {unquote(urlparse(name).path): number for number, name in enumerate(names)}


def selected(frame: DataFrame, columns: Columns, has_places: bool, more: Sequence[str] = ()) -> DataFrame:
    """The columns of documents, by our names of them, more columns as `SOURCE_COLUMN`, and places where there are any.

    Raises `CorpusError` where a column lacks, `PolicyError` where one of the other columns has a name of ours.
    """
    from pyspark.sql.functions import col

    wanted = {name: getattr(columns, name) for name in ("doc_id", "individual_id", "text", "household_id", "spans")}
    if taken := [name for name in more if name in wanted]:
        raise PolicyError(f"column {taken[0]}: give it another name; on Spark it is the name of a column of documents")
    wanted = {name: given for name, given in wanted.items() if given is not None}
    if missing := [given for given in (*wanted.values(), *more) if given not in frame.columns]:
        there = [name for name in frame.columns if not (has_places and name in (FILE, ROW))]
        raise CorpusError(f"column {missing[0]} is missing; there are {', '.join(there)}")
    own = [
        (column if name == "spans" else column.cast("string")).alias(name)
        for name, given in wanted.items()
        for column in [col(f"`{given}`")]
    ]
    own += [col(f"`{name}`").alias(f"{SOURCE_COLUMN}{name}") for name in more]
    return frame.select(*own, *([FILE, ROW] if has_places else []))
