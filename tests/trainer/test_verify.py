"""The ledger is proven offline: what was trained is drawn again, and whatever was changed is found."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.models import toy_model, toy_tokenizer
from fixtures.stores import random_store

from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.labels import fingerprint_protection
from reticent.trainer.ledger import Ledger
from reticent.trainer.loop import train
from reticent.trainer.recipes import Recipe, custom_recipe, get_recipe
from reticent.trainer.verify import read_ledger, verify_ledger

pytestmark = pytest.mark.usefixtures("one_thread")

OWN = {
    "ppmlm": get_recipe("ppmlm"),
    "ppclm": get_recipe("ppclm"),
    "goldfish": custom_recipe("goldfish-3", "ippclm", {"goldfish_k": 3, "goldfish_h": 2}),
    "split": custom_recipe("split", "dppmlm", {"mask_split": [0.5, 0.25, 0.25], "freeze_embeddings": True}),
    "tag": custom_recipe("tagged", "ippclm", {"context": "tag"}),
}
STORE = random_store(14, length=8, protected=0.3, last_id=300)


def trained(recipe: Recipe, out: Path, *, settings: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    kind = "bert" if recipe.objective == "mlm" else "gpt2"
    values: dict[str, Any] = {"num_epochs": 2, "batch_size": 4, "window_length": 16, "checkpoint_epochs": ()}
    config = TrainConfig(**{**values, "device": "cpu", "seed": 5, **(settings or {})})
    train(toy_model(kind), STORE, recipe, config, out, tokenizer=toy_tokenizer(kind), **options)
    return read_ledger(out / "ledger.json")


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return {name: trained(recipe, tmp_path_factory.mktemp(name)) for name, recipe in OWN.items()}


@pytest.mark.parametrize("name", OWN)
def test_a_ledger_as_it_was_written_holds(name: str, ledgers: dict[str, dict[str, Any]]) -> None:
    verdict = verify_ledger(ledgers[name], STORE, OWN[name])
    assert verdict.mismatches == []
    assert verdict.counts == {key: ledgers[name][key] for key in ("eligible", "protected", "targets", "violations")}
    assert verdict.counts["targets"] > 20
    assert verdict.counts["protected"] > 20
    assert ledgers[name]["recipe"] == OWN[name].to_dict()


@pytest.mark.parametrize("settings", [{"packing": True}, {"gradient_accumulation_steps": 2}])
@pytest.mark.parametrize("name", ["ppmlm", "ppclm"])
def test_how_windows_were_packed_and_steps_made_changes_no_ledger(
    name: str, settings: dict[str, Any], ledgers: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    content = trained(OWN[name], tmp_path, settings=settings)
    assert verify_ledger(content, STORE, OWN[name]).mismatches == []
    assert content["epochs"] == ledgers[name]["epochs"]


def changed(store: TokenStore, name: str, at: int, value: int) -> TokenStore:
    column = getattr(store, name).copy()
    assert column[at] != value
    column[at] = value
    return store.with_columns(**{name: column})


FREE = int(np.flatnonzero(STORE.flags == 0)[3])
BOUND = int(np.flatnonzero(STORE.flags == 2)[3])


@pytest.mark.parametrize("name", ["ppmlm", "ppclm", "goldfish"])
@pytest.mark.parametrize(
    ("column", "at", "value"),
    [("flags", FREE, 2), ("flags", BOUND, 0), ("input_ids", FREE, 299), ("input_ids", 0, 299)],
)
def test_other_tokens_or_flags_are_found(
    name: str, column: str, at: int, value: int, ledgers: dict[str, dict[str, Any]]
) -> None:
    verdict = verify_ledger(ledgers[name], changed(STORE, column, at, value), OWN[name])
    assert sum("the tokens, their flags or what is protected" in line for line in verdict.mismatches) == 2  # epochs


@pytest.mark.parametrize("name", ["ppmlm", "ppclm"])
@pytest.mark.parametrize("count", ["eligible", "protected", "targets", "violations", "digest", "protection"])
def test_a_count_of_one_epoch_that_was_changed_is_found(
    name: str, count: str, ledgers: dict[str, dict[str, Any]]
) -> None:
    content = copy.deepcopy(ledgers[name])
    row = content["epochs"][1]
    row[count] = row[count] + 1 if isinstance(row[count], int) else row[count][::-1]
    verdict = verify_ledger(content, STORE, OWN[name])
    assert any(line.startswith("epoch 2") for line in verdict.mismatches)


@pytest.mark.parametrize("name", ["ppmlm", "ppclm"])
@pytest.mark.parametrize("count", ["eligible", "protected", "targets", "violations"])
def test_a_total_that_was_changed_is_found(name: str, count: str, ledgers: dict[str, dict[str, Any]]) -> None:
    verdict = verify_ledger({**ledgers[name], count: 7}, STORE, OWN[name])
    assert verdict.mismatches


@pytest.mark.parametrize("name", OWN)
def test_another_seed_is_found(name: str, ledgers: dict[str, dict[str, Any]]) -> None:
    content = copy.deepcopy(ledgers[name])
    content["settings"]["seed"] = 6
    assert any("digest" in line for line in verify_ledger(content, STORE, OWN[name]).mismatches)
    verdict = verify_ledger(ledgers[name], STORE, OWN[name], settings={"seed": 6})
    assert verdict.mismatches == ["setting seed: the ledger says 5, the run 6"]


@pytest.mark.parametrize(("name", "setting", "value"), [("ppmlm", "mask_share", 0.5), ("ppmlm", "window_length", 8)])
def test_other_settings_are_found(name: str, setting: str, value: Any, ledgers: dict[str, dict[str, Any]]) -> None:
    content = copy.deepcopy(ledgers[name])
    content["settings"][setting] = value
    assert len(verify_ledger(content, STORE, OWN[name]).mismatches) >= 2


@pytest.mark.parametrize(
    ("name", "other"),
    [("ppclm", "dppclm"), ("ppclm", "clm"), ("ppmlm", "mlm"), ("goldfish", "ippclm"), ("tag", "ppclm")],
)
def test_another_recipe_is_found(name: str, other: str, ledgers: dict[str, dict[str, Any]]) -> None:
    verdict = verify_ledger(ledgers[name], STORE, get_recipe(other))
    assert any(line.startswith("recipe's name") for line in verdict.mismatches)
    assert name in ("tag",) or any(line.startswith("epoch 1") for line in verdict.mismatches)


def test_a_missing_epoch_is_found(ledgers: dict[str, dict[str, Any]]) -> None:
    content = copy.deepcopy(ledgers["ppclm"])
    del content["epochs"][0]
    assert any("the ledger has 1 of the 2" in line for line in verify_ledger(content, STORE, OWN["ppclm"]).mismatches)


def test_tokens_that_change_each_epoch_are_proven_epoch_by_epoch(tmp_path: Path) -> None:
    recipe = custom_recipe("fresh", "ippclm", {"context": "surrogate"})

    def tokens(epoch: int) -> TokenStore:
        return random_store(10 + epoch, length=8, seed=epoch)

    content = trained(recipe, tmp_path, epoch_store=tokens)
    assert verify_ledger(content, tokens, recipe).holds
    assert len({row["protection"] for row in content["epochs"]}) == 2
    other = verify_ledger(content, lambda epoch: tokens(min(epoch, 1)), recipe).mismatches
    assert other
    assert all(line.startswith("epoch 2") for line in other)


def test_fingerprint_of_a_protection_is_of_tokens_words_flags_and_what_the_recipe_protects() -> None:
    kept = fingerprint_protection(STORE, OWN["ppclm"])
    assert fingerprint_protection(random_store(14, length=8, protected=0.3, last_id=300), get_recipe("ppmlm")) == kept
    others = [
        fingerprint_protection(changed(STORE, "flags", FREE, 1), OWN["ppclm"]),
        fingerprint_protection(changed(STORE, "input_ids", 0, 299), OWN["ppclm"]),
        fingerprint_protection(changed(STORE, "word_ids", 0, -1), OWN["ppclm"]),
        fingerprint_protection(STORE, get_recipe("ippclm")),
    ]
    assert len({kept, *others}) == 5


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"format": "reticent.ledger/1"}', b'{"format": "reticent.ledger/9"}']
)
def test_a_file_that_is_no_ledger_is_an_artifact_error_with_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"ledger\.json"):
        read_ledger(tmp_path / "ledger.json")
    with pytest.raises(ArtifactError, match="nowhere"):
        read_ledger(tmp_path / "nowhere.json")


def test_ledgers_of_processes_and_of_a_run_that_goes_on_add_up() -> None:
    parts = [Ledger(), Ledger()]
    for number, ledger in enumerate(parts):
        for epoch in (1, 2):
            ledger.begin_epoch(epoch, f"p{epoch}")
            ledger.check(np.array([[7, -100]]), np.array([[False, True]]), 1, epoch=epoch, digest=2**64 - 1 - number)

    def add(*numbers: float) -> list[float]:
        return [2.0 * n if n < 2**32 - 2 else n + n - 1 for n in numbers]  # the other process has a digest one smaller

    total = parts[0].summed(add)
    assert total.to_dict() == {"eligible": 4, "protected": 4, "targets": 4, "violations": 0}
    assert [row["digest"] for row in total.epochs.values()] == [(2 * (2**64 - 1) - 2**32 - 1) & (2**64 - 1)] * 2
    again = Ledger.from_states(json.loads(json.dumps(total.state())))
    assert again.epochs == total.epochs
    assert again == total


def test_a_private_recipe_without_its_settings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"train\.dp"):
        trained(get_recipe("dp-clm"), tmp_path)


def test_verifying_imports_no_torch() -> None:
    code = "import sys, reticent.job.training_tokens, reticent.trainer.verify; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
