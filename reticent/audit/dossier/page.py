"""The page of a dossier, in one language: evidence for a decision, for a reader without training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.dossier.adversaries import ADVERSARIES, tests_not_made
from reticent.audit.dossier.facts import FACTS, Told
from reticent.audit.dossier.figures import Row, rows_of
from reticent.audit.dossier.impact import FEARED, LEVELS, filled_fields
from reticent.audit.dossier.questions import CRITERIA, EXAMINED, LIKELIHOODS, Question
from reticent.audit.evidence.rules import FORBIDDEN
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.report.environment import template_environment
from reticent.audit.report.risk_text import ShownModel, shown_models, verdicts_on
from reticent.audit.report.selectors import ordinary_utility
from reticent.audit.texts import Texts
from reticent.core.errors import ArtifactError
from reticent.engine.schema import INDIRECT

if TYPE_CHECKING:
    from reticent.audit.dossier.config import Language
    from reticent.audit.evidence.dossier import DossierEvidence

__all__ = ["page_name", "pages_digest", "render"]

#: Claims that no dossier makes, beside those of no report.
CLAIMS = (*FORBIDDEN, "gdpr-ready", "gdpr ready", "conforme au rgpd", "is compliant", "est conforme", "anonymisé")


class Line(NamedTuple):
    """One line of a table of figures, as it is printed."""

    label: str
    whose: str
    value: str
    interval: str
    n: str


class Answer(NamedTuple):
    """A question with its answer: lines of figures, and sentences."""

    title: str
    text: str
    lines: list[Line]
    sentences: list[str]


def page_name(language: Language, languages: Sequence[Language], suffix: str) -> str:
    """Return the file of a page: ``dossier.html`` in the first language, ``dossier.fr.html`` in another."""
    return f"dossier{'' if language == languages[0] else f'.{language}'}.{suffix}"


def pages_digest() -> str:
    """Return the SHA-256 of all files that make the pages; pages of another digest are stale."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    others = [
        here.parent / name
        for name in (
            "near_copies.py",
            "recipes.py",
            "report/format_estimate.py",
            "report/risk_text.py",
            "report/selectors.py",
            "risks.py",
            "risk_verdict.py",
            "stats/estimate.py",
            "stats/seeds.py",
            "texts.py",
            "texts.toml",
        )
    ]
    for path in [*sorted([*here.glob("*.py"), *here.glob("templates/*")]), *others]:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def render(evidence: DossierEvidence, language: Language, languages: Sequence[Language]) -> str:
    """Return the page of published evidence in a language.

    Raises
    ------
    ArtifactError
        The page would make a claim that no dossier may make.
    """
    words = Texts(language)
    audit = evidence.audit
    models = shown_models(audit, words)
    told = Told(evidence, models, words)
    page = template_environment(words, "reticent.audit.dossier").get_template("dossier.html.j2").render(
        lang=language, others=[
            (other, page_name(other, languages, "html"), Texts(other)("dossier.in_this_language"))
            for other in languages if other != language
        ],
        evidence=evidence, audit=audit, declared=evidence.declared, models=models, cell=audit.cell,
        day=words.date(evidence.created), version=audit.versions.get("reticent", "–"),
        verdicts=verdicts_on(models, words),
        utility={model.letter: _utility(model, words) for model in models},
        flow=[sentence for fact in ("documents", "split", "copies", "detection", "protection", "recipes")
              for sentence in FACTS[fact](told)],
        adversaries=[(who, [(test, test.made(told)) for test in who.tests]) for who in ADVERSARIES],
        criteria=[_answer(question, told) for question in CRITERIA],
        likelihoods=[_answer(question, told) for question in LIKELIHOODS],
        examined=[(words(group), [_answer(question, told) for question in questions]) for group, questions in EXAMINED],
        not_made=list(tests_not_made(told)), near_copies=list(near_copies_lines(audit, words)),
        facts=lambda name: list(FACTS[name](told)),
        impact=list(filled_fields(told)), feared=FEARED, levels=LEVELS, outcomes=_outcomes(models),
        reads_identifiers=any(
            model.recipe is None or not model.recipe.replaces_identifiers
            for model in models if not model.is_unprotected
        ),
        protects_rare=any(model.recipe is None or model.recipe.protected_flags & INDIRECT for model in models),
    )  # fmt: skip
    claims = [claim for claim in CLAIMS if claim in page.lower()]
    if claims:
        raise ArtifactError(f"the dossier would say {claims[0]!r}, which none may")
    return page


def _answer(question: Question, told: Told) -> Answer:
    t = told.words
    lines = [_line(row, told) for name in question.figures for row in rows_of(name, told.audit, told.models)]
    sentences = [sentence for name in question.facts for sentence in FACTS[name](told)]
    return Answer(t(question.title), t(question.text), _once(lines), sentences)


def _line(row: Row, told: Told) -> Line:
    t = told.words
    values: dict[str, object] = {
        name: t.count(value) if isinstance(value, int) else value for name, value in row.values.items()
    }
    return Line(
        label=t(row.label, **values),
        whose="" if row.model is None else row.model.letter,
        value=t.value(row.estimate, area=row.area),
        interval=t.interval(row.estimate, area=row.area),
        n=t.count(row.estimate.n, told.audit.cell),
    )


def _once(lines: list[Line]) -> list[Line]:
    """Return lines grouped by label, with each label printed once."""
    labels = list(dict.fromkeys(line.label for line in lines))
    ordered = [line for label in labels for line in lines if line.label == label]
    return [
        line._replace(label="") if number and ordered[number - 1].label == line.label else line
        for number, line in enumerate(ordered)
    ]


def _utility(model: ShownModel, words: Texts) -> str:
    measured = ordinary_utility(model.evidence.utility.heldout, model.evidence.objective)
    if measured is None or measured.value is None:
        return "–"
    return f"{words.value(measured)} ({words.interval(measured)})"


def _outcomes(models: Sequence[ShownModel]) -> Iterator[str]:
    yield from dict.fromkeys(model.risks.outcome for model in models if model.risks)
