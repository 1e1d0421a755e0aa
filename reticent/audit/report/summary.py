"""The small table at the end of a run: the last checkpoint of each recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from reticent.audit.evidence.corpus import ClustersSide
from reticent.audit.evidence.membership import over_households
from reticent.audit.report.groups import shared_objectives
from reticent.audit.report.readings import all_utility, loss_auc, ordinary_utility
from reticent.audit.stats.seeds import num_seeds, over_seeds

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.corpus import Copies
    from reticent.audit.stats.estimate import Estimate

__all__ = [
    "copies_line",
    "copies_table",
    "guarantee_lines",
    "last_checkpoints",
    "ledger_line",
    "summary_table",
]


def last_checkpoints(models: Sequence[ModelEvidence]) -> list[ModelEvidence]:
    """Return the entry of the highest epoch for each (model, objective, recipe), in the order of the audit; means over
    seeds where there are several (:func:`reticent.audit.stats.seeds.over_seeds`).
    """
    last: dict[tuple[str | None, str, str], ModelEvidence] = {}
    for model in over_seeds(models):
        key = (model.model, model.objective, model.recipe)
        if key not in last or model.epoch > last[key].epoch:
            last[key] = model
    return list(last.values())


def summary_table(models: Sequence[ModelEvidence]) -> Table:
    """Return the table: held-out utility, Privacy and membership AUC with 95 % intervals; it fits 80 columns, where a
    long name of a recipe takes several lines.

    Of several seeds it shows the means, and under them the lowest and the highest of the trainings.
    """
    last = last_checkpoints(models)
    seeds = num_seeds(last)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption="utility: share of the words of individuals it never saw that the model predicts right; "
        "of all words: identifiers among them. privacy: share of the members' identifiers that it predicts nowhere. "
        "MIA: AUC of the loss attack, 0.5 is chance. In brackets: 95 % intervals over "
        f"{_resampled(last)}."
        + (
            f" Each recipe was trained with {seeds} seeds on the same individuals: numbers and ends of intervals are "
            f"means over them, the line below is the lowest and the highest of the {seeds}."
            if seeds > 1
            else ""
        ),
        caption_justify="left",
    )
    # Where the table is too wide, a long name goes on in the next line: numbers are never cut.
    table.add_column("recipe", overflow="fold")
    for column in ("epochs", "utility", "all words", "privacy", "MIA AUC"):
        table.add_column(column, justify="right", no_wrap=True)
    named, section = bool(shared_objectives(models)), ""
    for model in last:
        if named and model.model != section:  # another line, cut to the width of the table
            section = model.model or ""
            table.add_row(f"{section if len(section) <= 11 else f'{section[:5]}…{section[-5:]}'}:")
        heldout, objective = model.utility.heldout, model.objective
        words, all_words = ordinary_utility(heldout, objective), all_utility(heldout, objective)
        privacy, auc = model.privacy["both"].types, loss_auc(model)
        table.add_row(
            model.recipe if model.recipe != "base" else f"base ({objective})",
            str(model.epoch) if model.epoch else "-",
            _shown(words),
            _shown(all_words, interval=False),
            _shown(privacy),
            _shown(auc),
        )
        if model.num_trainings:
            ranges = [_range(words), "", _range(privacy), _range(auc)]
            table.add_row(f" {model.num_trainings} seeds", "", *ranges, style="dim")
    return table


def _resampled(models: Sequence[ModelEvidence]) -> str:
    """The unit that intervals resample."""
    found = over_households(attack for model in models for attack in model.membership.values())
    return "individuals" if found is None else f"{found.num_households:,} households of {found.n:,} individuals"


def ledger_line(models: Sequence[ModelEvidence]) -> str | None:
    """Return a line with the number of checked targets of the protected recipes; None if there is no such recipe."""
    shared = shared_objectives(models)
    ledgers = {
        f"{m.recipe} of {m.model}" if m.objective in shared else m.recipe: m.ledger
        for m in last_checkpoints(models)
        if m.ledger and m.ledger.protected
    }
    if not ledgers:
        return None
    targets, violations = sum(own.targets for own in ledgers.values()), sum(own.violations for own in ledgers.values())
    return f"Protected tokens among the {targets:,} targets of {', '.join(ledgers)}: {violations}"


def guarantee_lines(models: Sequence[ModelEvidence]) -> list[str]:
    """Return the guarantee of each recipe with differential privacy; each epsilon has its unit."""
    shared = shared_objectives(models)
    return [
        f"{m.recipe}{f' of {m.model}' if m.objective in shared else ''}: {m.guarantee}"
        for m in last_checkpoints(models)
        if m.guarantee
    ]


def _range(estimate: Estimate | None) -> str:
    """The lowest and the highest of several trainings."""
    spread = estimate and estimate.seeds
    return "-" if not spread else f"{spread.low:.3f} to {spread.high:.3f}"


def _shown(estimate: Estimate | None, *, interval: bool = True) -> str:
    if estimate is None or estimate.value is None:
        return "-"
    if not interval or estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3f}"
    low, high = round(estimate.low, 2), round(estimate.high, 2)
    if low > estimate.value:  # rounded past the value, which it holds
        low = math.floor(100 * estimate.low) / 100
    if high < estimate.value:
        high = math.ceil(100 * estimate.high) / 100
    low_shown, high_shown = (f"{end:.2f}".removeprefix("0") for end in (low, high))
    return f"{estimate.value:.3f} [{low_shown}, {high_shown}]"


def copies_table(counts: Copies) -> Table:
    """Return the copies of a corpus (:func:`reticent.engine.dedup.find_copies`), within individuals and across them."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("copies", no_wrap=True)
    for column in ("documents", "clusters", "share of words"):
        table.add_column(column, justify="right", no_wrap=True)
    passages = counts.passages
    kinds = {"equal documents": counts.exact, "near duplicates": counts.near}
    for name, kind in {**kinds, f"passages of {passages.min_words} words": passages}.items():
        sides = {"of one individual": kind.within, "between individuals": kind.across} if kind else {}
        for whose, found in sides.items():
            clusters = f"{found.clusters:,}" if isinstance(found, ClustersSide) else "-"
            table.add_row(f"{name} {whose}", f"{found.documents:,}", clusters, f"{found.words_share:.2%}")
    return table


def copies_line(counts: Copies) -> str:
    """Return sentences about the effect of copies on protection, and about the documents that are left out."""
    support, left_out = counts.support, counts.left_out
    return (
        f"Of {counts.documents:,} documents and {counts.words:,} words of {counts.individuals:,} individuals. "
        f"{support.lifted_words:,} distinct words ({support.lifted_share:.2%} of all words) have {support.k} "
        f"individuals only because documents are shared between individuals: they are not protected, and would be. "
        f"Left out: {left_out.documents:,} documents ({left_out.words_share:.2%} of all words)."
    )
