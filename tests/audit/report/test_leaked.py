"""What counts as leaked, on the page: copies apart, spellings that identify no one, and the graphs of adversaries."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.audits import calls, estimate, text_of, tiny_audit

pytestmark = pytest.mark.usefixtures("without_figures")


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
    assert "Protected indirect identifiers that are not counted: 511." in found
    assert "that are not counted: 3." not in found


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


def test_membership_by_the_threshold_stands_in_a_table(tmp_path: Path) -> None:
    audit = tiny_audit()
    sides = {"num_members": 40, "num_nonmembers": 30}
    both = {"at_threshold": {"auc": estimate(0.906), **sides}, "above": {"auc": estimate(0.517), **sides}}
    weighed = {"by_likelihood": {"auc": estimate(0.994), **sides}}
    audit["models"][0]["threshold"] = {"k": 2, "num_words": 1234, **both, **weighed}
    audit["models"][2]["threshold"] = {"k": 3, "num_words": 77, "epsilon": 1.5, "delta": 0.01, **both, **weighed}
    few = {**both, "at_threshold": {"auc": estimate(0.777), "num_members": 3, "num_nonmembers": 30}}
    audit["models"][1]["threshold"] = {"k": 2, "num_words": 3, **few}
    found = text_of(tmp_path, audit)
    assert "2 1,234 0.906 0.856 to 0.956 40 / 30 0.517 0.467 to 0.567 0.994" in found
    assert "3 (noisy, ε = 1.5 of each word) 77 0.906 0.856 to 0.956 40 / 30 – 0.994" in found  # noise has no control
    assert "0.777" not in found  # of few


def test_the_first_screen_is_the_verdict_by_risk(tmp_path: Path) -> None:
    found = text_of(tmp_path, tiny_audit())
    table = found.index("identifiers emitted at most 0.05")
    assert table < found.index("What was found")
    assert "membership of the person at most 0.6" in found
    assert "Thresholds are the defaults of Reticent" in found
    # Of 200 identifiers mlm predicts .45, members .40 more than others: beyond, and so is its verdict.
    assert "mlm 16 epochs beyond beyond the threshold 0.400 (0.360 to 0.440)" in found
    assert "ppmlm 16 epochs not shown" in found
    assert (
        "(not shown)" in found or "(within the threshold)" in found or "(beyond the threshold)" in found
    )  # the person's does not count
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
    assert "identifiers (less what the base model predicts) (2.4 points less, 0.3 to 4.5)" in found
    assert "No model was found to have learned identifiers" not in found


def test_the_advice_says_of_identifiers_what_the_verdict_says(tmp_path: Path) -> None:
    """Measurably more than the base, and less than the threshold: learned, and within it."""
    audit = tiny_audit()
    for entry in audit["models"]:
        if entry["recipe"] in ("clm", "ppclm"):
            more = 0.3 if entry["recipe"] == "clm" else 0.024
            sides = {"members": estimate(0.1), "heldout": estimate(0.1), "excess": estimate(more, 0.003, more + 0.021)}
            entry["excess"], entry["over_base"] = dict.fromkeys(("both", "direct", "indirect"), sides), {"both": sides}
    found = text_of(tmp_path, audit)
    assert "ppclm no more than the threshold allows." in found
    assert "Weigh what ppclm learned" in found
    advice = found.partition("What to do next")[2].partition("Weigh")[0]
    assert "clm" in advice
    assert "ppclm" not in advice


def test_a_headline_on_membership_does_not_contradict_the_verdict(tmp_path: Path) -> None:
    """The attacks by the whole text find no one; LiRA by all words does."""
    audit = tiny_audit()
    attack = {"auc": estimate(0.95, 0.9, 1.0), "num_members": 40, "num_nonmembers": 40}
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm":
            entry["by_kind"] = {"all": {"share": 1.0, "attacks": {"lira": attack}}}
    found = text_of(tmp_path, audit)
    assert "Who was in the data is distinguishable better than by chance in ppclm (membership of the person)." in found
    assert "was not distinguishable better than by chance" not in found.partition("What was found")[0]


@pytest.mark.parametrize("by", ["rare words", "the threshold"])
def test_a_headline_on_membership_counts_attacks_by_identifying_words(tmp_path: Path, by: str) -> None:
    """The attacks by the whole text find no one; those by words that protection is about do."""
    audit = tiny_audit()
    attack = {"auc": estimate(0.95, 0.9, 1.0), "num_members": 40, "num_nonmembers": 40}
    for entry in audit["models"]:
        if entry["recipe"] == "ppclm" and by == "rare words":
            entry["by_kind"] = {"rare": {"share": 0.1, "attacks": {"lira": attack}}}
        elif entry["recipe"] == "ppclm":
            entry["threshold"] = {"k": 2, "num_words": 90, "at_threshold": attack, "above": attack}
    found = text_of(tmp_path, audit)
    said = "Who was in the data is distinguishable better than by chance in ppclm"
    assert f"{said} (membership through identifying words)." in found
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
