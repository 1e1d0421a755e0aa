"""Tables beside packed tokens: Parquet files that are read whole, or by row groups."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from reticent.core.errors import ArtifactError

__all__ = ["NgramStarts", "ascends", "read_table", "tokens_of"]


def tokens_of(folder: Path, table: pa.Table, num_tokens: int) -> np.ndarray:
    tokens = np.ascontiguousarray(table.column("token").to_numpy(), dtype=np.int64)
    if not ascends(tokens, num_tokens):
        raise _not_there(folder)
    return tokens


def ascends(numbers: np.ndarray, end: int) -> bool:
    """Whether these are numbers from 0 to ``end``, exclusive, each greater than the one before."""
    return not len(numbers) or bool(numbers[0] >= 0 and numbers[-1] < end and (np.diff(numbers) > 0).all())


class _Table:
    """A table of a folder, open from now on: a file that takes its place is not read.

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
            raise self._unreadable(error) from None
        if not self._file.schema_arrow.equals(schema, check_metadata=True):
            self._file.close()
            raise _damaged(f"{self.path}: not a table of protected tokens of this version; run protect again")

    def _unreadable(self, error: Exception) -> ArtifactError:
        return _damaged(f"{self.path}: not a readable table of protected tokens ({type(error).__name__})")

    def read(self, groups: list[int] | None = None) -> pa.Table:
        """Return these row groups, or all; `ArtifactError` where they are damaged."""
        try:
            chosen = range(self._file.num_row_groups) if groups is None else groups
            table = self._file.read_row_groups(list(chosen), use_threads=False)
            table.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            raise self._unreadable(error) from None
        return table

    def bounds(self) -> np.ndarray:
        """Return the least and the greatest value of the first column of each row group that has rows, and the number
        of the group: int64, shape (G, 3)."""
        groups = ((number, self._file.metadata.row_group(number)) for number in range(self._file.num_row_groups))
        known = [(group.column(0).statistics, number) for number, group in groups if group.num_rows]
        if any(statistics is None or not statistics.has_min_max for statistics, _ in known):
            raise _damaged(f"{self.path}: not a table of protected tokens of this version; run protect again")
        rows = [(statistics.min, statistics.max, number) for statistics, number in known]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def close(self) -> None:
        self._file.close()


class NgramStarts:
    """Tokens where n-grams start, and their lengths: many, and read where they are asked for."""

    def __init__(self, folder: Path, schema: pa.Schema, num_tokens: int):
        self._folder, self._num_tokens = folder, num_tokens
        self._table = _Table(folder, "ngram_starts", schema)
        bounds = self._table.bounds()
        self._firsts, self._lasts, self._groups = bounds.T
        if not ascends(bounds[:, :2].reshape(-1)[_kept(bounds)], num_tokens):
            raise _not_there(folder)
        self._lock = Lock()  # one file, and what was read of it last
        self._known: tuple[list[int], np.ndarray, np.ndarray] = [], np.empty(0, np.int64), np.empty(0, np.uint8)

    def between(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return those from token ``start`` to ``stop``, exclusive, ascending: int64 and uint8."""
        groups = self._groups[(self._lasts >= start) & (self._firsts < stop)].tolist()
        if not groups:
            return np.empty(0, np.int64), np.empty(0, np.uint8)
        with self._lock:
            if self._known[0] != groups:
                table = self._table.read(groups)
                tokens = tokens_of(self._folder, table, self._num_tokens)
                self._known = groups, tokens, table.column("lengths").to_numpy()
            _, tokens, lengths = self._known
        own = slice(*np.searchsorted(tokens, [start, stop]))
        return tokens[own], lengths[own]


def _kept(bounds: np.ndarray) -> np.ndarray:
    """Which of the bounds of row groups, least and greatest by turns, have to ascend: of one row they are equal."""
    return np.stack([np.ones(len(bounds), dtype=bool), bounds[:, 1] != bounds[:, 0]], axis=1).reshape(-1)


def _not_there(folder: Path) -> ArtifactError:
    return _damaged(f"{folder}: a table names tokens that are not there; damaged, run protect again")


def _damaged(message: str) -> ArtifactError:
    from reticent.core.errors import ArtifactError

    return ArtifactError(message)


def read_table(folder: Path, name: str, schema: pa.Schema) -> pa.Table:
    """Return a table of a folder; `ArtifactError` where it cannot be read or is of another version."""
    table = _Table(folder, name, schema)
    try:
        return table.read().combine_chunks()
    finally:
        table.close()
