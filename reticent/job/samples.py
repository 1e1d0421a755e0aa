"""Samples of the text that tokens are held to where views are made.

The numbers of a sample are cached, ``text-samples/MODEL/INDEX`` (`reticent.engine.sampled_text`): a view with another
k, n or policy is held to them, and neither the text nor the tokenizer is read again. They are written once tokens have
held to them; tokens that do not hold to cached ones are held to the text.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.core.errors import ArtifactError
from reticent.job.cached import Cached
from reticent.job.noise import noise_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from reticent.engine.ngrams import NgramIndex
    from reticent.engine.oracle.retokenizer import Retokenizer
    from reticent.engine.oracle.tokens import TextCheck
    from reticent.engine.protect import Policy
    from reticent.engine.sampled_text import SampledText
    from reticent.engine.store import TokenStore
    from reticent.engine.text_sample import TextSample
    from reticent.job.config import ModelSection
    from reticent.job.run import Run

__all__ = ["Samples", "ViewSample"]

KIND = "text-sample"
#: Packages whose answers a sample holds.
READ_BY = ("reticent", "pyarrow", "regex", "tokenizers")


class Samples:
    """Documents whose tokens are held to their text where views are made, by splits; one pass reads them for all."""

    def __init__(self, run: Run, *splits: tuple[str, ...]):
        self._run, self._splits = run, splits
        self._taken: dict[tuple[str, ...], TextSample] = {}
        self._tokenizers: dict[str, Retokenizer] = {}
        #: Views are made at a time, and one pass reads the text for all.
        self.reading = Lock()

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
        from reticent.engine.oracle.retokenizer import Retokenizer

        if model.name not in self._tokenizers:
            path = self._run.folder / "tokens" / model.name / "ids" / "tokenizer.json"
            self._tokenizers = {model.name: Retokenizer(path)}  # one is enough: models come one after the other
        return self._tokenizers[model.name]


class ViewSample:
    """The sample that those views of a model are held to whose documents are of these splits and whose words one index
    of the run protects.

    Parameters
    ----------
    name : name of the index among the results of the run
    index : the same, with the noise of the threshold if it has any
    """

    def __init__(
        self,
        samples: Samples,
        run: Run,
        model: ModelSection,
        name: str,
        splits: tuple[str, ...],
        index: NgramIndex,
        policy: Policy,
    ):
        from reticent.core.artifact import versions
        from reticent.engine.sampled_text import NUM_CHARACTERS, NUM_DOCUMENTS

        self._samples, self._run, self._model, self._splits = samples, run, model, splits
        self._index, self._policy = index, policy
        inputs = {"split": "split", "spans": "spans", "index": name, "ids": f"tokens/{model.name}/ids"}
        fingerprints = {**run.corpus_input(), **{of: run.fingerprints.of(path) for of, path in inputs.items()}}
        self._cached = Cached(run, f"text-samples/{model.name}/{name}", KIND, fingerprints)
        self._settings: dict[str, Any] = {
            "n": policy.n,
            "seed": run.job.seed,
            "splits": list(splits),
            "size": [NUM_DOCUMENTS, NUM_CHARACTERS],
            "versions": {name: version for name, version in versions().items() if name in READ_BY},
        }
        if name == "index" and (noise := noise_settings(run)):
            self._settings |= {"k": policy.k, **noise}  # supports are those of the draws
        self._numbers: SampledText | None = None
        self._is_cached = False

    def read(self) -> None:
        """Read the numbers: the cached ones, or else those of the text."""
        from reticent.engine.sampled_text import open_sampled_text

        if self._cached.answers(self._fits):
            with suppress(ArtifactError):
                self._numbers = open_sampled_text(self._cached.path)
                self._is_cached = self._cached.answers(self._fits)  # another process may have replaced them
        if not self._is_cached:
            self._read_text()

    def require(self, store: TokenStore) -> TextCheck:
        """Return the check of a store against the sample; `ArtifactError` where its tokens do not fit the text."""
        assert self._numbers is not None
        check = self._numbers.check(store, self._policy)
        if self._is_cached and not check.holds:
            self._read_text()
            check = self._numbers.check(store, self._policy)
        if not check.holds:
            raise ArtifactError(f"tokens: {check.failure()}")
        if not self._is_cached:
            with self._cached.written(self._settings) as folder:
                if folder is not None:
                    self._numbers.write(folder)
        return check

    def _read_text(self) -> None:
        from reticent.engine.detect.spans import SpanReader

        samples, spans = self._samples, SpanReader(self._run.folder / "spans")
        with samples.reading:
            tokenizer = samples.tokenizer_of(self._model)
            sample = samples.of(self._splits)
            self._numbers = sample.read(spans, self._index, tokenizer, max_n=self._policy.n)
        self._is_cached = False

    def _fits(self, made: dict[str, Any]) -> bool:
        is_long_enough: bool = made["n"] >= self._policy.n
        return is_long_enough and {**made, "n": self._policy.n} == self._settings
