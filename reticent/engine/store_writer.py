"""StoreWriter: protected tokens to disk, as :mod:`reticent.engine.packed` reads them.

Ids and bits are written, and hashed, as they come: memory is bounded by a call of `StoreWriter.write`. The bytes do not
depend on how the documents were batched.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.written import HashedFile
from reticent.engine.packed import BITS, IDS
from reticent.engine.schema import TOKEN_TABLES

if TYPE_CHECKING:
    from reticent._rust import PackedTokens

__all__ = ["StoreWriter"]

#: Rows of a group of a table.
ROWS_PER_GROUP = 1 << 20


class StoreWriter:
    """Appends documents to a folder; `close`, or the end of a ``with`` block, makes it whole."""

    def __init__(self, folder: Path, vocab_size: int):
        self.folder = Path(folder)
        self.num_documents = self.num_tokens = 0
        names = IDS if vocab_size > 1 << 16 else IDS[:1]
        self._ids = {name: HashedFile(self.folder / f"{name}.bin") for name in names}
        self._bits = {name: _BitFile(self.folder / f"{name}.bits") for name in BITS}
        self._tables = {
            name: _TableFile(self.folder / f"{name}.parquet", schema) for name, schema in TOKEN_TABLES.items()
        }

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self._abandon()

    def write(self, doc_ids: pa.Array, individual: np.ndarray, tokens: PackedTokens) -> None:
        """Append documents.

        Parameters
        ----------
        doc_ids : string array, shape (D,)
        individual : uint32 array, shape (D,)
        tokens : packed tokens of these D documents
        """
        num_tokens, base = int(tokens.doc_offsets[-1]), self.num_tokens
        for file, column in zip(self._ids.values(), (tokens.ids, tokens.high), strict=False):
            file.write(np.ascontiguousarray(column))
        for name, bits in self._bits.items():
            bits.write(getattr(tokens, name), num_tokens)
        self._tables["documents"].write([doc_ids, individual.astype(np.uint32), tokens.doc_offsets[1:] + base])
        self._tables["exceptions"].write([tokens.exceptions + base, tokens.skipped, tokens.more])
        self._tables["ngram_starts"].write([tokens.ngram_tokens + base, tokens.ngram_lengths])
        self.num_documents += len(doc_ids)
        self.num_tokens += num_tokens

    def close(self) -> None:
        """Write what is pending; the folder then holds every document."""
        files: list[HashedFile | _BitFile | _TableFile] = [*self._ids.values(), *self._bits.values()]
        try:
            for file in (*files, *self._tables.values()):
                file.close()
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        for table in self._tables.values():
            table.abandon()


class _BitFile:
    """A file of bits, the first in the lowest bit of the first byte, filled up to whole uint64 with zeros."""

    def __init__(self, path: Path):
        self._file, self._num_bits, self._last = HashedFile(path), 0, np.zeros(1, dtype=np.uint8)

    def write(self, bits: np.ndarray, num_bits: int) -> None:
        """Append the first ``num_bits`` of these bytes; those beyond are zero."""
        used = self._num_bits % 8
        if used:  # what is there fills the last byte, so the new bits are shifted up
            shifted = np.append(bits << np.uint8(used), np.uint8(0))
            shifted[1:] |= bits >> np.uint8(8 - used)
            shifted[0] |= self._last[0]
            bits = shifted
        self._num_bits += num_bits
        whole = (used + num_bits) // 8
        self._last = bits[whole : whole + 1].copy() if (used + num_bits) % 8 else np.zeros(1, dtype=np.uint8)
        self._file.write(np.ascontiguousarray(bits[:whole]))

    def close(self) -> None:
        if self._num_bits % 8:
            self._file.write(self._last)
        self._file.write(bytes(-((self._num_bits + 7) // 8) % 8))
        self._file.close()


class _TableFile:
    """A Parquet file whose groups have `ROWS_PER_GROUP` rows, however they came."""

    def __init__(self, path: Path, schema: pa.Schema):
        # Ascending numbers: their differences take a fraction of the room and the time of a dictionary.
        encoding = {f.name: "DELTA_BINARY_PACKED" for f in schema if f.type == pa.int64()}
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", use_dictionary=False, column_encoding=encoding or None
        )
        self._schema, self._pending, self._num_pending = schema, [schema.empty_table()], 0

    def write(self, columns: list[pa.Array | np.ndarray]) -> None:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._pending.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._num_pending += len(arrays[0])
        if self._num_pending >= ROWS_PER_GROUP:
            table = pa.concat_tables(self._pending)
            while len(table) >= ROWS_PER_GROUP:
                self._writer.write_table(table.slice(0, ROWS_PER_GROUP))
                table = table.slice(ROWS_PER_GROUP)
            self._pending, self._num_pending = [table], len(table)

    def close(self) -> None:
        self._writer.write_table(pa.concat_tables(self._pending))
        self._writer.close()

    def abandon(self) -> None:
        """Leave the file as it is: on a full disk pyarrow would try to finish it again, and print that it cannot."""
        self._writer.is_open = False
