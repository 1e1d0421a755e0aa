"""A random sample of documents for annotation, stratified by length and by the density of detected spans.

Strata hold about equally many words, so few long documents or many short ones, and about as many documents are drawn of
each: a document is drawn about in proportion to its words, as identifiers are, and long ones with many identifiers are
unlikely to be left out. Every stratum has at least two documents in the sample, or all of its own. The weight of a
document is the size of its stratum over the number drawn of it.

Cost: two passes over the texts; some 60 bytes a document, and 60 a span of one row group of the spans at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.core.errors import PolicyError
from reticent.engine.randomness import generator

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus

#: Stream of the draws.
_STREAM: Final = 51
#: Documents that a stratum has of a sample on average, at least.
_PER_STRATUM: Final = 6
#: The most classes of one kind: four of length, three of what was found.
_MOST_LENGTHS, _MOST_FOUND = 4, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDocument:
    """A sampled document: its name for annotators, its row in the corpus, its stratum, the SHA-256 of its text."""

    name: str
    row: int
    stratum: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A stratified sample of a corpus: all that the weights need, and no text.

    Attributes
    ----------
    corpus : str
        Fingerprint of the documents that it was drawn from.
    strata : tuple of int
        Documents of the corpus in each stratum.
    documents : tuple of SampledDocument
        In an order that was drawn, so that an annotator who tires does so on all strata alike.
    """

    corpus: str
    strata: tuple[int, ...]
    documents: tuple[SampledDocument, ...]

    @property
    def drawn(self) -> np.ndarray:
        """Number of documents drawn from each stratum, int64 (strata,)."""
        return np.bincount([document.stratum for document in self.documents], minlength=len(self.strata))


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text (hexadecimal), by which a document is recognised later."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def draw_sample(
    corpus: Corpus,
    folder: Path | str,
    num_documents: int,
    *,
    seed: int = 0,
    by_disagreement: bool = False,
    ends: np.ndarray | None = None,
) -> Sample:
    """Return a sample of documents drawn without replacement for annotation. Strata are the documents' lengths, their
    numbers of detected spans per word and, if ``by_disagreement``, whether the detectors disagree.

    Parameters
    ----------
    folder : path
        Of the spans that were found in these documents (``spans.parquet``).
    num_documents : int
        How many; all where there are no more.
    by_disagreement : bool
        Documents in which one detector finds what another does not are strata of their own, of which half as many
        again are drawn.
    ends : int64, shape (documents of the corpus,), optional
        Where the text of each document ends for annotators; what stands behind is not theirs.

    Raises
    ------
    PolicyError
        Fewer than two documents are asked for, or ``by_disagreement`` of a single detector.
    """
    if num_documents < 2:
        raise PolicyError(f"a sample has at least 2 documents, got {num_documents}")
    words = _num_words(corpus)
    found, disagreed, detectors = _count_spans(Path(folder) / "spans.parquet", len(words))
    if by_disagreement and len(detectors) < 2:
        raise PolicyError(
            f"one detector cannot disagree: {', '.join(detectors) or 'none'} found all of the spans of this run"
        )
    num_documents = min(num_documents, len(words))
    stratum = _stratify(words, found, disagreed if by_disagreement else None, num_documents)
    sizes = np.bincount(stratum)
    wanted = np.bincount(stratum, weights=words + 1.0)
    if by_disagreement:
        wanted = wanted * (1 + 0.5 * (np.bincount(stratum, weights=disagreed) > 0))
    random = generator(seed, _STREAM)
    rows = np.concatenate(
        [
            random.choice(np.flatnonzero(stratum == number), count, replace=False)
            for number, count in enumerate(_allocate_sample(sizes, wanted, num_documents))
        ]
    )
    rows = random.permutation(rows)
    if by_disagreement:  # whoever marks fewer than all of them marks those that teach most
        rows = rows[np.argsort(-disagreed[rows], kind="stable")]
    digests = _digests(corpus, np.sort(rows), ends)
    width = max(4, len(str(len(rows))))
    documents = tuple(
        SampledDocument(name=f"{number:0{width}d}", row=row, stratum=int(stratum[row]), sha256=digests[row])
        for number, row in enumerate(rows.tolist(), start=1)
    )
    return Sample(corpus=corpus.fingerprint(), strata=tuple(map(int, sizes)), documents=documents)


def iter_rows(corpus: Corpus, rows: Sequence[int] | np.ndarray, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the documents at these rows of a corpus as record batches of these columns, in corpus order."""
    wanted, first = np.sort(np.asarray(rows, dtype=np.int64)), 0
    for batch in corpus.batches(columns=tuple(columns)):
        own = wanted[np.searchsorted(wanted, first) : np.searchsorted(wanted, first + batch.num_rows)] - first
        first += batch.num_rows
        if len(own):
            yield batch.take(pa.array(own))


def _num_words(corpus: Corpus) -> np.ndarray:
    """Return the number of words of each document of a corpus, int64."""

    words = [np.diff(_rust.segment(b.column("text")).doc_offsets) for b in corpus.batches(columns=("text",))]
    return np.concatenate(words)


def _digests(corpus: Corpus, rows: np.ndarray, ends: np.ndarray | None) -> dict[int, str]:
    """Return row -> SHA-256 (hexadecimal) of the document's text. Each text is cut at its character offset in ``ends``,
    if given.
    """
    texts = (text for batch in iter_rows(corpus, rows, ("text",)) for text in batch.column("text").to_pylist())
    return {
        row: text_digest(text if ends is None else text[: ends[row]])
        for row, text in zip(rows.tolist(), texts, strict=True)
    }


def _count_spans(file: Path, num_documents: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return for each document the number of detected spans (overlapping ones merged) and of those that not all
    detectors found, then the detectors' names. With a learned tagger, all others count as one detector.
    """
    spans = pq.ParquetFile(file)
    found, disagreed = np.zeros(num_documents), np.zeros(num_documents)
    known: dict[str, int] = {}
    parts = []
    side: dict[str, str] = {}
    sources = {name.rpartition(":")[2] for name in spans.read(columns=["detector"]).column(0).unique().to_pylist()}
    if "learned" in sources:
        side = {name: "others" for name in sources if name != "learned"}
        known = {"others": 0, "learned": 1}
    for group in range(spans.num_row_groups):  # documents stand whole in one
        table = spans.read_row_group(group, columns=["document", "start", "end", "detector"])
        if not table.num_rows:
            continue
        document, start, end = (table.column(name).to_numpy().astype(np.int64) for name in ("document", "start", "end"))
        source = pc.replace_substring_regex(table.column("detector"), "^.*:", "").combine_chunks().dictionary_encode()
        names = [side.get(name, name) for name in source.dictionary.to_pylist()]
        number = np.array([known.setdefault(name, len(known)) for name in names])
        line = document * (int(end.max()) + 1)  # documents one after another, none touching the next
        furthest = np.maximum.accumulate(line + end)
        begins = np.concatenate([[True], (line + start)[1:] >= furthest[:-1]])
        stretch = np.cumsum(begins) - 1
        pairs = np.unique(np.stack([stretch, number[source.indices.to_numpy()]]), axis=1)
        parts.append((document[begins], np.bincount(pairs[0]).astype(np.int16)))
    for owner, num_detectors in parts:
        own = slice(owner[0], owner[-1] + 1)
        found[own] += np.bincount(owner - owner[0])
        disagreed[own] += np.bincount(owner - owner[0], weights=num_detectors < len(known))
    return found, disagreed, list(known)


def _stratify(words: np.ndarray, found: np.ndarray, disagreed: np.ndarray | None, num_drawn: int) -> np.ndarray:
    """Return the stratum of each document, int64 from 0: classes of length (``words``), within them of
    detected spans per word, and within these of the share of spans on which detectors disagree. The more documents will
    be drawn (``num_drawn``), the more strata there are.
    """
    most = num_drawn / _PER_STRATUM / (1 if disagreed is None else 2)
    num_found = int(np.clip(np.sqrt(most), 1, _MOST_FOUND))
    num_lengths = int(np.clip(most / num_found, 1, _MOST_LENGTHS))
    keys = [_size_balanced_classes(words, words + 1.0, num_lengths)]
    density = found / np.maximum(words, 1)
    keys.append(_classes_within_groups(keys[0], density, num_found))
    if disagreed is not None:
        numbers = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)
        keys.append(_classes_within_groups(numbers, disagreed / np.maximum(found, 1), 2))
    return np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)


def _classes_within_groups(group: np.ndarray, values: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the class of each document within its group, int64: the groups are divided into ``num_classes`` quantiles
    of ``values``.
    """
    result = np.zeros(len(values), dtype=np.int64)
    for number in np.unique(group):
        own = np.flatnonzero(group == number)
        result[own] = _size_balanced_classes(values[own], np.ones(len(own)), num_classes)
    return result


def _size_balanced_classes(values: np.ndarray, sizes: np.ndarray, num: int) -> np.ndarray:
    """Return the class of each value, 0 for the lowest: ``num`` classes of about equal total size."""
    order = np.argsort(values, kind="stable")
    until = np.cumsum(sizes[order])
    result = np.empty(len(values), dtype=np.int64)
    result[order] = np.minimum((until - sizes[order] / 2) * num // until[-1], num - 1)
    return result


def _allocate_sample(sizes: np.ndarray, weights: np.ndarray, num: int) -> np.ndarray:
    """Divide ``num`` documents among strata in proportion to ``weights`` (method of equal proportions). Return the
    number to draw from each stratum: at least two, at most its size.
    """
    counts = np.minimum(sizes, 2)
    while counts.sum() < num:
        claims = np.where(counts < sizes, weights / np.sqrt(counts * (counts + 1.0)), -1.0)
        counts[int(np.argmax(claims))] += 1
    return counts
