"""The clinical ladder (definitions.md#the-clinical-ladder): how well members' diagnoses are inferred, by the attacker's
knowledge (*rung*).

The score of a diagnosis d of an individual is log p(d | cue) less the logarithm of the sum over its alternatives. Of
each diagnosis A is the area with which the score separates individuals with it from those without it. A cell is the
mean over diagnoses of (A of members - A of held-out individuals) under the model, less the same under the base model:
what a population has in common is in both sides, and what the base knew is in both models.

Intervals are by the influence of each individual on all these areas at once (DeLong), summed over households. So a
person who has one diagnosis and lacks another, and both models' scores of one person, are no independent draws.

N individuals, D diagnoses, R rungs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from reticent.audit.evidence.ladder import Ladder, ToldDiagnoses
from reticent.audit.judgement.rows import simultaneous
from reticent.audit.membership.names import FEWEST_DIAGNOSED, RUNGS
from reticent.audit.scoring.generate import Decoding, score_continuations
from reticent.audit.scoring.rows import DIGITS, padded_rows, sum_log_probs
from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.audit.stats.intervals import Bootstrap, two_sides
from reticent.core.errors import TrainingError
from reticent.engine.randomness import generator
from reticent.engine.tokenizer_library import core_tokenizer
from reticent.trainer.models import max_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent import _rust
    from reticent.audit.evidence.leakage import Excess
    from reticent.ext.ladder.questions import Questions
    from reticent.trainer.windows import SpecialIds

#: "diagnoses" float64 (N, R, D); of a causal model "fragments" and "templates", bool (N, R), and whether each was
#: asked, "fragments asked" and "templates asked".
Scores = dict[str, np.ndarray]
METHOD = "influence of individuals (DeLong)"
#: Tokens of a cue that a model reads at most, the last ones, and of the end of a fragment that must come back.
CUE_TOKENS, END_TOKENS = 128, 8
NUM_FOLDS, _STREAM_FOLDS = 5, 82


# --------------------------------------------------------------------------------------------------------------- scores


def score_ladder(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    questions: Questions,
    prompt: str,
    *,
    causal: bool,
    ends: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Scores:
    """Return a model's log-probability of each diagnosis given what the attacker knows of each individual, float64
    (individuals, rungs, diagnoses), where a rung is an amount of knowledge. For a causal model with ``ends``, return
    also whether it completes sentences of each individual verbatim.

    Cost: for each individual and rung that adds to the cue a forward pass over the cue, which all diagnoses share, and
    each diagnosis; with ``ends`` of a causal model two more, over the ends of a fragment and a template.
    """
    if not causal and special.mask is None:
        raise TrainingError("diagnoses of a masked model need a mask token and the tokenizer has none")
    num, backend = len(questions.codes), core_tokenizer(tokenizer)
    found = np.full((num, len(RUNGS), len(questions.diagnoses)), np.nan)
    names = [each.name for each in questions.diagnoses]
    longest = max(len(each.ids) for each in backend.encode([f"\n{prompt} {name}" for name in names]))
    room = max(min(max_positions(model) - 2 - longest, CUE_TOKENS), 1)
    for row in range(num):
        for rung, cues in enumerate(questions.cues):
            if cues[row] and rung and cues[row] == questions.cues[rung - 1][row]:
                found[row, rung] = found[row, rung - 1]
            elif cues[row]:
                found[row, rung] = _name_log_probs(
                    model, backend, special, cues[row], prompt, names, room, causal=causal
                )
                if np.isnan(found[row, rung]).any():
                    raise TrainingError("diagnoses: the model's logits are not numbers; did training diverge?")
        if progress:
            progress(row + 1)
    scores: Scores = {"diagnoses": found}
    if causal and ends:
        for kind, texts in (("fragments", questions.fragments), ("templates", questions.templates)):
            scores[kind], scores[f"{kind} asked"] = _completed_ends(model, backend, special, questions, texts)
    return scores


def _name_log_probs(
    model: Any,
    backend: _rust.LibraryTokenizer,
    special: SpecialIds,
    cue: str,
    prompt: str,
    names: Sequence[str],
    room: int,
    *,
    causal: bool,
) -> np.ndarray:
    """Return the log-probability of each diagnosis name after a cue (what the attacker knows) and a prompt, float64
    (D,); the cue is cut to its last ``room`` tokens.
    """
    (ids,) = backend.encode([cue])
    if len(ids.ids) > room:
        cue = cue[ids.offsets[len(ids.ids) - room][0] :]
    before = f"{cue}\n{prompt} "
    encoded = backend.encode([before + name for name in names])
    spans = np.array([(len(before), len(before) + len(name)) for name in names])
    rows, groups, attention = padded_rows(encoded, spans, special)
    if causal:
        groups[:, 0] = -1  # nothing predicts the first token of a row
        differ = np.flatnonzero((rows != rows[:1]).any(axis=0) | (groups >= 0).any(axis=0))
        shared = int(differ[0]) if len(rows) > 1 and len(differ) else 0
        return sum_log_probs(model, rows, rows, groups, causal=True, shared=shared)[:, 0]
    read = np.where(groups >= 0, special.mask or 0, rows)
    return sum_log_probs(model, read, rows, groups, causal=False, attention=attention)[:, 0]


def _completed_ends(
    model: Any, backend: _rust.LibraryTokenizer, special: SpecialIds, questions: Questions, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return two bool arrays (N, R): whether a causal model, after a cue and the first half of a text, writes the first
    `END_TOKENS` tokens of the second half verbatim; and whether this was tested.
    """
    came, asked = (np.zeros((len(texts), len(RUNGS)), dtype=bool) for _ in range(2))
    prompts: dict[int, list[tuple[int, int, list[int]]]] = {}
    room = min(CUE_TOKENS, max_positions(model) - END_TOKENS - 2)
    for row, text in enumerate(texts):
        words = text.split()
        begin, end = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
        for rung, cues in enumerate(questions.cues):
            if not text or not cues[row]:
                continue
            before = f"{cues[row]}\n{begin}"
            (whole,) = backend.encode([f"{before} {end}"])  # alone, an end has another first token in some models
            cut = next((n for n, (_, stop) in enumerate(whole.offsets) if stop > len(before)), len(whole.ids))
            known, rest = whole.ids[max(cut - room, 0) : cut], whole.ids[cut : cut + END_TOKENS]
            if len(rest) == END_TOKENS:
                prompts.setdefault(len(known), []).append((row, rung, [*known, *rest]))
    for length, rows in prompts.items():
        ids = np.array([ids for _, _, ids in rows])
        at = tuple(np.array([row[:2] for row in rows]).T)
        came[at], _ = score_continuations(
            model, ids, length, special=special, decoding=Decoding(), device=str(model.device)
        )
        asked[at] = True
    return came, asked


# ----------------------------------------------------------------------------------------------------------- statistics


def _auc_with_influence(scores: np.ndarray, has: np.ndarray, lacks: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the AUC of the scores where ``has`` over those where ``lacks`` (bool arrays), and the influence of each
    individual on it, float64 (N,).
    """
    own, other, influence = scores[has], scores[lacks], np.zeros(len(scores))
    wins = [
        (np.searchsorted(np.sort(b), a, side="left") + np.searchsorted(np.sort(b), a, side="right")) / 2 / len(b)
        for a, b in ((own, other), (other, own))
    ]
    area = float(wins[0].mean())
    influence[has] = (wins[0] - area) / len(own)
    influence[lacks] = (1 - wins[1] - area) / len(other)
    return area, influence


def log_odds_against_rest(log_probs: np.ndarray) -> np.ndarray:
    """Return the log-odds of each diagnosis against all other diagnoses together, from log-probabilities; both float64
    (N, D)."""
    others = (np.delete(log_probs, d, axis=1) for d in range(log_probs.shape[1]))
    rest = np.stack([np.logaddexp.reduce(own, axis=1) for own in others], axis=1)
    return np.round(log_probs - rest, DIGITS)


def diagnosis_auc_excess(
    questions: Questions,
    scores: np.ndarray,
    base: np.ndarray | None,
    has: np.ndarray,
    lacks: np.ndarray,
    chosen: np.ndarray,
) -> tuple[Estimate, int, int]:
    """Return an AUC difference, averaged over diagnoses: how well scores tell who ``has`` a diagnosis from who
    ``lacks`` it, for members minus held-out individuals, minus the same of the base model. Return then the number of
    diagnoses, and of individuals (or households) in the smallest group.

    Parameters
    ----------
    scores, base : float arrays, shape (N, D); NaN rows are left out
    has, lacks : bool arrays, shape (N, D)
    chosen : int array, the diagnoses to look at; those with fewer than `FEWEST_DIAGNOSED` in a group are left out
    """
    known = ~np.isnan(scores).any(axis=1) & (True if base is None else ~np.isnan(base).any(axis=1))
    cells, influences, fewest = [], [], []
    for d in chosen.tolist():
        groups = [
            (who[:, d] & known & side) for side in (questions.is_member, ~questions.is_member) for who in (has, lacks)
        ]
        least = min(len(np.unique(questions.units[group])) for group in groups)
        if least < FEWEST_DIAGNOSED:
            continue
        value, influence = 0.0, np.zeros(len(known))
        for own, sign in ((scores, 1), (base, -1)):
            for (with_it, without), side in (((groups[0], groups[1]), sign), ((groups[2], groups[3]), -sign)):
                if own is not None:
                    area, moved = _auc_with_influence(own[:, d], with_it, without)
                    value, influence = value + side * area, influence + side * moved
        cells.append(value)
        influences.append(influence)
        fewest.append(least)
    if not cells:
        return Estimate(value=None, n=0, method=METHOD), 0, 0
    return (
        _influence_estimate(float(np.mean(cells)), np.mean(influences, axis=0), questions.units),
        len(cells),
        min(fewest),
    )


def _influence_estimate(value: float, influence: np.ndarray, units: np.ndarray) -> Estimate:
    """Return an estimate with a normal interval, whose standard error is computed from each individual's influence on
    the ``value`` (influence function), summed within households (``units``).
    """
    used = influence != 0
    _, unit = np.unique(units, return_inverse=True)
    sums = np.bincount(unit, weights=influence)
    num, n = len(np.unique(units[used])), int(np.count_nonzero(used))
    error = math.sqrt(float(np.sum(sums**2)) * num / max(num - 1, 1))
    reach = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2) * error
    if error == 0:  # equal scores say nothing of how sure the number is
        return Estimate(value=value, n=len(units), method=METHOD)
    return Estimate(value=value, low=value - reach, high=value + reach, n=n, num_households=num if num < n else None,
                    method=METHOD)  # fmt: skip


def cue_scores(questions: Questions, seed: int) -> np.ndarray:
    """Return the log-odds of each diagnosis from the words of the cues (what the attacker knows) alone, without the
    model, by naive Bayes cross-validated over households; float64 (N, R, D), NaN without a cue.
    """
    num, units = len(questions.codes), questions.units
    found = np.full((num, len(questions.cues), len(questions.diagnoses)), np.nan)
    names = np.unique(units)
    fold = generator(seed, _STREAM_FOLDS).permutation(len(names))[np.searchsorted(names, units)] % NUM_FOLDS
    for rung, cues in enumerate(questions.cues):
        bags = [cue.casefold().split() for cue in cues]
        numbers: dict[str, int] = {}
        for word in (word for bag in bags for word in bag):
            numbers.setdefault(word, len(numbers))
        columns = np.array([numbers[word] for bag in bags for word in bag], dtype=np.int64)
        rows = np.repeat(np.arange(num), [len(bag) for bag in bags])
        for number in range(NUM_FOLDS):
            learned, asked = fold[rows] != number, fold[rows] == number
            for d in range(len(questions.diagnoses)):
                has = questions.written[rows, d]
                counts = [np.bincount(columns[learned & side], minlength=len(numbers)) + 1.0 for side in (has, ~has)]
                odds = np.log(counts[0] / counts[0].sum()) - np.log(counts[1] / counts[1].sum())
                total = np.bincount(rows[asked], weights=odds[columns[asked]], minlength=num)
                mine = (fold == number) & np.array([bool(bag) for bag in bags])
                found[mine, rung, d] = total[mine]
    return found


def ladder(
    questions: Questions,
    scores: Scores,
    base: Scores | None,
    out: np.ndarray | None = None,
    *,
    seed: int,
    households: np.ndarray | None = None,
    num_bootstrap: int = 1000,
) -> Ladder:
    """Measure how well a model reveals members' diagnoses beyond the base model, for each rung (amount of the
    attacker's knowledge). Return it with three controls: diagnoses that no text mentions, the attacker's knowledge
    without a model, and shadow models not trained on the individual (``out``).

    Parameters
    ----------
    scores, base : of `score_ladder`; ``base`` is None where there is no base model
    out : "diagnoses" of shadow models, of each individual the mean over those that were not trained on them
    """
    cues = cue_scores(questions, seed)
    has, lacks = questions.recorded & questions.written, ~questions.recorded & ~questions.written
    alone = questions.recorded & ~questions.written
    is_sensitive = np.array([each.is_sensitive for each in questions.diagnoses], dtype=bool)
    cells: list[dict[str, ToldDiagnoses]] = []
    for chosen in (np.flatnonzero(is_sensitive), np.flatnonzero(~is_sensitive)):
        own = {}
        for rung, name in enumerate(RUNGS):
            if not any(questions.cues[rung]):
                continue  # nothing is known there that is not on the rung below
            mine = log_odds_against_rest(scores["diagnoses"][:, rung])
            before = log_odds_against_rest(base["diagnoses"][:, rung]) if base else None
            told, num, fewest = diagnosis_auc_excess(questions, mine, before, has, lacks, chosen)
            placebo, num_placebo, _ = diagnosis_auc_excess(questions, mine, before, alone, lacks, chosen)
            by_cue = diagnosis_auc_excess(questions, cues[:, rung], None, has, lacks, chosen)[0]
            shadows = None
            if out is not None and num:
                shadows = diagnosis_auc_excess(
                    questions, log_odds_against_rest(out[:, rung]), None, has, lacks, chosen
                )[0]
            if len(chosen):
                own[name] = ToldDiagnoses(
                    told=told, placebo=placebo if num_placebo else None, cue_only=by_cue if num else None,
                    out_shadows=shadows, num_diagnoses=num, num_too_few=len(chosen) - num, fewest=fewest,
                )  # fmt: skip
        cells.append(own)
    draws: Bootstrap = {"num_bootstrap": num_bootstrap, "seed": seed, "units": households}
    ends = [_completion_rates(questions, scores, base, kind, **draws) for kind in ("fragments", "templates")]
    num = sum(bool(cell.num_diagnoses) for own in cells for cell in own.values()) + len(ends[0])
    sensitive, other = ({name: _widen_intervals(cell, num) for name, cell in own.items()} for own in cells)
    rates, common = (
        {name: replace(sides, excess=simultaneous(sides.excess, num)) for name, sides in own.items()} for own in ends
    )
    return Ladder(less_base=base is not None, sensitive=sensitive, other=other, verbatim=rates, templates=common)


def _widen_intervals(results_of_rung: ToldDiagnoses, num_results: int) -> ToldDiagnoses:
    """Return the estimates of one rung (how much the attacker knows) with intervals that hold simultaneously for
    ``num_results`` results.
    """
    placebo, cue, out = (
        one and simultaneous(one, num_results)
        for one in (results_of_rung.placebo, results_of_rung.cue_only, results_of_rung.out_shadows)
    )
    return replace(
        results_of_rung,
        told=simultaneous(results_of_rung.told, num_results),
        placebo=placebo,
        cue_only=cue,
        out_shadows=out,
    )


def _completion_rates(
    questions: Questions, scores: Scores, base: Scores | None, kind: str, **draws: Unpack[Bootstrap]
) -> dict[str, Excess]:
    """Return for each rung (amount of the attacker's knowledge) the shares of members and of held-out individuals of
    whom the model, but not the base model, completes a sentence verbatim. ``kind`` is "fragments" (rare sentences) or
    "templates" (common ones).
    """
    found = {}
    for rung, name in enumerate(RUNGS if kind in scores else ()):
        asked = scores[f"{kind} asked"][:, rung]
        came = scores[kind][:, rung]
        if base:
            came = came & ~base[kind][:, rung]
        member = questions.is_member[asked]
        if member.any() and not member.all():
            found[name] = two_sides(came[asked].astype(float), questions.codes[asked], member, limit=1.0, **draws)
    return found
