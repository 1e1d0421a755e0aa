"""Export: named files and nothing else; a model folder that is whole or not there."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.models import toy_model, toy_tokenizer
from fixtures.small_files import files_of_at_most
from huggingface_hub import ModelCard

from reticent.core.errors import ArtifactError
from reticent.trainer.export import ALLOWED, export_model, write_card, write_model
from reticent.trainer.models import load_model, load_tokenizer
from reticent.trainer.recipes import RECIPES, custom_recipe, get_recipe

SECRET = b"Zyxwvut was seen on 3 May"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as training leaves it."""
    return write(tmp_path_factory.mktemp("pristine") / "model")


@pytest.fixture
def model(pristine: Path, tmp_path: Path) -> Path:
    """A model folder of one's own."""
    folder = tmp_path / "model"
    folder.mkdir(mode=0o700)
    for path in pristine.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


def write(folder: Path, *, recipe: str = "ppclm", epoch: int = 1, seed: int = 0, network: Any = None) -> Path:
    network = network if network is not None else toy_model("gpt2", seed=seed)
    write_model(network, load_tokenizer(toy_tokenizer("gpt2")), folder, recipe=get_recipe(recipe), epoch=epoch)
    return folder


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ------------------------------------------------------------------ what is copied


def test_the_allow_list_is_frozen() -> None:
    assert ALLOWED == (
        "config.json",
        "generation_config.json",
        "*.safetensors",
        "*.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "README.md",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    )


def test_a_model_folder_is_exported_whole(model: Path, tmp_path: Path) -> None:
    assert export_model(model, tmp_path / "out") == []
    assert contents(tmp_path / "out") == contents(model)
    assert load_model(tmp_path / "out", "clm").config.model_type == "gpt2"
    assert len(load_tokenizer(tmp_path / "out")) > 0


def test_every_file_that_training_writes_may_leave(pristine: Path) -> None:
    assert {path.name for path in pristine.iterdir()} == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


EXTRAS = [
    "pytorch_model.bin", "optimizer.pt", "training_args.bin", "model.pkl", "shard-00000.arrow", "spans.parquet",
    "words.parquet", "ledger.json", "metrics.jsonl", "manifest.json", "audit.json", "individuals.parquet",
    "text_sizes.parquet", ".hidden", "config.json.bak", "tokenizer.json~", "modeling_custom.py", "chat_template.jinja",
    "notes.txt", "model.safetensors.tmp", "added_tokens.json",
]  # fmt: skip


def test_files_that_are_not_on_the_list_are_left_behind_and_reported(model: Path, tmp_path: Path) -> None:
    for name in EXTRAS:
        (model / name).write_bytes(pickle.dumps(SECRET) if name.endswith(("bin", "pkl")) else SECRET)
    (model / "tokens").mkdir()
    (model / "tokens" / "config.json").write_bytes(SECRET)
    (model / "special_tokens_map.json").write_text("{}")
    (model / "model-00001-of-00002.safetensors").write_bytes(b"")
    (model / "model.safetensors.index.json").write_text("{}")
    left = export_model(model, tmp_path / "out")
    assert left == sorted([*EXTRAS, "tokens"])
    kept = contents(tmp_path / "out")
    assert kept.keys() == contents_of_files(model).keys() - set(EXTRAS)
    assert {
        "special_tokens_map.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    } <= kept.keys()
    assert all(SECRET not in data for data in kept.values())


def contents_of_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_link_is_not_followed(model: Path, tmp_path: Path) -> None:
    secret = tmp_path / "spans.parquet"
    secret.write_bytes(SECRET)
    (model / "README.md").unlink()
    (model / "README.md").symlink_to(secret)
    (model / "extra.safetensors").symlink_to(secret)
    (model / "special_tokens_map.json").symlink_to(tmp_path / "nowhere")
    assert export_model(model, tmp_path / "out") == ["README.md", "extra.safetensors", "special_tokens_map.json"]
    assert all(SECRET not in data for data in contents(tmp_path / "out").values())
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_without_a_model_or_whose_model_is_a_link_is_refused(
    name: str, linked: bool, model: Path, tmp_path: Path
) -> None:
    (model / name).rename(tmp_path / name)
    if linked:
        (model / name).symlink_to(tmp_path / name)
    else:
        (model / "pytorch_model.bin").write_bytes(pickle.dumps(SECRET))  # pickles are no model here
    for folder in (model, tmp_path / "nowhere"):
        with pytest.raises(ArtifactError, match="not a model folder"):
            export_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_place_that_holds_something_is_refused_and_left_as_it_was(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("two years of work")
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("out", "file", "link"):
        with pytest.raises(ArtifactError, match=f"{name}: a file, a link to no folder, or not empty"):
            export_model(model, tmp_path / name)
    assert contents(tmp_path / "out") == {"thesis.txt": b"two years of work"}
    assert (tmp_path / "file").read_text() == "a file"


def test_a_disk_that_fills_up_leaves_no_part_of_a_model(model: Path, tmp_path: Path) -> None:
    with files_of_at_most(1000), pytest.raises(ArtifactError, match=r"out: not written \(File too large\)$"):
        export_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_place_is_filled(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert export_model(str(model), str(tmp_path / "out")) == []
    assert contents(tmp_path / "out") == contents(model)


def test_exported_files_are_private_whatever_the_umask_and_the_source(model: Path, tmp_path: Path) -> None:
    for path in model.iterdir():
        path.chmod(0o666)
    before = os.umask(0)
    try:
        export_model(model, tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert modes(tmp_path / "out") == {0o600}


# ------------------------------------------------------------------ what is written


def test_a_written_model_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "model")
    finally:
        os.umask(before)
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o700
    assert modes(tmp_path / "model") == {0o600}


def test_a_written_model_holds_safetensors_and_no_pickle(pristine: Path) -> None:
    assert [path.name for path in pristine.iterdir() if path.suffix in {".bin", ".pt", ".pkl", ".pth"}] == []
    data = (pristine / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert b"transformer.wte.weight" in data[8 : 8 + length]


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_the_card_says_what_the_recipe_meant(recipe: str, tmp_path: Path) -> None:
    card = (write(tmp_path / "model", recipe=recipe, epoch=8) / "README.md").read_text()
    says = {
        "Trained without protection": recipe in ("mlm", "clm", "goldfish"),
        "differentially private": RECIPES[recipe].private,
        "replaced by X": RECIPES[recipe].text == "pseudonymised",
        "as direct identifiers or indirect identifiers were context": RECIPES[recipe].never_target == 3,
        "as direct identifiers were context": recipe in ("dppmlm", "dppclm"),
        "as indirect identifiers were context": recipe.startswith("ip"),
        "Those of direct identifiers were targets": recipe.startswith("ip"),
        "Those of indirect identifiers were targets": recipe in ("dppmlm", "dppclm"),
        "never a prediction target": RECIPES[recipe].never_target > 0,
    }
    assert {text: text in card for text in says} == says
    assert f"`{recipe}`, after 8 epochs" in card
    assert "not shown to be safe to share" in card
    assert ModelCard(card).data.to_dict() == {"library_name": "transformers", "tags": ["reticent", recipe]}


def test_the_card_of_a_recipe_that_replaces_rare_words_alone_says_that_it_protects(tmp_path: Path) -> None:
    recipe = custom_recipe("blank", "clm", {"context_indirect": "tag"})
    write_model(toy_model("gpt2"), load_tokenizer(toy_tokenizer("gpt2")), tmp_path / "model", recipe=recipe, epoch=8)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "Trained without protection" not in card
    assert "never a prediction target" in card


def test_the_card_of_a_recipe_that_reads_x_does_not_say_that_direct_identifiers_were_targets(tmp_path: Path) -> None:
    recipe = custom_recipe("x", "clma", {"never_target": ["indirect"]})
    write_model(toy_model("gpt2"), load_tokenizer(toy_tokenizer("gpt2")), tmp_path / "model", recipe=recipe, epoch=8)
    card = (tmp_path / "model" / "README.md").read_text()
    assert "as indirect identifiers were context" in card
    assert "replaced by X" in card
    assert "like any other" not in card


def test_the_head_of_a_card_is_yaml_whatever_the_recipe_is_called(tmp_path: Path) -> None:
    write_card(tmp_path, "# Card\n", tags=["no", "a: b"])
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.tags == ["reticent", "no", "a: b"]
    assert card.text.strip() == "# Card"


def test_an_old_model_is_replaced_whole(tmp_path: Path) -> None:
    write(tmp_path / "model", recipe="clm", seed=1)
    (tmp_path / "model" / "special_tokens_map.json").write_text("{}")  # of the old one only
    old = contents(tmp_path / "model")
    write(tmp_path / "model", recipe="ppclm", seed=2)
    new = contents(tmp_path / "model")
    assert "special_tokens_map.json" not in new
    assert new["model.safetensors"] != old["model.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_error_in_the_middle_leaves_what_was_there(
    error: type[BaseException], is_first: bool, tmp_path: Path
) -> None:
    if not is_first:
        write(tmp_path / "model", seed=1)
    old = {} if is_first else contents(tmp_path / "model")
    network = toy_model("gpt2", seed=2)
    save = network.save_pretrained

    def fail(folder: Path, **options: Any) -> None:
        save(folder, **options)
        raise error

    network.save_pretrained = fail
    with pytest.raises(error):
        write(tmp_path / "model", network=network)
    assert [path.name for path in tmp_path.iterdir()] == ([] if is_first else ["model"])
    assert is_first or contents(tmp_path / "model") == old


def test_an_error_between_the_renames_brings_the_old_model_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model", seed=1)
    old = contents(tmp_path / "model")
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if ".tmp-" in self.name:
            raise OSError("disk went away")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="disk went away"):
        write(tmp_path / "model", seed=2)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert contents(tmp_path / "model") == old


def killed(action: Callable[[], object]) -> int:
    """Run ``action`` in a child, which is to kill itself; returns the signal that ended it."""
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # whatever happens, it ends
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("place", "expected"), [("saving", "old"), ("removing", "new")])
def test_a_kill_leaves_a_whole_model_old_or_new(
    place: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model", seed=1)
    (tmp_path / "model" / "mark").write_text("old")
    network = toy_model("gpt2", seed=2)
    if place == "saving":
        network.save_pretrained = kill
    else:
        monkeypatch.setattr(shutil, "rmtree", kill)  # whatever is removed, is removed last
    assert killed(lambda: write(tmp_path / "model", network=network)) == -signal.SIGKILL
    monkeypatch.undo()
    assert load_model(tmp_path / "model", "clm").config.model_type == "gpt2"
    assert (tmp_path / "model" / "mark").exists() == (expected == "old")
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["model"]
