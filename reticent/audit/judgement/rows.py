"""The numbers of the judgement: every number by which a model is judged, in gates and in risks.

A *number* has an estimate, the value that it has where nothing was learned, and a control: the same number of the
unprotected twin, which must lie over that value to prove that it could have been found. A *gate* is a number on which a
job sets a threshold. A *risk* is judged by several numbers. :mod:`reticent.audit.judgement.verdict` judges both.

Settings read the names of the gates from here, so evidence is imported for types alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from reticent.audit.config import WHOLE_PASSAGE
from reticent.audit.evidence.extraction import CanaryArm, ExtractedModel, Passages
from reticent.audit.evidence.heads import ToldAttribute
from reticent.audit.evidence.inversion import InPlace
from reticent.audit.evidence.ladder import Ladder
from reticent.audit.evidence.leakage import Excess, Exposed, NumbersBeside, Part
from reticent.audit.evidence.membership import KindAttack, KindMembership, MeasuredAttack, Told
from reticent.audit.evidence.model import ModelEvidence
from reticent.audit.membership.names import (
    CLASSIFIER,
    DIFFERENCES,
    FEWEST_DIAGNOSED,
    FEWEST_MEMBERS,
    FEWEST_OTHERS,
    KIND_SHADOWS,
    LANGUAGE_MODEL,
    LANGUAGE_MODELS,
    NUM_FAMILIES,
    PLAIN,
    RUNGS,
    STATES,
    TAGGER,
    WITHDRAWN,
)
from reticent.audit.membership.validity import CHANCE, INVALID, OVER_BASE, WITHOUT_COPIES
from reticent.audit.stats.estimate import LEVEL, Estimate, clopper_pearson, simultaneous
from reticent.core.section import PUBLISHED, Section
from reticent.engine.config import Arm
from reticent.trainer.recipes import Recipe

__all__ = [
    "ABOVE",
    "BESIDE",
    "BEYOND",
    "CUES",
    "FAIL",
    "FALSE_ALARM",
    "FEW_DIAGNOSED",
    "GATES",
    "LEFT",
    "MIN_SHADOWS",
    "MOST_OTHER_LANGUAGE",
    "NOT_SHOWN",
    "NO_BASE_PASSAGES",
    "NO_HEAD",
    "NO_WHOLE_PASSAGES",
    "NUM_AREAS",
    "ONE_SIDE",
    "OTHER_LANGUAGE",
    "PASS",
    "PASSAGE_OF",
    "PLACEBO",
    "PLAIN",
    "RISKS",
    "TOLD",
    "TWIN",
    "WITHIN",
    "About",
    "Beside",
    "Gate",
    "GateConfig",
    "Number",
    "Risk",
    "Subject",
    "advice",
    "is_over",
    "orient_auc",
    "why_no_whole",
]

#: Outcomes of a gate; beside them stands NO_POWER of :mod:`reticent.audit.membership.validity`.
PASS, FAIL = "pass", "fail"
#: Outcomes of a risk, and of a model.
WITHIN, BEYOND, NOT_SHOWN = "within", "beyond", "not shown"
#: Why an encoder that was trained elsewhere has no number that needs predictions.
NO_HEAD = "its files have no head that predicts words: only its hidden states were asked"
#: The false-positive rate of the gate ``membership_tpr``, as the evidence names it.
FPR = "0.01"
#: The control of most numbers: the same number of the unprotected twin.
TWIN: Final = "twin"
#: The fewest shadow models whose attack can let a risk of membership be within.
MIN_SHADOWS = 8


class Subject(NamedTuple):
    """A model to judge, with the extraction results (canaries and passages) of it if there are any."""

    model: ModelEvidence
    extracted: ExtractedModel | None


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Identifying labels of a number in a gate's result: part of the identifiers, attack, canary arm, prefix length,
    number of draws."""

    part: str | None = None
    attack: str | None = None
    arm: str | None = None
    prefix_tokens: int | None = None
    num_queries: int | None = None


class Number(NamedTuple):
    """One number by which a model is judged: its description, its estimate, and ``null``, its value if nothing was
    learned.

    ``invalid`` is the reason if it shows nothing. ``control`` is `TWIN`, or whether another control proves that the
    attack can succeed; None without one.
    ``fewest`` is the number of individuals of the smaller side, if two sides are compared; ``left_out`` the number of
    individuals that it leaves out. ``doubt`` is the reason if it cannot show that a model is within. ``num_shadows`` is
    the number of shadow models of its attack. ``beside_base``: it is a difference to the base model, which hides what
    that model knows already; ``of_known_base``: it counts only where the base may know the members, in place of such a
    difference.
    ``at_most`` is a threshold of its own, in place of the risk's. ``is_shown``: an exact test shows that it is beyond;
    ``by_test_alone``: over so few that only that test decides. ``missing`` is why it was not measured, where without
    it the risk cannot be within.
    """

    what: str
    estimate: Estimate | None
    null: float = 0.0
    invalid: str | None = None
    about: About = About()
    control: bool | str | None = TWIN
    fewest: int | None = None
    left_out: int = 0
    doubt: str | None = None
    num_shadows: int | None = None
    beside_base: bool = False
    of_known_base: bool = False
    at_most: float | None = None
    is_shown: bool = False
    by_test_alone: bool = False
    missing: str | None = None

    def valid_for(self, model: ModelEvidence) -> Number:
        """Return this figure with a note if it proves nothing about the model, because members and held-out individuals
        differ even without a model (in a given split, or by a fault of the run), or an encoder predicts no words.

        Numbers by shadow models, and whole passages, do not depend on a given split; canaries were drawn apart from it.
        """
        if model.num_drawn and model.recipe != "base" and self.about.attack != STATES:
            return self._replace(missing=NO_HEAD)
        number = self if self.about.arm else self._replace(doubt=self.doubt or model.fault)
        if self.num_shadows or self.what == PASSAGE_OF:
            return number
        return number._replace(invalid=self.invalid or model.sides_differ)

    def is_found(self, estimate: Estimate | None) -> bool:
        """Return whether a leak is measured: ``estimate``, of this figure or mirrored at 0.5, lies above the value of a
        model that leaks nothing with its whole interval. Over few people an exact test decides instead."""
        return self.is_shown if self.by_test_alone else bool(is_over(estimate, self.null))

    @property
    def of(self) -> tuple[str, About]:
        """Key of this figure, (description, labels), by which the same figure of another model is looked up."""
        return self.what, self.about


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A measure of a model, or of the documents, on which a job can set a threshold.

    Parameters
    ----------
    measure : its name in ``[[gate]]``
    title : name for readers
    numbers : (settings, a model, its unprotected twin or None) -> the numbers to judge
    needs : sections that a job must have for this number
    from_below : the number is a lower bound ("at least"), without an upper one
    kinds : kinds of models that have this number: language models, classifiers, taggers
    chosen_by : the setting of ``[[gate]]`` that chooses among the numbers of the measure: attack, arm or part
    of_corpus : the number is of the documents, and of no model
    """

    measure: str
    title: str
    numbers: Callable[[GateConfig, Subject, Subject | None], Iterator[Number]]
    needs: frozenset[str] = frozenset()
    from_below: bool = False
    kinds: tuple[str, ...] = (LANGUAGE_MODEL,)
    chosen_by: str | None = None
    of_corpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """One risk: its field in `VerdictConfig`, its title, its numbers, how it is measured, and how it can be lowered."""

    name: str
    title: str
    about: str
    numbers: Callable[[Subject], Iterator[Number]]
    measured_by: str
    lowered_by: str
    #: Threshold -> about the fewest (members, held-out individuals) with which a model without leaks can be within it.
    fewest: Callable[[float], tuple[int, int]]
    #: How it is measured of classifiers and taggers.
    measured_on_heads_by: str = "[audit.heads]"
    #: Further advice for recipes that follow `lowered_by` already, which `is_lowered` tests; empty: the same advice.
    lowered_further: str = ""
    is_lowered: Callable[[Recipe], bool] = lambda recipe: recipe.protects_identifiers
    #: Objectives of the models that have this risk; empty for all.
    objectives: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    #: Whether it is within only by an attack with `MIN_SHADOWS` shadow models or more.
    by_shadows: bool = False
    #: Whether this holds of classifiers and taggers too; of names, which taggers learn, no attack has shadow models.
    heads_by_shadows: bool = True
    #: Whether identifiers that no detector found are missing from its numbers.
    by_detectors: bool = False

    def advice(self, recipe: Recipe | None) -> str:
        """Return a sentence on how this risk of a model trained by ``recipe`` can be lowered, or lowered further if the
        recipe follows the usual advice already."""
        done = recipe is not None and self.is_lowered(recipe)
        return self.lowered_further if done and self.lowered_further else self.lowered_by


WHOLE_TEXT = "membership by the whole text"
BY_LABELS = "membership by the labels that it gives"
LEFT = "who withdrew since the release before"
ORDINARY, TAUGHT = "membership by ordinary words", "membership by the words that it may be taught"
PARTS: dict[Part, str] = {"both": "identifiers", "direct": "direct identifiers", "indirect": "indirect identifiers"}


#: Suffix of a rate's description if it is not over all identifiers.
ONE_SIDE = "used on one side alone"
#: Description of the individuals whose own identifier a model emits, and the largest share, members less held-out.
PEOPLE_OF = "people of whom an identifier of their own is {}"
EXPOSED_AT_MOST = 0.05


def _rate_numbers(
    description: str, rates: Excess, labels: About = About(), *, beside_base: bool = False
) -> Iterator[Number]:
    """Yield the figures to judge of a leak rate, each members' rate minus that of held-out individuals: over all items,
    over items that only one side has, and without held-out individuals who hold near-copies."""
    fewest = min(rates.members.n or 0, rates.heldout.n or 0)
    own = Number(description, rates.excess, about=labels, fewest=fewest, beside_base=beside_base)
    yield own
    if rates.unshared is not None:
        found = _with_n_of_all(rates.unshared.excess, rates.excess)
        fewest = min(rates.unshared.members.n or 0, rates.unshared.heldout.n or 0)
        part = replace(labels, part=_subset_name(labels, ONE_SIDE))
        left_out = max((rates.excess.n or 0) - (found.n or 0), 0)  # who have nothing of their own
        yield own._replace(
            what=f"{description}, {ONE_SIDE}", estimate=found, about=part, fewest=fewest, left_out=left_out
        )  # fmt: skip
    if rates.without_copies is not None:
        found = _with_n_of_all(rates.without_copies, rates.excess)
        left_out = (rates.excess.n or 0) - (found.n or 0)
        yield own._replace(
            what=f"{description}, {WITHOUT_COPIES}",
            estimate=found,
            about=replace(labels, part=_subset_name(labels, WITHOUT_COPIES)),
            fewest=own.fewest - left_out if own.fewest else own.fewest,
            left_out=left_out,
        )


def _with_n_of_all(over_subset: Estimate, over_all: Estimate) -> Estimate:
    """Return the estimate over a subset of the items. If the subset is empty, its ``n`` becomes that of all items, so
    that the reason stated later is "too few" and not "not measured"."""
    return (
        replace(over_subset, n=over_all.n) if over_subset.value is None and over_all.value is not None else over_subset
    )


def _subset_name(labels: About, subset: str) -> str:
    """Return the label of a subset of the identifiers: its name, preceded by the kind of identifier in ``labels`` (such
    as "direct"), if any."""
    return f"{labels.part}, {subset}" if labels.part else subset


def _emission_numbers(subject: Subject) -> Iterator[Number]:
    """Yield the figures by which the risk *emission* is judged: identifiers that the model predicts, generates or ranks
    above decoys at their own position, and shares of individuals with such an identifier."""
    model, written, hidden = subject.model, subject.model.generated, subject.model.all_occurrences
    ways: tuple[tuple[str, Mapping[Part, Excess] | None], ...] = (
        ("{} predicted, members less held-out people", model.excess),
        ("{} predicted, more than by the base model", model.over_base),
        ("{} written, members less held-out people", written.excess if written else None),
        ("{} predicted, nothing to copy from", hidden.excess if hidden else None),
    )
    for words, found in ways:
        for part, sides in (found or {}).items():
            yield from _rate_numbers(words.format(PARTS[part]), sides, beside_base=found is model.over_base)
    inverted = model.inversion
    for name, kind in (("direct", inverted.direct), ("indirect", inverted.indirect)) if inverted else ():
        if kind and kind.in_place:
            yield from _position_numbers(f"{name} identifiers", kind.in_place, beside_base=kind.score == "difference")
    exposed = {
        "predicted": model.exposed,
        "written": written and written.exposed,
        "predicted, nothing to copy from": hidden and hidden.exposed,
    }
    yield from _individual_shares(
        {PEOPLE_OF.format(way): found for way, found in exposed.items() if found}, EXPOSED_AT_MOST
    )


def _position_numbers(description: str, in_place: InPlace, *, beside_base: bool) -> Iterator[Number]:
    """Yield the figures on identifiers at the position where they occur in a document: how often the model finds the
    true one likelier than decoys, and how often it is among a number of draws from the model."""
    told = f"{description} likelier in their place than decoys"
    yield from _rate_numbers(told, in_place.ranked.top1, beside_base=beside_base)
    if in_place.own:
        for number in _rate_numbers(f"{told}, by the model alone", in_place.own.top1):
            yield number._replace(of_known_base=True)
    for num, sides in in_place.extracted.items():
        yield from _rate_numbers(
            f"{description} drawn in their place {'at once' if num == '1' else f'within {num} draws'}", sides
        )


def _individual_shares(shares: Mapping[str, Excess], at_most: float) -> Iterator[Number]:
    """Yield figures to judge: for each description in ``shares``, the share of members of whom something leaked, minus
    that of held-out individuals. The intervals hold simultaneously; ``at_most`` is the upper limit."""
    for words, sides in shares.items():
        for number in _rate_numbers(words, sides, beside_base=words == PEOPLE_OF.format("predicted")):
            estimate = number.estimate and simultaneous(number.estimate, len(shares))
            yield number._replace(estimate=estimate, at_most=at_most)


def _context_numbers(subject: Subject) -> Iterator[Number]:
    """Yield the figures by which the risk *context* is judged: identifiers, terms tied to names, diagnoses and
    attributes inferred from the text around them."""
    found = subject.model.inversion
    for name, kind in (("direct", found.direct), ("indirect", found.indirect)) if found else ():
        words = f"{name} identifiers read back from the words around them"
        if kind and kind.all:
            yield from _rate_numbers(words, kind.all.top1, beside_base=kind.score == "difference")
        if kind and kind.own:
            for number in _rate_numbers(f"{words}, by the model alone", kind.own.top1):
                yield number._replace(of_known_base=True)
    if found and found.association:
        yield from _rate_numbers("terms tied to names", found.association.rate)
    if subject.model.diagnoses:
        yield from _diagnosis_numbers(subject.model.diagnoses)
    yield from _attribute_numbers(subject.model.attributes or {})


#: Largest difference of AUCs by which diagnoses of members may be inferred better than those of others.
DIAGNOSES_AT_MOST = 0.05
FEW_DIAGNOSED = (
    f"no diagnosis stands in the texts of {FEWEST_DIAGNOSED} people of each side, and not in those of as many"
)
PLACEBO, CUES = (
    "diagnoses that stand in no text are told too",
    "what is known of people tells their diagnoses otherwise",
)


def _diagnosis_numbers(found: Ladder) -> Iterator[Number]:
    """Yield the figures on inferred diagnoses and on text fragments repeated verbatim, one for each degree of the
    adversary's knowledge. A figure is invalid if its control lies measurably above 0, doubtful if below."""
    for words, cells in (("sensitive diagnoses", found.sensitive), ("other conditions", found.other)):
        for rung, cell in cells.items():
            controls = (cell.placebo, PLACEBO), (cell.cue_only, CUES), (cell.out_shadows, CUES)
            yield Number(
                f"{words} told by {RUNGS[rung]}",
                cell.told if cell.num_diagnoses else None,
                invalid=next((why for control, why in controls if is_over(control, 0.0)), None),
                fewest=cell.fewest,
                doubt=CUES if any(control and (control.high or 0.0) < 0.0 for control, _ in controls) else None,
                beside_base=found.less_base,
                at_most=DIAGNOSES_AT_MOST,
                missing=None if cell.num_diagnoses or words == "other conditions" else FEW_DIAGNOSED,
            )
    for rung, sides in found.verbatim.items():
        for number in _rate_numbers(
            f"fragments that come back, given {RUNGS[rung]}", sides, beside_base=found.less_base
        ):
            yield number._replace(at_most=DIAGNOSES_AT_MOST)


def _attribute_numbers(found: Mapping[str, ToldAttribute]) -> Iterator[Number]:
    """Yield for each attribute how much more often it is inferred correctly for members than for held-out individuals,
    with intervals that hold simultaneously."""
    for name, told in found.items():
        for way, sides in (("", told.logits), (", by the label alone", told.label_only)):
            for number in _rate_numbers(f"attribute {name} told from its alternatives{way}", sides):
                estimate = number.estimate and simultaneous(number.estimate, 2 * len(found))
                yield number._replace(estimate=estimate, at_most=DIAGNOSES_AT_MOST)


def _auc_numbers(
    description: str,
    attack_name: str,
    attack: MeasuredAttack | KindAttack,
    auc: Estimate | None = None,
    invalid: str | None = None,
    num_shadows: int | None = None,
) -> Iterator[Number]:
    """Yield the figures to judge of one membership attack: its AUC, the excess of its AUC over that on a control, and
    its AUC without held-out individuals who hold near-copies.

    The AUC over that of a control removes the shift of the split. ``description`` is of the words that the attack uses.
    """
    members, others = attack.num_members or 0, attack.num_nonmembers or 0
    about, fewest = About(attack=attack_name), min(members, others)
    own = Number(f"{description}, attack {attack_name}", auc or attack.auc, CHANCE, invalid, about, fewest=fewest)
    own = own._replace(num_shadows=num_shadows, beside_base=attack_name in DIFFERENCES)
    yield own
    if attack.over_base:
        what, part = f"{description}, {OVER_BASE}, attack {attack_name}", replace(about, part=OVER_BASE)
        yield own._replace(what=what, estimate=attack.over_base, about=part, beside_base=True)
    if attack.auc_without_copies:
        left_out = (attack.auc.n or 0) - (attack.auc_without_copies.n or 0)
        yield own._replace(
            what=f"{description}, {WITHOUT_COPIES}, attack {attack_name}",
            estimate=attack.auc_without_copies,
            about=replace(about, part=WITHOUT_COPIES),
            fewest=min(members, others - left_out),
            left_out=left_out,
        )


def _identifying_word_numbers(subject: Subject) -> Iterator[Number]:
    """Yield the figures by which the risk *words*, membership revealed by identifying words alone, is judged: attacks
    on rare words, direct identifiers, words near the threshold k, and names."""
    for kind in ("rare", "direct"):
        if found := (subject.model.by_kind or {}).get(kind):
            yield from _kind_numbers(subject, found, f"membership by {kind} words alone")
    for name, at in _threshold_attacks(subject.model).items():
        yield Number(name, _clipped(simultaneous(at.auc, NUM_FAMILIES)), CHANCE)
    yield from _exposed_members(subject, ("rare", "direct"))
    if names := subject.model.names:
        for words, area in (("", names.told), (", more than by the names alone", names.over_blind)):
            yield Number(f"names of members told from others{words}", _clipped(simultaneous(area, 2)), CHANCE)


def _threshold_attacks(model: ModelEvidence) -> dict[str, KindAttack]:
    """Return description -> result of the attacks that exploit the protection threshold k (a word used by fewer than k
    individuals is never a prediction target), those left out that were not made."""
    found = model.threshold
    ways = {
        "membership by words at the threshold, in texts of others": found.at_threshold,
        "membership by all words near the threshold, each by its likelihood ratio": found.by_likelihood,
        "membership by one's own names, in texts of others": found.by_owner,
    } if found else {}  # fmt: skip
    return {name: at for name, at in ways.items() if at}


def _clipped(area: Estimate) -> Estimate:
    """Return an AUC with the ends of its interval clipped to 0 and 1."""
    if area.low is None or area.high is None:
        return area
    return replace(area, low=max(area.low, 0.0), high=min(area.high, 1.0))


#: Descriptions of the members that an attack identifies, and the largest share of them.
TOLD = "members told with one false alarm in a hundred"
ABOVE = "members above every other person"
TOLD_AT_MOST = 0.05
#: Probability that a model is judged beyond by chance alone, where a given list says who the members are; and the part
#: of it for the exact tests of each of the three risks that make some: a half of it in all.
FALSE_ALARM = 0.01
FALSE_ALARM_OF_TESTS = FALSE_ALARM / 2 / 3


class _Exposed(NamedTuple):
    """The members that one attack identifies (``told``), the attack's description, and why it shows nothing, if so."""

    way: str
    attack: str | None
    told: Told | None
    invalid: str | None
    #: Whether its interval is not yet simultaneous with those of other attacks.
    alone: bool = False


def _whole_text_titles(model: ModelEvidence) -> tuple[str, ...]:
    """Return the descriptions under which attacks on the model's whole text are judged: a second one if all its tokens
    are prediction targets, because the attacks on its targets are then the same."""
    if model.start is not None:
        return (BY_LABELS,)
    kinds = model.by_kind or {}
    return (WHOLE_TEXT, TAUGHT) if kinds and "targets" not in kinds else (WHOLE_TEXT,)


def _exposed_results(subject: Subject, kinds_of_words: Sequence[str], whole: bool) -> Iterator[_Exposed]:
    """Yield for each attack the share of members that it identifies at a low false-positive rate: attacks by the given
    kinds of words and, if ``whole``, by the whole text, else those that exploit the protection threshold k."""
    model, of_kinds = subject.model, subject.model.by_kind or {}
    for name, attack in model.membership.items() if whole else ():
        for way in _whole_text_titles(model):
            yield _Exposed(way, name, attack.told, _why_invalid(attack))
    if whole and model.withdrawn:
        yield _Exposed(LEFT, WITHDRAWN, model.withdrawn.told, None, alone=True)
    for kind in kinds_of_words:
        found, way = of_kinds.get(kind), KIND_WAYS.get(kind, f"membership by {kind} words alone")
        if found is None or (kind == "targets" and found == of_kinds.get("ordinary")):  # the same words: no other test
            continue
        for name, one in found.attacks.items():
            if kind != "all" or name == "lira":  # others by all words are attacks on the whole text
                yield _Exposed(way, name, one.told, None if name in KIND_SHADOWS else found.why)
    for name, at in _threshold_attacks(model).items() if not whole else ():
        yield _Exposed(name, None, at.told, None, alone=True)


def _exposed_members(subject: Subject, kinds_of_words: Sequence[str], whole: bool = False) -> Iterator[Number]:
    """Yield for each attack the share of members that it identifies at a low false-positive rate, as a figure to judge:
    attacks by the given kinds of words and, if ``whole``, by the whole text, else those that exploit the protection
    threshold k.

    Over few individuals no share is within. It is beyond if an exact test, corrected for all attacks, shows that so
    many members above every other are no chance.
    """
    known = [(one, one.told) for one in _exposed_results(subject, kinds_of_words, whole) if one.told]
    alpha = FALSE_ALARM_OF_TESTS if subject.model.split_given else 1 - LEVEL
    for one, told in known:
        few, of = told.fpr is None, f", attack {one.attack}" if one.attack else ""
        yield Number(
            f"{one.way}, {ABOVE if few else TOLD}{of}",
            told.rate if not one.alone or not told.rate else _clipped(simultaneous(told.rate, NUM_FAMILIES)),
            told.fpr or 0.0,
            one.invalid,
            About(attack=one.attack, part=ABOVE if few else TOLD),
            at_most=TOLD_AT_MOST,
            by_test_alone=few,
            is_shown=few and told.p_value is not None and told.p_value < alpha / len(known),
        )


def _why_invalid(attack: MeasuredAttack) -> str | None:
    """Return the reason why a membership attack proves nothing (members and others differ even without the model); None
    if it is valid."""
    return attack.why or "the two sides differ without the model" if attack.verdict == INVALID else None


#: Descriptions of membership by kinds of word that are not identifying.
KIND_WAYS = {"all": "membership by all words", "ordinary": ORDINARY, "targets": TAUGHT}


def _individual_numbers(subject: Subject) -> Iterator[Number]:
    """Yield the figures by which the risk *individual*, membership of a person, is judged: all membership attacks but
    those by identifying words alone."""
    model, kinds = subject.model, subject.model.by_kind or {}
    ends = (model.best_attack and model.best_attack.intervals) or {}
    for name, attack in model.membership.items():
        low, high = ends.get(name, (attack.auc.low, attack.auc.high))  # of several attacks: ends that hold at once
        why = _why_invalid(attack)
        auc = replace(attack.auc, low=low, high=high)
        for way in _whole_text_titles(model):
            yield from _auc_numbers(way, name, attack, auc, why, attack.num_shadows)
    for kind, way in KIND_WAYS.items():
        if found := kinds.get(kind):  # all words but for LiRA are the whole text
            yield from _kind_numbers(subject, found, way, ("lira",) if kind == "all" else None)
    if "all" in kinds and TAUGHT in _whole_text_titles(model):
        yield from _kind_numbers(subject, kinds["all"], TAUGHT, ("lira",))
    if model.withdrawn:
        area = _clipped(simultaneous(model.withdrawn.auc, NUM_FAMILIES))
        fewest = min(model.withdrawn.num_members or 0, model.withdrawn.num_nonmembers or 0)
        yield Number(f"{LEFT}, attack {WITHDRAWN}", area, CHANCE, about=About(attack=WITHDRAWN), fewest=fewest)
    yield from _exposed_members(subject, tuple(KIND_WAYS), whole=True)


def _kind_numbers(
    subject: Subject, kind: KindMembership, description: str, attack_names: Sequence[str] | None = None
) -> Iterator[Number]:
    """Yield the AUCs, as figures to judge, of the attacks by one kind of word: all attacks, or those in
    ``attack_names``. An AUC of an attack without shadow models is invalid if the given members and others differ even
    without the model."""
    for name, attack in kind.attacks.items():
        if attack_names is None or name in attack_names:
            by_shadows = name in KIND_SHADOWS
            why, shadows = (None, kind.num_shadows) if by_shadows else (kind.why, None)
            yield from _auc_numbers(description, name, attack, None, why, shadows)


def _passage_numbers(subject: Subject) -> Iterator[Number]:
    """Yield the figures by which the risk *passages* is judged: the rates at which a causal model completes training
    passages, and the share of individuals of whom it completes a whole one."""
    passages = subject.extracted.passages if subject.extracted else None
    for row in passages.rates if passages else ():
        if row.asked == "all":
            draws = "" if row.num_queries is None else f" and {row.num_queries:,} draws"
            back = "nearly come back" if row.measure == "near_verbatim" else "come back"
            yield from _rate_numbers(f"passages that {back}, given {row.prefix_tokens} tokens{draws}", row)
    if passages and passages.exposed:
        yield _passage_share(passages.exposed, bool(passages.asks_every_member), subject.model.split_given)
    elif passages:
        yield Number(PASSAGE_OF, None, at_most=PASSAGE_AT_MOST, missing=why_no_whole(passages))


def why_no_whole(passages: Passages) -> str:
    """Return the reason why it was not measured of how many individuals the model reproduces a whole passage."""
    asked = passages.settings is not None and passages.settings.suffix_tokens >= WHOLE_PASSAGE
    return NO_BASE_PASSAGES if asked else NO_WHOLE_PASSAGES


def _passage_share(shares: Exposed, asks_every_member: bool, split_given: bool | None) -> Number:
    """Return the figure to judge for the share of members of whom the model reproduced a whole passage. ``shares`` has
    this share of members and of held-out individuals.

    One member is beyond the threshold if there is no such held-out individual; else the difference must lie over 0 with
    its whole interval. Where a list was given, Fisher's exact test of both shares decides. Zero of all members is an
    exact count; zero of a sample has an upper end.
    """
    members, others = shares.members, shares.heldout
    number = Number(PASSAGE_OF, members, at_most=PASSAGE_AT_MOST, beside_base=True)
    if not members.value:
        end = 0.0 if asks_every_member else clopper_pearson(0, max(members.num_resampled, 1))[1]
        return number._replace(estimate=replace(members, high=members.value if members.value is None else end))
    if split_given:  # without a held-out individual of whom one was asked for, nothing is shown
        is_shown = others.value is not None and _chance_of_shares(members, others) < FALSE_ALARM_OF_TESTS
        return number._replace(by_test_alone=True, is_shown=is_shown)
    if not others.value:
        return number._replace(is_shown=True)
    return number._replace(estimate=shares.excess, is_shown=bool(is_over(shares.excess, 0.0)))


def _chance_of_shares(members: Estimate, others: Estimate) -> float:
    """Return the p-value of a one-sided Fisher's exact test that the members' share exceeds the others' by chance.
    Counts of households are rounded so that the p-value is never too small."""
    from scipy import stats

    sizes = members.num_resampled, others.num_resampled
    own = math.floor((members.value or 0.0) * sizes[0] + 1e-6)
    other = math.ceil((others.value or 0.0) * sizes[1] - 1e-6)
    return float(stats.hypergeom.sf(own - 1, sum(sizes), own + other, sizes[0]))


#: Description of the individuals of whom a passage comes back, and the largest share of those tested.
PASSAGE_OF = "people of whom a whole passage of their own comes back"
PASSAGE_AT_MOST = 0.01
NO_WHOLE_PASSAGES = f"whole passages, of {WHOLE_PASSAGE} tokens or more, were not asked for"
NO_BASE_PASSAGES = "whole passages were not counted, as there is no base model that may write them too"
#: Number of simultaneous intervals of a membership risk; rate of both sides for which sample sizes are planned.
NUM_AREAS, USUAL_RATE = 10, 0.05


def _fewest_by_rate(threshold: float) -> tuple[int, int]:
    """Return the fewest (members, held-out individuals) needed for a 95 % interval, of the difference of their two
    rates, that extends at most ``threshold`` to each side.

    Both rates are taken to be `USUAL_RATE`.
    """
    half = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2) ** 2 * 2 * USUAL_RATE * (1 - USUAL_RATE)
    n = math.ceil(half / threshold**2)
    return n, n


def _fewest_by_area(threshold: float) -> tuple[int, int]:
    """Return the fewest (members, held-out individuals) needed for an AUC of 0.5 to have an interval that ends below
    ``threshold``, and for a true-positive rate at 1 % false positives.

    It is one of `NUM_AREAS` simultaneous AUCs.
    """
    error = NormalDist().inv_cdf(1 - (1 - LEVEL) / (2 * NUM_AREAS)) / (threshold - CHANCE)
    n = math.ceil(error**2 / 6)
    return max(n, FEWEST_MEMBERS), max(n, FEWEST_OTHERS)


def _fewest_by_none(threshold: float) -> tuple[int, int]:
    """Return the fewest (members, held-out individuals) needed for a count of zero to have a Clopper-Pearson upper
    bound of at most ``threshold``."""
    n = math.ceil(math.log((1 - LEVEL) / 2) / math.log(1 - min(threshold, 0.999)))
    return n, n


PROTECT = "a recipe that protects direct and indirect identifiers, or fewer epochs"
#: Every risk, in the order of the report's columns.
RISKS: Mapping[str, Risk] = MappingProxyType(
    {
        risk.name: risk
        for risk in (
            Risk(
                name="emission",
                title="identifiers emitted",
                about="does it say names, numbers and rare words of the people it was trained on?",
                numbers=_emission_numbers,
                measured_by="the audit itself",
                fewest=_fewest_by_rate,
                lowered_by=PROTECT,
                lowered_further="fewer epochs, more people, or detectors that miss less",
                objectives=LANGUAGE_MODELS,
                gates=("excess_leakage", "exposure", "epsilon"),
                by_detectors=True,
            ),
            Risk(
                name="context",
                title="identifiers tied to their context",
                about="can an identifier be found by the words around it?",
                numbers=_context_numbers,
                measured_by="[audit.inversion]",
                measured_on_heads_by="[audit.heads] attributes",
                fewest=_fewest_by_rate,
                objectives=(*LANGUAGE_MODELS, CLASSIFIER),
                gates=("attribute",),
                lowered_by='context = "surrogate" or "tag", so that identifiers are not read either',
                lowered_further="fewer epochs, or detectors that miss less",
                is_lowered=lambda recipe: recipe.replaces_identifiers,
            ),
            Risk(
                name="words",
                title="membership through identifying words",
                about="do rare words and names tell who was trained on?",
                numbers=_identifying_word_numbers,
                measured_by="the attacks by kind of word",
                fewest=_fewest_by_area,
                objectives=(*LANGUAGE_MODELS, TAGGER),
                lowered_by=PROTECT,
                lowered_further="surrogates of rare words (for masked models, which learn what they read, also frozen "
                "embeddings), "
                "fewer epochs, more people, or differential privacy; noise in the threshold ([threshold] epsilon) "
                "hides what a single word tells, and with its unit = individual, for many people, what all words of a "
                "person tell together",
                by_shadows=True,
                heads_by_shadows=False,
                by_detectors=True,
            ),
            Risk(
                name="individual",
                title="membership of the person",
                about="does the whole text tell who was trained on? Masking does not close this.",
                numbers=_individual_numbers,
                measured_by="audit.attacks and [audit.shadow]",
                fewest=_fewest_by_area,
                lowered_by="differential privacy, more people or fewer epochs; masking does not close it",
                is_lowered=lambda recipe: recipe.private,
                gates=("membership_auc", "membership_tpr"),
                by_shadows=True,
            ),
            Risk(
                name="passages",
                title="verbatim passages",
                about="does training text come back word for word?",
                numbers=_passage_numbers,
                measured_by="[extraction]",
                objectives=("clm",),
                fewest=_fewest_by_none,
                lowered_by="deduplication, fewer epochs, or the guard at the door of the model",
                is_lowered=lambda recipe: recipe.goldfish_k is not None,
                gates=("extraction", "np_extraction"),
            ),
        )
    }
)


def advice(risk: str, model: ModelEvidence, recipe: Recipe | None) -> str:
    """Return a sentence on how this risk of a model can be lowered. For a classifier or a tagger it is always the
    advice against membership inference."""
    return RISKS[risk].advice(recipe) if model.start is None else RISKS["individual"].lowered_by


def _excess_gate(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the figures on excess leakage, members' leak rate minus that of held-out individuals, that a gate (a limit
    set by the job) checks in the model ``own``."""
    sides, about = (own.model.excess or {}).get(gate.part), About(part=gate.part)
    if sides:
        yield from _rate_numbers("excess leakage", sides, about)
    else:
        yield Number("excess leakage", None, about=about)


def _gated_attacks(gate: GateConfig, own: Subject) -> Iterator[tuple[str, MeasuredAttack, str | None]]:
    """Yield (attack name, result, why it is invalid or None) of each membership attack that a gate (a limit set by the
    job) checks."""
    for name, found in own.model.membership.items():
        if gate.attack in (None, name):
            yield name, found, found.why if found.verdict == INVALID else None


def _auc_gate(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the AUC figures of the membership attacks on the model ``own`` that a gate (a limit set by the job)
    checks."""
    for name, found, invalid in _gated_attacks(gate, own):
        yield from _auc_numbers(_whole_text_titles(own.model)[0], name, found, None, invalid)


def _tpr_gate(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the true-positive rates, at a low false-positive rate, of the membership attacks on the model ``own`` that
    a gate (a limit set by the job) checks."""
    for name, found, invalid in _gated_attacks(gate, own):
        fewest = min(found.num_members or 0, found.num_nonmembers or 0)
        rate = (found.tpr_at_fpr or {}).get(FPR)
        yield Number(_whole_text_titles(own.model)[0], rate, float(FPR), invalid, About(attack=name), fewest=fewest)


def _attribute_gate(_: GateConfig, own: Subject, __: Subject | None) -> Iterator[Number]:
    """Yield the figures on inferred attributes (such as age or sex) that a gate (a limit set by the job) checks in the
    model ``own``; the gate's limit replaces their usual one."""
    for number in _attribute_numbers(own.model.attributes or {}):
        yield number._replace(at_most=None, about=replace(number.about, part=number.what))


def _extraction_gate(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the figures on extraction that a gate (a limit set by the job) checks in the model ``own``: the rate of
    passages that it completes, members' minus held-out, with the longest prefix and the most draws."""
    passages = own.extracted.passages if own.extracted else None
    names = ("np_discoverable",) if gate.measure == "np_extraction" else ("k_extractable", "discoverable")
    rows = [r for r in (passages.rates if passages else ()) if r.measure in names and r.asked == "all"]
    if rows:
        row = max(rows, key=lambda r: (r.prefix_tokens or 0, r.num_queries or 0))
        about = About(prefix_tokens=row.prefix_tokens, num_queries=row.num_queries)
        yield from _rate_numbers("passages that come back", row, about)


def _exposure_gate(gate: GateConfig, own: Subject, plain: Subject | None) -> Iterator[Number]:
    """Yield the canary exposure, in bits, that a gate (a limit set by the job) checks in the model ``own``, with
    whether unprotected canaries are detected in this model or in ``plain``, its unprotected twin, as they should be."""
    found = _canary_arm(own, gate.arm)
    # The missed arm of the same model is not protected. Without it, the control is the same arm of the plain twin.
    controls = [arm.excess_exposure for arm in (_canary_arm(own, "missed"), _canary_arm(plain, gate.arm)) if arm]
    control = is_over(next((excess for excess in controls if excess), None), 0.0)
    estimate = found.exposure.included if found else None
    yield Number("canary exposure", estimate, about=About(arm=gate.arm), control=control)


def _epsilon_gate(gate: GateConfig, own: Subject, _: Subject | None) -> Iterator[Number]:
    """Yield the empirical epsilon, a lower bound, that a gate (a limit set by the job) checks in the model ``own``. It
    passes only if the canaries were enough to show an epsilon above the limit."""

    arm, estimate = _canary_arm(own, gate.arm), None
    if arm and arm.one_run.at_least is not None:
        bound = arm.one_run.at_least
        estimate = Estimate(value=bound, high=bound, n=arm.one_run.num_guesses, unit="guesses")
    control = (arm.one_run.most or 0) > gate.at_most if arm else None
    yield Number("empirical epsilon", estimate, about=About(arm=gate.arm), control=control)


def _canary_arm(subject: Subject | None, name: str) -> CanaryArm | None:
    """Return the results on one group ("arm") of a model's canaries, such as "missed", the unprotected ones; None
    without canaries."""
    canaries = subject.extracted.canaries if subject and subject.extracted else None
    return canaries.arms.get(name) if canaries else None


def is_over(estimate: Estimate | None, null_value: float) -> bool | None:
    """Return whether the interval of an estimate lies above ``null_value``, its value for a model that leaks nothing;
    None without an interval."""
    if estimate is None or estimate.value is None or estimate.low is None:
        return None
    return estimate.low > null_value


def _no_numbers(_: GateConfig, __: Subject, ___: Subject | None) -> Iterator[Number]:
    """Yield nothing, since gates of this kind check the documents and not a model."""
    return iter(())


#: The gate that each job has: detectors know four languages, and their misses in others show in no number.
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
                numbers=_excess_gate,
                chosen_by="part",
            ),
            Gate(
                measure="membership_auc",
                title="membership AUC",
                numbers=_auc_gate,
                kinds=(LANGUAGE_MODEL, CLASSIFIER, TAGGER),
                chosen_by="attack",
            ),
            Gate(
                measure="membership_tpr",
                title="membership TPR at 1 % FPR",
                numbers=_tpr_gate,
                kinds=(LANGUAGE_MODEL, CLASSIFIER, TAGGER),
                chosen_by="attack",
            ),
            Gate(
                measure="attribute",
                title="attributes told by classifiers, members less held-out people",
                numbers=_attribute_gate,
                kinds=(CLASSIFIER,),
            ),
            Gate(
                measure="extraction",
                title="extraction rate",
                numbers=_extraction_gate,
                needs=_EXTRACTION,
            ),
            Gate(
                measure="np_extraction",
                title="(n, p)-extraction rate",
                numbers=_extraction_gate,
                needs=_EXTRACTION,
            ),
            Gate(
                measure="exposure",
                title="canary exposure in bits",
                numbers=_exposure_gate,
                needs=_CANARIES,
                chosen_by="arm",
            ),
            Gate(
                measure="epsilon",
                title="empirical epsilon of all that carries one canary",
                numbers=_epsilon_gate,
                needs=_CANARIES,
                from_below=True,
                chosen_by="arm",
            ),
            Gate(
                measure=OTHER_LANGUAGE,
                title="share of documents in a language that the rules do not know",
                numbers=_no_numbers,
                of_corpus=True,
            ),
        )
    }
)


def orient_auc(auc: Estimate, twin_auc: Estimate | None) -> Estimate:
    """Return an AUC oriented so that a higher one means a larger leak: replaced by 1 - AUC if members score lower in
    the unprotected twin (``twin_auc``) or, if the twin's AUC shows no direction, in this model.

    The twin's interval, if it excludes chance, gives the direction. Otherwise, or if members measurably lie on the
    other side of it, the direction is chosen from the data, and the interval is widened for two tests.
    """
    if auc.value is None or auc.low is None or auc.high is None:
        return auc
    sign, wide = _side_of_chance(twin_auc), _clipped(simultaneous(auc, 2))
    if sign and _side_of_chance(wide) != -sign:
        return auc if sign > 0 else _mirrored(auc)
    return wide if auc.value >= CHANCE else _mirrored(wide)


def _mirrored(auc: Estimate) -> Estimate:
    """Return 1 minus an AUC, with its interval: the AUC in the other direction."""
    assert auc.value is not None
    assert auc.low is not None
    assert auc.high is not None
    return replace(auc, value=1 - auc.value, low=1 - auc.high, high=1 - auc.low)


def _side_of_chance(auc: Estimate | None) -> int:
    """Return 1 if the interval of an AUC lies above chance, -1 if it lies below, 0 if it contains chance or is
    missing."""
    if auc is None or auc.low is None or auc.high is None:
        return 0
    return 1 if auc.low > CHANCE else -1 if auc.high < CHANCE else 0


class Beside(NamedTuple):
    """A number that is shown beside the verdict, together with that of the unprotected twin, and decides nothing."""

    title: str
    estimate: Callable[[NumbersBeside], Estimate | None]


#: Every number beside the verdict. A new one is a new row here, a field of `NumbersBeside` and a text of the report.
BESIDE: Final = (
    Beside(
        title="loss gap, held-out people less members, nats a token",
        estimate=lambda found: found.loss_gap.gap if found.loss_gap else None,
    ),
    Beside(
        title="identifiers that members and others use, predicted more than by the base model",
        estimate=lambda found: found.shared_over_base,
    ),
    Beside(
        title="counterfactual memorisation by shadow models, nats a token",
        estimate=lambda found: found.counterfactual,
    ),
    Beside(
        title="counterfactual memorisation by shadow models, nats a token, most exposed tenth",
        estimate=lambda found: found.counterfactual_exposed,
    ),
    Beside(
        title="members whose document is told from those of 15 others by its hidden states",
        estimate=lambda found: found.identity.members if found.identity else None,
    ),
    Beside(
        title="the same, members less held-out people",
        estimate=lambda found: found.identity.excess if found.identity else None,
    ),
)


def _check_measure(measure: str) -> str:
    """Return ``measure``, the name of the quantity that a gate limits, unchanged; raise `ValueError` for a name that is
    not in `GATES`."""
    if measure not in GATES:
        raise ValueError(f"expected one of {', '.join(GATES)}")
    return measure


class GateConfig(Section):
    """A threshold that the trained models must keep, fixed before the run: ``[[gate]]``, as many as wanted."""

    section: ClassVar[str] = "gate"

    measure: Annotated[str, AfterValidator(_check_measure), PUBLISHED] = Field(description=f"one of {', '.join(GATES)}")
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
    def _check_fields(self) -> Self:
        """Raise `ValueError` if the gate's limit is so high that every model would pass, or if a field is set that does
        not apply to the quantity it limits."""
        if self.measure not in ("exposure", "epsilon") and self.at_most > 1:
            raise ValueError(
                f"a {GATES[self.measure].title} is at most 1, so {self.at_most:g} would pass whatever leaks"
            )
        for name in ("attack", "arm", "part"):
            if name != GATES[self.measure].chosen_by and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"a gate of {self.measure} has no {name}")
        return self
