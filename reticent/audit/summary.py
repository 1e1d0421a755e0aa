"""The small table a run ends with: the last checkpoint of each recipe."""

from __future__ import annotations

from typing import Any

from rich.table import Table

__all__ = ["UTILITY", "UTILITY_ALL", "last_checkpoints", "summary_table"]

#: Headline utility of each objective: ordinary words or tokens of held-out individuals predicted right.
UTILITY = {"mlm": "ordinary_word_accuracy", "clm": "ordinary_token_accuracy"}
#: The same over all words or tokens, identifiers included.
UTILITY_ALL = {"mlm": "masked_word_accuracy", "clm": "token_accuracy"}


def last_checkpoints(evidence: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entry of the highest epoch for each (objective, recipe), in the order of the audit."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for model in evidence["models"]:
        key = (model["objective"], model["recipe"])
        if key not in last or model["epoch"] > last[key]["epoch"]:
            last[key] = model
    return list(last.values())


def summary_table(evidence: dict[str, Any]) -> Table:
    """Return the table: held-out utility, Privacy, excess leakage and membership AUC, with 95 % intervals."""
    table = Table(title="Last checkpoint of each recipe (95 % intervals, by individual)")
    table.add_column("recipe")
    for column in (
        "epochs",
        "utility",
        "utility, all words",
        "privacy",
        "excess leakage",
        "membership AUC (loss)",
        "protected targets",
    ):
        table.add_column(column, justify="right")
    for model in last_checkpoints(evidence):
        utility = model["utility"]["heldout"]
        membership = model.get("membership", {}).get("loss", {}).get("auc")
        ledger = model.get("ledger")
        table.add_row(
            model["recipe"] if model["recipe"] != "base" else f"base ({model['objective']})",
            str(model["epoch"]) if model["epoch"] else "-",
            _shown(utility[UTILITY[model["objective"]]]),
            _shown(utility[UTILITY_ALL[model["objective"]]]),
            _shown(model["privacy"]["both"]["types"]),
            _shown(model["excess"]["both"]["excess"]),
            _shown(membership),
            "-" if ledger is None else f"{ledger['violations']} of {ledger['targets']:,}",
        )
    return table


def _shown(estimate: dict[str, Any] | None) -> str:
    if estimate is None or estimate["value"] is None:
        return "-"
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['value']:.3f}"
    return f"{estimate['value']:.3f} [{estimate['low']:.2f}, {estimate['high']:.2f}]"
