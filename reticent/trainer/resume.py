"""The saved state of a training: one private safetensors file, replaced atomically, bound to settings, tokens and
model.

It holds everything that the next step needs and that cannot be computed again: the trained weights, the optimizer's
moments and, as JSON in the file's header, the position in the epoch, the ledger and the losses so far. Data order,
masks, dropout and learning rate are functions of (seed, epoch, step), so it needs no state of a random generator.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from reticent.core.artifact import STATE, locked, make_private_folder, sync, write_failure
from reticent.core.errors import ArtifactError
from reticent.core.json_toml import parse_json
from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World, like, whole
from reticent.trainer.export import recover_checkpoints
from reticent.trainer.ledger import Ledger
from reticent.trainer.recipes import Recipe

#: The lock of a training is ``.training.lock`` in its folder.
LOCK = "training"
#: Settings of monitoring and placement, which do not change the results.
UNBOUND = (
    "device", "save_steps", "logging_steps", "report_to", "gradient_accumulation_steps", "gradient_checkpointing",
    "fsdp",
)  # fmt: skip


@dataclass(slots=True)
class State:
    """The position of a training: ``done`` planned steps of ``epoch`` are finished; ``step`` steps were taken in total,
    ``first_step`` of them before this epoch."""

    epoch: int = 1
    done: int = 0
    step: int = 0
    first_step: int = 0
    epoch_loss: float = 0.0
    epoch_targets: int = 0
    num_filled: int = 0
    num_cells: int = 0
    losses: list[float] = field(default_factory=list)
    #: Losses on ordinary words of held-out individuals, by epoch.
    eval_losses: list[float] = field(default_factory=list)
    eval_targets: int = 0
    #: Where the training ended, which may have been before its last epoch; see `TrainResult`.
    ended: dict[str, float] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    num_tokens: int = 0
    seconds: float = 0.0
    checkpoints: list[int] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    private: dict[str, str] = field(default_factory=dict)

    def begin_epoch(self) -> None:
        """Move to the next epoch: increase its number, and set the epoch's counts and loss to 0."""
        self.epoch, self.done, self.epoch_loss, self.epoch_targets = self.epoch + 1, 0, 0.0, 0
        self.num_filled = self.num_cells = 0
        self.first_step = self.step


def identity_of(
    model: torch.nn.Module, store: TokenStore, recipe: Recipe, config: TrainConfig, num_processes: int, more: Any = None
) -> dict[str, Any]:
    """Return the settings and digests (of recipe, tokens and weights), as JSON values, that must equal those of a saved
    state for it to be resumed. Cost: one pass over the weights and the tokens."""
    unbound = UNBOUND if recipe.is_causal else (*UNBOUND, "end_of_text")
    settings = {name: value for name, value in config.of_one_training().items() if name not in unbound}
    settings["batches_a_step"] = config.gradient_accumulation_steps * num_processes
    identity = {"settings": settings, "recipe": recipe.to_dict(), "tokens": tokens_digest(store)}
    identity |= {"model": _weights_digest(model), "train.dp": more}
    return json.loads(json.dumps(identity, default=str))


class StateWriter:
    """Writes states in its own thread, each from a copy, so that the training need not wait for the disk.

    The copy takes three times the memory of the trained weights on the host: until it is written or, for weights on a
    GPU (pinned memory), permanently. At the end of the ``with`` block the last state is on the disk.
    """

    def __init__(self, folder: Path, identity: dict[str, Any], world: World):
        self._folder, self._identity, self._world = folder, identity, world
        self._copies: dict[str, torch.Tensor] = {}
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> StateWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is not None:
            self._thread.join()
        if kind is None:
            self.wait()

    def save(self, state: State, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Start to write the training's state in another thread, after waiting for an earlier write. The earlier
        state's file is replaced only when the new one is complete.

        Every process must call it, as each may have a part of the weights; the first writes.
        """
        self.wait()
        for name, weight in _trained_weights(model):
            self._copy_to_host(f"model.{name}", weight)
            for key, value in optimizer.state.get(weight, {}).items():
                self._copy_to_host(f"optimizer.{name}.{key}", value)
        if not self._world.is_main:
            return
        of_training = {**asdict(state), "ledger": state.ledger.state()}
        header = {"identity": json.dumps(self._identity), "state": json.dumps(of_training)}
        copied = torch.cuda.current_stream().record_event() if torch.cuda.is_initialized() else None
        self._thread = threading.Thread(target=self._write_copies, args=(header, copied), name="reticent-state")
        self._thread.start()

    def wait(self) -> None:
        """Wait until the last state is on the disk; raise `ArtifactError` if it could not be written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _copy_to_host(self, name: str, value: torch.Tensor) -> None:
        """Copy a tensor, gathered if sharded, to the host memory of the first process."""
        value = whole(value.detach())
        if not self._world.is_main:
            return
        if name not in self._copies:  # once: to pin memory takes long
            self._copies[name] = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
        self._copies[name].copy_(value, non_blocking=True)

    def _write_copies(self, header: dict[str, str], copied: torch.cuda.Event | None) -> None:
        """Write the copied tensors to disk, in the writer's thread and once the copies are complete; an error is stored
        and raised by `wait`."""
        try:
            if copied is not None:
                copied.synchronize()
            _write_state(self._folder, self._copies, header)
            if copied is None:
                self._copies.clear()
        except BaseException as error:
            self._error = error


def _write_state(folder: Path, tensors: dict[str, torch.Tensor], header: dict[str, str]) -> None:
    """Write a state atomically. Cost: the bytes written, and fsync."""
    temporary = folder / f".{STATE}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        temporary.touch(mode=0o600)
        save_file(tensors, temporary, metadata=header)
        temporary.chmod(0o600)
        sync(temporary)
        temporary.replace(folder / STATE)
        sync(folder)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise ArtifactError(f"{folder / STATE}: not written ({write_failure(error)})") from None


def read_state(folder: Path, identity: dict[str, Any]) -> State | None:
    """Return the saved state of the training in ``folder``; None if there is no unfinished training.

    Raises
    ------
    ArtifactError
        The file cannot be read, or it belongs to a training with other settings, recipe, tokens or model.
    """
    path = folder / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata()
        found, values = parse_json(header["identity"]), parse_json(header["state"])
        state = State(**{**values, "ledger": Ledger.from_states(values["ledger"])})
    except (SafetensorError, OSError, TypeError, KeyError, ValueError):
        raise ArtifactError(f"{path}: not a readable state of a training; delete it to begin anew") from None
    differs = [key for key in identity if key != "settings" and found.get(key) != identity[key]]
    before, now = found.get("settings", {}), identity["settings"]
    for name in now.keys() | before.keys():
        if before.get(name) == now.get(name):
            continue
        differs.append(
            f"gradient_accumulation_steps x processes: {before.get(name)} then, {now.get(name)} now"
            if name == "batches_a_step"
            else f"train.{name}"
        )
    if differs:
        raise ArtifactError(
            f"{path}: the state of another training (differs in {'; '.join(sorted(differs))}); go on with what it "
            "was begun with, choose another folder, or begin anew (resume=False, --restart)"
        )
    return state


def restore(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Load the saved weights and optimizer moments into the model and the optimizer."""
    tensors = load_file(folder / STATE)
    with torch.no_grad():
        for name, weight in _trained_weights(model):
            saved = tensors.get(f"model.{name}")
            if saved is None or saved.shape != weight.shape:
                raise ArtifactError(f"{folder / STATE}: lacks the weights {name} of this model")
            weight.copy_(like(saved, weight))
            prefix = f"optimizer.{name}."
            moments = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if moments:
                optimizer.state[weight] = {key: like(value, weight) for key, value in moments.items()}


@contextmanager
def only_training_in(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock within the context, after removing what a killed process left and restoring a
    checkpoint of which only the backup is left.

    Raises
    ------
    ArtifactError
        Another process trains there, or it cannot be written.
    """
    make_private_folder(folder)
    with locked(folder / LOCK):
        (folder / f".{STATE}.tmp").unlink(missing_ok=True)
        recover_checkpoints(folder)
        try:
            yield
        finally:
            (folder / f".{LOCK}.lock").unlink(missing_ok=True)  # who has it open finds that it has no name


def delete_state(folder: Path) -> None:
    """Delete the saved state of a training that is finished or that starts again."""
    for name in (STATE, f".{STATE}.tmp"):
        (folder / name).unlink(missing_ok=True)


def delete_training(folder: Path) -> None:
    """Delete an earlier training's ledger, state, checkpoints and TensorBoard events from the folder, so that they do
    not mix with the next one's."""
    (folder / "ledger.json").unlink(missing_ok=True)
    delete_state(folder)
    board = folder / "tensorboard"
    for events in [] if board.is_symlink() else board.glob("events.out.tfevents.*"):
        events.unlink()
    for checkpoint in folder.glob("epoch-[0-9]*"):
        if checkpoint.is_dir() and not checkpoint.is_symlink():
            shutil.rmtree(checkpoint)


def _trained_weights(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """Return (name, weight) of the weights that are trained."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def tokens_digest(store: TokenStore) -> str:
    """Return the SHA-256 (hex) of all columns of a store that a training reads."""
    digest = hashlib.sha256()
    for name in ("input_ids", "word_ids", "flags", "doc_offsets", "individual"):
        store.hash_column(digest, name)
    return digest.hexdigest()


def _weights_digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 (hex) of a model's weights and their names."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
