"""NgramIndex: the bipartite graph of n-grams and individuals, built once and opened many times.

Counting is Rust's (``rust_ext/src/index.rs``); this file reads documents into it and keeps its tables as Parquet:
``words.parquet`` (word, support, occurrences) and ``ngrams_2.parquet`` … (left, right, support). The tables name words
that one individual uses, so they are as secret as the documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.engine.schema import MAX_K, MAX_N, MEMBERS, with_version
from reticent.errors import ArtifactError, PolicyError

if TYPE_CHECKING:
    from reticent._rust import NgramIndex
    from reticent.engine.corpus import Corpus
    from reticent.engine.split import Individuals

__all__ = ["IndexConfig", "build_index", "open_index", "write_index"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """How n-grams are counted.

    Parameters
    ----------
    max_n : int, 1 to 8
        Longest n-gram.
    surface : {"exact", "casefold", "fold"}
        Which spellings count as one word. A coarser surface raises supports, so it protects less.
    min_support : int
        n-grams under this support are not extended. 2 serves every k from 2 to 255; 1 keeps everything, which
        merging indexes needs.
    num_threads : int
        0: ``RAYON_NUM_THREADS``, or every core. The result does not depend on it.
    """

    max_n: int = 1
    surface: str = "exact"
    min_support: int = 2
    num_threads: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.max_n <= MAX_N:
            raise PolicyError(f"max_n: expected 1 to {MAX_N}, got {self.max_n}")
        if not 1 <= self.min_support <= MAX_K:
            raise PolicyError(f"min_support: expected 1 to {MAX_K}, got {self.min_support}")


def build_index(
    corpus: Corpus,
    individuals: Individuals,
    *,
    splits: tuple[str, ...] = (MEMBERS,),
    config: IndexConfig | None = None,
    progress: Callable[[int], None] | None = None,
) -> NgramIndex:
    """Return the index of the documents of these splits; support counts households where there are any, else
    individuals.

    Raises
    ------
    CorpusError
        A document cannot be read, or none belongs to these splits.

    Cost: one pass over the text; 4 bytes a word and level in memory while counting.
    """
    from reticent import _rust
    from reticent.errors import CorpusError

    config = config or IndexConfig()
    builder = _rust.IndexBuilder(max_n=config.max_n, surface=config.surface, num_threads=config.num_threads)
    wanted = individuals.mask(*splits)
    done = num_documents = 0
    for batch in corpus.batches(columns=("individual_id", "text")):
        codes = individuals.individual_codes(batch.column("individual_id"))
        keep = wanted[codes]
        texts = batch.column("text")
        if not keep.all():
            texts, codes = texts.filter(pa.array(keep)), codes[keep]
        builder.add(texts, np.ascontiguousarray(individuals.units[codes]))
        num_documents += len(codes)
        done += batch.num_rows
        if progress:
            progress(done)
    if num_documents == 0:
        raise CorpusError(f"no document belongs to the splits {', '.join(splits)}")
    return builder.finish(min_support=config.min_support)


def write_index(index: NgramIndex, folder: Path | str) -> None:
    """Write the tables of an index into ``folder``; equal indexes give byte-equal files."""
    folder = Path(folder)
    about = {f"reticent.{key}": str(value) for key, value in _about(index).items()}
    words = pa.table(pa.record_batch(index.words()))
    words = words.replace_schema_metadata({**(with_version(words.schema, "index-words").metadata or {}), **about})
    pq.write_table(words, folder / "words.parquet", compression="zstd")
    for n in range(2, index.max_n + 1):
        level = pa.table(pa.record_batch(index.level(n)))
        level = level.replace_schema_metadata(with_version(level.schema, "index-ngrams").metadata)
        pq.write_table(level, folder / f"ngrams_{n}.parquet", compression="zstd")


def open_index(path: Path | str) -> NgramIndex:
    """Read an index that :func:`write_index` wrote.

    Raises
    ------
    ArtifactError
        A file is missing or unreadable, or the tables do not fit together.
    """
    from reticent import _rust

    folder = Path(path)
    words = _read(folder / "words.parquet")
    metadata = words.schema.metadata or {}
    try:
        about = {key: metadata[f"reticent.{key}".encode()].decode() for key in _ABOUT}
    except KeyError as error:
        raise ArtifactError(f"{folder / 'words.parquet'}: not an index (no metadata {error})") from None
    surface = about.pop("surface")
    numbers = {key: int(value) for key, value in about.items()}
    levels = [_read(folder / f"ngrams_{n}.parquet") for n in range(2, numbers["max_n"] + 1)]
    return _rust.NgramIndex.from_tables(_batch(words), [_batch(level) for level in levels], surface=surface, **numbers)


_ABOUT = ("max_n", "num_units", "num_documents", "min_support", "surface")


def _about(index: NgramIndex) -> dict[str, Any]:
    return {key: getattr(index, key) for key in _ABOUT}


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable table of an index ({type(error).__name__})") from None


def _batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
