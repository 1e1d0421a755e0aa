"""The report: ``report.json`` with every number, and one self-contained ``report.html`` that a data protection
officer can read.

What a report may say is enforced here (PROTOCOLS §10): no identifier, no cell under the small-cell threshold, no zero
without its upper bound, no promise of anonymity.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reticent.audit import plots
from reticent.audit.summary import UTILITY, UTILITY_ALL, last_checkpoints
from reticent.errors import ArtifactError

__all__ = ["plain_findings", "write_report"]

FORMAT = "reticent.audit/1"
REQUIRED = ("format", "created", "versions", "settings", "corpus", "models")
SMALL_CELL = 5
#: Claims no report may make.
FORBIDDEN = ("anonymous", "anonymised", "anonymized", "gdpr compliant", "gdpr-compliant")
PLAIN_TWIN = {"mlm": "mlm", "clm": "clm"}


def write_report(folder: Path | str, audit: dict[str, Any]) -> Path:
    """Write ``report.json`` and ``report.html`` (0600) into ``folder``; returns the page's path. Equal input, equal
    bytes.

    Raises
    ------
    ArtifactError
        The audit is not of this format, or the page would make a claim that no report may make.
    """
    folder = Path(folder)
    missing = [key for key in REQUIRED if key not in audit]
    if missing or audit["format"] != FORMAT:
        raise ArtifactError(f"not an audit of format {FORMAT}" + (f": {missing[0]} is missing" if missing else ""))
    audit = {**audit, "corpus": _without_small_cells(audit["corpus"])}
    page = _render(audit)
    claims = [claim for claim in FORBIDDEN if claim in page.lower()]
    if claims:
        raise ArtifactError(f"the page would say {claims[0]!r}, which no report may")
    for name, text in (("report.json", json.dumps(audit, indent=1, allow_nan=False) + "\n"), ("report.html", page)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    return folder / "report.html"


def plain_findings(audit: dict[str, Any]) -> list[str]:
    """Return what the numbers say in plain sentences, good news and bad."""
    corpus = audit["corpus"]
    findings = [
        f"{corpus['share_types_identifying']:.0%} of the distinct words of the training documents are used by fewer "
        f"than {corpus['k']} individuals; they make up {corpus['share_occurrences_identifying']:.1%} of all words."
    ]
    for objective in ("mlm", "clm"):
        last = {m["recipe"]: m for m in last_checkpoints(audit) if m["objective"] == objective}
        plain = last.get(PLAIN_TWIN[objective])
        for recipe, model in last.items():
            if recipe in ("base", PLAIN_TWIN[objective]):
                continue
            findings.append(_compare(model, plain, objective))
        if plain is not None:
            findings.append(_membership_sentence(plain, last))
    return findings


def _compare(model: dict[str, Any], plain: dict[str, Any] | None, objective: str) -> str:
    own = model["privacy"]["both"]["types"]
    excess = model["excess"]["both"]["excess"]
    sentence = f"{model['recipe']} after {model['epoch']} epochs: Privacy {interval(own)}"
    if plain is not None:
        other = plain["privacy"]["both"]["types"]
        if own["value"] is not None and other["value"] is not None:
            if own["low"] > other["high"]:
                sentence += f", better than {plain['recipe']} ({interval(other)})"
            elif own["high"] < other["low"]:
                sentence += f", worse than {plain['recipe']} ({interval(other)})"
            else:
                sentence += f", which this audit cannot tell from {plain['recipe']} ({interval(other)})"
        mine, theirs = (m["utility"]["heldout"][UTILITY[objective]] for m in (model, plain))
        if mine["value"] is not None and theirs["value"] is not None:
            sentence += f"; utility on ordinary words {mine['value']:.3f} against {theirs['value']:.3f}"
    if excess["value"] is not None and excess["low"] > 0:
        sentence += f". It predicts more of its members' identifiers than of strangers': excess {interval(excess)}"
    elif excess["value"] is not None:
        sentence += f". No excess over individuals it never saw was measured: {interval(excess)}"
    return sentence + "."


def _membership_sentence(plain: dict[str, Any], last: dict[str, dict[str, Any]]) -> str:
    parts = []
    for recipe, model in last.items():
        auc = model.get("membership", {}).get("loss", {}).get("auc")
        if recipe != "base" and auc is not None and auc["value"] is not None:
            verdict = "tells members apart" if auc["low"] > 0.5 else "has no measured power"
            parts.append(f"{recipe} {interval(auc)} ({verdict})")
    if not parts:
        return f"No membership attack was run against {plain['recipe']}."
    return "Membership by the loss attack, area under the curve: " + "; ".join(parts) + "."


def interval(estimate: dict[str, Any] | None) -> str:
    """Format an estimate with its interval."""
    if estimate is None or estimate["value"] is None:
        return "not measured"
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['value']:.3f}"
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def leaks(part: dict[str, Any]) -> str:
    """Format how many identifiers were predicted; a zero carries its upper bound."""
    total, leaked = part["num_identifiers"], part["num_leaked"]
    if total and total < SMALL_CELL:
        return f"fewer than {SMALL_CELL} identifiers"
    if leaked == 0 and total:
        low = part["types"]["low"]
        bound = "" if low is None else f" (95 % upper bound {1 - low:.1%}, over {part['types']['n']} individuals)"
        return f"0 of {total:,}{bound}"
    if leaked < SMALL_CELL and total:
        return f"fewer than {SMALL_CELL} of {total:,}"
    return f"{leaked:,} of {total:,}"


def tpr(measured: dict[str, Any], fpr: str) -> str:
    """Format a true-positive rate, or say that too few non-members were there."""
    estimate = measured["tpr_at_fpr"].get(fpr)
    return "too few non-members" if estimate is None else interval(estimate)


def _without_small_cells(corpus: dict[str, Any]) -> dict[str, Any]:
    rows = [r for r in corpus.get("detected", []) if r["num_documents"] is None or r["num_documents"] >= SMALL_CELL]
    return {**corpus, "detected": rows}


def _render(audit: dict[str, Any]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reticent.audit", "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(interval=interval, leaks=leaks)
    models = audit["models"]
    attacks = sorted({name for model in models for name in model.get("membership", {})}, key=_attack_order)
    figures = {
        "identifiers": plots.identifiers_figure(audit["corpus"]),
        "tradeoff": plots.tradeoff_figure(models),
        "rocs": [svg for svg in (plots.roc_figure(models, attack) for attack in attacks) if svg],
        "low_cost": plots.low_cost_figure(models),
        "excess": plots.excess_figure(models),
        "ngrams": plots.ngram_figure(models),
    }
    return environment.get_template("report.html.j2").render(
        audit=audit, corpus=audit["corpus"], last=last_checkpoints(audit), findings=plain_findings(audit),
        figures=figures, attacks=attacks, utility=UTILITY, utility_all=UTILITY_ALL, tpr=tpr, colour=plots.colour,
        settings=json.dumps(audit["settings"], indent=1), )  # fmt: skip


def _attack_order(name: str) -> tuple[int, str]:
    order = ["loss", "reference", "zlib", "min_k"]
    return (order.index(name) if name in order else len(order), name)
