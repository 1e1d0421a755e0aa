"""Verdicts by risk: invented figures, and the verdict that a careful person would give of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fixtures.audits import estimate, evidence, filled, tiny_audit

from reticent.audit.config import VerdictConfig
from reticent.audit.evidence.audit import AuditEvidence, ModelEvidence, publish_audit
from reticent.audit.evidence.extraction import ExtractedModel, Extraction, PassageSettings, Verdict
from reticent.audit.evidence.json_form import from_json, to_json
from reticent.audit.evidence.leakage import Gap, NumbersBeside
from reticent.audit.evidence.risks import KeptOutcome, ModelRisks, RiskResult
from reticent.audit.evidence.rules import publish
from reticent.audit.judgement.rows import (
    BESIDE,
    BEYOND,
    LEFT,
    NO_BASE_PASSAGES,
    NOT_SHOWN,
    ONE_SIDE,
    RISKS,
    WITHIN,
    GateConfig,
    Subject,
    orient_auc,
)
from reticent.audit.judgement.verdict import (
    ARITHMETIC,
    BY_CHANCE,
    KNOWN_BASE,
    STANDS,
    SUPERSEDED,
    UNKNOWN_RECALL,
    judge_risks,
    numbers_beside,
    outcomes_of,
    verdict,
    with_published_numbers,
)
from reticent.audit.membership.validity import INVALID, WITHOUT_COPIES
from reticent.audit.report.risk_text import cells_of, change_of, shown_models
from reticent.audit.stats.estimate import Estimate
from reticent.audit.stats.intervals import excess_of
from reticent.audit.stats.seeds import last_checkpoints
from reticent.audit.texts import Texts

WHOLE = evidence(tiny_audit())
#: (value, half the width of the interval, n)
Figure = tuple[float, float, int]
W, B, N = WITHIN, BEYOND, NOT_SHOWN


def around(value: float, half: float, n: int = 300) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "n": n}


def entry(recipe: str, epoch: int = 8, **figures: Any) -> dict[str, Any]:
    """A model by its figures: emission, over_base, context, words, person, passages, each (value, half width[, n]); and
    how many shadow models attack it (0: none).
    """
    sides = {"members": around(0.1, 0.05), "heldout": around(0.1, 0.05)}
    found: dict[str, Any] = {"model": "m", "recipe": recipe, "objective": "clm", "epoch": epoch}
    for name, field in (("emission", "excess"), ("over_base", "over_base")):
        if name in figures:
            found[field] = {"both": {**sides, "excess": around(*figures[name])}}
    if "context" in figures:
        top1 = {**sides, "excess": around(*figures["context"])}
        kind = {"num_targets": {"members": 90, "heldout": 90}, "all": {"top1": top1}, "score": "difference"}
        if "alone" in figures:
            kind["own"] = {"top1": {**sides, "excess": around(*figures["alone"])}}
        if "in_place" in figures:
            excess = {**sides, "excess": around(*figures["in_place"])}
            drawn = {**sides, "excess": around(*figures.get("drawn", (0.0, 0.01)))}
            kind["in_place"] = {"ranked": {"top1": excess}, "extracted": {"1": drawn, "100": drawn}}
        found["inversion"] = {"direct": kind}
    counts, shadows = {"num_members": 150, "num_nonmembers": 150}, figures.get("shadows", 8)
    if "words" in figures:
        attack = {"auc": around(*figures["words"]), **counts}
        attacks = {"loss": attack} | ({"lira": {**attack}} if shadows else {})
        found["by_kind"] = {"rare": {"share": 0.1, "num_shadows": shadows, "attacks": attacks}}
    if "threshold" in figures:
        at = {"auc": around(*figures["threshold"]), **counts}
        found["threshold"] = {"k": 2, "num_words": 90, "at_threshold": at, "above": at}
        if "likelihood" in figures:
            found["threshold"]["by_likelihood"] = {"auc": around(*figures["likelihood"]), **counts}
    if "person" in figures:
        attack = {"auc": around(*figures["person"]), **counts, **figures.get("attack", {})}
        name = figures.get("name", "loss")
        found["membership"] = {name: attack} | ({"lira_online": attack | {"num_shadows": shadows}} if shadows else {})
    if "ledger" in figures:
        found["ledger"] = figures["ledger"]
    return found


def test_passages_that_nearly_come_back_are_passages() -> None:
    found = passages("ppclm", (0.0, 0.005))
    found["passages"]["rates"] += [
        {**passages("ppclm", (0.05, 0.02))["passages"]["rates"][0], "measure": "near_verbatim"}
    ]
    sides = {"num_passages": {"members": 9, "heldout": 9}, "num_short": {"members": 0, "heldout": 0}}
    found["passages"] |= {**sides, "exposed": None}
    model = from_json(ExtractedModel, found, "x")
    numbers = list(RISKS["passages"].numbers(Subject(None, model)))  # type: ignore[arg-type]
    assert [(n.what, n.estimate.value) for n in numbers if n.estimate] == [
        ("passages that come back, given 50 tokens", 0.0), ("passages that nearly come back, given 50 tokens", 0.05),
    ]  # fmt: skip


def passages(recipe: str, figure: Any) -> dict[str, Any]:
    sides = {"members": around(0.01, 0.005), "heldout": around(0.0, 0.005)}
    rate = {**sides, "excess": around(*figure), "measure": "discoverable", "prefix_tokens": 50, "asked": "all"}
    exposed = sided(figure[0] if figure[0] > 0.01 else 0.0, 0.003, 1200)
    return {"model": "m", "recipe": recipe, "epoch": 8, "passages": {"rates": [rate], "exposed": exposed}}


def on_kinds(model: dict[str, Any], **areas: tuple[float, float]) -> dict[str, Any]:
    """The model with the area of an attack by each of these kinds of words, and over its control by KIND_over_base."""
    kinds: dict[str, Any] = dict(model.get("by_kind", {}))
    for name, figure in areas.items():
        kind = name.removesuffix("_over_base")
        kinds.setdefault(kind, {"share": 0.5, "attacks": {"loss": {"num_members": 150, "num_nonmembers": 150}}})
        kinds[kind]["attacks"]["loss"]["over_base" if name != kind else "auc"] = around(*figure)
    return {**model, "by_kind": kinds}


#: Areas by kind of word of a protected model and of its twin, both quiet or loud else, and the risks of the person.
ON_KINDS: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("ordinary words tell", {"ordinary": (0.82, 0.04)}, {"ordinary": (0.9, 0.05)}, B),
    ("what it was taught tells", {"ordinary": (0.5, 0.04), "targets": (0.82, 0.04)}, {"ordinary": (0.9, 0.05)}, B),
    ("ordinary words tell nothing, and would", {"ordinary": (0.5, 0.04)}, {"ordinary": (0.9, 0.05)}, W),
    ("what it was taught has the power of the whole text of the twin", {"targets": (0.5, 0.04)},
     {"ordinary": (0.5, 0.04)}, W),
    ("ordinary words, too wide", {"ordinary": (0.55, 0.08)}, {"ordinary": (0.9, 0.05)}, N),
    ("a gain that the split hides", {"ordinary": (0.5, 0.04), "ordinary_over_base": (0.67, 0.05)},
     {"ordinary": (0.9, 0.05), "ordinary_over_base": (0.9, 0.05)}, B),
    ("a gain that is as small as the area", {"ordinary": (0.52, 0.04), "ordinary_over_base": (0.51, 0.04)},
     {"ordinary": (0.9, 0.05), "ordinary_over_base": (0.9, 0.05)}, W),
]  # fmt: skip


@pytest.mark.parametrize(("own", "twin", "outcome"), [row[1:] for row in ON_KINDS], ids=[row[0] for row in ON_KINDS])
def test_what_a_model_was_taught_counts_for_the_person(own: dict[str, Any], twin: dict[str, Any], outcome: str) -> None:
    row = judged(on_kinds(entry("ppclm", **QUIET), **own), on_kinds(entry("clm", **LOUD), **twin))[0]
    assert {result.risk: result.outcome for result in row.results}["individual"] == outcome


@pytest.mark.parametrize("kind", ["membership", "rare", "ordinary"])
@pytest.mark.parametrize(("area", "why"), [(0.99, "invalid"), (0.5, "invalid"), (0.5, "fault"), (0.99, "fault")])
def test_sides_that_differ_show_nothing_and_a_fault_of_the_run_hides_no_leak(kind: str, area: float, why: str) -> None:
    """Beside an attack that is within."""
    own = entry("ppclm", **QUIET)
    own["membership"]["ngram_coverage"] = own["membership"]["loss"]
    if kind == "membership":
        own["membership"]["loss"] = {**own["membership"]["loss"], "auc": around(area, 0.005)}
    else:
        own = on_kinds(own, **{kind: (area, 0.005)})
    if why == "fault":
        own["fault"] = "words alone tell the two sides, which one run in a thousand does by chance"
    elif kind == "membership":
        own["membership"]["loss"] |= {"verdict": INVALID, "why": "x"}
    else:
        own["by_kind"][kind]["why"] = "x"
    twin = on_kinds(entry("clm", **LOUD), ordinary=(0.9, 0.05))
    twin["membership"]["ngram_coverage"] = twin["membership"]["loss"]
    risk = "words" if kind == "rare" else "individual"
    (result,) = (r for r in judged(own, twin)[0].results if r.risk == risk)
    assert result.outcome == (BEYOND if (area, why) == (0.99, "fault") else NOT_SHOWN)
    if result.outcome == NOT_SHOWN:
        assert result.reason.startswith("a fault of the run" if why == "fault" else "the two sides differ")


def test_nothing_is_within_while_a_fault_of_the_run_stands() -> None:
    rates = {"ppclm": (0.0, 0.005), "clm": (0.3, 0.05)}
    for fault, outcomes in ((None, {W}), ("words alone tell the two sides", {N})):
        (own, _) = judged(entry("ppclm", **QUIET) | {"fault": fault}, entry("clm", **LOUD), passages=rates)
        assert {result.outcome for result in own.results} == outcomes


def test_the_highest_score_of_few_is_no_finding_where_chance_gives_one() -> None:
    for p_value, found in ((0.5, None), (1e-6, "membership by the whole text, members above every other person")):
        told = {"rate": around(0.02, 0.01), "num_above": 3, "p_value": p_value}
        (own, _) = judged(entry("ppclm", **QUIET, attack={"told": told}), entry("clm", **LOUD))
        (result,) = (result for result in own.results if result.risk == "individual")
        assert (result.found and result.found.split(", attack")[0]) == found


def test_a_tagger_is_within_by_the_attack_on_names_which_has_no_shadow_models() -> None:
    def tagger(protects: bool, told: Figure, person: Figure) -> dict[str, Any]:
        own = entry("tag/base", person=person, name="label_loss") | {"objective": "tagger", "start": "base"}
        names = {"told": around(*told), "blind": around(0.5, 0.03), "over_blind": around(*told)}
        return own | {"recipe": "tag/base" if protects else "tag/unprotected", "protects": protects, "names": names}

    quiet, loud = (0.5, 0.03, 300), (0.9, 0.05, 300)
    (own, _) = judged(tagger(True, quiet, quiet), tagger(False, loud, loud))
    assert {result.risk: result.outcome for result in own.results if result.relevant} == {"words": W, "individual": W}
    (own, _) = judged(tagger(True, loud, quiet), tagger(False, loud, loud))
    assert {result.risk: result.outcome for result in own.results}["words"] == B


def test_shadow_models_on_what_a_model_was_taught_have_those_on_all_words_of_the_twin_as_control() -> None:
    models = [entry(recipe, **(figures | {"shadows": 0})) for recipe, figures in (("ppclm", QUIET), ("clm", LOUD))]
    for one, kind, area in zip(models, ("targets", "all"), ((0.5, 0.05), (0.9, 0.05)), strict=True):
        lira = {"auc": around(*area), "num_members": 150, "num_nonmembers": 150}
        one["by_kind"][kind] = {"share": 0.5, "num_shadows": 8, "attacks": {"lira": lira}}
    assert {r.risk: r.outcome for r in judged(*models)[0].results}["individual"] == WITHIN


def judged(*models: dict[str, Any], **figures: Any) -> list[ModelRisks]:
    """The rows of the table for models."""
    return judge_risks(audit_of(*models, **figures), figures.get("config")).rows


def audit_of(*models: dict[str, Any], gates: list[dict[str, Any]] | None = None, **figures: Any) -> AuditEvidence:
    """An audit of models; ``passages`` of each is given by recipe."""
    rows = [passages(recipe, figure) for recipe, figure in figures.get("passages", {}).items()]
    return replace(
        WHOLE,
        settings=figures.get("settings", {}),
        earlier=figures.get("earlier"),
        models=[filled(ModelEvidence, one) for one in models],
        verdict=None if gates is None else filled(Verdict, {"results": gates, "outcome": None}),
        extraction=filled(Extraction, {"models": rows}) if rows else None,
    )


#: A twin in which every attack finds something, and a protected model in which none does.
LOUD = {"emission": (0.3, 0.05), "context": (0.3, 0.05), "words": (0.9, 0.05), "person": (0.9, 0.05)}
QUIET = {"emission": (0.0, 0.03), "context": (0.0, 0.03), "words": (0.5, 0.05), "person": (0.5, 0.05)}
CAUGHT, FREE = (0.2, 0.05), (0.0, 0.005)

#: Name, figures of the protected model over QUIET (None: not measured), of the twin over LOUD (None: no twin), passages
#: of both, and the verdict: of each risk (emission, context, words, person, passages), and of the model.
CASES: list[tuple[str, dict[str, Any], dict[str, Any] | None, Any, Any, tuple[str, str, str, str, str], str]] = [
    ("all quiet, the twin loud", {}, {}, FREE, CAUGHT, (W, W, W, W, W), W),
    ("no twin", {}, None, FREE, None, (N, N, N, N, N), N),
    ("a quiet twin", {}, QUIET, FREE, FREE, (N, N, N, N, N), N),
    ("identifiers learned", {"emission": (0.17, 0.05)}, {}, FREE, CAUGHT, (B, W, W, W, W), B),
    ("identifiers learned, no twin", {"emission": (0.17, 0.05)}, None, FREE, None, (B, N, N, N, N), B),
    ("the issue's: 139 of 816 and an area of .997", {"emission": (0.17, 0.03), "person": (0.997, 0.002)}, {}, FREE,
     CAUGHT, (B, W, W, B, W), B),
    ("measurably learned, within the threshold", {"over_base": (0.024, 0.021)}, {"over_base": (0.3, 0.05)}, FREE,
     CAUGHT, (W, W, W, W, W), W),
    ("more than the base beyond, less than others within", {"over_base": (0.09, 0.03)}, {"over_base": (0.3, 0.05)},
     FREE, CAUGHT, (B, W, W, W, W), B),
    ("a wide interval", {"emission": (0.0, 0.09)}, {}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("over the threshold by chance", {"emission": (0.07, 0.1)}, {}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("on the threshold", {"emission": (0.03, 0.02)}, {}, FREE, CAUGHT, (W, W, W, W, W), W),
    ("few people", {"emission": (0.0, 0.01, 6)}, {}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("few people, and a lot leaked", {"emission": (0.8, 0.1, 6)}, {}, FREE, CAUGHT, (B, W, W, W, W), B),
    ("few people, who may leak", {"emission": (0.3, 0.28, 6)}, {}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("four people, of whom as much leaked", {"emission": (0.8, 0.1, 4)}, {}, FREE, CAUGHT, (B, W, W, W, W), B),
    ("four people, too few for any other verdict", {"emission": (0.0, 0.04, 4)}, {}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("read back from context", {"context": (0.2, 0.05)}, {}, FREE, CAUGHT, (W, B, W, W, W), B),
    ("identifiers likelier than decoys", {"in_place": (0.2, 0.05)}, {"in_place": (0.4, 0.05)}, FREE, CAUGHT,
     (B, W, W, W, W), B),
    ("identifiers likelier than decoys, perhaps", {"in_place": (0.03, 0.05)}, {"in_place": (0.4, 0.05)}, FREE, CAUGHT,
     (N, W, W, W, W), N),
    ("identifiers as likely as decoys", {"in_place": (0.0, 0.04)}, {"in_place": (0.4, 0.05)}, FREE, CAUGHT,
     (W, W, W, W, W), W),
    ("identifiers that are drawn", {"in_place": (0.0, 0.04), "drawn": (0.1, 0.03)}, {"in_place": (0.4, 0.05)}, FREE,
     CAUGHT, (B, W, W, W, W), B),
    ("context not measured", {"context": None}, {}, FREE, CAUGHT, (W, N, W, W, W), N),
    ("context quiet, and in the twin too", {}, {"context": (0.0, 0.05)}, FREE, CAUGHT, (W, N, W, W, W), N),
    ("context loud without a twin that is", {"context": (0.2, 0.05)}, {"context": (0.0, 0.05)}, FREE, CAUGHT,
     (W, B, W, W, W), B),
    ("rare words tell", {"words": (0.8, 0.05)}, {}, FREE, CAUGHT, (W, W, B, W, W), B),
    ("rare words tell the other way round", {"words": (0.2, 0.05)}, {"words": (0.1, 0.05)}, FREE, CAUGHT,
     (W, W, B, W, W), B),
    ("rare words tell nothing, the twin's the other way", {}, {"words": (0.1, 0.05)}, FREE, CAUGHT,
     (W, W, W, W, W), W),
    ("opposite to the twin, and not measurably", {"words": (0.45, 0.08)}, {}, FREE, CAUGHT, (W, W, W, W, W), W),
    ("measurably opposite to the twin", {"words": (0.35, 0.08)}, {}, FREE, CAUGHT, (W, W, B, W, W), B),
    ("words not measured", {"words": None}, {}, FREE, CAUGHT, (W, W, N, W, W), N),
    ("a wide area", {"words": (0.55, 0.12)}, {}, FREE, CAUGHT, (W, W, N, W, W), N),
    ("words at the threshold may tell, where the plain twin has no such channel", {"threshold": (0.58, 0.08)},
     {"threshold": (0.52, 0.07)}, FREE, CAUGHT, (W, W, N, W, W), N),
    ("words at the threshold tell little, and nothing in the twin", {"threshold": (0.53, 0.045)},
     {"threshold": (0.52, 0.07)}, FREE, CAUGHT, (W, W, W, W, W), W),
    ("the person is told, and that is not closed by masking", {"person": (0.97, 0.02)}, {}, FREE, CAUGHT,
     (W, W, W, B, W), B),
    ("the person, the other way, without a twin", {"person": (0.25, 0.05)}, None, FREE, None, (N, N, N, B, N), B),
    ("the person, just over, without a twin", {"person": (0.62, 0.115)}, None, FREE, None, (N, N, N, N, N), N),
    ("the person, not measured", {"person": None}, {}, FREE, CAUGHT, (W, W, W, N, W), N),
    ("an attack on sides that differ says nothing",
     {"person": (0.99, 0.005), "attack": {"verdict": INVALID, "why": "x"}}, {}, FREE, CAUGHT, (W, W, W, N, W), N),
    ("no attack with shadow models", {"shadows": 0}, {}, FREE, CAUGHT, (W, W, N, N, W), N),
    ("too few shadow models", {"shadows": 6}, {}, FREE, CAUGHT, (W, W, N, N, W), N),
    ("few shadow models find something", {"shadows": 4, "person": (0.7, 0.05)}, {}, FREE, CAUGHT, (W, W, N, B, W), B),
    ("shadow models on the model alone", {}, {"shadows": 0}, FREE, CAUGHT, (W, W, N, N, W), N),
    ("too few shadow models on the twin", {}, {"shadows": 4}, FREE, CAUGHT, (W, W, N, N, W), N),
    ("shadow models that find little in the twin", {}, {"person": (0.56, 0.03), "words": (0.58, 0.04)}, FREE, CAUGHT,
     (W, W, N, N, W), N),
    ("a twin that emits little", {}, {"emission": (0.03, 0.029)}, FREE, CAUGHT, (N, W, W, W, W), N),
    ("passages come back", {}, {}, (0.05, 0.02), CAUGHT, (W, W, W, W, B), B),
    ("passages come back, no twin", {}, None, (0.05, 0.02), None, (N, N, N, N, B), B),
    ("passages not asked for", {}, {}, None, None, (W, W, W, W, N), N),
    ("passages: the twin gives none either", {}, {}, FREE, (0.0, 0.005), (W, W, W, W, N), N),
    ("passages: too few to say", {}, {}, (0.0, 0.02), CAUGHT, (W, W, W, W, N), N),
    ("a broken rule", {"ledger": {"eligible": 9, "protected": 3, "targets": 9, "violations": 1}}, {}, FREE, CAUGHT,
     (W, W, W, W, W), B),
    ("beyond and not shown: the worse", {"emission": (0.2, 0.05), "context": None}, {}, FREE, CAUGHT,
     (B, N, W, W, W), B),
]  # fmt: skip


@pytest.mark.parametrize(("protected", "twin", "own", "others", "risks", "outcome"), [row[1:] for row in CASES],
                         ids=[row[0] for row in CASES])  # fmt: skip
def test_the_verdict_is_that_of_a_careful_person(
    protected: dict[str, Any],
    twin: dict[str, Any] | None,
    own: Any,
    others: Any,
    risks: tuple[str, ...],
    outcome: str,
) -> None:
    figures = {name: value for name, value in (QUIET | protected).items() if value is not None}
    models = [entry("ppclm", **figures)]
    if twin is not None:
        models.append(entry("clm", **(LOUD | twin)))
    known = {name: figure for name, figure in (("ppclm", own), ("clm", others)) if figure is not None}
    row = judged(*models, passages=known)[0]
    assert tuple(result.outcome for result in row.results) == risks
    assert row.outcome == outcome
    assert row.reason
    assert row.change


#: Name, models, other arguments, and the verdicts of the models.
MORE: list[tuple[str, list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ("an unprotected model that leaks", [entry("clm", **LOUD)], {}, [B]),
    ("an unprotected model that is quiet proves nothing", [entry("clm", **QUIET)], {}, [N]),
    ("an earlier checkpoint does not count", [entry("ppclm", 4, **LOUD), entry("ppclm", **QUIET), entry("clm", **LOUD)],
     {}, [N, B]),
    ("a failed gate reaches the verdict", [entry("ppclm", **QUIET), entry("clm", **LOUD)],
     {"gates": [{"measure": "membership_auc", "recipe": "ppclm", "model": "m", "outcome": "fail"}],
      "passages": {"ppclm": FREE, "clm": CAUGHT}}, [B, B]),
    ("a required gate without power reaches it too", [entry("ppclm", **QUIET), entry("clm", **LOUD)],
     {"gates": [{"measure": "excess_leakage", "recipe": "ppclm", "model": "m", "outcome": "no power",
                 "required": True}], "passages": {"ppclm": FREE, "clm": CAUGHT}}, [N, B]),
    ("a required gate that no model could be judged by reaches all", [entry("ppclm", **QUIET), entry("clm", **LOUD)],
     {"gates": [{"measure": "membership_tpr", "recipe": None, "outcome": "no power", "required": True}],
      "passages": {"ppclm": FREE, "clm": CAUGHT}, "settings": {"verdict": {"risks": ["individual"]}}}, [N, B]),
    ("a required gate without power reaches it where its risk does not count, and is not shown either",
     [entry("ppclm", **(QUIET | {"person": (0.55, 0.12)})), entry("clm", **LOUD)],
     {"gates": [{"measure": "membership_auc", "recipe": "ppclm", "model": "m", "outcome": "no power",
                 "required": True}], "passages": {"ppclm": FREE, "clm": CAUGHT}}, [N, B]),
    ("an unprotected model that leaks measurably, and less than every threshold",
     [entry("clm", emission=(0.02, 0.01), context=(0.02, 0.01), words=(0.55, 0.03), person=(0.55, 0.03))],
     {"passages": {"clm": (0.005, 0.002)}}, [N]),
    ("a gate of another recipe does not", [entry("ppclm", **QUIET), entry("clm", **LOUD)],
     {"gates": [{"measure": "membership_auc", "recipe": "clma", "model": "m", "outcome": "fail"}],
      "passages": {"ppclm": FREE, "clm": CAUGHT}}, [W, B]),
    ("the person counts where it was declared", [entry("ppclm", **(QUIET | {"person": (0.97, 0.02)})),
                                                 entry("clm", **LOUD)],
     {"passages": {"ppclm": FREE, "clm": CAUGHT}, "settings": {"verdict": {"risks": ["emission", "individual"]}}},
     [B, B]),
    ("a threshold of the institution's own", [entry("ppclm", **(QUIET | {"emission": (0.17, 0.02)})),
                                              entry("clm", **LOUD)],
     {"settings": {"verdict": {"risks": ["emission"], "emission": 0.2}}}, [W, B]),
]  # fmt: skip


@pytest.mark.parametrize(("models", "more", "outcomes"), [row[1:] for row in MORE], ids=[row[0] for row in MORE])
def test_verdicts_of_several_models(models: list[dict[str, Any]], more: dict[str, Any], outcomes: list[str]) -> None:
    assert [row.outcome for row in judged(*models, **more)] == outcomes


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"recipe": "ppmlm", "model": "m", "required": True}, N),
        ({"recipe": None, "required": True}, N),
        ({"recipe": "ppmlm", "model": "m", "required": False}, W),
        ({"recipe": "ppclm", "model": "g", "required": True}, W),
    ],
)
def test_a_required_gate_on_passages_does_not_let_a_masked_model_pass_in_silence(
    row: dict[str, Any], outcome: str
) -> None:
    models = [entry("ppmlm", **QUIET), entry("mlm", **LOUD)]
    gates = [{"measure": "extraction", "outcome": "no power", **row}]
    own, _ = judged(*(one | {"objective": "mlm"} for one in models), gates=gates)
    assert own.outcome == outcome
    passages = own.results[-1]
    assert (passages.outcome, passages.relevant) == (N, outcome == N)
    if outcome == N:
        assert "cannot judge a masked model" in own.reason
        assert "masked models" in own.change
    else:
        assert passages.reason == "a masked model writes no text"


def test_a_sentence_says_why_and_what_would_change_it() -> None:
    (row,) = judged(entry("ppclm", **QUIET))
    assert "there is no unprotected twin" in row.reason
    assert "one more training and its scoring" in row.change
    row, _ = judged(entry("ppclm", **(QUIET | {"emission": (0.2, 0.05)})), entry("clm", **LOUD))
    assert row.reason == "beyond the threshold: identifiers emitted"
    assert "fewer epochs" in row.change


def test_within_every_threshold_is_not_said_without_the_risk_that_is_beyond_and_does_not_count() -> None:
    models = [entry("ppclm", **{**QUIET, "person": (0.97, 0.02)}), entry("clm", **LOUD)]
    known = {"passages": {"ppclm": FREE, "clm": CAUGHT}}
    config = VerdictConfig(risks=("emission", "context", "words", "passages"))
    row = judged(*models, **known, config=config)[0]
    assert row.outcome == WITHIN
    assert row.reason.endswith("; beyond the threshold, but not counted: membership of the person")
    assert row.notes == ["the job sets these risks not to count: membership of the person"]
    models[0] = entry("ppclm", **QUIET)
    row = judged(*models, **known)[0]
    assert (row.outcome, row.notes) == (WITHIN, None)
    assert "counted" not in row.reason


#: A base model by its figures, of the protected model and of the twin where they are not QUIET and LOUD, the outcomes
#: of emission, context and membership of the person, and whether the base is said to know the members.
KNOWN_BASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], tuple[str, str, str], bool]] = [
    ("a base that saw nobody", {"person": (0.52, 0.05)}, {}, {}, (W, W, W), False),
    ("one that is off by chance", {"person": (0.351, 0.08)}, {}, {}, (W, W, W), False),
    ("one that knows the members: context by a difference", {"person": (0.833, 0.05)}, {}, {}, (W, N, W), True),
    ("one that reads back names of members", {"context": (0.3, 0.05)}, {}, {}, (W, N, W), True),
    ("one that emits them", {"emission": (0.1, 0.03)}, {}, {}, (W, N, W), True),
    ("one that tells them by rare words", {"words": (0.9, 0.05)}, {}, {}, (W, N, W), True),
    ("the model itself reads them back", {"person": (0.833, 0.05)}, {"alone": (0.3, 0.05)}, {"alone": (0.4, 0.05)},
     (W, B, W), True),
    ("nor does the model itself", {"person": (0.833, 0.05)}, {"alone": (0.0, 0.03)}, {"alone": (0.4, 0.05)},
     (W, W, W), True),
    ("the model itself, which counts for no other base", {"person": (0.52, 0.05)}, {"alone": (0.3, 0.05)},
     {"alone": (0.4, 0.05)}, (W, W, W), False),
    ("attacks beside it", {"person": (0.833, 0.05)}, {"name": "reference"}, {"name": "reference"}, (W, N, W), True),
    ("more than it emits, and perhaps too much", {"person": (0.833, 0.05)}, {"over_base": (0.04, 0.03)},
     {"over_base": (0.3, 0.05)}, (N, N, W), True),
    ("more than it emits, and too little", {"person": (0.833, 0.05)}, {"over_base": (0.01, 0.03)},
     {"over_base": (0.3, 0.05)}, (W, N, W), True),
    ("only attacks beside it", {"person": (0.833, 0.05)}, {"name": "reference", "shadows": 0}, {"name": "reference"},
     (W, N, N), True),
]  # fmt: skip


@pytest.mark.parametrize(("base", "own", "twin", "outcomes", "known"), [row[1:] for row in KNOWN_BASES],
                         ids=[row[0] for row in KNOWN_BASES])  # fmt: skip
def test_nothing_is_within_by_a_difference_to_a_base_that_may_know_the_members(
    base: dict[str, Any], own: dict[str, Any], twin: dict[str, Any], outcomes: tuple[str, str, str], known: bool
) -> None:
    models = [entry("base", 0, **base), entry("ppclm", **(QUIET | own)), entry("clm", **(LOUD | twin))]
    row = judged(*models, passages={"ppclm": FREE, "clm": CAUGHT})[0]
    emission, context, _, individual, _ = (result.outcome for result in row.results)
    assert (emission, context, individual) == outcomes
    assert (KNOWN_BASE in (row.notes or [])) is known


#: Epochs of a plain model beside one of 8, its base, whose documents it repeats, and the outcome for the other.
LOUDER = [
    ("4x", 32, "one", None, W), ("less", 31, "one", None, N), ("other base", 32, "other", None, N),
    ("repeated", 8, "one", 100, W), ("repeated, less", 7, "one", 100, N), ("repeated, other base", 8, "other", 100, N),
]  # fmt: skip


@pytest.mark.parametrize(("epoch", "base", "repeated", "outcome"), [row[1:] for row in LOUDER],
                         ids=[row[0] for row in LOUDER])  # fmt: skip
def test_a_plain_model_that_saw_more_is_a_control_where_the_twin_shows_too_little(
    epoch: int, base: str, repeated: int | None, outcome: str
) -> None:
    weak, control = {"person": (0.56, 0.03)}, entry("clm", epoch, **LOUD) | {"model": "louder"}
    models = [entry("ppclm", **QUIET), entry("clm", **(LOUD | weak)), control]
    sections = [{"name": "m", "base": "one"}, {"name": "louder", "base": base, "repeated": repeated}]
    row = judged(*models, settings={"model": sections, "verdict": {"risks": ["individual"]}})[0]
    assert row.outcome == outcome


def earlier(outcome: str = B, **more: Any) -> KeptOutcome:
    """The membership of the person as an earlier audit of the protected model found it."""
    row = KeptOutcome(
        model="m", recipe="ppclm", epoch=8, digest="files", kin="kin", risk="individual", outcome=outcome, at_most=0.6,
        numbers=["loss"], created="2026-01-02T03:04:05+00:00", version="0.1.0", arithmetic=ARITHMETIC,
    )  # fmt: skip
    return replace(row, **more)


#: An outcome of an earlier audit, the outcome now of a model that is quiet, and the answer to the earlier one.
EARLIER_CASES: list[tuple[str, KeptOutcome, str, str | None]] = [
    ("found, and not explained", earlier(), N, STANDS),
    ("an attack was dropped", earlier(numbers=["loss", "rmia"]), N, STANDS),
    ("an attack was dropped, and it is explained", earlier(numbers=["loss", "rmia"], explained="false"), N, STANDS),
    ("shadow models were dropped", earlier(num_shadows=16, explained="false"), N, STANDS),
    ("another seed", earlier(seed=3, explained="false"), N, STANDS),
    ("explained by as many attacks", earlier(num_shadows=8, explained="a bug"), W, "explained: a bug"),
    ("by a version that was mended", earlier(arithmetic=ARITHMETIC - 1), W, SUPERSEDED),
    ("by one that was mended, with more attacks", earlier(arithmetic=1, numbers=["rmia"]), N, STANDS),
    ("of a training that is left out", earlier(digest="others"), N, STANDS),
    ("of one that is left out, explained", earlier(digest="others", explained="a bug"), W, "explained: a bug"),
    ("of one that is left out, by a version that was mended", earlier(digest="others", arithmetic=1), N, STANDS),
    (
        "of one that is left out, by that version, explained",
        earlier(digest="others", arithmetic=1, explained="a bug"),
        W,
        "explained: a bug",
    ),
    ("of another training", earlier(digest="others", kin="other"), W, None),
    (
        "a kind of words was dropped",
        earlier(numbers=["loss", "membership by ordinary words, attack loss"], explained="a bug"),
        N,
        STANDS,
    ),
    (
        "all kinds of words are there",
        earlier(numbers=["loss", "membership by the whole text, attack loss"], explained="a bug"),
        W,
        "explained: a bug",
    ),
    ("not shown, with fewer attacks", earlier(N, numbers=["loss"]), W, None),
    ("not shown, by an attack that was dropped", earlier(N, numbers=["rmia"]), N, STANDS),
    ("within", earlier(W, numbers=["rmia"]), W, None),
]


@pytest.mark.parametrize(("row", "outcome", "answer"), [row[1:] for row in EARLIER_CASES],
                         ids=[row[0] for row in EARLIER_CASES])  # fmt: skip
def test_what_an_earlier_audit_of_the_same_files_found_is_not_dropped(
    row: KeptOutcome, outcome: str, answer: str | None
) -> None:
    files = {"digest": "files", "kin": "kin"}
    models = [entry("ppclm", **QUIET) | files, entry("clm", **LOUD) | {"digest": "plain", "kin": "plain"}]
    known = {"ppclm": FREE, "clm": CAUGHT}
    found = judged(*models, passages=known, earlier=[row])[0]
    result = next(result for result in found.results if result.risk == "individual")
    assert (found.outcome, result.outcome) == (outcome, outcome)
    said = [note for note in found.notes or [] if "an earlier audit" in note]
    assert [note.partition("; ")[2] for note in said] == ([answer] if answer else [])
    for note in said:
        french = Texts("fr").evidence(note)
        assert french.startswith("un audit antérieur d")
        assert "membership" not in french


def test_the_outcomes_of_an_audit_are_kept_with_attacks_shadows_files_and_seed() -> None:
    models = [entry("ppclm", **QUIET) | {"digest": "files"}, entry("clm", **LOUD)]
    audit = audit_of(*models, settings={"seed": 3}, passages={"ppclm": FREE, "clm": CAUGHT})
    rows = {row.risk: row for row in outcomes_of(replace(audit, earlier=[earlier(seed=3)]))}
    assert {name: row.outcome for name, row in rows.items()} == dict.fromkeys(rows, W), "whatever was found before"
    row = rows["individual"]
    ways = ("membership by the whole text", "membership by the words that it may be taught")
    on_words = [f"{way}, attack {name}" for way in ways for name in ("lira_online", "loss")]
    assert (row.numbers, row.num_shadows) == (["lira_online", "loss", *on_words], 8)
    assert (row.digest, row.seed) == ("files", 3)
    assert publish(row, 5).seed is None


def test_recall_of_detectors_that_nobody_measured_is_said_with_the_risks_that_look_at_what_they_found() -> None:
    row = judged(entry("ppclm", **QUIET), entry("clm", **LOUD))[0]
    assert [result.risk for result in row.results if UNKNOWN_RECALL in (result.notes or [])] == ["emission", "words"]


def test_what_is_done_already_is_not_advised() -> None:
    leaky = QUIET | {"emission": (0.2, 0.05), "words": (0.9, 0.05), "context": (0.2, 0.05)}
    own = {"tight": {"base": "ppclm", "context": "tag", "context_indirect": "tag"}}
    rows = judged(
        *(entry(recipe, **leaky) for recipe in ("dppclm", "clma", "ppclm", "tight")), settings={"recipes": own}
    )
    for row, protects, replaces in zip(rows, (False, False, True, True), (False, False, False, True), strict=True):
        assert ("a recipe that protects" in row.change) is not protects
        assert ("[threshold] epsilon" in row.change) is protects
        assert ('context = "surrogate" or "tag"' in row.change) is not replaces
        assert "fewer epochs" in row.change


def test_an_area_is_read_the_way_that_the_twin_shows() -> None:
    def area(value: float, half: float) -> Estimate:
        return Estimate(value=value, low=value - half, high=value + half, n=300)

    assert orient_auc(area(0.4, 0.1), area(0.9, 0.05)) == area(0.4, 0.1)
    assert orient_auc(area(0.4, 0.1), area(0.1, 0.05)).value == pytest.approx(0.6)
    assert orient_auc(area(0.3, 0.1), area(0.9, 0.05)).value == pytest.approx(0.7)  # measurably on the other side
    alone = orient_auc(area(0.25, 0.1), None)
    assert (alone.value, alone.low, alone.high) == pytest.approx((0.75, 0.75 - 0.11436, 0.75 + 0.11436), abs=1e-4)
    assert orient_auc(area(0.25, 0.1), area(0.5, 0.1)) == alone  # a twin that says nothing is none


def test_the_worst_number_decides_also_where_members_score_lower() -> None:
    figures = QUIET | {"words": (0.05, 0.03), "threshold": (0.7, 0.05)}
    row, _ = judged(entry("ppclm", **figures), entry("clm", **(LOUD | {"words": (0.1, 0.05)})))
    (words,) = (result for result in row.results if result.risk == "words")
    assert (words.outcome, words.what) == (B, "membership by rare words alone, attack loss")


def test_of_several_trainings_the_worst_counts() -> None:
    audit = tiny_audit()
    audit["models"] = [{**m, "seed": seed} for m in audit["models"] for seed in (1, 2)]
    for one in audit["models"]:
        if one["recipe"] == "ppmlm" and one["seed"] == 2:
            one["excess"] = {"both": {**one["excess"]["both"], "excess": around(0.4, 0.05)}}
    rows = {(row.objective, row.recipe): row for row in judge_risks(evidence(audit)).rows}
    assert rows["mlm", "ppmlm"].outcome == BEYOND
    assert len(rows) == 4


def shown_of(recipe: str, risk: str, *trainings: dict[str, Any]) -> RiskResult:
    """The published result of a risk of several trainings of a protected model beside a loud twin."""
    seeds = {"ppclm": trainings, "clm": [LOUD] * len(trainings)}
    models = [
        {**entry(name, **figures), "seed": seed} for name, each in seeds.items() for seed, figures in enumerate(each)
    ]
    audit = replace(WHOLE, settings={}, models=[filled(ModelEvidence, one) for one in models])
    table = with_published_numbers(judge_risks(audit), audit, publish_audit(audit))
    row = next(row for row in table.rows if row.recipe == recipe)
    return next(result for result in row.results if result.risk == risk)


def test_the_number_that_is_shown_is_of_a_training_that_decided() -> None:
    quiet, wide = QUIET | {"emission": (0.03, 0.01)}, QUIET | {"emission": (0.0, 0.1)}
    found = shown_of("ppclm", "emission", wide, quiet)
    assert found.reason == "the interval is too wide: its upper end is beyond the threshold"
    assert found.estimate
    assert (found.estimate.value, found.estimate.high) == (0.0, 0.1)
    loud, louder = (QUIET | {"emission": (value, 0.05)} for value in (0.2, 0.4))
    found = shown_of("ppclm", "emission", loud, louder, quiet)
    assert found.estimate
    assert (found.outcome, found.estimate.value) == (B, 0.4)


def test_of_areas_that_are_beyond_the_one_farthest_from_chance_is_shown() -> None:
    below, above = (QUIET | {"words": (value, 0.02)} for value in (0.05, 0.7))
    for order in ((below, above), (above, below)):
        found = shown_of("ppclm", "words", *order)
        assert found.estimate
        assert (found.outcome, found.estimate.value) == (B, 0.05)


def person(over_all: Figure, without: Figure) -> dict[str, Any]:
    return {"person": over_all, "attack": {"auc_without_copies": around(*without)}}


@pytest.mark.parametrize(
    ("over_all", "without", "outcome", "follows"),
    [
        ((0.5, 0.03), (0.51, 0.03), W, True),  # the larger of two that are within
        ((0.5, 0.03), (0.8, 0.05), B, True),
        ((0.8, 0.05), (0.5, 0.03), B, False),
        ((0.5, 0.03), (0.55, 0.12), N, True),  # fewer people, and an interval that is too wide
    ],
)
def test_a_verdict_on_membership_follows_the_worse_of_the_areas_with_and_without_near_copies(
    over_all: Figure, without: Figure, outcome: str, follows: bool
) -> None:
    twin = entry("clm", **{**LOUD, **person((0.9, 0.05), (0.95, 0.03))})
    row = next(
        row for row in judged(entry("ppclm", **{**QUIET, **person(over_all, without)}), twin) if row.recipe == "ppclm"
    )
    (result,) = [result for result in row.results if result.risk == "individual"]
    assert result.outcome == outcome
    assert (WITHOUT_COPIES in (result.what or "")) == follows


def sided(value: float, half: float = 0.03, n: int = 300, **more: Any) -> dict[str, Any]:
    """A difference of rates, all of it found with the members."""
    return {"members": around(max(value, 0.0), half, n // 2), "heldout": around(0.0, half, n // 2),
            "excess": around(value, half, n), **more}  # fmt: skip


def alone(value: float, half: float = 0.03) -> dict[str, Any]:
    return {"unshared": {**sided(value, half), "num_shared": 9, "num_unmatched": 0}}


LEAKS = sided(0.3, **alone(0.3), without_copies=around(0.3, 0.03))


@pytest.mark.parametrize("way", ["excess", "over_base", "generated", "all_occurrences", "context", "passages"])
@pytest.mark.parametrize(
    ("over", "of_one_side", "outcome"),
    [(0.0, 0.0, W), (0.0, 0.2, B), (0.2, 0.0, B)],
)
def test_within_needs_the_rate_of_one_side_too_and_that_without_copies(
    way: str, over: float, of_one_side: float, outcome: str
) -> None:
    half = 0.004 if way == "passages" else 0.03
    for more in (alone(of_one_side, half), {"without_copies": around(of_one_side, half, 250)}):
        own, twin = sided(over, half, **more), LEAKS
        risk = {"context": "context", "passages": "passages"}.get(way, "emission")
        models, extraction = [], []
        for recipe, found in (("ppclm", own), ("clm", twin)):
            one = entry(recipe, **(LOUD if recipe == "clm" else QUIET))
            if way in ("excess", "over_base"):
                one[way] = {"both": found}
            elif way in ("generated", "all_occurrences"):
                one[way] = {"excess": {"both": found}}
            elif way == "context":
                one["inversion"]["direct"]["all"]["top1"] = found
            rate = {**found, "measure": "discoverable", "prefix_tokens": 50, "asked": "all"}
            people = {"exposed": sided(0.3 if recipe == "clm" else 0.0, 0.003, 1200)}
            extraction.append({"model": "m", "recipe": recipe, "epoch": 8, "passages": {"rates": [rate], **people}})
            models.append(filled(ModelEvidence, one))
        audit = replace(WHOLE, settings={}, models=models, extraction=filled(Extraction, {"models": extraction}))
        assert {r.risk: r.outcome for r in judge_risks(audit).rows[0].results}[risk] == outcome


@pytest.mark.parametrize(("left_out", "shown"), [(0, True), (3, False), (5, True)])
def test_a_gate_is_judged_by_what_one_side_alone_uses_and_counts_no_few(left_out: int, shown: bool) -> None:
    models = [entry("ppclm", **QUIET), entry("clm", **LOUD)]
    for one, of_one_side in zip(models, (0.2, 0.3), strict=True):
        one["excess"]["both"] |= {
            "unshared": {**sided(of_one_side, n=300 - left_out), "num_shared": 9, "num_unmatched": 0}
        }
    gate = GateConfig(measure="excess_leakage", at_most=0.1)
    over_all, alone = verdict([filled(ModelEvidence, one) for one in models], [gate]).results
    assert (over_all.outcome, alone.outcome) == ("pass", "fail")
    assert (alone.part, alone.n) == (f"both, {ONE_SIDE}", 300 if not shown else 300 - left_out)
    assert (alone.upper is not None) == shown


#: Rate of all passages and of those of one side alone, members less others, and the outcomes of a gate at 5 %.
GATED_PASSAGES = [((0.3, 0.3), ["fail", "fail"]), ((0.01, 0.2), ["pass", "fail"]), ((0.0, 0.0), ["pass", "pass"])]


@pytest.mark.parametrize("measure", ["extraction", "np_extraction"])
@pytest.mark.parametrize(("excess", "outcomes"), GATED_PASSAGES)
def test_a_gate_on_passages_judges_what_the_verdict_does(
    measure: str, excess: tuple[float, float], outcomes: list[str]
) -> None:
    """Members less others: of a text that both sides have, or that any model knows, a plain rate is high."""
    rates = {
        recipe: {**sided(over, 0.01), "members": around(0.4, 0.02), "heldout": around(0.4 - over, 0.02),
                 "unshared": {**sided(alone, 0.01), "num_shared": 9, "num_unmatched": 0}}
        for recipe, (over, alone) in (("ppclm", excess), ("clm", (0.4, 0.4)))
    }  # fmt: skip
    about = {"measure": "np_discoverable" if measure == "np_extraction" else "discoverable", "asked": "all"}
    rows = [
        {"model": "m", "recipe": recipe, "epoch": 8,
         "passages": {"rates": [{**found, **about, "prefix_tokens": 50, "num_queries": 100}]}}
        for recipe, found in rates.items()
    ]  # fmt: skip
    models = [filled(ModelEvidence, entry(recipe)) for recipe in rates]
    gates = [GateConfig(measure=measure, at_most=0.05)]
    found = verdict(models, gates, filled(Extraction, {"models": rows})).results
    assert [(row.part, row.outcome) for row in found] == list(zip([None, ONE_SIDE], outcomes, strict=True))
    assert {(row.prefix_tokens, row.num_queries) for row in found} == {(50, 100)}


@pytest.mark.parametrize("known", [False, True])
def test_the_most_exposed_beside_a_base_that_may_know_them_are_not_within(known: bool) -> None:
    """The base may emit them itself, and a mean over all hides them."""
    people = sided(0.0, 0.003)
    models = [entry("base", 0, person=(0.833 if known else 0.5, 0.05)), entry("ppclm", **QUIET), entry("clm", **LOUD)]
    models[1]["exposed"], models[2]["exposed"] = people, sided(0.3)
    rate = {**sided(0.0, 0.004), "measure": "discoverable", "prefix_tokens": 50, "asked": "all"}
    rows = [
        {"model": "m", "recipe": recipe, "epoch": 8, "passages": {"rates": [rate | own], "exposed": exposed}}
        for recipe, own, exposed in (("ppclm", {}, sided(0.0, 0.003, 1200)), ("clm", sided(0.3, 0.01), sided(0.3)))
    ]
    audit = replace(audit_of(*models), extraction=filled(Extraction, {"models": rows}))
    found = {result.risk: result.outcome for result in judge_risks(audit).rows[0].results}
    assert (found["emission"], found["passages"]) == ((N, N) if known else (W, W))
    if known:
        table = judge_risks(audit)
        shown = shown_models(replace(audit, risks=table), Texts("en"))[0]
        assert "did not see these people" in table.rows[0].change
        assert "did not see these people" in change_of(shown, Texts("en"))


def test_where_every_held_out_person_holds_near_copies_nothing_is_within() -> None:
    models = [entry("ppclm", **QUIET), entry("clm", **LOUD)]
    models[0]["excess"]["both"] |= {"without_copies": {"value": None, "n": 0, "method": "one side has no individual"}}
    emission = judged(*models)[0].results[0]
    assert (emission.outcome, emission.reason) == (N, "too few people to say")
    assert WITHOUT_COPIES in (emission.what or "")


def test_where_all_is_shared_nothing_is_within() -> None:
    none = {"value": None, "n": 0}
    shared = {
        "unshared": {**dict.fromkeys(("members", "heldout", "excess"), none), "num_shared": 9, "num_unmatched": 0}
    }
    models = [entry("ppclm", **QUIET), entry("clm", **LOUD)]
    models[0]["excess"]["both"] |= shared
    emission = judged(*models)[0].results[0]
    assert (emission.outcome, emission.reason) == (N, "too few people to say")
    assert ONE_SIDE in (emission.what or "")


@pytest.mark.parametrize(("figure", "outcome"), [(FREE, N), ((0.05, 0.02), B)])
def test_whole_passages_that_nobody_asked_for_are_named_and_nothing_is_within(
    figure: tuple[float, float], outcome: str
) -> None:
    audit = audit_of(entry("ppclm", **QUIET), entry("clm", **LOUD), passages={"ppclm": figure, "clm": CAUGHT})
    extracted = audit.extraction
    assert extracted is not None
    rows = [replace(row, passages=row.passages and replace(row.passages, exposed=None)) for row in extracted.models]
    audit = replace(audit, extraction=replace(extracted, models=rows))
    audit = replace(audit, risks=judge_risks(audit))
    assert audit.risks is not None
    result = audit.risks.rows[0].results[-1]
    assert (result.risk, result.outcome) == ("passages", outcome)
    for language, said in (("en", "of 50 tokens or more, were not asked for"), ("fr", "n’ont pas été demandés")):
        words = Texts(language)
        model = shown_models(audit, words)[0]
        assert said in list(cells_of(model, words))[-1].reason
        assert "50" in change_of(model, words) or outcome == B
    assert "50 tokens" in audit.risks.rows[0].change or outcome == B


#: Share of members, of held-out individuals, each of so many; whether all members were asked; and the outcome.
WITH_A_PASSAGE = [
    (0, 0, 368, False, W), (0, 0, 367, False, N), (0, 0, 60, True, W), (1, 0, 60, True, B), (1, 0, 9, False, B),
    (3, 3, 400, True, N), (40, 3, 400, True, B), (60, 10, 10_000, True, B),
]  # fmt: skip
#: The same where a list was given: by an exact test.
OF_A_LIST = [(0, 0, 60, True, W), (1, 0, 60, True, N), (15, 5, 300, True, N), (40, 3, 400, True, B)]


@pytest.mark.parametrize(
    ("members", "others", "n", "every", "outcome", "given"),
    [*((*case, None) for case in WITH_A_PASSAGE), *((*case, True) for case in OF_A_LIST)],
)
def test_one_person_of_whom_a_whole_passage_comes_back_is_beyond(
    members: int, others: int, n: int, every: bool, outcome: str, given: bool | None
) -> None:
    counts = [(np.arange(n) < count).astype(float) for count in (members, others)]
    exposed = excess_of(*((count, np.ones(n)) for count in counts), num_bootstrap=100, seed=0)
    people = {"own": to_json(exposed), "twin": sided(0.3)}
    rate = {**sided(0.0, 0.004), "measure": "discoverable", "prefix_tokens": 50, "asked": "all"}
    loud = {**rate, **sided(0.3, 0.01)}
    rows = [
        {"model": "m", "recipe": recipe, "epoch": 8,
         "passages": {"rates": [of_model], "exposed": people[name], "asks_every_member": every}}
        for recipe, name, of_model in (("ppclm", "own", rate), ("clm", "twin", loud))
    ]  # fmt: skip
    models = [filled(ModelEvidence, entry(recipe) | {"split_given": given}) for recipe in ("ppclm", "clm")]
    audit = replace(WHOLE, settings={}, models=models, extraction=filled(Extraction, {"models": rows}))
    result = judge_risks(audit).rows[0].results[-1]
    assert (result.risk, result.outcome) == ("passages", outcome)


#: Members whom the threshold attack tells: share, false positives (none: those above every other), and the outcome.
AT_THRESHOLD = [(0.2, 0.01, 1.0, B), (0.01, 0.01, 1.0, W), (0.035, 0.01, 1.0, N), (0.1, None, 0.001, B),
                (0.0, None, 1.0, N)]  # fmt: skip


@pytest.mark.parametrize(("share", "fpr", "p_value", "outcome"), AT_THRESHOLD)
def test_members_whom_the_threshold_tells_count_beside_its_area(
    share: float, fpr: float | None, p_value: float, outcome: str
) -> None:
    models = [entry("ppclm", threshold=(0.52, 0.02), **QUIET), entry("clm", threshold=(0.52, 0.02), **LOUD)]
    models[0]["threshold"]["at_threshold"] |= {
        "told": {"rate": around(share, 0.015), "fpr": fpr, "num_above": 9, "p_value": p_value}
    }
    (words,) = (result for result in judged(*models)[0].results if result.risk == "words")
    assert words.outcome == outcome


@pytest.mark.parametrize(("people", "n", "outcome"), [(0.2, 300, B), (0.0, 300, W), (0.04, 300, N), (0.0, 9, N)])
def test_few_people_of_whom_much_is_emitted_are_no_mean(people: float, n: int, outcome: str) -> None:
    models = [entry("ppclm", **QUIET), entry("clm", **LOUD)]
    models[0]["exposed"], models[1]["exposed"] = sided(people, 0.03, n), sided(0.3)
    emission = judged(*models)[0].results[0]
    assert emission.outcome == outcome
    if outcome == B:
        assert (emission.what, emission.number_at_most) == (
            "people of whom an identifier of their own is predicted",
            0.05,
        )


def test_numbers_beside_the_verdict_stand_beside_those_of_the_twin_and_change_no_outcome() -> None:
    audit = tiny_audit()
    before = judge_risks(evidence(audit))
    for number, one in enumerate(audit["models"]):
        side = estimate(0.1 * number)
        one["beside"] = {
            "loss_gap": {"members": side, "heldout": side, "gap": side},
            "shared_over_base": side,
            "counterfactual": side,
            "counterfactual_exposed": side,
            "identity": {"members": side, "heldout": side, "excess": side},
        }
    assert judge_risks(evidence(audit)) == before
    rows, found = numbers_beside(last_checkpoints(evidence(audit).models))
    assert len(rows) == len(BESIDE)
    shown = {(row.model.objective, row.model.recipe): row.numbers[0] for row in found}
    assert set(shown) == {("mlm", "mlm"), ("mlm", "ppmlm"), ("clm", "clm"), ("clm", "ppclm")}
    own, twin = shown["mlm", "ppmlm"]
    assert own != twin == shown["mlm", "mlm"][0]
    assert numbers_beside(evidence(tiny_audit()).models) == ([], [])


def test_the_gap_of_a_side_of_few_is_not_published() -> None:
    side, few = (from_json(Estimate, estimate(0.2, n=n)) for n in (30, 3))
    shown = publish(NumbersBeside(loss_gap=Gap(members=side, heldout=few, gap=side)), 5).loss_gap
    assert shown is not None
    assert (shown.members.value, shown.heldout.value, shown.gap.value) == (0.2, None, None)


@pytest.mark.parametrize(("repeated", "said"), [(None, False), (120, True)])
def test_a_control_is_told_from_a_model_that_is_made_to_leave(repeated: int | None, said: bool) -> None:
    sections = [{"name": "m", "base": "one", "repeated": repeated}]
    audit = audit_of(entry("clm", **LOUD), settings={"model": sections})
    for language, words in (("en", "documents of 120 people eight times"), ("fr", "huit fois les documents de 120")):
        (model,) = shown_models(replace(audit, risks=judge_risks(audit)), Texts(language))
        assert (words in model.about) == said


def test_a_model_trained_elsewhere_is_never_within_whatever_its_copies_are_called() -> None:
    models = entry("given", **QUIET), entry("clm", **LOUD)
    assert W in {result.outcome for result in judged(*models)[0].results}
    elsewhere = judged(*models, settings={"subject": {}})
    assert W not in {result.outcome for row in elsewhere for result in row.results}


@pytest.mark.parametrize(
    ("person", "en", "fr"),
    [
        (0.8, "Refuse it, or ask who trained it to train another: differential privacy, more people or fewer epochs",
         "Le refuser, ou demander à qui l’a entraîné d’en entraîner un autre : la confidentialité différentielle"),
        (0.5, "What would change it: ask who trained it to audit it beside a model without protection",
         "Ce qui le changerait : demander à qui l’a entraîné de l’auditer à côté d’un modèle sans protection"),
    ],
)  # fmt: skip
def test_who_cannot_train_the_model_is_told_to_refuse_it_or_to_ask_who_trained_it(
    person: float, en: str, fr: str
) -> None:
    model = entry("given", **QUIET | {"person": (person, 0.02)})
    for settings, wanted in (({"subject": {}}, True), ({}, False)):
        audit = audit_of(model, settings=settings)
        audit = replace(audit, risks=judge_risks(audit))
        for language, said in (("en", en), ("fr", fr)):
            (shown,) = shown_models(audit, Texts(language))
            assert change_of(shown, Texts(language)).replace("\xa0", " ").startswith(said) == wanted
        (row,) = audit.risks.rows if audit.risks else ()
        assert [said in row.change for said in ("ask who trained it", "refuse it")] == [wanted, wanted]


@pytest.mark.parametrize(
    ("given", "half", "p_value", "outcomes"),
    [(False, 0.08, 0.01, {B}), (True, 0.08, 0.01, {N}), (True, 0.03, 0.01, {B, N}), (True, 0.08, 1e-5, {N, B})],
)
def test_a_number_of_a_given_list_is_beyond_only_where_one_of_so_many_is_not_by_chance(
    given: bool, half: float, p_value: float, outcomes: set[str]
) -> None:
    told = {"rate": around(0.02, 0.01), "num_above": 3, "p_value": p_value}
    figures: dict[str, Any] = {**QUIET, "words": (0.62, half), "shadows": 0, "attack": {"told": told}}
    (row,) = judged(entry("given", **figures) | {"split_given": given or None}, settings={"subject": {}})
    found = {result.risk: result for result in row.results}
    assert {found["words"].outcome, found["individual"].outcome} == outcomes
    assert (found["words"].reason == BY_CHANCE) == (given and half == 0.08)


def test_members_told_by_two_releases_have_ends_that_hold_with_those_of_other_attacks() -> None:
    told = {"rate": around(0.04, 0.009, 600), "fpr": 0.01, "num_above": 3, "p_value": 1.0}
    own = {"auc": around(0.52, 0.02), "num_members": 300, "num_nonmembers": 1000, "told": told}
    model = filled(ModelEvidence, entry("ppclm", **QUIET) | {"withdrawn": own})
    numbers = RISKS["individual"].numbers(Subject(model, None))
    (found,) = (n.estimate for n in numbers if n.what.startswith(LEFT) and n.at_most is not None)
    assert found is not None
    assert (found.high or 0.0) > 0.05


def test_whole_passages_without_a_base_model_are_not_said_to_be_unasked() -> None:
    audit = audit_of(entry("given", **QUIET), passages={"given": FREE}, settings={"subject": {}})
    assert audit.extraction is not None
    (row,) = audit.extraction.models
    assert row.passages is not None
    asked = replace(row.passages, exposed=None, settings=filled(PassageSettings, {"suffix_tokens": 50}))
    audit = replace(audit, extraction=replace(audit.extraction, models=[replace(row, passages=asked)]))
    result = judge_risks(audit).rows[0].results[-1]
    assert (result.risk, result.outcome, result.reason) == ("passages", N, NO_BASE_PASSAGES)
    assert Texts("fr").evidence(NO_BASE_PASSAGES) != NO_BASE_PASSAGES
