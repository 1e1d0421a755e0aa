"""Packed tokens of a folder, mapped: how protected tokens lie on disk, and how they are read without unpacking all.

Of each token stand on disk its id (two bytes, ``ids.bin``; a third, ``ids_high.bin``, where the vocabulary has more
than 65,536 entries) and four bits: whether it begins a word and whether it is outside of words (``begins.bits``,
``outside.bits``), and one for each plane of protection (``direct.bits``, ``indirect.bits``). What a bit cannot say
stands in short tables: tokens before which words are passed over (``exceptions.parquet``), tokens where minimal
identifying n-grams start (``ngram_starts.parquet``), and the documents (``documents.parquet``).

A word that begins is the next one of its document. It is not where the token before met several words, or words have no
token: then an exception says how many are passed over. So bits and exceptions give the number of every token's word.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError
from reticent.engine.packed_kernels import gather_packed, rank_blocks, unpack_flags, unpack_words
from reticent.engine.schema import DIRECT, INDIRECT, TOKEN_TABLES

__all__ = ["BITS", "IDS", "PackedTokens", "Tables", "open_packed"]

#: Files of ids and of bits.
IDS = ("ids", "ids_high")
BITS = ("begins", "outside", "direct", "indirect")
#: Tokens that are unpacked at a time.
TOKENS_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Tables:
    """The short tables of a folder of packed tokens, by the columns of `TOKEN_TABLES`."""

    documents: pa.Table
    exceptions: pa.Table
    ngram_starts: pa.Table


class PackedTokens:
    """Tokens as they lie on disk.

    Attributes
    ----------
    ids : uint16 array, shape (num_tokens,)
    high : uint8 array, the third bytes of the ids; empty where two are enough
    begins, outside, direct, indirect : uint64 arrays, one bit a token
    doc_offsets : int64 array, shape (num_documents + 1,)
    """

    def __init__(self, folder: Path, tables: Tables):
        self.doc_offsets = np.concatenate([[0], tables.documents.column("end").to_numpy()]).astype(np.int64)
        num_tokens = int(self.doc_offsets[-1])
        if (np.diff(self.doc_offsets) < 0).any():
            raise ArtifactError(f"{folder / 'documents.parquet'}: the ends of documents do not ascend; damaged")
        self.ids = _mapped(folder / "ids.bin", np.dtype("<u2"), num_tokens)
        self.is_wide = (folder / "ids_high.bin").exists()
        self.high = _mapped(folder / "ids_high.bin", np.dtype("u1"), num_tokens if self.is_wide else 0)
        self.begins, self.outside, self.direct, self.indirect = (
            _mapped(folder / f"{name}.bits", np.dtype("<u8"), -(-num_tokens // 64)) for name in BITS
        )
        self._exceptions = np.ascontiguousarray(tables.exceptions.column("token").to_numpy(), dtype=np.int64)
        skipped = tables.exceptions.column("skipped").to_numpy()
        self._passed = np.concatenate([[0], np.cumsum(skipped, dtype=np.int64)])
        self._ngram_tokens = tables.ngram_starts.column("token").to_numpy()
        self._ngram_lengths = tables.ngram_starts.column("lengths").to_numpy()
        for column in (self._exceptions, self._ngram_tokens):
            if len(column) and not (column[0] >= 0 and column[-1] < num_tokens and (np.diff(column) > 0).all()):
                raise ArtifactError(f"{folder}: a table names tokens that are not there; damaged, run protect again")

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def _ranks(self) -> np.ndarray:
        return rank_blocks(self.begins)

    def gather(
        self,
        documents: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        offset: int,
        pad: int,
        out: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """Write windows to ids (int64), words (int32) and flags (uint8), each (B, T); see `gather_packed`."""
        gather_packed(
            self.ids, self.high, self.begins, self.outside, self.direct, self.indirect, self._ranks, self._exceptions,
            self._passed, self.doc_offsets[documents], starts, lengths, offset, pad, *out,
        )  # fmt: skip

    def column(self, name: str) -> np.ndarray:
        """Return a column of `TokenStore`, whole."""
        if name == "input_ids" and not self.is_wide:
            return self.ids
        return np.concatenate(list(self.blocks(name)))

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the entries of a column of `TokenStore`, whole documents at a time, in order; of none, one block."""
        num_documents = len(self.doc_offsets) - 1
        first = 0
        while True:
            full = self.doc_offsets[first] + TOKENS_AT_ONCE
            end = min(max(int(np.searchsorted(self.doc_offsets, full, "right")) - 1, first + 1), num_documents)
            yield self.block(name, first, end)
            if end == num_documents:
                return
            first = end

    def block(self, name: str, first: int, end: int) -> np.ndarray:
        """Return the entries of a column of the documents from ``first`` to ``end``."""
        offsets = self.doc_offsets[first : end + 1]
        tokens = slice(int(offsets[0]), int(offsets[-1]))
        if name == "input_ids":
            ids = self.ids[tokens]
            return ids if not self.is_wide else ids.astype(np.uint32) | self.high[tokens].astype(np.uint32) << 16
        if name == "word_ids":
            words = np.empty(tokens.stop - tokens.start, dtype=np.int32)
            unpack_words(self.begins, self.outside, self._exceptions, self._passed, offsets, words)
            return words
        if name == "ngram_starts":
            column = np.zeros(tokens.stop - tokens.start, dtype=np.uint8)
            known = slice(*np.searchsorted(self._ngram_tokens, [tokens.start, tokens.stop]))
            column[self._ngram_tokens[known] - tokens.start] = self._ngram_lengths[known]
            return column
        flags = np.empty(tokens.stop - tokens.start, dtype=np.uint8)
        unpack_flags(self.direct, self.indirect, tokens.start, flags)
        return flags

    def has_flag(self, flags: int) -> bool:
        """Whether some token has one of these flags."""
        return bool((flags & DIRECT and self.direct.any()) or (flags & INDIRECT and self.indirect.any()))


def open_packed(folder: Path) -> tuple[PackedTokens, pa.Table]:
    """Return the tokens of a folder and its table of documents.

    Raises
    ------
    ArtifactError
        A file is missing, cannot be read, or does not fit the others.
    """
    tables = Tables(**{name: _read(folder / f"{name}.parquet", schema) for name, schema in TOKEN_TABLES.items()})
    return PackedTokens(folder, tables), tables.documents


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            found, table = file.schema_arrow, file.read(use_threads=False)
            table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise ArtifactError(f"{path}: not a readable table of protected tokens ({type(error).__name__})") from None
    if not found.equals(schema, check_metadata=True):
        raise ArtifactError(f"{path}: not a table of protected tokens of this version; run protect again")
    return table.combine_chunks()


def _mapped(path: Path, dtype: np.dtype[Any], length: int) -> np.ndarray:
    if not length:
        return np.empty(0, dtype=dtype)
    try:
        num_bytes = path.stat().st_size
        if num_bytes != length * dtype.itemsize:
            raise ArtifactError(f"{path}: {num_bytes:,} bytes for {length:,} entries; damaged, run protect again")
        return np.memmap(path, dtype, "r").view(np.ndarray)
    except OSError as error:
        raise ArtifactError(f"{path}: protected tokens that cannot be read ({type(error).__name__})") from None
