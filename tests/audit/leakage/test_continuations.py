"""BLEU and ROUGE of continuations against published values, the libraries themselves, and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.places import DATA
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU

from reticent.audit.leakage.generated import bleu_counts, bleu_of, continuations, rouge_scores

OPTIONS: dict[str, Any] = {"num_bootstrap": 200, "seed": 0}
TEXTS = ["the patient has a fever", "no fever today", "a cough", "Élodie a de la fièvre"]
TRUE = ["the patient has had a fever since Monday", "no cough today", "a cough", "élodie A de la fièvre depuis lundi"]


@pytest.fixture(scope="module")
def golden() -> Path:
    folder = DATA / "golden_metrics"
    if not folder.is_dir():
        pytest.skip("needs golden_metrics under RETICENT_DATA")
    return folder


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.corpus
def test_bleu_of_several_references_is_the_published_one(golden: Path) -> None:
    expected = json.loads((golden / "nlg_eval_expected.json").read_text(encoding="utf-8"))["files"]
    references = zip(lines(golden / "nlg_eval_ref1.txt"), lines(golden / "nlg_eval_ref2.txt"), strict=True)
    counts = bleu_counts(lines(golden / "nlg_eval_hyp.txt"), list(references), tokenize="none")
    assert bleu_of(counts.sum(axis=0, keepdims=True))[0] == pytest.approx(expected["Bleu_4"], abs=1e-6)


@pytest.mark.corpus
def test_rouge_l_of_the_golden_pairs_is_that_of_their_longest_common_words(golden: Path) -> None:
    pairs = json.loads((golden / "pltrdy_rouge_data.json").read_text(encoding="utf-8"))
    assert len(pairs) > 1
    found = rouge_scores([pair["hyp"] for pair in pairs], [pair["ref"] for pair in pairs])
    for pair, row in zip(pairs, found, strict=True):
        texts = [pair[side].casefold().split() for side in ("hyp", "ref")]
        words = [
            [w for part in text for w in "".join(c if c.isalnum() else " " for c in part).split()] for text in texts
        ]
        common = longest_common(*words)
        assert row[2] == pytest.approx(2 * common / (len(words[0]) + len(words[1])))


def longest_common(one: list[str], other: list[str]) -> int:
    lengths = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for at, own in enumerate(other, start=1):
            before, lengths[at] = lengths[at], before + 1 if word == own else max(lengths[at], lengths[at - 1])
    return lengths[-1]


def test_bleu_of_a_corpus_is_that_of_sacrebleu() -> None:
    counts = bleu_counts(TEXTS, [[text] for text in TRUE])
    for texts in ([0, 1, 2, 3], [0, 1], [2], [1], [3]):
        own, true = [TEXTS[i] for i in texts], [TRUE[i] for i in texts]
        expected = BLEU().corpus_score(own, [true]).score / 100
        found = bleu_of(counts[texts].sum(axis=0, keepdims=True))[0]
        assert found == pytest.approx(expected, abs=1e-9)


def test_rouge_is_that_of_rouge_score_where_letters_are_ascii() -> None:
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    for row, text, true in zip(rouge_scores(TEXTS[:3], TRUE[:3]), TEXTS, TRUE, strict=False):
        assert row.tolist() == [scorer.score(true, text)[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")]


def test_rouge_by_hand_reads_letters_of_any_script() -> None:
    """Five of seven words are written, in order: precision 5/5, recall 5/7; four of six pairs."""
    found = rouge_scores(TEXTS[3:], TRUE[3:])[0]
    assert found.tolist() == pytest.approx([10 / 12, 8 / 10, 10 / 12])


def test_a_perfect_continuation_has_one_everywhere_and_another_nothing() -> None:
    long = ["the patient has had a fever since Monday morning"] * 3
    same = continuations(long, long, np.arange(3), **OPTIONS)
    other = continuations(["zz yy xx ww vv"] * 3, long, np.arange(3), **OPTIONS)
    for name in ("bleu", "rouge1", "rouge2", "rouge_l"):
        assert getattr(same, name).value == pytest.approx(1.0)
        assert getattr(other, name).value == 0.0
        assert getattr(same, name).n == 3


def test_intervals_are_over_individuals_and_hold_the_value() -> None:
    one = continuations(TEXTS, TRUE, np.array([0, 0, 1, 2]), **OPTIONS)
    for name in ("bleu", "rouge1", "rouge2", "rouge_l"):
        estimate = getattr(one, name)
        assert estimate.n == 3
        assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert one == continuations(TEXTS, TRUE, np.array([0, 0, 1, 2]), **OPTIONS)
    alone = continuations(TEXTS[:1], TRUE[:1], np.array([4]), **OPTIONS)
    assert (alone.bleu.low, alone.bleu.high) == (0.0, 1.0)
