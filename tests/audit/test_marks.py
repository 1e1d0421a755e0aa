"""Marks of sentences: whatever report, dossier, card and terminal say of a model carries (model, risk, number,
outcome), and all of them say one thing of each risk of each model.
"""

from __future__ import annotations

import copy
import random
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
from fixtures.audits import estimate, evidence, headed_audit, tiny_audit, two_berts
from fixtures.dossiers import dossier_evidence

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.judgement.rows import BEYOND, NOT_SHOWN, WITHIN
from reticent.audit.judgement.verdict import judge_risks, risk_lines
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.report.page import write_report
from reticent.audit.report.summary import guarantee_lines, ledger_line
from reticent.audit.texts import FOUND, LANGUAGES, NOT_FOUND, Mark, Texts, marks_of
from reticent.ext.dossier.card import build_card
from reticent.ext.dossier.page import render

pytestmark = pytest.mark.usefixtures("without_figures")
Page = ElementTree.Element
JUDGED = (WITHIN, BEYOND, NOT_SHOWN)
#: Elements that hold sentences; in tables they hold numbers, and those of the verdict are marked cell by cell.
SENTENCES = ("p", "li")


def sides(excess: float, low: float, high: float) -> dict[str, Any]:
    return {"members": estimate(0.3), "heldout": estimate(0.1), "excess": estimate(excess, low, high)}


def leaking(recipe: str, excess: tuple[float, float, float], auc: float = 0.6) -> dict[str, Any]:
    """A tiny audit in which one recipe leaks identifiers."""
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == recipe:
            entry["excess"] = dict.fromkeys(("both", "direct", "indirect"), sides(*excess))
            for attack in entry["membership"].values():
                attack["auc"] |= {"value": auc, "low": auc - 0.05, "high": min(auc + 0.05, 1.0)}
    return audit


def broken() -> dict[str, Any]:
    audit = tiny_audit()
    audit["models"][-1]["ledger"]["violations"] = 3
    return audit


def copied() -> dict[str, Any]:
    audit = tiny_audit()
    audit["corpus"]["near_copies"] = {"threshold": 0.8, "shingle_words": 5, "num_heldout": 30, "num_copied": 9}
    for one in audit["models"]:
        for name, attack in one["membership"].items():
            one["membership"][name] = {**attack, "auc_without_copies": {**estimate(0.92, 0.85, 0.97), "n": 61}}
    return audit


def told_by_words() -> dict[str, Any]:
    """Members are told by words at the threshold, and not by the whole text."""
    audit = tiny_audit()
    attack = {"auc": estimate(0.9, 0.85, 0.95, n=70), "num_members": 40, "num_nonmembers": 30}
    audit["models"][-1]["threshold"] = {"k": 2, "num_words": 40, "at_threshold": attack, "above": attack}
    return audit


def private() -> dict[str, Any]:
    audit = tiny_audit()
    audit["models"][-1]["guarantee"] = "epsilon 3.21 at delta 1e-05 per individual (at most 4 documents each)"
    return audit


def drawn(seed: int) -> dict[str, Any]:
    """An audit whose models leak anything from nothing to all, each by another test, told surely or hardly."""
    dice = random.Random(seed)
    audit = (tiny_audit, two_berts)[seed % 2]()
    leaks: tuple[float, ...] = ()
    widths = 4

    def number(nothing: float) -> dict[str, Any]:
        value = nothing + dice.choice(leaks) * (1 if leaks == (0.3,) else dice.choice((1, 1, -0.3)))
        half = dice.choice((0.002, 0.01, 0.03, 0.2)[:widths])
        return estimate(value, value - half, min(value + half, 1.0), n=dice.choice((12, 40, 70)))

    def parts() -> dict[str, Any]:
        return {part: {**sides(0, 0, 0), "excess": number(0.0)} for part in ("both", "direct", "indirect")}

    def area() -> dict[str, Any]:
        return {"auc": number(0.5), "num_members": 40, "num_nonmembers": 30}

    for entry in audit["models"]:
        plain = entry["recipe"] == entry["objective"] and dice.random() < 0.6  # a control that finds much
        leaks = (0.3,) if plain else dice.choice(((0.0, 0.004), (0.004, 0.02), (0.0, 0.004, 0.02, 0.04, 0.12, 0.3)))
        widths = dice.choice((1, 2, 4))
        entry["excess"] = parts()
        for name in entry["membership"]:
            verdict = dice.choice((None, None, "invalid", "no power"))
            copies = {"auc_without_copies": number(0.5)} if dice.random() < 0.3 else {}
            entry["membership"][name] |= {"auc": number(0.5), "verdict": verdict, **copies}
        if entry["recipe"] != "base":
            kinds = {
                kind: {"share": 0.3, "attacks": {"loss": area()}} for kind in ("all", "ordinary", "rare", "direct")
            }
            told = {"k": 2, "num_words": 40, "at_threshold": area(), "above": area()}
            top = {"top1": {**sides(0, 0, 0), "excess": number(0.0)}, "bits": sides(0, 0, 0)}
            place = {"ranked": top, "extracted": {"1": top["top1"], "100": top["top1"]}}
            read = {"all": top, "ordinary": top, "in_place": place, "num_targets": {"members": 40}}
            more = {"over_base": parts(), "by_kind": kinds, "threshold": told, "inversion": {"direct": read}}
            entry |= {name: value for name, value in more.items() if dice.random() < 0.6}
            entry["ledger"]["violations"] = dice.choice((0, 0, 0, 0, 7))
        if dice.random() < 0.3:
            entry["utility"]["heldout"] = {name: estimate(0.04) for name in entry["utility"]["heldout"]}
    relevant = dice.sample(("emission", "context", "words", "individual", "passages"), 3)
    audit["settings"]["verdict"] = {"risks": relevant, "emission": dice.choice((0.01, 0.05, 0.1))}
    return audit


#: Evidence by name. A run of each kind of sentence is among them.
AUDITS = {
    "tiny": tiny_audit,
    "two sections": two_berts,
    "broken rule": broken,
    "classifiers": headed_audit,
    "near-copies": copied,
    "private": private,
    "told by words": told_by_words,
    "protected leaks much": lambda: leaking("ppclm", (0.2, 0.15, 0.25)),
    "protected leaks some": lambda: leaking("ppclm", (0.03, 0.01, 0.045)),
    "members are told": lambda: leaking("ppclm", (0.0, -0.01, 0.01), auc=0.9),
    "leaks in a wide interval": lambda: leaking("ppclm", (0.04, 0.01, 0.2)),
    **{f"drawn {seed}": partial(drawn, seed) for seed in range(12)},
}


@dataclass(frozen=True)
class Said:
    """A sentence with its place and marks."""

    where: str
    text: str
    marks: tuple[Mark, ...]


def text_of(element: Page) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def marks_in(element: Page) -> tuple[Mark, ...]:
    """The marks of an element and of all in it."""
    found = []
    for part in element.iter():
        if part.get("data-model"):
            fields = [(part.get(f"data-{name}") or "").split("|") for name in Mark._fields]
            found += [Mark(*row) for row in zip(*fields, strict=True)]
    return tuple(found)


def said_on(page: str, where: str) -> Iterator[Said]:
    """Sentences of a page, and the cells of its verdict."""
    tree = ElementTree.fromstring(page.removeprefix("<!doctype html>"))
    for element in tree.iter():
        if element.tag in SENTENCES or (element.tag == "td" and element.get("data-model")) or element.tag == "h3":
            yield Said(where, text_of(element), marks_in(element))


@cache
def everything_said(name: str) -> list[Said]:
    """All that is said of an audit: report and dossier in both languages, cards, and lines of the terminal."""
    with tempfile.TemporaryDirectory() as folder:
        return list(_everything(AUDITS[name](), folder))


def _everything(audit: dict[str, Any], folder: str) -> Iterator[Said]:
    for language in LANGUAGES:
        path = write_report(folder, evidence(copy.deepcopy(audit)), language=language)
        yield from said_on(path.read_text(encoding="utf-8"), f"report {language}")
        told = dossier_evidence(copy.deepcopy(audit))
        yield from said_on(render(told, language, (language,)), f"dossier {language}")
    for tested in told.models:
        card = build_card(told, tested, "0" * 64, None)
        yield Said("card", card.text, marks_of(card.text))
    shown: AuditEvidence = told.audit
    lines = [ledger_line(shown.models) or "", *guarantee_lines(shown.models), *near_copies_lines(shown, Texts("en"))]
    lines += risk_lines(judge_risks(evidence(copy.deepcopy(audit))))
    yield from (Said("terminal", line, marks_of(line)) for line in lines)


def entries_of(audit: dict[str, Any]) -> list[dict[str, Any]]:
    """Its models, and what was trained on top of them."""
    return [*audit["models"], *audit.get("heads", ())]


def named_in(text: str, audit: dict[str, Any]) -> bool:
    """Whether a text names a trained model of the audit: its recipe, or its letter in a dossier."""
    recipes = {entry["recipe"] for entry in entries_of(audit)} - {"base"}
    return bool(re.search(rf"\b(?:{'|'.join(map(re.escape, recipes))}|Mod(?:el|èle) [A-Z])\b", text))


#: Sentences that name an objective or a setting, and no model.
OF_NO_MODEL = re.compile(
    r"Words alone, without any model|Les mots seuls, sans aucun modèle|documents that were held back|documents retenus"
)


@pytest.mark.parametrize("name", AUDITS)
def test_every_sentence_about_a_model_is_marked(name: str) -> None:
    audit = AUDITS[name]()
    found = everything_said(name)
    about = [said for said in found if named_in(said.text, audit) and not OF_NO_MODEL.search(said.text)]
    assert len(about) > 50
    assert {said.where.split()[0] for said in about} >= {"report", "dossier", "card", "terminal"}
    # The key of a plot names recipes, and says nothing of them.
    left = [said for said in about if not said.marks and not re.fullmatch(r"[\w -]+", said.text)]
    assert [(said.where, said.text) for said in left] == []


@pytest.mark.parametrize("name", AUDITS)
def test_marks_are_whole(name: str) -> None:
    audit = AUDITS[name]()
    models = {f"{m['recipe']} / {m['model']}" if m.get("model") else m["recipe"] for m in entries_of(audit)}
    marks = {mark for said in everything_said(name) for mark in said.marks}
    assert len(marks) > 15
    assert all(all(mark) for mark in marks)
    assert {mark.model for mark in marks} <= models
    assert {mark.risk for mark in marks if mark.outcome in JUDGED} <= {
        "emission", "context", "words", "individual", "passages", "all",
    }  # fmt: skip


def contradictions(found: list[Said]) -> list[str]:
    """What is said of one risk of one model in two ways."""
    left: list[str] = []
    outcomes: dict[tuple[str, str], dict[str, Said]] = {}
    numbers: dict[tuple[str, str], dict[str, Said]] = {}
    for said in found:
        for mark in said.marks:
            if mark.outcome in JUDGED:
                outcomes.setdefault((mark.model, mark.risk), {}).setdefault(mark.outcome, said)
            if mark.outcome in (FOUND, NOT_FOUND):
                numbers.setdefault((mark.model, mark.risk), {}).setdefault(mark.outcome, said)
    for what, rows in outcomes.items():
        if len(rows) > 1:
            left.append(f"{what}: " + "; ".join(f"{o} ({said.where}: {said.text[:60]})" for o, said in rows.items()))
        if BEYOND in rows and set(numbers.get(what, ())) == {NOT_FOUND}:
            left.append(f"{what}: beyond, and nothing found ({numbers[what][NOT_FOUND].text[:60]})")
    for what, rows in numbers.items():
        if len(rows) > 1:
            left.append(f"{what}: " + "; ".join(f"{o} ({said.where}: {said.text[:60]})" for o, said in rows.items()))
    return left


@pytest.mark.parametrize("name", AUDITS)
def test_one_outcome_is_said_of_each_risk_of_each_model(name: str) -> None:
    assert contradictions(everything_said(name)) == []


def test_the_drawn_audits_have_every_outcome_found_and_not() -> None:
    told = set()
    for name in (name for name in AUDITS if name.startswith("drawn")):
        marks = [mark for said in everything_said(name) for mark in said.marks]
        judged = {(mark.model, mark.risk): mark.outcome for mark in marks if mark.outcome in JUDGED}
        told |= {(judged.get(mark[:2]), mark.outcome) for mark in marks if mark.outcome in (FOUND, NOT_FOUND)}
    assert told >= {(WITHIN, FOUND), (NOT_SHOWN, FOUND), (BEYOND, FOUND), (WITHIN, NOT_FOUND), (NOT_SHOWN, NOT_FOUND)}


@pytest.mark.parametrize("name", AUDITS)
def test_no_unprotected_model_is_left_without_a_word_against_sharing_it(name: str) -> None:
    audit, against = AUDITS[name](), re.compile(r"Do not (share|use)|not to be shared")
    said = [said for said in everything_said(name) if against.search(said.text)]
    assert any(one.where == "card" and "clm / " in one.marks[0].model for one in said)
    for where in ("report en", "dossier en"):
        named = {mark.model.split(" / ")[0] for one in said if one.where == where for mark in one.marks}
        assert {m["recipe"] for m in audit["models"]} & {"mlm", "clm"} <= named, where


def test_a_contradiction_would_be_found() -> None:
    one, other = Mark("clm", "emission", "excess", BEYOND), Mark("clm", "emission", "excess", NOT_SHOWN)
    assert contradictions([Said("report", "a", (one,)), Said("card", "b", (other,))]) != []
    assert contradictions([Said("report", "a", (one,)), Said("card", "b", (one,))]) == []
    found = Mark("clm", "emission", "excess", FOUND)
    assert contradictions([Said("report", "a", (found, found._replace(outcome=NOT_FOUND)))]) != []
