"""What a dossier says of several trainings of a recipe, and of training with differential privacy."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from fixtures.audits import estimate, tiny_audit
from fixtures.dossiers import dossier_evidence
from test_dossier_page import parsed, published_audit, rendered, text_of

from reticent.audit.evidence.audit import AuditEvidence
from reticent.audit.evidence.json_form import from_json
from reticent.audit.report.findings import joint_epsilon_sentence, plain_findings
from reticent.audit.report.page import published
from reticent.audit.stats.seeds import classification_over_seeds
from reticent.audit.texts import ENGLISH, NO_BREAK, Language, Texts
from reticent.ext.dossier.card import build_card
from reticent.ext.dossier.page import render
from reticent.trainer.privacy import Guarantee, unaccounted_steps
from reticent.trainer.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("without_figures")


def trained_twice() -> dict[str, Any]:
    audit = tiny_audit()
    audit["models"] = [{**one, "seed": seed} for one in audit["models"] for seed in (7, 8)]
    return audit


def test_targets_of_several_trainings_are_not_those_of_one_model() -> None:
    page = text_of(parsed(rendered(trained_twice())))
    assert "Model D: 1,234,567 parameters, trained on 900 predictions of a word or a part of one, in 16 epochs" in page
    assert "Model D: of 1,800 words or parts of words that its 2 trainings were to predict, protected: 0." in page
    card = build_card(dossier_evidence(trained_twice()), dossier_evidence().models[1], "0" * 64, None).text
    assert "This model: of 1,800 words or parts of words that its 2 trainings were to predict, protected: 0" in card
    assert "Each model was trained 2 times; numbers are means over these trainings." in card


def test_passages_of_several_trainings_are_their_means_and_the_verdict_shows_the_worst() -> None:
    audit, sides = trained_twice(), {"members": 40, "heldout": 30}
    about = {"model": "gpt2", "objective": "clm", "epoch": 16, "canaries": None}
    rows = []
    for seed, rate in ((7, 0.3), (8, 0.5)):
        found = {side: estimate(rate, rate - 0.02, rate + 0.02) for side in ("members", "excess")}
        asked = {"measure": "discoverable", "prefix_tokens": 50, "asked": "all", "heldout": estimate(0.0, 0.0, 0.02)}
        counts = {"num_passages": sides, "num_short": dict.fromkeys(sides, 0)}
        passages = {**counts, "rates": [{**asked, **found}]}
        rows += [{**about, "recipe": recipe, "seed": seed, "passages": passages} for recipe in ("clm", "ppclm")]
    audit["extraction"] = {"has_canaries": False, "models": rows}
    page = parsed(rendered(audit))
    label = "passages that come back word for word, given the 50 tokens before them"
    table = next(t for t in page.iter("table") if t.get("class") == "figures" and label in text_of(t))
    assert "40.0 % 38.0 % to 42.0 % 40" in " ".join(map(text_of, table.iter("td")))
    risks = next(t for t in page.iter("table") if t.get("class") == "risks")
    assert f"beyond the threshold 50.0 % (48.0 % to 52.0 %) {label}" in text_of(risks)


@pytest.mark.parametrize(
    ("ended", "kept", "said"),
    [
        ({}, "16 epochs", "in 16 epochs."),
        ({"epochs_passed": 5.0, "best_epoch": 3}, "3 epochs", "in 5 epochs. What was kept is the model after epoch 3,"),
        ({"epochs_passed": 1.67}, "1.67 epochs", "in 1.67 epochs."),
        ({"epochs_passed": 1.67, "best_epoch": 2}, "1.67 epochs", "in 1.67 epochs. What was kept is the model after"),
        ({"epochs_passed": 4.0, "best_epoch": 1}, "1 epoch", "in 4 epochs. What was kept is the model after epoch 1,"),
    ],
)
def test_epochs_of_a_training_that_ended_early_are_those_that_passed(
    ended: dict[str, Any], kept: str, said: str
) -> None:
    evidence = dossier_evidence()
    evidence = replace(evidence, models=[replace(one, **ended) for one in evidence.models])
    for model in evidence.models:
        assert f"# {model.recipe} of gpt2, after {kept}\n" in build_card(evidence, model, "0" * 64, None).text
    assert f"900 predictions of a word or a part of one, {said}" in text_of(parsed(render(evidence, "en", ("en",))))


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        (Guarantee(epsilon=8.0, delta=1e-5, unit="individual", max_documents=4),
         "epsilon 8,00 pour delta 1e-5, par personne (au plus 4 documents chacune)"),
        (Guarantee(epsilon=math.inf, delta=1e-5, unit="record"), "epsilon infini pour delta 1e-5, par document"),
        (Guarantee(epsilon=None, delta=1e-5, unit="individual", unaccounted=(
            "deduplication", "the draw of the user-inference holdout", *unaccounted_steps(RECIPES["ppclm-surrogate"]))),
         "pas d’epsilon (par personne) : non compté : le retrait des copies, le tirage des documents mis de côté, "
         "le choix des mots protégés, le choix des mots remplacés"),
    ],
)  # fmt: skip
def test_the_guarantee_of_a_training_is_in_the_language_of_the_page(guarantee: Guarantee, said: str) -> None:
    audit = tiny_audit()
    audit["models"][-1] |= {"recipe": "dp-clm", "guarantee": str(guarantee)}
    assert f"was trained with differential privacy: {guarantee}." in text_of(parsed(rendered(audit)))
    assert f"confidentialité différentielle : {said}." in text_of(parsed(rendered(audit, "fr")))


@pytest.mark.parametrize(
    ("guarantee", "english", "french"),
    [
        (Guarantee(epsilon=8.0, delta=1e-5, unit="individual", max_documents=4),
         "of a given person “was trained on” at most 2,981 times (e to the 8) as often", "d’une personne donnée"),
        (Guarantee(epsilon=1.0, delta=1e-5, unit="record"),
         "of a given document “was trained on” at most 2.8 times (e to the 1) as often", "d’un document donné"),
        (Guarantee(epsilon=0.5, delta=1.5e-3, unit="household"),
         "of a given household “was trained on” at most 1.7 times (e to the 0.5) as often", "faux, à 1,5e-3 près"),
    ],
)  # fmt: skip
def test_an_epsilon_is_said_in_words_with_its_unit_in_report_and_dossier(
    guarantee: Guarantee, english: str, french: str
) -> None:
    audit = tiny_audit()
    audit["models"][-1] |= {"recipe": "dp-clm-epsilon-8", "guarantee": str(guarantee)}
    expected: dict[Language, str] = {"en": english, "fr": french}
    for language, said in expected.items():
        sure = " ".join(plain_findings(published_audit(audit), Texts(language)).sure)
        texts = [text_of(parsed(rendered(audit, language))), sure]
        assert all(said in " ".join(text.replace(NO_BREAK, " ").split()) for text in texts)


def private_audit(heads: list[tuple[str, int, str]]) -> dict[str, Any]:
    """Two private models, and private heads on checkpoints (recipe, epoch)."""
    audit = tiny_audit()
    for one in audit["models"]:
        if one["recipe"] in ("clm", "ppclm") and one["epoch"]:
            one["guarantee"] = f"epsilon {4 if one['recipe'] == 'clm' else 8}.00 at delta 1e-5 per individual"
            one["epsilon"] = 0.5 * one["epoch"]
    f1 = {"macro_f1": estimate(0.6), "micro_f1": estimate(0.6), "classes": [], "confusion": None}
    counts = {"documents": 40, "individuals": 40}
    training = {"losses": [1.0], "num_steps": 1, "num_trained": 1, "num_parameters": 1}
    rows = [
        {"recipe": recipe, "epoch": epoch, "training": {**training, "guarantee": guarantee}, **f1, **counts}
        for recipe, epoch, guarantee in heads
    ]
    about = {"format": "reticent.classification/1", "model": "gpt2", "settings": {}, "classes": ["x", "y"]}
    audit["classification"] = [{**about, "documents": {}, "individuals": {}, "results": rows}]
    return audit


ONE = "epsilon 8.00 at delta 1e-5 per individual"
NO_TOTAL = "No epsilon can be given for all of them"


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([], "2 private trainings were charged together: epsilon 12.00 at delta 2e-5 per individual."),
        ([("base", 0, ONE)], "3 private trainings were charged together: epsilon 20.00 at delta 3e-5 per individual."),
        ([("clm", 8, ONE), ("clm", 16, ONE)], "4 private trainings were charged together: epsilon 28.00 at delta 4e-5"),
        ([("base", 0, "no epsilon (per individual): not accounted: lists of names")], f"3 private .* {NO_TOTAL}"),
        ([("base", 0, ONE.replace("8.00", "infinite"))], f"3 private trainings were charged together. {NO_TOTAL}"),
        ([("base", 0, ONE.replace("individual", "record"))], f"3 private trainings were charged together. {NO_TOTAL}"),
    ],
)
def test_several_private_trainings_are_said_to_be_charged_together(
    heads: list[tuple[str, int, str]], said: str
) -> None:
    audit = private_audit(heads)
    found = " ".join(plain_findings(published_audit(audit)).sure)
    assert re.search(said, found)
    assert re.search(said, text_of(parsed(rendered(audit))))
    assert "spent: epsilon" in found


def test_heads_on_several_trainings_of_a_recipe_are_counted_as_often_in_their_means_too() -> None:
    audit = private_audit([("clm", 16, ONE)] * 2)
    audit["models"] = [{**one, "seed": seed} for one in audit["models"] for seed in (7, 8)]
    shown = published(from_json(AuditEvidence, audit, "audit"))
    task = [classification_over_seeds(result) for result in shown.classification or ()]
    for each in (shown, replace(shown, models=shown.over_seeds or [], classification=task)):
        (said,) = joint_epsilon_sentence(each, ENGLISH)
        assert said.startswith("6 private trainings were charged together: epsilon 40.00 at delta 6e-5 per individual.")
