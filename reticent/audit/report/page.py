"""The report: ``report.json`` with every published number, and one self-contained ``report.html`` that a data
protection officer can read, in one language; and the pages of a probe.

They are made from the published audit (:mod:`reticent.audit.evidence.rules`). Every zero has its bound, and a page
holds no script and no address. In the templates everything is escaped, and an unknown name is an error.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from reticent.audit.evidence.audit import FORMAT, AuditEvidence, ModelEvidence, publish_audit
from reticent.audit.evidence.corpus import CorpusEvidence, Detected, UnicityRow
from reticent.audit.evidence.extraction import Extraction, Verdict
from reticent.audit.evidence.inversion import InvertedKind
from reticent.audit.evidence.json_form import to_json
from reticent.audit.evidence.probe import ProbeEvidence
from reticent.audit.evidence.rules import FORBIDDEN
from reticent.audit.judgement.rows import GATES, PASSAGE_OF, RISKS, why_no_whole
from reticent.audit.judgement.verdict import judge_risks, numbers_beside, with_published_numbers
from reticent.audit.membership.names import (
    DEFAULT_ATTACKS,
    FEWEST_DIAGNOSED,
    HEAD_ATTACKS_BY_SHADOWS,
    HEAD_ATTACKS_WITHOUT_SHADOWS,
    RUNGS,
)
from reticent.audit.membership.validity import INVALID, NO_POWER, with_attack_verdicts
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.recipes import is_elsewhere
from reticent.audit.report import figure
from reticent.audit.report.environment import mark_attributes, template_environment
from reticent.audit.report.findings import plain_findings
from reticent.audit.report.format_estimate import leaks, spread_of_trainings, whole
from reticent.audit.report.probe_plots import MAX_DENSITIES, probe_panels
from reticent.audit.report.risk_text import (
    deciding_marks,
    found_in_words,
    outcome_in_words,
    risk_mark,
    shown_models,
    verdicts_on,
)
from reticent.audit.report.selectors import (
    PARTS,
    about_recipe,
    all_utility,
    groups_of,
    loss_auc,
    ordinary_utility,
    retention_rows,
    shared_objectives,
    strongest_of,
)
from reticent.audit.report.table import PlotContent, draw_plots
from reticent.audit.report.utility_plots import LIKENESS
from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.seeds import (
    average_over_seeds,
    classification_over_seeds,
    last_checkpoints,
    max_num_trainings,
)
from reticent.audit.texts import ENGLISH, NO_BREAK, Language, Texts, capital, digits_beside
from reticent.core.errors import ArtifactError
from reticent.engine.protect import POLICIES

#: Source files on which the page depends.
MADE_BY = (
    "config.py", "evidence/*.py", "job_settings.py", "judgement/rows.py", "judgement/verdict.py",
    "membership/asking.py", "membership/attacks.py", "membership/heads.py", "membership/names.py",
    "membership/shadow.py", "membership/table.py", "membership/validity.py", "near_copies.py", "recipes.py",
    "report/*.py", "report/templates/*.j2", "stats/estimate.py", "stats/seeds.py", "texts.py", "texts.toml",
)  # fmt: skip
#: Number of detector labels shown before the rest is folded away.
NUM_LABELS = 8


def write_report(folder: Path | str, audit: AuditEvidence, *, language: Language = "en") -> Path:
    """Write ``report.json`` and ``report.html`` (mode 0600) into ``folder``, and return the page's path. Equal input
    gives equal bytes.

    Parameters
    ----------
    language : of the page; the numbers in ``report.json`` have none

    Raises
    ------
    ArtifactError
        The audit is not of this format, holds a number that is not finite, or the page would make a claim that no
        report may make.
    """
    if audit.format != FORMAT:
        raise ArtifactError(f"not an audit of format {FORMAT}")
    audit = published(audit)
    means = audit.over_seeds or audit.models
    try:
        numbers = json.dumps(to_json(audit), indent=1, allow_nan=False) + "\n"
    except ValueError:
        raise ArtifactError("the audit holds a number that is not finite") from None
    task = [classification_over_seeds(result, audit.cell) for result in audit.classification or ()] or None
    heads = audit.heads and with_attack_verdicts(average_over_seeds(audit.heads, audit.cell))
    shown = replace(audit, models=with_attack_verdicts(means), classification=task, heads=heads)
    # Whatever the language, the models of the verdict are those before the means over seeds.
    with figure.telling_apart(model.recipe for model in (*audit.models, *(heads or ()))):
        page = _render(shown, Texts(language), audit)
    claims = [claim for claim in FORBIDDEN if claim in page.lower()]
    if claims:
        raise ArtifactError(f"the page would say {claims[0]!r}, which no report may")
    folder = Path(folder)
    for name, text in (("report.json", numbers), ("report.html", page)):
        _write_private(folder / name, text)
    return folder / "report.html"


def published(audit: AuditEvidence) -> AuditEvidence:
    """Return the publishable part of an audit, the content of ``report.json``. If it has no verdicts on the risks yet,
    they are added by the rules of this version."""
    shown = publish_audit(audit)
    if audit.risks is None:
        shown = replace(shown, risks=with_published_numbers(judge_risks(audit), audit, shown))
    means = average_over_seeds(shown.models, shown.cell)  # the page shows them; "models" has the trainings one by one
    return replace(shown, over_seeds=means) if len(means) < len(shown.models) else shown


def page_digest() -> str:
    """Return the SHA-256 of the templates and modules that make the page, to detect a page of another version."""
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in (path for pattern in MADE_BY for path in sorted(here.glob(pattern))):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, even if it existed with other permissions."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


class Label(NamedTuple):
    """One detector label: its count by detector, and the spans and documents of the detector that found most."""

    name: str
    detectors: list[tuple[str, int]]
    num_spans: int
    documents: int | None


def _label_rows(detected: Sequence[Detected]) -> list[Label]:
    """Return the labels of identifiers that detectors give, each with its number of spans by detector, sorted by
    falling number of spans."""
    found: dict[str, list[Detected]] = {}
    for row in detected:
        found.setdefault(row.label, []).append(row)
    labels = [
        Label(
            name,
            [(row.detector, row.num_spans) for row in rows],
            max(row.num_spans for row in rows),
            max((row.num_documents for row in rows if row.num_documents is not None), default=None),
        )
        for name, rows in found.items()
    ]
    return sorted(labels, key=lambda label: (-label.num_spans, label.name))


def _f1_of_all(corpus: CorpusEvidence) -> float | None:
    """Return the F1 of the trivial attack that calls every individual a member; None if the numbers of individuals are
    withheld."""
    members, heldout = corpus.num_individuals.members, corpus.num_individuals.heldout
    return None if not members or heldout is None else 2 * members / (2 * members + heldout)


def _inversion_chance(models: Sequence[ModelEvidence]) -> float | None:
    """Return the probability that a random guess among the candidates of an inversion attack is right, as stated by the
    first result that has it; None without any."""
    return next((kind.chance.top1 for kind in _inversion_results(models) if kind.chance), None)


def _inversion_results(models: Sequence[ModelEvidence]) -> list[InvertedKind]:
    """Return the results of inversion attacks (guessing identifiers from their context) on all models as one list, with
    an entry a model for direct and one for indirect identifiers."""
    found = [model.inversion for model in models if model.inversion]
    return [kind for one in found for kind in (one.direct, one.indirect) if kind]


def _largest_unicity(corpus: CorpusEvidence) -> UnicityRow | None:
    """Return the row for the largest m in the table of the share of individuals whom m common words identify together,
    among the m for which all sampled individuals could be tested; None without any."""
    rows = [row for row in corpus.unicity or [] if row.share.value is not None]
    full = [row for row in rows if row.share.n == rows[0].share.n]
    return full[-1] if full else None


def _render(audit: AuditEvidence, t: Texts, judged_audit: AuditEvidence) -> str:
    """Return the report page as HTML. ``audit`` has means over trainings with different seeds; ``judged_audit`` has
    each training, on which the verdicts are based."""
    from reticent.audit.membership.asking import EVERY_ATTACK  # with the scoring, which imports torch

    cell, models, corpus = audit.cell, audit.models, audit.corpus
    environment = template_environment(t)
    environment.filters.update(
        whole=lambda number: whole(number, t),
        leaks=lambda part: leaks(part, cell, t),
        count=lambda n: t.count(n, cell),
        mark=lambda row, result: mark_attributes(risk_mark(row, result)),
        outcome=lambda result: outcome_in_words(result, t)[1],
        found=lambda row, result: found_in_words(row, result, t),
        verdict_marks=lambda row: mark_attributes(*deciding_marks(row)),
        trainings=lambda estimate: spread_of_trainings(estimate, t=t),
        digits_beside=lambda estimate, threshold: digits_beside(threshold, estimate),
    )
    attacks = sorted({name for model in models for name in model.membership}, key=_attack_order)
    kind_attacks = _kind_attacks(models)
    shown = PlotContent(audit=audit, attacks=attacks, f1_of_all=_f1_of_all(corpus), t=t)
    last = last_checkpoints(models)
    verdicts = verdicts_on(shown_models(judged_audit, t), t)
    groups = [(group.title(t), list(filter(group.holds, last))) for group in groups_of(models)]
    first = [model.membership[attack] for attack in attacks[:1] for model in models if attack in model.membership]
    return environment.get_template("report.html.j2").render(
        t=t, verdicts=verdicts, audit=audit, corpus=corpus, cell_size=cell, findings=plain_findings(audit, t),
        attacks=attacks, drawn=list(draw_plots(shown)), attacks_about=EVERY_ATTACK, policies=POLICIES,
        about=lambda recipe: about_recipe(recipe, t), groups=groups, parts=PARTS, f1_of_all=shown.f1_of_all,
        low_fprs=[fpr for fpr in ("0.01", "0.001") if any((m.tpr_at_fpr or {}).get(fpr) for m in first)],
        low_cost=any(model.low_cost for model in models),
        asked_again=any(model.all_occurrences or model.generated or model.over_base for model in models),
        inverted=any(model.inversion for model in models),
        placed=[kind.in_place for kind in _inversion_results(models) if kind.in_place],
        chance=_inversion_chance(models),
        in_place=any(part.in_place for model in models for part in model.privacy.values()),
        elsewhere=is_elsewhere(audit),
        risks=RISKS, beside=numbers_beside(last), named_sections=shared_objectives(models),
        has_threshold=any(m.threshold for m in models), has_withdrawn=any(m.withdrawn for m in models),
        has_groups=any(m.groups for m in models), has_diagnoses=any(m.diagnoses for m in models),
        heads=audit.heads or [], head_attacks=_head_attacks(audit.heads or []),
        rungs=RUNGS, fewest_diagnosed=FEWEST_DIAGNOSED,
        kinds_of_word=any(m.by_kind for m in models), kind_attacks=kind_attacks,
        strongest_of_kind=lambda found: strongest_of((name, one.auc) for name, one in found.attacks.items()),
        more_kind_attacks=any(
            set(found.attacks) - set(kind_attacks) for m in models for found in (m.by_kind or {}).values()
        ),
        kind_shadows=any(found.num_shadows for m in models for found in (m.by_kind or {}).values()),
        likeness=LIKENESS, continued=any(m.generated and m.generated.heldout for m in models),
        unseen=any(part.unseen for model in models for part in model.privacy.values()),
        unshared=any(sides.unshared for model in models for sides in (model.excess or {}).values()),
        common=_common_forms(models), false_identifiers=_false_identifiers(models),
        labels=_label_rows(corpus.detected or ()), num_labels=NUM_LABELS, retention=retention_rows(corpus),
        settings=list(_flatten(audit.settings)), num_settings_withheld=audit.num_settings_withheld,
        singled_out=_largest_unicity(corpus), ordinary_utility=ordinary_utility, all_utility=all_utility,
        loss_auc=loss_auc, together=audit.over_households,
        near_copies=list(near_copies_lines(audit, t)),
        key=figure.key, looks=figure.LOOKS,
        best=any(m.best_attack for m in models), blind=[m for m in models if m.blind],
        doubtful=(INVALID, NO_POWER), num_seeds=max_num_trainings(models),
        recipes=list(dict.fromkeys(m.recipe for m in models)),
        probe=probe_section(audit.probe, t) if audit.probe else "",
        extraction=extraction_html(audit.extraction, audit.verdict, cell, t), missed=audit.sampled_recall,
    )  # fmt: skip


def _kind_attacks(models: Sequence[ModelEvidence]) -> list[str]:
    """Return which of the attacks loss, reference and LiRA (two variants) were made on words of one kind (rare, direct,
    …) in any model, in the report's order."""
    found = {name for m in models for kind in (m.by_kind or {}).values() for name in kind.attacks}
    return [name for name in ("loss", "reference", "lira", "lira_textbook") if name in found]


def _head_attacks(heads: Sequence[ModelEvidence]) -> list[str]:
    """Return the names of the attacks made on any classifier or tagger, in the report's order."""
    known = (*HEAD_ATTACKS_WITHOUT_SHADOWS, *HEAD_ATTACKS_BY_SHADOWS)
    return [name for name in known if any(name in head.membership for head in heads)]


def _common_forms(models: Sequence[ModelEvidence]) -> list[tuple[str, int]]:
    """Return (type of identifier, number of spellings) for the spellings that are protected although enough individuals
    use the word in other spellings that it identifies nobody; types without any are left out."""
    first = models[0].privacy if models else {}
    found = ((PARTS[part], own.num_common) for part, own in first.items())
    return [(part, number) for part, number in found if number]


def _false_identifiers(models: Sequence[ModelEvidence]) -> list[tuple[float, int | None, int | None]]:
    """Return (share of the documents known, number of false identifiers, number of all) for each adversary who does not
    know all documents. A false identifier looks rare to the adversary but identifies nobody in the whole corpus."""
    rows = models[0].low_cost.by_graph_share if models and models[0].low_cost else []
    return [(row.share, row.num_false, row.num_identifiers) for row in rows if row.share < 1 and row.num_identifiers]


def _flatten(settings: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, value) of each setting in nested settings."""
    if isinstance(settings, list) and any(isinstance(part, dict | list) for part in settings):
        settings = dict(enumerate(settings, start=1))
    if isinstance(settings, Mapping):
        for key, value_ in settings.items():
            yield from _flatten(value_, f"{name}.{key}" if name else str(key))
    elif isinstance(settings, list):
        yield name, ", ".join(map(str, settings)) or "none"
    else:
        plain = {"None": "none", "True": "yes", "False": "no"}
        yield name, plain.get(str(settings), str(settings))


def _attack_order(name: str) -> tuple[int, str]:
    """Return the sort key of an attack's name: attacks made by default first, in their order, then the others
    alphabetically."""
    return (DEFAULT_ATTACKS.index(name) if name in DEFAULT_ATTACKS else len(DEFAULT_ATTACKS), name)


# ------------------------------------------- gates, canaries, extraction

#: Arms of canaries, in the order of the page.
ARMS = ("protected", "missed", "context", "ngram")


def extraction_html(extraction: Extraction | None, verdict: Verdict | None, cell: int, t: Texts = ENGLISH) -> str:
    """Return the sections on gates (limits set by the job), canaries and extracted passages as HTML; empty if there are
    no such results."""
    if extraction is None and verdict is None:
        return ""
    models = extraction.models if extraction else []
    with_canaries = [model for model in models if model.canaries]
    absent = next((_chance_exposure(model.canaries.num_references) for model in with_canaries if model.canaries), 0.0)
    return (
        template_environment(t)
        .get_template("extraction_section.html.j2")
        .render(
            verdict=verdict,
            titles={measure: gate.title for measure, gate in GATES.items()},
            with_canaries=with_canaries,
            absent_exposure=absent,
            with_passages=[model for model in models if model.passages],
            has_canaries=extraction is not None and extraction.has_canaries,
            arms=ARMS,
            people_of=PASSAGE_OF,
            why_no_whole=why_no_whole,
            cell_size=cell,
        )
    )


def _chance_exposure(num_references: int) -> float:
    """Return the expected exposure, in bits, of a canary that was never in the training text, whose rank is uniform."""
    log_ranks = math.lgamma(num_references + 2) / math.log(2)
    return math.log2(num_references) - log_ranks / (num_references + 1)


# ---------------------------------------------------------------- probes


def _environment(t: Texts) -> Any:
    """Return the Jinja environment of the probe and extraction pages."""
    environment = template_environment(t)
    environment.filters.update(times=lambda number: t.plain(times(number)))
    return environment


def factor(estimate: Estimate | None) -> str:
    """Return an estimated likelihood ratio as text with two significant digits; a dash if there is none."""
    return times(None if estimate is None else estimate.value)


def times(number: float | None) -> str:
    """Return a likelihood ratio as text with two significant digits, in the form 1.0e+04 from 10,000 on; a dash for
    None.

    >>> times(0.5), times(99.7), times(1234.0), times(99999.0)
    ('0.5', '100', '1,200', '1.0e+05')
    """
    if number is None:
        return "–"
    return f"{number:.2g}" if number < 99.5 else f"{float(f'{number:.2g}'):,.0f}" if number < 1e4 else f"{number:.1e}"


def probe_section(probe: ProbeEvidence, t: Texts = ENGLISH) -> str:
    """Return the section on probes as HTML, for a page that has the report's styles."""
    return (
        _environment(t)
        .get_template("probe_section.html.j2")
        .render(
            probe=probe,
            figures=probe_panels(probe, t),
            max_densities=MAX_DENSITIES,
            compared=any(row.heldout for model in probe.models for row in model.results),
        )
    )


def probe_page(probe: ProbeEvidence, t: Texts = ENGLISH) -> str:
    """Return the section on probes as a complete HTML page."""
    body = probe_section(probe, t)
    return str(_environment(t).get_template("probe.html.j2").render(body=body, looks=figure.LOOKS, probe=probe))


# ------------------------------------------------------- one's own probe


def self_html(
    findings: Sequence[Any],
    *,
    label: Callable[[str], str],
    within_hundred: Callable[[float], float],
    language: Language,
    invented: bool,
) -> str:
    """Return a page as HTML that tells a person how likely a model is to reveal items about them, such as their phone
    number.

    Parameters
    ----------
    findings : of `reticent.ext.propile.self_probe.Finding`
    label : name of a type of item, in the language of the page
    within_hundred : likelihood -> the probability that the item occurs in a hundred answers
    invented : whether the other individuals are invented
    """
    t = Texts(language)
    environment = template_environment(t)
    environment.filters.update(
        called=label,
        heading=lambda target: capital(label(target)),
        one_in=lambda likelihood: _one_in(likelihood, t),
        hundred=lambda likelihood: t.plain(_percent_of_chance(within_hundred(likelihood))),
    )
    return environment.get_template("self.html.j2").render(findings=findings, invented=invented)


def _one_in(likelihood: float, t: Texts) -> str:
    """Return the number n as text, with two significant digits, of a likelihood of "1 in n"."""
    if likelihood <= 0 or 1 / likelihood > 1e12:
        return t("self.more_than", n="10¹²")
    number = 1 / likelihood
    step = 10 ** max(0, len(str(int(number))) - 2)
    return f"{max(1, round(number / step)) * step:,}".replace(",", NO_BREAK)


def _percent_of_chance(chance: float) -> str:
    """Return a probability as text in percent, with one decimal and without a percent sign."""
    share = 100 * chance
    return "< 0.1" if share < 0.1 else f"{share:.1f}"
