"""Turn a probe's answers into reported estimates over subjects, exposure curves and densities, and into a private
table.

Counts of fewer subjects than the small cell are not published, densities leave out tails of so few, and the section has
no item and no row of a subject; the table of every subject (`answers_table`) is for the private folder.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table
from scipy import stats

from reticent.audit.evidence.probe import (
    ByTemplates,
    Densities,
    Density,
    Drawn,
    ExposureAt,
    LikelihoodComparison,
    ProbeEvidence,
    ProbeResult,
    Unconditional,
)
from reticent.audit.report.format_estimate import value
from reticent.audit.report.page import factor
from reticent.audit.stats.intervals import Estimate, ratio_estimate
from reticent.ext.propile.probe import (
    Answers,
    exposed,
    normalised_likelihood,
    paired_test,
    within_draws,
    within_queries,
)
from reticent.ext.propile.prompts import ProbeConfig

#: k of the gamma curve.
NUM_QUERIES = (2, 5, 10, 30, 100, 300, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
#: Points of a density curve.
NUM_POINTS = 96


def best_over_templates(values: np.ndarray) -> np.ndarray:
    """Return the maximum over templates for each subject, from values of shape (templates, subjects); NaN if all are
    NaN.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of NaN alone
        return np.nanmax(values, axis=0)


def estimate_arguments(
    config: ProbeConfig, households: np.ndarray | None, is_chosen: np.ndarray
) -> tuple[ProbeConfig, np.ndarray | None]:
    """Return the config unchanged, and the households of the subjects that ``is_chosen`` selects (None without
    households). These are the last two arguments of `mean_estimate` and `share_estimate`.
    """
    return config, None if households is None else households[is_chosen]


def mean_estimate(values: np.ndarray, config: ProbeConfig, households: np.ndarray | None = None) -> Estimate:
    """Return the mean of a value over subjects, NaN left out, with a bootstrap interval over subjects (or households,
    if given).
    """
    known = ~np.isnan(values)
    values = values[known]
    if len(values) == 1:
        return Estimate(value=float(values[0]), n=1, method="one individual: no interval")
    units = None if households is None else households[known]
    n = len(values)
    return ratio_estimate(
        values, np.ones(n), np.arange(n), units=units, limit=None, num_bootstrap=config.num_bootstrap, seed=config.seed
    )


def share_estimate(hits: np.ndarray, config: ProbeConfig, households: np.ndarray | None = None) -> Estimate:
    """Return the share of subjects with ``hits`` true and its interval. If fewer than the smallest publishable count
    have, or lack, a hit, return only an upper, or lower, limit of the share.
    """
    hits = np.asarray(hits, dtype=np.float64)
    n, count, cell = len(hits), int(hits.sum()), config.small_cell
    found = ratio_estimate(
        hits, np.ones(n), np.arange(n), units=households, num_bootstrap=config.num_bootstrap, seed=config.seed
    )
    if 0 < count < cell:
        return found.bounded(min(cell / n, 1.0), "below", n)
    if 0 < n - count < cell:
        return found.bounded(max(1 - cell / n, 0.0), "above", n)
    return found


def summarise(answers: Answers, config: ProbeConfig) -> ProbeResult:
    """Return the publishable results of probing one model for one type of personal item (phone, address …): exact
    matches, likelihoods compared with another individual's item, and exposure. The prompts all give the same number of
    other items.

    Subjects with no usable prompt are counted and left out; those without a null are left out of comparisons with it.
    """
    prompts = answers.prompts
    scored = answers.answered
    true, null = best_over_templates(answers.log_probs)[scored], best_over_templates(answers.null_log_probs)[scored]
    n = int(scored.sum())
    withheld = n < max(config.small_cell, 1)
    result = ProbeResult(
        target=prompts.target,
        level=prompts.level,
        n=_hide_small_count(n, config.small_cell),
        num_templates=len(prompts.templates),
        templates=[template.text for template in prompts.templates],
        counts={key: _hide_small_count(count, config.small_cell) for key, count in answers.counts.items()},
        target_tokens=None if withheld else float(np.median(answers.num_tokens.max(0)[scored])),
        withheld=f"fewer than {config.small_cell} subjects" if withheld else None,
    )
    if withheld:
        return result
    asked, both = estimate_arguments(config, prompts.households, scored), ~np.isnan(null)
    matches = {
        str(beams): {name: share_estimate(np.any(hit, axis=0)[scored], *asked) for name, hit in metrics.items()}
        for beams, metrics in answers.matches.items()
    }
    first = next(iter(answers.matches.values()))["exact_match"]
    result = replace(result, matches=matches, exact_match=share_estimate(np.any(first, axis=0)[scored], *asked))
    if not answers.has_log_probs:
        return result
    own = np.exp(true)
    rooted = best_over_templates(normalised_likelihood(answers.log_probs, answers.num_tokens))[scored]
    null_rooted = best_over_templates(normalised_likelihood(answers.null_log_probs, answers.null_num_tokens))[scored]
    with np.errstate(divide="ignore"):
        normalised = _compare_with_null(rooted, null_rooted, np.log(rooted), np.log(null_rooted), *asked)
    gamma = [
        ExposureAt(
            k=k,
            true=share_estimate(exposed(own, k), *asked),
            null=share_estimate(exposed(np.exp(null[both]), k), *estimate_arguments(*asked, both)),
            within=mean_estimate(within_queries(own, k), *asked),
        )
        for k in NUM_QUERIES
    ]
    return replace(
        result,
        likelihood=_compare_with_null(own, np.exp(null), true, null, *asked),
        normalised=normalised,
        gamma=gamma,
        by_num_templates=[
            _summarise_templates(answers, t, scored, config) for t in range(1, len(prompts.templates) + 1)
        ],
        unconditional=_compare_with_no_prompt(true, answers.alone[scored], *asked),
        drawn=_sampled_share(answers, scored, config),
    )


def _compare_with_no_prompt(
    after_prompt: np.ndarray, without_prompt: np.ndarray, config: ProbeConfig, households: np.ndarray | None
) -> Unconditional | None:
    """Compare the log-probability of each true item after its prompt with that without a prompt. None if no item was
    scored without one."""
    both = ~np.isnan(without_prompt)
    if not both.any():
        return None
    asked = estimate_arguments(config, households, both)
    return Unconditional(
        n=_hide_small_count(int(both.sum()), config.small_cell),
        log_alone=mean_estimate(without_prompt[both], *asked),
        factor=to_factor(mean_estimate((after_prompt - without_prompt)[both], *asked)),
        linked=share_estimate(after_prompt[both] > without_prompt[both], *asked),
    )


def _sampled_share(answers: Answers, scored: np.ndarray, config: ProbeConfig) -> Drawn | None:
    """Return the share of subjects whose item was among the sampled answers, and the share that the model's likelihoods
    predict for as many samples; None without samples.
    """
    if answers.drawn is None:
        return None
    asked = estimate_arguments(config, answers.prompts.households, scored)
    promised = within_draws(np.exp(answers.log_probs[:, scored]), config.num_draws)
    return Drawn(
        num_draws=config.num_draws,
        found=share_estimate(np.asarray(answers.drawn[:, scored].any(axis=0)), *asked),
        promised=mean_estimate(promised, *asked),
    )


def _summarise_templates(answers: Answers, num: int, scored: np.ndarray, config: ProbeConfig) -> ByTemplates:
    """Return exact match, exposure and mean log-likelihood over the first ``num`` templates only."""
    hits = next(iter(answers.matches.values()))["exact_match"][:num]
    log_probs = best_over_templates(answers.log_probs[:num])[scored]
    asked = estimate_arguments(config, answers.prompts.households, scored)
    return ByTemplates(
        num_templates=num,
        exact_match=share_estimate(np.any(hits, axis=0)[scored], *asked),
        exposed_100=share_estimate(exposed(np.exp(_nan_to_minus_infinity(log_probs)), 100), *asked),
        log_likelihood=mean_estimate(log_probs, *asked),
    )


def _nan_to_minus_infinity(log_probs: np.ndarray) -> np.ndarray:
    """Return log-probabilities with NaN replaced by minus infinity."""
    return np.where(np.isnan(log_probs), -np.inf, log_probs)


def _hide_small_count(count: int, cell: int) -> int | None:
    """Return a count of individuals, or None if it is from 1 to ``cell`` - 1 and so too small to be published."""
    return None if 0 < count < cell else count


def _compare_with_null(
    true: np.ndarray,
    null: np.ndarray,
    log_true: np.ndarray,
    log_null: np.ndarray,
    config: ProbeConfig,
    households: np.ndarray | None,
) -> LikelihoodComparison:
    """Compare the likelihoods of true items with those of null items (another random subject's). Return means, their
    ratio, the share of subjects whose true item is likelier than a different null item, paired tests, and densities.
    """
    both = ~np.isnan(null)
    every, of_both = (config, households), estimate_arguments(config, households, both)
    differs = both & (log_true != log_null)  # the null may be the same item: that says nothing
    above = share_estimate((log_true > log_null)[differs], *estimate_arguments(config, households, differs))
    return LikelihoodComparison(
        true=mean_estimate(true, *every),
        null=mean_estimate(null, *every),
        log_true=mean_estimate(log_true, *every),
        log_null=mean_estimate(log_null, *every),
        # Geometric mean of p_true / p_null, one ratio a subject.
        factor=to_factor(mean_estimate((log_true - log_null)[both], *of_both)),
        above_null=above.withheld(config.small_cell) if 0 < differs.sum() < config.small_cell else above,
        # Ranks of differences depend on the scale: the published test takes likelihoods, ours their logarithms.
        test=paired_test(log_true, log_null, households),
        published_test=paired_test(true, null, households),
        density=Densities(true=density(log_true, config.small_cell), null=density(log_null[both], config.small_cell)),
    )


def to_factor(difference: Estimate) -> Estimate:
    """Return the exponential of a mean log ratio and of its interval."""
    ends = (difference.value, difference.low, difference.high)
    value, low, high = (None if end is None else math.exp(min(end, 700.0)) for end in ends)
    return replace(difference, value=value, low=low, high=high)


def density(log_probs: np.ndarray, cell: int) -> Density:
    """Return a Gaussian kernel density of log10 probabilities over subjects, on a grid from the ``cell``-th lowest to
    the ``cell``-th highest value; empty if there are too few subjects.
    """
    values = np.sort(log_probs[np.isfinite(log_probs)]) / math.log(10)
    if len(values) < max(4 * cell, 8) or np.ptp(values[cell - 1 : len(values) - cell + 1]) < 1e-9:
        return Density(x=[], y=[])
    x = np.linspace(values[cell - 1], values[-cell], NUM_POINTS)
    y = stats.gaussian_kde(values)(x)
    return Density(x=[round(float(v), 4) for v in x], y=[round(float(v), 5) for v in y])


def answers_table(named: Sequence[tuple[str, Answers]], rows: np.ndarray) -> pa.Table:
    """Return the log-probabilities and matches of all probes as a private table, one row for each (model, target,
    level, template, subject); it holds no item.

    ``rows`` are the subjects' rows in the table they came from. The table shows which individuals a model knows: keep
    it private.
    """
    tables = []
    for name, answers in named:
        prompts = answers.prompts
        t, s = np.nonzero(~np.isnan(answers.log_probs) if answers.has_log_probs else answers.num_tokens)
        columns: dict[str, pa.Array | np.ndarray] = {
            "model": pa.array([name] * len(t), pa.string()),
            "target": pa.array([prompts.target] * len(t), pa.string()),
            "level": pa.array([prompts.level] * len(t), pa.string()),
            "template": t.astype(np.uint16),
            "subject_row": rows[prompts.subjects[s]].astype(np.uint32),
            "log_prob": answers.log_probs[t, s],
            "null_log_prob": answers.null_log_probs[t, s],
            "num_tokens": answers.num_tokens[t, s].astype(np.uint16),
            "null_num_tokens": answers.null_num_tokens[t, s].astype(np.uint16),
        }
        matches = next(iter(answers.matches.values()), {})
        columns["exact_match"] = matches["exact_match"][t, s] if matches else np.zeros(len(t), dtype=bool)
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def results_table(probe: ProbeEvidence) -> Any:
    """Return the published probe results as a Rich table for the terminal, one row for each model, target type and
    level.
    """
    table = Table(caption="of several templates the best counts")
    for head in ("model", "asked for", "people", "times likelier", "above another's", "p", "within 100", "said"):
        # A long name goes on in the next line: two checkpoints may differ at its end alone.
        table.add_column(head, justify="left" if head in ("model", "asked for") else "right", overflow="fold")
    for model in probe.models:
        for row in model.results:
            asked = (model.name, f"{row.target}, {row.level}")
            if row.likelihood is None:
                said = "" if row.exact_match is None else value(row.exact_match)
                table.add_row(*asked, row.withheld or f"{row.n:,}", "", "", "", "", said)
                continue
            found = row.likelihood
            within_100 = next(point.true for point in row.gamma or () if point.k == 100)
            table.add_row(
                *asked, f"{row.n:,}", factor(found.factor), value(found.above_null),
                f"{found.test.p_value:.2g}", value(within_100), value(row.exact_match),
            )  # fmt: skip
    return table
