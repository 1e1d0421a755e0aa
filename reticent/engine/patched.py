"""Patched tokens: rewritten text as the ids of the original and the new tokens of the regions that changed.

A patch is a view (``view.parquet``, with planes and starts of n-grams over the tokens of the new text), a table of the
rewritten regions (``patches.parquet``), and the tokens of these regions, one region after the other, in the layout of
ids (``ids.bin``, ``begins.bits``, …). All other tokens are those of the ids. :mod:`reticent.engine.patches` writes
patches.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.engine.packed import StoredIds, TokenArrays, ViewTokens
from reticent.engine.packed_tables import read_table
from reticent.engine.patched_kernels import (
    Columns,
    columns_of,
    gather_patched,
    patched_ids,
    patched_words,
    words_before,
)
from reticent.engine.schema import PATCH_TABLES

__all__ = ["PatchedTokens"]


class PatchedTokens(ViewTokens):
    """The documents of a patch, their ids and planes.

    Tokens are read in *runs*: a region, or the unchanged tokens before, between and behind regions. A document with r
    regions has 2 r + 1 runs. Memory: 24 bytes a run.

    Attributes
    ----------
    own : TokenArrays
        The tokens of the regions.

    Raises
    ------
    ArtifactError
        A file is missing or damaged, or its ids have another width than those that it changes.
    """

    def __init__(self, folder: Path, stored: StoredIds):
        super().__init__(folder, stored)
        table = read_table(folder, "patches", PATCH_TABLES["patches"])
        made = _numbers(table, "made")
        self.own = TokenArrays(folder, int(made.sum()))
        if self.own.is_wide != stored.is_wide and self.own.num_tokens:
            raise ArtifactError(f"{folder}: ids of another width than those that it changes; run protect again")
        self._set_pieces(folder, table, made)
        self._read_planes(folder)

    def _set_pieces(self, folder: Path, table: pa.Table, made: np.ndarray) -> None:
        """Set the first token and the source of each run, and the last word of its document that began before it."""
        stored, num_documents = self.stored, len(self.documents)
        document, firsts = _numbers(table, "document"), _numbers(table, "first")
        ends = firsts + _numbers(table, "replaced")
        doc_firsts, doc_ends = stored.doc_offsets[self.documents], stored.doc_offsets[self.documents + 1]
        _check(folder, document, firsts, ends, doc_firsts, doc_ends)
        offsets = np.searchsorted(document, np.arange(num_documents + 1))
        # The runs of document d, which has the regions r to q - 1: unchanged, r, unchanged, r + 1, … q - 1, unchanged.
        region, last = np.arange(len(document)), 2 * offsets[1:] + np.arange(num_documents)
        own = 2 * region + document + 1
        sources, lengths = (np.zeros(num_documents + 2 * len(document), dtype=np.int64) for _ in range(2))
        is_first = np.diff(document, prepend=-1) > 0
        before = np.where(is_first, doc_firsts[document], np.roll(ends, 1)) if len(document) else firsts
        sources[own - 1], lengths[own - 1] = before, firsts - before
        has_regions = np.diff(offsets) > 0
        sources[last] = doc_firsts
        sources[last[has_regions]] = ends[offsets[1:][has_regions] - 1]
        lengths[last] = doc_ends - sources[last]
        made_before = np.cumsum(made) - made
        sources[own], lengths[own] = stored.num_tokens + made_before, made
        self._tokens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._sources = sources
        self.doc_offsets = self._tokens[np.append(2 * offsets[:-1] + np.arange(num_documents), len(sources))]

        word_of = functools.partial(words_before, stored.begins, stored.ranks, stored.exceptions, stored.passed)
        at_first = word_of(firsts)
        more = _numbers(table, "words") - (word_of(ends) - at_first)
        # Surplus of words over the original, before each region (ahead) and up to its end (behind), over all documents.
        behind = np.cumsum(more)
        ahead = behind - more
        of_document = np.concatenate([[0], behind])[offsets[:-1]]
        at_document = word_of(doc_firsts)
        self._last_words = np.zeros(len(sources), dtype=np.int64)
        self._last_words[own - 1] = word_of(before) - at_document[document] - 1 + ahead - of_document[document]
        self._last_words[own] = at_first - at_document[document] - 1 + ahead - of_document[document]
        total = np.concatenate([[0], behind])[offsets[1:]] - of_document
        self._last_words[last] = word_of(sources[last]) - at_document - 1 + total

    @functools.cached_property
    def _pieces(self) -> tuple[Columns, Columns, int, np.ndarray, np.ndarray]:
        return columns_of(self.stored), columns_of(self.own), self.stored.num_tokens, self._tokens, self._sources

    def gather(
        self,
        documents: np.ndarray,
        starts: np.ndarray,
        lengths: np.ndarray,
        offset: int,
        pad: int,
        out: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        gather_patched(*self._pieces, self._last_words, self.direct, self.indirect, starts, lengths, offset, pad, *out)

    def _ids(self, first: int, end: int) -> np.ndarray:
        start, stop = self.doc_offsets[[first, end]]
        ids = np.empty(int(stop - start), dtype=np.uint32 if self.stored.is_wide else np.uint16)
        patched_ids(*self._pieces, start, stop - start, ids, 0)
        return ids

    def _words(self, first: int, end: int) -> np.ndarray:
        start, stop = self.doc_offsets[[first, end]]
        words = np.empty(int(stop - start), dtype=np.int32)
        patched_words(*self._pieces, self._last_words, start, stop - start, words, 0)
        return words


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy().astype(np.int64)


def _check(
    folder: Path,
    document: np.ndarray,
    firsts: np.ndarray,
    ends: np.ndarray,
    doc_firsts: np.ndarray,
    doc_ends: np.ndarray,
) -> None:
    """Raise `ArtifactError` where regions are not in order, or not within their documents."""
    is_there = not len(document) or (document[0] >= 0 and document[-1] < len(doc_firsts))
    ascends = is_there and (np.diff(document) >= 0).all() and (firsts >= doc_firsts[document]).all()
    same = np.diff(document) == 0
    if not (ascends and (ends <= doc_ends[document]).all() and (firsts[1:][same] >= ends[:-1][same]).all()):
        raise ArtifactError(f"{folder / 'patches.parquet'}: regions that do not fit the tokens; damaged")
