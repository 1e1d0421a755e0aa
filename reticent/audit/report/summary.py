"""The small tables and lines that the terminal shows at the end of a run, of the last checkpoint of each recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

from reticent.audit.evidence.corpus import ClustersSide
from reticent.audit.evidence.membership import over_households
from reticent.audit.report.selectors import (
    all_utility,
    loss_auc,
    ordinary_utility,
    shared_objectives,
)
from reticent.audit.stats.seeds import last_checkpoints, max_num_trainings
from reticent.audit.texts import ENGLISH, Mark, Marked, Texts, model_name

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import ModelEvidence
    from reticent.audit.evidence.corpus import Copies
    from reticent.audit.stats.estimate import Estimate


def summary_table(models: Sequence[ModelEvidence], t: Texts = ENGLISH, *, elsewhere: bool = False) -> Table:
    """Return the table of held-out utility, Privacy and membership AUC with 95 % intervals, at most 80 columns wide.

    For several seeds it shows the means, with the lowest and highest training below. Of models that were trained
    ``elsewhere`` the number of epochs is not known.
    """
    last = last_checkpoints(models)
    seeds = max_num_trainings(last)
    found = over_households(attack for model in last for attack in model.membership.values())
    caption = (
        t("terminal.summary.over_individuals")
        if found is None
        else t("terminal.summary.over_households", households=t.count(found.num_households), n=t.count(found.n))
    )
    if seeds > 1:
        caption += f" {t('terminal.summary.seeds', n=seeds)}"
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, caption=caption, caption_justify="left")
    # Where the table is too wide, a long name goes on in the next line: numbers are never cut.
    table.add_column(t("common.recipe"), overflow="fold")
    for column in ("epochs", "utility", "all_words", "privacy", "auc"):
        table.add_column(t(f"terminal.summary.{column}"), justify="right", no_wrap=True)
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
            str(model.epoch) if model.epoch and not elsewhere else "-",
            _estimate_text(words),
            _estimate_text(all_words, interval=False),
            _estimate_text(privacy),
            _estimate_text(auc),
        )
        if model.num_trainings:
            ranges = [_seed_range(words), "", _seed_range(privacy), _seed_range(auc)]
            table.add_row(t("terminal.n_seeds", n=model.num_trainings), "", *ranges, style="dim")
    return table


def ledger_line(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> str | None:
    """Return a line with the number of prediction targets counted in protected trainings, and how many of these were
    protected tokens; None without such a training."""
    shared = shared_objectives(models)
    kept = [(m, m.ledger) for m in last_checkpoints(models) if m.ledger and m.ledger.protected]
    if not kept:
        return None
    text = t(
        "terminal.protected_tokens_among_the_targets_targets",
        targets=t.count(sum(ledger.targets for _, ledger in kept)),
        names=", ".join(_display_name(model, shared, t) for model, _ in kept),
        violations=sum(ledger.violations for _, ledger in kept),
    )
    outcomes = [(model, "broken" if ledger.violations else "kept") for model, ledger in kept]
    return Marked(text, *(Mark(model_name(m.recipe, m.model), "training", "protected targets", o) for m, o in outcomes))


def guarantee_lines(models: Sequence[ModelEvidence], t: Texts = ENGLISH) -> list[str]:
    """Return one line for each recipe with differential privacy: its epsilon, delta and privacy unit."""
    shared = shared_objectives(models)
    return [
        Marked(
            t("common.name_what", name=_display_name(m, shared, t), what=t.evidence(m.guarantee)),
            Mark(model_name(m.recipe, m.model), "training", "epsilon", "bound"),
        )
        for m in last_checkpoints(models)
        if m.guarantee
    ]


def _display_name(model: ModelEvidence, shared: set[str], t: Texts) -> str:
    """Return the recipe's name, with the section's name if its objective has several sections."""
    return (
        t("common.recipe_of_model", recipe=model.recipe, model=model.model)
        if model.objective in shared
        else model.recipe
    )


def _seed_range(estimate: Estimate | None) -> str:
    """Return "lowest to highest" over several trainings as text."""
    spread = estimate and estimate.seeds
    return "-" if not spread else f"{spread.low:.3f} to {spread.high:.3f}"


def _estimate_text(estimate: Estimate | None, *, interval: bool = True) -> str:
    """Return an estimate as text with its interval, whose rounded ends still hold the value, with room where there is
    some: a zero keeps its bound."""
    if estimate is None or estimate.value is None:
        return "-"
    if not interval or estimate.low is None or estimate.high is None:
        return ENGLISH.number(estimate.value, 3)
    low, high = round(estimate.low, 2), round(estimate.high, 2)
    if low >= estimate.value > estimate.low:  # rounded to the value or past it
        low = math.floor(100 * estimate.low) / 100
    if high <= estimate.value < estimate.high:
        high = math.ceil(100 * estimate.high) / 100
    low_shown, high_shown = (f"{end:.2f}".removeprefix("0") for end in (low, high))
    return f"{ENGLISH.number(estimate.value, 3)} [{low_shown}, {high_shown}]"


def copies_table(counts: Copies, t: Texts = ENGLISH) -> Table:
    """Return a table of a corpus's copied documents: exact copies, near copies and repeated passages, each within one
    individual's documents and across individuals."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column(t("terminal.copies.copies"), no_wrap=True)
    for column in ("documents", "clusters", "share"):
        table.add_column(t(f"terminal.copies.{column}"), justify="right", no_wrap=True)
    kinds = {"exact": counts.exact, "near": counts.near, "passages": counts.passages}
    for name, kind in kinds.items():
        for whose, found in {"within": kind.within, "across": kind.across}.items() if kind else ():
            clusters = t.count(found.clusters) if isinstance(found, ClustersSide) else "-"
            row = t(f"terminal.copies.{name}_{whose}", n=counts.passages.min_words)
            table.add_row(row, t.count(found.documents), clusters, t.plain(f"{found.words_share:.2%}"))
    return table


def copies_line(counts: Copies, t: Texts = ENGLISH) -> str:
    """Return sentences on copies in a corpus: how many words reach the protection threshold k only because documents
    are shared, and how many documents were left out as copies."""
    support, left_out = counts.support, counts.left_out
    return t(
        "terminal.of_documents_documents_and_words_words_of",
        documents=t.count(counts.documents),
        words=t.count(counts.words),
        individuals=t.count(counts.individuals),
        lifted=t.count(support.lifted_words),
        lifted_share=t.plain(f"{support.lifted_share:.2%}"),
        k=support.k,
        left_out=t.count(left_out.documents),
        gone=t.count(left_out.individuals or 0),
        left_out_share=t.plain(f"{left_out.words_share:.2%}"),
    )
