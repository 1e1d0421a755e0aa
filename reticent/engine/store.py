"""TokenStore: protected tokens of a set of documents, in memory or mapped from a folder.

The trainer and the audit read corpora only through this file. It needs pyarrow, NumPy and Numba, but not the Rust core,
polars or torch, so a GPU machine can read tokens that a CPU machine prepared. Opening a folder reads its short tables;
ids and bits are memory-mapped (:mod:`reticent.engine.packed`). Windows are gathered from the packed form. A column is
unpacked only if it is read whole.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reticent.core.artifact import MANIFEST, read_manifest
from reticent.core.errors import ArtifactError
from reticent.engine.packed import PackedTokens, StoredIds, ids_folder_of
from reticent.engine.schema import DIRECT, INDIRECT

#: Columns with one entry a token.
LISTS = ("input_ids", "word_ids", "flags", "ngram_starts")


class TokenStore:
    """Protected tokens of a set of documents: token ids, word numbers and protection flags, one entry a token.

    Attributes
    ----------
    input_ids : uint16 or uint32 array, shape (num_tokens,)
    word_ids : int32 array, shape (num_tokens,)
        Number of the first word of its document that each token meets, -1 for none.
    flags : uint8 array, shape (num_tokens,)
        `DIRECT` and `INDIRECT`.
    ngram_starts : uint8 array, shape (num_tokens,)
        Nonzero on the first token of a word only: bit n-1 says that a minimal identifying n-gram of n words starts at
        that word.
    doc_offsets : int64 array, shape (num_documents + 1,)
        Tokens of document ``d`` are ``doc_offsets[d]:doc_offsets[d + 1]``.
    individual : uint32 array, shape (num_documents,)
    doc_ids : pyarrow string array, shape (num_documents,)
        Secret, like everything here.
    path : folder the store was opened from, or None for one built in memory
    by_household : whether ``individual`` has households in place of individuals

    Of an opened store the first four are unpacked when they are first asked for (ids of two bytes stay mapped), and
    ``doc_ids`` are gathered from those of the ids.
    """

    def __init__(
        self,
        input_ids: np.ndarray,
        word_ids: np.ndarray,
        flags: np.ndarray,
        ngram_starts: np.ndarray,
        doc_offsets: np.ndarray,
        individual: np.ndarray,
        doc_ids: pa.Array,
        path: Path | None = None,
        by_household: bool = False,
    ):
        columns = dict(zip(LISTS, (input_ids, word_ids, flags, ngram_starts), strict=True))
        for name, column in columns.items():
            if len(column) != len(input_ids):
                raise ArtifactError(f"token store: {name} has {len(column)} entries for {len(input_ids)} tokens")
        self._packed: PackedTokens | None = None
        self.by_household = by_household
        self.__dict__.update(columns, doc_ids=doc_ids)
        self._set_documents(doc_offsets, individual, path, len(input_ids))

    @classmethod
    def of_packed(cls, packed: PackedTokens, path: Path) -> TokenStore:
        """Return a token store over memory-mapped packed tokens; ``path`` is their folder."""
        store = cls.__new__(cls)
        store._packed, store.by_household = packed, False
        store._set_documents(packed.doc_offsets, packed.individual, path, int(packed.doc_offsets[-1]))
        return store

    def _set_documents(
        self, doc_offsets: np.ndarray, individual: np.ndarray, path: Path | None, num_tokens: int
    ) -> None:
        """Set document offsets, individuals and path; `ArtifactError` if they do not fit each other."""
        if (
            len(doc_offsets) != len(individual) + 1
            or doc_offsets[0] != 0
            or doc_offsets[-1] != num_tokens
            or (np.diff(doc_offsets) < 0).any()
        ):
            raise ArtifactError("token store: document offsets do not match the documents and tokens")
        self.doc_offsets, self.individual, self.path = doc_offsets, individual, path

    @functools.cached_property
    def doc_ids(self) -> pa.Array:
        """Id of each document, string (num_documents,)."""
        assert self._packed is not None
        return self._packed.stored.doc_ids.take(pa.array(self._packed.documents))

    @property
    def doc_keys(self) -> np.ndarray:
        """Hash of each document's id, int64 (num_documents,), which does not depend on the other documents."""
        from reticent.engine.kernels import hash_slices

        ids = pa.concat_arrays([self.doc_ids.cast(pa.large_string())])  # from its first byte
        _, offsets, data = ids.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[ids.offset : ids.offset + len(ids) + 1]
        return hash_slices(np.frombuffer(data or b"\0", dtype=np.uint8), bounds[:-1], bounds[1:])

    def doc_ids_of(self, documents: np.ndarray) -> list[str]:
        """Return the ids of the documents with these numbers, without reading the ids of the others."""
        if self._packed is None:
            ids, rows = self.doc_ids, documents
        else:
            ids, rows = self._packed.stored.doc_ids, self._packed.documents[documents]
        return [ids[row].as_py() for row in rows.tolist()]

    @functools.cached_property
    def input_ids(self) -> np.ndarray:
        """Token ids of all documents, one after another, (num_tokens,)."""
        return self._column("input_ids")

    @functools.cached_property
    def word_ids(self) -> np.ndarray:
        """Number, within its document, of the word that each token belongs to, int32 (num_tokens,); -1 outside of
        words."""
        return self._column("word_ids")

    @functools.cached_property
    def flags(self) -> np.ndarray:
        """Protection flags of each token, uint8 (num_tokens,): `DIRECT`, `INDIRECT`, both or 0."""
        return self._column("flags")

    @functools.cached_property
    def ngram_starts(self) -> np.ndarray:
        """Lengths, as bits, of the minimal identifying n-grams that start at each token, uint8 (num_tokens,)."""
        return self._column("ngram_starts")

    def _column(self, name: str) -> np.ndarray:
        """Return a whole column of the tokens, unpacked."""
        assert self._packed is not None  # else the column was given
        return self._packed.column(name)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.individual)

    def __len__(self) -> int:
        return self.num_documents

    def __repr__(self) -> str:
        return f"TokenStore({self.num_documents:,} documents, {int(self.doc_offsets[-1]):,} tokens)"

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return int(self.doc_offsets[-1])

    @property
    def tokenizer_path(self) -> Path:
        """Path of the ``tokenizer.json`` that made the token ids; `ArtifactError` for a store built in memory."""
        if self.path is None:
            raise ArtifactError("token store: built in memory, so it has no tokenizer file")
        own = self.path / "tokenizer.json"
        return own if own.exists() else ids_folder_of(self.path) / own.name

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the column ``name`` (one entry per token) in consecutive blocks, so that it is never unpacked as a
        whole."""
        if self._packed is None or name in self.__dict__:
            yield getattr(self, name)
        else:
            yield from self._packed.blocks(name)

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
        ``offset``: token ids (int64), word numbers (int32) and flags (uint8), each (B, T). Other cells get ``pad``, -1
        and 0."""
        if self._packed is not None:
            self._packed.gather(documents, starts, lengths, offset, pad, out)
            return

        from reticent.engine.window_kernels import gather_windows

        for values, fill, array in zip((self.input_ids, self.word_ids, self.flags), (pad, -1, 0), out, strict=True):
            gather_windows(values, starts, lengths, offset, fill, array)

    def has_flag(self, flags: int) -> bool:
        """Whether any token has one of these protection flags."""
        if self._packed is not None:
            return self._packed.has_flag(flags)
        return bool(self.num_tokens and np.bitwise_or.reduce(self.flags) & flags)

    def largest_id(self) -> int:
        """Return the largest token id; 0 for a store without tokens."""
        return max(int(ids.max(initial=0)) for ids in self.blocks("input_ids"))

    def ids_with(self, flags: int, vocab_size: int) -> np.ndarray:
        """Return which token ids occur at least once with one of these protection flags, bool (vocab_size,)."""
        found = np.zeros(vocab_size, dtype=np.bool_)
        for ids, own in zip(self.blocks("input_ids"), self.blocks("flags"), strict=True):
            found[ids[(own & flags) != 0]] = True
        return found

    def _unpack_run(self, name: str, run: np.ndarray) -> np.ndarray:
        """Return the column ``name`` for the tokens of consecutive documents; ``run`` has their numbers."""
        assert self._packed is not None
        first = int(run[0]) if len(run) else 0
        return self._packed.block(name, first, first + len(run))

    def with_columns(self, **changed: Any) -> TokenStore:
        """Return a copy of the store with these columns (or its path), given by keyword, replaced."""
        names = (*LISTS, "doc_offsets", "individual", "doc_ids", "path", "by_household")
        return TokenStore(
            **{name: changed.pop(name) if name in changed else getattr(self, name) for name in names}, **changed
        )

    def with_units_as_individuals(self, units: np.ndarray) -> TokenStore:
        """Return a copy of the store in which the household (unit) of each document's individual stands in place of the
        individual."""
        store = copy.copy(self)
        store.individual, store.by_household = units[self.individual].astype(np.uint32), True
        return store

    def text_fingerprint(self) -> str:
        """Return the SHA-256, hexadecimal, of everything that training reads, except the protection flags.

        Cost: one pass over the tokens for each column.
        """
        digest = hashlib.sha256()
        for name in ("input_ids", "word_ids", "doc_offsets", "individual"):
            self.hash_column(digest, name, f"{name} ")
        if self.path is not None:
            digest.update(self.tokenizer_path.read_bytes())
        return digest.hexdigest()

    def flags_fingerprint(self) -> str:
        """Return the SHA-256, hexadecimal, of token ids, word numbers and protection flags.

        Cost: one pass over the tokens for each column.
        """
        digest = hashlib.sha256(b"reticent.flags/1")
        for name in ("doc_offsets", "input_ids", "word_ids", "flags"):
            self.hash_column(digest, name)
        return digest.hexdigest()

    def hash_column(self, digest: hashlib._Hash, name: str, prefix: str = " ", *, bits: int = 0xFF) -> None:
        """Update a hashlib digest with a column: its dtype, length and bytes; of flags only the bits in the mask
        ``bits``."""
        if name in LISTS:
            length, blocks = self.num_tokens, self.blocks(name)
        else:
            column = getattr(self, name)
            length, blocks = len(column), iter([column])
        for number, block in enumerate(blocks):
            if number == 0:
                digest.update(f"{prefix}{block.dtype.str} {length} ".encode())
            digest.update(np.ascontiguousarray(block & np.uint8(bits) if name == "flags" else block).data)

    def check(self) -> None:
        """Raise `ArtifactError` for unknown flag bits or word numbers out of order. Cost: one pass over 5 bytes a
        token; none for packed tokens, which cannot hold such values."""
        if self._packed is not None:
            return
        where = self.path if self.path is not None else "token store"
        if self.num_tokens and np.bitwise_or.reduce(self.flags) & ~np.uint8(DIRECT | INDIRECT):
            raise ArtifactError(f"{where}: flags hold bits other than direct and indirect; damaged, run protect again")
        from reticent.engine.kernels import count_disorder

        disorder = count_disorder(self.word_ids, self.doc_offsets)
        if disorder:
            raise ArtifactError(
                f"{where}: the words of {disorder:,} tokens are out of order; damaged, run protect again"
            )

    def select(self, documents: np.ndarray) -> TokenStore:
        """Return a new store with copies of the documents with these numbers, in this order."""
        doc_offsets, columns = self.columns_of(documents, LISTS)
        individual, doc_ids = self.individual[documents], self.doc_ids.take(pa.array(documents))
        return TokenStore(
            **columns, doc_offsets=doc_offsets, individual=individual, doc_ids=doc_ids, path=self.path,
            by_household=self.by_household,
        )  # fmt: skip

    def columns_of(self, documents: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the token offsets of some documents (row numbers), int64 (D + 1,), and a dict with copies of the named
        columns of their tokens."""
        documents = np.asarray(documents, dtype=np.int64)
        starts, ends = self.doc_offsets[documents], self.doc_offsets[documents + 1]
        doc_offsets = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        if self._packed is None:
            tokens = np.repeat(starts - doc_offsets[:-1], ends - starts) + np.arange(doc_offsets[-1])
            columns = {name: getattr(self, name)[tokens] for name in names}
        else:  # unpacked run by run of documents that follow each other
            bounds = [0, *(np.flatnonzero(np.diff(documents) != 1) + 1).tolist(), len(documents)]
            runs = [documents[a:b] for a, b in itertools.pairwise(bounds) if a < b] or [np.zeros(1, dtype=np.int64)[:0]]
            columns = {name: np.concatenate([self._unpack_run(name, run) for run in runs]) for name in names}
        return doc_offsets, columns


def open_tokens(path: Path | str) -> TokenStore:
    """Return the token store in a folder of protected tokens (token ids, word numbers and protection flags),
    memory-mapped.

    Raises
    ------
    ArtifactError
        The folder holds no tokens, tokens of another version, or a file that cannot be read or does not fit the others.
    """
    folder = Path(path)
    if next(folder.glob("shard-*.arrow"), None) is not None or (folder / "patches.parquet").exists():
        raise ArtifactError(f"{folder}: protected tokens of an older version of Reticent; run protect again")
    if not (folder / "view.parquet").is_file():
        if (folder / "documents.parquet").is_file():
            raise ArtifactError(f"{folder}: ids, or tokens of an older version of Reticent; run protect again")
        raise ArtifactError(f"{folder}: no protected tokens here; expected view.parquet")
    _check_ids(folder)
    return TokenStore.of_packed(open_view(folder), folder)


def open_view(folder: Path, ids: Path | None = None) -> PackedTokens:
    """Return the memory-mapped tokens of a folder with protection flags. Their token ids are read from the same folder
    or from the folder ``ids``, by default the one of this name next to it.

    Parameters
    ----------
    ids : Path, optional
        Folder of the ids, for a view that holds none and has none beside it.

    Raises
    ------
    ArtifactError
        A file is missing, cannot be read, or does not fit the others.
    """
    place = ids_folder_of(folder)
    return PackedTokens(folder, StoredIds(ids if ids and place != folder else place))


def _check_ids(folder: Path) -> None:
    """Raise `ArtifactError` if the token ids that a folder refers to are not those that its protection flags were made
    for."""

    ids = ids_folder_of(folder)
    if ids != folder and (folder / MANIFEST).exists():
        expected = read_manifest(folder).inputs.get("ids")
        if read_manifest(ids).digest != expected:
            raise ArtifactError(f"{ids}: not the ids that {folder.name} was made for; run protect again")
