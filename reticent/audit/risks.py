"""The risks of a model: the numbers by which each is judged, and which way an area is read.

:mod:`reticent.audit.risk_verdict` judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from scipy.stats import norm

from reticent.audit.membership.left_out import WITHOUT_COPIES
from reticent.audit.membership.validity import CHANCE, INVALID
from reticent.audit.stats.estimate import LEVEL

if TYPE_CHECKING:
    from reticent.audit.evidence.extraction import ExtractedModel
    from reticent.audit.evidence.leakage import Excess, Part
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.stats.estimate import Estimate
    from reticent.trainer.recipes import Recipe

__all__ = ["RISKS", "Number", "Risk", "Subject", "oriented"]

#: By how much an interval widens where the better of two sides is picked: the quantile at half the error.
PICKED = float(norm.ppf(1 - (1 - LEVEL) / 4) / norm.ppf(1 - (1 - LEVEL) / 2))


class Number(NamedTuple):
    """One number of a risk: its name, what it is where nothing was learned, and why it says nothing, if so."""

    what: str
    estimate: Estimate
    null: float = 0.0
    invalid: str | None = None


class Subject(NamedTuple):
    """A model with the passages that were asked of it."""

    model: ModelEvidence
    extracted: ExtractedModel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """One risk: its field of `VerdictConfig`, words for it, its numbers, and how it is measured and made smaller."""

    name: str
    title: str
    about: str
    numbers: Callable[[Subject], Iterator[Number]]
    measured_by: str
    lowered_by: str
    #: What makes it smaller where the recipe is one of `lowered_by` already, and whether it is; empty: the same.
    lowered_further: str = ""
    is_lowered: Callable[[Recipe], bool] = lambda recipe: recipe.protects_identifiers
    #: Objectives of the models that have this risk; empty for all.
    objectives: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()

    def advice(self, recipe: Recipe | None) -> str:
        """Return what makes this risk of a model of this recipe smaller, and is not done already."""
        done = recipe is not None and self.is_lowered(recipe)
        return self.lowered_further if done and self.lowered_further else self.lowered_by


PARTS: dict[Part, str] = {"both": "identifiers", "direct": "direct identifiers", "indirect": "indirect identifiers"}


def _emission(subject: Subject) -> Iterator[Number]:
    model = subject.model
    ways: tuple[tuple[str, Mapping[Part, Excess] | None], ...] = (
        ("{} predicted, members less held-out people", model.excess),
        ("{} predicted, more than by the base model", model.over_base),
        ("{} written, members less held-out people", model.generated.excess if model.generated else None),
        ("{} predicted, nothing to copy from", model.all_occurrences.excess if model.all_occurrences else None),
    )
    for words, found in ways:
        for part, sides in (found or {}).items():
            yield Number(words.format(PARTS[part]), sides.excess, 0.0, None)


def _context(subject: Subject) -> Iterator[Number]:
    found = subject.model.inversion
    for name, kind in (("direct", found.direct), ("indirect", found.indirect)) if found else ():
        if kind and kind.all:
            yield Number(f"{name} identifiers read back from the words around them", kind.all.top1.excess)
    if found and found.association:
        yield Number("terms tied to names", found.association.rate.excess)


def _words(subject: Subject) -> Iterator[Number]:
    for kind in ("rare", "direct"):
        found = (subject.model.by_kind or {}).get(kind)
        for name, attack in found.attacks.items() if found else ():
            yield Number(f"membership by {kind} words alone, attack {name}", attack.auc, CHANCE)
            if attack.auc_without_copies:
                named = f"membership by {kind} words alone, {WITHOUT_COPIES}, attack {name}"
                yield Number(named, attack.auc_without_copies, CHANCE)
    yield from _threshold(subject)


def _threshold(subject: Subject) -> Iterator[Number]:
    found = subject.model.threshold
    if found:
        yield Number("membership by words at the threshold, in texts of others", found.at_threshold.auc, CHANCE)
        if found.by_likelihood:
            name = "membership by all words near the threshold, each by its likelihood ratio"
            yield Number(name, found.by_likelihood.auc, CHANCE)


def _individual(subject: Subject) -> Iterator[Number]:
    model = subject.model
    ends = (model.best_attack and model.best_attack.intervals) or {}
    for name, attack in model.membership.items():
        low, high = ends.get(name, (attack.auc.low, attack.auc.high))  # of several attacks: ends that hold at once
        auc = replace(attack.auc, low=low, high=high)
        why = attack.why or "the two sides differ without the model" if attack.verdict == INVALID else None
        yield Number(f"membership by the whole text, attack {name}", auc, CHANCE, why)
        if attack.auc_without_copies:
            named = f"membership by the whole text, {WITHOUT_COPIES}, attack {name}"
            yield Number(named, attack.auc_without_copies, CHANCE, why)
    found = (model.by_kind or {}).get("all")
    if found and "lira" in found.attacks:
        lira = found.attacks["lira"]
        yield Number("membership by all words, attack lira", lira.auc, CHANCE)
        if lira.auc_without_copies:
            named = f"membership by all words, {WITHOUT_COPIES}, attack lira"
            yield Number(named, lira.auc_without_copies, CHANCE)


def _passages(subject: Subject) -> Iterator[Number]:
    passages = subject.extracted.passages if subject.extracted else None
    for row in passages.rates if passages else ():
        if row.asked == "all":
            draws = "" if row.num_queries is None else f" and {row.num_queries:,} draws"
            yield Number(f"passages that come back, given {row.prefix_tokens} tokens{draws}", row.excess)


PROTECT = "a recipe that protects direct and indirect identifiers, or fewer epochs"
#: Every risk, in the order of the columns.
RISKS: Mapping[str, Risk] = MappingProxyType(
    {
        risk.name: risk
        for risk in (
            Risk(
                name="emission",
                title="identifiers emitted",
                about="does it say names, numbers and rare words of the people it was trained on?",
                numbers=_emission,
                measured_by="the audit itself",
                lowered_by=PROTECT,
                lowered_further="fewer epochs, more people, or detectors that miss less",
                gates=("excess_leakage", "exposure", "epsilon"),
            ),
            Risk(
                name="context",
                title="identifiers tied to their context",
                about="can an identifier be found by the words around it?",
                numbers=_context,
                measured_by="[audit.inversion]",
                lowered_by='context = "surrogate" or "tag", so that identifiers are not read either',
                lowered_further="fewer epochs, or detectors that miss less",
                is_lowered=lambda recipe: recipe.replaces_identifiers,
            ),
            Risk(
                name="words",
                title="membership through identifying words",
                about="do rare words and names tell who was trained on?",
                numbers=_words,
                measured_by="the attacks by kind of word",
                lowered_by=PROTECT,
                lowered_further="frozen embeddings or surrogates of rare words (masked models learn what they read), "
                "fewer epochs, more people, or differential privacy; noise in the threshold ([threshold] epsilon) "
                "hides what a single word tells, and with its unit = individual, for many people, what all words of a "
                "person tell together",
            ),
            Risk(
                name="individual",
                title="membership of the person",
                about="does the whole text tell who was trained on? Masking does not close this.",
                numbers=_individual,
                measured_by="audit.attacks and [audit.shadow]",
                lowered_by="differential privacy, more people or fewer epochs; masking does not close it",
                gates=("membership_auc", "membership_tpr"),
            ),
            Risk(
                name="passages",
                title="verbatim passages",
                about="does training text come back word for word?",
                numbers=_passages,
                measured_by="[extraction]",
                objectives=("clm",),
                lowered_by="deduplication, fewer epochs, or the guard at the door of the model",
                gates=("extraction", "np_extraction"),
            ),
        )
    }
)


def oriented(auc: Estimate, twin: Estimate | None) -> Estimate:
    """Return an area so that more is always worse.

    The unprotected twin says which side of chance members lie on, where its interval leaves chance out. Where it does
    not, or where members measurably lie on the other side than in the twin, the side is picked after the fact: the
    interval widens by `PICKED` on both sides before the area is folded at chance.
    """
    if auc.value is None or auc.low is None or auc.high is None:
        return auc
    sign = _side(twin)
    wide = replace(
        auc,
        low=max(auc.value - PICKED * (auc.value - auc.low), 0.0),
        high=min(auc.value + PICKED * (auc.high - auc.value), 1.0),
    )
    if sign and _side(wide) != -sign:
        return auc if sign > 0 else _mirrored(auc)
    return wide if auc.value >= CHANCE else _mirrored(wide)


def _mirrored(auc: Estimate) -> Estimate:
    assert auc.value is not None
    assert auc.low is not None
    assert auc.high is not None
    return replace(auc, value=1 - auc.value, low=1 - auc.high, high=1 - auc.low)


def _side(twin: Estimate | None) -> int:
    if twin is None or twin.low is None or twin.high is None:
        return 0
    return 1 if twin.low > CHANCE else -1 if twin.high < CHANCE else 0
