"""What counts as leaked, in figures and their captions; figures are blank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.audits import estimate, text_of, tiny_audit

pytestmark = pytest.mark.usefixtures("without_ink")


def continued(value: float) -> dict[str, Any]:
    return {name: estimate(value, value - 0.02, value + 0.02) for name in ("bleu", "rouge1", "rouge2", "rouge_l")}


def test_bleu_and_rouge_of_continuations_stand_in_a_table_and_a_picture(tmp_path: Path) -> None:
    audit = tiny_audit()
    excess = audit["models"][0]["excess"]
    for entry in audit["models"]:
        if entry["objective"] == "clm":
            entry["generated"] = {
                "decoding": "greedy",
                "settings": {"num_prompts": 9, "prefix_tokens": 16, "num_tokens": 64, "num_samples": 1,
                             "temperature": 0.0, "top_k": 0},
                "num_prompts": {"members": 40, "heldout": 40}, "excess": excess,
                "heldout": continued(0.171), "members": continued(0.433),
            }  # fmt: skip
    found = text_of(tmp_path, audit)
    assert "BLEU held out ROUGE-1 held out" in found
    assert "0.171 0.151 to 0.191" in found
    assert "0.433 0.413 to 0.453" in found
    page = (tmp_path / "report.html").read_text()
    assert "Continuations against the documents, Causal (GPT-like). base: BLEU 0.17 (95 %" in page


def test_f1_of_the_downstream_task_stands_in_a_table_and_a_picture(tmp_path: Path) -> None:
    audit = tiny_audit()
    f1 = {"macro_f1": estimate(0.612, 0.5, 0.7), "micro_f1": estimate(0.731, 0.6, 0.8), "classes": [],
          "confusion": None, "documents": 40, "individuals": 40}  # fmt: skip
    starts = (("base", 0), ("bag of words", 0), ("ppmlm", 8))
    rows = [{"recipe": name, "epoch": epoch, **f1} for name, epoch in starts]
    audit["classification"] = [
        {"format": "reticent.classification/1", "model": "bert", "settings": {}, "classes": ["x", "y"],
         "documents": {"train": 60, "heldout": 3}, "individuals": {"train": 60, "heldout": 40}, "results": rows}
    ]  # fmt: skip
    found = text_of(tmp_path, audit)
    assert "bag of words – 0.612 0.500 to 0.700 0.731 0.600 to 0.800" in found
    assert "measured on fewer than 5 of held-out people" in found
    assert "ppmlm, 8 epochs: macro F1 0.61 (95 %" in (tmp_path / "report.html").read_text()


def test_the_task_of_several_trainings_is_one_row_with_their_mean(tmp_path: Path) -> None:
    audit = tiny_audit()
    closed = {"classes": [], "confusion": None, "documents": 40, "individuals": 40}
    rows = [
        {"recipe": recipe, "epoch": epoch, "seed": seed, "macro_f1": estimate(f1), "micro_f1": estimate(f1), **closed}
        for recipe, epoch, seed, f1 in (
            ("base", 0, None, 0.5), ("mlm", 8, 0, 0.6), ("mlm", 16, 0, 0.8), ("mlm", 8, 1, 0.7), ("mlm", 16, 1, 0.9),
        )
    ]  # fmt: skip
    audit["classification"] = [
        {"format": "reticent.classification/1", "model": "bert", "settings": {}, "classes": ["x", "y"],
         "documents": {"train": 60, "heldout": 40}, "individuals": {"train": 60, "heldout": 40}, "results": rows}
    ]  # fmt: skip
    found = text_of(tmp_path, audit)
    assert "mlm 8 0.650 0.600 to 0.700 seeds 0.600 to 0.700" in found
    assert "mlm 16 0.850 0.800 to 0.900 seeds 0.800 to 0.900" in found
    page = (tmp_path / "report.html").read_text()
    assert page.count("mlm, 8 epochs: macro F1 0.65 (95 %") == page.count("mlm, 8 epochs: macro") == 1
    # report.json has every training by itself.
    values = [
        row["macro_f1"]["value"]
        for row in json.loads((tmp_path / "report.json").read_text())["classification"][0]["results"]
    ]
    assert values == [0.5, 0.6, 0.8, 0.7, 0.9]


def test_membership_by_kind_of_word_stands_in_a_table_and_a_picture(tmp_path: Path) -> None:
    audit = tiny_audit()
    sides = {"num_members": 40, "num_nonmembers": 40}

    def kind(share: float, auc: float, d_prime: float) -> dict[str, Any]:
        attacks = {name: {"auc": estimate(auc), "auc_in_turn": estimate(auc), **sides} for name in ("loss", "lira")}
        return {"share": share, "num_shadows": 8, "attacks": attacks, "d_prime": estimate(d_prime),
                "d_prime_exposed": estimate(2 * d_prime)}  # fmt: skip

    for entry in audit["models"]:
        entry["by_kind"] = {"ordinary": kind(0.8, 0.975, 3.1), "rare": kind(0.1, 0.571, 0.2)}
        entry["by_kind"]["ordinary"]["attacks"]["gradient_norm"] = {"auc": estimate(0.988), **sides}
    audit["models"][0]["by_kind"]["rare"]["attacks"]["lira"] |= {"auc": estimate(0.999), "num_members": 3}
    found = text_of(tmp_path, audit)
    assert "ordinary 80 % 0.975 0.925 to 1.025" in found
    assert "0.988 0.938 to 1.038 gradient_norm" in found, "what the verdict judges, though it has no column"
    assert "3.100 3.050 to 3.150 6.200" in found
    assert "0.999" not in found  # of few
    assert "rare 0.57 (95 %" in (tmp_path / "report.html").read_text()
