"""The HTML page of a dossier, in one language: evidence for a decision on release, for a reader without training."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from reticent.audit.config import ACCESS, COMPASS
from reticent.audit.evidence.rules import FORBIDDEN
from reticent.audit.judgement.rows import RISKS
from reticent.audit.membership.names import (
    CHECKPOINTS,
    CLASSIFIER,
    HEAD_ATTACKS_BY_SHADOWS,
    HEAD_ATTACKS_WITHOUT_SHADOWS,
    LANGUAGE_MODELS,
    SELF_CALIBRATION,
    STATES,
    TAGGER,
)
from reticent.audit.membership.validity import CHANCE, INVALID
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.report import plots
from reticent.audit.report.environment import template_environment
from reticent.audit.report.figure import key, telling_apart
from reticent.audit.report.risk_text import ShownModel, outcome_in_words, risk_mark, shown_models, verdicts_on
from reticent.audit.report.selectors import ordinary_utility, strongest_attack
from reticent.audit.texts import Language, Marked, Texts
from reticent.core.errors import ArtifactError
from reticent.engine.schema import INDIRECT
from reticent.ext.dossier.fact_sentences import FACTS, Context, setting

if TYPE_CHECKING:
    from reticent.audit.evidence.audit import AuditEvidence
    from reticent.audit.evidence.dossier import DossierEvidence
    from reticent.audit.evidence.inversion import InvertedKind
    from reticent.audit.evidence.membership import MeasuredAttack
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.evidence.probe import ProbedModel
    from reticent.audit.stats.estimate import Estimate

#: Claims that no dossier makes, beside those of no report.
CLAIMS = (*FORBIDDEN, "gdpr-ready", "gdpr ready", "conforme au rgpd", "is compliant", "est conforme", "anonymisé")


#: Models side by side in a table; more stand in another one below.
WIDTH = 6


#: Unit of an estimate -> what names its number; the others are people.
UNITS = {
    "household": "dossier.n_households",
    "households": "dossier.n_households",
    "rows of the vocabulary": "dossier.n_rows_of_the_vocabulary",
}


class Line(NamedTuple):
    """One figure of a table, formatted for print: value, interval, and number of units with their name."""

    value: str
    interval: str
    n: str


class Answer(NamedTuple):
    """An authority's question with its answer: a table, one row a measure and one column a model, and sentences."""

    name: str
    title: str
    text: str
    #: Letters of the models that have a figure here; an empty one stands for the documents.
    columns: list[str]
    measures: list[tuple[str, dict[str, Line]]]
    sentences: list[str]


def page_name(language: Language, languages: Sequence[Language], suffix: str) -> str:
    """Return the file name of a dossier page: ``dossier.html`` in the first language, ``dossier.fr.html``
    in another.
    """
    return f"dossier{'' if language == languages[0] else f'.{language}'}.{suffix}"


def pages_digest() -> str:
    """Return the SHA-256 over all source files and templates that the dossier's pages are rendered from."""
    here, digest = Path(__file__).parent, hashlib.sha256()
    audit = here.parents[1] / "audit"
    others = [
        audit / name
        for name in (
            "crosswalk.toml",
            "judgement/rows.py",
            "judgement/verdict.py",
            "near_copies.py",
            "recipes.py",
            "report/figure.py",
            "report/format_estimate.py",
            "report/plots.py",
            "report/risk_text.py",
            "report/selectors.py",
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
    """Render the dossier's HTML page in one language from published evidence; it links to the pages in the other
    languages.

    Raises
    ------
    ArtifactError
        The page would make a claim that no dossier may make.
    """
    words = Texts(language)
    audit = evidence.audit
    models = shown_models(audit, words)
    language_models = [model for model in models if model.evidence.start is None]
    context = Context(evidence, models, words)
    printed: dict[str, str] = {}
    criteria = [_answer_question(question, context, printed) for question in CRITERIA]
    likelihoods = [_answer_question(question, context, printed) for question in LIKELIHOODS]
    examined = [
        (words(group), [_answer_question(question, context, printed) for question in questions])
        for group, questions in EXAMINED
    ]
    with telling_apart(model.recipe for model in (*audit.models, *(audit.heads or ()))):
        page = template_environment(words, "reticent.ext.dossier").get_template("dossier.html.j2").render(
            lang=language, others=[
                (other, page_name(other, languages, "html"), Texts(other)("dossier.in_this_language"))
                for other in languages if other != language
            ],
            evidence=evidence, audit=audit, declared=evidence.declared, models=language_models, cell=audit.cell,
            day=words.date(evidence.created), version=audit.versions.get("reticent", "–"),
            verdicts=verdicts_on(models, words),
            utility={model.letter: _format_utility(model, words) for model in language_models},
            flow=[sentence for fact in ("documents", "split", "copies", "detection", "protection", "recipes")
                  for sentence in FACTS[fact](context)],
            adversaries=[(who, [(test, test.coverage(context)) for test in who.tests]) for who in ADVERSARIES],
            criteria=criteria, likelihoods=likelihoods, examined=examined, width=WIDTH,
            key=lambda recipe: _for_print(key(recipe)),
            picture=list(map(_for_print, plots.tradeoff_panels([model.evidence for model in language_models], words))),
            not_made=[(who, test, test.reason_not_made(context)) for who, test in tests_not_made(context)],
            copies=list(attacked_copies(context)), access=list(FACTS["release"](context)),
            counted=ACCESS.get(str(setting(audit, "dossier", "access")), ()),
            elsewhere=isinstance(setting(audit, "subject"), Mapping), not_made_on=list(not_made_on(context)),
            near_copies=list(near_copies_lines(audit, words)),
            facts=lambda name: list(FACTS[name](context)), paragraphs=crosswalk()["paragraphs"],
            crossed=list(crosswalk_rows(context, printed)),
            impact=list(filled_fields(context)), feared=FEARED, levels=LEVELS, outcomes=_distinct_verdicts(models),
            reads_identifiers=any(
                model.recipe is None or not model.recipe.replaces_identifiers
                for model in models if not model.is_unprotected
            ),
            protects_rare=any(
                model.recipe is None or model.recipe.protected_flags & INDIRECT for model in language_models
            ),
        )  # fmt: skip
    claims = [claim for claim in CLAIMS if claim in page.lower()]
    if claims:
        raise ArtifactError(f"the dossier would say {claims[0]!r}, which none may")
    return page


def _answer_question(question: Question, context: Context, printed: dict[str, str]) -> Answer:
    """Return the answer to a data protection authority's question: a table of figures by model, and sentences.
    ``printed`` maps each figure to the first question that printed it: it is not printed again but referred to, and new
    ones are added.
    """
    t, key = context.words, f"questions.{question.name}"
    measures: dict[str, dict[str, Line]] = {}
    for name in question.figures:
        rows = list(rows_of(name, context.audit, context.models))
        if rows and printed.setdefault(name, question.name) == question.name:
            for row in rows:
                label, line = _format_row(row, context)
                measures.setdefault(label, {})["" if row.model is None else row.model.letter] = line
    sentences = [sentence for name in question.facts for sentence in FACTS[name](context)]
    before = dict.fromkeys(
        printed[name] for name in question.figures if printed.get(name, question.name) != question.name
    )
    if before:
        titles = [t(f"questions.{each}.title") for each in before]
        sentences.append(t("dossier.see_the_figures_of", titles=t.listed([f"« {each} »" if t.language == "fr" else
                           f"“{each}”" for each in titles])))  # fmt: skip
    used = {letter for lines in measures.values() for letter in lines}
    columns = [letter for letter in [*(model.letter for model in context.models), ""] if letter in used]
    return Answer(question.name, t(f"{key}.title"), t(f"{key}.text"), columns, list(measures.items()), sentences)


def _format_row(row: Row, context: Context) -> tuple[str, Line]:
    """Return the label of a figure's row, and its value, interval and n formatted in the page's language."""
    t = context.words
    values: dict[str, object] = {
        name: t.count(value) if isinstance(value, int) else t(value) if isinstance(value, Key) else value
        for name, value in row.values.items()
    }
    values["count"] = row.values.get("count")  # as a number: it chooses the form of the text
    if row.estimate is None:
        return t(row.label, **values), Line(t("common.not_measured"), "", "")
    value, interval = t.value(row.estimate, area=row.area), t.interval(row.estimate, area=row.area)
    unit = UNITS.get(row.estimate.unit, "dossier.n_people")
    n = t(unit, n=t.count(row.estimate.n, context.audit.cell), count=row.estimate.n)
    return t(row.label, **values), Line(value, interval, n)


def _format_utility(model: ShownModel, words: Texts) -> str:
    """Return a model's accuracy or similar on held-out documents as text with its interval; "–" if not measured."""
    measured = ordinary_utility(model.evidence.utility.heldout, model.evidence.objective)
    if measured is None or measured.value is None:
        return "–"
    return f"{words.value(measured)} ({words.interval(measured)})"


def _for_print(svg: str) -> str:
    """Return an SVG figure for print: each CSS variable is replaced by its fallback colour."""
    return re.sub(r"var\(--[\w-]+,(#\w+)\)", r"\1", svg)


def _distinct_verdicts(models: Sequence[ShownModel]) -> Iterator[str]:
    """Yield the distinct verdicts on these models."""
    yield from dict.fromkeys(model.risks.outcome for model in models if model.risks)


# ------------------------------------------------------------- questions


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its name in the catalogue of texts, and the names of the figures and facts that answer it."""

    name: str
    figures: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


#: Opinion 05/2014: the three criteria.
CRITERIA = (
    Question("singling_out", ("threshold", "at_threshold", "kinds", "subgroup", "unicity")),
    Question("linkability", ("membership", "user_inference", "names", "probes", "inversion")),
    Question("inference", ("excess", "association", "diagnoses", "attributes")),
)
#: Opinion 28/2024: both must be insignificant for every individual whose data were used.
LIKELIHOODS = (
    Question("extraction_from_the_model", ("predicted", "excess", "moved", "partial_copy")),
    Question("personal_data_from_queries", ("written", "passages", "probes", "inversion")),
)
#: Opinion 28/2024: what an authority looks at, by group.
EXAMINED = (
    (
        "questions.design",
        (
            Question("sources", facts=("documents", "split")),
            Question("preparation", ("missed",), ("detection", "copies", "protection")),
            Question("training", facts=("recipes", "ledger", "guarantee")),
            Question("outputs"),
        ),
    ),
    (
        "questions.analysis_and_governance",
        (
            Question("documentation_against_practice", facts=("digests", "ledger")),
            Question("reviews"),
        ),
    ),
    (
        "questions.testing_and_resistance_to_attacks",
        (
            Question("attribute_inference", ("association", "diagnoses", "attributes")),
            Question("membership_inference", ("membership", "at_threshold", "kinds", "user_inference", "withdrawn")),
            Question("exfiltration_and_regurgitation", ("passages", "written"), ("canaries",)),
            Question("model_inversion", ("inversion", "in_place")),
            Question("reconstruction", ("moved",)),
            Question("structure_and_age_of_the_tests", facts=("tests",)),
        ),
    ),
    (
        "questions.documentation",
        (
            Question("impact_assessment"),
            Question("data_protection_officer"),
            Question("measures_along_the_life_cycle", facts=("life_cycle",)),
            Question("theoretical_resistance", facts=("capacity",)),
            Question("likelihood_of_identification", ("membership", "unicity")),
            Question("reports_of_tests", facts=("tests", "digests")),
            Question("those_who_deploy_it", facts=("card",)),
        ),
    ),
)


# --------------------------------------------------------------- figures


class Key(str):
    """A value inserted into a label that is itself a key of the catalogue of texts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a figure: its label with inserted values, its model (None: the documents), and the estimate (None:
    not measured, and listed as such)."""

    label: str
    model: ShownModel | None
    estimate: Estimate | None
    values: Mapping[str, object] = field(default_factory=dict)
    #: An area under the curve (0.5 is chance); else a share or a difference of shares.
    area: bool = False


Found = Iterator[Row]


@dataclass(frozen=True, slots=True)
class Figure:
    """A family of numbers, by the functions that find them in the evidence of a model or of the whole audit."""

    of_model: Callable[[ShownModel], Found] | None = None
    of_audit: Callable[[AuditEvidence, Sequence[ShownModel]], Found] | None = None


def rows_of(name: str, audit: AuditEvidence, models: list[ShownModel]) -> Iterator[Row]:
    """Yield the rows of one of the dossier's `FIGURES`, given its ``name``, from the audit and from each shown model.
    Rows whose estimate has no value are left out.
    """
    figure = FIGURES[name]
    found = [row for model in models for row in (figure.of_model(model) if figure.of_model else ())]
    found += figure.of_audit(audit, models) if figure.of_audit else ()
    yield from (row for row in found if row.estimate is None or row.estimate.value is not None)


def _figure_of_attribute(
    label: str, get_evidence: Callable[[ModelEvidence], object], attribute: str, *, area: bool = False
) -> Figure:
    """Return a `Figure` with one row for each model: ``get_evidence`` takes an object from the model's evidence, and
    ``attribute`` is the name of its attribute to show. The row is formatted as an AUC if ``area``, else in percent.
    """

    def of_model(model: ShownModel) -> Found:
        """Yield one row with the attribute's value for this model; nothing if the evidence has no such object."""
        if found := get_evidence(model.evidence):
            yield Row(label, model, attrgetter(attribute)(found), area=area)

    return Figure(of_model)


def _excess_rows(model: ShownModel) -> Found:
    """Yield rows with a model's excess leakage, the rate for members' identifiers minus that for held-out individuals'
    ones: of all, direct and indirect identifiers.
    """
    for part, label in (
        ("both", "figures.identifiers_of_the_people_it_was_trained_on"),
        ("direct", "figures.of_these_names_and_numbers"),
        ("indirect", "figures.of_these_rare_words"),
    ):
        sides = (model.evidence.excess or {}).get(part)  # type: ignore[call-overload]
        if sides:
            yield Row(label, model, sides.excess)


def _passage_rows(model: ShownModel) -> Found:
    """Yield rows with the share of training passages that can be extracted from a model, by prefix length and number of
    samples.
    """
    passages = model.extracted.passages if model.extracted else None
    for row in passages.rates if passages else ():
        if row.asked == "all" and row.num_queries is None:
            values = {"tokens": row.prefix_tokens, "count": row.prefix_tokens}
            label = "common.passages_that_come_back_word_for_word_given"
            if row.measure == "near_verbatim":
                label = "common.passages_that_nearly_come_back_given"
            yield Row(label, model, row.members, values)
        elif row.asked == "all":
            values = {"tokens": row.prefix_tokens, "draws": row.num_queries, "count": row.num_queries}
            label = "common.passages_that_come_back_within_draws_tries"
            yield Row(label, model, row.members, values)
    if passages:
        exposed = passages.exposed
        yield Row("evidence.people_of_whom_a_whole_passage_comes_back", model, exposed.members if exposed else None)


def _membership_rows(model: ShownModel) -> Found:
    """Yield a row with the AUC of the strongest membership attack on a model."""
    strongest = strongest_attack(model.evidence)
    if strongest:
        num_attacks = len(_valid_attacks(model))
        values = {"attacks": num_attacks, "count": num_attacks}
        label = "figures.how_surely_the_strongest_of_attacks_tests_of"
        if model.evidence.start is not None:
            label = "figures.how_surely_its_labels_tell_who"
        yield Row(label, model, strongest[1], values, area=True)


def _valid_attacks(model: ShownModel) -> list[MeasuredAttack]:
    """Return the membership attacks on a model whose controls do not invalidate them."""
    return [attack for attack in model.evidence.membership.values() if attack.verdict != INVALID]


def _threshold_rows(model: ShownModel) -> Found:
    """Yield rows with the AUC of two membership attacks at the protection threshold k: one on the words that exactly k
    individuals use, one by likelihood on all words that about k individuals use.
    """
    found = model.evidence.threshold
    if found:
        values = {"k": found.k}
        label = "figures.how_surely_words_of_exactly_k_people_in"
        yield Row(label, model, found.at_threshold.auc, values, area=True)
        if found.by_likelihood:
            label = "figures.how_surely_all_words_near_that_number_of"
            yield Row(label, model, found.by_likelihood.auc, area=True)


KINDS = {
    "all": "figures.how_surely_all_words_together_tell_who_was",
    "ordinary": "figures.how_surely_ordinary_words_alone_tell_who_was",
    "rare": "figures.how_surely_rare_words_alone_tell_who_was",
    "direct": "figures.how_surely_names_and_numbers_alone_tell_who",
}


def _word_kind_rows(model: ShownModel) -> Found:
    """Yield rows with the AUC of a membership attack on one kind of words alone: all, ordinary, rare, or direct
    identifiers.
    """
    for kind, label in KINDS.items():
        found = (model.evidence.by_kind or {}).get(kind)
        attack = found and next((found.attacks[a] for a in ("lira", "reference", "loss") if a in found.attacks), None)
        if attack:
            yield Row(label, model, attack.auc, area=True)


def _subgroup_rows(model: ShownModel) -> Found:
    """Yield a row with the membership AUC of the subgroup of individuals that is attacked best."""
    found = [attack.worst_subgroup for attack in _valid_attacks(model) if attack.worst_subgroup]
    worst = max(found, key=lambda group: group.auc.value or 0, default=None)
    if worst:
        yield Row("figures.the_same_in_the_subgroup_that_is_most", model, worst.auc, area=True)


def _inversion_results(model: ShownModel) -> Iterator[tuple[str, InvertedKind]]:
    """Yield ("direct" or "indirect", result) for each class of identifiers on which the inversion attack was run on a
    model.
    """
    found = model.evidence.inversion
    for name, kind in (("direct", found.direct), ("indirect", found.indirect)) if found else ():
        if kind:
            yield name, kind


def _inversion_rows(model: ShownModel) -> Found:
    """Yield rows of the inversion attack, which ranks a true identifier among decoys by the model's likelihood of the
    words around it: the rate of first ranks for members minus that for held-out individuals.
    """
    for name, kind in _inversion_results(model):
        if kind.all:
            label = {
                "direct": "figures.names_and_numbers_picked_out_among_decoys_by",
                "indirect": "figures.rare_words_picked_out_among_decoys_by_the",
            }[name]
            yield Row(label, model, kind.all.top1.excess)


def _in_place_rows(model: ShownModel) -> Found:
    """Yield rows of the attack that ranks a true identifier among decoys by the model's likelihood of the identifier
    itself: the rate of first ranks for members minus that for held-out individuals.
    """
    for name, kind in _inversion_results(model):
        if kind.in_place:
            label = {
                "direct": "figures.names_and_numbers_likelier_in_their_place",
                "indirect": "figures.rare_words_likelier_in_their_place",
            }[name]
            yield Row(label, model, kind.in_place.ranked.top1.excess)


def _diagnosis_rows(model: ShownModel) -> Found:
    """Yield rows with how well members' diagnoses can be inferred from a model, one for each amount of prior knowledge
    of the attacker. Placebo rows give the same for recorded diagnoses that no text mentions.
    """
    found = model.evidence.diagnoses
    for kind, cells in (("sensitive", found.sensitive), ("other", found.other)) if found else ():
        for rung, cell in cells.items():
            values = {
                "diagnoses": Key(f"ladder.{kind}"),
                "known": Key(f"ladder.rungs.{rung}"),
                "num": cell.num_diagnoses,
                "listed": cell.num_diagnoses + cell.num_too_few,
            }
            yield Row("figures.diagnoses_told", model, cell.told, values)
            if cell.placebo:
                yield Row("figures.diagnoses_placebo", model, cell.placebo, values)


def _attribute_rows(model: ShownModel) -> Found:
    """Yield rows with how much better each attribute of members than of held-out individuals is inferred from a
    classifier, by its probabilities and by its label alone.
    """
    for name, told in (model.evidence.attributes or {}).items():
        yield Row("figures.attribute_told", model, told.logits.excess, {"attribute": name})
        yield Row("figures.attribute_told_by_the_label", model, told.label_only.excess, {"attribute": name})


def _name_rows(model: ShownModel) -> Found:
    """Yield two rows of the name attack on a tagger: how often its scores tell a member's name from a held-out one, and
    by how much that exceeds an attack that has the names but not the model.
    """
    if found := model.evidence.names:
        yield Row("figures.name_told", model, found.told, area=True)
        yield Row("figures.name_told_over_blind", model, found.over_blind, area=True)


def _embedding_shift_rows(model: ShownModel) -> Found:
    """Yield one row of the embedding-shift attack: the AUROC with which the distance that training moved an input
    embedding tells tokens that occur only in identifiers from unused tokens.
    """
    shift = model.evidence.inversion.embedding_shift if model.evidence.inversion else None
    if shift and shift.input:
        label = "figures.how_surely_its_files_show_which_identifying"
        yield Row(label, model, shift.input, area=True)


def _unicity_rows(audit: AuditEvidence, _: Sequence[ShownModel]) -> Found:
    """Yield rows with the share of sets of m words, each used by at least k individuals, that only one individual has
    together.
    """
    rows = [row for row in audit.corpus.unicity or () if row.share.value is not None]
    wanted = [row for row in rows if row.m in (2, 4, 10)] or rows[-1:]
    for row in wanted:
        values = {"m": row.m, "k": audit.corpus.k}
        label = "figures.sets_of_m_words_each_used_by_k"
        yield Row(label, None, row.share, values)


def _probe_rows(audit: AuditEvidence, models: Sequence[ShownModel]) -> Found:
    """Yield rows for each kind of personal data that ProPILE probes ask these models for: exact matches, and how often
    a member's true value is likelier than another individual's.
    """
    for model in models:
        probed = _find_probe(audit, model)
        for result in probed.results if probed else ():
            values = {"target": result.target}
            if result.exact_match:
                yield Row("figures.asked_for_a_named_person_s", model, result.exact_match, values)
            if result.likelihood:
                yield Row("figures.the_true_target_is_likelier_than", model, result.likelihood.above_null, values)


def _find_probe(audit: AuditEvidence, model: ShownModel) -> ProbedModel | None:
    """Return the ProPILE probe of a model, by its recipe's name (and the model's, if there are several); None without
    one.
    """
    recipe, asked = model.evidence.recipe, audit.probe.models if audit.probe else ()
    names = (f"{recipe} of {model.evidence.model}", recipe)
    return next((probed for name in names for probed in asked if probed.name == name), None)


def _detection_recall_rows(audit: AuditEvidence, _: Sequence[ShownModel]) -> Found:
    """Yield a row with the recall of identifier detection, measured on an annotated sample."""
    found = audit.sampled_recall
    if found:
        yield Row("figures.names_and_numbers_that_detection_finds_by", None, found.overall.recall)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "excess": Figure(_excess_rows),
        "predicted": _figure_of_attribute(
            "figures.identifiers_predicted_nowhere", lambda e: e.privacy.get("both"), "types"
        ),
        "written": _figure_of_attribute(
            "figures.identifiers_in_texts_that_it_writes_by",
            lambda e: e.generated and e.generated.excess.get("both"),
            "excess",
        ),
        "passages": Figure(_passage_rows),
        "membership": Figure(_membership_rows),
        "threshold": _figure_of_attribute(
            "figures.how_surely_the_ease_with_which_it_predicts", lambda e: e.membership.get("loss"), "auc", area=True
        ),
        "withdrawn": _figure_of_attribute(
            "figures.how_surely_a_comparison_with_the_release_before", lambda e: e.withdrawn, "auc", area=True
        ),
        "at_threshold": Figure(_threshold_rows),
        "kinds": Figure(_word_kind_rows),
        "subgroup": Figure(_subgroup_rows),
        "user_inference": _figure_of_attribute(
            "figures.how_surely_other_documents_of_a_person_never",
            lambda e: e.membership.get("user_inference"),
            "auc",
            area=True,
        ),
        "inversion": Figure(_inversion_rows),
        "in_place": Figure(_in_place_rows),
        "association": _figure_of_attribute(
            "figures.terms_of_a_person_s_documents_such_as",
            lambda e: e.inversion and e.inversion.association,
            "rate.excess",
        ),
        "diagnoses": Figure(_diagnosis_rows),
        "attributes": Figure(_attribute_rows),
        "names": Figure(_name_rows),
        "partial_copy": _figure_of_attribute(
            "figures.people_named_as_trained_on_by_rare_words", lambda e: e.low_cost, "recall"
        ),
        "moved": Figure(_embedding_shift_rows),
        "unicity": Figure(of_audit=_unicity_rows),
        "probes": Figure(of_audit=_probe_rows),
        "missed": Figure(of_audit=_detection_recall_rows),
    }
)


# ----------------------------------------------------------- adversaries


#: Name of a test -> why it cannot be made on a model that was trained elsewhere.
NOT_ELSEWHERE = {
    "LiRA, RMIA": "dossier.not_without_its_recipe",
    "user inference": "dossier.not_without_what_was_left_out",
    "threshold": "dossier.not_without_its_threshold",
    "checkpoints": "dossier.not_without_its_checkpoints",
}


@dataclass(frozen=True, slots=True)
class Test:
    """One attack: its meaning in plain words, its name in the evidence, and a check whether the run
    made it on a model."""

    __test__ = False  # no test of pytest

    meaning: str
    name: str
    made: Callable[[Context, ShownModel], object]
    #: Section or setting of the job that makes it.
    by: str
    #: Objectives of the models that it can be made on.
    objectives: tuple[str, ...] = LANGUAGE_MODELS

    def title(self, t: Texts) -> str:
        """Return the name of the attack in the language of a page."""
        return t(f"adversaries.names.{re.sub('[^a-z0-9]+', '_', self.name.lower())}")

    def applicable(self, context: Context) -> list[ShownModel]:
        """Return the models with an objective (masked, causal …) that the attack can be run on."""
        return [model for model in context.models if model.evidence.objective in self.objectives]

    def not_attacked(self, context: Context) -> list[ShownModel]:
        """Return the models that the attack could be run on but was not."""
        return [model for model in self.applicable(context) if not self.made(context, model)]

    def reason_not_made(self, context: Context) -> str:
        """Return the sentence on why the attack was not run: the setting that runs it or, if the audited model was
        trained elsewhere, the reason why this model cannot be attacked so.
        """
        t = context.words
        if self.name in NOT_ELSEWHERE and isinstance(setting(context.audit, "subject"), Mapping):
            return t(NOT_ELSEWHERE[self.name])
        return t("dossier.a_run_tests_it_with_by", by=t(self.by))

    def coverage(self, context: Context) -> str:
        """Return whether the attack was run: "yes", "no", or the names of the models attacked if only some were."""
        left, t = self.not_attacked(context), context.words
        on = [model for model in self.applicable(context) if model not in left]
        if on and left:
            return t("dossier.on_models", models=_list_models(on, t))
        return t("dossier.yes") if on else t("dossier.no")


def _list_models(models: Sequence[ShownModel], t: Texts) -> str:
    """Return the models' names ("model A") as a list in the page's language."""
    return t.listed([t("common.model_letter", letter=model.letter) for model in models])


@dataclass(frozen=True, slots=True)
class Adversary:
    """An adversary, by name in the catalogue of texts, and the attacks that represent it."""

    name: str
    tests: tuple[Test, ...]


def _is_attacked_by(*names: str) -> Callable[[Context, ShownModel], bool]:
    """Return a function (context, model) -> whether any of the membership attacks of these names was run on the
    model.
    """
    return lambda _, model: any(name in model.evidence.membership for name in names)


SHADOWS = ("shadow", "lira_online", "lira_offline", "lira_sequence", "rmia", "rmia_online")

ADVERSARIES = (
    Adversary(
        "asker",
        (
            Test(
                "adversaries.asks_for_the_details_of_a_person_whose",
                "ProPILE",
                lambda context, m: _find_probe(context.audit, m),
                "adversaries.probe",
            ),
            Test(
                "adversaries.asks_behind_the_beginning_of_another_document",
                "PII-Compass",
                lambda context, m: (
                    (probed := _find_probe(context.audit, m)) and any(row.level == COMPASS for row in probed.results)
                ),
                "adversaries.probe_levels",
            ),
            Test(
                "adversaries.lets_it_write_and_looks_for_identifiers",
                "generation",
                lambda _, m: m.evidence.generated,
                "adversaries.audit_generation",
                ("clm",),
            ),
            Test(
                "adversaries.lets_it_continue_a_person_s_document_and",
                "n-gram coverage",
                _is_attacked_by("ngram_coverage"),
                "adversaries.audit_attacks_ngram_coverage",
                ("clm",),
            ),
            Test(
                "adversaries.gives_the_beginning_of_a_passage_and_sees",
                "extraction",
                lambda _, m: m.extracted and m.extracted.passages,
                "adversaries.extraction",
                ("clm",),
            ),
        ),
    ),
    Adversary(
        "holder",
        (
            Test(
                "adversaries.reads_off_every_word_that_it_predicts",
                "Privacy, excess leakage",
                lambda _, m: m.evidence.excess,
                "adversaries.the_audit_itself",
            ),
            Test(
                "adversaries.looks_at_what_training_has_moved_in_its",
                "embedding shift",
                lambda _, m: m.evidence.inversion and m.evidence.inversion.embedding_shift,
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.trains_a_short_instruction_that_makes_it",
                "soft prompt",
                lambda context, m: (probed := _find_probe(context.audit, m)) and probed.soft_prompts,
                "adversaries.probe_soft_prompt",
                ("clm",),
            ),
        ),
    ),
    Adversary(
        "knows_documents",
        (
            Test(
                "adversaries.sees_how_easily_the_model_predicts_the_text",
                "loss, reference, min-k and others",
                lambda _, m: m.evidence.membership,
                "adversaries.audit_attacks",
            ),
            Test(
                "adversaries.shows_it_the_text_with_gaps_first_and",
                "in-context probing",
                _is_attacked_by("icp"),
                "adversaries.audit_attacks_icp",
                ("clm",),
            ),
            Test(
                "adversaries.lets_it_write_and_trains_the_base_on_that",
                "self-calibration",
                _is_attacked_by(SELF_CALIBRATION),
                "adversaries.audit_attacks_self_calibration",
                ("clm",),
            ),
            Test(
                "adversaries.has_its_earlier_checkpoints_too",
                "checkpoints",
                _is_attacked_by(CHECKPOINTS),
                "adversaries.audit_attacks_checkpoints",
            ),
            Test(
                "adversaries.has_the_hidden_states_of_documents",
                "hidden states",
                _is_attacked_by(STATES),
                "adversaries.audit_attacks_hidden_states",
            ),
            Test(
                "adversaries.trains_models_of_their_own_with_the_person",
                "LiRA, RMIA",
                lambda context, m: (
                    _is_attacked_by(*SHADOWS)(context, m)
                    or any("lira" in kind.attacks for kind in (m.evidence.by_kind or {}).values())
                ),
                "adversaries.audit_shadow",
            ),
            Test(
                "adversaries.sees_how_sure_it_is_of_the_label",
                "labels of classifiers and taggers",
                _is_attacked_by(*HEAD_ATTACKS_WITHOUT_SHADOWS, *HEAD_ATTACKS_BY_SHADOWS),
                "adversaries.audit_heads",
                (CLASSIFIER, TAGGER),
            ),
            Test(
                "adversaries.has_the_model_of_before_a_withdrawal_too",
                "two releases",
                lambda _, m: m.evidence.withdrawn,
                "adversaries.audit_earlier",
            ),
            Test(
                "adversaries.has_other_documents_of_the_person_which_were",
                "user inference",
                _is_attacked_by("user_inference", "user_inference_shadows"),
                "adversaries.split_user_inference_holdout",
            ),
        ),
    ),
    Adversary(
        "knows_relation",
        (
            Test(
                "adversaries.asks_whether_a_name_makes_an_illness",
                "association",
                lambda _, m: m.evidence.inversion and m.evidence.inversion.association,
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.asks_for_a_diagnosis",
                "clinical ladder",
                lambda _, m: any(row.values["num"] for row in _diagnosis_rows(m)),  # none where each is of too few
                "adversaries.audit_diagnoses",
            ),
            Test(
                "adversaries.puts_other_values_in_the_place",
                "attributes of classifiers",
                lambda _, m: m.evidence.attributes,
                "adversaries.audit_heads_attributes",
                (CLASSIFIER,),
            ),
            Test(
                "adversaries.shows_it_two_names",
                "names of taggers",
                lambda _, m: m.evidence.names,
                "adversaries.audit_heads",
                (TAGGER,),
            ),
            Test(
                "adversaries.asks_which_of_many_names_belongs_into_a",
                "inversion",
                lambda _, m: any(_inversion_results(m)),
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.asks_how_likely_each_of_many_names_is",
                "exposure of identifiers",
                lambda _, m: any(kind.in_place for _, kind in _inversion_results(m)),
                "adversaries.audit_inversion",
            ),
            Test(
                "adversaries.has_the_documents_of_all_others_who_use",
                "threshold",
                lambda _, m: m.evidence.threshold,
                "adversaries.the_audit_itself",
            ),
            Test(
                "adversaries.has_a_part_of_the_documents_and_looks",
                "low-cost membership",
                lambda _, m: m.evidence.low_cost,
                "adversaries.audit_graph_shares",
            ),
        ),
    ),
)


def tests_not_made(context: Context) -> Iterator[tuple[Adversary, Test]]:
    """Yield (adversary, attack) for each attack that was not run on all models that it could be run on."""
    for adversary in ADVERSARIES:
        for test in adversary.tests:
            if not context.models or test.not_attacked(context):
                yield adversary, test


def not_made_on(context: Context) -> Iterator[tuple[str, str]]:
    """Yield (model name, names of attacks) for each model that some attacks could be run on but were not."""
    t = context.words
    for model in context.models:
        left = [test.title(t) for who in ADVERSARIES for test in who.tests if model in test.not_attacked(context)]
        if left:
            yield t("common.model_letter", letter=model.letter), t.apart(left)


class Copied(NamedTuple):
    """An attack on a copy of a model: its AUC, and the difference to the AUC on the original model."""

    letter: str
    name: str
    attack: str
    area: str
    difference: str


def attacked_copies(context: Context) -> Iterator[Copied]:
    """Yield the membership attacks on copies (merged, quantised …) of the models: the AUC on the copy, and its
    difference to the AUC on the original.
    """
    t = context.words
    for model in context.models:
        for name, attack in model.evidence.membership.items():
            if (found := attack.over_source) is None or found.value is None:
                continue
            less = replace(
                found, value=found.value - CHANCE, low=_subtract_chance(found.low), high=_subtract_chance(found.high)
            )
            texts = [f"{t.value(one, area=True)} ({t.interval(one, area=True)})" for one in (attack.auc, less)]
            yield Copied(model.letter, model.evidence.recipe, name, *texts)


def _subtract_chance(bound: float | None) -> float | None:
    """Return a confidence bound of 0.5 + an AUC difference as a bound of the difference, by subtracting 0.5; None stays
    None.
    """
    return None if bound is None else bound - CHANCE


# ------------------------------------------------------------- crosswalk


@cache
def crosswalk() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the parsed table of regulation paragraphs, and of the attacks and dossier parts that answer them."""
    return tomllib.loads((files("reticent.audit") / "crosswalk.toml").read_text(encoding="utf-8"))


class Crossed(NamedTuple):
    """A test, or another part of a dossier, with the paragraphs that it bears on, and its result: sentences, the
    outcome of its risk for each model it was run on, and the name of the question that shows its figures."""

    title: str
    name: str | None
    paragraphs: list[str]
    sentences: list[str]
    outcomes: list[str]
    question: str | None


def crosswalk_rows(context: Context, printed: Mapping[str, str]) -> Iterator[Crossed]:
    """Yield a row of the regulation crosswalk for each attack, run or not, and for each other part of the dossier.

    ``printed``: name of a figure -> name of the question that has it.
    """
    t = context.words
    for test in (test for who in ADVERSARIES for test in who.tests):
        row, left = crosswalk()["tests"][test.name], test.not_attacked(context)
        made = [model for model in test.applicable(context) if model not in left]
        sentences = [t("crosswalk.made", models=_list_models(made, t))] if made else []
        if made and left:
            sentences.append(t("crosswalk.not_run_on", models=_list_models(left, t), why=test.reason_not_made(context)))
        elif not made:
            sentences.append(t("crosswalk.not_run", why=test.reason_not_made(context)))
        outcomes: list[str] = [
            Marked(
                t("common.name_what", name=t("common.model_letter", letter=model.letter), what=" ".join(said)),
                risk_mark(model.risks, result),
            )
            for model in made
            if model.risks
            for result in model.risks.results
            if result.risk == row.get("risk")
            for said in [outcome_in_words(result, t)]
        ]
        if outcomes:
            sentences.append(t("crosswalk.part_of", risk=t.evidence(RISKS[row["risk"]].title)))
        question = printed.get(row.get("figure", "")) if made else None
        yield Crossed(t(test.meaning), test.title(t), row["speaks_to"], sentences, outcomes, question)
    for name, row in crosswalk()["others"].items():
        sentences = list(FACTS[row["fact"]](context)) if "fact" in row else []
        if not sentences:
            sentences = [t("crosswalk.not_run", why=t(f"crosswalk.others.{name}.not_run"))]
        yield Crossed(t(f"crosswalk.others.{name}.title"), None, row["speaks_to"], sentences, [], None)


# ----------------------------------------------------- impact assessment

LEVELS = ("impact.negligible", "impact.limited", "impact.significant", "impact.maximal")


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the impact assessment: title, facts known to the run, the institution's
    declaration, or a question."""

    title: str
    facts: tuple[str, ...] = ()
    declared: str | None = None
    ask: str | None = None


class Filled(NamedTuple):
    """One field in one language: the known sentences, and the question left for a person to answer (None: nothing)."""

    title: str
    known: list[str]
    ask: str | None


#: Group -> its fields, in order.
FIELDS = (
    (
        "impact.context",
        (
            Field("impact.overview_of_the_processing", ("recipes",), "purpose",
                  "impact.which_processing_is_it_and_who_answers_for"),
            Field("impact.data_processes_and_supporting_assets", ("documents", "split"), "documents",
                  "impact.where_do_documents_and_models_lie_and_who"),
        ),
    ),
    (
        "impact.fundamental_principles",
        (
            Field("common.purpose", declared="purpose", ask="impact.what_is_the_model_for_and_is_that"),
            Field("impact.legal_basis", declared="legal_basis",
                  ask="impact.on_which_basis_are_the_documents_processed"),
            Field("impact.minimisation", ("copies", "detection", "protection"), None,
                  "impact.is_every_document_needed"),
            Field("impact.accuracy", (), None, "impact.are_the_documents_right_and_up_to_date"),
            Field("impact.storage", (), None, "impact.for_how_long_are_documents_run_folders_and"),
            Field("impact.rights_of_the_individuals", (), None,
                  "impact.how_are_they_informed_and_how_do_they"),
        ),
    ),
    (
        "impact.existing_or_planned_measures",
        (
            Field("impact.on_the_data_and_the_training", ("protection", "ledger", "guarantee"), None, None),
            Field("impact.on_the_organisation", (), None, "impact.access_contracts_audits_answers_to_incidents"),
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Feared:
    """One feared event of the impact assessment, with its risk sources and threats; a person describes its impacts."""

    title: str
    sources: str
    threats: str


FEARED = (
    Feared(
        "impact.illegitimate_access_to_data",
        "impact.those_who_may_put_questions_to_the_model",
        "impact.the_tests_of_this_dossier_identifiers_that",
    ),
    Feared("impact.unwanted_change_of_data", "impact.not_answered_by_this", "impact.not_answered_by_this"),
    Feared("impact.disappearance_of_data", "impact.not_answered_by_this", "impact.not_answered_by_this"),
)


def filled_fields(context: Context) -> Iterator[tuple[str, list[Filled]]]:
    """Yield the groups of impact-assessment fields, filled in from the job's declarations and the audit's facts."""
    t = context.words
    for group, fields in FIELDS:
        rows = []
        for each in fields:
            own = getattr(context.evidence.declared, each.declared) if each.declared else None
            known = [own] if own else []
            known += [sentence for fact in each.facts for sentence in FACTS[fact](context)]
            rows.append(Filled(t(each.title), known, None if own or not each.ask else t(each.ask)))
        yield t(group), rows
