"""Confirmation: the corpus says which names of a NER or a list are kept, and which words are names that none found.

A small NER takes drugs, headings and towns for names and rare names for firms; a list takes words. What no other
evidence supports is judged by a model that learns from the corpus itself (`judge`). A span is parted at line breaks and
at words of something else (a date, a street, a firm). A part is dropped where it is too unlikely a name. Words with a
capital that no detector named are added where they are more probably names than not, under the detector `DETECTOR`; the
corpus must write them small nowhere. With few examples nothing is dropped or added. The model is fitted on about
`MAX_DOCUMENTS` documents at most, fewer where these would have more than `MAX_CHARACTERS`.
"""

from __future__ import annotations

import math
import re
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent import _rust
from reticent.engine.corpus import as_corpus
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPANS

if TYPE_CHECKING:
    from reticent._rust import CommonWords
    from reticent.engine.corpus import Corpus, Documents

__all__ = [
    "DETECTOR",
    "MIN_EXAMPLES",
    "WEAK",
    "Document",
    "Judge",
    "confirm_names",
    "learn",
    "without_common_words",
]


# --------------------------------------------------------------------------------------------------------------- judge
#
# The judge of names: a model of how this corpus writes names, learned from those that are well said.
#
# Its examples of names are the words that a title, a record, the words around them or two detectors named; its
# examples of other words are those that no detector named, with a capital or in a line that has none (a dialogue typed
# small). It sees two words to each side, the form and the ending of a word, how the corpus writes it and in how many
# documents; not the word. Half of its score is of the place, half the mean of the word wherever the corpus has it: a
# drug looks like a name in some of its sentences, not in most. A name goes on beside a name, over particles too, and
# the names of a list ("Anna, Max and Ada") vouch for each other. What a NER and a list see of a word counts as much as
# they are worth in this corpus, by the names that others found; and where more of the words in question are likely
# names, less is asked of each.
#
# Words of a date, an address, a firm, a place or a thing (`_rust.find_no_names`) are no names, whatever weak detectors
# say.
#
# The model is a logistic regression over hashed features (scikit-learn): equal documents give equal scores.


#: Detectors whose names need confirmation where they stand alone.
WEAK: Final = frozenset(("spacy", "transformers", "presidio", "eds", "gazetteer"))
#: With fewer of either kind nothing is learned.
MIN_EXAMPLES: Final = 20
#: Log odds of a name that is well said, where the scores of its word are averaged.
_WELL_SAID: Final = 3.0
#: Weight of what a NER or a list sees, and examples of each kind that are thought to be seen beforehand.
_SEEN: Final = 0.25
_SMOOTH: Final = 5.0
#: Log of how many false names a missed one is worth, and how much of the prior odds is believed: scores are too sure.
_COST: Final = 2.6
_PRIOR: Final = 0.5
#: Share of the neighbours in the score of a word.
_BESIDE: Final = 0.5
#: Of this many words in lines without case, one is an example of what is no name.
_STRIDE: Final = 5
_NUM_FEATURES: Final = 1 << 18
#: Signs within a name.
_JOINTS: Final = str.maketrans("", "", "'\u2019-\u2010\u2011")
_LINE: Final = re.compile(r"[^\n]*\n?")
#: Between the parts of a name.
_PARTICLES: Final = frozenset(_rust.word_list("particles", "beside"))
#: Before the last of a list.
_AND: Final = frozenset(_rust.word_list("and"))
#: Words beside a name that are none of it.
_TITLES: Final = frozenset(_rust.word_list("titles", "beside"))


@dataclass(slots=True)
class Document:
    """Words of a document, and the detectors that name each."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    #: (row in the table, first word, word after the last, detector) of each span of a name.
    spans: list[tuple[int, int, int, str]]
    #: Words that a detector takes for something that is written in numbers: a date, an amount, a number.
    others: frozenset[int] = frozenset()
    #: Words that are of an address, a firm or a place, whatever a NER or a list says.
    excluded: frozenset[int] = frozenset()
    #: By word: the category under which a trained NER has it.
    taken: dict[int, str] = field(default_factory=dict)
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
        surface = self.surfaces[word]
        has_letters_alone = surface[0].isalpha() and not any(map(str.isdigit, surface))
        return has_letters_alone and len(surface) > 1 and self.lowered[word] not in _TITLES

    def may_be(self, word: int) -> bool:
        """Whether case lets a word be a name."""
        return self.surfaces[word][0].isupper() or self.caseless[word]

    def is_other(self, word: int) -> bool:
        """Whether a word is of something else, and no more than a NER or a list takes it for a name."""
        return (word in self.excluded or word in self.others) and self.named.get(word, set()) <= WEAK

    def is_in_number(self, first: int, after: int) -> bool:
        """Whether words are of a number, or letters with digits, and no more than a NER or a list names them."""
        words = range(first, after)
        with_digits = all(any(map(str.isdigit, self.surfaces[word])) for word in words)
        mixed = any(self.surfaces[word][0].isalpha() for word in words)
        weak = all(self.named.get(word, set()) <= WEAK for word in words)
        return with_digits and weak and (mixed or all(map(self.is_other, words)))

    def evidence(self, word: int) -> bool | None:
        """Whether a word is a name: True where that is said well enough, False where no detector says so."""
        detectors = self.named.get(word)
        if detectors is None or self.is_other(word):
            return False
        return True if len(detectors) > 1 or not detectors <= WEAK else None

    def parts(self) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """Yield the row of each name that a weak detector found, and first word and word after the last of its parts: a
        line break parts them, and a word of something else."""
        for row, first, after, detector in self.spans:
            if detector not in WEAK:
                continue
            if not any(map(self.is_word, range(first, after))):
                yield row, [] if first < after and self.is_in_number(first, after) else [(first, after)]
                continue
            parts, start = [], first
            for word in range(first, after):
                other = self.is_other(word) or any(map(str.isdigit, self.surfaces[word]))
                if other or word + 1 == after or _gap(self, word) == "\n":
                    end = word if other else word + 1
                    if any(map(self.is_word, range(start, end))):
                        parts.append((start, end))
                    start = word + 1
            yield row, parts

    def seen(self, word: int) -> tuple[str, bool]:
        """Return the category under which the NER has a word, and whether a list has it."""
        return self.taken.get(word, ""), "gazetteer" in self.named.get(word, ())

    def starts_sentence(self, word: int) -> bool:
        gap = _gap(self, word - 1)
        return word == 0 or gap[-1:] in ("\n", ".", "!", "?", ":", "*")

    def next_of_name(self, word: int) -> int | None:
        """Return the word with which a name goes on behind a word: a space, a hyphen and particles stand between."""
        after = word
        while after + 1 < len(self.surfaces) and _gap(self, after) in ("", "-"):
            after += 1
            if self.surfaces[after] not in _PARTICLES:
                return after
        return None

    def lists(self) -> Iterator[list[int]]:
        """Yield the words of each list of three and more with capitals: "Anna, Max and Ada"."""
        items: list[int] = []
        for word, surface in enumerate(self.surfaces):
            if not surface[0].isupper():
                continue
            before = word - 1
            if items and surface and before == items[-1] and _gap(self, before) == ",":
                items.append(word)
                continue
            joined = before >= 0 and self.lowered[before] in _AND and items and items[-1] == before - 1
            if joined and _gap(self, before) == "" and _gap(self, before - 1) in ("", ","):
                if len(items) > 1:
                    yield [*items, word]
                items = []
            else:
                items = [word]


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
            and word not in document.excluded
            and not document.caseless[word]
            and not surface.isupper()
            and document.is_word(word)
            and surface.translate(_JOINTS).isalpha()
            and not self.small[document.lowered[word]]
            and not self.typed[document.lowered[word]]
            and not _gap(document, word).startswith(":")
        ]


@dataclass(slots=True)
class Judge:
    """A fitted model, and its mean score of each word over where the corpus has it."""

    words: Words
    weights: np.ndarray
    bias: float
    #: Word -> (sum of scores, their number).
    means: dict[str, tuple[float, int]] = field(default_factory=dict)
    #: Log of how much more often weak detectors see this of a name than of another word.
    weights_of: dict[tuple[str, bool], float] = field(default_factory=dict)
    #: Log odds that are added for what share of the words in question are names in this corpus.
    prior: float = 0.0

    def judge(self, document: Document) -> dict[int, float]:
        """Return the log odds, by word, that each word that may be one is a name.

        Half of what stands there, half of what stands where else the corpus has it; with those of its neighbours, for
        names seldom stand alone; what weak detectors see; and how many names the corpus has.
        """
        open_words = sorted({*document.named, *self.words.candidates(document)})
        open_words = [word for word in open_words if document.is_word(word) and not document.is_other(word)]
        said = [word for word in open_words if document.evidence(word)]
        asked = [word for word in open_words if not document.evidence(word)]
        found = dict.fromkeys(said, _WELL_SAID)
        for word, own in zip(asked, self.scores(document, asked).tolist(), strict=True):
            total, number = self.means.get(document.lowered[word], (own, 1))
            found[word] = (own + total / number) / 2 + _SEEN * self.weights_of.get(document.seen(word), 0.0)
        beside: dict[int, list[float]] = {}
        for word in open_words:
            if (after := document.next_of_name(word)) in found:
                starts = document.starts_sentence(word)  # "Then Roy": the capital says nothing
                if not starts or found[word] > 0:
                    beside.setdefault(after, []).append(found[word])
                if not starts:
                    beside.setdefault(word, []).append(found[after])
        judged = {}
        for word in asked:
            near = beside.get(word)
            judged[word] = found[word] + (_BESIDE * (sum(near) / len(near) - found[word]) if near else 0.0)
        for words in document.lists():
            known = [found[word] for word in words if word in found]
            if 2 * sum(odds > 0 for odds in known) > len(words):
                judged |= {word: max(judged[word], sum(known) / len(known)) for word in words if word in judged}
        return {word: odds + self.prior for word, odds in judged.items()} | dict.fromkeys(said, _WELL_SAID)

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

    def weigh(self, documents: Sequence[Document]) -> None:
        """Learn what weak detectors see of names that others found and of words that are none, and what share is."""
        names: Counter[tuple[str, bool]] = Counter()
        others: defaultdict[tuple[str, bool], float] = defaultdict(float)
        probabilities: list[float] = []
        for document in documents:
            for word, detectors in document.named.items():
                names[document.seen(word)] += bool(detectors - WEAK)
            for word, odds in self.judge(document).items():
                if not document.evidence(word):
                    probabilities.append(1 / (1 + math.exp(-odds)))
                    others[document.seen(word)] += 1 - probabilities[-1]
        kinds = {*names, *others}
        num_names, num_others = names.total() + _SMOOTH, sum(others.values()) + _SMOOTH
        for kind in kinds:
            share = (names[kind] + _SMOOTH / len(kinds)) / num_names
            self.weights_of[kind] = math.log(share * num_others / (others[kind] + _SMOOTH / len(kinds)))
        num_likely = sum(probabilities)
        prior = math.log((num_likely + 1) / (len(probabilities) - num_likely + 1))
        self.prior = float(np.clip((prior + _COST) * _PRIOR, -1, 1))


def learn(documents: Iterator[Document]) -> Judge | None:
    """Fit the model; None where the corpus has too few examples. The documents are kept while it learns."""
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression

    words, read, known = Words(), [], dict[str, str]()
    for document in documents:
        words.add(document)
        own = (document.surfaces, document.lowered)  # each word is kept once, however often the corpus has it
        document.surfaces, document.lowered = ([known.setdefault(word, word) for word in each] for each in own)
        read.append(document)
    hashed, is_name = [], []
    for document in read:
        examples = []
        for word in range(len(document.surfaces)):
            evidence = document.evidence(word)
            may_be = document.may_be(word) and not (document.caseless[word] and word % _STRIDE)
            if evidence is None or not document.is_word(word) or not (evidence or may_be):
                continue
            # A title is why the word before it is an example: what is learned must do without.
            titled = evidence and document.named[word] == {"rules"}
            examples.append(_features(document, word, words, before=not titled))
            is_name.append(evidence)
        hashed += [_hashed(examples)] if examples else []
    if min(sum(is_name), len(is_name) - sum(is_name)) < MIN_EXAMPLES:
        return None
    model = LogisticRegression(C=0.3, class_weight="balanced", max_iter=200, solver="liblinear", random_state=0)
    joined = vstack(hashed)
    del hashed  # what the model takes is held once
    model.fit(joined, np.array(is_name))
    judge = Judge(words, model.coef_[0], float(model.intercept_[0]))
    judge.take(read)
    judge.weigh(read)
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


#: The name under which added names stand.
DETECTOR: Final = "confirm"
MAX_DOCUMENTS: Final = 20_000
#: Some 1,000 words a document; they are kept in ten times their size while the model learns.
MAX_CHARACTERS: Final = 1 << 27
_TRAINED: Final = ("spacy", "transformers", "presidio", "eds")
#: Log odds from which words are a name.
_EVEN: Final = 0.0
#: Categories whose words are no names.
_WRITTEN_IN_NUMBERS: Final = frozenset(("DATE", "AGE", "PHONE", "EMAIL", "URL", "IP", "ID", "ZIP", "QUANTITY"))
_ORDER: Final = [(name, "ascending") for name in ("document", "start", "end", "label", "detector")]


def confirm_names(
    corpus: Corpus | Documents,
    spans_path_in: Path | str,
    spans_path_out: Path | str,
    *,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write the spans of a file (`SPANS`; secret) without names that the corpus does not confirm, with those it adds.

    Returns
    -------
    dict
        judged (names that one weak detector alone found), unconfirmed (names of which no part stayed), confirm (names
        that were added).

    Cost: two passes over documents, the first over those that the model is fitted on, which are kept for it, in Python:
    some .3 MB a second, ten times as fast as a small NER.
    """

    corpus = as_corpus(corpus)
    reader = SpanReader(spans_path_in)
    num_characters = sum(
        pc.sum(pc.utf8_length(batch.column("text"))).as_py() for batch in corpus.batches(columns=("text",))
    )
    stride = max(1, -(-corpus.num_documents // MAX_DOCUMENTS), -(-num_characters // MAX_CHARACTERS))
    judge = learn(_documents(corpus, reader, stride=stride))
    counts = {"judged": 0, "unconfirmed": 0, DETECTOR: 0}
    with pq.ParquetWriter(Path(spans_path_out), SPANS, compression="zstd") as writer:
        first = 0
        for batch in corpus.batches(columns=("doc_id", "text")):
            table = reader.table(first, batch.num_rows)
            keep = np.ones(table.num_rows, dtype=bool)
            added: list[dict[str, Any]] = []
            documents = () if judge is None else _of_batch(batch, table, first, range(batch.num_rows))
            for row, document in enumerate(documents):
                assert judge is not None
                odds = judge.judge(document)
                place = {"document": first + row, "doc_id": batch.column("doc_id")[row].as_py()}
                judged, changed = _judged(document, odds)
                counts["judged"] += judged
                for span, parts in changed.items():
                    keep[span] = False
                    counts["unconfirmed"] += not parts
                    own = {name: table.column(name)[span].as_py() for name in ("label", "detector", "score")}
                    added += [place | part | own for part in parts]
                new = [place | name for name in _added(document, judge, odds)]
                counts[DETECTOR] += len(new)
                added += new
            kept = table.filter(pa.array(keep))
            more = pa.Table.from_pylist(added, schema=SPANS)
            writer.write_table(pa.concat_tables([kept, more]).sort_by(_ORDER) if added else kept)
            first += batch.num_rows
            if progress:
                progress(first)
    return counts


def _judged(document: Document, odds: Mapping[int, float]) -> tuple[int, dict[int, list[dict[str, int]]]]:
    """Return how many spans were judged, and by row of each that does not stay as it is the parts that stay of it."""
    whole = {row: (first, after) for row, first, after, _ in document.spans}
    judged, changed = 0, {}
    for row, parts in document.parts():
        said = [any(map(document.evidence, range(*part))) for part in parts]
        means = [np.mean([odds[word] for word in range(*part) if word in odds] or [np.inf]) for part in parts]
        stays = [part for part, is_said, mean in zip(parts, said, means, strict=True) if is_said or mean > _EVEN]
        judged += not any(said) and not all(np.isinf(means))
        if stays != [whole[row]]:
            changed[row] = stays
    bounds = {
        row: [{"start": document.starts[first], "end": document.ends[after - 1]} for first, after in stays]
        for row, stays in changed.items()
    }
    return judged, bounds


def _added(document: Document, judge: Judge, odds: Mapping[int, float]) -> Iterator[dict[str, Any]]:
    """Yield the names that no detector found."""
    names: list[list[int]] = []
    for word in judge.words.candidates(document):
        if odds[word] <= _EVEN:
            continue
        if names and document.next_of_name(names[-1][-1]) == word:
            names[-1].append(word)
        else:
            names.append([word])
    for words in names:
        bounds = {"start": document.starts[words[0]], "end": document.ends[words[-1]]}
        yield bounds | {"label": "NAME", "detector": DETECTOR, "score": 1.0}


def _documents(corpus: Corpus, reader: SpanReader, *, stride: int) -> Iterator[Document]:
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
) -> Iterator[Document]:
    """Yield the documents with their names; without ``chosen`` those that have any."""

    categories = {label: category(label) for label in table.column("label").unique().to_pylist()}
    wanted = [label for label, name in categories.items() if name == "NAME" or name in _WRITTEN_IN_NUMBERS]
    of_label = pc.is_in(table.column("label"), pa.array(wanted, pa.string()))
    wanted_rows = pc.or_(of_label, pc.is_in(table.column("detector"), pa.array(["rules", *_TRAINED])))
    rows = np.flatnonzero(wanted_rows.to_numpy(zero_copy_only=False))
    document = table.column("document").to_numpy()[rows] - num_before
    starts, ends = (table.column(edge).to_numpy()[rows] for edge in ("start", "end"))
    detectors, labels = (table.column(name).take(pa.array(rows)).to_pylist() for name in ("detector", "label"))
    if chosen is None:
        chosen = np.unique(document).tolist()
    texts = batch.column("text").take(pa.array(chosen, pa.int64()))
    words = _rust.segment(texts)
    word_starts, word_ends = words.char_spans(texts)
    bounds = words.doc_offsets
    places = pa.record_batch(_rust.find_no_names(texts))
    place_document, place_starts = (places.column(name).to_numpy() for name in ("document", "start"))
    for place, number in enumerate(chosen):
        own = slice(int(bounds[place]), int(bounds[place + 1]))
        spans: list[tuple[int, int, int, str]] = []
        others: set[int] = set()
        excluded: set[int] = set()
        taken: dict[int, str] = {}
        for at in range(*np.searchsorted(document, [number, number + 1])):
            first = int(np.searchsorted(word_ends[own], starts[at], side="right"))
            after = int(np.searchsorted(word_starts[own], ends[at], side="left"))
            if detectors[at] in _TRAINED:
                taken |= dict.fromkeys(range(first, after), categories[labels[at]])
            if categories[labels[at]] == "NAME":
                spans.append((int(rows[at]), first, after, detectors[at]))
            elif detectors[at] == "rules":
                excluded.update(range(first, after))
            elif categories[labels[at]] in _WRITTEN_IN_NUMBERS:
                others.update(range(first, after))
        for at in range(*np.searchsorted(place_document, [place, place + 1])):
            first = int(np.searchsorted(word_ends[own], place_starts[at], side="right"))
            excluded.add(first)
        bounds_of_words = array("I", word_starts[own].tobytes()), array("I", word_ends[own].tobytes())
        yield Document(texts[place].as_py(), *bounds_of_words, spans, frozenset(others), frozenset(excluded), taken)


# --------------------------------------------------------------------------------------------------------------- doubt
#
# Doubt: names that a trained NER finds, and the corpus says are words.
#
# A small NER takes headings ("CHIEF COMPLAINT") and fillers for names. A name is left out where each of its words is
# one that the corpus writes small more often than not, in many documents (:mod:`reticent.engine.detect.common`): a
# name of individuals stands in few, also where dialogues are written small. Other categories are not touched.


_WORD: Final = re.compile(r"[^\W\d_]{2,}")


def without_common_words(found: pa.Table, texts: pa.Array | pa.ChunkedArray, common: CommonWords) -> pa.Table:
    """Return the spans (`BATCH_SPANS`) but for names that are all common words.

    Cost: a look-up a word of the names.
    """
    names = [category(label) == "NAME" for label in found.column("label").to_pylist()]
    rows = np.flatnonzero(names)
    columns = [found.column(name).to_numpy()[rows] for name in ("document", "start", "end")]
    read = {document: texts[document].as_py() for document in np.unique(columns[0]).tolist()} if len(rows) else {}
    words = [_WORD.findall(read[document][start:end]) for document, start, end in zip(*map(list, columns), strict=True)]
    distinct = sorted({word for of_span in words for word in of_span})
    widespread = dict(zip(distinct, common.are_widespread(pa.array(distinct, pa.string())).tolist(), strict=True))
    keep = np.ones(found.num_rows, dtype=bool)
    keep[rows] = [not of_span or not all(widespread[word] for word in of_span) for of_span in words]
    return found.filter(pa.array(keep))
