"""Documents in parts: read once, cut by a hash of the individual (or household), and checked as on one machine.

A part is one Arrow table in document order, serialised to bytes. What must hold over all documents (no repeated id, one
household for each individual, no two spellings of one individual) is checked by grouping the ids of all parts; sorting
the ids numbers documents and individuals as one machine does.
"""

from __future__ import annotations

import itertools
import operator
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.core.errors import CorpusError, PolicyError
from reticent.engine.config import SplitConfig
from reticent.engine.identity import SAYS_MISSING, Ids, check_choice, fold_ids, missing_id_rows
from reticent.engine.schema import SPLITS
from reticent.engine.sources.columns import SOURCE_COLUMN, as_text, sorted_codes
from reticent.engine.sources.config import Columns, OnNull
from reticent.engine.sources.corpus_config import CorpusConfig
from reticent.engine.sources.files import TABLES, table_error
from reticent.engine.split import Individuals, make_individuals, require_sides, splits_households
from reticent.engine.withdrawn import DOCUMENTS_LEFT, LeftOut, OfList, Withdrawals, hash_texts, read_lines
from reticent.ext.spark.session import ROWS_PER_BATCH, check_session, session_of, setting
from reticent.ext.spark.tables import (
    blobs_of,
    decoded,
    encoded,
    in_order,
    map_elements,
    numbered,
    partition_tokens,
    persisted,
    repartition_by_part,
    rows_of_parts,
)
from reticent.ext.spark.tasks import SparkError, Task, errors_of_tasks

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

#: Columns of where a document stands in files, by names that no source has.
FILE: Final = "__reticent_file"
ROW: Final = "__reticent_row"
#: Spark's word for a type of Parquet that it does not read.
_ODD_TYPE: Final = "PARQUET_TYPE_ILLEGAL"
#: Settings of Spark by which files are passed over in silence.
SKIPPING: Final = ("ignoreCorruptFiles", "ignoreMissingFiles")


@dataclass(slots=True)
class SparkDocuments:
    """Documents cut into parts; see :func:`open_documents`.

    Attributes
    ----------
    parts : dataset of bytes, one element a part: a table of doc_id, individual_id, text, and household_id and spans
        where there are any, with ``number`` and ``individual`` (int64), those of the document and the individual among
        all, ``unit`` (int64), that of the unit in the part, and ``side`` (int8), a number of `SPLITS`
    tokens : of each part; see :mod:`reticent.ext.spark.tables`
    people : data frame, a row an individual in the order of ids: individual_id, unit_id, documents
    num_documents, num_individuals, num_units : over all parts
    num_skipped : documents left out, as their text is null
    num_hidden : files passed over, as a name begins with _ or .
    withdrawn : of each list of who withdrew its name, its ids, and how many of them are individuals
    left_out : the record of who was left out, now and earlier
    more : columns of the source that are kept beside these, as `SOURCE_COLUMN` and their names
    ids : how ids of individuals were read
    """

    spark: SparkSession
    parts: RDD
    tokens: list[int]
    people: DataFrame
    columns: Columns
    split: SplitConfig
    num_documents: int
    num_individuals: int
    num_units: int
    num_skipped: int
    num_hidden: int = 0
    withdrawn: tuple[OfList, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    more: tuple[str, ...] = ()
    ids: Ids = "stop"

    @property
    def num_parts(self) -> int:
        """Number of partitions of the documents."""
        return len(self.tokens)

    def individuals(self) -> Individuals:
        """Return all individuals with their side of the split (members, heldout or reference), in the driver's memory;
        they equal those of `split_individuals` on one machine.
        """
        people = pa.concat_tables(in_order(self.people.select("individual_id", "unit_id", "documents")))
        unit_names, units = sorted_codes(people.column("unit_id").cast(pa.string()))
        ids = people.column("individual_id").cast(pa.string()).combine_chunks()
        sides = _sides_of_units(unit_names, self.split)[units]
        return make_individuals(ids, units, sides, people.column("documents").to_numpy())

    def release(self) -> None:
        """Free the documents that are cached in the executors."""
        self.parts.unpersist()
        self.people.unpersist()


def _sides_of_units(units: pa.Array, split: SplitConfig) -> np.ndarray:
    """Return for each id of a privacy unit its side of the split, int8 index into `SPLITS` (members, heldout,
    reference). The side is drawn by a hash of the id, as `split_individuals` draws it on one machine.
    """
    uniform = _rust.hash_units(units, seed=split.seed).astype(np.float64) / 2.0**64
    sides = np.where(uniform < split.heldout, 1, np.where(uniform < split.heldout + split.reference, 2, 0))
    return sides.astype(np.int8)


def open_documents(
    documents: Any,
    *,
    columns: Columns | None = None,
    more: Sequence[str] = (),
    split: SplitConfig | None = None,
    ids: Ids = "stop",
    real_ids: Sequence[str] = (),
    on_null: OnNull = "stop",
    time_zone: str | None = None,
    withdrawn: Sequence[str | Path] = (),
    readmitted: Sequence[str | Path] = (),
    left_out: LeftOut | None = None,
    num_parts: int | None = None,
    unencrypted: bool = False,
    spark: SparkSession | None = None,
    warn: Callable[[str], object] = warnings.warn,
) -> SparkDocuments:
    """Read documents from a data frame or Parquet files once, check them, and cache them partitioned by individual or
    household on the executors.

    Parameters
    ----------
    documents : DataFrame, or a path or paths of Parquet files
        A data frame has the order of its document ids, in bytes; Parquet files that of their names and rows.
    columns, ids, real_ids, on_null, time_zone
        As of `open_corpus`.
    withdrawn : files of ids of individuals, one a line, whose documents are left out
    readmitted : such files of who opted in again
    left_out : the record of whom earlier readings left out, ``left_out`` of their result; each must be left out again
    more : columns beside these that a detector reads: ``detect.records.columns``
    num_parts : int, optional
        A part is held in memory by one task: 64 to 256 MB of text is a good size. Default: as many as the source has
        partitions, and at least two a core.
    unencrypted : bool
        See :func:`reticent.spark.check_session`.
    warn : called with each warning about the session, and about what is not read

    Raises
    ------
    CorpusError
        As `open_corpus` and `split_individuals`, but for places: a data frame has no rows to name.
    PolicyError
        The session is not fit, the files are no Parquet, or someone whom an earlier reading left out would come back,
        or a document of theirs under another id.
    """
    columns, split = columns or Columns(), split or SplitConfig()
    check_choice(ids)
    if on_null not in ("stop", "skip"):
        raise PolicyError(f"corpus.on_null: expected stop or skip, got {on_null!r}")
    is_frame = hasattr(documents, "sparkSession")
    spark = spark or session_of(documents)
    for sentence in check_session(spark, unencrypted=unencrypted, is_frame=is_frame):
        warn(sentence)
    if is_frame and (
        skips := [name for name in SKIPPING if _is_true(spark.conf.get(f"spark.sql.files.{name}", "false"))]
    ):
        raise PolicyError(
            f"spark.sql.files.{skips[0]} is true, by which files of the data frame are passed over in silence; set it "
            "to false before the frame is made, or give the paths of the files"
        )
    paths = [] if is_frame else _paths(spark, documents)
    frame, files = (documents, None) if is_frame else _read_parquet(spark, paths)
    num_hidden = 0 if files is None else _count_hidden_files(spark, paths, files)
    if num_hidden:
        warn(f"{num_hidden:,} file(s) are not read: a name begins with _ or .")
    with _explain_type_errors(spark, files, columns), errors_of_tasks():
        frame = _select_columns(frame, columns, files is not None, more)
        num_parts = num_parts or max(2 * spark.sparkContext.defaultParallelism, frame.rdd.getNumPartitions())
        cut = _Cut(split, frame.columns, files, ids, tuple(real_ids), time_zone)
        num_skipped = 0
        if files is not None:
            _refuse_lacking_columns(spark, frame, columns, on_null)
        if on_null == "skip":
            num_skipped = frame.filter(frame["text"].isNull()).count()
            frame = frame.filter(frame["text"].isNotNull())
            if num_skipped:
                warn(f"{num_skipped:,} documents are left out, as their text is null")
        lists: dict[str, Any] = {"withdrawn": tuple(map(str, withdrawn)), "readmitted": tuple(map(str, readmitted))}
        reading = Withdrawals(CorpusConfig(source="documents", ids=ids, **lists), left_out or LeftOut())
        frame = _without_withdrawn(frame, reading)
        parts = _partition(spark, frame, cut, num_parts)
    tokens = partition_tokens(spark, num_parts)
    with _explain_type_errors(spark, files, columns):
        rows = rows_of_parts(spark, parts, tokens, partial(_ids_of_partition, cut), _IDS).persist()
        people, num = _check_ids(rows, columns)
    made = SparkDocuments(
        spark,
        _number_globally(rows, people, parts, cut),
        tokens,
        people,
        columns,
        split,
        num_documents=num["documents"],
        num_individuals=num["individuals"],
        num_units=num["unit_id"],
        num_skipped=num_skipped,
        num_hidden=num_hidden,
        withdrawn=tuple(reading.lists),
        left_out=reading.record,
        more=tuple(more),
        ids=ids,
    )
    _require_sides(made)
    rows.unpersist()
    parts.unpersist()
    return made


def _read_parquet(spark: SparkSession, paths: Sequence[str]) -> tuple[DataFrame, dict[str, int]]:
    """Return a data frame of Parquet files with columns for file and row, and file path -> position in sorted order."""
    from pyspark.sql.functions import col

    inferring = "spark.sql.sources.partitionColumnTypeInference.enabled"  # 007 and 7 are two individuals
    try:
        with errors_of_tasks(), setting(spark, inferring, "false"):
            reader = spark.read
            for name in SKIPPING:
                reader = reader.option(name, "false")
            frame = reader.parquet(*paths)
            places = [col("_metadata.file_path").alias(FILE), col("_metadata.row_index").alias(ROW)]
            frame = frame.select("*", *places)
            names = sorted(frame.inputFiles(), key=lambda name: unquote(urlparse(name).path))
    except SparkError as error:
        if error.kind == "PATH_NOT_FOUND":
            raise CorpusError(f"{paths[0]}: Spark finds nothing there") from None
        more = (
            "; a column has a type that Spark does not read, such as UUID: write it as text"
            if error.kind == _ODD_TYPE
            else ""
        )
        said = f"Spark cannot read it as Parquet ({error.kind or 'no kind is named'})"
        raise CorpusError(f"{paths[0]}: {said}{more}") from None
    _refuse_tables(spark, names)
    return frame, {unquote(urlparse(name).path): number for number, name in enumerate(names)}


def _hadoop_path(spark: SparkSession) -> Any:
    """Return the JVM class of a file-system path, as Spark uses it."""
    context: Any = spark.sparkContext
    return context._jvm.org.apache.hadoop.fs.Path


def _configuration(spark: SparkSession) -> Any:
    """Return Hadoop's configuration object of the session."""
    context: Any = spark.sparkContext
    return context._jsc.hadoopConfiguration()


def _refuse_tables(spark: SparkSession, files: Sequence[str]) -> None:
    """Raise `CorpusError` if these files belong to a Delta or Iceberg table, which must be read as a table."""
    path, above = _hadoop_path(spark), set[str]()
    with errors_of_tasks():
        for folder in {unquote(name.rpartition("/")[0]) for name in files}:
            parent = path(folder)
            while parent is not None:
                above.add(parent.toString())
                parent = parent.getParent()
        for folder, mark in itertools.product(sorted(above), TABLES):
            marks = path(f"{_escape_glob(folder.rstrip('/'))}/{mark}")
            if len(marks.getFileSystem(_configuration(spark)).globStatus(marks) or ()):
                raise table_error(folder.removeprefix("file:"), mark)


@contextmanager
def _explain_type_errors(spark: SparkSession, files: dict[str, int] | None, columns: Columns) -> Iterator[None]:
    """Context manager: if Spark fails in its block and the files' column types differ, raise a `CorpusError` that names
    the file.
    """
    try:
        yield
    except SparkError:
        if files is not None:
            _refuse_other_types(spark, list(files), columns)
        raise


def _refuse_other_types(spark: SparkSession, files: Sequence[str], columns: Columns) -> None:
    """Raise `CorpusError` for the first file in which a column has another type than in the first file."""
    first: dict[str, str] = {}
    for file in files:
        with errors_of_tasks():
            frame = spark.read.parquet(_escape_glob(file))
            kinds = {column.name: column.dataType.simpleString() for column in frame.schema}
        for name in filter(None, columns.model_dump().values()):
            if name in kinds and first.setdefault(name, kinds[name]) != kinds[name]:
                raise CorpusError(f"{file} column {name}: is {kinds[name]} there, and {first[name]} in {files[0]}")


def _refuse_lacking_columns(spark: SparkSession, frame: DataFrame, columns: Columns, on_null: OnNull) -> None:
    """Raise `CorpusError` for a file that lacks a column, all of which Spark reads as null: a text that may be null, or
    what a detector or the split looks at."""
    from pyspark.sql.functions import count

    checked = {"doc_id", "individual_id", *(["text"] if on_null == "stop" else []), FILE, ROW}  # null is an error there
    if not (names := [name for name in frame.columns if name not in checked]):
        return
    counts = frame.groupBy(FILE).agg(*(count(f"`{name}`").alias(name) for name in names)).collect()
    for file, *there in sorted(row for row in map(tuple, counts) if 0 in row):
        own = {name.lower() for name in spark.read.parquet(_escape_glob(unquote(file))).columns}
        for name, num in zip(names, there, strict=True):
            given = name.removeprefix(SOURCE_COLUMN) if name.startswith(SOURCE_COLUMN) else getattr(columns, name)
            if not num and given.lower() not in own and f"/{given.lower()}=" not in file.lower():  # a folder may say it
                raise CorpusError(f"{unquote(urlparse(file).path)}: column {given} is missing")


def _paths(spark: SparkSession, documents: Any) -> list[str]:
    """Return the paths of documents for Spark, with glob characters escaped in paths that exist."""
    hadoop, paths = _hadoop_path(spark), [documents] if isinstance(documents, str | Path) else documents
    made = []
    with errors_of_tasks():
        for path in map(str, paths):
            place = hadoop(path)
            is_there = _PATTERN.search(path) and place.getFileSystem(_configuration(spark)).exists(place)
            made.append(_escape_glob(path) if is_there else path)
    return made


#: Signs of a pattern of paths.
_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")


def _escape_glob(path: str) -> str:
    """Return a path with its glob characters escaped."""
    return _PATTERN.sub(r"\\\g<0>", path)


def _is_true(setting: str | None) -> bool:
    """Return whether a Spark setting is "true"; None counts as false."""
    return (setting or "").lower() == "true"


def _count_hidden_files(spark: SparkSession, paths: Sequence[str], files: Mapping[str, int]) -> int:
    """Return the number of files under the paths that Spark skips, since a file or folder name begins with
    _ or a dot. Raise `CorpusError` for any other that is not among those that it reads (``files``), or is empty.
    """
    num_hidden, hadoop = 0, _hadoop_path(spark)
    with errors_of_tasks():
        for place in map(hadoop, paths):
            system = place.getFileSystem(_configuration(spark))
            for start in system.globStatus(place) or ():
                root = len(start.getPath().toUri().getPath())
                found = system.listFiles(start.getPath(), True)
                while found.hasNext():
                    status = found.next()
                    path = status.getPath().toUri().getPath()
                    if any(name[:1] in ("_", ".") and "=" not in name for name in path[root:].split("/")):
                        num_hidden += 1
                    elif path not in files:
                        raise CorpusError(
                            f"{path}: stands in a folder inside of the one that is read, where Spark reads no file; "
                            "give a pattern of these folders, such as FOLDER/*, and no other file beside them"
                        )
                    elif not status.getLen():
                        raise CorpusError(f"{path}: cannot be read as parquet (an empty file)")
    return num_hidden


def _select_columns(frame: DataFrame, columns: Columns, has_places: bool, more: Sequence[str] = ()) -> DataFrame:
    """Return the document columns of a data frame under their standard names, and the columns ``more`` with the prefix
    `SOURCE_COLUMN`. If it ``has_places``, the columns with the file and row of each document are kept.

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
    for name, given in wanted.items():
        _require_type(frame, name, given)
    own = [
        (column if name == "spans" else column.cast("string")).alias(name)
        for name, given in wanted.items()
        for column in [col(f"`{given}`")]
    ]
    own += [col(f"`{name}`").alias(f"{SOURCE_COLUMN}{name}") for name in more]
    return frame.select(*own, *([FILE, ROW] if has_places else []))


def _require_type(frame: DataFrame, name: str, column: str) -> None:
    """Raise `CorpusError` unless a data frame's ``column`` can be used as the documents' field ``name``: its type must
    convert to text without loss, or for an id also be an integer.
    """
    from pyspark.sql import types

    kind = frame.schema[column].dataType
    is_id = name in ("doc_id", "individual_id", "household_id")
    whole = isinstance(kind, types.IntegralType) or (isinstance(kind, types.DecimalType) and kind.scale == 0)
    if name == "spans" or isinstance(kind, types.StringType | types.CharType | types.VarcharType) or (is_id and whole):
        return
    more = "; cast it in the source, where every digit is known" if isinstance(kind, types.FractionalType) else ""
    expected = "text or integers" if is_id else "text"
    raise CorpusError(f"column {column}: expected {expected}, got {kind.simpleString()}{more}")


def _without_withdrawn(frame: DataFrame, withdrawals: Withdrawals) -> DataFrame:
    """Return the documents without those of individuals who have withdrawn. Raise an error if someone excluded earlier
    would come back.
    """
    settings, record = withdrawals.settings, withdrawals.record
    files = [*settings.withdrawn, *settings.readmitted]
    if not files and not record:
        return frame
    lines = fold_ids(read_lines(*files))
    names = frame.select("individual_id").filter("individual_id is not null").distinct()
    found = names.mapInArrow(
        Task(partial(_find_listed_ids, lines, record, settings.ids)), "individual_id string"
    ).collect()
    known = pa.array(sorted(row[0] for row in found), pa.string())
    gone = withdrawals.of_lists(known)
    if not len(gone) and not record:
        return frame
    columns = "doc_id string, individual_id string, sha256 binary"
    documents = frame.select("doc_id", "individual_id", "text")
    left = _collect_documents(documents.mapInArrow(Task(partial(_documents_of, gone)), columns))
    alike = documents.mapInArrow(
        Task(partial(_copies_of_excluded, gone, record, left.column("sha256").combine_chunks())), columns
    )
    withdrawals.end_with_tables(known, [_collect_documents(alike)], [left], gone)
    return frame.mapInArrow(Task(partial(_without_individuals, gone)), frame.schema)


def _collect_documents(documents: DataFrame) -> pa.Table:
    """Collect a small data frame of documents as a table (schema `DOCUMENTS_LEFT`)."""
    return pa.Table.from_pylist([row.asDict() for row in documents.collect()], schema=DOCUMENTS_LEFT)


def _find_listed_ids(
    listed_ids: pa.Array, record: LeftOut, choice: Ids, batches: Iterable[pa.RecordBatch]
) -> Iterable[pa.RecordBatch]:
    """Yield the rows of ids that may belong to withdrawn individuals: their normalised spelling is in ``listed_ids``,
    or the ``record`` of earlier withdrawals has them. ``choice`` is the setting on spelling variants of ids.
    """
    for batch in batches:
        ids = _valid_text(batch.column(0), "individual_id")
        is_listed = pc.is_in(fold_ids(ids), value_set=listed_ids)
        yield batch.filter(pc.or_(is_listed, pa.array(record.has_individuals(ids, choice))))


def _documents_of(withdrawn_ids: pa.Array, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield the documents of the individuals ``withdrawn_ids``, with the digest of each text."""
    for table in hash_texts(batches):
        yield from table.filter(pc.is_in(table.column("individual_id"), value_set=withdrawn_ids)).to_batches()


def _copies_of_excluded(
    withdrawn_ids: pa.Array, record: LeftOut, digests: pa.Array, batches: Iterable[pa.RecordBatch]
) -> Iterable[pa.RecordBatch]:
    """Yield the documents of other individuals that are copies of withdrawn individuals' documents: the SHA-256 of
    their text is in ``digests``, or the ``record`` of earlier withdrawals marks them.
    """
    for table in hash_texts(batches):
        is_left = pc.is_in(table.column("sha256"), value_set=digests, skip_nulls=True)
        others = pc.invert(pc.is_in(table.column("individual_id"), value_set=withdrawn_ids))
        yield from table.filter(
            pc.and_(others, pc.or_(is_left, pa.chunked_array([pa.array(record.marked(table))])))
        ).to_batches()


def _without_individuals(withdrawn_ids: pa.Array, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield the documents of all individuals who are not in ``withdrawn_ids``."""
    for batch in batches:
        yield batch.filter(
            pc.invert(pc.is_in(batch.column("individual_id").cast(pa.string()), value_set=withdrawn_ids))
        )


def _partition(spark: SparkSession, frame: DataFrame, cut: _Cut, num_parts: int) -> RDD:
    """Partition the documents so that all of one individual (or household) are in one partition. Return an RDD with one
    element for each partition: its documents as a serialised Arrow table.
    """
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH)):
        if cut.ids == "fold":  # two spellings of one individual belong to one part
            frame = frame.mapInArrow(Task(_fold_id_columns), frame.schema)
        return persisted(blobs_of(frame.repartition(num_parts, cut.unit), cut))


def _fold_id_columns(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield documents with individual and household ids normalised in spelling, so that variants of one id are
    equal.
    """
    for batch in batches:
        for name in ("individual_id", "household_id"):
            if name in batch.schema.names:
                folded = fold_ids(_valid_text(batch.column(name), name))
                batch = batch.set_column(batch.schema.names.index(name), name, folded)
        yield batch


def _valid_text(column: pa.Array, name: str) -> pa.Array:
    """Return the column ``name`` as strings. Raise `CorpusError` if a value is not valid UTF-8, which Spark does not
    check.
    """
    if _rust.check_utf8(column) is not None:
        raise CorpusError(f"column {name}: a document holds bytes that are not valid UTF-8")
    return column.cast(pa.string())


@dataclass(frozen=True, slots=True)
class _Cut:
    """Callable that turns the rows of a part into its serialised table, checked and in document order; ``columns`` are
    those of the documents."""

    split: SplitConfig
    columns: InitVar[Sequence[str]]
    files: dict[str, int] | None
    ids: Ids
    real_ids: tuple[str, ...]
    time_zone: str | None = None
    by_household: bool = field(init=False)

    def __post_init__(self, columns: Sequence[str]) -> None:
        object.__setattr__(self, "by_household", splits_households(columns, self.split))

    @property
    def unit(self) -> str:
        """Name of the id column by which documents are partitioned: household_id or individual_id."""
        return "household_id" if self.by_household else "individual_id"

    def __call__(self, table: pa.Table) -> bytes:
        columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
        if columns["text"].null_count:
            raise CorpusError("a document has no text (null); corpus.on_null = skip leaves such documents out")
        for name in ("doc_id", "individual_id", *(["household_id"] if "household_id" in columns else [])):
            ids = _valid_text(columns[name], name)
            may_be_null = name == "household_id" and not self.by_household
            if (ids.null_count and not may_be_null) or len(_rust.blank_rows(ids)):
                raise CorpusError(f"column {name}: a document has none (null or blank)")
            if name != "doc_id" and len(missing_id_rows(ids, self.real_ids)):
                raise CorpusError(f"column {name}: {SAYS_MISSING}")
            columns[name] = ids.fill_null("")
        for name in [name for name in columns if name.startswith(SOURCE_COLUMN)]:
            column = name.removeprefix(SOURCE_COLUMN)
            columns[name] = as_text(columns[name], column, "the documents", self.time_zone)
        columns["key"] = columns["doc_id"]
        if self.files is not None:
            numbers = [self.files[unquote(urlparse(name).path)] for name in columns.pop(FILE).to_pylist()]
            rows = columns.pop(ROW).to_pylist()
            columns["key"] = pa.array([f"{a:08x}{b:016x}" for a, b in zip(numbers, rows, strict=True)], pa.string())
        return encoded(pa.table(columns).sort_by("key").combine_chunks())


_IDS: Final = pa.schema(
    [(name, pa.string()) for name in ("doc_id", "key", "individual_id", "unit_id", "spelling", "unit_spelling")]
)


def _ids_of_partition(cut: _Cut, number: int, data: bytes) -> pa.Table | None:
    """Return a table of the document, individual and unit (household or individual) ids in a partition. Individual and
    unit ids are given twice, as they are and in normalised spelling, to find variants of one id. None if the partition
    is empty.
    """
    if not data:
        return None
    table = decoded(data)
    spellings = [table.column(name).combine_chunks() for name in ("individual_id", cut.unit)]
    if cut.ids == "stop":
        spellings = [fold_ids(ids) for ids in spellings]
    columns = [table.column(name) for name in ("doc_id", "key", "individual_id", cut.unit)]
    return pa.table([*columns, *spellings], schema=_IDS)


def _check_ids(rows: DataFrame, columns: Columns) -> tuple[DataFrame, Any]:
    """Raise `CorpusError` unless document ids are unique, each individual has one household, and no two ids differ in
    spelling only. Return a data frame of the individuals in id order, and the numbers of individuals, documents and
    households.
    """
    from pyspark.sql.functions import count, count_distinct, expr, max, min, sum

    people = rows.groupBy("individual_id").agg(
        min("unit_id").alias("unit_id"), max("unit_id").alias("other"), count("*").alias("documents"),
        min("spelling").alias("spelling"), min("unit_spelling").alias("unit_spelling"),
    )  # fmt: skip
    people = people.orderBy("individual_id").persist()
    distinct = [count_distinct(name).alias(name) for name in ("unit_id", "spelling", "unit_spelling")]
    with errors_of_tasks():
        num_ids = rows.agg(count_distinct("doc_id")).collect()[0][0]
        moved = sum(expr("if(unit_id < other, 1, 0)")).alias("moved")
        num = people.agg(
            count("*").alias("individuals"), sum("documents").alias("documents"), moved, *distinct
        ).collect()[0]
    if not num_ids:
        raise CorpusError("no documents")
    if num_ids < num["documents"]:
        raise CorpusError(f"column {columns.doc_id}: the same document id stands twice")
    if num["moved"]:
        raise CorpusError(f"column {columns.household_id}: an individual has two households")
    if num["individuals"] < 2:
        raise CorpusError(
            f"column {columns.individual_id} names one individual only; support among individuals needs at least two"
        )
    for name, ids, spellings in (("individual", "individuals", "spelling"), ("household", "unit_id", "unit_spelling")):
        if num[spellings] < num[ids]:
            raise CorpusError(
                f"column {name}_id: ids differ only in how they are spelt, and each would count by itself. "
                'Correct them; or corpus.ids = "fold" joins them, and "exact" says that they are different'
            )
    return people, num


def _number_globally(rows: DataFrame, people: DataFrame, parts: RDD, cut: _Cut) -> RDD:
    """Return the partitions (serialised tables) with four more columns: row numbers of document and individual in the
    whole corpus, as on one machine, the privacy unit, and its side of the split.
    """
    ordered = rows.select("doc_id", "key").orderBy("key").persist()
    found = rows.select("part", "doc_id", "individual_id").join(
        numbered(ordered, "number").select("doc_id", "number"), "doc_id"
    )
    individuals = numbered(people, "individual").select("individual_id", "individual")
    found = found.join(individuals, "individual_id")
    found = found.select("part", "doc_id", "number", "individual")
    answers = repartition_by_part(found, parts.getNumPartitions())
    numbers = persisted(map_elements(parts.zip(answers), partial(_with_numbers, cut)))
    with errors_of_tasks():
        numbers.count()
    ordered.unpersist()
    return numbers


def _require_sides(documents: SparkDocuments) -> None:
    """Raise `CorpusError` if a side of the split (members, heldout, reference) has no individual although its share is
    not 0.
    """
    with errors_of_tasks():
        present = documents.parts.map(_side_bits).reduce(operator.or_)
    sides = [code for code in range(len(SPLITS)) if present >> code & 1]
    require_sides(documents.split, sides, documents.num_individuals)


def _side_bits(data: bytes) -> int:
    """Return the sides of the split (members, heldout, reference) that a partition's documents are on, as a bit mask; 0
    for an empty partition.
    """
    return sum(1 << int(side) for side in np.unique(decoded(data).column("side").to_numpy())) if data else 0


def _with_numbers(cut: _Cut, data: bytes, numbers: bytes) -> bytes:
    """Return a partition's serialised table with four more columns: row numbers of document and individual in the whole
    corpus (joined from the serialised table ``numbers``), number of the privacy unit, and its side of the split.
    """
    if not data:
        return data
    table, found = decoded(data), decoded(numbers)
    ids = _rust.IdRows(found.column("doc_id").cast(pa.string()).combine_chunks())
    rows = ids.rows(table.column("doc_id").combine_chunks())
    if len(rows) != found.num_rows or (rows == _rust.MISSING).any():
        raise CorpusError("the numbers of a part are not those of its documents")
    names, units = sorted_codes(table.column(cut.unit))
    for name in ("number", "individual"):
        table = table.append_column(name, found.column(name).take(pa.array(rows)))
    table = table.append_column("unit", pa.array(units.astype(np.int64)))
    sides = pa.array(_sides_of_units(names, cut.split)[units])
    return encoded(table.append_column("side", sides).drop_columns(["key"]).combine_chunks())
