"""Extraction of training text: a model completes a passage of which it is given the start.

The measures are those of definitions.md#extraction-and-canaries. Passages are drawn from members' documents and,
equally, from held-out ones: completions of text that the model never saw are skill, and stand beside those of
members. Nothing is sampled: one teacher-forced pass gives the result of greedy decoding, and the probability that a
draw gives the passage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reticent.audit.config import ExtractionConfig
from reticent.audit.evidence.extraction import PassageRate, Passages, PassageSettings
from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.leakage import Sides
from reticent.audit.scoring.generate import Decoding, score_continuations
from reticent.audit.stats.intervals import Counts, bootstrap_of, excess_of
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ExtractionConfig", "chance_of_extraction", "draw_passages", "extraction_rates"]

#: Carlini et al. (2023) call a passage discoverable if a prefix of 50 tokens gives the 50 after it.
DISCOVERABLE = 50


def decoding_of(config: ExtractionConfig) -> Decoding:
    """Return the decoding of the adversary of (n, p)-discoverable extraction."""
    return Decoding(temperature=config.temperature, top_k=config.top_k)


def chance_of_extraction(log_p: np.ndarray, num_queries: int) -> np.ndarray:
    """Return 1 - (1 - p)^n from log-probabilities: the chance that n draws give a text at least once.

    Exact to the last digits where p is tiny, where the formula as written gives 0.

    >>> chance_of_extraction(np.log([1e-18, 0.5, 1.0]), 2)
    array([2.  e-18, 7.5e-01, 1.0e+00])
    """
    with np.errstate(divide="ignore"):
        return -np.expm1(num_queries * np.log1p(-np.exp(np.minimum(log_p, 0.0))))


def draw_passages(
    store: TokenStore, chosen: np.ndarray, length: int, num_passages: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (documents, positions of their passages' first tokens), int64, both in the order of the documents.

    Each document has one passage of ``length`` tokens, anywhere in it. If there are more documents than wanted, some
    are chosen at random. The passage of a document does not depend on the choice of others.

    Parameters
    ----------
    chosen : bool array, shape (num_documents,)
    """
    random = generator(seed, 31)
    where, turn = random.random(store.num_documents), random.random(store.num_documents)
    room = np.diff(store.doc_offsets) - length
    documents = np.flatnonzero(chosen & (room >= 0))
    documents = np.sort(documents[np.argsort(turn[documents], kind="stable")[:num_passages]])
    return documents, store.doc_offsets[documents] + np.floor(where[documents] * (room[documents] + 1)).astype(np.int64)


def extraction_rates(
    model: PreTrainedModel,
    store: TokenStore,
    members: np.ndarray,
    special: SpecialIds,
    config: ExtractionConfig,
    *,
    units: np.ndarray | None = None,
    progress: Callable[[int], None] | None = None,
) -> Passages:
    """Return the share of passages that come back from a causal model, of members and of held-out individuals.

    Parameters
    ----------
    store : tokens of both sides; the flags show which passages have a protected word in the suffix
    members : bool array, shape (store.num_documents,)
    units : unit of each individual, by code, as for `bootstrap_of`

    Returns
    -------
    Passages
        Over "all" passages, and over those with a "protected" word in the suffix. Rates are over passages, intervals
        over individuals; a rate of 0 has the exact bound.
    """
    length = max(config.prefix_tokens) + config.suffix_tokens
    is_member = np.asarray(members, dtype=bool)
    own, others = (_Drawn(store, chosen, length, config) for chosen in (is_member, ~is_member))
    own.ask(model, special, config, partial(_advance, progress, 0))
    others.ask(model, special, config, partial(_advance, progress, len(own.documents) * len(config.prefix_tokens)))
    bootstrap = bootstrap_of(config.num_bootstrap, config.seed, units)
    rates = [
        extended(
            excess_of(own.ratio(measure.key, asked), others.ratio(measure.key, asked), **bootstrap),
            PassageRate,
            measure=measure.name,
            prefix_tokens=measure.prefix_tokens,
            num_queries=measure.num_queries,
            asked=asked,
            probability=measure.probability,
        )
        for measure in _measures(config)
        for asked in ("all", "protected")
    ]
    return Passages(
        settings=PassageSettings(
            prefix_tokens=list(config.prefix_tokens),
            suffix_tokens=config.suffix_tokens,
            decoding=str(decoding_of(config)),
            num_queries=list(config.num_queries),
            probability=config.probability,
            num_passages=config.num_passages,
        ),
        num_passages=Sides(members=len(own.documents), heldout=len(others.documents)),
        num_short=Sides(members=own.num_short, heldout=others.num_short),
        rates=rates,
    )


def _advance(progress: Callable[[int], None] | None, before: int, done: int) -> None:
    if progress:
        progress(before + done)


class _Measure(NamedTuple):
    """A measure and the key of its outcomes."""

    key: tuple[str, int]
    name: str
    prefix_tokens: int
    num_queries: int | None = None
    probability: float | None = None


def _measures(config: ExtractionConfig) -> Iterator[_Measure]:
    for k in config.prefix_tokens:
        is_discoverable = k == config.suffix_tokens == DISCOVERABLE
        yield _Measure(("greedy", k), "discoverable" if is_discoverable else "k_extractable", k)
    longest = max(config.prefix_tokens)
    for n in config.num_queries:
        yield _Measure(("drawn", n), "np_discoverable", longest, n, config.probability)


class _Drawn:
    """The passages of one side, and those that came back."""

    def __init__(self, store: TokenStore, chosen: np.ndarray, length: int, config: ExtractionConfig):
        self.documents, starts = draw_passages(store, chosen, length, config.num_passages, config.seed)
        self.num_short = int(np.count_nonzero(chosen & (np.diff(store.doc_offsets) < length)))
        cells = starts[:, None] + np.arange(length)
        self.ids = store.input_ids[cells].astype(np.int64)
        protected = (store.flags[cells[:, -config.suffix_tokens :]] != 0).any(axis=1)
        self.asked = {"all": np.ones(len(starts), dtype=bool), "protected": protected}
        self.codes, self.individuals = np.unique(store.individual[self.documents], return_inverse=True)
        self.outcomes: dict[tuple[str, int], np.ndarray] = {}

    def ask(self, model: Any, special: SpecialIds, config: ExtractionConfig, progress: Any) -> None:
        log_p = np.empty(0)
        for number, k in enumerate(config.prefix_tokens):
            done = number * len(self.ids)
            self.outcomes["greedy", k], log_p = score_continuations(
                model, self.ids[:, -(k + config.suffix_tokens) :], k, special=special,
                decoding=decoding_of(config), batch_size=config.batch_size, device=config.device,
                bf16=config.bf16, progress=partial(_advance, progress, done),
            )  # fmt: skip
        for n in config.num_queries:  # ends of the longest prefixes
            self.outcomes["drawn", n] = chance_of_extraction(log_p, n) >= config.probability

    def ratio(self, key: tuple[str, int], asked: str) -> Counts:
        """Return the passages that came back and all passages, for each individual, and who these are."""
        wanted, num = self.asked[asked], len(self.codes)
        weights: Sequence[np.ndarray] = (wanted & self.outcomes[key], wanted)
        back, all_ = (np.bincount(self.individuals, weights=weight, minlength=num) for weight in weights)
        return back, all_, self.codes
