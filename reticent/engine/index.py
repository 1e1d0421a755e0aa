"""Build, write and open an `NgramIndex`: the number of individuals that use each word and n-gram.

Rust counts (``rust_ext/src/index/``). This file passes documents to it and stores the tables as Parquet:
``words.parquet`` (word, support, occurrences) and ``ngrams_2.parquet`` … (left, right, support). The tables name words
that one individual uses, so they are as secret as the documents.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError, CorpusError, PolicyError
from reticent.core.memory import resident_bytes
from reticent.engine.config import IndexConfig, Surface
from reticent.engine.corpus import as_corpus
from reticent.engine.ngrams import NgramIndex
from reticent.engine.schema import MAX_N, MEMBERS, with_version
from reticent.engine.threads import mapped

if TYPE_CHECKING:
    from reticent._rust import IndexBuilder
    from reticent.engine.corpus import Corpus, Documents
    from reticent.engine.split import Individuals

ROWS_PER_GROUP = 1 << 17


def build_index(
    corpus: Corpus | Documents,
    individuals: Individuals,
    *,
    splits: tuple[str, ...] = (MEMBERS,),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
) -> NgramIndex:
    """Return an index with, for every word and n-gram of the documents in these splits, its support: the number of
    households (or individuals, if there are none) that use it.

    Raises
    ------
    CorpusError
        A document cannot be read, or none belongs to these splits.

    PolicyError
        The memory limit is too small for the tables that stay in memory (distinct words, where documents stand, a
        partition's tables); the message names the least one.
    OSError
        Tables that do not fit into the limit cannot be written (no such folder, a full disk).

    Cost: one pass over the text by all threads. Memory: 4 bytes a word, 6 more where n > 1, unless limited.
    """

    corpus = as_corpus(corpus)
    units, (keep,) = _select_documents(corpus, individuals, splits)
    return count_documents(corpus, units, keep, config or IndexConfig(), progress)


def build_nested_indexes(
    corpus: Corpus | Documents,
    individuals: Individuals,
    *,
    splits: tuple[str, ...],
    within: tuple[str, ...] = (MEMBERS,),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[NgramIndex, NgramIndex]:
    """Return two n-gram indexes, counted in one pass over the text: the first of the documents in the splits
    ``within``, which are among ``splits``, the second of those in all ``splits``.

    They are those that :func:`build_index` makes of each, to the last byte; same errors. Cost: one pass over
    the text for both, little more than for the larger one.
    """

    corpus = as_corpus(corpus)
    units, (keep, inner) = _select_documents(corpus, individuals, splits, within)
    if (inner & ~keep).any():
        raise PolicyError(f"the splits {', '.join(within)} are not among {', '.join(splits)}")
    subset = np.zeros(individuals.num_units, dtype=bool)
    subset[units[inner]] = True
    if subset[units[keep & ~inner]].any():
        raise PolicyError(f"a household has individuals in {', '.join(within)} and in others of {', '.join(splits)}")
    config = config or IndexConfig()
    part, whole = _count_ngrams(corpus, units, keep, config, progress, subset).finish_both(
        min_support=config.least_support
    )
    assert part is not None
    _release_memory()
    return NgramIndex(part), NgramIndex(whole)


def _select_documents(
    corpus: Corpus, individuals: Individuals, *choices: tuple[str, ...]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the unit code (household or individual) of each document, uint32, and for each tuple of splits in
    ``choices`` a mask of the documents that belong to them."""
    codes = individuals.individual_codes(corpus.scan().column("individual_id"))
    kept = [individuals.mask(*splits)[codes] for splits in choices]
    for splits, keep in zip(choices, kept, strict=True):
        if not keep.any():
            raise CorpusError(f"no document belongs to the splits {', '.join(splits)}")
    return individuals.units[codes], kept


def count_documents(
    corpus: Corpus,
    units: np.ndarray,
    keep: np.ndarray,
    config: IndexConfig,
    progress: Callable[[int], None] | None = None,
) -> NgramIndex:
    """Return the n-gram index of the documents where ``keep`` is True; ``units`` has the unit code (household or
    individual) of each document of the corpus."""
    index = _count_ngrams(corpus, units, keep, config, progress).finish(min_support=config.least_support)
    _release_memory()
    return NgramIndex(index)


def _count_ngrams(
    corpus: Corpus,
    units: np.ndarray,
    keep: np.ndarray,
    config: IndexConfig,
    progress: Callable[[int], None] | None,
    subset: np.ndarray | None = None,
) -> IndexBuilder:
    """Count the n-grams of all documents where ``keep`` is True, and separately those of the households or individuals
    in the mask ``subset``; return the Rust index builder that holds the counts."""

    units = np.where(keep, units, _rust.LEFT_OUT).astype(np.uint32)
    num_threads = _rust.resolve_threads(config.num_threads)
    documents_per_unit = np.bincount(units[keep]).astype(np.uint32)
    limited = config.memory_limit is not None
    _release_memory()  # of the look at the individuals
    num_placed = int(np.count_nonzero(keep)) if config.max_n > 1 else 0
    limit, used = _builder_limit(config.memory_limit, num_threads, num_placed)
    try:
        builder = _rust.IndexBuilder(
            max_n=config.max_n,
            surface=config.surface,
            documents_per_unit=documents_per_unit,
            subset=subset,
            num_threads=config.num_threads,
            memory_limit=limit,
            memory_used=used,
            folder=config.spill_folder,
        )
    except OSError as error:
        error.filename = config.spill_folder and str(config.spill_folder)
        raise
    done = 0
    lock = threading.Lock()

    def add(first: int, batch: pa.RecordBatch) -> None:
        """Add a record batch's texts, whose first document has row number ``first``, to the index builder."""
        nonlocal done
        builder.add(batch.column("text"), units[first : first + batch.num_rows])
        with lock:
            done += batch.num_rows
            if progress:
                progress(done)

    corpus.for_each_batch(add, columns=("text",), num_threads=num_threads, frugal=limited, wanted=keep)
    return builder


def _release_memory() -> None:
    """Return freed memory of the Rust core and of pyarrow to the system."""
    _rust.release_memory()
    pa.default_memory_pool().release_unused()


#: Memory of reading beside the builder: a thread's batch and decoded page, and what the interpreter still loads.
BYTES_PER_READER = 24 << 20


def check_memory_limit(memory_limit: int | None, num_threads: int = 0, num_documents: int = 0) -> int:
    """Return the bytes of memory that the process and its reader threads use; `PolicyError` if ``memory_limit`` is too
    small to count the n-grams of ``num_documents`` documents."""

    num_threads = _rust.resolve_threads(num_threads)
    used = resident_bytes() + num_threads * BYTES_PER_READER
    least = used + max(_rust.LEAST_BYTES, num_threads * _rust.LEAST_BYTES_PER_THREAD)
    least += num_documents * _rust.BYTES_PER_DOCUMENT
    if memory_limit is not None and memory_limit < least:
        raise PolicyError(
            f"memory limit of {memory_limit // 10**6}MB cannot be held: the process and its readers use "
            f"{-(-used // 10**6)}MB before anything is counted; allow at least {-(-(least + least // 32) // 10**7)}0MB"
        )
    return used


def _builder_limit(memory_limit: int | None, num_threads: int, num_documents: int) -> tuple[int | None, int | None]:
    """Return the bytes that the index builder may use, and those that the rest of the process uses; None, None without
    a limit."""
    if memory_limit is None:
        return None, None
    used = check_memory_limit(memory_limit, num_threads, num_documents)
    return memory_limit - used, used


def write_index(index: NgramIndex, folder: Path | str) -> None:
    """Write the tables of an index to ``folder`` as Parquet; equal indexes give byte-equal files."""
    levels = [(index.num_ngrams(n), functools.partial(index.level, n)) for n in range(2, index.max_n + 1)]
    write_tables(Path(folder), {key: getattr(index, key) for key in _ABOUT}, (index.num_words, index.words), levels)


#: The rows of a table: how many there are, and what returns ``length`` of them from ``start`` on.
Rows: TypeAlias = tuple[int, Callable[[int, int], Any]]


def write_tables(
    folder: Path, metadata_values: dict[str, Any], words: Rows, levels: Sequence[Rows], *, in_parallel: bool = True
) -> None:
    """Write the tables of an n-gram index as Parquet files: the words, and the n-grams of n = 2, 3 … (``levels``). A
    table is given as its number of rows and a function that returns a range of them; ``metadata_values`` are stored in
    the files."""
    metadata = {f"reticent.{key}": str(value) for key, value in metadata_values.items()}
    schema = with_version(pa.record_batch(words[1](0, 0)).schema, "index-words")
    schema = schema.with_metadata({**(schema.metadata or {}), **metadata})
    tables = [(folder / "words.parquet", schema, *words)]
    for n, (num_rows, read) in enumerate(levels, 2):
        schema = with_version(pa.record_batch(read(0, 0)).schema, "index-ngrams")
        tables.append((folder / f"ngrams_{n}.parquet", schema, num_rows, read))
    for_all = mapped if in_parallel else map
    list(for_all(lambda table: _write_parquet(*table), tables))


def _write_parquet(path: Path, schema: pa.Schema, num_rows: int, read: Callable[[int, int], Any]) -> None:
    # Sorted words and numbers: their differences take half the room and the time of a dictionary.
    """Write a sorted table of ``num_rows`` rows as Parquet; ``read(start, length)`` returns a range of rows. The file
    appears under its name only when it is complete."""
    encoding = {name: "DELTA_BYTE_ARRAY" if name == "word" else "DELTA_BINARY_PACKED" for name in schema.names}
    # Beside its place: the rows may come from the file that is there.
    made = path.with_name(f".{path.name}.unfinished")
    options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    with pq.ParquetWriter(made, schema, column_encoding=encoding, **options) as writer:
        for start in range(0, max(num_rows, 1), ROWS_PER_GROUP):
            rows = pa.record_batch(read(start, ROWS_PER_GROUP))
            writer.write_batch(rows.replace_schema_metadata(schema.metadata))
    made.replace(path)


def open_index(path: Path | str) -> NgramIndex:
    """Return the n-gram index stored in a folder by :func:`write_index`; words are loaded, n-grams are read from their
    files on demand.

    Raises
    ------
    ArtifactError
        A file is missing or unreadable, or the tables do not fit together.
    """
    folder = Path(path)
    words = _read_parquet(folder / "words.parquet")
    metadata = words.schema.metadata or {}
    try:
        about = {key: metadata[f"reticent.{key}".encode()].decode() for key in _ABOUT}
    except KeyError as error:
        raise ArtifactError(f"{folder / 'words.parquet'}: not an index (no metadata {error})") from None
    surface = about.pop("surface")
    if surface not in get_args(Surface):
        raise ArtifactError(f"{folder / 'words.parquet'}: not an index (its surface is none)")
    if not all(value.isascii() and value.isdigit() for value in about.values()):
        raise ArtifactError(f"{folder / 'words.parquet'}: not an index (its metadata are not numbers)")
    numbers = {key: int(value) for key, value in about.items()}
    if not 1 <= numbers["max_n"] <= MAX_N or max(numbers.values()) >= 1 << 63:
        raise ArtifactError(f"{folder / 'words.parquet'}: not an index (its metadata are out of range)")
    levels = [folder / f"ngrams_{n}.parquet" for n in range(2, numbers["max_n"] + 1)]
    try:
        return NgramIndex.from_tables(_as_one_batch(words), levels, surface=surface, **numbers)
    except ArtifactError as error:
        if str(folder) in str(error):
            raise
        raise ArtifactError(f"{folder}: {error}") from None


_ABOUT = ("max_n", "num_units", "num_documents", "min_support", "surface")


def _read_parquet(path: Path) -> pa.Table:
    """Return an index's table, read from a Parquet file; `ArtifactError` if it cannot be read."""
    try:
        # Threads of pyarrow's wait for ever for one that could not be started.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable table of an index ({type(error).__name__})") from None


def _as_one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return the rows of a table as one record batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
