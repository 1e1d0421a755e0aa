"""Tokens of a store compared, character by character, with the protected parts of their documents."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import regex

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.charsmap import Charsmaps
from reticent.engine.oracle.protection import DocumentWords
from reticent.engine.schema import DIRECT, INDIRECT

if TYPE_CHECKING:
    from reticent.engine.store import TokenStore

__all__ = ["Comparison", "Protected", "ReadTexts", "Retokenizer", "Spans", "TextCheck", "TokenisedText", "read_texts"]

#: Documents that name themselves in a message, at most.
NAMED = 10
#: The counts.
COUNTS = (
    *("documents", "tokens", "direct_characters", "indirect_characters", "direct_violations"),
    *("indirect_violations", "mismatches", "unexplained"),
)
#: A grapheme cluster.
CLUSTER = regex.compile(r"\X")
#: Unicode's White_Space.
SPACES = np.array(
    [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000], np.uint32
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCheck:
    """Result of a check of tokens against their text; counts only.

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
        return self.direct_violations + self.indirect_violations

    @property
    def holds(self) -> bool:
        return self.violations == self.mismatches == 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self), "found_in": list(self.found_in)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TextCheck:
        """Return the object that `to_dict` wrote down; `ArtifactError` where the values are of something else."""
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
        """Describe the faults, by numbers of documents."""
        return (
            f"of {self.documents:,} documents that were held to their text {self.direct_violations:,} tokens of direct "
            f"and {self.indirect_violations:,} of indirect identifiers could be targets, and {self.mismatches:,} "
            "documents have other tokens than their text (documents of the store, from 0: "
            f"{', '.join(map(str, self.found_in))}); do not train on these tokens: run protect again, and report it if "
            "that does not help"
        )


class Spans(NamedTuple):
    """Spans of some documents: the document of each among these, ascending, its characters, and the place of its label
    in ``names``.
    """

    owners: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    labels: np.ndarray
    names: list[str]

    def slice(self, first: int, last: int) -> Spans:
        """Those of a run of the documents."""
        own = slice(*np.searchsorted(self.owners, [first, last]))
        return Spans(self.owners[own] - first, self.starts[own], self.ends[own], self.labels[own], self.names)

    def scopes(self, scope_of: Callable[[str], str]) -> np.ndarray:
        """The scope of each span, by that of a label."""
        return np.array([*map(scope_of, self.names), ""], dtype="U10")[self.labels]


class Protected(NamedTuple):
    """The words of documents, which of them are direct and indirect, and the documents' spans."""

    words: DocumentWords
    direct: np.ndarray
    indirect: np.ndarray
    spans: Spans

    def slice(self, first: int, last: int) -> Protected:
        """The same of a run of the documents."""
        own = slice(*self.words.doc_offsets[[first, last]])
        return Protected(
            self.words.slice(first, last), self.direct[own], self.indirect[own], self.spans.slice(first, last)
        )


class TokenisedText(NamedTuple):
    """How many tokens each document has; their ids, and the characters of the joined texts that each stands for."""

    num_tokens: np.ndarray
    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class ReadTexts(NamedTuple):
    """Tokens of documents and the numbers that a comparison needs beside them and their words; no character of a text.

    ``is_visible`` (bool, a character of the joined texts) says what is not white space; ``cut`` are the stretches of
    whole grapheme clusters that spans cut, starts and ends.
    """

    doc_ids: pa.Array
    is_visible: np.ndarray
    cut: tuple[np.ndarray, np.ndarray]
    tokens: TokenisedText


def read_texts(
    texts: list[str], doc_ids: pa.Array, bases: np.ndarray, spans: Spans, retokenizer: Retokenizer
) -> ReadTexts:
    """Read documents; ``bases`` are where each begins in the joined texts, and the end."""
    joined = "\n".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
    place = bases[spans.owners]
    cut = _whole_characters(joined, spans.starts + place, spans.ends + place)
    return ReadTexts(doc_ids, ~np.isin(codes, SPACES), cut, retokenizer(texts, bases))


class Retokenizer:
    """The Python library's tokenizer of a file. Cost: up to .3 s for a large vocabulary."""

    def __init__(self, path: Path):
        from tokenizers import Tokenizer

        from reticent.engine.oracle.misplaced import Misplaced

        self.path = path
        content = path.read_text(encoding="utf-8")
        self._tokenizer, self._charsmaps = Tokenizer.from_str(content), Charsmaps(content)
        self._tokenizer.encode_special_tokens = True  # a document that writes "[MASK]" has written text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._misplaced = Misplaced(self._tokenizer)
        unknown = self._tokenizer.model.tokenize("\U0010fffe")
        self._unknown = unknown[0].id if len(unknown) == 1 else None
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = [i for i, token in added.items() if token.special and i != self._unknown]

    def __call__(self, texts: list[str], bases: np.ndarray) -> TokenisedText:
        """Return the tokens of documents; ``bases`` are where each begins in the joined texts, and the end."""
        chain = itertools.chain.from_iterable
        deleted = [self._charsmaps.prefix(text) if self._charsmaps else 0 for text in texts]
        texts = [text[length:] for text, length in zip(texts, deleted, strict=True)]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        total = int(lengths.sum())
        ids = np.fromiter(chain(encoding.ids for encoding in encodings), dtype=np.int64, count=total)
        places = chain(map(self._places, texts, encodings))
        offsets = np.fromiter(chain(places), dtype=np.int64, count=2 * total).reshape(-1, 2)
        if self._unknown is not None:
            ids[np.isin(ids, self._special)] = self._unknown
        if self._charsmaps:
            owners = chain(itertools.repeat(text, length) for text, length in zip(texts, lengths.tolist(), strict=True))
            offsets[:, 0] = list(map(self._charsmaps.begin, owners, offsets[:, 0].tolist()))
        place = np.repeat(bases[:-1] + deleted, lengths)
        return TokenisedText(lengths, ids, offsets[:, 0] + place, offsets[:, 1] + place)

    def _places(self, text: str, encoding: Any) -> list[tuple[int, int]]:
        places = self._misplaced.places(text, encoding.ids) if self._misplaced else None
        return encoding.offsets if places is None else places  # type: ignore[no-any-return]


class Comparison:
    """Compares documents with their tokens and counts differences."""

    def __init__(self, store: TokenStore):
        self._store = store
        self._counts = dict.fromkeys(COUNTS, 0)
        self._found_in: list[int] = []

    def result(self, *, whole: bool) -> TextCheck:
        return TextCheck(
            **self._counts,
            found_in=tuple(self._found_in[:NAMED]),
            whole=whole,
            fingerprint=self._store.flags_fingerprint() if whole else "",
        )

    def add(self, rows: np.ndarray, read: ReadTexts, protected: Protected) -> None:
        """Compare documents with those of these rows of the store."""
        store, words, spans = self._store.select(rows), protected.words, protected.spans
        num_tokens, ids, starts, ends = read.tokens
        stored = np.diff(store.doc_offsets)
        whole = (stored == num_tokens) & (store.doc_ids.to_numpy(False) == read.doc_ids.to_numpy(False))
        owners = np.repeat(np.arange(len(rows)), num_tokens)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(num_tokens) - num_tokens, num_tokens)
        kept = whole[owners]
        owners, ids, starts, ends = owners[kept], ids[kept], starts[kept], ends[kept]
        at = store.doc_offsets[owners] + within[kept]

        place, length = words.bases[spans.owners], len(read.is_visible)
        direct = _covered(length, words.starts[protected.direct], words.ends[protected.direct])
        direct |= _covered(length, spans.starts + place, spans.ends + place)
        # A word is direct or not by itself.
        direct |= _covered(length, *read.cut) & ~_covered(length, words.starts, words.ends)
        indirect = _covered(length, words.starts[protected.indirect], words.ends[protected.indirect])
        wrong = ~whole
        flags, needed = store.flags[at], np.zeros(len(at), dtype=np.uint8)
        for name, characters, bit in (("direct", direct, DIRECT), ("indirect", indirect, INDIRECT)):
            before = np.concatenate([[0], np.cumsum(characters & read.is_visible)])
            meets = before[ends] > before[starts]
            needed |= meets * np.uint8(bit)
            violated = meets & (flags & bit == 0)
            wrong[owners[violated]] = True
            self._counts[f"{name}_characters"] += int(before[-1])
            self._counts[f"{name}_violations"] += int(np.count_nonzero(violated))
        other = (store.input_ids[at] != ids) | (store.word_ids[at] != _word_ids(words, owners, starts, ends))
        differs = ~whole
        differs[owners[other]] = True
        self._counts["documents"] += len(rows)
        self._counts["tokens"] += int(stored.sum())
        self._counts["mismatches"] += int(np.count_nonzero(differs))
        self._counts["unexplained"] += int(np.count_nonzero(flags & ~needed))
        self._found_in += rows[wrong | differs].tolist()


def _whole_characters(text: str, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stretches with all of each grapheme cluster that they cut: a tokenizer may have a letter and its marks as one."""
    real = starts < ends
    return tuple(  # type: ignore[return-value]
        np.array([_whole_character(text, at)[side] for at in edges[real].tolist()], dtype=np.int64)
        for side, edges in enumerate((starts, ends))
    )


def _whole_character(text: str, at: int) -> tuple[int, int]:
    """Where the grapheme cluster begins and ends that this place is within; twice the place where it is within none."""
    if at == len(text) or text[at].isascii():
        return at, at
    first = at
    while first > 0 and not (text[first].isascii() and text[first - 1].isascii()):  # two of ASCII are never one
        first -= 1
    cluster = next(m for m in CLUSTER.finditer(text, first) if m.end() > at)
    return (at, at) if cluster.start() == at else cluster.span()


def _covered(length: int, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Say of each character whether one of these stretches holds it."""
    edges = np.bincount(starts, minlength=length + 1) - np.bincount(ends, minlength=length + 1)
    return np.cumsum(edges[:-1]) > 0


def _word_ids(words: DocumentWords, owners: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The number in its document of the first word that each token meets, or -1."""
    if len(words.starts) == 0:
        return np.full(len(starts), -1)
    first = np.searchsorted(words.ends, starts, side="right")
    meets = np.append(words.starts, np.iinfo(np.int64).max)[first] < ends
    return np.where(meets & (starts < ends), first - words.doc_offsets[owners], -1)
