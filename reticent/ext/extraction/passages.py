"""Extraction of training text: a model completes a passage from its beginning.

The measures are those of definitions.md#extraction-and-canaries. Passages are drawn from members' documents and,
equally, from held-out ones: completions of text that the model never saw are skill, and are reported beside those of
members. Nothing is sampled: one teacher-forced pass gives the result of greedy decoding, and the probability that a
sample is the passage. Text is generated only for near-verbatim passages, if a job measures them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
from rapidfuzz.distance import Levenshtein

from reticent.audit.config import WHOLE_PASSAGE, ExtractionConfig
from reticent.audit.evidence.extraction import PassageRate, Passages, PassageSettings
from reticent.audit.evidence.json_form import extended
from reticent.audit.evidence.leakage import Excess, Exposed, Sides, Unshared
from reticent.audit.leakage.unshared import standardised_weights
from reticent.audit.scoring.generate import GREEDY, decoding_of, generate, score_continuations
from reticent.audit.stats.intervals import Bootstrap, Counts, bootstrap_of, excess_of, ratio_difference
from reticent.engine.kernels import number_tuples
from reticent.engine.randomness import generator
from reticent.engine.store import TokenStore
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "ExtractionConfig",
    "chance_of_extraction",
    "draw_passages",
    "edit_similarity",
    "exposed_by_passages",
    "extraction_rates",
    "users_of_passages",
]

#: Carlini et al. (2023) call a passage discoverable if a prefix of 50 tokens gives the 50 after it.
DISCOVERABLE = 50
#: The measure of passages that come back but for a few tokens.
NEAR_VERBATIM = "near_verbatim"
#: Odd, so powers of it have an inverse modulo 2^64.
_ODD = np.uint64(0x9E3779B97F4A7C15)
#: Positions whose texts are compared at once.
_BLOCK = 1 << 22


def chance_of_extraction(log_p: np.ndarray, num_queries: int) -> np.ndarray:
    """Return the probability 1 - (1 - p)^n that at least one of n samples is a given text, from the text's
    log-probability.

    Exact to the last digits where p is tiny, where the formula as written gives 0.

    >>> chance_of_extraction(np.log([1e-18, 0.5, 1.0]), 2).round(20).tolist()
    [2e-18, 0.75, 1.0]
    """
    with np.errstate(divide="ignore"):
        return -np.expm1(num_queries * np.log1p(-np.exp(np.minimum(log_p, 0.0))))


def edit_similarity(written: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return 1 - edit distance / longer length of each generated and true row of tokens, float64 (N,).

    A model that returns a passage but for a word has returned it to whoever reads it [@ippolito2023].

    Parameters
    ----------
    written, true : int array, shape (N, S); -1 in ``written`` after the end of a text

    >>> edit_similarity(np.array([[1, 2, 3, 4], [1, 9, 3, 4], [2, 3, 4, -1]]), np.array([[1, 2, 3, 4]] * 3))
    array([1.  , 0.75, 0.75])
    """
    pairs = zip(written.tolist(), true.tolist(), strict=True)
    return np.array([Levenshtein.normalized_similarity([t for t in row if t >= 0], own) for row, own in pairs])


def draw_passages(
    store: TokenStore, chosen: np.ndarray, length: int, num_passages: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one random passage of ``length`` tokens from each of up to ``num_passages`` chosen documents; return
    (documents, first token positions), int64.

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


def users_of_passages(
    store: TokenStore, starts: np.ndarray, length: int, members: np.ndarray, units: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Count for each passage the privacy units (individuals or households) with a document that contains it; its first
    and last token need not agree. Return two int arrays (passages,): the number among members, and among the others.

    Parameters
    ----------
    starts : int64 array, first tokens of the passages
    members : bool array, shape (store.num_documents,)
    units : unit of each individual, by code; None: each is one

    Cost: a pass over the tokens, by sums of their products with powers of one number; what these find is compared.
    """
    trim = int(length > 2)
    starts, length = starts + trim, length - 2 * trim
    ids = store.input_ids
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(length, _ODD, dtype=np.uint64))
        cells = ids[starts[:, None] + np.arange(length)].astype(np.uint64)
        wanted = np.unique((cells * powers).sum(axis=1, dtype=np.uint64))
        places = [np.empty(0, dtype=np.int64)]
        for first in range(0, len(ids) - length + 1 if len(wanted) else 0, _BLOCK):
            block = ids[first : first + _BLOCK + length - 1].astype(np.uint64)
            rising = np.cumprod(np.full(len(block), _ODD, dtype=np.uint64))
            falling = np.cumprod(np.full(len(block), pow(int(_ODD), -1, 1 << 64), dtype=np.uint64)) * _ODD
            sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(block * rising, dtype=np.uint64)])
            hashes = (sums[length:] - sums[:-length]) * falling[: len(block) - length + 1]
            row = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            places.append(first + np.flatnonzero(wanted[row] == hashes))
    found = np.concatenate(places)
    documents = np.searchsorted(store.doc_offsets, found, "right") - 1
    inside = found + length <= store.doc_offsets[documents + 1]
    found, documents = found[inside], documents[inside]
    both = np.concatenate([starts, found]).astype(np.int64)
    numbers, _ = number_tuples(ids, both, np.full(len(both), length, dtype=np.int32))
    of_unit = store.individual if units is None else units[store.individual]
    pairs = np.unique(np.stack([numbers[len(starts) :], of_unit[documents], members[documents]]), axis=1)
    size = int(numbers.max(initial=-1)) + 1
    own, others = (np.bincount(pairs[0][pairs[2] == side], minlength=size) for side in (1, 0))
    return own[numbers[: len(starts)]], others[numbers[: len(starts)]]


def extraction_rates(
    model: PreTrainedModel,
    store: TokenStore,
    members: np.ndarray,
    special: SpecialIds,
    config: ExtractionConfig,
    *,
    units: np.ndarray | None = None,
    kept: np.ndarray | None = None,
    progress: Callable[[int], None] | None = None,
) -> Passages:
    """Return extraction rates of a causal model, for members and for held-out individuals: the share of random passages
    whose suffix the model generates from their prefix. They are also given without the held-out individuals whose
    documents resemble a member's (False in ``kept``).

    Parameters
    ----------
    store : tokens of both sides; the flags show which passages have a protected word in the suffix
    members : bool array, shape (store.num_documents,)
    units : unit of each individual, by code, as for `bootstrap_of`
    kept : bool array by code, who is not left out for near-copies, or None

    Returns
    -------
    Passages
        Over "all" passages, and over those with a "protected" word in the suffix. Rates are over passages, intervals
        over individuals; a rate of 0 has the exact bound. Each is also given over passages that no document of the
        other side has, standardised by their number of users.
    """
    length = max(config.prefix_tokens) + config.suffix_tokens
    is_member = np.asarray(members, dtype=bool)
    own, others = (_PassagesOfSide(store, chosen, length, config) for chosen in (is_member, ~is_member))
    own.score(model, special, config, partial(_report_progress, progress, 0))
    others.score(
        model, special, config, partial(_report_progress, progress, len(own.documents) * len(config.prefix_tokens))
    )
    bootstrap = bootstrap_of(config.num_bootstrap, config.seed, units)
    ends = np.concatenate([own.ends, others.ends])
    by_members, by_others = users_of_passages(store, ends, config.suffix_tokens, is_member, units)
    first = len(own.documents)
    for side, rows in ((own, slice(0, first)), (others, slice(first, None))):
        side.users = by_members[rows] + by_others[rows]
        side.shared = (by_members[rows] > 0) & (by_others[rows] > 0)
    rates = [
        extended(
            _compare_sides(own, others, measure.key, asked, kept, **bootstrap),
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
    with_room = np.diff(store.doc_offsets) >= length
    return Passages(
        settings=PassageSettings(
            prefix_tokens=list(config.prefix_tokens),
            suffix_tokens=config.suffix_tokens,
            decoding=str(decoding_of(config)),
            num_queries=list(config.num_queries),
            probability=config.probability,
            num_passages=config.num_passages,
            near_verbatim=config.near_verbatim,
        ),
        num_passages=Sides(members=len(own.documents), heldout=len(others.documents)),
        num_short=Sides(members=own.num_short, heldout=others.num_short),
        rates=rates,
        asks_every_member=set(own.codes) == set(store.individual[is_member & with_room]),
        of_one_side=[*own.rows_of_one_side(True), *others.rows_of_one_side(False)]
        if config.suffix_tokens >= WHOLE_PASSAGE
        else None,
    )


def exposed_by_passages(passages: Passages, base_passages: Passages, **bootstrap: Unpack[Bootstrap]) -> Exposed | None:
    """Return the shares of members and of held-out individuals with a passage that the model extracts and the base
    model does not. Passages that stand in documents of both sides do not count; None if passages are too short to tell.
    """
    if passages.of_one_side is None or base_passages.of_one_side is None:
        return None
    before = {document: back for document, _, _, back in base_passages.of_one_side}
    rows = [row for row in passages.of_one_side if row[0] in before]
    sides = []
    for side in (1, 0):
        own = [(code, back and not before[document]) for document, code, is_member, back in rows if is_member == side]
        codes, row = np.unique(np.array([code for code, _ in own], dtype=np.int64), return_inverse=True)
        back = np.bincount(row.reshape(-1), [float(value) for _, value in own], minlength=len(codes)) > 0
        sides.append((back.astype(np.float64), np.ones(len(codes)), codes))
    return extended(excess_of(*sides, **bootstrap), Exposed)


def _compare_sides(
    members: _PassagesOfSide,
    heldout: _PassagesOfSide,
    measure: tuple[str, int],
    selection: str,
    kept: np.ndarray | None,
    **bootstrap: Unpack[Bootstrap],
) -> Excess:
    """Return two extraction rates and their difference: of the members' and of the held-out individuals' passages.
    ``measure`` (name, prefix length or number of samples) says when a passage counts as extracted, ``selection`` ("all"
    or "protected") which passages are counted.

    The same is given for the passages that only one side has, and without held-out individuals who have a near-copy of
    a member's document. ``measure`` is (name, number of tokens), ``selection`` the name of a choice of passages."""
    chosen = np.concatenate([members.asked[selection], heldout.asked[selection]])
    alone = chosen & ~np.concatenate([members.shared, heldout.shared])
    of_members = np.arange(len(chosen)) < len(members.documents)
    users = np.concatenate([members.users, heldout.users])
    weights = standardised_weights(users, alone & of_members, alone & ~of_members)
    sides = (
        members.count_by_individual(measure, selection, weights[of_members]),
        heldout.count_by_individual(measure, selection, weights[~of_members]),
    )
    found = excess_of(
        members.count_by_individual(measure, selection), heldout.count_by_individual(measure, selection), **bootstrap
    )
    one_side = excess_of(*sides, **bootstrap)
    without = None
    if kept is not None:
        of_kept = heldout.count_by_individual(
            measure, selection, kept[heldout.codes[heldout.individuals]].astype(np.float64)
        )
        without = ratio_difference(members.count_by_individual(measure, selection), of_kept, **bootstrap)
    return replace(
        found,
        without_copies=without,
        unshared=Unshared(
            members=one_side.members,
            heldout=one_side.heldout,
            excess=one_side.excess,
            num_shared=int(np.count_nonzero(chosen & ~alone)),
            num_unmatched=int(np.count_nonzero(alone & of_members & (weights == 0))),
        ),
    )


def _report_progress(progress: Callable[[int], None] | None, before: int, done: int) -> None:
    """Call the callback ``progress``, if there is one, with the total ``before + done``."""
    if progress:
        progress(before + done)


class _Measure(NamedTuple):
    """One extraction measure, and the key of its outcomes in `_PassagesOfSide.outcomes`."""

    key: tuple[str, int]
    name: str
    prefix_tokens: int
    num_queries: int | None = None
    probability: float | None = None


def _measures(config: ExtractionConfig) -> Iterator[_Measure]:
    """Yield the extraction measures of the settings: greedy for each prefix length, near-verbatim, and by number of
    samples.
    """
    for k in config.prefix_tokens:
        is_discoverable = k == config.suffix_tokens == DISCOVERABLE
        yield _Measure(("greedy", k), "discoverable" if is_discoverable else "k_extractable", k)
    longest = max(config.prefix_tokens)
    if config.near_verbatim is not None:
        yield _Measure(("near", longest), NEAR_VERBATIM, longest)
    for n in config.num_queries:
        yield _Measure(("drawn", n), "np_discoverable", longest, n, config.probability)


class _PassagesOfSide:
    """The passages of one side (members or held-out), and which of them were extracted by each measure."""

    def __init__(self, store: TokenStore, chosen: np.ndarray, length: int, config: ExtractionConfig):
        self.documents, starts = draw_passages(store, chosen, length, config.num_passages, config.seed)
        self.num_short = int(np.count_nonzero(chosen & (np.diff(store.doc_offsets) < length)))
        cells = starts[:, None] + np.arange(length)
        self.ids = store.input_ids[cells].astype(np.int64)
        self.ends = starts + length - config.suffix_tokens
        self.users, self.shared = np.ones(len(starts), dtype=np.int64), np.zeros(len(starts), dtype=bool)
        protected = (store.flags[cells[:, -config.suffix_tokens :]] != 0).any(axis=1)
        self.asked = {"all": np.ones(len(starts), dtype=bool), "protected": protected}
        self.codes, self.individuals = np.unique(store.individual[self.documents], return_inverse=True)
        self.outcomes: dict[tuple[str, int], np.ndarray] = {}

    def score(self, model: Any, special: SpecialIds, config: ExtractionConfig, progress: Any) -> None:
        """Run a model on the passages, and store in ``outcomes`` which of them it extracts, by each measure (greedy
        decoding, near-verbatim, number of samples).
        """
        log_p = np.empty(0)
        for number, k in enumerate(config.prefix_tokens):
            done = number * len(self.ids)
            self.outcomes["greedy", k], log_p = score_continuations(
                model, self.ids[:, -(k + config.suffix_tokens) :], k, special=special,
                decoding=decoding_of(config), batch_size=config.batch_size, device=config.device,
                bf16=config.bf16, progress=partial(_report_progress, progress, done),
            )  # fmt: skip
        for n in config.num_queries:  # ends of the longest prefixes
            self.outcomes["drawn", n] = chance_of_extraction(log_p, n) >= config.probability
        if config.near_verbatim is not None:
            longest = max(config.prefix_tokens)
            made = generate(
                model, list(self.ids[:, :longest]), special=special, num_tokens=config.suffix_tokens, decoding=GREEDY,
                batch_size=config.batch_size, seed=config.seed, device=config.device, bf16=config.bf16,
            )  # fmt: skip
            near = edit_similarity(made[:, 0], self.ids[:, longest:]) >= config.near_verbatim
            self.outcomes["near", longest] = near | self.outcomes["greedy", longest]

    def count_by_individual(
        self, measure: tuple[str, int], selection: str, weights: np.ndarray | None = None
    ) -> Counts:
        """Return three arrays over individuals: number of their extracted passages, number of all their passages,
        individual code. ``measure`` says when a passage counts as extracted, ``selection`` ("all" or "protected") which
        passages are counted, and ``weights`` (default: 1) how much each counts.
        """
        wanted, num = self.asked[selection], len(self.codes)
        weighed = wanted.astype(np.float64) if weights is None else wanted * weights
        values: Sequence[np.ndarray] = (weighed * self.outcomes[measure], weighed)
        back, all_ = (np.bincount(self.individuals, weights=value, minlength=num) for value in values)
        return back, all_, self.codes

    def rows_of_one_side(self, is_member: bool) -> list[list[int]]:
        """Return one row [document, individual code, is member, is extracted] for each passage of this side that no
        document of the other side contains. It is extracted if greedy decoding completes it after a prefix of any
        tested length.
        """
        back = np.zeros(len(self.documents), dtype=bool)
        for (kind, _), outcome in self.outcomes.items():
            if kind == "greedy":
                back |= np.asarray(outcome, dtype=bool)
        columns = self.documents, self.codes[self.individuals], back
        return [
            [int(document), int(code), int(is_member), int(came)]
            for document, code, came, shared in zip(*columns, self.shared, strict=True)
            if not shared
        ]
