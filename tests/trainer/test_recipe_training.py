"""Recipes in the loop: no gradient where one forbids it, embeddings that stay, words that are replaced at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store, random_store
from fixtures.training import CPU, Whole, predicting
from tokenizers import Tokenizer

from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.config import TrainConfig
from reticent.trainer.labels import Targets, make_targets, protect_store, replacement_ids
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import train
from reticent.trainer.models import load_tokenizer, special_ids
from reticent.trainer.recipes import DROPPED, Recipe, custom_recipe, get_recipe
from reticent.trainer.steps import target_loss
from reticent.trainer.windows import Batch, cut_windows

pytestmark = pytest.mark.usefixtures("one_thread")

X = IGNORE_INDEX
SPLIT = {"mask_split": [0.8, 0.1, 0.1]}


def step_of(recipe: Recipe, store: Any, **options: Any) -> tuple[Batch, Targets]:
    tokenizer = load_tokenizer(toy_tokenizer("bert" if recipe.objective == "mlm" else "gpt2"))
    special = special_ids(tokenizer, recipe.objective)
    protected = protect_store(store, recipe, special, len(tokenizer))
    windows = cut_windows(protected.store, 32, special)
    batch = windows.gather(np.arange(len(windows)))
    settings = {"mask_id": special.mask, "mask_share": 0.4, "seed": 0, "epoch": 1, **options}
    return batch, make_targets(batch, recipe, Ledger(), random_ids=protected.random_ids, **settings)


@pytest.mark.parametrize(
    ("base", "changes", "forbidden"),
    [
        ("goldfish", {}, DROPPED),
        ("goldfish", {"goldfish_h": 2, "never_target": ["direct"]}, DROPPED | 1),
        ("ippclm", {"context": "tag"}, 3),
        ("ippmlm", {"context": "surrogate"}, 3),
        ("ppmlm", SPLIT, 3),
        ("ppclm", {"freeze_embeddings": True}, 3),
    ],
)
def test_gradient_at_the_logits_of_what_is_never_a_target_is_exactly_zero(
    base: str, changes: dict[str, Any], forbidden: int
) -> None:
    recipe = custom_recipe("mine", base, changes)
    batch, targets = step_of(recipe, random_store(12, protected=0.4))
    model = Whole(toy_model("bert" if recipe.objective == "mlm" else "gpt2"))
    target_loss(model, batch, targets, recipe.objective, CPU).backward()  # type: ignore[arg-type]
    moved = (model.logits.grad != 0).any(dim=-1).numpy()
    never = predicting(Targets(batch.input_ids, np.where(batch.flags & forbidden, 1, X)), recipe.objective)
    assert never.sum() > 20
    assert not moved[never].any()
    assert moved.tolist() == predicting(targets, recipe.objective).tolist()


def test_goldfish_drops_do_not_depend_on_where_windows_begin() -> None:
    store, recipe = random_store(4, length=60, last_id=300), custom_recipe("mine", "goldfish", {"goldfish_h": 3})
    special = special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm")
    found = []
    for length in (64, 9):
        windows = cut_windows(protect_store(store, recipe, special, 330).store, length, special)
        batch = windows.gather(np.arange(len(windows)))
        labels = make_targets(batch, recipe, Ledger(), mask_id=None, mask_share=0.15, seed=0, epoch=1).labels
        at = windows.token_positions(batch.windows, labels.shape[1])
        found.append(set(at[labels != X].tolist()))
    assert found[0] == found[1]
    assert len(found[0]) < 0.9 * store.num_tokens


@pytest.mark.parametrize(("kind", "recipe"), [("bert", "ppmlm"), ("gpt2", "ppclm")])
@pytest.mark.parametrize("tied", [True, False])
def test_frozen_embeddings_stay_bit_for_bit_and_all_else_learns(
    kind: str, recipe: str, tied: bool, tmp_path: Path
) -> None:
    model = toy_model(kind)
    if not tied:
        output = model.get_output_embeddings()
        output.weight = torch.nn.Parameter(output.weight.detach().clone())
        model.config.tie_word_embeddings = False
    rows = [p for layer in (model.get_input_embeddings(), model.get_output_embeddings()) for p in layer.parameters()]
    before = [p.detach().clone() for p in rows]
    others = {n: p.detach().clone() for n, p in model.named_parameters() if all(p is not row for row in rows)}
    config = TrainConfig(num_epochs=2, batch_size=4, window_length=32, checkpoint_epochs=(), device="cpu")
    frozen = custom_recipe("mine", recipe, {"freeze_embeddings": True})
    train(model, random_store(12, length=6), frozen, config, tmp_path, tokenizer=toy_tokenizer(kind))
    assert all(torch.equal(p, old) for p, old in zip(rows, before, strict=True))
    learnt = dict(model.named_parameters())
    moved = [name for name, old in others.items() if not torch.equal(learnt[name], old)]
    assert len(moved) > 0.8 * len(others)
    assert any("position" in name or "wpe" in name for name in moved)


def test_drawn_words_are_masked_replaced_and_kept_in_the_shares_asked_for() -> None:
    store = make_store(*[[(10 + (7 * i + w) % 200, w, 2 * (w % 5 == 0)) for w in range(60)] for i in range(200)])
    tokenizer = load_tokenizer(toy_tokenizer("bert"))
    special = special_ids(tokenizer, "mlm")
    recipe = custom_recipe("mine", "ppmlm", SPLIT)
    pool = np.array([250, 260, 270])
    windows = cut_windows(store, 64, special)
    batch = windows.gather(np.arange(len(windows)))
    targets = make_targets(batch, recipe, Ledger(), mask_id=4, mask_share=0.5, seed=0, epoch=1, random_ids=pool)
    drawn = targets.labels != X
    assert (targets.labels[drawn] == batch.input_ids[drawn]).all()
    assert (targets.input_ids[~drawn] == batch.input_ids[~drawn]).all()
    seen = targets.input_ids[drawn]
    shares = [(seen == 4).mean(), np.isin(seen, pool).mean(), (seen == targets.labels[drawn]).mean()]
    assert sum(shares) == pytest.approx(1)
    for share, expected in zip(shares, SPLIT["mask_split"], strict=True):
        assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / drawn.sum())
    assert {int(number) for number in seen} >= {250, 260, 270}


def test_random_tokens_are_never_those_of_protected_words_or_special() -> None:
    store = make_store([(10, 0, 2), (11, 0, 2), (12, 1, 0), (13, 2, 1)])
    special = special_ids(load_tokenizer(toy_tokenizer("bert")), "mlm")
    free = {*range(20)} - {special.prefix, special.suffix, special.pad, special.mask}
    split = {base: custom_recipe("mine", base, SPLIT) for base in ("mlm", "dppmlm", "ppmlm")}
    expected = {"mlm": free, "dppmlm": free - {13}, "ppmlm": free - {10, 11, 13}}
    assert {base: set(replacement_ids(store, split[base], special, 20)) for base in split} == expected  # type: ignore[arg-type]
    assert replacement_ids(store, get_recipe("ppmlm"), special, 20) is None
    crowded = make_store([(number, number, 2) for number in range(20)])
    with pytest.raises(TrainingError, match="every id"):
        replacement_ids(crowded, split["ppmlm"], special, 20)
    beyond = make_store([(25, 0, 2), (10, 1, 0)])  # a vocabulary with gaps has ids over the number of its tokens
    assert set(replacement_ids(beyond, split["ppmlm"], special, 20)) == free  # type: ignore[arg-type]


def test_random_tokens_are_none_that_the_model_has_no_row_for(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(toy_tokenizer("bert"))
    tokenizer.add_tokens([f"added{number}" for number in range(2000)])
    recipe = custom_recipe("mine", "ppmlm", {"mask_split": [0.0, 1.0, 0.0]})
    settings = TrainConfig(num_epochs=1, batch_size=4, window_length=32, mask_share=0.9, device="cpu")
    store, model = random_store(12, length=6), toy_model("bert")
    result = train(model, store, recipe, settings, tmp_path, tokenizer=tokenizer.to_str())
    assert result.ledger.targets > 0


@pytest.mark.parametrize(("flags", "words", "says"), [(4, 0, "flags hold bits"), (1, -2, "out of order")])
def test_a_store_with_values_that_no_writer_gives_stops_before_training(
    flags: int, words: int, says: str, tmp_path: Path
) -> None:
    config = TrainConfig(num_epochs=1, window_length=32, checkpoint_epochs=(), device="cpu")
    store = make_store([(10, 0, 1), (11, words, flags), (12, 1, 0)])
    with pytest.raises(ArtifactError, match=says):
        train(toy_model("gpt2"), store, get_recipe("dppclm"), config, tmp_path, tokenizer=toy_tokenizer("gpt2"))


def test_a_corpus_of_protected_tokens_alone_is_refused_as_without_a_target(tmp_path: Path) -> None:
    config = TrainConfig(num_epochs=1, window_length=32, checkpoint_epochs=(), device="cpu")
    with pytest.raises(TrainingError, match="no token of the corpus is eligible"):
        train(
            toy_model("gpt2"),
            make_store([(10, 0, 1), (11, 1, 3)]),
            get_recipe("ppclm"),
            config,
            tmp_path,
            tokenizer=toy_tokenizer("gpt2"),
        )
