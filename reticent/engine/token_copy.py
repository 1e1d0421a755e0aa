"""Copying the tokens of a view with their token ids, for a machine that must not hold other documents.

The copy equals, byte for byte, the tokens that `reticent.engine.tokens.write_tokens` writes for these documents.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from reticent.engine.packed import PackedTokens, bits_at
from reticent.engine.store import open_view
from reticent.engine.store_writer import StoreWriter


def copy_tokens(view: Path | str, folder: Path | str) -> dict[str, int]:
    """Copy protected tokens from the folder ``view``, which may share token ids with others, to ``folder``, which then
    has the token ids and flags of its own documents only. Return the numbers of documents and tokens.

    Raises
    ------
    ArtifactError
        ``view`` holds no tokens, or they cannot be read.

    Cost: one pass over the ids of these documents; memory is a block of them.
    """
    tokens = open_view(Path(view))
    stored = tokens.stored
    with StoreWriter(Path(folder), 1 << 24 if stored.is_wide else 1 << 16) as writer:
        for first, end in tokens.iter_document_ranges():
            doc_ids = stored.doc_ids.take(pa.array(tokens.documents[first:end]))
            writer.write(doc_ids, tokens.individual[first:end], _repack(tokens, first, end))
    json = (stored.folder / "tokenizer.json").read_bytes()
    (Path(folder) / "tokenizer.json").write_bytes(json)
    return {"documents": writer.num_documents, "tokens": writer.num_tokens}


def _repack(tokens: PackedTokens, first: int, end: int) -> Any:
    """Return the tokens of documents ``first`` to ``end`` as arrays in the layout of `_rust.PackedTokens`."""
    stored, offsets, places = tokens.stored, tokens.doc_offsets[first : end + 1], tokens.positions_of(first, end)
    ids = tokens.block("input_ids", first, end).astype(np.uint32)
    flags = tokens.block("flags", first, end)
    exceptions, rows = tokens.exceptions_at(places)
    starts, lengths = tokens.ngrams(first, end)
    return SimpleNamespace(
        doc_offsets=offsets - offsets[0],
        ids=ids.astype(np.uint16),
        high=(ids >> 16).astype(np.uint8),
        begins=np.packbits(bits_at(stored.begins, places), bitorder="little"),
        outside=np.packbits(bits_at(stored.outside, places), bitorder="little"),
        direct=np.packbits(flags & 1, bitorder="little"),
        indirect=np.packbits(flags >> 1, bitorder="little"),
        exceptions=exceptions,
        skipped=stored.skipped[rows],
        more=stored.more[rows],
        ngram_tokens=starts,
        ngram_lengths=lengths,
    )
