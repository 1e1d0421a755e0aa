"""The model card of an exported model: its base, licence, documents, figures with intervals, verdict, and dossier
digest.

The figures are given twice: as sentences, and as ``model-index`` in the metadata, which the hub reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.judgement.rows import NOT_SHOWN
from reticent.audit.report.risk_text import ShownModel, shown_models, verdicts_on
from reticent.audit.report.selectors import ordinary_utility, strongest_attack
from reticent.audit.texts import Marked, Texts, marks_of
from reticent.ext.dossier.fact_sentences import FACTS, Context
from reticent.trainer.privacy import show_epsilon

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence, ModelUnderTest
    from reticent.audit.stats.estimate import Estimate

TASKS = {"mlm": "fill-mask", "clm": "text-generation"}


class Card(NamedTuple):
    """The text of a model card, and its metadata, as ``huggingface_hub.ModelCardData`` takes them."""

    text: str
    data: Mapping[str, object]


class Measure(NamedTuple):
    """One figure of a card: its name in the metadata, the estimate, and whether it is an area under a curve."""

    name: str
    estimate: Estimate
    area: bool = False


def verdict_of(evidence: DossierEvidence, model: ModelUnderTest) -> str:
    """Return the audit's verdict on a tested model ("within", say), or "not shown" if the report leaves the
    model out.
    """
    shown = _last_if_tested(_find_last_in_report(evidence, model), model)
    return shown.risks.outcome if shown is not None and shown.risks is not None else NOT_SHOWN


def build_card(
    evidence: DossierEvidence,
    model: ModelUnderTest,
    digest: str,
    base: str | None,
    made_from: str = "",
    despite: str = "",
) -> Card:
    """Return the model card of a tested model, as Markdown with metadata for the Hugging Face hub. ``digest`` is the
    dossier's, ``made_from`` names the source of a base model made by the run, ``despite`` the reason for export against
    the verdict.

    Parameters
    ----------
    digest : of the dossier
    base : name of the base model; None for one that was made by the run itself
    made_from : what that one was made from, where it is no public text
    despite : the reason why it leaves against its verdict
    """
    from huggingface_hub import EvalResult

    last, words = _find_last_in_report(evidence, model), Texts("en")
    shown = _last_if_tested(last, model)
    measures = list(_card_figures(shown)) if shown and not _is_private(shown) else []
    name = f"{model.recipe}-{model.model}"
    results = [
        EvalResult(
            task_type=TASKS[model.objective],
            dataset_type="private",
            dataset_name="documents of the run",
            metric_type=measure.name,
            metric_name=words(f"card.figures.{measure.name}"),
            metric_value=measure.estimate.value,
            metric_args=_interval_metadata(measure.estimate),
        )
        for measure in measures
        if measure.estimate.bound is None  # a bound is no figure for a table of machines
    ]
    data: dict[str, object] = {"pipeline_tag": TASKS[model.objective], "model_name": name}
    data |= {"eval_results": results} if results else {}
    data |= {"base_model": base} if base else {}
    data |= {"license": evidence.declared.licence} if evidence.declared.licence else {}
    base = base or f"{words('card.made')}{made_from}"
    lines = list(_card_lines(evidence, model, last, measures, digest, base, despite, words))
    marks = [mark for line in lines if isinstance(line, Marked) for mark in line.marks]
    return Card(Marked("\n".join(lines), *marks), data)


def _last_if_tested(last: ShownModel | None, model: ModelUnderTest) -> ShownModel | None:
    """Return ``last``, the last checkpoint of a training as the report shows it, if it is the tested ``model`` itself
    (has the same epoch); else None.
    """
    return last if last is not None and last.evidence.epoch == model.epoch else None


def _find_last_in_report(evidence: DossierEvidence, model: ModelUnderTest) -> ShownModel | None:
    """Return the last checkpoint of a tested model's training as the report shows it; None if it shows none."""
    key = (model.model, model.objective, model.recipe)
    found = shown_models(evidence.audit, Texts("en"))
    return next((m for m in found if (m.evidence.model, m.evidence.objective, m.evidence.recipe) == key), None)


def _is_private(last: ShownModel | None) -> bool:
    """Return whether a training was differentially private, given its last checkpoint. The model cards of its
    checkpoints then have no exact figures, since epsilon does not cover these.
    """
    return last is not None and (last.evidence.guarantee or "").startswith("epsilon")


def _sentences_on_spent_epsilon(evidence: DossierEvidence, model: ModelUnderTest, t: Texts) -> Iterator[str]:
    """Yield one sentence with the epsilon that a private training had spent when this checkpoint was saved; nothing if
    the audit did not compute it.
    """
    key = (model.model, model.objective, model.recipe, model.epoch)
    for m in evidence.audit.models:
        if (m.model, m.objective, m.recipe, m.epoch) == key and m.epsilon is not None:
            epsilon = t.plain(show_epsilon(m.epsilon))
            spent = t("findings.epsilon_after_epoch", epsilon=epsilon, epoch=model.epoch)
            yield t("findings.epsilon_so_far", each=spent)
            return


def _card_lines(
    evidence: DossierEvidence, model: ModelUnderTest, last: ShownModel | None, measures: list[Measure],
    digest: str, base: str, despite: str, words: Texts,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a model card, in Markdown. ``last`` is the last checkpoint of the model's training as the
    report shows it, ``measures`` are the figures to print, ``digest`` is the dossier's, ``despite`` the reason for
    export against the verdict.
    """
    t, declared = words, evidence.declared
    yield t("card.title", recipe=model.recipe, model=model.model, count=t.epochs(model.kept_after))
    shown, is_private = _last_if_tested(last, model), _is_private(last)
    if shown is None:
        yield t("card.not_last")
    else:
        yield f"{shown.about}\n"
    if is_private:
        yield t("card.private")
    elif shown is not None:
        (verdict,) = verdicts_on([shown], t)
        outcome = t.evidence(shown.risks.outcome if shown.risks else NOT_SHOWN)
        yield Marked(
            t("card.verdict", outcome=outcome, reason=" ".join(filter(None, (*verdict.reason, verdict.change)))),
            *(mark for sentence in verdict.reason for mark in marks_of(sentence)),
        )
        if shown.is_unprotected:
            yield Marked(t("card.unprotected"), shown.verdict_mark)
    if despite:
        yield t("card.despite", reason=despite)
    yield t("card.evidence")
    yield t("card.base_heading")
    none = t("card.none_given")
    yield t("card.base", base=base)
    yield t("card.licence", value=declared.licence or none)
    yield t("card.purpose", value=declared.purpose or none)
    yield t("card.institution", value=declared.institution or none)
    yield t("card.documents_heading")
    told = last if is_private else shown
    context = Context(evidence, [told] if told else [], t)
    if declared.documents:
        yield f"{declared.documents}\n"
    of_documents = ("documents", "split", "copies", "detection", "protection", "ledger")
    for fact in ("guarantee",) if is_private else (*of_documents, "guarantee"):
        named = t("common.model_letter", letter=told.letter) if told else t("card.model")
        for sentence in FACTS[fact](context):
            yield Marked(f"- {sentence.replace(named, t('card.this_model'), 1)}", *marks_of(sentence))
    if is_private and shown is None:
        yield from (f"- {sentence}" for sentence in _sentences_on_spent_epsilon(evidence, model, t))
    if measures:
        yield t("card.figures_heading")
        for measure in measures:
            interval = t.interval(measure.estimate, area=measure.area)
            count = t.count(measure.estimate.n, evidence.audit.cell)
            title, value = t(f"card.figures.{measure.name}"), t.value(measure.estimate, area=measure.area)
            yield f"| {title} | {value} | {interval} | {count} |"
        yield from (f"\n{sentence}" for sentence in FACTS["means"](context))
    yield t("card.dossier_heading")
    yield t("card.digest", digest=digest)
    yield t("card.tested", day=t.date(evidence.created))


def _card_figures(model: ShownModel) -> Iterator[Measure]:
    """Yield the figures of a model's card: accuracy, identifiers not predicted, excess leakage and membership AUC.
    Those without value or interval are left out.
    """
    evidence = model.evidence
    excess = evidence.excess["both"].excess if evidence.excess and "both" in evidence.excess else None
    strongest = strongest_attack(evidence)
    found = (
        ("accuracy", ordinary_utility(evidence.utility.heldout, evidence.objective), False),
        ("identifiers_not_predicted", evidence.privacy["both"].types, False),
        ("excess_leakage", excess, False),
        ("membership_auc", strongest and strongest[1], True),
    )
    for name, estimate, area in found:
        if estimate is not None and estimate.value is not None and estimate.high is not None:
            yield Measure(name, estimate, area)


def _interval_metadata(estimate: Estimate) -> dict[str, object]:
    """Return the interval of an estimate as a model card's metadata: bounds, level, n and unit."""
    ends = {"low": estimate.low, "high": estimate.high, "level": estimate.level}
    return {**ends, "n": estimate.n, "unit": estimate.unit}
