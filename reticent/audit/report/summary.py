"""The small table a run ends with: the last checkpoint of each recipe."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from reticent.audit.stats.seeds import num_seeds, over_seeds

__all__ = [
    "UTILITY",
    "UTILITY_ALL",
    "copies_line",
    "copies_table",
    "guarantee_lines",
    "last_checkpoints",
    "ledger_line",
    "shared_objectives",
    "summary_table",
]

#: Headline utility of each objective: ordinary words or tokens of held-out individuals predicted right.
UTILITY = {"mlm": "ordinary_word_accuracy", "clm": "ordinary_token_accuracy"}
#: The same over all words or tokens, identifiers included.
UTILITY_ALL = {"mlm": "masked_word_accuracy", "clm": "token_accuracy"}


def last_checkpoints(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entry of the highest epoch for each (model, objective, recipe), in the order of the audit; means over
    seeds where there are several (:func:`reticent.audit.stats.seeds.over_seeds`).
    """
    last: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    for model in over_seeds(evidence["models"]):
        key = (model.get("model"), model["objective"], model["recipe"])
        if key not in last or model["epoch"] > last[key]["epoch"]:
            last[key] = model
    return list(last.values())


def shared_objectives(models: Iterable[dict[str, Any]]) -> set[str]:
    """Return the objectives of more than one ``[[model]]`` section: there the section's name stands by the recipe."""
    sections = {(model["objective"], model.get("model")) for model in models}
    return {objective for objective, count in Counter(objective for objective, _ in sections).items() if count > 1}


def summary_table(evidence: dict[str, Any]) -> Table:
    """Return the table: held-out utility, Privacy and membership AUC with 95 % intervals; it fits 80 columns.

    Of several seeds it shows the means, and under them the lowest and the highest of the trainings.
    """
    last = last_checkpoints(evidence)
    seeds = num_seeds(last)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption="utility: share of the words of individuals it never saw that the model predicts right; "
        "of all words: identifiers among them. privacy: share of the members' identifiers that it predicts nowhere. "
        "MIA: AUC of the loss attack, 0.5 is chance. In brackets: 95 % intervals over individuals."
        + (
            f" Each recipe was trained with {seeds} seeds on the same individuals: numbers and ends of intervals are "
            f"means over them, the line below is the lowest and the highest of the {seeds}."
            if seeds > 1
            else ""
        ),
        caption_justify="left",
    )
    table.add_column("recipe", no_wrap=True)
    for column in ("epochs", "utility", "all words", "privacy", "MIA AUC"):
        table.add_column(column, justify="right", no_wrap=True)
    named, section = bool(shared_objectives(evidence["models"])), None
    for model in last:
        if named and model["model"] != section:  # a line of its own, and no more of it than the table has room for
            section = model["model"]
            table.add_row(f"{section if len(section) <= 11 else f'{section[:5]}…{section[-5:]}'}:")
        utility = model["utility"]["heldout"]
        words, all_words = utility[UTILITY[model["objective"]]], utility[UTILITY_ALL[model["objective"]]]
        privacy, auc = model["privacy"]["both"]["types"], model.get("membership", {}).get("loss", {}).get("auc")
        table.add_row(
            model["recipe"] if model["recipe"] != "base" else f"base ({model['objective']})",
            str(model["epoch"]) if model["epoch"] else "-",
            _shown(words),
            _shown(all_words, interval=False),
            _shown(privacy),
            _shown(auc),
        )
        if "num_trainings" in model:
            ranges = [_range(words), "", _range(privacy), _range(auc)]
            table.add_row(f" {model['num_trainings']} seeds", "", *ranges, style="dim")
    return table


def ledger_line(evidence: dict[str, Any]) -> str | None:
    """Say how many targets of the protected recipes were checked; None where there is no such recipe."""
    shared = shared_objectives(evidence["models"])
    ledgers = {
        f"{m['recipe']} of {m['model']}" if m["objective"] in shared else m["recipe"]: m["ledger"]
        for m in last_checkpoints(evidence)
        if (m.get("ledger") or {}).get("protected")
    }
    if not ledgers:
        return None
    targets, violations = (sum(ledger[key] for ledger in ledgers.values()) for key in ("targets", "violations"))
    return f"Protected tokens among the {targets:,} targets of {', '.join(ledgers)}: {violations}"


def guarantee_lines(evidence: dict[str, Any]) -> list[str]:
    """Say what each recipe with differential privacy promises, and to whom: the unit stands with every epsilon."""
    shared = shared_objectives(evidence["models"])
    return [
        f"{m['recipe']}{' of ' + m['model'] if m['objective'] in shared else ''}: {m['guarantee']}"
        for m in last_checkpoints(evidence)
        if m.get("guarantee")
    ]


def _range(estimate: dict[str, Any] | None) -> str:
    """The lowest and the highest of several trainings."""
    spread = (estimate or {}).get("seeds")
    return "-" if not spread else f"{spread['low']:.3f} to {spread['high']:.3f}"


def _shown(estimate: dict[str, Any] | None, *, interval: bool = True) -> str:
    if estimate is None or estimate["value"] is None:
        return "-"
    if not interval or estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['value']:.3f}"
    low, high = round(estimate["low"], 2), round(estimate["high"], 2)
    if low > estimate["value"]:  # rounded past the value, which it holds
        low = math.floor(100 * estimate["low"]) / 100
    if high < estimate["value"]:
        high = math.ceil(100 * estimate["high"]) / 100
    low_shown, high_shown = (f"{end:.2f}".removeprefix("0") for end in (low, high))
    return f"{estimate['value']:.3f} [{low_shown}, {high_shown}]"


def copies_table(counts: dict[str, Any]) -> Table:
    """Return the copies of a corpus (:func:`reticent.engine.dedup.find_copies`), within individuals and across them."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("copies", no_wrap=True)
    for column in ("documents", "clusters", "share of words"):
        table.add_column(column, justify="right", no_wrap=True)
    rows = {"exact": "equal documents", "near": "near duplicates"}
    rows["passages"] = f"passages of {counts['passages']['min_words']} words"
    for kind, name in rows.items():
        for side, whose in (("within", "of one individual"), ("across", "between individuals")):
            found = counts[kind][side]
            clusters = f"{found['clusters']:,}" if "clusters" in found else "-"
            table.add_row(f"{name} {whose}", f"{found['documents']:,}", clusters, f"{found['words_share']:.2%}")
    return table


def copies_line(counts: dict[str, Any]) -> str:
    """Return what copies do to protection, and what is left out, as sentences."""
    support, left_out = counts["support"], counts["left_out"]
    return (
        f"Of {counts['documents']:,} documents and {counts['words']:,} words of {counts['individuals']:,} individuals. "
        f"{support['lifted_words']:,} distinct words ({support['lifted_share']:.2%} of all words) have {support['k']} "
        f"individuals only because documents are shared between individuals: they are not protected, and would be. "
        f"Left out: {left_out['documents']:,} documents ({left_out['words_share']:.2%} of all words)."
    )
