"""Samples of the text that tokens are held to where views are made.

What a sample says is kept beside the tokens, ``text-samples/MODEL/INDEX`` (`reticent.engine.sampled_text`): a view with
another k, n or policy is held to it, and neither the text nor the tokenizer is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.job.cached import Cached
from reticent.job.noise import noise_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.oracle.retokenizer import Retokenizer
    from reticent.engine.protect import Policy
    from reticent.engine.sampled_text import SampledText
    from reticent.engine.text_sample import TextSample
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["Samples"]

KIND = "text-sample"


class Samples:
    """Documents whose tokens are held to their text where views are made, by splits; one pass reads them for all."""

    def __init__(self, run: Run, *splits: tuple[str, ...]):
        self._run, self._splits = run, splits
        self._taken: dict[tuple[str, ...], TextSample] = {}
        self._tokenizers: dict[str, Retokenizer] = {}

    def shown(self) -> Callable[[int, pa.RecordBatch], None]:
        """Draw them, and return what must be called with the first row of each batch of documents and the batch."""
        from reticent.engine.text_sample import TextSample

        run = self._run
        drawn = self._taken = {
            splits: TextSample(run.corpus, run.individuals, splits, run.job.seed) for splits in self._splits
        }

        def show(first: int, batch: pa.RecordBatch) -> None:
            for sample in drawn.values():
                sample.take(first, batch)

        return show

    def reader(
        self, model: ModelSection, name: str, splits: tuple[str, ...], index: NgramIndex, policy: Policy
    ) -> Callable[[], SampledText]:
        """Return what reads the sample of these splits: as it was kept, or else from the text, by the index of the run
        of that name as it protects.
        """
        run = self._run
        names = {"split": "split", "spans": "spans", "index": name, "ids": f"tokens/{model.name}/ids"}
        inputs = {**run.corpus_input(), **{of: run.fingerprints.of(path) for of, path in names.items()}}
        settings: dict[str, Any] = {"n": policy.n, "seed": run.job.seed, "splits": list(splits)}
        if name == "index" and (noise := noise_settings(run)):
            settings |= {"k": policy.k, **noise}  # supports are those of the draws
        cached = Cached(run, f"text-samples/{model.name}/{name}", KIND, inputs)

        def fits(made: dict[str, Any]) -> bool:
            return made["n"] >= policy.n and {**made, "n": policy.n} == settings

        def read() -> SampledText:
            from reticent.engine.detect.spans import SpanReader
            from reticent.engine.sampled_text import SampledText

            if cached.answers(fits):
                with suppress(ArtifactError):
                    return SampledText.of(cached.path)
            spans, tokenizer = SpanReader(run.folder / "spans"), self._tokenizer_of(model)
            sample = self._of(splits).read(spans, index, tokenizer, max_n=policy.n)
            with suppress(ArtifactError), cached.written(settings) as folder:  # another process may write it
                sample.write(folder)
            return sample

        return read

    def _of(self, splits: tuple[str, ...]) -> TextSample:
        """The sample of these splits. Where no pass has shown the text, what is read of the corpus is the row groups
        and files that hold a document of a sample.
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

    def _tokenizer_of(self, model: ModelSection) -> Retokenizer:
        """The tokenizer of a model's ids, which its views share."""
        from reticent.engine.oracle.retokenizer import Retokenizer

        if model.name not in self._tokenizers:
            path = self._run.folder / "tokens" / model.name / "ids" / "tokenizer.json"
            self._tokenizers = {model.name: Retokenizer(path)}  # one is enough: models come one after the other
        return self._tokenizers[model.name]
