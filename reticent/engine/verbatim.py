"""Verbatim: finds passages of a text that occur in the training documents, by a Bloom filter that holds no text.

The index is a Bloom filter over keyed hashes (``rust_ext/src/verbatim.rs``), with two bytes for each byte of training
text. A stretch of ``length`` characters from a training document is always found, whatever its case, accents, white
space, quotes and dashes, and one of as many letters and digits whatever stands between them: Markdown, quotes, hyphens,
tags, the numbers of lines. The rate of false positives is measured when the index is built. The index reveals whether a
text was trained on, so it is as private as the documents.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reticent import _rust
from reticent.core.artifact import Manifest, fingerprint, require_kind
from reticent.core.errors import ArtifactError, CorpusError
from reticent.core.json_toml import parse_json
from reticent.engine.corpus import as_corpus

if TYPE_CHECKING:
    from reticent._rust import VerbatimFilter
    from reticent.engine.corpus import Corpus, Documents


def build_verbatim(
    corpus: Corpus | Documents,
    *,
    keep: np.ndarray | None = None,
    length: int = 50,
    key: int = 0,
    num_threads: int = 0,
    progress: Callable[[int], None] | None = None,
) -> VerbatimFilter:
    """Return a Bloom filter of all passages of ``length`` characters in the documents where ``keep`` is True (None:
    all), to find verbatim copies of them.

    Parameters
    ----------
    length : int, 16 to 4096
        Characters from which on a stretch counts as verbatim, counted as it is compared.
    key : int, 0 to 2^64 - 1
        Of the hashes; another key makes other mistakes.

    Raises
    ------
    CorpusError
        No document is kept.
    PolicyError
        The length is out of range.

    Cost: two passes over the text. Memory: the index, and a batch a thread.
    """

    corpus = as_corpus(corpus)

    keep = np.ones(corpus.num_documents, dtype=bool) if keep is None else keep
    if not keep.any():
        raise CorpusError("no document to build a guard from")
    num_threads = _rust.resolve_threads(num_threads)
    lock, num_bytes, done = threading.Lock(), 0, 0

    def kept(first: int, batch: pa.RecordBatch) -> pa.Array:
        """Return the texts of a record batch's documents that ``keep`` selects."""
        chosen = keep[first : first + batch.num_rows]
        texts = batch.column("text")
        return texts if chosen.all() else texts.filter(pa.array(chosen))

    def measure(first: int, batch: pa.RecordBatch) -> None:
        """Add the size of a record batch's texts to the total."""
        nonlocal num_bytes
        size = pc.sum(pc.binary_length(kept(first, batch))).as_py() or 0
        with lock:
            num_bytes += size

    corpus.for_each_batch(measure, columns=("text",), num_threads=num_threads, wanted=keep)
    index = _rust.VerbatimFilter(num_bytes, length=length, key=key, letters=True)

    def add(first: int, batch: pa.RecordBatch) -> None:
        """Add the passages of the selected texts of a record batch to the Bloom filter; ``first`` is the number of the
        batch's first document."""
        nonlocal done
        index.add(kept(first, batch))
        with lock:
            done += batch.num_rows
            if progress:
                progress(done)

    corpus.for_each_batch(add, columns=("text",), num_threads=num_threads, wanted=keep)
    return index


def write_verbatim(index: VerbatimFilter, folder: Path | str) -> dict[str, Any]:
    """Write the Bloom filter to ``verbatim.bin`` and its parameters to ``verbatim.json`` (secret); return counts."""
    folder = Path(folder)
    # Not `tofile`, whose error on a full disk has no number of the system, and so no message.
    (folder / "verbatim.bin").write_bytes(index.bits().astype("<u8").data.cast("B"))
    (folder / "verbatim.json").write_text(
        json.dumps({"length": index.length, "key": index.key, "letters": index.letters}) + "\n"
    )
    return {"length": index.length, "num_bytes": index.num_bytes, "num_stretches": index.num_stretches}


def require_guard(path: Path | str) -> Manifest:
    """Return the manifest of a guard, a folder with a Bloom filter that finds passages of training text; raise
    `ArtifactError`, with the command that makes a guard, if it is none."""
    try:
        return require_kind(path, "guard")
    except ArtifactError as error:
        raise ArtifactError(f"{error}; reticent guard build SOURCE --out GUARD makes a guard") from None


def open_verbatim(path: Path | str) -> VerbatimFilter:
    """Return the Bloom filter of training passages stored in a guard's folder; `ArtifactError` if a file has changed,
    because a lost bit would let training text through.

    Raises
    ------
    ArtifactError
        There is no guard, it is of another format, or a file has changed since it was written.
    """

    path = Path(path)
    require_guard(path)
    fingerprint(path)
    try:
        about = parse_json((path / "verbatim.json").read_bytes())
        bits = np.fromfile(path / "verbatim.bin", dtype="<u8").astype(np.uint64, copy=False)
        length, key = about["length"], about["key"]
        letters = about.get("letters", False)  # a guard of an older version compares whole texts alone
        return _rust.VerbatimFilter.from_bits(bits, length=length, key=key, letters=letters)
    except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError(f"{path}: not a readable guard ({type(error).__name__})") from None
