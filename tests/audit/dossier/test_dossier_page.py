"""The pages of a dossier: both languages say the same, nothing is claimed, nothing is cited that is not known."""

from __future__ import annotations

import inspect
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest
from fixtures.audits import diagnoses_told, estimate, model, tiny_audit
from fixtures.dossiers import dossier_evidence, published_audit

from reticent.audit.evidence.audit import ModelEvidence
from reticent.audit.evidence.dossier import Declared
from reticent.audit.evidence.extraction import Extraction
from reticent.audit.evidence.json_form import from_json
from reticent.audit.evidence.membership import MeasuredAttack, Roc, WorstSubgroup
from reticent.audit.judgement import verdict as judgement
from reticent.audit.judgement.rows import FEW_DIAGNOSED, NO_WHOLE_PASSAGES, RISKS, Subject
from reticent.audit.judgement.verdict import CANNOT, FEW, UNSURE, WIDE, WITHOUT_POWER, WITHOUT_TWIN
from reticent.audit.membership.asking import EVERY_ATTACK
from reticent.audit.membership.validity import INVALID, QUIET
from reticent.audit.near_copies import near_copies_lines
from reticent.audit.report.environment import template_environment
from reticent.audit.report.findings import explain_epsilon, joint_epsilon_sentence, plain_findings
from reticent.audit.report.page import extraction_html
from reticent.audit.report.risk_text import OUTCOMES, REASONS, explained, number_in_words, shown_models, verdicts_on
from reticent.audit.stats.estimate import Estimate
from reticent.audit.texts import ENGLISH, LANGUAGES, NO_BREAK, Language, Texts, catalogue
from reticent.core.errors import ArtifactError
from reticent.ext.dossier.card import build_card
from reticent.ext.dossier.fact_sentences import FACTS, Context
from reticent.ext.dossier.page import (
    ADVERSARIES,
    CLAIMS,
    CRITERIA,
    EXAMINED,
    FIELDS,
    FIGURES,
    LIKELIHOODS,
    crosswalk,
    render,
    rows_of,
)
from reticent.trainer.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("without_figures")

Page = ElementTree.Element


def parsed(text: str) -> Page:
    return ElementTree.fromstring(text.removeprefix("<!doctype html>"))


def text_of(element: Page) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


@pytest.fixture(scope="module")
def pages() -> dict[Language, str]:
    evidence = dossier_evidence()
    return {language: render(evidence, language, LANGUAGES) for language in LANGUAGES}


def rendered(audit: dict[str, Any], language: Language = "en") -> str:
    return render(dossier_evidence(audit), language, (language,))


# ------------------------------------------------------------------ the two languages


def numbers_in(text: str, page: Page) -> list[float]:
    """Numbers in a text of a page, as its language writes them; an order of words is no difference."""
    in_french = page.get("lang") == "fr"
    text = re.sub(r"(?<=\d) (?=\d{3})", "", text).replace(",", ".") if in_french else text.replace(",", "")
    return sorted(map(float, re.findall(r"\d+(?:\.\d+)?", text)))


def test_both_languages_have_the_same_parts_and_the_same_numbers(pages: dict[Language, str]) -> None:
    one, other = (parsed(pages[language]) for language in LANGUAGES)
    assert [element.tag for element in one.iter()] == [element.tag for element in other.iter()]
    assert [e.get("id") for e in one.iter("section")] == [e.get("id") for e in other.iter("section")]
    numbers = [[numbers_in(text_of(cell), page) for cell in page.iter("td")] for page in (one, other)]
    assert numbers[0] == numbers[1]
    assert sum(map(bool, numbers[0])) > 50
    assert (one.get("lang"), other.get("lang")) == ("en", "fr")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_screen_of_a_report_says_the_verdict_of_the_dossier(
    pages: dict[Language, str], language: Language
) -> None:
    audit, t = published_audit(), Texts(language)
    screen = template_environment(t).get_template("first_screen.html.j2")
    verdicts = verdicts_on(shown_models(audit, t), t)
    html = screen.render(audit=audit, near_copies=list(near_copies_lines(audit, t)), verdicts=verdicts, elsewhere=False)
    section, dossier = parsed(html), parsed(pages[language])
    verdict = next(part for part in dossier.iter("section") if part.get("id") == "verdict")
    shown, judged = text_of(section), text_of(verdict)
    rows = list(section.iter("tr"))[1:]
    articles = list(verdict.iter("article"))
    assert len(rows) == len(articles) == len(list(section.iter("li"))) >= 2
    table = next(t for t in verdict.iter("table") if t.get("class") == "risks")
    lines = [list(line) for line in table.iter("tr")][2:]  # behind the heads and the verdicts
    for number, row in enumerate(rows, start=1):
        for cell, line in zip(list(row)[2:], lines, strict=True):
            assert numbers_in(text_of(cell), dossier) == numbers_in(text_of(line[number]), dossier)
            assert text_of(line[number]).split()[0] == text_of(cell).split()[0]  # the sign of the outcome
            title = next(iter(line[0].itertext()))
            assert text_of(line[0]).removeprefix(title) in shown  # the threshold
    for sentence in (part for article in articles for part in article.iter("p") if part.find("span") is None):
        assert text_of(sentence) in shown
    explained_there = text_of(list(verdict)[-1])[:200]
    assert explained_there in judged
    assert explained_there in shown
    assert not any(claim in html.lower() for claim in CLAIMS)


def test_a_number_beside_its_threshold_is_on_the_side_of_its_verdict() -> None:
    words = Texts("en")
    area = Estimate(value=0.604, low=0.55, high=0.66, n=70)
    assert words.threshold(0.6, area=True) == "0.60"
    assert words.value(area, area=True, threshold=0.6) == "0.604"
    assert words.interval(area, area=True, threshold=0.6) == "0.550 to 0.660"
    below = Estimate(value=0.396, low=0.3, high=0.45, n=70)  # as telling as 0.604
    assert words.value(below, area=True, threshold=0.6) == "0.396"
    rate = Estimate(value=0.0103, low=0.002, high=0.03, n=70)
    assert (words.threshold(0.01, area=False), words.value(rate, threshold=0.01)) == (
        f"1{NO_BREAK}%",
        f"1.03{NO_BREAK}%",
    )
    assert words.value(rate) == f"1.0{NO_BREAK}%"


def test_a_bound_stands_in_the_text_of_a_card_and_not_at_its_head() -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["privacy"]["both"] |= {"num_leaked": 3, "types": estimate(0.985, 0.96, 1.0)}
    evidence = dossier_evidence(audit)
    (model,) = (model for model in evidence.models if model.recipe == "ppclm")
    card = build_card(evidence, model, "0" * 64, None)
    results: Any = card.data["eval_results"]
    assert [row.metric_type for row in results] == ["accuracy", "excess_leakage", "membership_auc"]
    assert f"| identifiers of members that it predicts nowhere | at least 97.5{NO_BREAK}% |" in card.text


@pytest.mark.parametrize(("epoch", "spent"), [(16, ""), (4, "nothing after it, spent: epsilon 1.00 by epoch 4.")])
def test_the_card_of_a_model_with_an_epsilon_has_no_other_number_of_the_corpus(epoch: int, spent: str) -> None:
    audit, guarantee = tiny_audit(), "epsilon 4.00 at delta 1e-5 per individual (at most 4 documents each)"
    for entry in audit["models"]:
        entry |= {"guarantee": guarantee, "epsilon": entry["epoch"] / 4}
    evidence = dossier_evidence(audit)
    (model,) = (replace(model, epoch=epoch) for model in evidence.models if model.recipe == "ppclm")
    card = build_card(evidence, model, "0" * 64, None)
    assert "eval_results" not in card.data
    assert f"This model was trained with differential privacy: {guarantee}" in card.text
    assert spent in card.text
    assert ("so the dossier has no verdict on it" in card.text) == (", spent: epsilon" in card.text) == bool(spent)
    assert "Any figure of the documents would be outside of it" in card.text
    (together,) = joint_epsilon_sentence(evidence.audit, ENGLISH)
    shown = (
        card.text.replace(together, "")
        .replace(spent, "")
        .replace(guarantee, "")
        .replace(explain_epsilon(guarantee, ENGLISH), "")
    )
    for line in shown.splitlines():
        if not line.startswith(("# ", "Digest", "Tested")):
            assert not set(re.findall(r"\d[\d.,]*", line)) - {"2"}, line  # of fewer than k
    for language, said in (("en", "are outside of it, and so are people whom"), ("fr", "la décision de diffuser n’y")):
        findings = plain_findings(published_audit(audit), Texts(language))
        assert all(said in text.replace(NO_BREAK, " ") for text in (rendered(audit, language), " ".join(findings.sure)))


@pytest.mark.parametrize(
    ("num", "said", "said_in_french"),
    [
        (None, "was not looked for", "On n’a pas cherché si"),
        (0, "No held-out person holds a near-copy", "Aucune personne mise à part"),
        (3, "fewer than 5 of 30", "moins de 5 sur 30"),
        (9, "9 of 30", "9 sur 30"),
    ],
)
def test_beside_the_verdict_stands_how_many_hold_near_copies(num: int | None, said: str, said_in_french: str) -> None:
    audit = tiny_audit()
    if num is not None:
        counts = {"threshold": 0.8, "shingle_words": 5, "num_heldout": 30, "num_copied": num}
        audit["corpus"]["near_copies"] = counts
    assert said in rendered(audit)
    assert said_in_french in rendered(audit, "fr")


def test_beside_the_verdict_stands_the_area_without_near_copies() -> None:
    audit = tiny_audit()
    audit["corpus"]["near_copies"] = {"threshold": 0.8, "shingle_words": 5, "num_heldout": 30, "num_copied": 9}
    for one in audit["models"]:
        for name in one["membership"]:
            attack = dict(one["membership"][name])
            one["membership"][name] = {**attack, "auc_without_copies": {**estimate(0.92, 0.85, 0.97), "n": 61}}
    page = rendered(audit).replace(NO_BREAK, " ")
    reliability = "the reliability of the attack is 0.92 (0.85 to 0.97) without them, and 0.60 with them."
    assert f"ppclm / gpt2: {reliability}" in page
    assert "it follows the number without them for: mlm, ppmlm, clm and ppclm." in page
    assert "held-out people with near-copies of members’ documents left out" in page
    assert "fiabilité de l’attaque est de" in rendered(audit, "fr")


@pytest.mark.parametrize(
    "guarantee", ["epsilon 20.01 at delta 1e-5 per individual", "epsilon infinite at delta 1e-5 per record"]
)
@pytest.mark.parametrize(
    ("language", "nobody", "drawn"),
    [
        ("en", "An epsilon above 20 protects nobody.", "3 weights of the base model of gpt2 are not in its files"),
        ("fr", "Un epsilon supérieur à 20 ne protège personne.", "3 poids du modèle de base de gpt2 manquent"),
    ],
)
def test_report_and_dossier_say_an_epsilon_that_protects_nobody_and_a_head_drawn_at_random(
    language: Language, nobody: str, drawn: str, guarantee: str
) -> None:
    def said(audit: dict[str, Any]) -> list[str]:
        findings = plain_findings(published_audit(audit), Texts(language))
        texts = [rendered(audit, language), " ".join(findings.sure)]
        return [" ".join(text.replace(NO_BREAK, " ").split()) for text in texts]

    audit = tiny_audit()
    for one in audit["models"]:
        one |= {"model": "gpt2", "guarantee": "epsilon 20.00 at delta 1e-5 per individual"}
    assert [(nobody in text, drawn in text) for text in said(audit)] == [(False, False)] * 2
    for one in audit["models"]:
        one |= {"num_drawn": 3} if one["recipe"] == "base" else {"guarantee": guarantee}
    assert [(nobody in text, drawn in text) for text in said(audit)] == [(True, True)] * 2


@pytest.mark.parametrize(
    ("language", "said"), [("en", "7 individuals have no document left"), ("fr", "7 personnes n’ont plus de document")]
)
def test_a_dossier_says_how_many_individuals_copies_left_without_a_document(language: Language, said: str) -> None:
    audit, side = tiny_audit(), {"documents": 9, "words_share": 0.1}
    audit["corpus"]["copies"] = {
        "documents": 900,
        "support": {"k": 2, "lifted_words": 9, "lifted_share": 0.1},
        "left_out": {"documents": 9, "words_share": 0.1},
        "passages": {"min_words": 50, "within": side, "across": side},
    }
    assert said not in rendered(audit, language)
    audit["corpus"]["copies"]["left_out"]["individuals"] = 7
    assert said in rendered(audit, language).replace(NO_BREAK, " ")


@pytest.mark.parametrize(("language", "said"), [("en", "are of 35"), ("fr", "en forment 35")])
def test_a_dossier_says_how_many_households_its_intervals_count(language: Language, said: str) -> None:
    audit = tiny_audit()
    assert said not in rendered(audit, language)
    for one in audit["models"]:
        for attack in one["membership"].values():
            attack["auc"]["num_households"] = 35
    assert said in rendered(audit, language)


@pytest.mark.parametrize(
    ("skipped", "language", "said"),
    [
        (3, "en", "Fewer than 5 documents without a text were left out."),
        (3, "fr", "Moins de 5 documents sans texte"),
        (7, "en", "7 documents without a text were left out."),
        (0, "en", None),
    ],
)
def test_documents_that_were_left_out_are_told_of_even_if_they_are_few(
    skipped: int, language: Language, said: str | None
) -> None:
    audit = tiny_audit()
    audit["corpus"]["reading"] = {"files": 1, "passed_over": {}, "csv": {}, "suspect_rows": 0, "skipped": skipped}
    page = text_of(parsed(rendered(audit, language)))
    assert "without a text" not in page if said is None else said in page


def test_the_most_exposed_subgroup_is_not_that_of_an_invalid_attack() -> None:
    def attack(verdict: str, value: float) -> MeasuredAttack:
        auc = Estimate(value=value, low=value - 0.1, high=value + 0.1, n=40)
        worst = WorstSubgroup(group="shortest", num_groups=6, num_members=20, num_nonmembers=20, auc=auc)
        return MeasuredAttack(auc=auc, roc=Roc(fpr=[], tpr=[]), num_members=40, num_nonmembers=30,
                              worst_subgroup=worst, verdict=verdict)  # fmt: skip

    (shown, *_) = shown_models(published_audit(), Texts("en"))
    attacks = {"loss": attack(QUIET, 0.6), "zlib": attack(INVALID, 0.9)}
    model = replace(shown, evidence=replace(shown.evidence, membership=attacks, best_attack=None))
    assert [row.estimate.value for row in rows_of("subgroup", published_audit(), [model])] == [0.6]
    strongest = next(rows_of("membership", published_audit(), [model]))
    assert (strongest.estimate.value, strongest.values["attacks"]) == (0.6, 1)


def test_every_string_of_the_tables_is_in_the_catalogue() -> None:
    questions = [*CRITERIA, *LIKELIHOODS, *(q for _, group in EXAMINED for q in group)]
    wanted = [f"questions.{q.name}.{part}" for q in questions for part in ("title", "text")]
    wanted += [f"adversaries.{who.name}.{part}" for who in ADVERSARIES for part in ("title", "has")]
    wanted += [text for who in ADVERSARIES for test in who.tests for text in (test.meaning, test.by)]
    wanted += [text for group, fields in FIELDS for text in (group, *(f.title for f in fields))]
    wanted += [field.ask for _, fields in FIELDS for field in fields if field.ask]
    wanted += [reason for reason in REASONS.values() if reason]
    assert len(wanted) > 100
    assert [key for key in wanted if key not in catalogue()] == []
    own = (replace(RECIPES["ppclm"], context=kind, context_indirect=kind) for kind in ("tag", "surrogate"))
    for recipe in (*RECIPES.values(), *own):
        assert explained(recipe, 3, Texts("fr")) != explained(recipe, 3, Texts("en"))


def test_a_question_names_figures_and_facts_that_exist() -> None:
    questions = [*CRITERIA, *LIKELIHOODS, *(q for _, group in EXAMINED for q in group)]
    assert {name for q in questions for name in q.figures} <= set(FIGURES)
    assert {name for q in questions for name in q.facts} | {
        fact for _, fields in FIELDS for field in fields for fact in field.facts
    } <= set(FACTS)
    assert set(FIGURES) == {name for q in questions for name in q.figures}, "a figure that no question shows"


@pytest.mark.parametrize(
    ("language", "value", "interval", "date"),
    [("en", "2.4 %", "0.3 % to 4.5 %", "2 January 2026"), ("fr", "2,4 %", "de 0,3 % à 4,5 %", "2 janvier 2026")],
)
def test_numbers_are_written_as_the_language_does(language: Language, value: str, interval: str, date: str) -> None:
    words, found = Texts(language), Estimate(value=0.024, low=0.003, high=0.045, n=1200)
    plain = str.maketrans("\u00a0\u202f", "  ")
    assert words.value(found).translate(plain) == value
    assert words.interval(found).translate(plain) == interval
    assert words.date("2026-01-02T03:04:05+00:00").translate(plain) == date
    assert words.count(1200).translate(plain) == {"en": "1,200", "fr": "1 200"}[language]
    assert words.count(None, 5).translate(plain) == {"en": "fewer than 5", "fr": "moins de 5"}[language]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_zero_is_not_shown_without_its_bound(value: float) -> None:
    words = Texts("en")
    assert words.value(Estimate(value=value, n=40)) == "–"
    assert words.value(Estimate(value=value, low=0.0, high=1.0, n=40)) != "–"
    assert words.interval(Estimate(value=0.0, low=0.0, high=0.07214, n=40)).endswith("7.3\u00a0%"), "rounded up"
    assert words.interval(Estimate(value=1.0, low=0.92786, high=1.0, n=40)).startswith("92.7\u00a0%"), "rounded down"


# ------------------------------------------------------------------ what it says, and does not


def test_no_page_makes_a_claim_and_one_that_would_is_refused(pages: dict[Language, str]) -> None:
    for page in pages.values():
        assert not [claim for claim in CLAIMS if claim in page.lower()]
    with pytest.raises(ArtifactError, match="the dossier would say 'gdpr-ready'"):
        render(dossier_evidence(declared=Declared(purpose="A GDPR-ready model")), "en", LANGUAGES)


def test_a_page_fetches_nothing_and_runs_nothing(pages: dict[Language, str]) -> None:
    for page in pages.values():
        assert not re.search(r"<script|https?://|@import|url\((?!#)", page)
        assert "default-src 'none'" in page


def test_only_the_known_sources_are_cited(pages: dict[Language, str]) -> None:
    text = text_of(parsed(pages["en"]))
    assert set(re.findall(r"Opinion (\d+/\d+)", text)) == {"05/2014", "28/2024"}
    assert not re.search(r"\b(?:Article|Recital|paragraph) \d+\b(?! Working)", text)


def answer(page: Page, title: str) -> str:
    """The text between a heading and the next one."""
    section = next(s for s in page.iter("section") if any(text_of(h) == title for h in s if h.tag in ("h3", "h4")))
    found, inside = [], False
    for element in section:
        if element.tag in ("h2", "h3", "h4"):
            inside = text_of(element) == title
        elif inside:
            found.append(text_of(element))
    return " ".join(found)


def test_what_was_not_tested_is_listed_and_what_was_is_not() -> None:
    page = rendered(tiny_audit())
    (section,) = [s for s in parsed(page).iter("section") if s.get("id") == "not-tested"]
    left = text_of(section)
    assert (
        "asks for the details of a person whose name is known. In the evidence: ProPILE. The setting that tests it"
        in left
    )
    assert "trains models of their own" in left
    assert "sees how easily the model predicts the text" not in left


def test_what_was_not_tested_has_a_row_for_each_model() -> None:
    """An attack on one model is not lent to the others, and one on text is not missed on a model that writes none."""
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == "clm":
            entry["membership"]["lira_online"] = {**entry["membership"]["loss"], "num_shadows": 8}
    page = parsed(rendered(audit))
    (section,) = [s for s in page.iter("section") if s.get("id") == "not-tested"]
    rows = [[text_of(cell) for cell in row] for row in section.iter("tr")][1:]
    letters = {m.evidence.recipe: m.letter for m in shown_models(published_audit(audit), Texts("en"))}
    left = {name.removeprefix("Model "): tests for name, tests in rows}
    assert {name: "LiRA, RMIA" in left[letter] for name, letter in letters.items()} == {
        "mlm": True, "ppmlm": True, "clm": False, "ppclm": True
    }  # fmt: skip
    assert {name: "extraction" in left[letter] for name, letter in letters.items()} == {
        "mlm": False, "ppmlm": False, "clm": True, "ppclm": True
    }  # fmt: skip
    assert "trains models of their own" in text_of(section)
    (who,) = [s for s in page.iter("section") if s.get("id") == "adversaries"]
    assert f"LiRA, RMIAon Model {letters['clm']}" in text_of(who)


@pytest.mark.parametrize(
    ("language", "said", "counted", "placebo"),
    [
        ("en", "sensitive diagnoses told of people it was trained on, more than of people it never saw, given public",
         "mean of 3 of 4 diagnoses",
         "the same of other conditions that stand in no text, given a fragment of a note too"),
        ("fr", "diagnostics sensibles : ce qui en est révélé pour les personnes de l’entraînement, de plus que",
         "moyenne de 3 diagnostics sur 4",
         "autres maladies qui ne figurent dans aucun texte, de même, avec un fragment d’une note aussi"),
    ],
)  # fmt: skip
def test_diagnoses_stand_under_inference_with_their_placebo(
    language: Language, said: str, counted: str, placebo: str
) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        entry["diagnoses"] = diagnoses_told()
    page = text_of(parsed(rendered(audit, language))).replace(NO_BREAK, " ")
    assert said in page
    assert counted in page  # a mean that leaves diagnoses out says so
    assert placebo in page


# ------------------------------------------------------------------ crosswalk

#: The sources that a dossier may cite, by the beginning of their names here.
CITED = (
    *(f"EDPB 28/2024 §{number}" for number in (46, 55, 58)), "Opinion 05/2014", "CNIL 2025", "ICO 2025", "TEHDAS2",
    *(f"OWASP AISVS {number}" for number in ("11.2.7", "11.3", "11.4")), "MITRE ATLAS AML.T0024.00", "NIST AI 100-2",
)  # fmt: skip


def test_every_test_has_a_row_and_every_paragraph_that_is_cited_stands_in_the_table_of_sources() -> None:
    table = crosswalk()
    rows = {**table["tests"], **table["others"]}
    tests = {test.name: test for who in ADVERSARIES for test in who.tests}
    assert table["tests"].keys() == tests.keys()
    assert {name for row in rows.values() for name in row["speaks_to"]} == table["paragraphs"].keys()
    assert {row["risk"] for row in rows.values() if "risk" in row} == RISKS.keys()
    assert {row["figure"] for row in rows.values() if "figure" in row} <= FIGURES.keys()
    assert {row["fact"] for row in rows.values() if "fact" in row} <= FACTS.keys()
    names = [ENGLISH(f"crosswalk.paragraphs.{name}.name") for name in table["paragraphs"]]
    assert not [name for name in names if not name.startswith(CITED)]
    assert not [cited for cited in CITED if not any(name.startswith(cited) for name in names)]
    keys = [f"crosswalk.paragraphs.{name}.{part}" for name in table["paragraphs"] for part in ("name", "asks")]
    keys += [f"crosswalk.others.{name}.title" for name in table["others"]]
    keys += [f"crosswalk.others.{name}.not_run" for name, row in table["others"].items() if "fact" not in row]
    assert [key for key in keys if key not in catalogue()] == []


def test_every_attack_of_the_catalogue_is_a_part_of_a_row() -> None:
    context, nowhere = context_of(), []
    shown = context.models[-1]
    for name in EVERY_ATTACK:
        membership = {name: next(iter(shown.evidence.membership.values()))}
        own = replace(shown, evidence=replace(shown.evidence, membership=membership))
        made = [test.name for who in ADVERSARIES for test in who.tests if test.made(context, own)]
        if not any(crosswalk()["tests"][each].get("risk") == "individual" for each in made):
            nowhere.append(name)
    assert nowhere == []


def context_of() -> Context:
    evidence = dossier_evidence()
    return Context(evidence, shown_models(evidence.audit, Texts("en")), Texts("en"))


def test_a_row_of_the_crosswalk_says_what_came_of_the_test_or_why_it_was_not_run(pages: dict[Language, str]) -> None:
    page = parsed(pages["en"])
    (section,) = [s for s in page.iter("section") if s.get("id") == "crosswalk"]
    tests, sources = section.iter("table")
    rows = {text_of(row[0]): row for row in list(tests.iter("tr"))[1:]}
    table = crosswalk()
    assert len(rows) == len(table["tests"]) + len(table["others"])
    ids = {element.get("id") for element in page.iter()}
    assert {link.get("href") for link in section.iter("a")} <= {f"#{name}" for name in ids}
    assert len(list(sources.iter("tr"))) == len(table["paragraphs"]) + 1
    loss = next(row for name, row in rows.items() if "loss, reference" in name)
    assert (
        "Tested on Model A, Model B, Model C and Model D. It is a part of the risk “membership of the person”"
        in text_of(loss[2])
    )
    verdict = next(part for part in page.iter("section") if part.get("id") == "verdict")
    outcomes = {(e.get("data-model"), e.get("data-risk")): e.get("data-outcome") for e in verdict.iter("td")}
    shown = [s for s in loss[2].iter("small") if s.get("data-model")]
    assert len(shown) == 4
    for one in shown:
        assert outcomes[one.get("data-model"), one.get("data-risk")] == one.get("data-outcome")
    probe = next(row for name, row in rows.items() if "ProPILE" in name)
    assert text_of(probe[2]) == "Not run. The setting that tests it: [probe]."
    assert "Not run. The institution states none" in text_of(rows["release context"][2])


def test_an_attack_that_was_not_made_is_named_as_the_job_has_to_name_it() -> None:
    page = text_of(parsed(rendered(tiny_audit())))
    found = set(
        re.findall(r"The setting that tests it: audit\.attacks with (\w+)(?=\.|, and \[audit\.generation\]\.)", page)
    )
    assert found == {"ngram_coverage", "icp", "self_calibration", "checkpoints", "hidden_states"} & set(EVERY_ATTACK)
    assert len(found) == 5


def test_recipes_that_differ_by_k_or_n_alone_are_told_apart() -> None:
    audit = tiny_audit()
    audit["settings"]["recipes"] = {"wide": {"base": "ppclm", "n": 3}, "safe": {"base": "ppclm", "k": 5}}
    audit["models"] += [audit["models"][-1] | {"recipe": name, "name": name} for name in ("wide", "safe")]
    page = text_of(parsed(rendered(audit)))
    for said in (
        "a word that fewer than 2 people",
        "up to 3 words that fewer than 2 people",
        "a word that fewer than 5",
    ):
        assert f"found, nor {said}" in page or f"a word or a sequence of {said}" in page


def test_what_the_institution_says_stands_where_it_belongs_and_else_a_line_to_write_on() -> None:
    said = Declared(purpose="To find adverse events.", institution="Hospital of X", documents="Letters of 2020.")
    page = parsed(render(dossier_evidence(declared=said), "en", LANGUAGES))
    assert "To find adverse events." in answer(page, "Purpose")
    assert "Hospital of X" in text_of(page)
    assert "What are the models for?" not in text_of(page)
    assert "What are the models for?" in text_of(parsed(rendered(tiny_audit())))


def test_a_model_that_broke_its_rule_is_beyond_whatever_else_was_found() -> None:
    audit = tiny_audit()
    assert "A word that was protected was never a target" in rendered(audit)
    audit["models"][-1]["ledger"]["violations"] = 3
    assert "A word that was protected was never a target" not in rendered(audit)
    page = text_of(parsed(rendered(audit)))
    assert "Training broke its own rule: protected words were among its targets." in page


def test_the_first_table_has_a_row_for_each_risk_and_its_threshold(pages: dict[Language, str]) -> None:
    table = next(t for t in parsed(pages["en"]).iter("table") if t.get("class") == "risks")
    heads, _, *rows = (list(row) for row in table.iter("tr"))
    assert [text_of(head)[:7] for head in heads] == ["risk", *[f"Model {letter}" for letter in "ABCD"]]
    for row, risk in zip(rows, RISKS.values(), strict=True):
        assert text_of(row[0]).startswith(risk.title)
        assert "at most" in text_of(row[0])
        signs = {next(cell.itertext()).strip() for cell in row[1:]}
        assert signs <= {f"{sign} {Texts()(words)}" for sign, words in OUTCOMES.values()} | {
            "✓ found, under the threshold", "? found, not shown to be under the threshold"
        }  # fmt: skip


def test_a_number_below_chance_is_said_to_count_as_its_mirror_image(pages: dict[Language, str]) -> None:
    """Else 0.39 beside "at most 0.6" is called beyond the threshold, and nobody knows why."""
    page = text_of(parsed(pages["en"]))
    assert "counts as its mirror image, 0.39 as 0.61, unless the same test puts an unprotected model above 0.5" in page
    assert "compte comme son symétrique, 0,39 comme 0,61" in text_of(parsed(pages["fr"]))


@pytest.mark.parametrize(
    ("language", "heads"), [("en", ["at most 0.5 %", "at most 0.625"]), ("fr", ["0,5 % au plus", "0,625 au plus"])]
)
def test_a_threshold_is_printed_with_all_its_digits(language: Language, heads: list[str]) -> None:
    audit = tiny_audit()
    audit["settings"]["verdict"] = {"emission": 0.005, "words": 0.625}
    table = next(t for t in parsed(rendered(audit, language)).iter("table") if t.get("class") == "risks")
    shown = " ".join(text_of(table).split())
    for head in [*heads, "5 %", "0.60" if language == "en" else "0,60", "1 %"]:
        assert head in shown


def test_an_unprotected_model_is_not_within_whatever_was_found() -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            small = {"members": estimate(0.1), "heldout": estimate(0.1), "excess": estimate(0.02, 0.01, 0.03)}
            entry |= {"recipe": "ours", "excess": dict.fromkeys(("both", "direct", "indirect"), small)}
    audit["settings"] |= {"verdict": {"risks": ["emission"]}, "recipes": {"ours": {"base": "clm"}}}
    page = parsed(rendered(audit))
    article = next(text for a in page.iter("article") if " ours / gpt2" in (text := text_of(a)))
    assert re.search(r"identifiers emitted.*✓ found, under the threshold", text_of(page))
    assert "Not shown: nothing in its training protects anyone, whatever the tests found." in article
    assert "What would change it: a recipe that protects direct and indirect identifiers" in article


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "Within every threshold: identifiers emitted. Beyond the threshold, but not counted: membership"),
        ("fr", "Sous tous les seuils : identifiants énoncés. Au-delà du seuil, mais non compté : appartenance"),
    ],
)
def test_a_risk_that_is_beyond_and_does_not_count_is_said_beside_the_verdict(language: Language, said: str) -> None:
    audit = tiny_audit()
    attack = {"auc": estimate(0.95, 0.9, 1.0), "num_members": 40, "num_nonmembers": 40}
    for entry in audit["models"]:
        if entry["recipe"] in ("clm", "ppclm"):
            rate = 0.3 if entry["recipe"] == "clm" else 0.02
            sides = {"members": estimate(0.1), "heldout": estimate(0.1), "excess": estimate(rate, 0.01, rate + 0.01)}
            entry["excess"] = dict.fromkeys(("both", "direct", "indirect"), sides)
            entry["by_kind"] = {"rare": {"share": 0.1, "attacks": {"lira": attack}}}
    audit["settings"]["verdict"] = {"risks": ["emission"]}
    page = " ".join(text_of(parsed(rendered(audit, language))).replace(NO_BREAK, " ").split())
    assert said in page


def test_an_unprotected_recipe_of_the_job_is_not_said_to_be_what_others_are_compared_with() -> None:
    audit = tiny_audit()
    audit["models"] = [{**m, "recipe": {"clm": "long"}.get(m["recipe"], m["recipe"])} for m in audit["models"]]
    audit["settings"]["recipes"] = {"long": {"base": "clm"}}
    page = parsed(rendered(audit))
    plain, own = (next(text for a in page.iter("article") if f" {name} / " in (text := text_of(a)))
                  for name in ("mlm", "long"))  # fmt: skip
    assert "made for comparison" in plain
    assert "trained without any protection. In the files of the run: long" in own
    assert "comparison" not in own


def test_what_is_left_open_is_what_the_recipes_leave_open() -> None:
    audit = tiny_audit()
    audit["settings"]["detect"] = {"detectors": ["gold", "of-our-own"]}
    threshold, context = "a word that exactly 2 people use can tell", "Protected words were still read as context"
    page = text_of(parsed(rendered(audit)))
    assert threshold in page
    assert context in page
    assert "looked for by: marks that came with the documents and of-our-own." in page
    for entry in audit["models"]:
        entry["recipe"] = {"ppmlm": "closed", "ppclm": "dp-clm"}.get(entry["recipe"], entry["recipe"])
    audit["settings"]["recipes"] = {"closed": {"base": "mlm", "text": "pseudonymised", "context_indirect": "tag"}}
    audit["models"] = [m for m in audit["models"] if m["recipe"] != "dp-clm"]
    page = text_of(parsed(rendered(audit)))
    assert context not in page


def test_a_run_without_a_trained_model_has_a_dossier_that_says_so() -> None:
    audit = tiny_audit()
    audit["models"] = [model("base", "clm", 0)]
    assert "No model was trained in this run." in rendered(audit)


def test_the_dossier_that_is_replaced_is_named(pages: dict[Language, str]) -> None:
    assert "replaces the one" not in pages["en"]
    page = render(replace(dossier_evidence(), replaces="0123456789abcdef" * 4), "en", LANGUAGES)
    assert "This dossier replaces the one whose digest begins with 0123456789abcdef." in page


def test_every_number_that_decides_a_risk_has_its_words() -> None:
    """All that the risks of a whole audit name, and every reason that they give."""
    audit = tiny_audit()
    sides = {side: estimate(0.3, n=40) for side in ("members", "heldout", "excess")}
    every = dict.fromkeys(("both", "direct", "indirect"), sides)
    kind = {"all": {"top1": sides}, "num_targets": {"members": 40, "heldout": 30}}
    attack = {"auc": estimate(0.6, n=70), "num_members": 40, "num_nonmembers": 30}
    by_kind = {name: {"share": 0.3, "attacks": {"loss": attack, "lira": attack}} for name in ("all", "rare", "direct")}
    for entry in audit["models"]:
        asked = {"privacy": entry["privacy"], "excess": every}
        entry["threshold"] = {"k": 2, "num_words": 40, "at_threshold": attack, "above": attack}
        entry |= {"over_base": every, "all_occurrences": asked, "by_kind": by_kind}
        entry["inversion"] = {"direct": kind, "indirect": kind, "association": {"rate": sides}}
        entry["diagnoses"] = diagnoses_told()
        entry["generated"] = {"num_prompts": {"members": 40, "heldout": 30}, "excess": every}
    found = from_json(ModelEvidence, audit["models"][-1])
    named = {number.what for risk in RISKS.values() for number in risk.numbers(Subject(found, None))}
    assert len(named) > 15
    fallback = "a number that the report explains"
    assert {what for what in named if number_in_words(what, Texts("en")) == fallback} == set()
    ladder = {what for what in named if "told by" in what or "fragments" in what}
    assert len(ladder) == 12
    assert not {what for what in ladder if number_in_words(what, Texts("fr")) == number_in_words(what, Texts("en"))}
    passages = "passages that come back, given 50 tokens and 10,000 draws"
    assert number_in_words(passages, Texts("fr")).startswith("passages qui reviennent en 10\u202f000 tirages")
    given = re.findall(r'(?:(?<!NO_POWER, )reason=|BEYOND, |WITHIN, )"([a-z ,]+)"', inspect.getsource(judgement))
    assert len(given) > 4
    assert {CANNOT, FEW, FEW_DIAGNOSED, UNSURE, WIDE, WITHOUT_TWIN, WITHOUT_POWER, *given} <= set(REASONS)


@pytest.mark.parametrize(
    ("language", "rows"), [("en", "27 rows of the vocabulary"), ("fr", "27 lignes du vocabulaire")]
)
def test_rows_of_the_vocabulary_are_not_counted_as_people(language: Language, rows: str) -> None:
    audit = tiny_audit()
    shift = {"input": estimate(0.1, n=27) | {"unit": "rows of the vocabulary"}, "tied": True}
    for entry in audit["models"]:
        entry["inversion"] = {"embedding_shift": shift}
    page = text_of(parsed(rendered(audit, language))).replace(NO_BREAK, " ")
    assert rows in page
    assert not re.search("27 (people|personnes)", page)


@pytest.mark.parametrize(("language", "households"), [("en", "27 households"), ("fr", "27 foyers")])
def test_households_that_a_set_of_words_singles_out_are_not_counted_as_people(
    language: Language, households: str
) -> None:
    audit = tiny_audit()
    for row in audit["corpus"]["unicity"]:
        row["share"] |= {"n": 27, "unit": "household"}
    page = text_of(parsed(rendered(audit, language))).replace(NO_BREAK, " ")
    assert households in page
    assert not re.search("27 (people|personnes)", page)


@pytest.mark.parametrize(("language", "said"), [("en", "not measured"), ("fr", "non mesuré")])
def test_whole_passages_that_were_not_measured_have_a_row_in_dossier_and_report(language: Language, said: str) -> None:
    """Where they were, the row has the share."""
    rate = {name: estimate(0.1, 0.05, 0.2, 100) for name in ("members", "heldout", "excess")}
    settings = {"prefix_tokens": [50], "suffix_tokens": 10, "decoding": "greedy", "num_queries": [1], "num_passages": 9,
                "probability": 0.5}  # fmt: skip
    passages = {"num_passages": {}, "num_short": {}, "settings": settings,
                "rates": [{**rate, "measure": "k_extractable", "asked": "all"}]}  # fmt: skip
    words, audit = Texts(language), tiny_audit()
    causal = [one for one in audit["models"] if one["objective"] == "clm" and one["recipe"] != "base"]
    of_model = {one["recipe"]: dict(passages) for one in causal}
    of_model["clm"]["exposed"] = rate
    rows = [
        {"model": one.get("model"), "recipe": one["recipe"], "epoch": one["epoch"], "objective": "clm",
         "passages": of_model[one["recipe"]], "canaries": None}
        for one in causal
    ]  # fmt: skip
    audit["extraction"] = {"has_canaries": False, "models": rows}
    page, label = parsed(rendered(audit, language)), words("evidence.people_of_whom_a_whole_passage_comes_back")
    (row,) = (row for row in page.iter("tr") if text_of(row).startswith(label))
    assert said in text_of(row)
    assert words.value(Estimate(value=0.1, low=0.05, high=0.2, n=100)).replace(NO_BREAK, " ") in text_of(row)
    found = extraction_html(from_json(Extraction, audit["extraction"], "test"), None, 5, words)
    assert found.count(label) == len(rows)
    assert found.count(words.evidence(NO_WHOLE_PASSAGES)) == len([one for one in causal if one["recipe"] != "clm"])


def test_a_dossier_of_a_model_trained_elsewhere_says_nothing_of_its_protection() -> None:
    """How it was trained is not known: neither what was protected, nor what was learned like any other word."""
    audit = tiny_audit()
    audit["settings"] = {**audit["settings"], "subject": {"statement": "From a list."}}
    ours, theirs = (
        text_of(parsed(rendered(each)).find(".//section[@id='residual']")) for each in (tiny_audit(), audit)
    )
    for said in ("was learned like any other word", "were still read as context", "Which words are protected"):
        assert said in ours
        assert said not in theirs
    assert "Several ordinary words together" in theirs


def test_names_of_tests_are_in_the_language_of_the_page(pages: dict[Language, str]) -> None:
    english = {test.name for who in ADVERSARIES for test in who.tests}
    assert {test.title(Texts("en")) for who in ADVERSARIES for test in who.tests} == english
    french = text_of(parsed(pages["fr"]))
    assert len(english) > 20
    assert [name for name in english if " of " in name or " and " in name if name in french] == []
    assert "étiquettes des classifieurs et étiqueteurs" in french
    assert not re.search(r"\. (in the evidence|dans les fichiers)", " ".join(map(text_of, map(parsed, pages.values()))))
