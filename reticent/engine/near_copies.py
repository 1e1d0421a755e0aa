"""Held-out individuals who hold a near-copy of a member's document, whom an attack on membership takes for members.

Near-copies are those of :mod:`reticent.engine.dedup`: documents of one cluster of near duplicates. What deduplication
left out is not there any more. Cost: one pass over the text of both sides, and some 12 bytes of memory a word.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError
from reticent.engine.config import DedupConfig
from reticent.engine.schema import HELDOUT, MEMBERS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.split import Individuals

__all__ = ["MAX_BYTES", "heldout_with_copies", "read_copied", "write_copied"]

FILE = "near_copies.parquet"
#: Text of both sides in which they are looked for: 2 GiB take some 4 GiB of memory.
MAX_BYTES = 1 << 31


def heldout_with_copies(
    corpus: Corpus,
    individuals: Individuals,
    config: DedupConfig | None = None,
    *,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> np.ndarray | None:
    """Return for each individual (by code) whether they are held out and hold a near-copy of a member's document; bool.
    None if both sides have more than `MAX_BYTES` of text, in which they are not looked for.

    Parameters
    ----------
    config : ``threshold`` and ``shingle_words`` are used, whatever the mode
    """
    from reticent import _rust

    config = config or DedupConfig()
    wanted, is_member = individuals.mask(MEMBERS, HELDOUT), individuals.mask(MEMBERS)
    collector, owners, num_done, num_bytes = _rust.CopyCollector(), [np.empty(0, dtype=np.uint32)], 0, 0
    for batch in corpus.batches(columns=("individual_id", "text")):
        codes = individuals.individual_codes(batch.column("individual_id"))
        kept = wanted[codes]
        texts = batch.column("text").filter(pa.array(kept))
        num_bytes += int(pc.sum(pc.binary_length(texts)).as_py() or 0)
        if num_bytes > MAX_BYTES:
            return None
        collector.add(sum(map(len, owners)), texts)
        owners.append(codes[kept])
        num_done += batch.num_rows
        if progress:
            progress(num_done)
    owner = np.concatenate(owners)
    found = np.zeros(len(is_member), dtype=bool)
    if len(owner):
        copies = collector.finish(num_threads=num_threads)
        cluster, _ = copies.near(
            np.zeros(len(owner), dtype=np.uint32), threshold=config.threshold, shingle=config.shingle_words
        )
        of_members = np.zeros(len(owner), dtype=bool)
        of_members[cluster[is_member[owner]]] = True
        found[owner[of_members[cluster]]] = True
    return found & ~is_member


def write_copied(copied: np.ndarray, folder: Path) -> None:
    """Write who holds a near-copy, by code (secret)."""
    pq.write_table(pa.table({"copied": copied}), folder / FILE)


def read_copied(folder: Path) -> np.ndarray:
    """Return who holds a near-copy, bool by code; `ArtifactError` where that cannot be read."""
    path = folder / FILE
    try:
        return pq.read_table(path, columns=["copied"]).column(0).to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not readable ({type(error).__name__}); it says who holds near-copies") from None
