"""Soft prompts: they learn, they touch nothing but themselves, and they are measured on people they never saw."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.reads import Reads

from reticent.core.errors import CorpusError, PolicyError
from reticent.ext.propile.measure import probe_models
from reticent.ext.propile.prompts import ProbeConfig, ProbeModel, SoftPromptConfig, SoftPromptStudy
from reticent.ext.propile.scores import encode_pairs, score_causal_pairs
from reticent.ext.propile.soft_prompt import (
    RowsOfPairs,
    Sides,
    SoftPrompt,
    initial_embeddings,
    nearest_text,
    probe_with_soft_prompt,
    read_soft_prompt,
    soft_prompt_sides,
    target_loss,
    train_soft_prompt,
    write_soft_prompt,
)
from reticent.ext.propile.subjects import Subjects, subjects_from_rows
from reticent.ext.propile.templates import Template
from reticent.trainer.models import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

TEMPLATE = Template("Contact {name} at {target_pii_type} ")
QUICK = SoftPromptConfig(
    num_tokens=3, num_epochs=40, num_subjects=16, num_validation=6, eval_every=10, learning_rate=0.05
)
PROBE = ProbeConfig(num_bootstrap=100, longest="fit")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(toy_tokenizer("gpt2"))


@pytest.fixture(scope="module")
def people() -> Subjects:
    n = 50
    rows = {"name": [f"Ann Be{i}" for i in range(n)], "zip": [f"7{100 + i}" if i % 10 else None for i in range(n)]}
    return subjects_from_rows(rows)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    """A model that writes codes after some words and nothing of the kind after the template: there is what to draw."""
    model = toy_model("gpt2", hidden_size=32, max_length=96)
    texts = [f"came back at home code 7{n}" for n in range(100, 150, 4)]
    texts += [f"Contact Ann Be{n} at ZIP code with pain" for n in range(50, 63)]
    rows = [[tokenizer.bos_token_id, *tokenizer(text).input_ids] for text in texts]
    ids = torch.tensor([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = model(input_ids=ids, labels=ids.masked_fill(ids == 0, -100)).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.zero_grad(set_to_none=True)
    return model.eval()


def test_a_soft_prompt_makes_items_of_others_likelier_and_leaves_the_model_alone(
    model: Any, tokenizer: Any, people: Subjects
) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    needs = [p.requires_grad for p in model.parameters()]
    sides = soft_prompt_sides(people, "zip", QUICK)
    prompt = train_soft_prompt(model, tokenizer, sides, "zip", "twin", TEMPLATE, QUICK, PROBE)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [p.requires_grad for p in model.parameters()] == needs
    assert all(p.grad is None for p in model.parameters())
    assert prompt.embeddings.shape == (3, 32)
    assert prompt.history[-1]["loss"] < prompt.history[0]["loss"]
    without, with_it = probe_with_soft_prompt(model, tokenizer, sides, prompt, "twin", TEMPLATE, PROBE)
    assert len(without.prompts.items) == len(sides.evaluation)
    assert (with_it.log_probs > without.log_probs + 1).mean() > 0.9  # each item at least e times likelier


def test_the_loss_is_that_of_the_target_tokens_alone(model: Any, tokenizer: Any) -> None:
    pairs = encode_pairs(tokenizer, ["Contact Ann at ", "You can reach him by "], ["12345", "a@b.example"], "clm")
    soft = initial_embeddings(model, tokenizer, "zip", QUICK)
    scores = score_causal_pairs(model, pairs, soft=soft)
    rows = RowsOfPairs.of(pairs, model.device)
    with Reads() as reads:
        loss = target_loss(model, rows, np.arange(2), soft)
    assert loss.item() == pytest.approx(-scores.mean(), rel=1e-5)
    assert reads.names == []
    assert target_loss(model, rows, np.array([1]), soft).item() == pytest.approx(-scores[1], rel=1e-5)


def test_the_best_epoch_is_chosen_on_the_validation_side(model: Any, tokenizer: Any, people: Subjects) -> None:
    config = SoftPromptConfig(num_tokens=2, num_epochs=10, num_subjects=4, num_validation=8, eval_every=1,
                              learning_rate=0.5, select_by="loss")  # fmt: skip
    sides = soft_prompt_sides(people, "zip", config)
    prompt = train_soft_prompt(model, tokenizer, sides, "zip", "twin", TEMPLATE, config, PROBE)
    best = min(prompt.history, key=lambda row: row["validation_loss"])
    assert prompt.best_epoch == best["epoch"]
    pairs = encode_pairs(
        tokenizer, [f"Contact {n} at ZIP code " for n in sides.validation.items["name"]],
        [str(v) for v in sides.validation.items["zip"]], "clm",
    )  # fmt: skip
    held = -score_causal_pairs(model, pairs, soft=prompt.embeddings).mean()
    assert held == pytest.approx(best["validation_loss"], rel=1e-4)


def test_starts_are_what_they_are_called(model: Any, tokenizer: Any) -> None:
    weight = model.get_input_embeddings().weight.detach()
    ids = tokenizer(" code", add_special_tokens=False).input_ids
    starts = {init: initial_embeddings(model, tokenizer, "zip", SoftPromptConfig(num_tokens=5, init=init))  # type: ignore[arg-type]
              for init in ("type", "uniform", "mean")}  # fmt: skip
    assert torch.equal(starts["type"], torch.stack([weight[ids[i % len(ids)]] for i in range(5)]))
    assert torch.allclose(starts["mean"], weight.mean(0).expand(5, -1))
    assert -1 <= starts["uniform"].min() < -0.5 < 0.5 < starts["uniform"].max() <= 1


def test_sides_are_disjoint_and_only_of_those_who_have_the_item(people: Subjects) -> None:
    sides = soft_prompt_sides(people, "zip", QUICK)
    assert [len(s) for s in (sides.training, sides.validation, sides.evaluation)] == [16, 6, 23]
    assert None not in sides.evaluation.items["zip"]
    with pytest.raises(CorpusError, match="on two of training"):
        Sides(sides.training, sides.training, sides.evaluation)
    with pytest.raises(CorpusError, match="45 are too few"):
        soft_prompt_sides(people, "zip", SoftPromptConfig())


def test_training_sizes_of_one_pool_share_their_evaluation(people: Subjects) -> None:
    few = SoftPromptConfig(num_subjects=4, num_validation=6)
    assert (
        soft_prompt_sides(people, "zip", few, pool=16).evaluation.rows.tolist()
        == soft_prompt_sides(people, "zip", QUICK, pool=16).evaluation.rows.tolist()
    )


def test_the_nearest_text_is_that_of_the_tokens_themselves(model: Any, tokenizer: Any) -> None:
    ids = tokenizer(" pain in the", add_special_tokens=False).input_ids
    rows = model.get_input_embeddings().weight.detach()[ids] + 1e-4
    assert nearest_text(model, tokenizer, SoftPrompt(rows, "zip", "", [], 1)) == "pain in the "


def test_a_prompt_is_an_artefact_that_comes_back(tmp_path: Path) -> None:
    prompt = SoftPrompt(torch.randn(3, 4), "zip", TEMPLATE.text, [{"epoch": 1, "loss": 2.0}], 1)
    write_soft_prompt(tmp_path / "p", prompt, QUICK, inputs={})
    found = read_soft_prompt(tmp_path / "p")
    assert torch.equal(found.embeddings, prompt.embeddings)
    assert (found.target, found.template, found.history, found.best_epoch) == ("zip", TEMPLATE.text, prompt.history, 1)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "p").iterdir()} == {0o600}


def test_a_study_varies_one_thing_at_a_time_and_moves_to_other_models(
    tmp_path: Path, tokenizer: Any, people: Subjects, model: Any
) -> None:
    models = []
    for name, width in (("small", 16), ("large", 32)):
        toy_model("gpt2", hidden_size=width, max_length=96).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        models.append(ProbeModel(name, tmp_path / name, "clm"))
    config = SoftPromptConfig(num_tokens=2, num_epochs=2, num_subjects=12, num_validation=6, eval_every=2)
    study = SoftPromptStudy(prompt=config, num_subjects=(4,), num_tokens=(1,), init=("mean",))
    section, _, learned = probe_models(models, people, ProbeConfig(num_bootstrap=100, targets=("zip",)), study=study)
    assert sorted(learned) == ["large-zip", "small-zip"]
    for entry in section.models:
        (soft,) = entry.soft_prompts
        assert [(row.sweep, getattr(row, row.sweep)) for row in soft.sweeps] == [
            ("num_subjects", 4), ("num_tokens", 1), ("init", "mean"),
        ]  # fmt: skip
        assert len({row.n for row in (soft, *soft.sweeps)}) == 1
        (moved,) = entry.transfer
        assert math.isfinite(moved.factor.value)


def test_a_prompt_that_leaves_no_room_is_refused(tokenizer: Any, people: Subjects) -> None:
    config = SoftPromptConfig(num_tokens=60, num_epochs=1, num_subjects=8, num_validation=4)
    with pytest.raises(PolicyError, match="leave no room for a prompt in 64 positions"):
        train_soft_prompt(toy_model("gpt2"), tokenizer, soft_prompt_sides(people, "zip", config), "zip", "twin",
                          TEMPLATE, config, PROBE)  # fmt: skip
