"""Samples of the text that tokens are held to where views are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from reticent.engine.oracle.tokens import Retokenizer
    from reticent.engine.verify import TextSample
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["Samples"]


class Samples:
    """Documents whose tokens are held to their text where views are made, by splits; one pass reads them for all."""

    def __init__(self, run: Run, *splits: tuple[str, ...]):
        self._run, self._splits = run, splits
        self._taken: dict[tuple[str, ...], TextSample] = {}
        self._tokenizers: dict[str, Retokenizer] = {}

    def shown(self) -> Callable[[int, pa.RecordBatch], None]:
        """Draw them, and return what must be called with the first row of each batch of documents and the batch."""
        from reticent.engine.verify import TextSample

        run = self._run
        drawn = self._taken = {
            splits: TextSample(run.corpus, run.individuals, splits, run.job.seed) for splits in self._splits
        }

        def show(first: int, batch: pa.RecordBatch) -> None:
            for sample in drawn.values():
                sample.take(first, batch)

        return show

    def of(self, splits: tuple[str, ...]) -> TextSample:
        """Return the sample of these splits. Where no pass has shown the text, what is read of the corpus is the row
        groups and files that hold a document of a sample.
        """
        from reticent import _rust

        if not self._taken:
            show, corpus = self.shown(), self._run.corpus
            wanted = np.zeros(corpus.num_documents, dtype=bool)
            for sample in self._taken.values():
                wanted[sample.rows] = True
            corpus.for_each_batch(
                show,
                columns=("doc_id", "individual_id", "text"),
                num_threads=_rust.resolve_threads(self._run.job.num_threads),
                frugal=self._run.job.memory_limit is not None,
                wanted=wanted,
            )
        return self._taken[splits]

    def tokenizer_of(self, model: ModelSection) -> Retokenizer:
        """Return the tokenizer of a model's ids, which its views share."""
        from reticent.engine.oracle.tokens import Retokenizer

        if model.name not in self._tokenizers:
            path = self._run.folder / "tokens" / model.name / "ids" / "tokenizer.json"
            self._tokenizers = {model.name: Retokenizer(path)}  # one is enough: models come one after the other
        return self._tokenizers[model.name]
