"""The card of a model that leaves: its base, licence, documents, figures with intervals, the verdict, and the dossier.

The figures stand twice: as sentences, and as ``model-index`` at the head, which the hub reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.dossier.facts import FACTS, Told
from reticent.audit.dossier.judged import change_of, reason_of
from reticent.audit.dossier.models import ShownModel, shown_models
from reticent.audit.judgement.rows import NOT_SHOWN
from reticent.audit.language import Words
from reticent.audit.report.readings import ordinary_utility, strongest_attack

if TYPE_CHECKING:
    from reticent.audit.evidence.dossier import DossierEvidence, ModelUnderTest
    from reticent.audit.stats.estimate import Estimate

__all__ = ["Card", "card_of", "verdict_of"]

TASKS = {"mlm": "fill-mask", "clm": "text-generation"}


class Card(NamedTuple):
    """The text of a card, and the data at its head, as ``huggingface_hub.ModelCardData`` takes them."""

    text: str
    data: Mapping[str, object]


class Measure(NamedTuple):
    """One figure of a card: its name for machines, a sentence, the estimate, and whether it is an area."""

    name: str
    title: str
    estimate: Estimate
    area: bool = False


#: A base model that a run made itself.
MADE = "a small one, pre-trained in the same run"


def verdict_of(evidence: DossierEvidence, model: ModelUnderTest) -> str:
    """Return the outcome of the verdict on a tested model; None for a model before its last checkpoint."""
    shown = _shown(evidence, model)
    return shown.risks.outcome if shown is not None and shown.risks is not None else NOT_SHOWN


def card_of(
    evidence: DossierEvidence, model: ModelUnderTest, digest: str, base: str | None, made_from: str = ""
) -> Card:
    """Return the card of a tested model.

    Parameters
    ----------
    digest : of the dossier
    base : name of the base model; None for one that was made by the run itself
    made_from : what that one was made from, where it is no public text
    """
    from huggingface_hub import EvalResult

    shown, words = _shown(evidence, model), Words("en")
    measures = list(_measures(shown)) if shown else []
    name = f"{model.recipe}-{model.model}"
    results = [
        EvalResult(
            task_type=TASKS[model.objective],
            dataset_type="private",
            dataset_name="documents of the run",
            metric_type=measure.name,
            metric_name=measure.title,
            metric_value=measure.estimate.value,
            metric_args=_interval(measure.estimate),
        )
        for measure in measures
        if measure.estimate.bound is None  # a bound is no figure for a table of machines
    ]
    data: dict[str, object] = {"pipeline_tag": TASKS[model.objective], "model_name": name}
    data |= {"eval_results": results} if results else {}
    data |= {"base_model": base} if base else {}
    data |= {"license": evidence.declared.licence} if evidence.declared.licence else {}
    return Card("\n".join(_lines(evidence, model, shown, measures, digest, base or f"{MADE}{made_from}", words)), data)


def _shown(evidence: DossierEvidence, model: ModelUnderTest) -> ShownModel | None:
    key = (model.model, model.objective, model.recipe, model.epoch)
    found = shown_models(evidence.audit, Words("en"))
    return next(
        (m for m in found if (m.evidence.model, m.evidence.objective, m.evidence.recipe, m.evidence.epoch) == key), None
    )


def _lines(
    evidence: DossierEvidence, model: ModelUnderTest, shown: ShownModel | None, measures: list[Measure],
    digest: str, base: str, words: Words,
) -> Iterator[str]:  # fmt: skip
    t, declared = words, evidence.declared
    yield f"# {model.recipe} of {model.model}, after {model.epoch} epochs\n"
    if shown is None:
        yield "This checkpoint is not the last of its training, so the dossier has no verdict on it.\n"
    else:
        yield f"{shown.about}\n"
        yield f"**Verdict: {shown.risks.outcome if shown.risks else NOT_SHOWN}.** " \
              f"{' '.join(filter(None, (*reason_of(shown, t), change_of(shown, t))))}\n"  # fmt: skip
    yield "This is evidence from attacks on the model, no promise: it may hold personal data all the same.\n"
    yield "## Base, licence and use\n"
    yield f"- Base model: {base}"
    yield f"- Licence: {declared.licence or 'none was given'}"
    yield f"- Purpose: {declared.purpose or 'none was given'}"
    yield f"- Institution: {declared.institution or 'none was given'}\n"
    yield "## Documents\n"
    told = Told(evidence, [shown] if shown else [], t)
    if declared.documents:
        yield f"{declared.documents}\n"
    for fact in ("documents", "split", "copies", "detection", "protection", "ledger", "guarantee"):
        named = f"Model {shown.letter}" if shown else "Model"
        yield from (f"- {sentence.replace(named, 'This model', 1)}" for sentence in FACTS[fact](told))
    if measures:
        yield "\n## Figures\n\n| measure | value | 95 % interval | people |\n|---|---|---|---|"
        for measure in measures:
            interval = t.interval(measure.estimate, area=measure.area)
            count = t.count(measure.estimate.n, evidence.audit.cell)
            yield f"| {measure.title} | {t.value(measure.estimate, area=measure.area)} | {interval} | {count} |"
        yield from (f"\n{sentence}" for sentence in FACTS["means"](told))
    yield "\n## Dossier\n"
    yield f"Digest of the dossier, the SHA-256 of its `SHA256SUMS`: `{digest}`"
    yield f"\nTested on {t.date(evidence.created)}. Test again where the model is trained further, where a person "
    yield "withdraws, or where a new attack becomes known. `reticent dossier verify DOSSIER --model FOLDER` checks that"
    yield "these are the files that were tested.\n"


def _measures(model: ShownModel) -> Iterator[Measure]:
    """Return the figures of a card that have a value and an interval."""
    evidence = model.evidence
    found = [
        (
            "accuracy",
            "ordinary words of people it never saw that it gets right",
            ordinary_utility(evidence.utility.heldout, evidence.objective),
            False,
        ),
        (
            "identifiers_not_predicted",
            "identifiers of members that it predicts nowhere",
            evidence.privacy["both"].types,
            False,
        ),
        (
            "excess_leakage",
            "identifiers of members that it predicts, less those of people it never saw",
            evidence.excess["both"].excess if evidence.excess and "both" in evidence.excess else None,
            False,
        ),
    ]
    strongest = strongest_attack(evidence)
    if strongest:
        found.append(("membership_auc", "membership, area under the curve of the strongest attack", strongest[1], True))
    for name, title, estimate, area in found:
        if estimate is not None and estimate.value is not None and estimate.high is not None:
            yield Measure(name, title, estimate, area)


def _interval(estimate: Estimate) -> dict[str, object]:
    ends = {"low": estimate.low, "high": estimate.high, "level": estimate.level}
    return {**ends, "n": estimate.n, "unit": estimate.unit}
