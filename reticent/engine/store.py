"""TokenStore: the memory-mapped reader and the writer of protected-token shards (Arrow IPC).

The trainer and the audit read corpora through this file alone. It needs pyarrow and NumPy, not the Rust core,
polars or torch, so a GPU machine reads what a CPU machine prepared. Opening costs no copy of the tokens when
the folder holds one shard; several shards are joined once.

A folder ``tokens/`` holds ``shard-00000.arrow``, …, ``tokenizer.json`` (the exact tokenizer the ids are of) and,
written by :mod:`reticent.artifact`, ``manifest.json``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent.engine.schema import protected_tokens_schema
from reticent.errors import ArtifactError, CorpusError

__all__ = ["ShardWriter", "TokenStore", "open_tokens", "tokenizer_fingerprint"]


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
        if len(self.doc_offsets) != len(self.individual) + 1 or self.doc_offsets[-1] != num_tokens:
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

    Files are byte-identical for the same documents however they were batched: rows are re-batched to
    ``rows_per_batch``.
    """

    def __init__(self, folder: Path, vocab_size: int, *, tokens_per_shard: int = 1 << 28, rows_per_batch: int = 4096):
        self.folder, self.schema = Path(folder), protected_tokens_schema(vocab_size)
        self.tokens_per_shard, self.rows_per_batch = tokens_per_shard, rows_per_batch
        self.num_shards = self.num_documents = self.num_tokens = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._shard_tokens = 0
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._file: pa.NativeFile | None = None

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
        offsets = pa.array(np.asarray(doc_offsets, dtype=np.int64))
        columns: list[pa.Array] = [
            pa.array(doc_ids, pa.string()),
            pa.array(np.asarray(individual, dtype=np.uint32)),
        ]
        for name, values in zip(
            ("input_ids", "word_ids", "flags", "ngram_starts"),
            (input_ids, word_ids, flags, ngram_starts),
            strict=True,
        ):
            field_type = self.schema.field(name).type
            dtype = field_type.value_type.to_pandas_dtype()
            columns.append(
                pa.LargeListArray.from_arrays(
                    offsets, pa.array(np.ascontiguousarray(values, dtype=dtype)), type=field_type
                )
            )
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        self.num_documents += batch.num_rows
        self.num_tokens += len(input_ids)
        for start in range(0, batch.num_rows, self.rows_per_batch):
            part = batch.slice(start, self.rows_per_batch)
            self._pending.append(part)
            self._pending_rows += part.num_rows
            while self._pending_rows >= self.rows_per_batch:
                self._flush(self.rows_per_batch)

    def _flush(self, num_rows: int) -> None:
        table = pa.Table.from_batches(self._pending, self.schema)
        batch = table.slice(0, num_rows).combine_chunks().to_batches()[0]
        rest = table.slice(num_rows)
        self._pending, self._pending_rows = rest.to_batches(), rest.num_rows
        if self._writer is None:
            self._file = pa.OSFile(str(self.folder / f"shard-{self.num_shards:05d}.arrow"), "wb")
            self._writer = pa.ipc.new_file(self._file, self.schema)
            self.num_shards += 1
            self._shard_tokens = 0
        self._writer.write_batch(batch)
        self._shard_tokens += len(batch.column("flags").flatten())
        if self._shard_tokens >= self.tokens_per_shard:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self._writer = self._file = None

    def close(self) -> None:
        """Write what is pending; the folder then holds every document."""
        while self._pending_rows:
            self._flush(min(self._pending_rows, self.rows_per_batch))
        if self.num_shards == 0:  # an empty set of documents is still a valid store
            with (
                pa.OSFile(str(self.folder / "shard-00000.arrow"), "wb") as file,
                pa.ipc.new_file(file, self.schema),
            ):
                self.num_shards = 1
        self._close_shard()


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
    batches = [batch for shard in shards for batch in _read_shard(shard)]
    table = pa.Table.from_batches(batches) if batches else protected_tokens_schema(0).empty_table()
    lists = {name: table.column(name) for name in ("input_ids", "word_ids", "flags", "ngram_starts")}
    flat = {name: _flatten(column) for name, column in lists.items()}
    lengths = [np.diff(chunk.offsets.to_numpy()) for chunk in lists["input_ids"].chunks]
    doc_offsets = np.concatenate([[0], *[np.asarray(part) for part in lengths]]).astype(np.int64).cumsum()
    for name, values in flat.items():
        if len(values) != doc_offsets[-1]:
            raise CorpusError(f"{folder}: column {name} holds {len(values)} entries, expected {doc_offsets[-1]}")
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


def _read_shard(shard: Path) -> Iterator[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(shard)))
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
    except (pa.ArrowException, OSError) as error:
        raise ArtifactError(f"{shard}: not a readable shard of protected tokens ({type(error).__name__})") from None


def _flatten(column: pa.ChunkedArray) -> np.ndarray:
    parts = [chunk.flatten().to_numpy(zero_copy_only=True) for chunk in column.chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint16)
