"""Protected tokens in trainers of others: the same targets, and a guard that stops a step that would teach others."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from fixtures.command import command
from fixtures.jobs import changed, make_hospital, values_of
from fixtures.models import toy_model, toy_tokenizer, write_toy_model
from fixtures.places import ROOT
from fixtures.stores import random_store
from fixtures.training import run

import reticent
from reticent.core.errors import ArtifactError, CorpusError, PolicyError, TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.ext.trainers.dataset import windows_of
from reticent.job.config import parse_job
from reticent.job.pipeline import execute
from reticent.job.run import Run
from reticent.trainer.labels import make_targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe
from reticent.trainers import (
    PERMITTED,
    PROTECTED,
    TOKEN_INDEX,
    ProtectedCollator,
    guard_model,
    guard_trainer,
    protected_dataset,
    verify_guarded,
)
from reticent.trainers import with_permitted as carried

datasets = pytest.importorskip("datasets", reason="needs reticent[trainers]: make test-trainers")
pytest.importorskip("accelerate", reason="needs reticent[trainers]: make test-trainers")
transformers = pytest.importorskip("transformers")

KINDS = {"gpt2": "ppclm", "bert": "ppmlm"}
STORE = random_store(40, length=12, last_id=300)


def dataset_of(kind: str) -> Any:
    return protected_dataset(STORE, get_recipe(KINDS[kind]), load_tokenizer(toy_tokenizer(kind)), window_length=32)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def batch(kind: str) -> dict[str, torch.Tensor]:
    dataset = dataset_of(kind)
    return ProtectedCollator(dataset)([dataset[number] for number in range(12)])


def trainer_of(
    kind: str,
    out: Path,
    *,
    cls: Any = None,
    collator: Any = None,
    dataset: Any = None,
    model: Any = None,
    **options: Any,
) -> Any:
    dataset = dataset or dataset_of(kind)
    given = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "report_to": [], **options}
    arguments = transformers.TrainingArguments(
        output_dir=str(out), use_cpu=True, save_strategy="no", disable_tqdm=True, **given
    )
    return (cls or transformers.Trainer)(
        model or toy_model(kind), arguments, train_dataset=dataset, data_collator=collator or ProtectedCollator(dataset)
    )


def test_a_window_has_the_targets_that_the_own_loop_gives_it(kind: str) -> None:
    dataset, recipe = dataset_of(kind), get_recipe(KINDS[kind])
    source = windows_of(dataset)
    assert source is not None
    collator = ProtectedCollator(dataset.select(range(3, 9)), seed=5)
    for collator.epoch in (1, 3):
        made = collator([dataset[number] for number in range(3, 9)])
        own = make_targets(
            source.windows.gather(np.arange(3, 9)), recipe, Ledger(), mask_id=source.windows.special.mask,
            mask_share=0.15, seed=5, epoch=collator.epoch, random_ids=source.random_ids,
        )  # fmt: skip
        assert np.array_equal(made["labels"], own.labels)
        assert np.array_equal(made["input_ids"], own.input_ids)
        assert (made["labels"] != IGNORE_INDEX).any()


def test_rows_hold_every_token_once_and_say_which_are_protected(kind: str) -> None:
    dataset = dataset_of(kind).shuffle(seed=1)
    rows = [dataset[number] for number in range(len(dataset))]
    permitted = np.concatenate([row[PERMITTED] for row in rows])
    protected = int((STORE.flags & 3 != 0).sum())
    assert (permitted == PROTECTED).sum() == protected
    assert 0 < (permitted >= 0).sum() <= STORE.num_tokens - protected
    kept = dataset.filter(lambda row: row["window"] % 2 == 0)
    assert windows_of(kept) is not None
    assert 0 < len(kept) < len(dataset)


def test_a_guarded_trainer_trains_and_writes_what_it_saw(kind: str, tmp_path: Path) -> None:
    trainer = trainer_of(kind, tmp_path)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    guard_trainer(trainer, ledger=tmp_path / "guarded.json")
    trainer.train()
    said = json.loads((tmp_path / "guarded.json").read_text())
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.named_parameters())
    assert said["violations"] == 0
    assert said["targets"] > 0
    assert len(said["epochs"]) == 2
    assert said["protected"] == 2 * int((STORE.flags & 3 != 0).sum())
    assert (tmp_path / "guarded.json").stat().st_mode & 0o077 == 0
    own = run(kind, KINDS[kind], tmp_path / "own", store=STORE, end_of_text=False).ledger
    assert (said["eligible"], said["protected"]) == (own.eligible, own.protected)
    assert said["recipe"]["name"] == KINDS[kind]
    verdict = verify_guarded(tmp_path / "guarded.json", dataset_of(kind))
    assert verdict.holds
    assert verdict.counts is not None
    assert verdict.counts["protected"] == said["protected"] // 2
    assert verdict.counts["violations"] == 0
    assert 0 < verdict.counts["targets"] <= min(said["targets"], verdict.counts["eligible"])
    if kind == "gpt2":
        assert verdict.counts["targets"] == verdict.counts["eligible"] == said["targets"] // 2


def _mark(said: dict[str, Any], index: int) -> None:
    """Say in a ledger that one token more was a target."""
    process = said["processes"][0]
    marks = np.frombuffer(zlib.decompress(base64.b64decode(process["marks"])), np.uint8).copy()
    assert not marks[index // 8] >> index % 8 & 1
    marks[index // 8] |= 1 << index % 8
    process["marks"] = base64.b64encode(zlib.compress(marks.tobytes())).decode()


@pytest.fixture(scope="module")
def guarded_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guarded")
    trainer = trainer_of("gpt2", folder)
    guard_trainer(trainer, ledger=folder / "guarded.json")
    trainer.train()
    return folder / "guarded.json"


PROTECTED_TOKEN = int(np.flatnonzero(STORE.flags & 3)[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda ledger: _mark(ledger, PROTECTED_TOKEN), "1 protected tokens were targets"),
        (lambda ledger: ledger["processes"][0].update(checksum="0" * 16), "had other ids"),
        (lambda ledger: ledger["processes"][0].update(without_index=3), "3 targets came without"),
        (lambda ledger: ledger.update(protection="0" * 64), "protection: not that of the dataset"),
        (lambda ledger: ledger["recipe"].update(name="clm"), "recipe: not that of the dataset"),
        (lambda ledger: ledger.update(targets=5), "targets: 5 in all"),
        (lambda ledger: ledger["epochs"][0].update(violations=1), "violations: 0 in all"),
        (lambda ledger: ledger.update(first_step=4), "begins after step 4"),
        (lambda ledger: ledger.update(processes=[]), "are noted"),
    ],
)
def test_a_ledger_that_does_not_hold_is_told(
    change: Callable[[dict[str, Any]], None], said: str, guarded_ledger: Path, tmp_path: Path
) -> None:
    content = json.loads(guarded_ledger.read_text())
    change(content)
    (tmp_path / "changed.json").write_text(json.dumps(content))
    verdict = verify_guarded(tmp_path / "changed.json", dataset_of("gpt2"))
    assert not verdict.holds
    assert any(said in mismatch for mismatch in verdict.mismatches)


def test_targets_are_looked_up_among_the_tokens_and_flags_that_are_there(guarded_ledger: Path, tmp_path: Path) -> None:
    """Not among those of the ledger's own claims: other flags or other tokens are found by each target."""
    content = json.loads(guarded_ledger.read_text())
    del content["protection"]
    (tmp_path / "anybody.json").write_text(json.dumps(content))
    target = int(np.flatnonzero(STORE.flags & 3 == 0)[3])
    flags, ids = STORE.flags.copy(), STORE.input_ids.copy()
    flags[target] |= 1
    ids[target] += 1
    tokenizer, recipe = load_tokenizer(toy_tokenizer("gpt2")), get_recipe("ppclm")
    for store, said in (
        (STORE.with_columns(flags=flags), "1 protected tokens were targets"),
        (STORE.with_columns(input_ids=ids), "had other ids"),
        (STORE.select(np.arange(10)), "no tokens of the dataset"),
    ):
        verdict = verify_guarded(tmp_path / "anybody.json", protected_dataset(store, recipe, tokenizer))
        assert any(said in mismatch for mismatch in verdict.mismatches)
    text_for_number = json.dumps(json.loads(guarded_ledger.read_text()) | {"targets": "5"}).encode()
    earlier = b'{"format": "reticent.guarded-training/1"}'
    for broken in (b"{}", earlier, guarded_ledger.read_bytes()[:-40], text_for_number):
        (tmp_path / "broken.json").write_bytes(broken)
        with pytest.raises(ArtifactError, match="ledger of a guarded trainer"):
            verify_guarded(tmp_path / "broken.json", dataset_of("gpt2"))
    with pytest.raises(PolicyError, match="expected a dataset of"):
        verify_guarded(guarded_ledger, datasets.Dataset.from_dict({"input_ids": [[1, 2]]}))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_data_loader_draw_the_targets_of_each_epoch(persistent: bool) -> None:
    dataset = dataset_of("bert")
    collator = ProtectedCollator(dataset)
    loader = torch.utils.data.DataLoader(
        dataset.select(range(8)), batch_size=8, num_workers=1, persistent_workers=persistent, collate_fn=collator
    )
    for epoch in (1, 2):
        collator.epoch = epoch
        (found,) = loader
        alone = ProtectedCollator(dataset)
        alone.epoch = epoch
        assert torch.equal(found["labels"], alone([dataset[number] for number in range(8)])["labels"])


def test_a_ledger_says_from_which_step_it_counts(tmp_path: Path) -> None:
    whole = trainer_of("gpt2", tmp_path)
    whole.args.save_strategy = transformers.trainer_utils.SaveStrategy.EPOCH
    guard_trainer(whole, ledger=tmp_path / "whole.json")
    whole.train()
    (first, _) = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    resumed = trainer_of("gpt2", tmp_path)
    guard_trainer(resumed, ledger=tmp_path / "resumed.json")
    resumed.train(resume_from_checkpoint=str(first))
    said = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "resumed")]
    assert [each["first_step"] for each in said] == [0, int(first.name.partition("-")[2])]
    assert said[1]["epochs"] == said[0]["epochs"][1:]
    whole.train(resume_from_checkpoint=str(first))  # of the same guard, which has counted the repeated steps before
    assert json.loads((tmp_path / "whole.json").read_text()) == said[0]
    resumed.train()  # from the beginning, with the weights that were trained: a second training
    again = json.loads((tmp_path / "resumed.json").read_text())
    assert again["batches"] == said[0]["batches"] + said[1]["batches"]


def test_threads_that_share_a_guard_lose_no_target(tmp_path: Path) -> None:
    """As Trainer's do on a machine with several GPUs: it calls replicas of the model in threads (DataParallel)."""
    store, tokenizer = random_store(4000, length=40, last_id=300), load_tokenizer(toy_tokenizer("gpt2"))
    dataset = protected_dataset(store, get_recipe("ppclm"), tokenizer, window_length=64)
    collator, model = ProtectedCollator(dataset), toy_model("gpt2").train()
    guard = guard_model(model)
    batches = [collator([dataset[at] for at in (first, first + 1)]) for first in range(0, len(dataset) - 1, 2)]
    together = threading.Barrier(2)

    def replica(half: int) -> None:
        for batch in batches[half : len(batches) // 2 * 2 : 2]:
            together.wait()
            guard._before_forward(model, (), dict(batch))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(replica, (0, 1)))
    finally:
        sys.setswitchinterval(interval)
    guard.write(tmp_path / "threads.json")
    assert guard.batches == len(batches) // 2 * 2
    assert verify_guarded(tmp_path / "threads.json", dataset).mismatches == []


def test_a_protected_token_gets_no_gradient_and_the_loss_is_the_own_loops(tmp_path: Path) -> None:
    """One step of the trainer of others, and one of ours, of the same windows: equal gradients."""
    trainer = trainer_of("gpt2", tmp_path)
    guard_trainer(trainer)
    dataset = trainer.train_dataset
    made = trainer.data_collator([dataset[number] for number in range(8)])
    logits: list[torch.Tensor] = []

    def keep(_: Any, __: Any, output: torch.Tensor) -> None:
        output.retain_grad()
        logits.append(output)

    handle = trainer.model.lm_head.register_forward_hook(keep)
    trainer.model.train()
    trainer.model(**made).loss.backward()
    handle.remove()
    gradient = logits[0].grad
    assert gradient is not None
    following = made[PERMITTED].roll(-1, 1)
    assert not gradient[following == PROTECTED].any()
    assert gradient[following >= 0].any()


# ------------------------------------------------------------------------------------------------------------- faults
#
# What collators, packing, templates and truncation of others do to a batch.


def _rebuilt(batch: dict[str, torch.Tensor]) -> None:
    batch["labels"] = torch.where(batch["attention_mask"] == 1, batch["input_ids"], IGNORE_INDEX)


def _shifted(by: int) -> Callable[[dict[str, torch.Tensor]], None]:
    def shift(batch: dict[str, torch.Tensor]) -> None:
        batch["labels"] = batch["labels"].roll(by, 1)

    return shift


def _one_more(seed: int) -> Callable[[dict[str, torch.Tensor]], None]:
    """One protected token of the batch is a target."""

    def teach(batch: dict[str, torch.Tensor]) -> None:
        cells = (batch[PERMITTED] == PROTECTED).nonzero()
        row, column = cells[seed % len(cells)]
        batch["labels"][row, column] = batch["input_ids"][row, column]

    return teach


def _of_another_tokenizer(offset: int) -> Callable[[dict[str, torch.Tensor]], None]:
    def renumber(batch: dict[str, torch.Tensor]) -> None:
        batch["labels"] = torch.where(batch["labels"] >= 0, (batch["labels"] + offset) % 300, batch["labels"])

    return renumber


def _added(tokens: int, columns: tuple[str, ...]) -> Callable[[dict[str, torch.Tensor]], None]:
    """A template's tokens before the text, in some columns only, all of them cut to the old width."""

    def add(batch: dict[str, torch.Tensor]) -> None:
        for name in columns:
            batch[name] = torch.cat([batch[name][:, :1].repeat(1, tokens), batch[name]], 1)[:, : -tokens or None]

    return add


def _cut(names: tuple[str, ...], by: int) -> Callable[[dict[str, torch.Tensor]], None]:
    def cut(batch: dict[str, torch.Tensor]) -> None:
        for name in names:
            batch[name] = batch[name][:, :-by]

    return cut


def _cut_from_the_left(by: int) -> Callable[[dict[str, torch.Tensor]], None]:
    def cut(batch: dict[str, torch.Tensor]) -> None:
        for name in set(batch) - {PERMITTED}:
            batch[name] = batch[name][:, by:]
        batch[PERMITTED] = batch[PERMITTED][:, :-by]

    return cut


def _rows_moved(by: int) -> Callable[[dict[str, torch.Tensor]], None]:
    def move(batch: dict[str, torch.Tensor]) -> None:
        batch[PERMITTED] = batch[PERMITTED].roll(by, 0)

    return move


def _without(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda batch: batch.__delitem__(name)


def _ignoring(number: int) -> Callable[[dict[str, torch.Tensor]], None]:
    """Another number for what is no target."""

    def renumber(batch: dict[str, torch.Tensor]) -> None:
        batch["labels"] = torch.where(batch["labels"] == IGNORE_INDEX, number, batch["labels"])

    return renumber


def _joined(batch: dict[str, torch.Tensor]) -> None:
    for name in ("input_ids", "attention_mask", "labels"):
        batch[name] = batch[name].reshape(1, -1)


def _mirrored(batch: dict[str, torch.Tensor]) -> None:
    batch["labels"] = batch["labels"].flip(1)


def _labels_under_another_name(batch: dict[str, torch.Tensor]) -> None:
    batch["shift_labels"] = batch["labels"]


def faults() -> Iterator[tuple[str, Callable[[dict[str, torch.Tensor]], None]]]:
    yield from (("rebuilt", _rebuilt), ("joined", _joined), ("mirrored", _mirrored))
    yield from ((f"shifted by {by}", _shifted(by)) for by in (-4, -3, -2, -1, 1, 2, 3, 4))
    yield from ((f"one more {seed}", _one_more(seed)) for seed in range(12))
    yield from ((f"another tokenizer {offset}", _of_another_tokenizer(offset)) for offset in (1, 2, 7, 50))
    taught = ("input_ids", "attention_mask", "labels")
    yield from ((f"{number} tokens added", _added(number, taught)) for number in (1, 2, 3, 4))
    yield from ((f"labels cut by {by}", _cut(("labels",), by)) for by in (1, 2, 5))
    yield from ((f"all but permitted cut by {by}", _cut(taught, by)) for by in (1, 3))
    yield from ((f"permitted cut by {by}", _cut((PERMITTED,), by)) for by in (1, 2, 4))
    yield from ((f"cut from the left by {by}", _cut_from_the_left(by)) for by in (1, 2, 3))
    yield from ((f"rows moved by {by}", _rows_moved(by)) for by in (1, 2, 5))
    yield from ((f"without {name}", _without(name)) for name in (PERMITTED, "labels"))
    yield from ((f"ignoring {number}", _ignoring(number)) for number in (-1, 0, PROTECTED))
    yield ("labels shifted already", _labels_under_another_name)


FAULTS = dict(faults())


def test_there_are_a_hundred_faults() -> None:
    assert len(FAULTS) * len(KINDS) >= 100


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_batch_is_refused_before_its_step(name: str, kind: str, batch: dict[str, torch.Tensor]) -> None:
    model = toy_model(kind)
    guard_model(model)
    model.train()
    right = {column: values.clone() for column, values in batch.items()}
    model(**right)
    FAULTS[name](wrong := {column: values.clone() for column, values in batch.items()})
    with pytest.raises(TrainingError):
        model(**wrong)


# ----------------------------------------------------------------------------------------------------- in a trainer


class _OwnLoss(transformers.Trainer):
    """A loss of the logits, from labels that are rebuilt from the inputs."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        logits = model(**inputs).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs["input_ids"][:, 1:].flatten())


class _BesideTheModel(transformers.Trainer):
    """Calls what stands below the guarded model."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        return self.model.transformer(inputs["input_ids"]).last_hidden_state.mean()


@pytest.mark.parametrize("cls", [_OwnLoss, _BesideTheModel])
def test_a_loss_beside_the_models_own_teaches_nothing(cls: Any, tmp_path: Path) -> None:
    trainer = trainer_of("gpt2", tmp_path, cls=cls)
    before = [value.clone() for value in trainer.model.parameters()]
    guard_trainer(trainer)
    with pytest.raises((TrainingError, RuntimeError)):
        trainer.train()
    assert all(torch.equal(one, other) for one, other in zip(before, trainer.model.parameters(), strict=True))


def test_a_collator_of_others_passes_or_is_stopped(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))

    def keeps(rows: list[dict[str, Any]]) -> Any:
        padded = transformers.DataCollatorForTokenClassification(tokenizer)
        return padded(
            [
                {name: np.asarray(row[name]).tolist() for name in ("input_ids", "attention_mask", "labels")}
                for row in rows
            ]
        )

    rebuilds = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)

    def anew(rows: list[dict[str, Any]]) -> Any:
        return rebuilds([{"input_ids": np.asarray(row["input_ids"]).tolist()} for row in rows])

    good = trainer_of("gpt2", tmp_path, collator=carried(keeps))
    guard_trainer(good)
    good.train()
    for collator in (carried(anew), anew):
        bad = trainer_of("gpt2", tmp_path, collator=collator)
        guard_trainer(bad)
        with pytest.raises(TrainingError):
            bad.train()


def test_what_cannot_be_watched_or_handed_out_is_refused(tmp_path: Path) -> None:
    (pushing := trainer_of("gpt2", tmp_path)).args.push_to_hub = True
    with pytest.raises(PolicyError, match="push_to_hub: nobody has judged"):
        guard_trainer(pushing)
    with pytest.raises(PolicyError, match="label_smoother"):
        guard_trainer(trainer_of("gpt2", tmp_path, label_smoothing_factor=0.1))
    with pytest.raises(PolicyError, match="dataset"):
        ProtectedCollator(datasets.Dataset.from_dict({"input_ids": [[1]]}))
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    with pytest.raises(PolicyError, match="rewritten"):
        protected_dataset(STORE, replace(get_recipe("ppclm"), context="surrogate"), tokenizer)
    with pytest.raises(PolicyError, match="DP-SGD"):
        protected_dataset(STORE, get_recipe("dp-clm"), tokenizer)
    dataset = dataset_of("gpt2")
    with pytest.raises(TrainingError, match="window"):
        ProtectedCollator(dataset)([{"input_ids": [1, 2]}])
    other = protected_dataset(random_store(30, length=9, last_id=300), get_recipe("ppclm"), tokenizer)
    with pytest.raises(TrainingError, match="rows of joined datasets"):
        ProtectedCollator(dataset)([datasets.concatenate_datasets([dataset, other])[len(dataset)]])


def test_evaluation_is_not_checked_and_teaches_nothing_and_the_guard_comes_off(
    batch: dict[str, torch.Tensor], kind: str
) -> None:
    model = toy_model(kind)
    guard = guard_model(model)
    model.eval()  # as from_pretrained gives a model
    found = model(input_ids=batch["input_ids"], labels=batch["input_ids"], permitted=batch[PERMITTED])
    assert not found.loss.requires_grad
    assert not found.logits.requires_grad
    assert not model(input_ids=batch["input_ids"], return_dict=False)[0].requires_grad
    guard.release()
    model.train()
    assert model(input_ids=batch["input_ids"]).logits.requires_grad


def test_trl_trains_on_protected_rows_and_is_guarded(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="needs TRL: make test-trainers")
    dataset = dataset_of("gpt2")
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], save_strategy="no", max_steps=2, bf16=False,
        dataset_kwargs={"skip_prepare_dataset": True}, remove_unused_columns=False, disable_tqdm=True,
    )  # fmt: skip
    tokenizer = load_tokenizer(toy_tokenizer("gpt2"))
    trainer = trl.SFTTrainer(
        toy_model("gpt2"), arguments, train_dataset=dataset, data_collator=ProtectedCollator(dataset),
        processing_class=tokenizer,
    )  # fmt: skip
    guard = guard_trainer(trainer)
    trainer.train()
    assert guard.batches == 2
    assert sum(row["targets"] for row in guard.counts().values()) > 0


def test_trl_packs_rows_whose_individuals_stay_apart_and_stops_where_it_drops_the_column(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="needs TRL: make test-trainers")
    dataset, names = dataset_of("gpt2"), ("input_ids", "labels", PERMITTED, TOKEN_INDEX)
    rows = [{name: np.asarray(row[name]).tolist() for name in names} for row in dataset]

    def trainer_with(rows: Any, **options: Any) -> Any:
        arguments = trl.SFTConfig(
            output_dir=str(tmp_path), use_cpu=True, report_to=[], save_strategy="no", num_train_epochs=1, bf16=False,
            packing=True, max_length=32, per_device_train_batch_size=2, remove_unused_columns=False, disable_tqdm=True,
            **options,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            toy_model("gpt2"), arguments, train_dataset=rows, processing_class=load_tokenizer(toy_tokenizer("gpt2"))
        )
        trainer.data_collator = carried(trainer.data_collator)
        return trainer

    packed = trl.pack_dataset(datasets.Dataset.from_list(rows), 32, "bfd")
    assert max(map(len, packed["seq_lengths"])) > 1
    trainer = trainer_with(packed, dataset_kwargs={"skip_prepare_dataset": True})
    model = trainer.model.eval()
    made = next(iter(trainer.get_train_dataloader()))
    given = {name: values for name, values in made.items() if name not in ("labels", PERMITTED, TOKEN_INDEX)}
    logits = model(**given).logits[0]
    bounds = [*(made["position_ids"][0] == 0).nonzero().flatten().tolist(), made["input_ids"].shape[1]]
    assert len(bounds) > 3
    for start, end in itertools.pairwise(bounds):
        alone = model(input_ids=made["input_ids"][:, start:end]).logits[0]
        assert torch.allclose(logits[start:end], alone, atol=1e-5)
    guard = guard_trainer(trainer)
    trainer.train()
    (row,) = guard.counts().values()
    guard.write(tmp_path / "packed.json")
    verdict = verify_guarded(tmp_path / "packed.json", dataset)
    assert verdict.holds
    assert verdict.counts == {**row, "targets": row["targets"]}
    assert row["targets"] == sum(label != IGNORE_INDEX for row in rows for label in row["labels"])
    assert row["protected"] == int((STORE.flags & 3 != 0).sum())
    dropped = trainer_with(datasets.Dataset.from_list(rows))  # TRL's own preparation keeps two columns
    guard_trainer(dropped)
    with pytest.raises(TrainingError, match="no column"):
        dropped.train()


@pytest.mark.parametrize("quantised", [False, True], ids=["LoRA", "QLoRA"])
def test_adapters_on_whole_and_on_quantised_weights_are_guarded(quantised: bool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs reticent[dp]")
    options: dict[str, Any] = {}
    if quantised:
        pytest.importorskip("bitsandbytes", reason="QLoRA needs bitsandbytes")
        options["quantization_config"] = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    config = transformers.LlamaConfig(
        vocab_size=330, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "base", **options)
    if quantised:
        model = peft.prepare_model_for_kbit_training(model)
        assert model.model.layers[0].mlp.up_proj.weight.dtype == torch.uint8
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]))
    trainer = trainer_of("gpt2", tmp_path, model=model)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    guard = guard_trainer(trainer)
    trainer.train()
    moved = {name for name, value in model.named_parameters() if not torch.equal(before[name], value)}
    assert moved
    assert all("lora_" in name for name in moved)
    made = trainer.data_collator([trainer.train_dataset[number] for number in range(8)])
    _rebuilt(made)
    with pytest.raises(TrainingError, match="protected tokens are targets"):
        trainer.training_step(model, made)
    assert sum(row["targets"] for row in guard.counts().values()) > 0


def test_rows_in_one_without_positions_of_their_own_are_refused() -> None:
    rows = [{"input_ids": [1, 2, 3], PERMITTED: [-100, 2, PROTECTED]}, {"input_ids": [4, 5], PERMITTED: [-100, 5]}]

    def flat(positions: list[int] | None) -> Any:
        made = {"input_ids": torch.tensor([[1, 2, 3, 4, 5]])}
        return lambda _: {**made, **({} if positions is None else {"position_ids": torch.tensor([positions])})}

    assert carried(flat([0, 1, 2, 0, 1]))(rows)[PERMITTED].tolist() == [[-100, 2, PROTECTED, -100, 5]]
    for mixed in (None, [0, 1, 2, 3, 4]):
        with pytest.raises(TrainingError, match="keep them apart"):
            carried(flat(mixed))(rows)


#: Two guarded trainers in each of two processes: the first trains twice, and of the second one process teaches a
#: protected token.
TWO = """
import sys
from pathlib import Path
import torch
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import random_store
from reticent.core.errors import TrainingError
from reticent.trainer.models import load_tokenizer
from reticent.trainer.recipes import get_recipe
from reticent.trainers import PERMITTED, PROTECTED, ProtectedCollator, guard_trainer, protected_dataset
from transformers import Trainer, TrainingArguments

torch.set_num_threads(1)
out = Path(sys.argv[1])
store, tokenizer = random_store(40, length=12, last_id=300), load_tokenizer(toy_tokenizer("gpt2"))
dataset = protected_dataset(store, get_recipe("ppclm"), tokenizer, window_length=32)
dataset = dataset.select(range(len(dataset) // 8 * 8))
right = ProtectedCollator(dataset)

def wrong(rows):
    made = right(rows)
    if trainer.args.process_index == 1:
        made["labels"][made[PERMITTED] == PROTECTED] = 7
    return made

for name, collator in (("right", right), ("wrong", wrong)):
    arguments = TrainingArguments(
        output_dir=str(out), use_cpu=True, report_to=[], save_strategy="no", num_train_epochs=2, disable_tqdm=True,
        per_device_train_batch_size=4, ddp_backend="gloo",
    )
    trainer = Trainer(toy_model("gpt2"), arguments, train_dataset=dataset, data_collator=collator)
    guard_trainer(trainer, ledger=out / f"{name}.json")
    trainer.train()
    trainer.train()
    (out / f"{name}-{trainer.args.process_index}-of-{trainer.args.world_size}").touch()
"""


@pytest.mark.slow
def test_two_processes_of_accelerate_launch_are_guarded_and_counted_together(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    # Without --multi_gpu it starts one process; the script asks for CPUs.
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*launch, str(tmp_path / "two.py"), str(tmp_path)], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert sorted(path.name for path in tmp_path.glob("*-of-*")) == ["right-0-of-2", "right-1-of-2"], done.stderr
    assert done.returncode != 0
    assert "protected tokens are targets in a batch; stopped before its step" in done.stderr
    said = json.loads((tmp_path / "right.json").read_text())
    dataset = dataset_of("gpt2")
    trainer = trainer_of(
        "gpt2", tmp_path, dataset=dataset.select(range(len(dataset) // 8 * 8)), per_device_train_batch_size=4
    )
    guard_trainer(trainer, ledger=tmp_path / "one.json")
    trainer.train()
    trainer.train()
    one = json.loads((tmp_path / "one.json").read_text())
    assert len(said.pop("processes")) == 2
    assert len(one.pop("processes")) == 1
    assert said == one
    proofs = [verify_guarded(tmp_path / name, dataset) for name in ("right.json", "one.json")]
    assert proofs[0].holds
    assert proofs[0] == proofs[1]
    assert not (tmp_path / "wrong.json").exists()


def stubs(name: str) -> dict[str, MagicMock]:
    """What stands for a package that is not here, under the names by which transformers' integration imports it."""
    stub = MagicMock(__spec__=ModuleSpec(name, None), __version__="3.0.0", run=None)
    stub.utils.validation.MAX_PARAM_VAL_LENGTH, stub.utils.validation.MAX_PARAMS_TAGS_PER_BATCH = 6000, 100
    stub.init.side_effect = lambda **_: setattr(stub, "run", MagicMock())
    below = MagicMock(ConfigError=ValueError)
    return {name: stub, **dict.fromkeys(("wandb.sdk", "wandb.sdk.lib", "wandb.sdk.lib.config_util"), below)}


@pytest.mark.parametrize("to", ["tensorboard", "mlflow", "wandb"])
def test_what_transformers_reports_elsewhere_has_our_counts_and_no_text(
    to: str, hospital_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if to == "tensorboard":
        pytest.importorskip("tensorboard", reason="needs reticent[track]")
    for name, stub in stubs(to).items() if to != "tensorboard" else ():
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    dataset = hospital_run.dataset("ppmlm")
    trainer = trainer_of("bert", tmp_path, dataset=dataset, report_to=[to], logging_steps=1)
    guard_trainer(trainer, ledger=tmp_path / "ledger.json")
    trainer.train()
    targets = [row["targets"] for row in json.loads((tmp_path / "ledger.json").read_text())["epochs"]]
    assert min(targets) > 0
    if to == "tensorboard":
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path / "events"))
        events.Reload()
        assert [event.value for event in events.Scalars("train/guard_targets")] == targets
        sent = b"".join(file.read_bytes() for file in (tmp_path / "events").iterdir()).decode(errors="replace")
    else:
        calls = sys.modules[to].mock_calls
        key = {"mlflow": "guard_targets", "wandb": "train/guard_targets"}[to]
        logged = [call.kwargs.get("metrics") or (call.args or [None])[0] for call in calls]
        found = [values[key] for values in logged if isinstance(values, dict) and key in values]
        assert found == targets
        sent = repr(calls)
    corpus = hospital_run.corpus
    texts = [batch.to_pylist() for batch in corpus.batches()]
    for row in (row for rows in texts for row in rows):
        assert not any(re.search(rf"\b{re.escape(row[name])}\b", sent) for name in ("doc_id", "individual_id"))
        assert not any(row["text"][place : place + 20] in sent for place in range(0, len(row["text"]) - 20, 10))


@pytest.fixture(scope="module")
def hospital_values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("hospital")
    hospital = make_hospital(folder, 24)
    base = write_toy_model(hospital / "bert")
    values = changed(values_of(hospital, folder / "run"), model__base=str(base))
    values["train"] = {"window_length": 32}
    return values


@pytest.fixture(scope="module")
def hospital_run(hospital_values: dict[str, Any]) -> Run:
    execute(Run(parse_job(hospital_values)), "protect")
    return Run(parse_job(hospital_values))


def test_a_run_gives_the_tokens_that_its_job_asks_for_and_no_older_ones(
    hospital_values: dict[str, Any], hospital_run: Run, tmp_path: Path
) -> None:
    values = hospital_values
    assert max(map(len, hospital_run.dataset("ppmlm")[:]["input_ids"])) == 32
    (tmp_path / "gone.txt").write_text(
        pq.read_table(next((hospital_run.folder / "split").glob("*.parquet")))["individual_id"][0].as_py()
    )
    withdrawn = changed(values, corpus__withdrawn=[str(tmp_path / "gone.txt")])
    for newer in (changed(values, out=str(tmp_path / "new")), changed(values, protect__k=5), withdrawn):
        with pytest.raises(ArtifactError, match="until protect"):
            Run(parse_job(newer)).dataset("ppmlm")


def test_a_guarded_training_on_a_run_is_verified_by_a_command(
    hospital_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trainer_of("bert", tmp_path, dataset=hospital_run.dataset("ppmlm"))
    guard_trainer(trainer, ledger=tmp_path / "ledger.json")
    trainer.train()
    capsys.readouterr()
    assert command("train", hospital_run.folder, "--verify", tmp_path / "ledger.json", "--json", "-q") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["holds"]
    assert said["recipe"] == "ppmlm"
    assert said["drawn"]["violations"] == 0 < said["drawn"]["targets"]
    assert "flags checked against the text" in said["flags"]
    content = json.loads((tmp_path / "ledger.json").read_text())
    content["processes"][0]["checksum"] = "0" * 16
    (tmp_path / "changed.json").write_text(json.dumps(content))
    assert command("train", hospital_run.folder, "--verify", tmp_path / "changed.json", "-q") == 1
    assert "does NOT hold" in capsys.readouterr().out
    content["protection"] = "0" * 64
    (tmp_path / "changed.json").write_text(json.dumps(content))
    assert command("train", hospital_run.folder, "--verify", tmp_path / "changed.json", "-q") == 1
    assert "no tokens of" in capsys.readouterr().err
    del content["recipe"]
    (tmp_path / "changed.json").write_text(json.dumps(content))
    assert command("train", hospital_run.folder, "--verify", tmp_path / "changed.json", "-q") == 1
    assert "names no recipe" in capsys.readouterr().err


def test_a_dataset_is_read_as_documents_with_its_filter_and_selection() -> None:
    notes = [f"note {number}" for number in range(10)]
    rows = {"doc_id": list("abcdefghij"), "individual_id": list("aabbccddee"), "text": notes}
    dataset = datasets.Dataset.from_dict(rows).filter(lambda row: row["individual_id"] != "b").select([5, 0, 1])
    texts = [text for batch in reticent.open_corpus(dataset).batches() for text in batch["text"].to_pylist()]
    assert texts == ["note 7", "note 0", "note 1"]
    with pytest.raises(CorpusError, match="IterableDataset: a stream"):
        reticent.open_corpus(dataset.to_iterable_dataset())
