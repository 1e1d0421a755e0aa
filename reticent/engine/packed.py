"""Packed tokens: the memory-mapped form of protected tokens on disk, read without unpacking all of them.

Two folders, or one for both. *Ids* depend on documents and tokenizer alone: of each token its id (two bytes,
``ids.bin``; a third, ``ids_high.bin``, where the vocabulary has more than 65,536 entries) and two bits, whether it
begins a word and whether it is outside of words (``begins.bits``, ``outside.bits``). A *view* names some of their
documents (``view.parquet``) and protects them: one bit a token of these documents for each plane (``direct.bits``,
``indirect.bits``), and the tokens where minimal identifying n-grams start (``ngram_starts.parquet``). The ids of a
view stand in its folder, or in the folder ``ids`` beside it. ``untold.parquet`` has the protection of the words that no
token tells, where there are such words: whoever rewrites a text carries over that of words.

A token that begins a word begins the next word of its document. There are two exceptions: the token before meets
several words, or a word has no token. Then a row of ``exceptions.parquet`` has the number of skipped words. So bits and
exceptions give the word number of every token.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.errors import ArtifactError
from reticent.engine.schema import DIRECT, ID_TABLES, INDIRECT, UNTOLD, VIEW_TABLES

#: Files of ids, of their bits, and of the planes of a view.
IDS = ("ids", "ids_high")
ID_BITS = ("begins", "outside")
PLANES = ("direct", "indirect")
#: Tokens that are unpacked at a time.
TOKENS_AT_ONCE = 1 << 22


def ids_folder_of(folder: Path) -> Path:
    """Return the folder with the token ids of a folder of protected tokens: the folder itself if it holds ids,
    otherwise the folder ``ids`` next to it, whose ids it shares with others."""
    holds_ids = any((folder / name).exists() for name in ("ids.bin", "documents.parquet"))
    return folder if holds_ids else folder.parent / "ids"


class StoredIds:
    """Token ids of documents and the bits per token that mark words, memory-mapped from a folder.

    Attributes
    ----------
    doc_offsets : int64 array, shape (num_documents + 1,)
    doc_ids : pyarrow string array, shape (num_documents,)
    ids : uint16 array, shape (num_tokens,)
    high : uint8 array, the third bytes of the ids; empty where two are enough
    begins, outside : uint64 arrays, one bit a token
    exceptions : int64 array, ascending: tokens before which words are passed over, or that meet several
    skipped, more : uint32 arrays: how many words are passed over, and how many more a token meets
    """

    def __init__(self, folder: Path):
        self.folder = folder
        documents = read_table(folder, "documents", ID_TABLES["documents"])
        self.doc_ids = documents.column("doc_id").combine_chunks()
        self.doc_offsets = np.concatenate([[0], documents.column("end").to_numpy()]).astype(np.int64)
        if (np.diff(self.doc_offsets) < 0).any():
            raise ArtifactError(f"{folder / 'documents.parquet'}: the ends of documents do not ascend; damaged")
        self.num_tokens = num_tokens = int(self.doc_offsets[-1])
        exceptions = read_table(folder, "exceptions", ID_TABLES["exceptions"])
        self.ids = mapped_column(folder / "ids.bin", np.dtype("<u2"), num_tokens)
        self.is_wide = (folder / "ids_high.bin").exists()
        self.high = mapped_column(folder / "ids_high.bin", np.dtype("u1"), num_tokens if self.is_wide else 0)
        self.begins, self.outside = (_map_bits(folder, name, num_tokens) for name in ID_BITS)
        self.exceptions = read_token_numbers(folder, exceptions, num_tokens)
        self.skipped, self.more = (exceptions.column(name).to_numpy() for name in ("skipped", "more"))
        self.passed = np.concatenate([[0], np.cumsum(self.skipped, dtype=np.int64)])

    @functools.cached_property
    def words_before_blocks(self) -> np.ndarray:
        """Number of words that begin before each block of tokens, int64. With this running total, the word number of a
        token is found without a scan from the first token.

        Counts are cumulative over the whole store.
        """
        from reticent.engine.packed_kernels import rank_blocks

        return rank_blocks(self.begins)

    def exceptions_of(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tokens of documents ``first`` to ``end`` (exclusive) that follow words without a token or overlap
        several words, as three arrays: token number, number of words skipped before it, number of further words it
        overlaps."""
        own = slice(*np.searchsorted(self.exceptions, self.doc_offsets[[first, end]]))
        return self.exceptions[own], self.skipped[own], self.more[own]


class PackedTokens:
    """The tokens of a view: its documents, their token ids, and the protection bits (planes) of each token.

    Attributes
    ----------
    stored : StoredIds
    documents : int64 array, shape (num_documents,): rows of the documents of ``stored``
    individual : uint32 array, shape (num_documents,)
    firsts : int64 array, shape (num_documents,): first token of each, by number of ``stored``
    doc_offsets : int64 array, shape (num_documents + 1,)
        Tokens as the view numbers them.
    direct, indirect : uint64 arrays, one bit a token of the view
    """

    def __init__(self, folder: Path, stored: StoredIds):
        view = read_table(folder, "view", VIEW_TABLES["view"])
        self.stored = stored
        self.documents = np.ascontiguousarray(view.column("document").to_numpy())
        self.individual = view.column("individual").to_numpy()
        if not ascends(self.documents, len(stored.doc_offsets) - 1):
            raise ArtifactError(f"{folder / 'view.parquet'}: names documents that are not there; damaged")
        self.firsts = stored.doc_offsets[self.documents]
        lengths = stored.doc_offsets[self.documents + 1] - self.firsts
        self.doc_offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        num_tokens = int(self.doc_offsets[-1])
        self.direct, self.indirect = (_map_bits(folder, name, num_tokens) for name in PLANES)
        self._ngram_starts = NgramStarts(folder, VIEW_TABLES["ngram_starts"], num_tokens)
        self._folder = folder

    @functools.cached_property
    def untold(self) -> pa.Table:
        """Table of the words whose protection must be stored separately, as the protection flags of their tokens do not
        determine it (schema `UNTOLD`)."""
        there = (self._folder / "untold.parquet").exists()
        return read_table(self._folder, "untold", UNTOLD) if there else UNTOLD.empty_table()

    def gather(
        self,
        documents: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        offset: int,
        pad: int,
        out: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """Write each window (``lengths`` tokens from ``starts``, in ``documents``) to its row of ``out`` from column
        ``offset``: token ids, word numbers and protection flags, each (B, T). Other cells get ``pad``, -1 and 0."""
        from reticent.engine.packed_kernels import gather_packed

        stored, firsts = self.stored, self.firsts[documents]
        gather_packed(
            stored.ids, stored.high, stored.begins, stored.outside, self.direct, self.indirect,
            stored.words_before_blocks, stored.exceptions, stored.passed,
            firsts, firsts + (starts - self.doc_offsets[documents]), starts, lengths,
            offset, pad, *out,
        )  # fmt: skip

    def column(self, name: str) -> np.ndarray:
        """Return the column ``name`` of `TokenStore` ("input_ids", "word_ids", "flags" or "ngram_starts") for all
        tokens."""
        num_documents = len(self.documents)
        if name == "input_ids" and self._is_contiguous(0, num_documents):
            return self.block(name, 0, num_documents)
        return np.concatenate(list(self.blocks(name)))

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the column ``name`` of `TokenStore` in consecutive blocks of whole documents; one empty block if there
        are no documents."""
        for first, end in self.iter_document_ranges():
            yield self.block(name, first, end)

    def iter_document_ranges(self) -> Iterator[tuple[int, int]]:
        """Yield consecutive ranges (first, end) of documents, each small enough to unpack at once; one empty range if
        there are no documents."""
        num_documents = len(self.doc_offsets) - 1
        first = 0
        while True:
            full = self.doc_offsets[first] + TOKENS_AT_ONCE
            end = min(max(int(np.searchsorted(self.doc_offsets, full, "right")) - 1, first + 1), num_documents)
            yield first, end
            if end == num_documents:
                return
            first = end

    def block(self, name: str, first: int, end: int) -> np.ndarray:
        """Return the column ``name`` for the tokens of documents ``first`` to ``end``, exclusive."""
        if name == "input_ids":
            return self._ids(first, end)
        if name == "word_ids":
            return self._words(first, end)
        start, stop = (int(at) for at in self.doc_offsets[[first, end]])
        if name == "ngram_starts":
            column = np.zeros(stop - start, dtype=np.uint8)
            tokens, known = self.ngrams(first, end)
            column[tokens] = known
            return column
        return _unpack_bits(self.direct, start, stop) | _unpack_bits(self.indirect, start, stop) << 1

    def ngrams(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where minimal identifying n-grams start in documents ``first`` to ``end``: token positions, counted
        from the first document's first token, and the lengths n as bits."""
        start, stop = (int(at) for at in self.doc_offsets[[first, end]])
        tokens, lengths = self._ngram_starts.between(start, stop)
        return tokens - start, lengths

    def has_flag(self, flags: int) -> bool:
        """Whether any token has one of these protection flags."""
        return bool((flags & DIRECT and self.direct.any()) or (flags & INDIRECT and self.indirect.any()))

    def _ids(self, first: int, end: int) -> np.ndarray:
        """Return the token ids of documents ``first`` to ``end`` (exclusive): uint16, or uint32 for a large
        vocabulary."""
        stored, places = self.stored, self.positions_of(first, end)
        ids = stored.ids[places]
        return ids | stored.high[places].astype(np.uint32) << 16 if stored.is_wide else ids

    def _words(self, first: int, end: int) -> np.ndarray:
        """Return the word number of each token of documents ``first`` to ``end``, int32; -1 outside of words."""
        stored, places = self.stored, self.positions_of(first, end)
        offsets = self.doc_offsets[first : end + 1] - self.doc_offsets[first]
        begun = bits_at(stored.begins, places).astype(np.int32)
        tokens, rows = self.exceptions_at(places)
        begun[tokens] += stored.skipped[rows].astype(np.int32)
        words = np.cumsum(begun, dtype=np.int32)
        before = np.append(np.int32(0), words)[offsets[:-1]]
        words -= np.repeat(before + 1, np.diff(offsets))
        words[bits_at(stored.outside, places).view(np.bool_)] = -1
        return words

    def exceptions_at(self, positions: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which tokens at these ascending positions follow words without a token or overlap several words, as
        two arrays: their indices in ``positions``, and their rows in the stored table of such tokens."""
        exceptions = self.stored.exceptions
        if isinstance(positions, slice):
            first, end = np.searchsorted(exceptions, [positions.start, positions.stop])
            return exceptions[first:end] - positions.start, np.arange(first, end)
        bounds = (positions[0], positions[-1] + 1) if len(positions) else (0, 0)
        rows = np.arange(*np.searchsorted(exceptions, bounds))
        tokens = np.searchsorted(positions, exceptions[rows])
        own = positions[tokens] == exceptions[rows]
        return tokens[own], rows[own]

    def positions_of(self, first: int, end: int) -> slice | np.ndarray:
        """Return the positions, in the file of token ids, of the tokens of documents ``first`` to ``end`` (exclusive):
        a slice if they are contiguous, else an array."""
        offsets, firsts = self.doc_offsets[first : end + 1], self.firsts[first:end]
        length = int(offsets[-1] - offsets[0])
        if self._is_contiguous(first, end):
            place = int(firsts[0]) if end > first else 0
            return slice(place, place + length)
        return np.repeat(firsts - offsets[:-1], np.diff(offsets)) + np.arange(offsets[0], offsets[-1])

    def _is_contiguous(self, first: int, end: int) -> bool:
        """Whether documents ``first`` to ``end`` are contiguous in the file of token ids."""
        return end <= first or int(self.documents[end - 1] - self.documents[first]) == end - first - 1


def mapped_column(path: Path, dtype: np.dtype[Any], length: int) -> np.ndarray:
    """Return a file of numbers as a memory-mapped array; `ArtifactError` if it has another length or cannot be read."""
    if not length:
        return np.empty(0, dtype=dtype)
    try:
        num_bytes = path.stat().st_size
        if num_bytes != length * dtype.itemsize:
            raise ArtifactError(f"{path}: {num_bytes:,} bytes for {length:,} entries; damaged, run protect again")
        return np.memmap(path, dtype, "r").view(np.ndarray)
    except OSError as error:
        raise ArtifactError(f"{path}: protected tokens that cannot be read ({type(error).__name__})") from None


def bits_at(bits: np.ndarray, places: slice | np.ndarray) -> np.ndarray:
    """Return the bits of a packed bit array at these ascending positions, uint8, 0 or 1. Memory is proportional to the
    number of positions, however far apart they are."""
    if isinstance(places, slice):
        return _unpack_bits(bits, places.start, places.stop)
    if len(places) and places[-1] - places[0] < 4 * len(places):
        return _unpack_bits(bits, int(places[0]), int(places[-1]) + 1)[places - places[0]]
    chosen: np.ndarray = bits.view(np.uint8)[places >> 3] >> (places & 7).astype(np.uint8) & np.uint8(1)
    return chosen


def _unpack_bits(bits: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the bits ``first`` to ``end``, exclusive, of a packed bit array, uint8, 0 or 1."""
    whole = np.unpackbits(bits[first >> 6 : -(-end // 64)].view(np.uint8), bitorder="little")
    return whole[first & 63 : (first & 63) + end - first]


def _map_bits(folder: Path, name: str, num_bits: int) -> np.ndarray:
    """Return a file of ``num_bits`` bits as a memory-mapped array of uint64."""
    return mapped_column(folder / f"{name}.bits", np.dtype("<u8"), -(-num_bits // 64))


def read_token_numbers(folder: Path, table: pa.Table, num_tokens: int) -> np.ndarray:
    """Return the column ``token`` of a table as int64; raise `ArtifactError` unless the numbers ascend strictly and lie
    below ``num_tokens``."""
    tokens = np.ascontiguousarray(table.column("token").to_numpy(), dtype=np.int64)
    if not ascends(tokens, num_tokens):
        raise _damaged_error(folder)
    return tokens


def ascends(numbers: np.ndarray, end: int) -> bool:
    """Whether these numbers ascend strictly and lie between 0 and ``end``, exclusive."""
    return not len(numbers) or bool(numbers[0] >= 0 and numbers[-1] < end and (np.diff(numbers) > 0).all())


class _Table:
    """A Parquet table of a folder, kept open: a file that later replaces it is not read.

    Raises
    ------
    ArtifactError
        It cannot be read or is of another version.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema):
        self.path = folder / f"{name}.parquet"
        try:
            self._file = pq.ParquetFile(self.path)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable_error(error) from None
        if not self._file.schema_arrow.equals(schema, check_metadata=True):
            self._file.close()
            raise ArtifactError(f"{self.path}: not a table of protected tokens of this version; run protect again")

    def _unreadable_error(self, error: Exception) -> ArtifactError:
        """Return the error which says that the table's file cannot be read."""
        return ArtifactError(f"{self.path}: not a readable table of protected tokens ({type(error).__name__})")

    def read(self, groups: list[int] | None = None) -> pa.Table:
        """Return the rows of these row groups, or of all; `ArtifactError` if they are damaged."""
        try:
            chosen = range(self._file.num_row_groups) if groups is None else groups
            table = self._file.read_row_groups(list(chosen), use_threads=False)
            table.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable_error(error) from None
        return table

    def bounds(self) -> np.ndarray:
        """Return for each non-empty row group of the Parquet file the minimum and maximum of the first column and the
        group's number, int64 (G, 3)."""
        groups = ((number, self._file.metadata.row_group(number)) for number in range(self._file.num_row_groups))
        known = [(group.column(0).statistics, number) for number, group in groups if group.num_rows]
        if any(statistics is None or not statistics.has_min_max for statistics, _ in known):
            raise ArtifactError(f"{self.path}: not a table of protected tokens of this version; run protect again")
        rows = [(statistics.min, statistics.max, number) for statistics, number in known]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def close(self) -> None:
        """Close the table's file."""
        self._file.close()


class NgramStarts:
    """Tokens where minimal identifying n-grams start, with their lengths as bits; read on demand."""

    def __init__(self, folder: Path, schema: pa.Schema, num_tokens: int):
        self._folder, self._num_tokens = folder, num_tokens
        self._table = _Table(folder, "ngram_starts", schema)
        bounds = self._table.bounds()
        self._firsts, self._lasts, self._groups = bounds.T
        if not ascends(bounds[:, :2].reshape(-1)[_must_ascend(bounds)], num_tokens):
            raise _damaged_error(folder)
        self._lock = Lock()  # one file, and what was read of it last
        self._known: tuple[list[int], np.ndarray, np.ndarray] = [], np.empty(0, np.int64), np.empty(0, np.uint8)

    def between(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts of minimal identifying n-grams from token ``start`` to ``stop`` (exclusive): token numbers,
        int64, and the n-grams' lengths as bits, uint8."""
        groups = self._groups[(self._lasts >= start) & (self._firsts < stop)].tolist()
        if not groups:
            return np.empty(0, np.int64), np.empty(0, np.uint8)
        with self._lock:
            if self._known[0] != groups:
                table = self._table.read(groups)
                tokens = read_token_numbers(self._folder, table, self._num_tokens)
                self._known = groups, tokens, table.column("lengths").to_numpy()
            _, tokens, lengths = self._known
        own = slice(*np.searchsorted(tokens, [start, stop]))
        return tokens[own], lengths[own]


def _must_ascend(group_bounds: np.ndarray) -> np.ndarray:
    """Return, for the sequence minimum, maximum, minimum, maximum … of the row groups, which entries must be greater
    than the one before, bool (2G,): all, except the maximum of a group whose minimum equals it."""
    return np.stack([np.ones(len(group_bounds), dtype=bool), group_bounds[:, 1] != group_bounds[:, 0]], axis=1).reshape(
        -1
    )


def _damaged_error(folder: Path) -> ArtifactError:
    """Return the error for a table of this folder that refers to tokens which do not exist."""
    return ArtifactError(f"{folder}: a table names tokens that are not there; damaged, run protect again")


def read_table(folder: Path, name: str, schema: pa.Schema) -> pa.Table:
    """Return a Parquet table ``name`` of a folder; `ArtifactError` if it cannot be read or has another schema
    version."""
    table = _Table(folder, name, schema)
    try:
        return table.read().combine_chunks()
    finally:
        table.close()
