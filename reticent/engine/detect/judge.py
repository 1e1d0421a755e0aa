"""The judge of names: a model of how this corpus writes names, learned from those that are well said.

Its examples of names are the words that a title, a record, the words around them or two detectors named; its examples
of other words are those that no detector named, with a capital or in a line that has none (a dialogue typed small). It
sees two words to each side, the form and the ending of a word, how the corpus writes it and in how many documents; not
the word. Half of its score is of the place, half the mean of the word wherever the corpus has it: a drug looks like a
name in some of its sentences, not in most.

The model is a logistic regression over hashed features (scikit-learn): equal documents give equal scores.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

__all__ = ["MIN_EXAMPLES", "WEAK", "Document", "Judge", "learn"]

#: Detectors whose names need confirmation where they stand alone.
WEAK: Final = frozenset(("spacy", "transformers", "presidio", "eds", "gazetteer"))
#: With fewer of either kind nothing is learned.
MIN_EXAMPLES: Final = 20
#: Log odds of a name that is well said, where the scores of its word are averaged.
_WELL_SAID: Final = 3.0
#: Of this many words in lines without case, one is an example of what is no name.
_STRIDE: Final = 5
_NUM_FEATURES: Final = 1 << 18
_LINE: Final = re.compile(r"[^\n]*\n?")
#: Words beside a name that are none of it.
_TITLES: Final = frozenset(
    {"mr", "mrs", "ms", "miss", "dr", "prof", "doctor", "sir", "madam"}
    | {"mme", "mlle", "monsieur", "madame", "sr", "sra", "dra", "don", "herr", "frau"}
)


@dataclass(slots=True)
class Document:
    """Words of a document, and the detectors that name each."""

    text: str
    starts: list[int]
    ends: list[int]
    #: (row in the table, first word, word after the last, detector) of each span of a name.
    spans: list[tuple[int, int, int, str]]
    #: Words that a detector takes for something that is written in numbers: a date, an amount, a number.
    others: frozenset[int] = frozenset()
    surfaces: list[str] = field(init=False)
    lowered: list[str] = field(init=False)
    #: By word: the detectors that name it.
    named: dict[int, set[str]] = field(init=False)
    #: By word: it stands in a line all in small letters, or all in capitals.
    caseless: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.surfaces = [self.text[start:end] for start, end in zip(self.starts, self.ends, strict=True)]
        self.lowered = [surface.lower() for surface in self.surfaces]
        self.named = {}
        for _, first, after, detector in self.spans:
            for word in range(first, after):
                self.named.setdefault(word, set()).add(detector)
        self.caseless = []
        for line in _LINE.finditer(self.text):
            num_words = bisect_left(self.starts, line.end()) - len(self.caseless)
            self.caseless += [line[0].islower() or line[0].isupper()] * num_words

    def is_word(self, word: int) -> bool:
        return self.surfaces[word][0].isalpha() and len(self.surfaces[word]) > 1 and self.lowered[word] not in _TITLES

    def may_be(self, word: int) -> bool:
        """Whether case lets a word be a name."""
        return self.surfaces[word][0].isupper() or self.caseless[word]

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


@dataclass(slots=True)
class Words:
    """How the corpus writes its words."""

    #: In small letters, and at all, in lines with case; in lines without.
    small: Counter[str] = field(default_factory=Counter)
    all: Counter[str] = field(default_factory=Counter)
    typed: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    num_documents: int = 0

    def add(self, document: Document) -> None:
        for surface, lowered, caseless in zip(document.surfaces, document.lowered, document.caseless, strict=True):
            if caseless:
                self.typed[lowered] += 1
            else:
                self.all[lowered] += 1
                self.small[lowered] += surface[0].islower()
        self.documents.update(set(document.lowered))
        self.num_documents += 1

    def features(self, word: str) -> tuple[str, ...]:
        num, small, typed = self.all[word], self.small[word], self.typed[word]
        share = self.documents[word] / max(self.num_documents, 1)
        return (
            f"small{4 * small // num}" if num else "unwritten",
            f"any{small > 0}",
            f"typed{int(math.log2(1 + typed / (1 + num - small)))}",
            f"documents{int(math.log2(1 + 100 * share))}",
        )

    def candidates(self, document: Document) -> list[int]:
        """Words with a capital that no detector takes for anything of a form, that the corpus does not write small."""
        return [
            word
            for word, surface in enumerate(document.surfaces)
            if surface[0].isupper()
            and word not in document.named
            and word not in document.others
            and not document.caseless[word]
            and not surface.isupper()
            and document.is_word(word)
            and surface.translate(_JOINTS).isalpha()
            and not self.small[document.lowered[word]]
            and not self.typed[document.lowered[word]]
            and not _gap(document, word).startswith(":")
        ]


#: Signs within a name.
_JOINTS: Final = str.maketrans("", "", "'\u2019-\u2010\u2011")


@dataclass(slots=True)
class Judge:
    """A fitted model, and its mean score of each word over where the corpus has it."""

    words: Words
    weights: np.ndarray
    bias: float
    #: Word -> (sum of scores, their number).
    means: dict[str, tuple[float, int]] = field(default_factory=dict)

    def score(self, document: Document, words: Sequence[int]) -> float:
        """Return the log odds that words are a name: there, and wherever else they stand, in equal parts."""
        own = float(np.mean(self.scores(document, words)))
        sums = [self.means.get(document.lowered[word], (own, 1)) for word in words]
        return (own + float(np.mean([total / number for total, number in sums]))) / 2

    def scores(self, document: Document, words: Sequence[int]) -> np.ndarray:
        """Return the log odds of each word, by what stands there alone."""
        if not words:
            return np.zeros(0)
        rows = _hashed([_features(document, word, self.words) for word in words])
        return np.asarray(rows @ self.weights) + self.bias

    def take(self, documents: Sequence[Document]) -> None:
        """Learn how the words that may be judged look wherever they stand."""
        wanted = {document.lowered[word] for document in documents for word in document.named}
        wanted |= {document.lowered[word] for document in documents for word in self.words.candidates(document)}
        for document in documents:
            places = [
                word
                for word, lowered in enumerate(document.lowered)
                if lowered in wanted and document.is_word(word) and document.may_be(word)
            ]
            for word, score in zip(places, self.scores(document, places).tolist(), strict=True):
                total, number = self.means.get(document.lowered[word], (0.0, 0))
                said = _WELL_SAID if document.evidence(word) else score
                self.means[document.lowered[word]] = (total + said, number + 1)


def learn(documents: Iterator[Document]) -> Judge | None:
    """Fit the model; None where the corpus has too few examples. The documents are kept while it learns."""
    from sklearn.linear_model import LogisticRegression

    words, read = Words(), []
    for document in documents:
        words.add(document)
        read.append(document)
    examples, is_name = [], []
    for document in read:
        for word in range(len(document.surfaces)):
            evidence = document.evidence(word)
            if evidence is None or not document.is_word(word) or not (evidence or document.may_be(word)):
                continue
            if not evidence and document.caseless[word] and word % _STRIDE:
                continue
            # A title is why the word before it is an example: what is learned must do without.
            titled = evidence and document.named[word] == {"rules"}
            examples.append(_features(document, word, words, before=not titled))
            is_name.append(evidence)
    if min(sum(is_name), len(is_name) - sum(is_name)) < MIN_EXAMPLES:
        return None
    model = LogisticRegression(C=0.3, class_weight="balanced", max_iter=200, solver="liblinear", random_state=0)
    model.fit(_hashed(examples), np.array(is_name))
    judge = Judge(words, model.coef_[0], float(model.intercept_[0]))
    judge.take(read)
    return judge


def _hashed(examples: Sequence[list[str]]) -> Any:
    from sklearn.feature_extraction import FeatureHasher

    return FeatureHasher(_NUM_FEATURES, input_type="string", alternate_sign=False).transform(examples)


def _features(document: Document, word: int, words: Words, *, before: bool = True) -> list[str]:
    """Features of a word by what it looks like and what stands around it; ``before`` takes what stands before it."""
    lowered, last = document.lowered, len(document.surfaces) - 1
    own = lowered[word]
    form = _form(document, word) + "l" * document.caseless[word]
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


def _form(document: Document, word: int) -> str:
    """Capital, capitals alone, small, number; empty beyond the text."""
    if not 0 <= word < len(document.surfaces):
        return ""
    surface = document.surfaces[word]
    if surface[0].isdigit():
        return "0"
    if surface.isupper() and len(surface) > 1:
        return "A"
    return "X" if surface[0].isupper() else "x"


def _gap(document: Document, word: int) -> str:
    """Signs between a word and the next one; a line break counts as one sign, white space as none."""
    start = document.ends[word] if word >= 0 else 0
    end = document.starts[word + 1] if word + 1 < len(document.starts) else len(document.text)
    between = document.text[start:end]
    return "\n" if "\n" in between else between.strip()[:4]
