"""Samples of the text that tokens are held to where views are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
        """Return the sample of these splits; the text is read where no pass has shown it."""
        if not self._taken:
            show, first = self.shown(), 0
            for batch in self._run.corpus.batches(columns=("doc_id", "individual_id", "text")):
                show(first, batch)
                first += batch.num_rows
        return self._taken[splits]

    def tokenizer_of(self, model: ModelSection) -> Retokenizer:
        """Return the tokenizer of a model's ids, which its views share."""
        from reticent.engine.oracle.tokens import Retokenizer

        if model.name not in self._tokenizers:
            path = self._run.folder / "tokens" / model.name / "ids" / "tokenizer.json"
            self._tokenizers = {model.name: Retokenizer(path)}  # one is enough: models come one after the other
        return self._tokenizers[model.name]
