"""Result of the attacks on a tagger: numbers with intervals, choices made on development pairs and verified on others,
and their meaning.

All numbers count pairs of names; no name is in any result. The table of scores has keyed hashes, and a key that was not
given is thrown away: there are so few names that a known key would reveal them.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reticent.audit.evidence.json_form import extended, to_json
from reticent.audit.evidence.membership import Roc
from reticent.audit.evidence.tagger import (
    BlindRates,
    Coin,
    PairRates,
    PromptRates,
    RankedList,
    RankedRocs,
    RatesByMentions,
    TaggerChoices,
    TaggerEvidence,
    TaggerPrompt,
    TaggerSide,
)
from reticent.audit.stats.intervals import EXACT, Draws, Estimate, clopper_pearson, roc_curve
from reticent.core.artifact import write_artifact
from reticent.ext.tagger.attacks import (
    PAIRWISE,
    auc_of_scores,
    average_precision,
    average_precision_draws,
    best_threshold,
    blind_scores,
    coin_wins,
    expected_rank,
    expected_rank_exact,
    mean_estimate,
    nd_as_zero,
    random_list_accuracy,
    wins,
)
from reticent.ext.tagger.prompts import Prompt
from reticent.ext.tagger.sets import AttackSet

#: Bins of the number of times a name is mentioned: lowest, highest.
OCCURRENCES = ((1, 1), (2, 2), (3, 5), (6, 15), (16, None))


def evaluate_attack(
    scores: np.ndarray,
    attack_set: AttackSet,
    prompts: Sequence[Prompt],
    *,
    num_bootstrap: int = 1000,
    seed: int = 0,
    small_cell: int = 5,
) -> TaggerEvidence:
    """Return the results of all attacks on a tagger, from its scores for pairs of a member and a held-out name.

    The pair-wise strategy (A1 to A3) and the list's score (mean, maximum, or one prompt) are chosen on the development
    pairs and verified on the others.

    Parameters
    ----------
    scores : float64, shape (len(prompts), 2 · pairs) or (len(prompts), 2, pairs), as `score_names` gives them for
        `AttackSet.names`
    """
    scores = nd_as_zero(scores).reshape(len(prompts), 2, -1)
    blind = blind_scores(attack_set.features, seed=seed)
    evaluator = _Evaluator(prompts, num_bootstrap, seed, attack_set.unit)
    dev, test = (
        evaluator.evaluate_pairs(scores[..., own], blind[:, own]) for own in (attack_set.is_dev, ~attack_set.is_dev)
    )
    verified = evaluator.choose_and_verify(scores, blind, attack_set.is_dev, dev)
    return TaggerEvidence(
        prompts=[extended(prompt, TaggerPrompt) for prompt in prompts],
        names=attack_set.counts,
        unit=attack_set.unit,
        dev=dev,
        test=test,
        occurrences=evaluator.by_occurrences(scores, attack_set.occurrences, small_cell),
        verified=verified,
        reading=explain_result(verified),
    )


class _Evaluator:
    """Computes estimates over pairs of names, all with the same bootstrap resamples."""

    def __init__(self, prompts: Sequence[Prompt], num_bootstrap: int, seed: int, unit: str):
        self.prompts, self.unit = prompts, unit
        self._options: Draws = {"num_bootstrap": num_bootstrap, "seed": seed}

    def estimate(self, values: np.ndarray, low: float = 0.0) -> Estimate:
        """Return the mean of ``values``, one for each pair of names, with its bootstrap interval."""
        return mean_estimate(values, low=low, unit=self.unit, **self._options)

    def rates(self, wins_of_pairs: np.ndarray) -> PairRates:
        """Return accuracy and advantage (2 · accuracy - 1) with intervals, from the result of each pair: 1 won, 0 lost,
        0.5 a tie."""
        return PairRates(
            accuracy=self.estimate(wins_of_pairs), advantage=self.estimate(2 * wins_of_pairs - 1, low=-1.0)
        )

    def precision(self, scores: np.ndarray) -> Estimate:
        """Return the average precision of ranking members above held-out names, averaged over the rankings of
        ``scores`` (rankings, 2, pairs), with its interval.
        """
        n = scores.shape[-1]
        value = float(np.mean([average_precision(*pair) for pair in scores]))
        draws = np.mean([average_precision_draws(*pair, **self._options) for pair in scores], axis=0)
        low, high = (float(end) for end in np.quantile(draws, [0.025, 0.975]))
        method = f"bootstrap over {self.unit}"
        if np.ptp(draws) == 0:  # the same in every resample: all members above all held-out names, or all alike
            missed = clopper_pearson(0, n, one_sided=True)[1]
            low, high, method = value - missed * value, value + missed * (1 - value), EXACT
        return Estimate(value=value, low=low, high=high, n=n, unit=self.unit, method=method)

    def evaluate_pairs(self, scores: np.ndarray, blind: np.ndarray) -> TaggerSide:
        """Return the results of all attacks on one set of pairs of a member's and a held-out name, from the tagger's
        ``scores`` (prompts, 2, pairs). The ``blind`` scores (2, pairs), computed from the names without the tagger,
        give a baseline.
        """
        n = scores.shape[-1]
        pairs = wins(scores[:, 0], scores[:, 1])
        mean = scores.mean(axis=0)
        by_prompt = []
        for number in range(len(self.prompts)):
            auc = auc_of_scores(*scores[number])
            by_prompt.append(
                extended(
                    self.rates(pairs[number]),
                    PromptRates,
                    average_precision=self.precision(scores[number : number + 1]),
                    auc=auc,
                    expected_rank=expected_rank(float(pairs[number].mean()), n, n),
                    expected_rank_exact=expected_rank_exact(auc, n, n),
                    ties=int((scores[number, 0] == scores[number, 1]).sum()),
                )
            )
        auc = auc_of_scores(*mean)
        rocs = RankedRocs(
            mean=Roc(**roc_curve(*mean)),
            maximum=Roc(**roc_curve(*scores.max(axis=0))),
            blind=Roc(**roc_curve(*blind)),
        )
        return TaggerSide(
            pairs=n,
            pairwise={name: self.rates(attack(scores)) for name, attack in PAIRWISE.items()},
            coin=Coin(expected=0.5, drawn=float(coin_wins(n, self._options["seed"]).mean())),
            by_prompt=tuple(by_prompt),
            by_utterance=self._accuracy_by_kind(pairs, [prompt.utterance for prompt in self.prompts]),
            by_position=self._accuracy_by_kind(pairs, [prompt.position for prompt in self.prompts]),
            list=RankedList(
                map=self.precision(scores),
                average_precision_of_mean=self.precision(mean[None]),
                auc_of_mean=auc,
                expected_rank=expected_rank(float(pairs.mean()), n, n),
                expected_rank_exact=expected_rank_exact(auc, n, n),
                random=random_list_accuracy(2 * n),
                roc=rocs,
            ),
            blind=extended(self.rates(wins(*blind)), BlindRates, auc=auc_of_scores(*blind)),
        )

    def _accuracy_by_kind(self, pairs: np.ndarray, kinds: Sequence[str]) -> dict[str, Estimate]:
        """Return kind of prompt -> accuracy over its prompts; ``pairs`` has 1, 0.5 or 0 (won, tie, lost) for each
        prompt and pair, ``kinds`` the kind of each prompt.
        """
        return {
            kind: self.estimate(pairs[[number for number, own in enumerate(kinds) if own == kind]].mean(axis=0))
            for kind in dict.fromkeys(kinds)
        }

    def by_occurrences(
        self, pair_scores: np.ndarray, occurrences: np.ndarray, small_cell: int
    ) -> list[RatesByMentions]:
        """Return mean score, accuracy and advantage for groups of pairs by how often the member name occurs in
        training; groups of fewer than ``small_cell`` pairs have no numbers."""
        rows = []
        mean, won = pair_scores.mean(axis=0), PAIRWISE["mean"](pair_scores)
        for low, high in OCCURRENCES:
            chosen = (occurrences >= low) & (occurrences <= (high or np.inf))
            n = int(chosen.sum())
            if n == 0:
                continue
            row = RatesByMentions(low=low, high=high, names=f"under {small_cell}")
            if n >= small_cell:
                score, rates = self.estimate(mean[0, chosen]), self.rates(won[chosen])
                row = replace(row, names=n, score=score, accuracy=rates.accuracy, advantage=rates.advantage)
            rows.append(row)
        return rows

    def choose_and_verify(
        self, scores: np.ndarray, blind: np.ndarray, is_dev: np.ndarray, dev: TaggerSide
    ) -> TaggerChoices:
        """Choose the attack strategy, the ranking and its threshold that are best on the development pairs, and return
        their results on the test pairs (not ``is_dev``).
        """
        test = ~is_dev
        pairwise = max(PAIRWISE, key=lambda name: _value_and_ends(dev.pairwise[name].accuracy)[0])
        rankings = {"mean": scores.mean(axis=0), "maximum": scores.max(axis=0)}
        rankings |= {f"prompt {number + 1}": scores[number] for number in range(len(scores))}
        ranking = max(rankings, key=lambda name: average_precision(*rankings[name][:, is_dev]))
        threshold = best_threshold(*rankings[ranking][:, is_dev])
        won = PAIRWISE[pairwise](scores[..., test])
        called = rankings[ranking][:, test] >= threshold
        # A cross-validated rule below chance is worse than chance, which is then the baseline.
        by_names = wins(*blind[:, test])
        is_better = bool(by_names.mean() > 0.5)
        known = by_names if is_better else np.full(len(by_names), 0.5)
        blind_accuracy = self.estimate(by_names)
        # Chance is no measurement, so it has no interval.
        chance = Estimate(
            value=0.0, n=len(known), unit=self.unit, method="chance: a rule from the names does no better"
        )
        return extended(
            self.rates(won),
            TaggerChoices,
            pairwise=pairwise,
            blind_advantage=self.estimate(2 * known - 1, low=-1.0) if is_better else chance,
            excess=self.estimate(2 * (won - known), low=-2.0),
            ranking=ranking,
            average_precision=self.precision(rankings[ranking][None][..., test]),
            threshold=threshold,
            list_advantage=self.estimate(called[0].astype(float) - called[1], low=-1.0),
            matched=not (blind_accuracy.low or 0.0) > 0.5,
            detectable=float(1.96 / np.sqrt(max(len(won), 1))),
        )


def explain_result(found: TaggerChoices) -> list[str]:
    """Return sentences that explain the results of the chosen attack on the test pairs."""
    accuracy, advantage, excess = found.accuracy, found.advantage, found.excess
    lines = [
        f"Shown two names, one of which the tagger was trained on, an attacker who looks at its scores points at the "
        f"right one in {_percent(accuracy)} of the cases; chance is 50 % (strategy {found.pairwise}, "
        f"{accuracy.n} {accuracy.unit}). The adversarial advantage is {_format_estimate(advantage)}.",
        f"The names alone (their length and the frequency of their words), without the model, give "
        f"{_format_blind_advantage(found.blind_advantage)}; the tagger adds {_format_estimate(excess)}.",
    ]
    if not found.matched:
        lines.append(
            "The two kinds of names are distinguishable without the tagger: this set is marked as not matched, and "
            "only what the tagger adds counts."
        )
    counted = advantage if found.matched else excess
    if (counted.low or 0.0) > 0:
        lines.append("The tagger gives away which names it was trained on: the interval does not include no advantage.")
    else:
        what = "advantage" if found.matched else "advantage over the names alone"
        lines.append(
            f"No power to tell: the interval includes no {what}. With {accuracy.n} test pairs an advantage under "
            f"about {found.detectable:.2f} cannot be seen, so this is no proof that the tagger keeps its names."
        )
    return lines


def _percent(estimate: Estimate) -> str:
    """Return a share with its interval as text in per cent."""
    value, low, high = (100 * end for end in _value_and_ends(estimate))
    return f"{value:.1f} % ({low:.1f} to {high:.1f}, 95 % interval)"


def _format_blind_advantage(advantage: Estimate) -> str:
    """Return the advantage of the baseline from the names alone as a phrase."""
    return "no advantage over chance" if advantage.low is None else f"an advantage of {_format_estimate(advantage)}"


def _format_estimate(estimate: Estimate) -> str:
    """Return an estimate with its interval as text, three decimals."""
    value, low, high = _value_and_ends(estimate)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _value_and_ends(estimate: Estimate) -> tuple[float, float, float]:
    """Return (value, low, high) of an estimate that has all three."""
    assert estimate.value is not None  # there are pairs
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.value, estimate.low, estimate.high


def score_table(scores: np.ndarray, attack_set: AttackSet, *, key: bytes | None = None) -> pa.Table:
    """Return a table of scores, one row for each name and prompt, with keyed hashes in place of the names.

    The table is still private: a reader with the key can test guesses of names. By default the key is random and
    thrown away. A score that is NaN (ND) is null.
    """
    num_prompts, num = len(scores), len(attack_set.positives)
    secret = key if key is not None else os.urandom(32)
    hashes = [hashlib.blake2b(name.encode(), key=secret[:64], digest_size=16).hexdigest() for name in attack_set.names]
    columns = {
        "pair": np.tile(np.arange(num, dtype=np.int32), 2 * num_prompts),
        "member": np.tile(np.repeat([True, False], num), num_prompts),
        "side": np.tile(np.where(attack_set.is_dev, "dev", "test"), 2 * num_prompts),
        "name_hash": np.tile(np.array(hashes, dtype=object), num_prompts),
        "occurrences": np.tile(np.concatenate([attack_set.occurrences, np.zeros(num, np.int64)]), num_prompts),
        "prompt": np.repeat(np.arange(1, num_prompts + 1, dtype=np.int32), 2 * num),
    }
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    return table.append_column("score", pa.array(np.asarray(scores).reshape(-1), from_pandas=True))


def write_tagger_audit(
    out: Path | str,
    result: TaggerEvidence,
    table: pa.Table,
    panels: Sequence[str],
    *,
    config: Mapping[str, bool | int | str | list[str] | None],
    inputs: dict[str, str],
) -> None:
    """Write ``tagger.json``, ``scores.parquet`` and ``tagger.html`` as a private artefact."""
    with write_artifact(out, kind="tagger", config=dict(config), inputs=inputs) as writer:
        (writer.path / "tagger.json").write_text(json.dumps(to_json(result), indent=1, sort_keys=True) + "\n")
        pq.write_table(table, writer.path / "scores.parquet", compression="zstd")
        (writer.path / "tagger.html").write_text(_page(result, panels), encoding="utf-8")
        writer.counts.update(pairs=result.names["pairs"], prompts=len(result.prompts))


def _page(result: TaggerEvidence, panels: Sequence[str]) -> str:
    """Return the HTML page with the explaining sentences and the figures."""
    said = "".join(f"<p>{html.escape(line)}</p>" for line in result.reading)
    figures = "".join(f"<figure>{panel}</figure>" for panel in panels)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<title>Names in a tagger</title><style>body{font:16px/1.5 sans-serif;max-width:62rem;margin:2rem auto;"
        "padding:0 1rem}main{display:flex;flex-wrap:wrap}figure{flex:1 1 22rem;margin:.5rem}svg{width:100%}</style>"
        f"<h1>Names in a tagger</h1>{said}<main>{figures}</main></html>\n"
    )
