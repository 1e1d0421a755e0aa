"""Labels: what is a target, what never is, and the ledger that counts both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.drawing import examples
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store, random_store
from hypothesis import given, settings
from hypothesis import strategies as st

from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.schema import IGNORE_INDEX, INDIRECT
from reticent.engine.store import TokenStore
from reticent.trainer import labels as labels_module
from reticent.trainer.config import TrainConfig
from reticent.trainer.labels import Targets, make_targets, protect_store
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import train
from reticent.trainer.recipes import RECIPES, custom_recipe, get_recipe
from reticent.trainer.windows import Batch, SpecialIds, cut_windows

BERT = SpecialIds(prefix=2, suffix=3, pad=0, mask=4)
GPT2 = SpecialIds(prefix=1, suffix=None, pad=1, mask=None)
BARE = SpecialIds(prefix=None, suffix=None, pad=0, mask=None)
X = IGNORE_INDEX
#: Ids 10, 11, …; words of one or two tokens, a comma outside every word; one word direct, one indirect, one both.
DOCUMENT = [(10, 0, 0), (11, 0, 0), (12, 1, 1), (13, 1, 1), (14, -1, 0), (15, 2, 2), (16, 3, 0), (17, 4, 3)]


def whole(store: TokenStore, special: SpecialIds, length: int = 64) -> Batch:
    windows = cut_windows(store, length, special, pad_to_multiple_of=1)
    return windows.gather(np.arange(len(windows)))


def targets_of(batch: Batch, recipe: str, ledger: Ledger | None = None, **options: Any) -> Targets:
    settings = {"mask_id": 4, "mask_share": 0.15, "seed": 0, "epoch": 1, **options}
    return make_targets(batch, get_recipe(recipe), ledger if ledger is not None else Ledger(), **settings)


# ------------------------------------------------------------------ hand-worked


@pytest.mark.parametrize(
    ("recipe", "expected", "protected"),
    [
        ("clm", [X, 10, 11, 12, 13, 14, 15, 16, 17], 0),
        ("clma", [X, 10, 11, 12, 13, 14, 15, 16, 17], 0),
        ("dppclm", [X, 10, 11, X, X, 14, 15, 16, X], 3),
        ("ippclm", [X, 10, 11, 12, 13, 14, X, 16, X], 2),
        ("ppclm", [X, 10, 11, X, X, 14, X, 16, X], 4),
    ],
)
def test_clm_labels_of_a_hand_worked_document(recipe: str, expected: list[int], protected: int) -> None:
    batch, ledger = whole(make_store(DOCUMENT), GPT2), Ledger()
    targets = targets_of(batch, recipe, ledger)
    assert targets.labels.tolist() == [expected]
    assert targets.input_ids.tolist() == [[1, 10, 11, 12, 13, 14, 15, 16, 17]]
    num_targets = sum(label != X for label in expected)
    assert targets.num_targets == num_targets
    assert ledger == Ledger(eligible=num_targets, protected=protected, targets=num_targets, violations=0)


def test_a_window_without_a_prefix_does_not_predict_its_first_token() -> None:
    ledger = Ledger()
    targets = targets_of(whole(make_store(DOCUMENT), BARE), "clm", ledger)
    assert targets.labels.tolist() == [[X, 11, 12, 13, 14, 15, 16, 17]]
    assert ledger == Ledger(eligible=7, protected=0, targets=7)


def test_padding_and_special_tokens_are_no_clm_targets_though_their_id_is_a_word_of_the_text() -> None:
    batch = whole(make_store([(1, 0, 0), (10, 1, 0)], [(1, 0, 0)]), GPT2)
    targets = targets_of(batch, "clm")
    assert targets.input_ids.tolist() == [[1, 1, 10], [1, 1, 1]]
    assert targets.labels.tolist() == [[X, 1, 10], [X, 1, X]]


@pytest.mark.parametrize(
    ("recipe", "eligible", "protected"),
    [
        ("mlm", {(10, 11), (12, 13), (15,), (16,), (17,)}, 0),
        ("mlma", {(10, 11), (12, 13), (15,), (16,), (17,)}, 0),
        ("dppmlm", {(10, 11), (15,), (16,)}, 3),
        ("ippmlm", {(10, 11), (12, 13), (16,)}, 2),
        ("ppmlm", {(10, 11), (16,)}, 4),
    ],
)
def test_mlm_masks_one_whole_eligible_word_of_a_short_document(
    recipe: str, eligible: set[tuple[int, ...]], protected: int
) -> None:
    batch = whole(make_store(DOCUMENT), BERT)
    drawn = set()
    for epoch in range(1, 41):
        ledger = Ledger()
        targets = targets_of(batch, recipe, ledger, epoch=epoch)  # 15 % of 2 to 5 words: one
        word = tuple(label for label in targets.labels[0].tolist() if label != X)
        drawn.add(word)
        masked = targets.labels[0] != X
        assert (targets.input_ids[0, masked] == 4).all()
        assert (targets.input_ids[0, ~masked] == batch.input_ids[0, ~masked]).all()
        num_eligible = sum(map(len, eligible))
        assert ledger == Ledger(eligible=num_eligible, protected=protected, targets=len(word))
    assert drawn == eligible  # 40 draws miss one word of five once in 1,500 seeds; this seed does not


def test_mlm_labels_of_a_hand_worked_batch_of_one_word_documents() -> None:
    store = make_store([(10, 0, 0), (11, 0, 0)], [(12, 0, 1)], [(13, -1, 0)], [(14, 0, 0)])
    ledger = Ledger()
    targets = targets_of(whole(store, BERT), "ppmlm", ledger)
    assert targets.labels.tolist() == [[X, 10, 11, X], [X, X, X, X], [X, X, X, X], [X, 14, X, X]]
    assert targets.input_ids.tolist() == [[2, 4, 4, 3], [2, 12, 3, 0], [2, 13, 3, 0], [2, 4, 3, 0]]
    assert ledger == Ledger(eligible=3, protected=1, targets=3)


def test_half_of_the_words_are_masked_when_half_are_asked_for() -> None:
    store = make_store([(10 + i, i // 2, 0) for i in range(20)])
    targets = targets_of(whole(store, BERT), "mlm", mask_share=0.5)
    masked = targets.labels[0, 1:-1] != X
    assert masked[0::2].tolist() == masked[1::2].tolist()
    assert int(masked[0::2].sum()) == 5


def test_a_word_cut_by_a_window_is_protected_on_both_sides() -> None:
    store = make_store([(10, 0, 0), (11, 1, 2), (12, 1, 2), (13, 1, 2), (14, 2, 0)])
    batch = whole(store, BERT, length=5)  # [10 11 12] [13 14]
    assert batch.input_ids.tolist() == [[2, 10, 11, 12, 3], [2, 13, 14, 3, 0]]
    for epoch in range(30):
        assert targets_of(batch, "ppmlm", epoch=epoch).labels.tolist() == [[X, 10, X, X, X], [X, X, 14, X, X]]


def test_one_flagged_piece_protects_its_whole_word_from_masking() -> None:
    store = make_store([(10, 0, 0), (11, 0, 1), (12, 0, 0), (13, 1, 0)])
    for epoch in range(30):
        assert targets_of(whole(store, BERT), "dppmlm", epoch=epoch).labels.tolist() == [[X, X, X, X, 13, X]]


def test_mlm_of_a_tokenizer_without_a_mask_token_is_refused() -> None:
    with pytest.raises(TrainingError, match="mask token"):
        targets_of(whole(make_store(DOCUMENT), GPT2), "ppmlm", mask_id=None)


# ------------------------------------------------------------------ the draw


def one_token_words(num_documents: int, num_words: int, protected_every: int) -> TokenStore:
    document = [(10 + word, word, 3 * (word % protected_every == 0)) for word in range(num_words)]
    return make_store(*[document] * num_documents)


def test_the_share_of_masked_words_is_the_one_asked_for() -> None:
    num_documents, num_words = 50, 250
    batch = whole(one_token_words(num_documents, num_words, 5), BERT, length=512)  # 200 words of each are eligible
    for share, expected in ((0.15, 30), (0.152, 30), (0.153, 31), (0.5, 100)):
        labels = targets_of(batch, "ppmlm", mask_share=share).labels
        assert (np.count_nonzero(labels != X, axis=1) == expected).all()  # round(share x eligible), in every window


def test_every_eligible_word_is_drawn_equally_often() -> None:
    num_documents, num_words, epochs = 40, 100, 25
    batch = whole(one_token_words(num_documents, num_words, 4), BERT, length=512)
    counts = np.zeros(num_words)
    for epoch in range(epochs):
        counts += np.count_nonzero(targets_of(batch, "ppmlm", epoch=epoch).labels != X, axis=0)[1:-1]
    eligible = np.arange(num_words) % 4 != 0
    assert (counts[~eligible] == 0).all()
    trials = num_documents * epochs
    share = 11 / 75  # round(0.15 x 75) of 75
    deviation = np.sqrt(trials * share * (1 - share))
    assert abs(counts[eligible].mean() - trials * share) < 1e-9
    assert np.abs(counts[eligible] - trials * share).max() < 4.5 * deviation  # of 75: once in 2,000 seeds
    assert counts[eligible].std() > 0.5 * deviation  # and as uneven as chance


def test_draws_of_two_windows_and_two_epochs_are_independent() -> None:
    batch = whole(one_token_words(60, 100, 101), BERT, length=512)
    drawn = [targets_of(batch, "mlm", epoch=epoch).labels[:, 1:-1] != X for epoch in range(4)]
    share = drawn[0].mean()
    for one, other in ((drawn[0], drawn[1]), (drawn[2], drawn[3]), (drawn[0][:30], drawn[0][30:])):
        both = (one & other).mean()
        assert abs(both - share**2) < 5 * np.sqrt(share**2 * (1 - share**2) / one.size)


def test_a_draw_depends_on_seed_epoch_and_window_and_not_on_the_batch() -> None:
    store = random_store(40, protected=0.2, length=60)
    windows = cut_windows(store, 32, BERT)
    together = targets_of(windows.gather(np.arange(len(windows))), "ppmlm", seed=3, epoch=7)
    for window in range(len(windows)):
        alone = targets_of(windows.gather(np.array([window])), "ppmlm", seed=3, epoch=7)
        width = alone.labels.shape[1]
        assert alone.labels[0].tolist() == together.labels[window, :width].tolist()
        assert (together.labels[window, width:] == X).all()


@pytest.mark.parametrize("change", [{"seed": 4}, {"epoch": 8}])
def test_another_seed_or_epoch_draws_other_words(change: dict[str, int]) -> None:
    batch = whole(random_store(40, length=60), BERT)
    before = targets_of(batch, "mlm", seed=3, epoch=7)
    after = targets_of(batch, "mlm", **{"seed": 3, "epoch": 7, **change})
    assert targets_of(batch, "mlm", seed=3, epoch=7).labels.tolist() == before.labels.tolist()
    assert (before.labels != after.labels).any(axis=1).mean() > 0.8


# ------------------------------------------------------------------ properties

tokens = st.tuples(st.integers(5, 99), st.integers(0, 3), st.integers(0, 3), st.booleans())


@st.composite
def documents(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Any ids and flags; word ids that count up, with tokens outside words between them."""
    word, found = 0, []
    for number, step, flags, outside in draw(st.lists(tokens, max_size=30)):
        word += step > 0
        found.append((number, -1 if outside else word, flags))
    return found


@settings(max_examples=examples(300))
@given(
    st.lists(documents(), min_size=1, max_size=4),
    st.sampled_from(sorted(name for name, recipe in RECIPES.items() if not recipe.replaces_indirect)),
    st.sampled_from([0.05, 0.15, 0.6, 0.99]),
    st.integers(5, 40),
    st.integers(0, 1000),
    st.sampled_from([BERT, GPT2]),
)
def test_no_protected_token_is_ever_a_target(
    found: list[list[tuple[int, int, int]]], name: str, share: float, length: int, epoch: int, special: SpecialIds
) -> None:
    store, recipe = make_store(*found), get_recipe(name)
    windows = cut_windows(store, length, special)
    batch, ledger = windows.gather(np.arange(len(windows))), Ledger()
    targets = targets_of(batch, name, ledger, mask_share=share, epoch=epoch)
    positions = windows.token_positions(batch.windows, batch.input_ids.shape[1])
    at = positions[targets.labels != X]
    assert (at >= 0).all()  # no special token, no padding
    assert not (store.flags[at] & recipe.never_target).any()
    assert (targets.labels[targets.labels != X] == store.input_ids[at]).all()
    assert ledger.violations == 0
    assert ledger.targets == len(at) <= ledger.eligible
    assert ledger.protected == np.count_nonzero(store.flags & recipe.never_target)
    if recipe.objective == "clm":
        assert (targets.input_ids == batch.input_ids).all()
        assert set(at) == set(np.flatnonzero((store.flags & recipe.never_target) == 0))
    else:
        assert (store.word_ids[at] >= 0).all()
        assert ((targets.input_ids == 4) == (targets.labels != X)).all()
        protected = (batch.flags & recipe.never_target) != 0
        for drawn, words, never in zip(targets.labels != X, batch.word_ids, protected, strict=True):
            runs = np.split(np.arange(len(words)), np.flatnonzero(np.diff(words)) + 1)
            assert all(len(set(drawn[run])) == 1 for run in runs)  # whole words or nothing
            assert drawn.any() == any(words[run[0]] >= 0 and not never[run].any() for run in runs)


@settings(max_examples=examples(50))
@given(st.lists(documents(), min_size=1, max_size=4), st.sampled_from(["mlm", "clm"]))
def test_every_flag_only_takes_targets_away_from_clm_and_eligible_words_from_mlm(
    found: list[list[tuple[int, int, int]]], objective: str
) -> None:
    batch = whole(make_store(*found), BERT if objective == "mlm" else GPT2)
    ledgers = {}
    for prefix in ("", "dpp", "ipp", "pp"):
        ledgers[prefix] = Ledger()
        targets_of(batch, prefix + objective, ledgers[prefix])
    assert ledgers["pp"].eligible <= min(ledgers["dpp"].eligible, ledgers["ipp"].eligible)
    assert max(ledgers["dpp"].eligible, ledgers["ipp"].eligible) <= ledgers[""].eligible
    assert ledgers[""].protected == 0


# ------------------------------------------------------------------ the guard


def test_ledger_adds_up_over_batches() -> None:
    ledger = Ledger()
    for epoch in range(3):
        targets_of(whole(make_store(DOCUMENT), GPT2), "ppclm", ledger, epoch=epoch)
    assert ledger.to_dict() == {"eligible": 12, "protected": 12, "targets": 12, "violations": 0}


def test_ledger_counts_a_violation_and_refuses_the_batch() -> None:
    ledger = Ledger()
    protected = np.array([[False, True, True]])
    ledger.check(np.array([[7, X, X]]), protected, 1)
    with pytest.raises(TrainingError, match=re.escape("2 protected tokens are targets")):
        ledger.check(np.array([[X, 8, 9]]), protected, 1)
    assert ledger == Ledger(eligible=2, protected=4, targets=3, violations=2)


def test_label_of_id_zero_is_a_target_for_the_ledger() -> None:
    with pytest.raises(TrainingError, match="1 protected tokens"):
        Ledger().check(np.array([[0]]), np.array([[True]]), 0)


def draw_everything(word_ids: np.ndarray, protected: np.ndarray, *rest: Any) -> int:
    """A draw that forgot about protection."""
    out = rest[-1]
    out[:] = word_ids >= 0
    return int(np.count_nonzero(out))


def draw_one_protected_word_of_epoch_two(
    word_ids: np.ndarray, protected: np.ndarray, windows: np.ndarray, share: float, seed: int, epoch: int, out: Any
) -> int:
    """A draw that is right in the first epoch and then lets one protected token through."""
    out[:] = (word_ids >= 0) & ~protected
    if epoch == 2:
        row, column = np.argwhere(protected)[0]
        out[row, column] = True
    return int(np.count_nonzero(out))


def run_with(draw: Any, monkeypatch: pytest.MonkeyPatch, out: Path) -> tuple[Any, dict[str, Any], list[dict[str, Any]]]:
    """Train ppmlm with this draw; returns the error, the model's weights after it, and what progress was told."""
    monkeypatch.setattr(labels_module, "draw_words", draw)
    model, steps = toy_model("bert"), []
    config = TrainConfig(num_epochs=3, batch_size=4, window_length=32, checkpoint_epochs=(1,), device="cpu")
    with pytest.raises(TrainingError) as caught:
        train(
            model,
            one_token_words(8, 10, 3),
            get_recipe("ppmlm"),
            config,
            out,
            tokenizer=toy_tokenizer("bert"),
            progress=steps.append,
        )
    return caught.value, {name: weight.clone() for name, weight in model.state_dict().items()}, steps


def test_a_protected_target_stops_the_run_before_any_step_is_made_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, weights, steps = run_with(draw_everything, monkeypatch, tmp_path)
    assert "protected tokens are targets in a batch; training stopped before its step" in str(error)
    assert steps == []
    untouched = toy_model("bert").state_dict()
    assert all((weights[name] == untouched[name]).all() for name in untouched)
    assert list(tmp_path.glob("epoch-*")) == []


@pytest.mark.parametrize("kind", ["mlm", "clm"])
def test_a_recipe_of_pseudonymised_text_is_not_trained_on_the_identifiers_themselves(kind: str) -> None:
    recipe = get_recipe(f"{kind}a")
    with pytest.raises(TrainingError, match=f"recipe {kind}a: the tokens hold direct identifiers"):
        protect_store(make_store(DOCUMENT), recipe, BERT, 20)
    replaced = make_store([(number, word, flags & INDIRECT) for number, word, flags in DOCUMENT])
    assert protect_store(replaced, recipe, BERT, 20).store is replaced
    never = custom_recipe("never", f"{kind}a", {"never_target": ["direct", "indirect"]})  # X has no flag
    assert protect_store(replaced, never, BERT, 20).store is replaced


def test_a_recipe_of_surrogates_is_not_trained_on_the_identifiers_themselves(tmp_path: Path) -> None:
    recipe = custom_recipe("fresh", "ppmlm", {"context": "surrogate"})
    config = TrainConfig(num_epochs=1, window_length=8)
    with pytest.raises(PolicyError, match="its surrogates are drawn anew in each epoch; give epoch_store"):
        train(toy_model("bert"), make_store(DOCUMENT), recipe, config, tmp_path, tokenizer=toy_tokenizer("bert"))


def test_a_late_violation_keeps_earlier_checkpoints_and_makes_no_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, _, steps = run_with(draw_one_protected_word_of_epoch_two, monkeypatch, tmp_path)
    assert str(error).startswith("1 protected tokens")
    assert [step["epoch"] for step in steps] == [1, 1]
    assert [path.name for path in tmp_path.glob("epoch-*")] == ["epoch-0001"]
    assert not (tmp_path / "ledger.json").exists()
