"""Confirmation: names that a NER or a list alone found are kept where they look like the names of this corpus.

A small NER takes drugs, headings and towns for names, a list takes words. What no other evidence supports is judged by
a model that learns from the corpus itself: its examples of names are the words that a title, a record, the words around
them or two detectors named; its examples of other words are those with a capital that no detector named. It sees two
words to each side, the form and the ending of a word, how often the corpus writes it small and in how many documents;
not the word, so that a name is no name for having been one before.

A span is dropped where its words are less probably names than not. With fewer than `MIN_EXAMPLES` of either kind
nothing is dropped. The model is a logistic regression over hashed features (scikit-learn), fitted on up to
`MAX_DOCUMENTS` documents: equal documents give equal spans.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPANS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus, Documents

__all__ = ["confirm_names"]

#: Detectors whose names need confirmation where they stand alone.
WEAK: Final = frozenset(("spacy", "transformers", "presidio", "eds", "gazetteer"))
THRESHOLD: Final = 0.5
MIN_EXAMPLES: Final = 20
MAX_DOCUMENTS: Final = 20_000
_NUM_FEATURES: Final = 1 << 18
#: Words beside a name that are none of it.
_TITLES: Final = frozenset(
    {"mr", "mrs", "ms", "miss", "dr", "prof", "doctor", "sir", "madam"}
    | {"mme", "mlle", "monsieur", "madame", "sr", "sra", "dra", "don", "herr", "frau"}
)


def confirm_names(
    corpus: Corpus | Documents,
    spans_path_in: Path | str,
    spans_path_out: Path | str,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write the spans of a file (`SPANS`; secret) but for names that the corpus does not confirm; returns counts.

    Returns
    -------
    dict
        judged (names that one weak detector alone found), unconfirmed (of them, that were dropped).

    Cost: two passes over documents, the first over at most `MAX_DOCUMENTS`, in Python: some 1 MB/s, ten times as fast
    as a small NER.
    """
    from reticent.engine.corpus import as_corpus

    corpus = as_corpus(corpus)
    reader = SpanReader(spans_path_in)
    judge = _learn(_documents(corpus, reader, stride=max(1, corpus.num_documents // MAX_DOCUMENTS)))
    counts = {"judged": 0, "unconfirmed": 0}
    with pq.ParquetWriter(Path(spans_path_out), SPANS, compression="zstd") as writer:
        first = 0
        for batch in corpus.batches(columns=("doc_id", "text")):
            table = reader.table(first, batch.num_rows)
            keep = np.ones(table.num_rows, dtype=bool)
            if judge is not None:
                for document in _of_batch(batch, table, first):
                    for row, words in document.alone():
                        counts["judged"] += 1
                        keep[row] = judge.is_name(document, words)
            counts["unconfirmed"] += int((~keep).sum())
            writer.write_table(table.filter(pa.array(keep)))
            first += batch.num_rows
            if progress:
                progress(first)
    return counts


@dataclass(slots=True)
class _Document:
    """Words of a document, and the detectors that name each."""

    text: str
    starts: list[int]
    ends: list[int]
    #: (row in the table, first word, word after the last, detector) of each span of a name.
    spans: list[tuple[int, int, int, str]]
    surfaces: list[str] = field(init=False)
    lowered: list[str] = field(init=False)
    #: By word: the detectors that name it.
    named: dict[int, set[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.surfaces = [self.text[start:end] for start, end in zip(self.starts, self.ends, strict=True)]
        self.lowered = [surface.lower() for surface in self.surfaces]
        self.named = {}
        for _, first, after, detector in self.spans:
            for word in range(first, after):
                self.named.setdefault(word, set()).add(detector)

    def is_word(self, word: int) -> bool:
        return self.surfaces[word][0].isalpha() and len(self.surfaces[word]) > 1 and self.lowered[word] not in _TITLES

    def evidence(self, word: int) -> bool | None:
        """Whether a word is a name: True where that is said well enough, False where no detector says so."""
        detectors = self.named.get(word)
        if detectors is None:
            return False
        return True if len(detectors) > 1 or not detectors <= WEAK else None

    def alone(self) -> Iterator[tuple[int, list[int]]]:
        """Yield row and words of the names of which no word has evidence."""
        for row, first, after, detector in self.spans:
            words = [word for word in range(first, after) if self.is_word(word)]
            if detector in WEAK and words and all(self.evidence(word) is None for word in words):
                yield row, words


def _documents(corpus: Corpus, reader: SpanReader, *, stride: int) -> Iterator[_Document]:
    """Yield one of ``stride`` documents, chosen by its id."""
    first = 0
    for batch in corpus.batches(columns=("doc_id", "text")):
        ids = batch.column("doc_id").to_pylist()
        chosen = [row for row, key in enumerate(ids) if zlib.crc32(str(key).encode()) % stride == 0]
        table = reader.table(first, batch.num_rows)
        yield from _of_batch(batch, table, first, chosen)
        first += batch.num_rows


def _of_batch(
    batch: pa.RecordBatch, table: pa.Table, num_before: int, chosen: Sequence[int] | None = None
) -> Iterator[_Document]:
    """Yield the documents with their names; without ``chosen`` those that have any."""
    from reticent import _rust

    is_name = pc.is_in(table.column("label"), pa.array(_labels_of_names(table), pa.string()))
    rows = np.flatnonzero(is_name.to_numpy(zero_copy_only=False))
    document = table.column("document").to_numpy()[rows] - num_before
    starts, ends = (table.column(edge).to_numpy()[rows] for edge in ("start", "end"))
    detectors = table.column("detector").to_pylist()
    if chosen is None:
        chosen = np.unique(document).tolist()
    texts = batch.column("text").take(pa.array(chosen, pa.int64()))
    words = _rust.segment(texts)
    word_starts, word_ends = words.char_spans(texts)
    bounds = words.doc_offsets
    for place, number in enumerate(chosen):
        own = slice(int(bounds[place]), int(bounds[place + 1]))
        spans = []
        for at in range(*np.searchsorted(document, [number, number + 1])):
            first = int(np.searchsorted(word_ends[own], starts[at], side="right"))
            after = int(np.searchsorted(word_starts[own], ends[at], side="left"))
            spans.append((int(rows[at]), first, after, detectors[rows[at]]))
        yield _Document(texts[place].as_py(), word_starts[own].tolist(), word_ends[own].tolist(), spans)


def _labels_of_names(table: pa.Table) -> list[str]:
    return [label for label in table.column("label").unique().to_pylist() if category(label) == "NAME"]


@dataclass(slots=True)
class _Words:
    """How the corpus writes its words."""

    small: Counter[str] = field(default_factory=Counter)
    all: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    num_documents: int = 0

    def add(self, document: _Document) -> None:
        self.all.update(document.lowered)
        self.small.update(surface for surface in document.surfaces if surface[0].islower())
        self.documents.update(set(document.lowered))
        self.num_documents += 1

    def features(self, word: str) -> tuple[str, ...]:
        num, small = self.all[word], self.small[word]
        share = self.documents[word] / max(self.num_documents, 1)
        return f"small{4 * small // max(num, 1)}", f"any{small > 0}", f"documents{int(math.log2(1 + 100 * share))}"


@dataclass(slots=True)
class _Judge:
    """A fitted model."""

    words: _Words
    weights: np.ndarray
    bias: float

    def is_name(self, document: _Document, words: Sequence[int]) -> bool:
        rows = _hashed([_features(document, word, self.words) for word in words])
        return float((rows @ self.weights).mean()) + self.bias > math.log(THRESHOLD / (1 - THRESHOLD))


def _learn(documents: Iterator[_Document]) -> _Judge | None:
    """Fit the model; None where the corpus has too few examples."""
    from sklearn.linear_model import LogisticRegression

    words, read = _Words(), []
    for document in documents:
        words.add(document)
        read.append(document)
    examples, is_name = [], []
    for document in read:
        for word, surface in enumerate(document.surfaces):
            evidence = document.evidence(word)
            if evidence is None or not document.is_word(word) or not (evidence or surface[0].isupper()):
                continue
            # A title is why the word before it is an example: what is learned must do without.
            titled = evidence and document.named[word] == {"rules"}
            examples.append(_features(document, word, words, before=not titled))
            is_name.append(evidence)
    if min(sum(is_name), len(is_name) - sum(is_name)) < MIN_EXAMPLES:
        return None
    model = LogisticRegression(C=0.3, class_weight="balanced", max_iter=200, solver="liblinear", random_state=0)
    model.fit(_hashed(examples), np.array(is_name))
    return _Judge(words, model.coef_[0], float(model.intercept_[0]))


def _hashed(examples: Sequence[list[str]]) -> Any:
    from sklearn.feature_extraction import FeatureHasher

    return FeatureHasher(_NUM_FEATURES, input_type="string", alternate_sign=False).transform(examples)


def _features(document: _Document, word: int, words: _Words, *, before: bool = True) -> list[str]:
    """Features of a word by what it looks like and what stands around it; ``before`` takes what stands before it."""
    lowered, last = document.lowered, len(document.surfaces) - 1
    own = lowered[word]
    form = _form(document, word)
    features = [f"form{form}", f"2{own[-2:]}", f"3{own[-3:]}", f"length{min(len(own), 12)}", *words.features(own)]
    after = [lowered[at] if at <= last else "" for at in (word + 1, word + 2)]
    gap = _gap(document, word)
    features += [f"after{after[0]}", f"afterwards{after[1]}", f"gap{gap}", f"gapafter{gap}{after[0]}"]
    features.append(f"formafter{_form(document, word + 1)}")
    if before:
        earlier = [lowered[at] if at >= 0 else "" for at in (word - 1, word - 2)]
        gap, form_before = _gap(document, word - 1), _form(document, word - 1)
        features += [f"before{earlier[0]}", f"earlier{earlier[1]}", f"gapto{gap}", f"beforegap{earlier[0]}{gap}"]
        features += [f"two{earlier[1]}_{earlier[0]}", f"formbefore{form_before}"]
        features.append(f"forms{form_before}{form}{_form(document, word + 1)}")
    return features


def _form(document: _Document, word: int) -> str:
    """Capital, capitals alone, small, number; empty beyond the text."""
    if not 0 <= word < len(document.surfaces):
        return ""
    surface = document.surfaces[word]
    if surface[0].isdigit():
        return "0"
    if surface.isupper() and len(surface) > 1:
        return "A"
    return "X" if surface[0].isupper() else "x"


def _gap(document: _Document, word: int) -> str:
    """Signs between a word and the next one; a line break counts as one sign, white space as none."""
    start = document.ends[word] if word >= 0 else 0
    end = document.starts[word + 1] if word + 1 < len(document.starts) else len(document.text)
    between = document.text[start:end]
    return "\n" if "\n" in between else between.strip()[:4]
