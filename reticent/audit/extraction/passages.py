"""Extraction of training text: given the start of a passage, does the model give the rest of it?

The measures are those of definitions.md#extraction-and-canaries. Passages are drawn from members' documents and,
equally, from held-out ones: what a model completes of text it never saw is skill, and stands beside it. Nothing is
sampled: one teacher-forced pass says what greedy decoding would give, and how likely a draw would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reticent.audit.config import ExtractionConfig
from reticent.audit.scoring.generate import Decoding, score_continuations
from reticent.audit.stats.statistics import ratio_difference, ratio_estimate
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["ExtractionConfig", "chance_of_extraction", "draw_passages", "extraction_rates"]

#: Carlini et al. (2023) call a passage discoverable where a prefix of 50 tokens gives the 50 after it.
DISCOVERABLE = 50


def decoding_of(config: ExtractionConfig) -> Decoding:
    """Return how the adversary of (n, p)-discoverable extraction draws."""
    return Decoding(temperature=config.temperature, top_k=config.top_k)


def chance_of_extraction(log_p: np.ndarray, num_queries: int) -> np.ndarray:
    """Return 1 - (1 - p)^n of log-probabilities: the chance that n draws give a text at least once.

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

    One passage of ``length`` tokens a document, anywhere in it; of more documents than wanted a random choice. What is
    drawn for a document does not depend on which others are chosen.

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
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Return what share of the passages a causal model gives back, of members and of held-out individuals.

    Parameters
    ----------
    store : tokens of both sides; flags say which passages ask for a protected word
    members : bool array, shape (store.num_documents,)

    Returns
    -------
    dict
        "settings"; for each side under "num_passages" and "num_short" the documents asked and those too short; and
        under "rates" rows of {"measure", "prefix_tokens", "num_queries", "asked", "members", "heldout", "excess"}.
        "asked" is "all" passages, or those with a "protected" word in the suffix. Rates are over passages, intervals
        over individuals; a rate of 0 has the exact bound.
    """
    length = max(config.prefix_tokens) + config.suffix_tokens
    sides = {"members": np.asarray(members, dtype=bool), "heldout": ~np.asarray(members, dtype=bool)}
    found: dict[str, _Passages] = {}
    for number, (side, chosen) in enumerate(sides.items()):
        found[side] = _Passages(store, chosen, length, config)
        before = sum(len(found[name].documents) for name in list(sides)[:number]) * len(config.prefix_tokens)
        found[side].ask(model, special, config, partial(_advance, progress, before))
    rows = [
        {**about, "asked": asked, **_compare(found, key, asked, config)}
        for key, about in _measures(config)
        for asked in ("all", "protected")
    ]
    settings = {**config.all_values(), "decoding": str(decoding_of(config))}
    del settings["temperature"], settings["top_k"]
    for name in ("batch_size", "device", "seed", "num_bootstrap"):
        del settings[name]
    return {
        "settings": settings,
        "num_passages": {side: len(passages.documents) for side, passages in found.items()},
        "num_short": {side: passages.num_short for side, passages in found.items()},
        "rates": rows,
    }


def _advance(progress: Callable[[int], None] | None, before: int, done: int) -> None:
    if progress:
        progress(before + done)


def _measures(config: ExtractionConfig) -> list[tuple[tuple[str, int], dict[str, Any]]]:
    """Rows of the result: key of the outcomes, and what the row says of itself."""
    rows: list[tuple[tuple[str, int], dict[str, Any]]] = []
    for k in config.prefix_tokens:
        is_discoverable = k == config.suffix_tokens == DISCOVERABLE
        name = "discoverable" if is_discoverable else "k_extractable"
        rows.append((("greedy", k), {"measure": name, "prefix_tokens": k, "num_queries": None}))
    longest = max(config.prefix_tokens)
    for n in config.num_queries:
        about = {"measure": "np_discoverable", "prefix_tokens": longest, "num_queries": n}
        rows.append((("drawn", n), {**about, "probability": config.probability}))
    return rows


class _Passages:
    """The passages of one side, and which of them came back."""

    def __init__(self, store: TokenStore, chosen: np.ndarray, length: int, config: ExtractionConfig):
        self.documents, starts = draw_passages(store, chosen, length, config.num_passages, config.seed)
        self.num_short = int(np.count_nonzero(chosen & (np.diff(store.doc_offsets) < length)))
        cells = starts[:, None] + np.arange(length)
        self.ids = store.input_ids[cells].astype(np.int64)
        protected = (store.flags[cells[:, -config.suffix_tokens :]] != 0).any(axis=1)
        self.asked = {"all": np.ones(len(starts), dtype=bool), "protected": protected}
        self.individuals = np.unique(store.individual[self.documents], return_inverse=True)[1]
        self.outcomes: dict[tuple[str, int], np.ndarray] = {}

    def ask(self, model: Any, special: SpecialIds, config: ExtractionConfig, progress: Any) -> None:
        options: dict[str, Any] = {
            "special": special, "decoding": decoding_of(config),
            "batch_size": config.batch_size, "device": config.device,
        }  # fmt: skip
        log_p = np.empty(0)
        for number, k in enumerate(config.prefix_tokens):
            done = number * len(self.ids)
            self.outcomes["greedy", k], log_p = score_continuations(
                model, self.ids[:, -(k + config.suffix_tokens) :], k, **options,
                progress=partial(_advance, progress, done),
            )  # fmt: skip
        for n in config.num_queries:  # of the longest prefix
            self.outcomes["drawn", n] = chance_of_extraction(log_p, n) >= config.probability

    def ratio(self, key: tuple[str, int], asked: str) -> tuple[np.ndarray, np.ndarray]:
        """Passages that came back and passages, of each individual."""
        wanted, num = self.asked[asked], int(self.individuals.max(initial=-1)) + 1
        weights: Sequence[np.ndarray] = (wanted & self.outcomes[key], wanted)
        back, all_ = (np.bincount(self.individuals, weights=weight, minlength=num) for weight in weights)
        return back, all_


def _compare(
    found: dict[str, _Passages], key: tuple[str, int], asked: str, config: ExtractionConfig
) -> dict[str, dict[str, Any]]:
    options: dict[str, Any] = {"num_bootstrap": config.num_bootstrap, "seed": config.seed}
    members, heldout = (found[side].ratio(key, asked) for side in ("members", "heldout"))
    return {
        "members": ratio_estimate(*members, **options).to_dict(),
        "heldout": ratio_estimate(*heldout, **options).to_dict(),
        "excess": ratio_difference(members, heldout, **options).to_dict(),
    }
