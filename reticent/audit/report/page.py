"""The report: ``report.json`` with every published number, and one self-contained ``report.html`` that a data
protection officer can read.

Both are made from the audit as it may leave (:mod:`reticent.audit.evidence.rules`). No zero stands without its
bound, and the page holds no script and no address.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reticent.audit.evidence.audit import published
from reticent.audit.evidence.rules import FORBIDDEN
from reticent.audit.membership.names import DEFAULT_ATTACKS
from reticent.audit.membership.validity import INVALID, NO_POWER, judged
from reticent.audit.report import corpus_plots, epoch_plots, figure, membership_plots, plots
from reticent.audit.report.environment import template_environment
from reticent.audit.report.extraction_page import extraction_html
from reticent.audit.report.findings import plain_findings, retention_rows
from reticent.audit.report.shown import count, ends, leaks, percent, trainings, value
from reticent.audit.report.summary import UTILITY, UTILITY_ALL, last_checkpoints
from reticent.audit.stats.seeds import num_seeds, over_seeds
from reticent.core.errors import ArtifactError

__all__ = ["page_digest", "write_report"]

FORMAT = "reticent.audit/1"
REQUIRED = ("format", "created", "versions", "settings", "corpus", "models")
PARTS = ("both", "direct", "indirect")
#: Which words of an identifying sequence each policy keeps out of the targets.
POLICIES_ABOUT = {
    "all": "every word of each shortest identifying sequence",
    "last": "the last word of each shortest identifying sequence",
    "cover": "the fewest words that meet each shortest identifying sequence",
    "paper": "every word of every identifying sequence, shortest or not",
}
#: Modules that make the page, this one among them.
MODULES = (
    "evidence/audit", "evidence/corpus", "evidence/extraction", "evidence/inversion", "evidence/json_form",
    "evidence/leakage", "evidence/membership", "evidence/probe", "evidence/rules", "evidence/settings",
    "gates", "membership/attacks", "membership/catalogue", "membership/names",
    "membership/shadow", "membership/table", "membership/validity", "report/corpus_plots",
    "report/environment", "report/epoch_plots",
    "report/extraction_page",
    "report/figure", "report/findings", "report/membership_plots", "report/page", "report/plots", "report/probe_page",
    "report/probe_plots", "report/readings", "report/shown", "report/summary", "stats/estimate", "stats/seeds",
)  # fmt: skip
#: Labels shown before the rest is folded away.
NUM_LABELS = 8


def write_report(folder: Path | str, audit: dict[str, Any]) -> Path:
    """Write ``report.json`` and ``report.html`` (0600) into ``folder``; returns the page's path. Equal input, equal
    bytes.

    Raises
    ------
    ArtifactError
        The audit is not of this format, holds a number that is not finite, or the page would make a claim that no
        report may make.
    """
    missing = [name for name in REQUIRED if name not in audit]
    if missing or audit["format"] != FORMAT:
        raise ArtifactError(f"not an audit of format {FORMAT}" + (f": {missing[0]} is missing" if missing else ""))
    audit = published(audit)
    means = over_seeds(audit["models"], audit["small_cell"])
    if len(means) < len(audit["models"]):  # what the page shows; the trainings one by one stand under "models"
        audit["over_seeds"] = means
    try:
        numbers = json.dumps(audit, indent=1, allow_nan=False) + "\n"
    except ValueError:
        raise ArtifactError("the audit holds a number that is not finite") from None
    page = _render({**audit, "models": judged(means)})
    claims = [claim for claim in FORBIDDEN if claim in page.lower()]
    if claims:
        raise ArtifactError(f"the page would say {claims[0]!r}, which no report may")
    folder = Path(folder)
    for name, text in (("report.json", numbers), ("report.html", page)):
        _write_private(folder / name, text)
    return folder / "report.html"


def page_digest() -> str:
    """Return the SHA-256 of the template and of the modules that say and draw what the page holds: a page that another
    version of them made is not up to date.
    """
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in (*(here / f"{name}.py" for name in MODULES), *sorted((here / "report" / "templates").glob("*.j2"))):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _write_private(path: Path, text: str) -> None:
    """Write for the owner's eyes, also where the file was there and open to others."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def _labels(detected: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans by label: what each detector found, and the most documents that any one of them found it in."""
    found: dict[str, dict[str, Any]] = {}
    for row in detected:
        label = found.setdefault(
            row["label"], {"label": row["label"], "detectors": [], "num_spans": 0, "documents": None}
        )
        label["detectors"].append((row["detector"], row["num_spans"]))
        label["num_spans"] = max(label["num_spans"], row["num_spans"])
        if row["num_documents"] is not None:
            label["documents"] = max(label["documents"] or 0, row["num_documents"])
    return sorted(found.values(), key=lambda label: (-label["num_spans"], label["label"]))


def _f1_of_all(corpus: dict[str, Any]) -> float | None:
    """F1 of calling each individual a member: 2p / (1 + p) at a member share of p."""
    individuals = corpus.get("num_individuals", {})
    members, heldout = individuals.get("members"), individuals.get("heldout")
    return None if not members or heldout is None else 2 * members / (2 * members + heldout)


def _chance(models: Sequence[dict[str, Any]]) -> float | None:
    """How often a blind guess among the candidates of an inversion is right."""
    found = [kind for model in models for kind in (model.get("inversion") or {}).values() if "chance" in kind]
    return float(found[0]["chance"]["top1"]) if found else None


def _largest_set(corpus: dict[str, Any]) -> dict[str, Any] | None:
    """The row of the largest sets of shared words that all individuals drawn have."""
    rows = [row for row in corpus.get("unicity") or [] if row["share"]["value"] is not None]
    full = [row for row in rows if row["share"]["n"] == rows[0]["share"]["n"]]
    return full[-1] if full else None


def _render(audit: dict[str, Any]) -> str:
    from reticent.audit.membership.catalogue import EVERY_ATTACK  # with the scoring, which imports torch

    cell, models, corpus = audit["small_cell"], audit["models"], audit["corpus"]
    environment = template_environment()
    environment.filters.update(
        value=value,
        ends=ends,
        percent=percent,
        leaks=lambda part: leaks(part, cell),
        count=lambda n: count(n, cell),
        trainings=trainings,
    )
    attacks = sorted({name for model in models for name in model["membership"]}, key=_attack_order)
    f1_of_all = _f1_of_all(corpus)
    figures = {
        **corpus_plots.corpus_panels(corpus),
        "tradeoff": plots.tradeoff_panels(models),
        "epochs": epoch_plots.epoch_panels(models),
        "excess": plots.excess_panels(models),
        "ngrams": plots.ngram_panels(models),
        "low_cost": membership_plots.low_cost_panels(models, f1_of_all),
        "auc": membership_plots.auc_panels(models, attacks),
        "rocs": [
            panels for panels in (membership_plots.roc_panels(models, attack, cell) for attack in attacks) if panels
        ],
    }
    last = last_checkpoints(audit)
    groups = [(group.title, list(filter(group.holds, last))) for group in figure.groups_of(models)]
    first = [model["membership"][attacks[0]] for model in models if attacks and attacks[0] in model["membership"]]
    low_fprs = [fpr for fpr in ("0.01", "0.001") if any(measured["tpr_at_fpr"].get(fpr) for measured in first)]
    return environment.get_template("report.html.j2").render(
        audit=audit, corpus=corpus, cell_size=cell, findings=plain_findings(audit), figures=figures, attacks=attacks,
        attacks_about=EVERY_ATTACK, policies=POLICIES_ABOUT,
        groups=groups, parts=PARTS, f1_of_all=f1_of_all, low_fprs=low_fprs,
        low_cost=any(model.get('low_cost') for model in models),
        asked_again=any(key in model for model in models for key in ("all_occurrences", "generated", "over_base")),
        inverted=any(model.get('inversion') for model in models), chance=_chance(models),
        in_place=any("in_place" in part for model in models for part in model["privacy"].values()),
        labels=_labels(corpus["detected"]), num_labels=NUM_LABELS, retention=retention_rows(corpus),
        settings=list(_flat(audit['settings'])),
        num_settings_withheld=audit.get('num_settings_withheld'), singled_out=_largest_set(corpus),
        utility=UTILITY, utility_all=UTILITY_ALL, key=figure.key, look_of=figure.look_of, looks=figure.LOOKS,
        best=any(m.get("best_attack") for m in models), blind=[m for m in models if m.get("blind")],
        doubtful=(INVALID, NO_POWER),
        num_seeds=num_seeds(models), recipes=list(dict.fromkeys(m["recipe"] for m in models)), probe=_probe(audit),
        extraction=extraction_html(audit),
    )  # fmt: skip


def _probe(audit: dict[str, Any]) -> str:
    """The section on probes, where the job asked for them; its numbers come closed for small cells."""
    if "probe" not in audit:
        return ""
    from reticent.audit.report.probe_page import probe_section

    return probe_section(audit["probe"])


def _flat(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as (dotted name, value) rows."""
    if isinstance(settings, dict) or (isinstance(settings, list) and any(isinstance(s, dict | list) for s in settings)):
        rows = settings.items() if isinstance(settings, dict) else enumerate(settings, start=1)
        for key, value_ in rows:
            yield from _flat(value_, f"{name}.{key}" if name else str(key))
    elif isinstance(settings, list):
        yield name, ", ".join(map(str, settings)) or "none"
    else:
        plain = {"None": "none", "True": "yes", "False": "no"}
        yield name, plain.get(str(settings), str(settings))


def _attack_order(name: str) -> tuple[int, str]:
    return (DEFAULT_ATTACKS.index(name) if name in DEFAULT_ATTACKS else len(DEFAULT_ATTACKS), name)
