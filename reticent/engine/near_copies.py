"""Held-out individuals who hold a near-copy of a member's document, which membership attacks take for members.

Near-copies are those of :mod:`reticent.engine.dedup`: documents of one cluster of near duplicates. What deduplication
left out is not there any more. Its clusters are not those of here: they join documents through copies that it left out
and through reference documents. Cost: one pass over the text of both sides, in threads, and some 12 bytes of memory a
word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.config import DedupConfig
from reticent.engine.corpus import Corpus
from reticent.engine.schema import HELDOUT, MEMBERS
from reticent.engine.split import Individuals

FILE = "near_copies.parquet"
#: Text of both sides in which they are looked for: 2 GiB take some 4 GiB of memory.
MAX_BYTES = 1 << 31


class _TooMuchTextError(Exception):
    """Members and held-out individuals have more than `MAX_BYTES` of text."""


def heldout_with_copies(
    corpus: Corpus,
    individuals: Individuals,
    config: DedupConfig | None = None,
    *,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray | None:
    """Return a mask of the held-out individuals with a document that nearly duplicates one of a member, bool
    (num_individuals,). None, without a search, if the documents of members and held-out individuals exceed `MAX_BYTES`.

    Parameters
    ----------
    config : ``threshold`` and ``shingle_words`` are used, whatever the mode
    """

    config = config or DedupConfig()
    wanted, is_member = individuals.mask(MEMBERS, HELDOUT), individuals.mask(MEMBERS)
    codes = individuals.individual_codes(corpus.scan().column("individual_id"))
    kept = wanted[codes]
    owner, begins = codes[kept], np.cumsum(kept) - kept
    collector, sizes = _rust.CopyCollector(), [0]

    def add(first: int, batch: pa.RecordBatch) -> None:
        """Pass the texts of a record batch's member and held-out documents to the Rust object that searches for
        duplicates, unless their size exceeds `MAX_BYTES`."""
        texts = batch.column("text").filter(pa.array(kept[first : first + batch.num_rows]))
        sizes.append(int(pc.sum(pc.binary_length(texts)).as_py() or 0))
        if sum(sizes) > MAX_BYTES:
            raise _TooMuchTextError
        collector.add(int(begins[first]), texts)
        if progress:
            progress(first + batch.num_rows)

    try:
        corpus.for_each_batch(add, columns=("text",), num_threads=_rust.resolve_threads(num_threads), wanted=kept)
    except _TooMuchTextError:
        return None
    found = np.zeros(len(is_member), dtype=bool)
    if len(owner):
        copies = collector.finish(num_threads=num_threads)
        cluster, _ = copies.near(
            np.zeros(len(owner), dtype=np.uint32), threshold=config.threshold, shingle=config.shingle_words
        )
        of_members = np.zeros(len(owner), dtype=bool)
        has_words = copies.num_words > 0  # equal texts without any, such as ".", are no near-duplicates
        of_members[cluster[is_member[owner] & has_words]] = True
        found[owner[of_members[cluster]]] = True
    return found & ~is_member


def write_copied(copied: np.ndarray, folder: Path) -> None:
    """Write a mask of the individuals with a near-duplicate of a member's document to ``folder`` (secret)."""
    pq.write_table(pa.table({"copied": copied}), folder / FILE)


def read_copied(folder: Path) -> np.ndarray:
    """Return the stored mask of the individuals with a near-duplicate of a member's document, bool (num_individuals,);
    `ArtifactError` if it cannot be read."""
    path = folder / FILE
    try:
        return pq.read_table(path, columns=["copied"]).column(0).to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not readable ({type(error).__name__}); it says who holds near-copies") from None
