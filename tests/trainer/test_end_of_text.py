"""The end of a text: a target of causal models behind each document, that is never protected and that nothing reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import make_store, random_store
from fixtures.training import run
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_model, load_tokenizer, special_ids
from reticent.trainer.recipes import get_recipe
from reticent.trainer.resume import identity_of
from reticent.trainer.verify import read_ledger, verify_ledger
from reticent.trainer.windows import SpecialIds, cut_windows

END = 0
NOTE = list(range(10, 20))
#: Settings in which a note of ten tokens fills its only window, is cut, is packed with others, is trained by adapters.
BY_HEART: dict[str, dict[str, Any]] = {
    "with room": {},
    "full window": {"window_length": 11},
    "full last window": {"window_length": 8, "num_epochs": 40},
    "packed": {"packing": True},
    "accumulated": {"gradient_accumulation_steps": 2, "num_epochs": 40},
}


def notes(tokens: list[int] = NOTE, num: int = 40) -> TokenStore:
    return make_store(*([[(token, at, 0) for at, token in enumerate(tokens)]] * num))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(next(folder.glob("epoch-*")) / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], value) for name, value in other.items())


def probability_of_end(model: Any, tokens: list[int]) -> float:
    with torch.no_grad():
        return float(model.eval()(input_ids=torch.tensor([[END, *tokens]])).logits[0, -1].softmax(-1)[END])


def written(model: Any, prompt: list[int]) -> list[int]:
    ids = torch.tensor([[END, *prompt]])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 20, "do_sample": False, "pad_token_id": END}
    return model.generate(ids, **options)[0].tolist()[1:]


@pytest.mark.parametrize("case", BY_HEART)
def test_a_model_stops_where_a_note_that_it_knows_ends(case: str, tmp_path: Path) -> None:
    settings = {"num_epochs": 20, "learning_rate": 2e-2, **BY_HEART[case]}
    tokens = NOTE[:7] * 2 if case == "full last window" else NOTE
    run("gpt2", "clm", tmp_path, store=notes(tokens), **settings)
    model = load_model(next(tmp_path.glob("epoch-*")), "clm")
    assert probability_of_end(model, tokens[-7:] if case == "full last window" else tokens) > 0.5
    if case != "full last window":  # there the text begins anew as it ends
        assert written(model, tokens[:2]) == [*tokens, END]


def test_without_it_a_model_writes_to_the_limit(tmp_path: Path) -> None:
    run("gpt2", "clm", tmp_path, store=notes(), num_epochs=20, learning_rate=2e-2, end_of_text=False)
    model = load_model(next(tmp_path.glob("epoch-*")), "clm")
    assert probability_of_end(model, NOTE) < 1e-3
    assert len(written(model, NOTE[:2])) == 22


@pytest.mark.parametrize("length", [3, 4, 5, 8, 9, 64])
def test_each_document_has_one_end_in_the_windows_that_it_has_without(length: int) -> None:
    special = SpecialIds(prefix=1, suffix=None, pad=END, mask=None, end=END)
    store = random_store(20, length=9, protected=0.5, seed=3)
    plain, ending = (
        cut_windows(store, length, special, pad_to_multiple_of=4, with_ends=with_ends) for with_ends in (False, True)
    )
    assert len(plain) == len(ending)
    numbers, ledger = np.arange(len(plain)), Ledger()
    batch, before = ending.gather(numbers), plain.gather(numbers)
    assert np.array_equal(batch.inputs[batch.attention], before.input_ids[before.attention])
    assert batch.inputs.shape == before.input_ids.shape
    options: dict[str, Any] = {"mask_id": None, "mask_share": 0.15, "seed": 0, "epoch": 1}
    targets = make_targets(batch, get_recipe("ppclm"), ledger, **options)
    labels = targets.labels
    plain_labels = make_targets(before, get_recipe("ppclm"), Ledger(), **options).labels
    more = labels != np.pad(plain_labels, ((0, 0), (0, 1)), constant_values=-100)
    assert np.array_equal(labels[more], np.full(np.count_nonzero(np.diff(store.doc_offsets)), END))
    last = np.append(np.diff(ending.documents) > 0, True)
    assert np.array_equal(np.argwhere(more), np.c_[numbers[last], 1 + ending.lengths[last]])
    assert ledger.targets == ledger.eligible == store.num_tokens - ledger.protected + np.count_nonzero(more)
    assert ledger.violations == 0


def test_the_ledger_counts_the_ends_and_is_drawn_again(tmp_path: Path) -> None:
    store = random_store(12, length=6, protected=0.5)
    found = {}
    for is_on in (True, False):
        found[is_on] = run("gpt2", "ppclm", tmp_path / str(is_on), store=store, end_of_text=is_on)
        content = read_ledger(tmp_path / str(is_on) / "ledger.json")
        settings = TrainConfig(end_of_text=is_on, num_epochs=2, batch_size=4, window_length=32).cache_key()
        assert verify_ledger(content, store, get_recipe("ppclm"), settings=settings).mismatches == []
        assert ("end_of_text" in content["settings"]) == is_on
    assert found[True].ledger.targets == found[False].ledger.targets + 2 * 12
    assert found[True].ledger.protected == found[False].ledger.protected
    assert found[True].num_steps == found[False].num_steps
    assert found[True].num_tokens == found[False].num_tokens
    wrong = verify_ledger(content, store, get_recipe("ppclm"), settings={"end_of_text": True}).mismatches
    assert wrong == ["setting end_of_text: the ledger says None, the run True"]


def test_masked_models_learn_no_end(tmp_path: Path) -> None:
    for is_on in (True, False):
        run("bert", "ppmlm", tmp_path / str(is_on), store=random_store(12, length=6, protected=0.3), end_of_text=is_on)
    assert same(weights(tmp_path / "True"), weights(tmp_path / "False"))
    assert TrainConfig().cache_key(causal=False) == TrainConfig(end_of_text=False).cache_key()


def words(*special: str) -> str:
    """A tokenizer of 330 words with these special tokens first."""
    names = [*special, *(f"w{number}" for number in range(330 - len(special)))]
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="w9"))
    tokenizer.add_special_tokens(list(special))
    return tokenizer.to_str()


def test_a_tokenizer_without_an_end_is_named_and_trained_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case, end in (("none", "<x>"), ("off", "</s>")):
        run("gpt2", "clm", tmp_path / case, tokenizer=words("<s>", end), end_of_text=case == "none")
        said = capsys.readouterr().err
        assert said.count("train.end_of_text: the tokenizer has no end of a text") == (case == "none")
    assert same(weights(tmp_path / "none"), weights(tmp_path / "off"))
    assert "end" not in read_ledger(tmp_path / "none" / "ledger.json")["special"]


def test_an_end_beyond_the_embeddings_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = Tokenizer.from_str(words("<s>", "<pad>"))
    content.add_special_tokens(["</s>"])
    run("gpt2", "clm", tmp_path, tokenizer=content.to_str())
    assert "train.end_of_text: the tokenizer has no end of a text" in capsys.readouterr().err


def test_the_end_is_the_tokenizers_own_and_checkpoints_stop_at_it(tmp_path: Path) -> None:
    tokenizer, learned = words("<s>", "</s>"), None
    assert special_ids(load_tokenizer(tokenizer), "clm").end == 1
    for listed, kept in (([7, 8], [7, 8, 1]), ([8, 1], [8, 1]), (7, [7, 1]), (None, 1)):
        model, out = toy_model("gpt2"), tmp_path / str(listed)
        model.generation_config.eos_token_id = model.config.eos_token_id = listed
        epochs = 20 if learned is None else 1
        run("gpt2", "clm", out, model=model, tokenizer=tokenizer, store=notes(), num_epochs=epochs, learning_rate=2e-2)
        saved = load_model(next(out.glob("epoch-*")), "clm")
        assert saved.generation_config.eos_token_id == kept
        learned = saved.state_dict() if learned is None else learned
        saved.load_state_dict(learned)
        assert written(saved, NOTE[:2]) == [*NOTE, 1], listed


def test_settings_without_it_are_those_of_before() -> None:
    off, on = TrainConfig(end_of_text=False), TrainConfig()
    assert "end_of_text" not in {**off.cache_key(), **off.of_one_training()}
    assert on.cache_key() == {**off.cache_key(), "end_of_text": True}
    assert on.of_one_training() == {**off.of_one_training(), "end_of_text": True}


@pytest.mark.parametrize(("kind", "recipe", "is_one"), [("bert", "ppmlm", True), ("gpt2", "ppclm", False)])
def test_a_masked_training_goes_on_whatever_it_says(kind: str, recipe: str, is_one: bool) -> None:
    """`run` keeps false where an earlier version began; true, for the causal models, is no other masked training."""
    configs = (TrainConfig(end_of_text=on) for on in (True, False))
    one, other = (identity_of(toy_model(kind), notes(num=2), get_recipe(recipe), each, 1) for each in configs)
    assert (one == other) is is_one


def test_toy_tokenizers_have_an_end() -> None:
    assert special_ids(load_tokenizer(toy_tokenizer("gpt2")), "clm").end == END
    assert special_ids(load_tokenizer(toy_tokenizer("bert")), "mlm").end is None


@pytest.mark.parametrize("clipping", ["hooks", "ghost"])
def test_units_of_privacy_have_the_ends_of_their_documents(clipping: str, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    from fixtures import private

    store, privacy = private.uneven_individuals(), private.dp(sample_rate=1.0, max_documents=20, clipping=clipping)
    longest = int(np.diff(store.doc_offsets).max())
    found = {
        is_on: private.run(
            tmp_path / str(is_on), store=store, privacy=privacy, window_length=longest + 1, end_of_text=is_on
        )[0]
        for is_on in (True, False)
    }
    assert found[False].ledger.targets == 2 * store.num_tokens
    assert found[True].ledger.targets == 2 * (store.num_tokens + store.num_documents)
    assert found[True].num_tokens == found[False].num_tokens
    assert found[True].losses != found[False].losses
