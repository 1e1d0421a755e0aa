"""Candidate texts, or texts that a model writes from nothing, ranked by how likely it makes them.

A text that a model was trained on has a low perplexity under it [@carlini2021]. A simple text has one too, so three
numbers stand beside it: the base model's loss over the model's, the loss over the size of the text after zlib, and the
share of a run's held-out documents that are likelier. An item behind what is given of a person is also scored alone: it
is linked where Pr(item | given) > Pr(item) (definition 1 of [@kim2023]).

Texts are in memory alone. Nothing here logs one, and errors name lines.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from reticent.audit.membership.attacks import loss_score, ratio_score, zlib_score
from reticent.audit.scoring.generate import Decoding, generate
from reticent.audit.scoring.scores import score_models
from reticent.audit.scoring.token_scores import TokenScores
from reticent.core.errors import PolicyError
from reticent.engine.document_kernels import document_sums
from reticent.engine.randomness import generator
from reticent.engine.schema import HELDOUT
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.ext.score.texts import Candidate
from reticent.job.auditing import audited_tokens
from reticent.trainer.models import check_fit, load_model, load_tokenizer, max_positions, special_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from reticent.job.run import Run

#: Held-out documents that a text is compared with at most.
MOST_HELDOUT = 1000
#: Tokens of a window at most.
WINDOW = 512
_STREAM = 71


class Scorer:
    """A model, and the base model that it is compared with, if any.

    Raises
    ------
    ArtifactError
        A model or its tokenizer cannot be read.
    PolicyError
        The base predicts other tokens than the model.
    """

    def __init__(self, model: str, objective: str, base: str | None = None, *, device: str = "auto"):
        self.objective, self._device = objective, device
        self.tokenizer: PreTrainedTokenizerFast = load_tokenizer(model)
        if base is not None and load_tokenizer(base).get_vocab() != self.tokenizer.get_vocab():
            raise PolicyError("--base: it has another tokenizer than the model, so their losses cannot be compared")
        self.special = special_ids(self.tokenizer, objective)
        self._models = [load_model(path, objective) for path in (model, base) if path is not None]
        self._window = min(WINDOW, *map(max_positions, self._models))

    def measure(
        self,
        candidates: Sequence[Candidate],
        heldout: TokenStore | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a row for each candidate, of the lowest perplexity first; texts without a scored token last.

        A row has ``number``, ``tokens``, ``perplexity`` (of a masked model the pseudo-perplexity), ``zlib`` (nats a
        byte of the compressed text), ``ratio`` (the base's loss over the model's) with a base, ``quantile`` and
        ``ratio_quantile`` (shares of the held-out documents that are likelier, or have a higher ratio) with documents,
        and of a text behind something given ``perplexity_given``, ``log_p_given``, ``log_p`` and ``linked``; None where
        there is none.

        Parameters
        ----------
        heldout : documents to compare with, of the same tokenizer
        """
        own, *base = self._scores(self.store_of([each.text for each in candidates]), progress)
        of_others = self._scores(heldout) if heldout is not None and heldout.num_documents else []
        found = _numbers(own, base, np.array([len(zlib.compress(each.text.encode())) for each in candidates]))
        log_p, tokens = document_sums(own.log_probs, own.scored, own.doc_offsets)
        given = self._given(candidates)
        compared = _numbers(of_others[0], of_others[1:]) if of_others else {}
        rows = []
        for row, candidate in enumerate(candidates):
            numbers: dict[str, Any] = {"number": candidate.number, "tokens": int(tokens[row])}
            numbers |= {name: _finite(values[row]) for name, values in found.items() if name != "loss"}
            numbers["perplexity"] = _finite(math.exp(min(found["loss"][row], 700.0)))
            for name, of in (("quantile", "loss"), ("ratio_quantile", "ratio")):
                if of in compared and tokens[row]:
                    beyond = compared[of] < found[of][row] if of == "loss" else compared[of] > found[of][row]
                    numbers[name] = float(np.mean(beyond))
            if candidate.given is not None:
                (after, behind), alone = given[row], float(log_p[row]) if self.special.prefix is not None else math.nan
                numbers["perplexity_given"] = _finite(math.exp(min(-after / behind, 700.0)) if behind else math.nan)
                numbers |= {"log_p_given": _finite(after), "log_p": _finite(alone)}
                numbers["linked"] = None if math.isnan(after + alone) else after > alone
            rows.append(numbers)
        return sorted(rows, key=lambda row: (row["perplexity"] is None, row["perplexity"], row["number"]))

    def write(
        self,
        num: int,
        *,
        num_tokens: int,
        decoding: Decoding,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> list[Candidate]:
        """Return so many texts that a causal model writes from its prefix token alone, blank ones left out.

        Raises
        ------
        PolicyError
            The model is masked, or has no token to begin with.
        """
        if self.objective != "clm":
            raise PolicyError("--generate: a masked model writes no text")
        if self.special.prefix is None:
            raise PolicyError("--generate: the model has no token to begin a text with")
        prompts = [np.empty(0, dtype=np.int64)] * num
        made = generate(
            self._models[0], prompts, special=self.special, num_tokens=num_tokens, decoding=decoding, seed=seed,
            device=self._device, progress=progress,
        )  # fmt: skip
        rows = [row[row >= 0].tolist() for row in made[:, 0]]
        texts = core_tokenizer(self.tokenizer).decode(rows, skip_special_tokens=True)
        return [Candidate(number, text) for number, text in enumerate(texts, start=1) if text.strip()]

    def heldout_of(self, run: Run) -> TokenStore:
        """Return held-out documents of a run, `MOST_HELDOUT` at most, in tokens of this model.

        Raises
        ------
        PolicyError
            No model of the run has this tokenizer.
        ArtifactError
            The tokens of the audit are not there.
        """
        for section in run.job.model:
            store = audited_tokens(run, section.name, "audit")
            if load_tokenizer(store.tokenizer_path).get_vocab() == self.tokenizer.get_vocab():
                documents = np.flatnonzero(run.individuals.mask(HELDOUT)[store.individual])
                if len(documents) > MOST_HELDOUT:
                    random = generator(run.job.seed, _STREAM)
                    documents = np.sort(random.choice(documents, MOST_HELDOUT, replace=False))
                return store.select(documents)
        raise PolicyError("--run: no model of this run has the tokenizer of the model")

    def store_of(self, texts: Sequence[str]) -> TokenStore:
        """Return texts as a store of their tokens; words are those of the tokenizer."""
        return _store_of(self._encoded(texts))

    def _scores(
        self, store: TokenStore, progress: Callable[[int], None] | None = None, *, with_base: bool = True
    ) -> list[TokenScores]:
        for model in self._models:
            check_fit(model, store, self.tokenizer, self.special, self._window)
        models = self._models if with_base else self._models[:1]
        return score_models(
            models, self.objective, store, self.special, window_length=self._window, device=self._device,
            progress=progress,
        )  # fmt: skip

    def _given(self, candidates: Sequence[Candidate]) -> dict[int, tuple[float, int]]:
        """The summed log-probability of each text behind what is given, and its tokens, by row of those that have
        something given."""
        rows = [row for row, each in enumerate(candidates) if each.given is not None]
        if not rows:
            return {}
        encoded = self._encoded([f"{candidates[row].given}{candidates[row].text}" for row in rows])
        store = _store_of(encoded)
        (scores,) = self._scores(store, with_base=False)
        ends = np.array([end for each in encoded for _, end in each.offsets], dtype=np.int64)
        behind = ends > np.repeat([len(candidates[row].given or "") for row in rows], np.diff(store.doc_offsets))
        totals, counts = document_sums(scores.log_probs, scores.scored & behind, store.doc_offsets)
        _, whole = document_sums(scores.log_probs, behind, store.doc_offsets)
        totals = np.where((counts > 0) & (counts == whole), totals, np.nan)
        return dict(zip(rows, zip(totals.tolist(), counts.tolist(), strict=True), strict=True))

    def _encoded(self, texts: Sequence[str]) -> list[Any]:
        return core_tokenizer(self.tokenizer).encode(list(texts))


def _store_of(encoded: Sequence[Any]) -> TokenStore:
    ids = [np.array(each.ids, dtype=np.uint32) for each in encoded]
    words = [np.array([-1 if word is None else word for word in each.word_ids], dtype=np.int32) for each in encoded]
    offsets = np.cumsum([0, *map(len, ids)]).astype(np.int64)
    flags = np.zeros(int(offsets[-1]), dtype=np.uint8)
    return TokenStore(
        np.concatenate(ids), np.concatenate(words), flags, flags, offsets,
        np.arange(len(encoded), dtype=np.uint32), pa.array([str(row) for row in range(len(encoded))]),
    )  # fmt: skip


def _numbers(
    own: TokenScores, base: Sequence[TokenScores], zlib_bytes: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    found = {"loss": -loss_score(own)}
    if zlib_bytes is not None:
        found["zlib"] = -zlib_score(own, None, zlib_bytes)
    if base:
        found["ratio"] = ratio_score(own, base[0])
    return found


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
