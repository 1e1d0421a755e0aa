"""A sample of the documents of a corpus, to which tokens are held where they are made: the check of
:mod:`reticent.engine.verify` for some individuals.

Text, spans, index and tokenizer are read once. What they say of the sample is kept as numbers, from which the
protection by any k, n and policy is worked out: no text and no tokenizer is needed to hold a view with another to it.
The numbers (where words and spans stand, supports, ids of tokens) say no more than the run does beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.core.errors import ArtifactError
from reticent.engine.oracle.protection import DocumentWords, Seen, WordTable, looked_up_supports
from reticent.engine.oracle.tokens import (
    Comparison,
    ReadTexts,
    Retokenizer,
    Spans,
    TextCheck,
    TokenisedText,
    read_texts,
)
from reticent.engine.verify import protection, read_spans

if TYPE_CHECKING:
    from reticent.engine.corpus import Corpus
    from reticent.engine.detect.spans import SpanReader
    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.protect import Policy
    from reticent.engine.split import Individuals
    from reticent.engine.store import TokenStore

__all__ = ["SampledText", "TextSample"]

#: Rows of an index's table that are looked at together.
ROWS_AT_ONCE = 1 << 20
FILE = "sample.arrow"
COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class TextSample:
    """Some documents of a corpus, whose tokens are checked where they are made; `take` is shown every document first.

    Whole individuals (households) are drawn, so what a span spreads over one's documents is seen. What a spot check
    does not see: a surface that is protected in the whole corpus because of a span in a document outside of the sample,
    and whether the index counted right, since supports are looked up in its tables. `verify_tokens` sees both.

    Cost: under half a second, and a pass over the spans and the index's tables.
    """

    #: Documents that are kept, and characters of them that are looked at.
    NUM_DOCUMENTS, NUM_CHARACTERS = 200, 200_000

    def __init__(self, corpus: Corpus, individuals: Individuals, splits: tuple[str, ...], seed: int):
        self._individuals = individuals
        codes = individuals.individual_codes(corpus.scan().column("individual_id"))
        rows = np.flatnonzero(individuals.mask(*splits)[codes])
        units = individuals.units[codes[rows]].astype(np.uint64)
        order = np.lexsort((rows, _hashes(units, seed)))[: self.NUM_DOCUMENTS]
        self._rows, self._order = np.sort(rows[order]), np.argsort(np.argsort(rows[order]))
        self._store_rows = np.sort(order)  # documents of the store are those of the splits, in order
        #: By the first row: texts, ids and units of documents.
        self._parts: dict[int, tuple[list[str], pa.Array, np.ndarray]] = {}

    @property
    def rows(self) -> np.ndarray:
        """The rows of the corpus that are kept, ascending."""
        return self._rows

    def take(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the documents of the sample among these, which stand from row ``first`` of the corpus on. Batches may
        come in any order, and from several threads.
        """
        found = pa.array(self._rows[slice(*np.searchsorted(self._rows, [first, first + batch.num_rows]))] - first)
        if len(found):
            kept = batch.take(found)
            units = self._individuals.units[self._individuals.individual_codes(kept.column("individual_id"))]
            self._parts[first] = kept.column("text").to_pylist(), kept.column("doc_id"), units

    def read(
        self, spans: SpanReader | None, index: NgramIndex | None, tokenizer: Retokenizer, *, max_n: int
    ) -> SampledText:
        """Read the kept documents: their words, the supports of their n-grams of up to ``max_n`` words by an index,
        their spans and tokens.
        """
        parts = [self._parts[first] for first in sorted(self._parts)]
        all_texts = [text for texts, _, _ in parts for text in texts]
        taken = np.cumsum([len(all_texts[i]) for i in self._order]) <= self.NUM_CHARACTERS
        taken[:1] = True
        chosen = np.sort(self._order[taken])
        texts = [all_texts[i] for i in chosen]
        doc_ids = pa.concat_arrays([ids for _, ids, _ in parts]).take(pa.array(chosen))
        table = WordTable()
        words = DocumentWords.of(texts, table)
        surfaces, seen = table.surfaces("exact" if index is None else index.surface)
        supports = []
        if index is not None:
            supports = [*looked_up_supports(words, surfaces, max_n, partial(_tables, index), index.min_support)]
        units = np.concatenate([units for _, _, units in parts])[chosen]
        marks = read_spans(spans, self._rows[chosen])
        return SampledText(
            words=words,
            units=units,
            seen=Seen.of(seen),
            spans=marks,
            supports=supports,
            num_units=0 if index is None else index.num_units,
            read=read_texts(texts, doc_ids, words.bases, marks, tokenizer),
            store_rows=self._store_rows[chosen],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledText:
    """The documents of a sample as numbers.

    Attributes
    ----------
    words, units, seen, spans, supports, num_units : as `reticent.engine.verify.protection` takes them
    read : their visible characters and their tokens
    store_rows : the documents of the store that they are
    """

    words: DocumentWords
    units: np.ndarray
    seen: Seen
    spans: Spans
    supports: list[np.ndarray]
    num_units: int
    read: ReadTexts
    store_rows: np.ndarray

    def check(self, store: TokenStore, policy: Policy) -> TextCheck:
        """Compare the tokens of these documents with what the policy protects of their text."""
        supports = self.supports[: policy.n]
        protected = protection(self.words, self.units, self.seen, self.spans, supports, policy, self.num_units)
        comparison = Comparison(store)
        comparison.add(self.store_rows, self.read, protected)
        return comparison.result(whole=False)

    def require(self, store: TokenStore, policy: Policy) -> TextCheck:
        """Compare the tokens of these documents with their text; `ArtifactError` where they do not fit it."""
        check = self.check(store, policy)
        if not check.holds:
            raise ArtifactError(f"tokens: {check.failure()}")
        return check

    def write(self, folder: Path) -> None:
        """Write it to a folder."""
        texts = {"span_names": pa.array(self.spans.names, pa.string()), "doc_ids": self.read.doc_ids.cast(pa.string())}
        lists = {**{name: pa.array(values) for name, values in self._numbers().items()}, **texts}
        row = pa.record_batch({name: pa.ListArray.from_arrays([0, len(items)], items) for name, items in lists.items()})
        with (
            pa.OSFile(str(folder / FILE), "wb") as file,
            pa.ipc.new_stream(file, row.schema, options=COMPRESSED) as writer,
        ):
            writer.write_batch(row)

    def _numbers(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.words, name) for name in DocumentWords.__slots__},
            **{f"seen_{name}": values for name, values in self.seen._asdict().items()},
            **{f"span_{name}": values for name, values in self.spans._asdict().items() if name != "names"},
            **{f"token_{name}": values for name, values in self.read.tokens._asdict().items()},
            **{f"support_{n}": values for n, values in enumerate(self.supports, 1)},
            "is_visible": self.read.is_visible,
            "cut_starts": self.read.cut[0],
            "cut_ends": self.read.cut[1],
            "units": self.units,
            "num_units": [self.num_units],
            "store_rows": self.store_rows,
        }

    @classmethod
    def of(cls, folder: Path) -> SampledText:
        """Read what `write` wrote.

        Raises
        ------
        ArtifactError
            There is none, or it cannot be read.
        """
        try:
            with pa.memory_map(str(folder / FILE)) as file:
                row = pa.ipc.open_stream(file).read_next_batch()
            lists = {name: column.flatten() for name, column in zip(row.schema.names, row.columns, strict=True)}
            names, doc_ids = lists.pop("span_names").to_pylist(), lists.pop("doc_ids")
            values = {name: column.to_numpy(zero_copy_only=False) for name, column in lists.items()}
            taken = partial(_with_prefix, values)
            return cls(
                words=DocumentWords(**{name: values[name] for name in DocumentWords.__slots__}),
                units=values["units"],
                seen=Seen(**taken("seen_")),
                spans=Spans(**taken("span_"), names=names),
                supports=list(taken("support_").values()),
                num_units=int(values["num_units"][0]),
                read=ReadTexts(
                    doc_ids,
                    values["is_visible"],
                    (values["cut_starts"], values["cut_ends"]),
                    TokenisedText(**taken("token_")),
                ),
                store_rows=values["store_rows"],
            )
        except (OSError, KeyError, TypeError, StopIteration, pa.ArrowException) as error:
            raise ArtifactError(f"{folder}: a sample that cannot be read ({type(error).__name__})") from None


def _with_prefix(values: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): column for name, column in values.items() if name.startswith(prefix)}


def _tables(index: NgramIndex, n: int) -> Iterator[pa.RecordBatch]:
    """Yield the table of n-grams of an index in parts."""
    num_rows = index.num_words if n == 1 else index.num_ngrams(n)
    for first in range(0, num_rows, ROWS_AT_ONCE):
        yield pa.record_batch(index.words(first, ROWS_AT_ONCE) if n == 1 else index.level(n, first, ROWS_AT_ONCE))


def _hashes(units: np.ndarray, seed: int) -> np.ndarray:
    """splitmix64 of each unit and the seed."""
    x = units + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
