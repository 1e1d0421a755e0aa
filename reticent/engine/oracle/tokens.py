"""Stored tokens compared, character by character, with the protected parts of their documents."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.protection import DocumentWords, Seen, direct_words, protected_words, widespread_words
from reticent.engine.schema import DIRECT, INDIRECT

if TYPE_CHECKING:
    from reticent.engine.protect import Policy
    from reticent.engine.store import TokenStore

#: Documents that name themselves in a message, at most.
NAMED = 10
#: The counts.
COUNTS = (
    *("documents", "tokens", "direct_characters", "indirect_characters", "direct_violations"),
    *("indirect_violations", "mismatches", "unexplained"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """Result of checking stored tokens against their text; counts only.

    Attributes
    ----------
    documents, tokens : how many were looked at
    direct_characters, indirect_characters : characters that are protected, white space aside
    direct_violations, indirect_violations : tokens that meet one and do not carry the flag
    mismatches : documents whose tokens, or the numbers of their words, are not those of the text
    unexplained : tokens that carry a flag and meet nothing that it protects; they are lost to training, no more
    found_in : numbers in the store of the first documents with a violation or mismatch
    whole : whether every document of the store was looked at
    fingerprint : `TokenStore.flags_fingerprint` of the store; "" of a sample, which is kept with the store itself
    """

    documents: int
    tokens: int
    direct_characters: int
    indirect_characters: int
    direct_violations: int
    indirect_violations: int
    mismatches: int
    unexplained: int
    found_in: tuple[int, ...]
    whole: bool
    fingerprint: str = ""

    @property
    def violations(self) -> int:
        """Number of tokens that overlap an identifier but could be prediction targets."""
        return self.direct_violations + self.indirect_violations

    @property
    def holds(self) -> bool:
        """Whether the stored tokens match their text and leave no token of an identifier unprotected."""
        return self.violations == self.mismatches == 0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold."""
        return {**asdict(self), "found_in": list(self.found_in)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TextCheck:
        """Return the result that `to_dict` converted to ``values``; `ArtifactError` if they are not such a result."""
        try:
            return cls(**{**values, "found_in": tuple(values["found_in"])})
        except (KeyError, TypeError):
            raise ArtifactError("not the record of a check of tokens against their text") from None

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents, {self.tokens:,} tokens, {self.direct_characters:,} direct and "
            f"{self.indirect_characters:,} indirect characters: {self.violations:,} violations, "
            f"{self.mismatches:,} mismatches"
        )

    def failure(self) -> str:
        """Return a sentence about the faults found, with the numbers of affected documents."""
        return (
            f"of {self.documents:,} documents that were held to their text {self.direct_violations:,} tokens of direct "
            f"and {self.indirect_violations:,} of indirect identifiers could be targets, and {self.mismatches:,} "
            "documents have other tokens than their text (documents of the store, from 0: "
            f"{', '.join(map(str, self.found_in))}); do not train on these tokens: run protect again, and report it if "
            "that does not help"
        )


class Spans(NamedTuple):
    """Spans of some documents: document (ascending), character range, and index of the label in ``names``."""

    owners: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    labels: np.ndarray
    names: list[str]

    def slice(self, first: int, last: int) -> Spans:
        """Return the spans of documents ``first`` to ``last``, exclusive, with documents renumbered from 0."""
        own = slice(*np.searchsorted(self.owners, [first, last]))
        return Spans(self.owners[own] - first, self.starts[own], self.ends[own], self.labels[own], self.names)

    def scopes(self, scope_of: Callable[[str], str]) -> np.ndarray:
        """Return the scope of each span ("corpus", "individual" or "occurrence"), string; ``scope_of`` maps a label to
        its scope."""
        return np.array([*map(scope_of, self.names), ""], dtype="U10")[self.labels]


class Protected(NamedTuple):
    """The words of documents, masks of the direct and indirect ones, and the documents' spans."""

    words: DocumentWords
    direct: np.ndarray
    indirect: np.ndarray
    spans: Spans

    @classmethod
    def by(
        cls,
        policy: Policy,
        words: DocumentWords,
        units: np.ndarray,
        visible_forms: Seen,
        spans: Spans,
        supports: Iterable[np.ndarray],
        num_units: int,
        visible_supports: np.ndarray,
    ) -> Protected:
        """Return which words and characters a policy protects. This is the independent Python implementation (oracle)
        against which the stored tokens are checked; it starts from words, detected spans and n-gram supports.

        Parameters
        ----------
        units : unit of each document
        supports : for 1, 2 … n words those of the n-grams that begin at each word; none where support protects no word
        num_units : units that the supports count
        visible_supports : support of the visible part of each word
        """
        place = words.bases[spans.owners]
        scopes = spans.scopes(policy.scope_of)
        widespread = widespread_words(words, visible_forms, visible_supports, num_units)
        direct = direct_words(words, units, visible_forms, spans.starts + place, spans.ends + place, scopes, widespread)
        indirect = protected_words(
            words,
            supports,
            k=policy.k,
            n=policy.n,
            policy=policy.policy,
            max_document_frequency=policy.max_document_frequency,
            num_units=num_units,
        )
        return cls(words, direct, indirect, spans)

    def slice(self, first: int, last: int) -> Protected:
        """Return the protected words and spans of documents ``first`` to ``last``, exclusive."""
        own = slice(*self.words.doc_offsets[[first, last]])
        return Protected(
            self.words.slice(first, last), self.direct[own], self.indirect[own], self.spans.slice(first, last)
        )


class TokenisedText(NamedTuple):
    """Tokens of documents: number per document, ids, and character range of each in the joined texts."""

    num_tokens: np.ndarray
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class ReadTexts(NamedTuple):
    """Tokens of documents and further numbers that a comparison needs; it holds no text.

    ``is_visible`` (bool, a character of the joined texts) says what is not white space; ``cut`` are the stretches of
    whole grapheme clusters that spans cut, starts and ends.
    """

    doc_ids: pa.Array
    is_visible: np.ndarray
    cut: tuple[np.ndarray, np.ndarray]
    tokens: TokenisedText


class Comparison:
    """Compares documents with their stored tokens, and counts differences."""

    def __init__(self, store: TokenStore):
        self._store = store
        self._counts = dict.fromkeys(COUNTS, 0)
        self._found_in: list[int] = []

    def result(self, *, is_whole_store: bool) -> TextCheck:
        """Return the result of all comparisons so far, as counts of tokens, words and faults. ``is_whole_store`` says
        whether they covered every document of the token store."""
        return TextCheck(
            **self._counts,
            found_in=tuple(self._found_in[:NAMED]),
            whole=is_whole_store,
            fingerprint=self._store.flags_fingerprint() if is_whole_store else "",
        )

    def add(self, rows: np.ndarray, expected: ReadTexts, protected: Protected) -> None:
        """Compare the stored tokens of some documents (``rows``, their numbers in the token store) with those that the
        oracle, an independent Python implementation, computed: tokens ``expected``, and words and characters
        ``protected``. Add the differences to the counts."""
        words, spans = protected.words, protected.spans
        doc_offsets, columns = self._store.columns_of(rows, ("input_ids", "word_ids", "flags"))
        num_tokens, ids, starts, ends = expected.tokens
        stored = np.diff(doc_offsets)
        has_id = map(operator.eq, self._store.doc_ids_of(rows), expected.doc_ids.to_pylist())
        whole = (stored == num_tokens) & np.fromiter(has_id, dtype=bool, count=len(rows))
        owners = np.repeat(np.arange(len(rows)), num_tokens)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(num_tokens) - num_tokens, num_tokens)
        kept = whole[owners]
        owners, ids, starts, ends = owners[kept], ids[kept], starts[kept], ends[kept]
        at = doc_offsets[owners] + within[kept]

        place, length = words.bases[spans.owners], len(expected.is_visible)
        direct = _covered(length, words.starts[protected.direct], words.ends[protected.direct])
        direct |= _covered(length, spans.starts + place, spans.ends + place)
        # A word is direct or not by itself.
        direct |= _covered(length, *expected.cut) & ~_covered(length, words.starts, words.ends)
        indirect = _covered(length, words.starts[protected.indirect], words.ends[protected.indirect])
        wrong = ~whole
        flags, needed = columns["flags"][at], np.zeros(len(at), dtype=np.uint8)
        for name, characters, bit in (("direct", direct, DIRECT), ("indirect", indirect, INDIRECT)):
            before = np.concatenate([[0], np.cumsum(characters & expected.is_visible)])
            meets = before[ends] > before[starts]
            needed |= meets * np.uint8(bit)
            violated = meets & (flags & bit == 0)
            wrong[owners[violated]] = True
            self._counts[f"{name}_characters"] += int(before[-1])
            self._counts[f"{name}_violations"] += int(np.count_nonzero(violated))
        other = columns["input_ids"][at] != ids
        other |= columns["word_ids"][at] != _word_ids(words, owners, starts, ends)
        differs = ~whole
        differs[owners[other]] = True
        self._counts["documents"] += len(rows)
        self._counts["tokens"] += int(stored.sum())
        self._counts["mismatches"] += int(np.count_nonzero(differs))
        self._counts["unexplained"] += int(np.count_nonzero(flags & ~needed))
        self._found_in += rows[wrong | differs].tolist()


def _covered(length: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return for each character whether one of these ranges covers it, bool (length,)."""
    edges = np.bincount(starts, minlength=length + 1) - np.bincount(ends, minlength=length + 1)
    return np.cumsum(edges[:-1]) > 0


def _word_ids(words: DocumentWords, owners: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the number, within its document, of the first word that each token overlaps, int64; -1 for none.
    ``owners`` has each token's document."""
    if len(words.starts) == 0:
        return np.full(len(starts), -1)
    first = np.searchsorted(words.ends, starts, side="right")
    meets = np.append(words.starts, np.iinfo(np.int64).max)[first] < ends
    return np.where(meets & (starts < ends), first - words.doc_offsets[owners], -1)
