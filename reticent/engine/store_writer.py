"""Writers of ids and views of protected tokens, as :mod:`reticent.engine.packed` reads them.

Ids and bits are written and hashed as they arrive, so memory is bounded by one call of `write`. The bytes do not depend
on the batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.core.artifact import HashedFile
from reticent.engine.packed import ID_BITS, IDS, PLANES
from reticent.engine.schema import ID_TABLES, UNTOLD, VIEW_TABLES, copy_alone

if TYPE_CHECKING:
    from reticent._rust import PackedTokens, Planes

#: Rows of a group of a table.
ROWS_PER_GROUP = 1 << 20


class _Writer:
    """Base of the writers of a folder's files; `close`, or the end of a ``with`` block, completes them."""

    def __init__(self) -> None:
        self._files: list[HashedFile | BitFile] = []
        self._tables: list[_TableFile] = []

    def _open_tables(self, folder: Path, schemas: Mapping[str, pa.Schema]) -> list[_TableFile]:
        """Open a Parquet file in ``folder`` for each schema, by name."""
        try:
            for name, schema in schemas.items():
                self._tables.append(_TableFile(folder / f"{name}.parquet", schema))
        except BaseException:
            self.abandon()
            raise
        return self._tables

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """Write pending rows and close the files; the folder then holds every document."""
        try:
            for file in (*self._files, *self._tables):
                file.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Leave the files incomplete and open, after an error, so that they cannot pass for finished ones."""
        for table in self._tables:
            table.abandon()


class IdsWriter(_Writer):
    """Appends the token ids of documents to a folder."""

    def __init__(self, folder: Path, vocab_size: int):
        super().__init__()
        self.num_documents = self.num_tokens = 0
        names = IDS if vocab_size > 1 << 16 else IDS[:1]
        self._ids = [HashedFile(folder / f"{name}.bin") for name in names]
        self._bits = [BitFile(folder / f"{name}.bits") for name in ID_BITS]
        self._documents, self._exceptions = self._open_tables(folder, ID_TABLES)
        self._files = [*self._ids, *self._bits]

    def write(self, doc_ids: pa.Array, tokens: PackedTokens) -> None:
        """Append documents with their ids, string (D,), and their packed token ids; protection flags are not written
        here."""
        num_tokens = int(tokens.doc_offsets[-1])
        self._documents.write([doc_ids, tokens.doc_offsets[1:] + self.num_tokens])
        for file, column in zip(self._ids, (tokens.ids, tokens.high), strict=False):
            file.write(np.ascontiguousarray(column))
        for bits, column in zip(self._bits, (tokens.begins, tokens.outside), strict=True):
            bits.write(column, num_tokens)
        self._exceptions.write([tokens.exceptions + self.num_tokens, tokens.skipped, tokens.more])
        self.num_tokens += num_tokens
        self.num_documents += len(doc_ids)


class ViewWriter(_Writer):
    """Appends documents and the protection flags of their tokens to the folder of a view."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder, self._untold = folder, [UNTOLD.empty_table()]
        self.num_documents = self.num_tokens = self._num_words = 0
        self._bits = [BitFile(folder / f"{name}.bits") for name in PLANES]
        self._view, self._ngram_starts = self._open_tables(folder, VIEW_TABLES)
        self._files = [*self._bits]

    def write(
        self, documents: np.ndarray, individual: np.ndarray, protection_bits: Planes | PackedTokens, num_tokens: int
    ) -> None:
        """Append the protection flags of documents with ``num_tokens`` tokens. Given are the row of each document in
        the folder of token ids, int64 (D,), its individual, uint32 (D,), and the flags of the tokens as bit arrays."""
        for bits, column in zip(self._bits, (protection_bits.direct, protection_bits.indirect), strict=True):
            bits.write(column, num_tokens)
        self._view.write([documents, individual.astype(np.uint32)])
        self._ngram_starts.write([protection_bits.ngram_tokens + self.num_tokens, protection_bits.ngram_lengths])
        self.num_documents += len(documents)
        self.num_tokens += num_tokens

    def write_untold(self, protection_bits: Planes, num_words: int) -> None:
        """Append the words whose protection must be stored separately, as the flags of their tokens do not determine
        it; ``num_words`` is the number of all words of these documents."""
        columns = (
            protection_bits.untold_words + self._num_words,
            protection_bits.untold_flags,
            protection_bits.untold_lengths,
        )
        self._untold.append(pa.table([copy_alone(pa.array(column)) for column in columns], schema=UNTOLD))
        self._num_words += num_words

    def close(self) -> None:
        """Close the files; write the table of words whose protection the flags of their tokens do not determine, if
        there are any."""
        super().close()
        table = pa.concat_tables(self._untold).combine_chunks()
        if len(table):
            pq.write_table(table, self._folder / "untold.parquet", compression="zstd", use_dictionary=False)


class StoreWriter:
    """Appends documents to a folder that holds both their token ids and a view of all of them."""

    def __init__(self, folder: Path, vocab_size: int):
        with ExitStack() as stack:
            self._ids = stack.enter_context(IdsWriter(Path(folder), vocab_size))
            self._view = stack.enter_context(ViewWriter(Path(folder)))
            self._writers = stack.pop_all()

    @property
    def num_documents(self) -> int:
        """Number of documents written so far."""
        return self._ids.num_documents

    @property
    def num_tokens(self) -> int:
        """Number of tokens written so far."""
        return self._ids.num_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writers.__exit__(kind, error, at)

    def close(self) -> None:
        """Write pending rows and close the files; the folder then holds every document."""
        self._writers.close()

    def write(self, doc_ids: pa.Array, individual: np.ndarray, tokens: PackedTokens) -> None:
        """Append documents with their token ids and protection flags.

        Parameters
        ----------
        doc_ids : string array, shape (D,)
        individual : uint32 array, shape (D,)
        tokens : packed tokens of these D documents
        """
        first, num_tokens = self.num_documents, int(tokens.doc_offsets[-1])
        self._ids.write(doc_ids, tokens)
        self._view.write(np.arange(first, first + len(doc_ids)), individual, tokens, num_tokens)


class BitFile:
    """Writer of a bit array, least significant bit first, padded with zeros to whole uint64."""

    def __init__(self, path: Path):
        self._file, self._num_bits, self._last = HashedFile(path), 0, np.zeros(1, dtype=np.uint8)

    def write(self, bits: np.ndarray, num_bits: int) -> None:
        """Append the first ``num_bits`` bits of a packed byte array (uint8); the bits after them must be zero."""
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
        """Write the last bits, padded with zeros to 8 bytes, and close the file."""
        if self._num_bits % 8:
            self._file.write(self._last)
        self._file.write(bytes(-((self._num_bits + 7) // 8) % 8))
        self._file.close()


class _TableFile:
    """Writer of a Parquet file with `ROWS_PER_GROUP` rows a row group, however the rows arrive."""

    def __init__(self, path: Path, schema: pa.Schema):
        # Ascending numbers: their differences take a fraction of the room and the time of a dictionary. Bytes are
        # numbers up to 8, and Parquet's have four bytes: packed, they are written and read faster.
        encoding = {f.name: "DELTA_BINARY_PACKED" for f in schema if f.type in (pa.int64(), pa.uint8())}
        self._writer = pq.ParquetWriter(
            path, schema, compression="zstd", use_dictionary=False, column_encoding=encoding or None
        )
        self._schema, self._pending, self._num_pending = schema, [schema.empty_table()], 0

    def write(self, columns: list[pa.Array | np.ndarray]) -> None:
        """Append rows given as columns; they are written in full row groups."""
        arrays = [copy_alone(pa.array(column, field.type)) for column, field in zip(columns, self._schema, strict=True)]
        self._pending.append(pa.Table.from_arrays(arrays, schema=self._schema))
        self._num_pending += len(arrays[0])
        if self._num_pending >= ROWS_PER_GROUP:
            table = pa.concat_tables(self._pending)
            while len(table) >= ROWS_PER_GROUP:
                # In one piece: pages end by how many values came together.
                self._writer.write_table(table.slice(0, ROWS_PER_GROUP).combine_chunks())
                table = table.slice(ROWS_PER_GROUP)
            self._pending, self._num_pending = [table], len(table)

    def close(self) -> None:
        """Write the pending rows and close the file."""
        self._writer.write_table(pa.concat_tables(self._pending).combine_chunks())
        self._writer.close()

    def abandon(self) -> None:
        """Leave the Parquet file incomplete: on a full disk pyarrow would try to finish it again, and print that it
        cannot."""
        self._writer.is_open = False
