"""What counts as leaked, on the page: copies apart, spellings that identify no one, and the graphs of adversaries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.audits import calls, estimate, tiny_audit, write

pytestmark = pytest.mark.usefixtures("without_ink")


def text_of(folder: Path, audit: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    page = re.sub(r"<style.*?</style>|<svg.*?</svg>", "", write(folder, audit).read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_what_is_only_copied_stands_beside_what_is_predicted_anywhere(tmp_path: Path) -> None:
    audit = tiny_audit()
    assert "not read before" not in text_of(tmp_path / "without", audit)
    for entry in audit["models"]:
        for part in entry["privacy"].values():
            part |= {"unseen": estimate(0.973, 0.961, 0.985), "num_leaked_unseen": 7}
    found = text_of(tmp_path / "with", audit)
    assert "Privacy not read before" in found
    assert "0.973 0.961 to 0.985" in found


def test_few_that_leak_unseen_are_closed_like_those_that_leak(tmp_path: Path) -> None:
    audit = tiny_audit()
    audit["models"][0]["privacy"]["both"] |= {"unseen": estimate(0.99, 0.98, 1.0), "num_leaked_unseen": 2}
    found = text_of(tmp_path, audit)
    assert "above 0.975" in found  # 5 of 200


def test_protected_spellings_of_common_words_are_counted_apart(tmp_path: Path) -> None:
    audit = tiny_audit()
    audit["models"][0]["privacy"]["indirect"]["num_common"] = 511
    audit["models"][0]["privacy"]["direct"]["num_common"] = 3
    found = text_of(tmp_path, audit)
    assert "511 indirect identifiers that are protected are not counted" in found
    assert "3 direct identifiers" not in found


def test_the_graphs_of_adversaries_have_false_identifiers(tmp_path: Path) -> None:
    audit = tiny_audit()
    shares = [
        {"share": 1.0, "num_identifiers": 300, "num_false": 0, **calls(20, 12)},
        {"share": 0.5, "num_identifiers": 410, "num_false": 190, **calls(20, 8)},
    ]
    training = {"num_identifiers": 320, "num_false": 60, **calls(25, 15)}
    for entry in audit["models"]:
        entry["low_cost"] = {**calls(20, 12), "by_graph_share": shares, "training_graph": training}
    found = text_of(tmp_path, audit)
    assert "of 410 identifiers in the graph of 50 % of the documents 190 are none." in found
    assert "who has the training documents only 25 0.600" in found


@pytest.mark.parametrize(
    ("n", "share", "said"),
    [
        (1, None, "Protected are single words."),
        (3, None, "Protected are those of up to 3 words."),
        (3, 0.1, "of which no word is used by 10 % of the people or more"),
        (1, 0.1, "Protected are single words."),
    ],
)
def test_the_caption_of_long_sequences_says_which_are_protected(
    tmp_path: Path, n: int, share: float | None, said: str
) -> None:
    audit = tiny_audit()
    audit["corpus"]["n"] = n
    audit["settings"]["protect"] = {"n": n, "max_document_frequency": share}
    assert said in text_of(tmp_path, audit)


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


def test_membership_by_kind_of_word_stands_in_a_table_and_a_picture(tmp_path: Path) -> None:
    audit = tiny_audit()
    sides = {"num_members": 40, "num_nonmembers": 40}

    def kind(share: float, auc: float, d_prime: float) -> dict[str, Any]:
        attacks = {name: {"auc": estimate(auc), "auc_in_turn": estimate(auc), **sides} for name in ("loss", "lira")}
        return {"share": share, "num_shadows": 8, "attacks": attacks, "d_prime": estimate(d_prime),
                "d_prime_exposed": estimate(2 * d_prime)}  # fmt: skip

    for entry in audit["models"]:
        entry["by_kind"] = {"ordinary": kind(0.8, 0.975, 3.1), "rare": kind(0.1, 0.571, 0.2)}
    audit["models"][0]["by_kind"]["rare"]["attacks"]["lira"] |= {"auc": estimate(0.999), "num_members": 3}
    found = text_of(tmp_path, audit)
    assert "ordinary 80 % 0.975 0.925 to 1.025" in found
    assert "3.100 3.050 to 3.150 6.200" in found
    assert "0.999" not in found  # of few
    assert "rare 0.57 (95 %" in (tmp_path / "report.html").read_text()


def test_membership_by_the_threshold_stands_in_a_table(tmp_path: Path) -> None:
    audit = tiny_audit()
    sides = {"num_members": 40, "num_nonmembers": 30}
    both = {"at_threshold": {"auc": estimate(0.906), **sides}, "above": {"auc": estimate(0.517), **sides}}
    audit["models"][0]["threshold"] = {"k": 2, "num_words": 1234, **both}
    few = {**both, "at_threshold": {"auc": estimate(0.777), "num_members": 3, "num_nonmembers": 30}}
    audit["models"][1]["threshold"] = {"k": 2, "num_words": 3, **few}
    found = text_of(tmp_path, audit)
    assert "2 1,234 0.906 0.856 to 0.956 40 / 30 0.517" in found
    assert "0.777" not in found  # of few


def test_the_first_screen_is_the_verdict_by_risk(tmp_path: Path) -> None:
    found = text_of(tmp_path, tiny_audit())
    table = found.index("identifiers emitted at most 0.05")
    assert table < found.index("What was found")
    assert "membership of the person at most 0.6" in found
    assert "Thresholds are the defaults of Reticent" in found
    # Of 200 identifiers mlm predicts .45, members .40 more than others: beyond, and so is its verdict.
    assert "mlm 16 epochs beyond beyond 0.400 (0.360 to 0.440)" in found
    assert "ppmlm 16 epochs not shown" in found
    assert "(not shown)" in found or "(within)" in found or "(beyond)" in found  # the person's does not count
    for advice in ("Share mlm", "Share clm", "Share pp", "may be shared"):
        assert advice not in found


def test_a_number_that_is_not_published_stands_in_no_verdict(tmp_path: Path) -> None:
    """Fewer than five leaked: the excess is withheld, and the verdict is that of the number all the same."""
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] == "ppmlm":
            few = {"members": estimate(0.01, 0.0, 0.03), "heldout": estimate(0.01, 0.0, 0.03, n=3),
                   "excess": estimate(0.0041, -0.03, 0.03)}  # fmt: skip
            entry["excess"] = dict.fromkeys(("both", "direct", "indirect"), few)
    found = text_of(tmp_path, audit)
    assert "0.004" not in found
    assert "0.0041" not in (tmp_path / "report.json").read_text()


def test_a_headline_does_not_contradict_the_excess_over_the_base(tmp_path: Path) -> None:
    audit = tiny_audit()
    for entry in audit["models"]:
        flat = {"members": estimate(0.1), "heldout": estimate(0.1), "excess": estimate(0.0, -0.02, 0.02)}
        entry["excess"] = dict.fromkeys(("both", "direct", "indirect"), flat)
        if entry["recipe"] == "ppmlm":
            entry["over_base"] = {"both": {**flat, "excess": estimate(0.024, 0.003, 0.045)}}
    found = text_of(tmp_path, audit)
    assert "ppmlm has learned identifiers of the people it was trained on" in found
    assert "identifiers (less what the base model predicts) less often (2.4 points, 0.3 to 4.5)" in found
    assert "No model was found to have learned identifiers" not in found


def test_a_headline_on_membership_does_not_contradict_the_verdict(tmp_path: Path) -> None:
    """The attacks by the whole text find no one; LiRA by all words does."""
    audit = tiny_audit()
    attack = {"auc": estimate(0.95, 0.9, 1.0), "num_members": 40, "num_nonmembers": 40}
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["by_kind"] = {"all": {"share": 1.0, "attacks": {"lira": attack}}}
    found = text_of(tmp_path, audit)
    assert "Who was in the data is distinguishable better than by chance in ppclm." in found
    assert "was not distinguishable better than by chance" not in found.partition("What was found")[0]


def test_a_masked_model_is_not_asked_for_passages(tmp_path: Path) -> None:
    found = text_of(tmp_path, tiny_audit())
    assert "a masked model writes no text" in found
    assert found.count("it would be by [extraction]") > 0


def test_a_model_beyond_a_relevant_threshold_is_not_to_be_shared(tmp_path: Path) -> None:
    """Rare words tell who is a member, though no identifier was learned measurably."""
    audit = tiny_audit()
    attack = {"auc": estimate(0.95, 0.9, 1.0), "num_members": 40, "num_nonmembers": 40}
    flat = {"members": estimate(0.1), "heldout": estimate(0.1), "excess": estimate(0.0, -0.02, 0.02)}
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["by_kind"] = {"rare": {"share": 0.1, "attacks": {"loss": attack}}}
            entry["excess"] = dict.fromkeys(("both", "direct", "indirect"), flat)
    found = text_of(tmp_path, audit)
    assert "Do not share ppclm: beyond the threshold: membership through identifying words." in found
