"""TokenStore: the memory-mapped reader and the writer of protected-token shards (Arrow IPC).

The trainer and the audit read corpora through this file alone. It needs pyarrow and NumPy, not the Rust core,
polars or torch, so a GPU machine reads the tokens that a CPU machine prepared. Opening costs no copy of the tokens when
the folder holds one shard (2^28 tokens by default); several shards are joined once.

A folder ``tokens/`` holds ``shard-00000.arrow``, …, ``tokenizer.json`` (the exact tokenizer the ids are of) and,
written by :mod:`reticent.core.artifact`, ``manifest.json``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.engine.kernels import count_disorder
from reticent.engine.schema import DIRECT, INDIRECT, protected_tokens_schema

__all__ = ["ShardWriter", "TokenStore", "open_tokens", "tokenizer_fingerprint"]

#: Columns with one entry a token.
LISTS = ("input_ids", "word_ids", "flags", "ngram_starts")


def tokenizer_fingerprint(path: Path | str) -> str:
    """Return the SHA-256 of a ``tokenizer.json`` file: two stores with the same value share their ids."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenStore:
    """Protected tokens of a set of documents as flat arrays.

    Attributes
    ----------
    input_ids : uint16 or uint32 array, shape (num_tokens,)
    word_ids : int32 array, shape (num_tokens,)
        Word of the document each token belongs to, -1 for none.
    flags, ngram_starts : uint8 arrays, shape (num_tokens,)
        See :func:`reticent.engine.schema.protected_tokens_schema`.
    doc_offsets : int64 array, shape (num_documents + 1,)
        Tokens of document ``d`` are ``doc_offsets[d]:doc_offsets[d + 1]``.
    individual : uint32 array, shape (num_documents,)
    doc_ids : pyarrow string array, shape (num_documents,)
        Secret, like everything here.
    path : folder the store was opened from, or None for one built in memory
    """

    input_ids: np.ndarray
    word_ids: np.ndarray
    flags: np.ndarray
    ngram_starts: np.ndarray
    doc_offsets: np.ndarray
    individual: np.ndarray
    doc_ids: pa.Array
    path: Path | None = None

    def __post_init__(self) -> None:
        num_tokens = len(self.input_ids)
        for name in ("word_ids", "flags", "ngram_starts"):
            if len(getattr(self, name)) != num_tokens:
                raise ArtifactError(
                    f"token store: {name} has {len(getattr(self, name))} entries for {num_tokens} tokens"
                )
        if (
            len(self.doc_offsets) != len(self.individual) + 1
            or self.doc_offsets[0] != 0
            or self.doc_offsets[-1] != num_tokens
            or (np.diff(self.doc_offsets) < 0).any()
        ):
            raise ArtifactError("token store: document offsets do not match the documents and tokens")

    @property
    def num_documents(self) -> int:
        return len(self.individual)

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def tokenizer_path(self) -> Path:
        """Path of the ``tokenizer.json`` the ids are of; `ArtifactError` for a store built in memory."""
        if self.path is None:
            raise ArtifactError("token store: built in memory, so it has no tokenizer file")
        return self.path / "tokenizer.json"

    def text_fingerprint(self) -> str:
        """Hash of all that training sees but the flags, which a recipe that protects nothing does not look at.

        Cost: one pass over the tokens.
        """
        digest = hashlib.sha256()
        for name in ("input_ids", "word_ids", "doc_offsets", "individual"):
            column = getattr(self, name)
            digest.update(f"{name} {column.dtype.str} {len(column)} ".encode())
            digest.update(np.ascontiguousarray(column).data)
        if self.path is not None:
            digest.update(self.tokenizer_path.read_bytes())
        return digest.hexdigest()

    def flags_fingerprint(self) -> str:
        """Hash of the tokens, their words and all their flags, which :mod:`reticent.engine.verify` has checked.

        Cost: one pass over 7 or 9 bytes a token.
        """
        digest = hashlib.sha256(b"reticent.flags/1")
        for column in (self.doc_offsets, self.input_ids, self.word_ids, self.flags):
            digest.update(f" {column.dtype.str} {len(column)} ".encode())
            digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()

    def check(self) -> None:
        """Raise `ArtifactError` where values are none that `write_tokens` writes: bits of flags that mean nothing,
        words out of order. Cost: one pass over 5 bytes a token.
        """
        where = self.path if self.path is not None else "token store"
        if self.num_tokens and np.bitwise_or.reduce(self.flags) & ~np.uint8(DIRECT | INDIRECT):
            raise ArtifactError(f"{where}: flags hold bits other than direct and indirect; damaged, run protect again")
        disorder = count_disorder(self.word_ids, self.doc_offsets)
        if disorder:
            raise ArtifactError(
                f"{where}: the words of {disorder:,} tokens are out of order; damaged, run protect again"
            )

    def select(self, documents: np.ndarray) -> TokenStore:
        """Return the store of these document numbers, in this order (copies)."""
        documents = np.asarray(documents, dtype=np.int64)
        starts, ends = self.doc_offsets[documents], self.doc_offsets[documents + 1]
        doc_offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        tokens = np.repeat(starts - doc_offsets[:-1], ends - starts) + np.arange(doc_offsets[-1])
        return TokenStore(
            self.input_ids[tokens],
            self.word_ids[tokens],
            self.flags[tokens],
            self.ngram_starts[tokens],
            doc_offsets,
            self.individual[documents],
            self.doc_ids.take(pa.array(documents)),
            self.path,
        )


class ShardWriter:
    """Write documents to ``folder/shard-NNNNN.arrow``, a new shard every ``tokens_per_shard`` tokens.

    A shard is one record batch, so that a reader maps it and copies nothing. Its columns grow in files beside it and
    are mapped into the shard when it is full: memory is bounded by a call of :meth:`write`, and the bytes do not depend
    on how the documents were batched.
    """

    def __init__(self, folder: Path, vocab_size: int, *, tokens_per_shard: int = 1 << 28):
        self.folder, self.tokens_per_shard = Path(folder), tokens_per_shard
        self.schema = protected_tokens_schema(vocab_size)
        self.num_shards = self.num_documents = self.num_tokens = 0
        self._dtypes = {name: self.schema.field(name).type.value_type.to_pandas_dtype() for name in LISTS}
        self._begin_shard()

    def write(
        self,
        doc_ids: pa.Array,
        individual: np.ndarray,
        doc_offsets: np.ndarray,
        input_ids: np.ndarray,
        word_ids: np.ndarray,
        flags: np.ndarray,
        ngram_starts: np.ndarray,
    ) -> None:
        """Append documents given as flat arrays (`TokenStore` layout, offsets starting at 0)."""
        doc_ids, offsets = pa.array(doc_ids, pa.string()), np.asarray(doc_offsets, dtype=np.int64)
        individual = np.asarray(individual, dtype=np.uint32)
        values = dict(zip(LISTS, (input_ids, word_ids, flags, ngram_starts), strict=True))
        first, num_documents = 0, len(offsets) - 1
        while first < num_documents:
            # The document that fills the shard is its last one.
            full = offsets[first] + self.tokens_per_shard - self._offsets[-1][-1]
            end = min(int(np.searchsorted(offsets[first + 1 :], full)) + first + 1, num_documents)
            for name, column in values.items():
                part = np.ascontiguousarray(column[offsets[first] : offsets[end]], self._dtypes[name])
                self._files[name].write(part.data)
            self._doc_ids.append(doc_ids.slice(first, end - first))
            self._individual.append(individual[first:end])
            self._offsets.append(offsets[first + 1 : end + 1] - offsets[first] + self._offsets[-1][-1])
            if self._offsets[-1][-1] >= self.tokens_per_shard:
                self._close_shard()
                self._begin_shard()
            first = end
        self.num_documents += num_documents
        self.num_tokens += int(offsets[-1])

    def close(self) -> None:
        """Write the pending documents; the folder then holds all of them."""
        if len(self._offsets) > 1 or self.num_shards == 0:  # an empty set of documents is still a valid store
            self._close_shard()
        else:
            self._drop_files()

    def _begin_shard(self) -> None:
        self._doc_ids: list[pa.Array] = [pa.array([], pa.string())]
        self._individual = [np.empty(0, dtype=np.uint32)]
        self._offsets = [np.zeros(1, dtype=np.int64)]
        self._files = {name: (self.folder / f"{name}.part").open("w+b") for name in LISTS}

    def _close_shard(self) -> None:
        columns = [pa.concat_arrays(self._doc_ids), pa.array(np.concatenate(self._individual))]
        offsets = pa.array(np.concatenate(self._offsets))
        for name, file in self._files.items():
            file.flush()
            mapped = np.memmap(file, self._dtypes[name], "r") if file.tell() else np.empty(0, self._dtypes[name])
            columns.append(pa.LargeListArray.from_arrays(offsets, pa.array(mapped), type=self.schema.field(name).type))
        with (
            pa.OSFile(str(self.folder / f"shard-{self.num_shards:05d}.arrow"), "wb") as shard,
            pa.ipc.new_file(shard, self.schema) as writer,
        ):
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        self.num_shards += 1
        self._drop_files()

    def _drop_files(self) -> None:
        for file in self._files.values():
            file.close()
            Path(file.name).unlink()


def open_tokens(path: Path | str) -> TokenStore:
    """Open a folder of protected tokens, memory-mapped.

    Raises
    ------
    ArtifactError
        The folder has no shard, or a shard is not a readable file of this schema.
    """
    folder = Path(path)
    shards = sorted(folder.glob("shard-*.arrow"))
    if not shards:
        raise ArtifactError(f"{folder}: no protected-token shards here; expected shard-00000.arrow")
    schema = _schema_of(shards[0])
    batches = [batch for shard in shards for batch in _read_shard(shard, schema)]
    table = pa.Table.from_batches(batches, schema)
    lists = {name: table.column(name) for name in LISTS}
    flat = {name: _flatten(column) for name, column in lists.items()}
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in lists["input_ids"].chunks]
    doc_offsets = np.concatenate([[0], *[np.asarray(part) for part in lengths]]).astype(np.int64).cumsum()
    individual = table.column("individual").combine_chunks().to_numpy(zero_copy_only=False)
    return TokenStore(
        flat["input_ids"],
        flat["word_ids"],
        flat["flags"],
        flat["ngram_starts"],
        doc_offsets,
        np.asarray(individual, dtype=np.uint32),
        table.column("doc_id").combine_chunks(),
        folder,
    )


def _schema_of(shard: Path) -> pa.Schema:
    """Schema of the first shard: ids are uint16 or uint32, by the vocabulary; every shard must have the same."""
    found = _open_shard(shard).schema
    for vocab_size in (1, 1 << 17):
        if found.equals(protected_tokens_schema(vocab_size), check_metadata=True):
            return found
    raise ArtifactError(f"{shard}: not a shard of protected tokens of this version; run protect again")


def _open_shard(shard: Path) -> pa.ipc.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(shard)))
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{shard}: not a readable shard of protected tokens ({type(error).__name__})") from None


def _read_shard(shard: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    reader = _open_shard(shard)
    if not reader.schema.equals(schema):
        raise ArtifactError(f"{shard}: another schema than the first shard's")
    for number in range(reader.num_record_batches):
        try:
            batch = reader.get_batch(number)
            batch.validate()  # sizes of the buffers, without reading them
            batch.column("doc_id").validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ArtifactError(f"{shard}: batch {number} cannot be read ({type(error).__name__})") from None
        offsets = batch.column("input_ids").offsets
        bounds = offsets.to_numpy(zero_copy_only=False)
        if bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[-1] > len(batch.column("input_ids").values):
            raise ArtifactError(f"{shard}: the offsets of its documents do not fit its tokens; damaged")
        for name in ("word_ids", "flags", "ngram_starts"):
            if not batch.column(name).offsets.equals(offsets):
                raise ArtifactError(f"{shard}: column {name} has other lengths than input_ids")
        yield batch


def _flatten(column: pa.ChunkedArray) -> np.ndarray:
    parts = [chunk.flatten().to_numpy(zero_copy_only=True) for chunk in column.chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint16)
