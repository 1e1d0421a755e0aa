"""The rows of the judgement: every number by which a model is judged, as gates and as risks.

A *number* has an estimate, the value that it has where nothing was learned, and a control: the same number of the
unprotected twin, which must lie over that value to prove that it could have been found. A *gate* is a number on which a
job sets a threshold. A *risk* is judged by several numbers. :mod:`reticent.audit.judgement.verdict` judges both.

Settings read the names of the gates from here, so evidence is imported for types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from reticent.audit.membership.validity import CHANCE, INVALID, WITHOUT_COPIES
from reticent.audit.stats.estimate import LEVEL, Estimate
from reticent.core.section import PUBLISHED, Section
from reticent.engine.config import Arm

if TYPE_CHECKING:
    from reticent.audit.evidence.extraction import CanaryArm, ExtractedModel
    from reticent.audit.evidence.leakage import Excess, NumbersBeside, Part
    from reticent.audit.evidence.membership import KindAttack, MeasuredAttack
    from reticent.audit.evidence.model import ModelEvidence
    from reticent.audit.stats.estimate import Estimate
    from reticent.trainer.recipes import Recipe

__all__ = [
    "BESIDE",
    "BEYOND",
    "FAIL",
    "GATES",
    "MOST_OTHER_LANGUAGE",
    "NOT_SHOWN",
    "OTHER_LANGUAGE",
    "PASS",
    "PLAIN",
    "RISKS",
    "TWIN",
    "WITHIN",
    "About",
    "Beside",
    "Gate",
    "GateConfig",
    "Number",
    "Risk",
    "Subject",
    "is_over",
    "oriented",
]

#: Outcomes of a gate; beside them stands NO_POWER of :mod:`reticent.audit.membership.validity`.
PASS, FAIL = "pass", "fail"
#: Outcomes of a risk, and of a model.
WITHIN, BEYOND, NOT_SHOWN = "within", "beyond", "not shown"
#: Recipes that protect nothing: the positive control of every attack.
PLAIN = ("mlm", "clm")
#: The false-positive rate of the gate ``membership_tpr``, as the evidence names it.
FPR = "0.01"
#: The control of most numbers: the same number of the unprotected twin.
TWIN: Final = "twin"
#: By how much an interval widens where the better of two sides is picked: the quantile at half the error.
PICKED = NormalDist().inv_cdf(1 - (1 - LEVEL) / 4) / NormalDist().inv_cdf(1 - (1 - LEVEL) / 2)


class Subject(NamedTuple):
    """A model, and its canaries and passages if there are any."""

    model: ModelEvidence
    extracted: ExtractedModel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a number is about, as the result of a gate says it."""

    part: str | None = None
    attack: str | None = None
    arm: str | None = None
    prefix_tokens: int | None = None
    num_queries: int | None = None


class Number(NamedTuple):
    """One number of a model: words for it, its estimate, and its value where nothing was learned.

    ``invalid`` is why it says nothing, if so. ``proof`` is what must lie over ``null`` in the twin, if that is another
    estimate. ``control`` is whether something else proves that it could be found; None without such a thing.
    ``fewest`` are the individuals of the smaller side, if two sides are compared; ``left_out`` are those of it that the
    number leaves out.
    """

    what: str
    estimate: Estimate | None
    null: float = 0.0
    invalid: str | None = None
    about: About = About()
    proof: Estimate | None = None
    control: bool | str | None = TWIN
    fewest: int | None = None
    left_out: int = 0

    @property
    def of(self) -> tuple[str, About]:
        """What it has in common with the same number of the twin."""
        return self.what, self.about


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A measure on which a job can set a threshold.

    Parameters
    ----------
    measure : its name in ``[[gate]]``
    title : name for readers
    numbers : (settings, a model, its unprotected twin or None) -> the numbers to judge
    needs : sections that a job must have for this number
    from_below : the number is a lower bound: "at least"; nothing bounds it from above
    chosen_by : the setting of ``[[gate]]`` that chooses among the numbers of the measure: attack, arm or part
    of_corpus : the number is of the documents, and of no model
    """

    measure: str
    title: str
    numbers: Callable[[GateConfig, Subject, Subject | None], Iterator[Number]]
    needs: frozenset[str] = frozenset()
    from_below: bool = False
    chosen_by: str | None = None
    of_corpus: bool = False


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


WHOLE_TEXT = "membership by the whole text"
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
            yield Number(words.format(PARTS[part]), sides.excess)


def _context(subject: Subject) -> Iterator[Number]:
    found = subject.model.inversion
    for name, kind in (("direct", found.direct), ("indirect", found.indirect)) if found else ():
        if kind and kind.all:
            yield Number(f"{name} identifiers read back from the words around them", kind.all.top1.excess)
    if found and found.association:
        yield Number("terms tied to names", found.association.rate.excess)


def _areas(
    way: str, name: str, attack: MeasuredAttack | KindAttack, auc: Estimate | None = None, invalid: str | None = None
) -> Iterator[Number]:
    """Yield the area of an attack, and the area without the held-out individuals who hold near-copies."""
    members, others = attack.num_members or 0, attack.num_nonmembers or 0
    about = About(attack=name)
    own = Number(f"{way}, attack {name}", auc or attack.auc, CHANCE, invalid, about, fewest=min(members, others))
    yield own
    if attack.auc_without_copies:
        left_out = (attack.auc.n or 0) - (attack.auc_without_copies.n or 0)
        yield own._replace(
            what=f"{way}, {WITHOUT_COPIES}, attack {name}",
            estimate=attack.auc_without_copies,
            about=replace(about, part=WITHOUT_COPIES),
            fewest=min(members, others - left_out),
            left_out=left_out,
        )


def _words(subject: Subject) -> Iterator[Number]:
    for kind in ("rare", "direct"):
        found = (subject.model.by_kind or {}).get(kind)
        for name, attack in found.attacks.items() if found else ():
            yield from _areas(f"membership by {kind} words alone", name, attack)
    threshold = subject.model.threshold
    if threshold:
        yield Number("membership by words at the threshold, in texts of others", threshold.at_threshold.auc, CHANCE)
        if threshold.by_likelihood:
            name = "membership by all words near the threshold, each by its likelihood ratio"
            yield Number(name, threshold.by_likelihood.auc, CHANCE)


def _individual(subject: Subject) -> Iterator[Number]:
    model = subject.model
    ends = (model.best_attack and model.best_attack.intervals) or {}
    for name, attack in model.membership.items():
        low, high = ends.get(name, (attack.auc.low, attack.auc.high))  # of several attacks: ends that hold at once
        why = attack.why or "the two sides differ without the model" if attack.verdict == INVALID else None
        yield from _areas(WHOLE_TEXT, name, attack, replace(attack.auc, low=low, high=high), why)
    found = (model.by_kind or {}).get("all")
    if found and "lira" in found.attacks:
        yield from _areas("membership by all words", "lira", found.attacks["lira"])


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


def _excess(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    sides = (own.model.excess or {}).get(gate.part)
    fewest = min(sides.members.n or 0, sides.heldout.n or 0) if sides else None
    yield Number("excess leakage", sides.excess if sides else None, about=About(part=gate.part), fewest=fewest)


def _attacks(gate: GateConfig, own: Subject) -> Iterator[tuple[str, MeasuredAttack, str | None]]:
    """Yield the attacks that a gate is about, each with the reason if it is invalid."""
    for name, found in own.model.membership.items():
        if gate.attack in (None, name):
            yield name, found, found.why if found.verdict == INVALID else None


def _auc(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    for name, found, invalid in _attacks(gate, own):
        yield from _areas(WHOLE_TEXT, name, found, invalid=invalid)


def _tpr(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    for name, found, invalid in _attacks(gate, own):
        fewest = min(found.num_members or 0, found.num_nonmembers or 0)
        rate = (found.tpr_at_fpr or {}).get(FPR)
        yield Number(WHOLE_TEXT, rate, float(FPR), invalid, About(attack=name), fewest=fewest)


def _extracted(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the rate of passages for the adversary with the longest prefix, then the most draws."""
    passages = own.extracted.passages if own.extracted else None
    names = ("np_discoverable",) if gate.measure == "np_extraction" else ("k_extractable", "discoverable")
    rows = [r for r in (passages.rates if passages else ()) if r.measure in names and r.asked == "all"]
    if rows:
        row = max(rows, key=lambda r: (r.prefix_tokens or 0, r.num_queries or 0))
        about = About(prefix_tokens=row.prefix_tokens, num_queries=row.num_queries)
        yield Number("passages that come back", row.members, about=about, proof=row.excess)


def _exposure(gate: GateConfig, own: Subject, plain: Subject | None) -> Iterator[Number]:
    found = _arm(own, gate.arm)
    # The missed arm of the same model is not protected. Without it, the control is the same arm of the plain twin.
    controls = [arm.excess_exposure for arm in (_arm(own, "missed"), _arm(plain, gate.arm)) if arm]
    control = is_over(next((excess for excess in controls if excess), None), 0.0)
    estimate = found.exposure.included if found else None
    yield Number("canary exposure", estimate, about=About(arm=gate.arm), control=control)


def _epsilon(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Judge a lower bound: it can show a failure, and passes only if it could have shown one."""

    arm, estimate = _arm(own, gate.arm), None
    if arm and arm.one_run.at_least is not None:
        bound = arm.one_run.at_least
        estimate = Estimate(value=bound, high=bound, n=arm.one_run.num_guesses, unit="guesses")
    control = (arm.one_run.most or 0) > gate.at_most if arm else None
    yield Number("empirical epsilon", estimate, about=About(arm=gate.arm), control=control)


def _arm(subject: Subject | None, name: str) -> CanaryArm | None:
    canaries = subject.extracted.canaries if subject and subject.extracted else None
    return canaries.arms.get(name) if canaries else None


def is_over(estimate: Estimate | None, null: float) -> bool | None:
    """Return whether an interval lies above the value of a model that leaks nothing; None without an interval."""
    if estimate is None or estimate.value is None or estimate.low is None:
        return None
    return estimate.low > null


def _of_no_model(_: GateConfig, __: Subject, ___: Subject | None) -> Iterator[Number]:
    return iter(())


#: The gate that each job has: detectors know four languages, and what they miss elsewhere shows in no number.
OTHER_LANGUAGE: Final = "other_language"
#: Its threshold where a job does not set one.
MOST_OTHER_LANGUAGE: Final = 0.01

_CANARIES, _EXTRACTION = frozenset({"canaries"}), frozenset({"extraction"})
#: Every gate by its measure. A new gate is a new row here, and nothing else.
GATES: Mapping[str, Gate] = MappingProxyType(
    {
        gate.measure: gate
        for gate in (
            Gate(
                measure="excess_leakage",
                title="excess leakage",
                numbers=_excess,
                chosen_by="part",
            ),
            Gate(
                measure="membership_auc",
                title="membership AUC",
                numbers=_auc,
                chosen_by="attack",
            ),
            Gate(
                measure="membership_tpr",
                title="membership TPR at 1 % FPR",
                numbers=_tpr,
                chosen_by="attack",
            ),
            Gate(
                measure="extraction",
                title="extraction rate",
                numbers=_extracted,
                needs=_EXTRACTION,
            ),
            Gate(
                measure="np_extraction",
                title="(n, p)-extraction rate",
                numbers=_extracted,
                needs=_EXTRACTION,
            ),
            Gate(
                measure="exposure",
                title="canary exposure in bits",
                numbers=_exposure,
                needs=_CANARIES,
                chosen_by="arm",
            ),
            Gate(
                measure="epsilon",
                title="empirical epsilon of all that carries one canary",
                numbers=_epsilon,
                needs=_CANARIES,
                from_below=True,
                chosen_by="arm",
            ),
            Gate(
                measure=OTHER_LANGUAGE,
                title="share of documents in a language that the rules do not know",
                numbers=_of_no_model,
                of_corpus=True,
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


class Beside(NamedTuple):
    """A number that stands beside the verdict: it is shown with that of the unprotected twin, and decides nothing."""

    title: str
    estimate: Callable[[NumbersBeside], Estimate | None]


#: Every number beside the verdict. A new one is a new row here, a field of `NumbersBeside` and a text of the report.
BESIDE: Final = (
    Beside(
        title="loss gap, held-out people less members, nats a token",
        estimate=lambda found: found.loss_gap.gap if found.loss_gap else None,
    ),
)


def _known_measure(measure: str) -> str:
    if measure not in GATES:
        raise ValueError(f"expected one of {', '.join(GATES)}")
    return measure


class GateConfig(Section):
    """A threshold that the trained models must keep, fixed before the run: ``[[gate]]``, as many as wanted."""

    section: ClassVar[str] = "gate"

    measure: Annotated[str, AfterValidator(_known_measure), PUBLISHED] = Field(description=f"one of {', '.join(GATES)}")
    at_most: float = Field(description="largest upper end of the 95 % interval that passes")
    recipes: Annotated[tuple[str, ...] | None, PUBLISHED] = Field(
        default=None, description="recipes that the gate is for; default: those that protect"
    )
    attack: Annotated[str | None, PUBLISHED] = Field(
        default=None, description="attack of a membership gate; default: each attack that was made"
    )
    arm: Arm = Field(default="protected", description="arm of the canaries, for exposure and epsilon")
    part: Literal["both", "direct", "indirect"] = Field(
        default="both", description="part of the identifiers, for excess_leakage"
    )
    required: bool = Field(default=False, description="true: a gate without power fails")

    @model_validator(mode="after")
    def _looks_at_all_that_it_is_given(self) -> Self:
        for name in ("attack", "arm", "part"):
            if name != GATES[self.measure].chosen_by and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"a gate of {self.measure} has no {name}")
        return self
