"""Attacks on classifiers and taggers by hand: each against arithmetic on a piece of paper, or a loop."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reticent.audit.membership import heads
from reticent.audit.membership.heads import HEAD_ATTACKS, HeadScores, HeadShadows, head_controls, head_scores
from reticent.audit.membership.names import HEAD_ATTACKS_BY_SHADOWS, HEAD_ATTACKS_WITHOUT_SHADOWS
from reticent.audit.membership.shadow_attacks import PRIOR_SHADOWS, attack_classifier_score
from reticent.audit.membership.table import Need
from reticent.core.errors import ArtifactError

LABEL = np.array([0, 1, 1])
#: Documents: sure and right; sure and wrong; a tie of both classes, of which the first is given.
TARGET = HeadScores.of_classes(np.log([[0.9, 0.1], [0.8, 0.2], [0.5, 0.5]]), LABEL)


def scores_of(own: list[float], label: np.ndarray = LABEL) -> HeadScores:
    """A head of two classes that gives the true ones these probabilities."""
    rows = [(p, 1 - p) if true == 0 else (1 - p, p) for p, true in zip(own, label, strict=True)]
    return HeadScores.of_classes(np.log(rows), label)


#: Four shadows and the documents that each was trained on; a document is in two of them.
IS_IN = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool)
OWN = np.array([[0.8, 0.3, 0.7], [0.6, 0.6, 0.4], [0.9, 0.7, 0.3], [0.4, 0.2, 0.6]])
SHADOWS = HeadShadows([(scores_of(row.tolist()), known) for row, known in zip(OWN, IS_IN, strict=True)])
#: Name -> its score of each document, and its control: the mean over the two shadows that did not know the document.
BY_HAND = {
    "label_loss": (np.log([0.9, 0.2, 0.5]), np.log([0.6 * 0.4, 0.3 * 0.2, 0.4 * 0.3]) / 2),
    "label_confidence": (np.log([0.9, 0.8, 0.5]), np.log([0.6 * 0.6, 0.7 * 0.8, 0.6 * 0.7]) / 2),
    "label_only": ([1.0, 0.0, 0.0], [0.5, 0.0, 0.0]),
    # Of the shadows that know the document 2, 2 and 2 are right, of the others 1, 0 and 0: p = 3/4, q = 2/4, 1/4, 1/4.
    "label_only_shadow": ([math.log(3 / 2), math.log(1 / 3), math.log(1 / 3)], None),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_score_and_its_control_are_as_worked_by_hand(name: str) -> None:
    own, control = BY_HAND[name]
    assert head_scores(TARGET, SHADOWS)[name] == pytest.approx(own)
    if control is not None:
        assert head_controls(SHADOWS)[name] == pytest.approx(control)


def test_entropy_is_that_of_all_labels() -> None:
    assert TARGET.entropy[2] == pytest.approx(math.log(2))
    assert TARGET.entropy[0] == pytest.approx(-0.9 * math.log(0.9) - 0.1 * math.log(0.1))


def test_lira_is_the_ratio_of_two_gaussians_of_the_logit() -> None:
    logit = np.log(OWN / (1 - OWN))
    sides = [np.array([logit[side[:, d], d] for d in range(3)]) for side in (IS_IN, ~IS_IN)]  # (documents, 2)
    squares = [((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for values in sides]
    pooled = sum(found.sum() for found in squares) / 6  # two values of each of three documents on two sides
    spread = [np.sqrt((found + PRIOR_SHADOWS * pooled) / (1 + PRIOR_SHADOWS)) for found in squares]
    value = np.log([0.9 / 0.1, 0.2 / 0.8, 1.0])
    known, unknown = (
        stats.norm.logpdf(value, values.mean(axis=1), sd) for values, sd in zip(sides, spread, strict=True)
    )
    found = head_scores(TARGET, SHADOWS)
    assert found["label_lira"] == pytest.approx(known - unknown)
    beyond = stats.norm.logsf(value, sides[1].mean(axis=1), spread[1])
    assert found["label_lira_offline"] == pytest.approx(-beyond)


@pytest.mark.parametrize(("fewest", "groups"), [(4, [[0], [1]]), (6, [[0], [1]]), (7, [[0, 1]])])
def test_the_attack_classifier_is_one_for_each_label_that_is_common(
    fewest: int, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "FEWEST_OF_LABEL", fewest)
    random = np.random.default_rng(0)
    label = np.repeat([0, 1], 6)
    shadows = HeadShadows(
        [(scores_of(random.uniform(0.1, 0.9, 12).tolist(), label), np.arange(12) % 2 == n % 2) for n in range(4)]
    )
    target = scores_of(random.uniform(0.1, 0.9, 12).tolist(), label)
    found = head_scores(target, shadows)["label_shadow"]
    for group in groups:
        chosen = np.isin(label, group)
        rows = [scores.features[chosen] for scores in shadows.scores]
        known = np.concatenate([known[chosen] for known in shadows.is_in])
        assert found[chosen] == pytest.approx(
            attack_classifier_score(np.concatenate(rows), known, target.features[chosen])[0]
        )


def test_without_shadows_the_attacks_that_need_none_are_made() -> None:
    assert tuple(head_scores(TARGET, None)) == HEAD_ATTACKS_WITHOUT_SHADOWS
    assert head_controls(None) == {}
    assert tuple(head_scores(TARGET, SHADOWS)) == (*HEAD_ATTACKS_WITHOUT_SHADOWS, *HEAD_ATTACKS_BY_SHADOWS)
    assert {name for name, row in HEAD_ATTACKS.items() if Need.SHADOWS in row.needs} == set(HEAD_ATTACKS_BY_SHADOWS)


@pytest.mark.parametrize("kept", [0, 100])
def test_scores_that_a_kill_cut_off_are_named(kept: int, tmp_path: Path) -> None:
    TARGET.save(tmp_path / "scores.npz", IS_IN[0])
    (tmp_path / "scores.npz").write_bytes((tmp_path / "scores.npz").read_bytes()[:kept])
    with pytest.raises(ArtifactError, match="not readable scores of a shadow"):
        HeadScores.load(tmp_path / "scores.npz")


def test_scores_of_a_shadow_are_read_as_they_were_written(tmp_path: Path) -> None:
    TARGET.save(tmp_path / "scores.npz", IS_IN[0])
    again, known = HeadScores.load(tmp_path / "scores.npz")
    assert np.array_equal(known, IS_IN[0])
    assert np.array_equal(again.features, TARGET.features)
    assert np.array_equal(again.label, LABEL)
    (tmp_path / "scores.npz").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match="not readable scores of a shadow"):
        HeadScores.load(tmp_path / "scores.npz")
