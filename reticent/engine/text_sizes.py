"""Size in bytes of each text and of its zlib compression, for the zlib membership attack."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.corpus import Corpus
from reticent.engine.split import Individuals

FILE = "text_sizes.parquet"
#: Texts that a thread compresses at a time: a task a text costs as much as its text.
TEXTS_AT_ONCE = 64


def write_text_sizes(
    folder: Path,
    corpus: Corpus,
    individuals: Individuals,
    splits: tuple[str, ...],
    *,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write the size of each text of these splits in bytes, raw and compressed by zlib, to ``folder``; return the
    number of documents.

    Cost: one pass over the text; zlib compresses about 25 MB/s a thread.
    """

    wanted, parts, num_done = individuals.mask(*splits), [np.empty((0, 2), dtype=np.int64)], 0
    with ThreadPoolExecutor(_rust.resolve_threads(num_threads)) as pool:
        for batch in corpus.batches(columns=("individual_id", "text")):
            kept = wanted[individuals.individual_codes(batch.column("individual_id"))]
            texts = batch.column("text").filter(pa.array(kept))
            runs = [texts.slice(first, TEXTS_AT_ONCE) for first in range(0, len(texts), TEXTS_AT_ONCE)]
            compressed = [size for sizes in pool.map(_zlib_bytes, runs) for size in sizes]
            num_bytes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
            parts.append(np.stack([num_bytes, compressed], axis=1).astype(np.int64))
            num_done += batch.num_rows
            if progress:
                progress(num_done)
    sizes = np.concatenate(parts)
    pq.write_table(pa.table({"num_bytes": sizes[:, 0], "zlib_bytes": sizes[:, 1]}), folder / FILE)
    return len(sizes)


def read_zlib_bytes(folder: Path) -> np.ndarray:
    """Return the stored zlib-compressed size of each text in bytes, int64 (num_documents,); `ArtifactError` if it
    cannot be read."""
    path = folder / FILE
    try:
        return pq.read_table(path, columns=["zlib_bytes"]).column(0).to_numpy()
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(
            f"{path}: not readable ({type(error).__name__}); the zlib attack needs the sizes of the texts"
        ) from None


def _zlib_bytes(texts: pa.Array) -> list[int]:
    """Return the zlib-compressed size of each text, in bytes."""
    return [len(zlib.compress(text.as_buffer())) for text in texts]  # zlib releases the interpreter lock
