"""Samples of documents whose tokens are checked against the text when views (token stores with flags) are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reticent import _rust
from reticent.core.errors import ArtifactError
from reticent.engine.detect.spans import SpanReader
from reticent.engine.ngrams import NgramIndex
from reticent.engine.oracle.tokens import TextCheck
from reticent.engine.protect import Policy
from reticent.engine.store import TokenStore
from reticent.job.config import ModelSection
from reticent.job.run import Run

if TYPE_CHECKING:
    from reticent.engine.oracle.retokenizer import Retokenizer
    from reticent.engine.text_sample import SampledText, TextSample


class Samples:
    """Samples of documents, by splits, for checking tokens against the text; a single pass over the text reads them
    all.
    """

    def __init__(self, run: Run, *splits: tuple[str, ...]):
        self._run, self._splits = run, splits
        self._taken: dict[tuple[str, ...], TextSample] = {}
        self._tokenizers: dict[str, Retokenizer] = {}

    def on_batch(self) -> Callable[[int, pa.RecordBatch], None]:
        """Draw the samples of documents for the text check, and return a callback that collects their texts. It is
        called with each batch of the corpus and the row of its first document.
        """
        from reticent.engine.text_sample import TextSample  # it compiles patterns of Unicode's properties

        run = self._run
        drawn = self._taken = {
            splits: TextSample(run.corpus, run.individuals, splits, run.job.seed) for splits in self._splits
        }

        def take(first: int, batch: pa.RecordBatch) -> None:
            """Collect the sampled documents of a batch."""
            for sample in drawn.values():
                sample.take(first, batch)

        return take

    def read(self, model: ModelSection, splits: tuple[str, ...], index: NgramIndex, policy: Policy) -> SampledText:
        """Return the sampled text of these splits, prepared for checking a model's tokens: with its spans, the supports
        in ``index``, and the model's tokenizer."""

        spans = SpanReader(self._run.folder / "spans")
        return self._sample_of(splits).read(spans, index, self._tokenizer_of(model), max_n=policy.n)

    def _sample_of(self, splits: tuple[str, ...]) -> TextSample:
        """Return the sampled documents of these splits with their texts. If no earlier pass over the corpus has
        collected them, only the files and row groups that hold sampled documents are read.
        """

        if not self._taken:
            take, corpus = self.on_batch(), self._run.corpus
            wanted = np.zeros(corpus.num_documents, dtype=bool)
            for sample in self._taken.values():
                wanted[sample.rows] = True
            corpus.for_each_batch(
                take,
                columns=("doc_id", "individual_id", "text"),
                num_threads=_rust.resolve_threads(self._run.job.num_threads),
                frugal=self._run.job.memory_limit is not None,
                wanted=wanted,
            )
        return self._taken[splits]

    def _tokenizer_of(self, model: ModelSection) -> Retokenizer:
        """Return the tokenizer of a model, for checking its token ids against the text. It is loaded once for all token
        stores of the model.
        """
        from reticent.engine.oracle.retokenizer import Retokenizer

        if model.name not in self._tokenizers:
            path = self._run.folder / "tokens" / model.name / "ids" / "tokenizer.json"
            self._tokenizers = {model.name: Retokenizer(path)}  # one is enough: models come one after the other
        return self._tokenizers[model.name]


def require_matching_text(store: TokenStore, text: SampledText, policy: Policy) -> TextCheck:
    """Compare the token ids and flags of a store with those that sampled text has under the policy, and return the
    counts; raise `ArtifactError` where they differ."""
    check = text.check(store, policy)
    if not check.holds:
        raise ArtifactError(f"tokens: {check.failure()}")
    return check
