"""The verdict by risk in words of a dossier: the same outcomes as the report's, without the name of an attack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from reticent.audit.judgement.rows import BEYOND, NOT_SHOWN, RISKS, WITHIN
from reticent.audit.judgement.verdict import CANNOT, FEW, UNSURE, WIDE, WITHOUT_POWER, WITHOUT_TWIN

if TYPE_CHECKING:
    from reticent.audit.dossier.models import ShownModel
    from reticent.audit.evidence.risks import RiskResult
    from reticent.audit.language import Words

__all__ = ["OUTCOMES", "Cell", "cells_of", "change_of", "number_in_words", "reason_of"]

#: Outcome -> words; the sign says the same without colour.
OUTCOMES = {WITHIN: ("✓", "within the threshold"), BEYOND: ("✗", "beyond the threshold"), NOT_SHOWN: ("?", "not shown")}
#: The deciding number as the evidence names it; the name of the attack at its end is left out.
NUMBER = re.compile(r"(.*?)(?:, attack .*)?")
#: Reason of the report -> the reason in plain words; empty where the outcome says the same.
REASONS = {
    "beyond the threshold": "",
    FEW: "too few people to say",
    UNSURE: "the estimate is beyond the threshold, and its interval holds none at all",
    WIDE: "the interval is too wide: its upper end is beyond the threshold",
    WITHOUT_TWIN: "nothing proves that the test would have found anything: there is no model without protection to "
    "compare with",
    WITHOUT_POWER: "the test finds nothing in the model without protection either",
    "its upper end is within the threshold, and the attack succeeds on the twin": "the upper end is within the "
    "threshold, and the test succeeds on the model without protection",
    "a gate of the job failed": "a condition that was set before the tests was not kept",
    "a required gate of the job has no power": "a condition that had to be judged could not be",
    CANNOT: "a condition that had to be judged cannot be: a model that fills in masked words writes no text",
    "a masked model writes no text": "a model that fills in masked words writes no text",
}
PASSAGES = re.compile(r"passages that come back, given (\d+) tokens(?: and ([\d,]+) draws)?")


class Cell(NamedTuple):
    """One risk of one model, as it is printed."""

    title: str
    sign: str
    outcome: str
    relevant: bool
    #: The number that decides, its value and its interval; empty where none may leave.
    what: str
    value: str
    interval: str
    threshold: str
    reason: str


def cells_of(model: ShownModel, words: Words) -> Iterator[Cell]:
    """Yield the risks of a model in the order of the report."""
    for result in model.risks.results if model.risks else ():
        sign, outcome = OUTCOMES[result.outcome]
        area = result.risk in ("words", "individual")
        threshold = words.threshold(result.at_most, area=area)
        yield Cell(
            title=words(RISKS[result.risk].title),
            sign=sign,
            outcome=words(outcome),
            relevant=result.relevant,
            what=number_in_words(result.what, words) if result.what else "",
            value=words.value(result.estimate, area=area, threshold=result.at_most) if result.estimate else "",
            interval=words.interval(result.estimate, area=area, threshold=result.at_most),
            threshold=words("at most {value}", value=threshold),
            reason=_reason(result, words),
        )


def reason_of(model: ShownModel, words: Words) -> tuple[str, str]:
    """Return why the verdict on a model is as it is: the deciding risks, and the reasons where they are not shown."""
    row = model.risks
    if row is None:
        return "", ""
    if _broke_rule(model):
        return words("Training broke its own rule: protected words were among its targets."), ""
    deciding = _deciding(model)
    if not deciding and model.is_unprotected and row.outcome == NOT_SHOWN:
        return words("Not shown: nothing in its training protects anyone, whatever the tests found."), ""
    if not deciding:
        return words("No risk was declared relevant."), ""
    titles = words.listed([words(RISKS[result.risk].title) for result in deciding])
    if row.outcome == BEYOND:
        return words("Beyond the threshold: {risks}.", risks=titles), ""
    if row.outcome == WITHIN:
        others = [words(RISKS[r.risk].title) for r in row.results if not r.relevant and r.outcome == BEYOND]
        uncounted = words("Beyond the threshold, but not counted: {risks}.", risks=words.listed(others))
        return words("Within every threshold: {risks}.", risks=titles), uncounted if others else ""
    reasons = list(dict.fromkeys(_reason(result, words) for result in deciding))
    return words("Not shown: {risks}.", risks=titles), words("The reason: {reasons}.", reasons=words.apart(reasons))


def change_of(model: ShownModel, words: Words) -> str:
    """Return the changes that would alter the verdict on a model, or the time for which it holds."""
    row = model.risks
    if row is None:
        return ""
    if _broke_rule(model):
        return words("Report it, and train again.")
    deciding = _deciding(model)
    if row.outcome == WITHIN:
        return words("It holds until there is new data, a withdrawal, more training or a new attack.")
    if row.outcome == BEYOND:
        said = list(dict.fromkeys(words(RISKS[result.risk].advice(model.recipe)) for result in deciding))
        return words("What would change it: {changes}.", changes=words.apart(said))
    changes = (
        _changes(deciding, words) if deciding or not model.is_unprotected else [words(RISKS["emission"].lowered_by)]
    )
    return words("What would change it: {changes}.", changes=words.apart(changes))


def _changes(deciding: list[RiskResult], words: Words) -> list[str]:
    reasons = {result.reason for result in deciding}
    found = []
    if WITHOUT_TWIN in reasons:
        found.append(words("train the same model without protection beside it, which shows what the tests can find"))
    if WITHOUT_POWER in reasons:
        found.append(words("train the model without protection until a test finds something in it, or on more people"))
    if reasons & {WIDE, UNSURE, FEW}:
        found.append(words("ask about more people"))
    if CANNOT in reasons:
        found.append(words("set no condition on passages for a model that fills in masked words"))
    unmeasured = [words(RISKS[r.risk].title) for r in deciding if r.reason.startswith("not measured")]
    if unmeasured:
        found.append(words("measure: {risks}", risks=words.listed(unmeasured)))
    return found or [words("a valid comparison of the two sides")]


def _deciding(model: ShownModel) -> list[RiskResult]:
    row = model.risks
    return [r for r in row.results if r.relevant and r.outcome == row.outcome] if row else []


def _broke_rule(model: ShownModel) -> bool:
    return bool(model.evidence.ledger and model.evidence.ledger.violations)


def _reason(result: RiskResult, words: Words) -> str:
    """Return a reason of the report in the language, without the part behind a colon, which belongs to the method."""
    if result.reason.startswith("not measured"):
        return words("not measured")
    if result.reason.startswith("the attack is invalid"):
        return words("the test is not valid here: the two groups of people differ without the model")
    said = REASONS.get(result.reason, "see the report")  # an unknown reason of the report does not stop a run
    return words(said) if said else ""


def number_in_words(what: str, words: Words) -> str:
    """Return words for the number that decides, from its name in the evidence."""
    if found := PASSAGES.fullmatch(what):
        if found[2]:
            return words(
                "passages that come back within {draws} tries, given the {tokens} tokens before them",
                draws=words.count(int(found[2].replace(",", ""))), tokens=found[1],
            )  # fmt: skip
        return words("passages that come back word for word, given the {tokens} tokens before them", tokens=found[1])
    named = NUMBER.fullmatch(what)
    return words(named[1]) if named and words.knows(named[1]) else words("a number that the report explains")
