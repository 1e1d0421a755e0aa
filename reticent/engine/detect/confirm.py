"""Confirmation: the corpus says which names of a NER or a list are kept, and which words are names that none found.

A small NER takes drugs, headings and towns for names and rare names for firms; a list takes words. What no other
evidence supports is judged by a model that learns from the corpus itself (`judge`). A span is parted at line breaks and
at words of something else (a date, a street, a firm). A part is dropped where it is too unlikely a name. Words with a
capital that no detector named are added where they are more probably names than not, under the detector `DETECTOR`; the
corpus must write them small nowhere. With few examples nothing is dropped or added. The model is fitted on about
`MAX_DOCUMENTS` documents at most, fewer where these would have more than `MAX_CHARACTERS`.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reticent.engine.detect.judge import MIN_EXAMPLES, Document, Judge, learn
from reticent.engine.detect.labels import category
from reticent.engine.detect.spans import SpanReader
from reticent.engine.schema import SPANS

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus, Documents

__all__ = ["DETECTOR", "MIN_EXAMPLES", "confirm_names"]

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
    from reticent.engine.corpus import as_corpus

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
    from reticent import _rust

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
