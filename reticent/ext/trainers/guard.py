"""A guard for any training loop: it stops a step whose loss has a protected token as a target.

Collators rebuild labels, packing moves them, a template adds tokens: the labels of a dataset are not those that a loss
sees. So the guard is attached to the model itself. Each forward pass of a training must have ``labels`` and
``permitted`` (:mod:`reticent.ext.trainers.dataset`); a label must be -100 or the id permitted at its position, so a
shift, another tokenizer, a cut and a lost column are refused alike. Outputs other than the loss (logits, hidden states)
are detached: a loss computed from them has no gradient. Outside of training mode all outputs are detached.

The guard notes which tokens of the documents were targets, a bit each, by the column ``token_index``. Its ledger holds
them, and :func:`reticent.ext.trainers.verify.verify_guarded` compares them with the dataset, made again.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback

from reticent.core.artifact import write_private
from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.kernels import mark_tokens
from reticent.engine.schema import IGNORE_INDEX
from reticent.ext.trainers.dataset import PERMITTED, PROTECTED, TOKEN_INDEX, ProtectedCollator, windows_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer

FORMAT = "reticent.guarded-training/2"
#: What a model makes of the labels alone, and keeps its gradient: its loss, that of its routers, and in TRL the
#: log-probability of each label, (B, T).
OF_THE_LABELS = ("loss", "aux_loss", "log_probs")
COUNTS = ("eligible", "protected", "targets")
#: Held while a batch is counted: the replicas of `torch.nn.DataParallel` are threads that share a guard. It belongs to
#: no guard, for a model is copied and pickled with its hooks.
_COUNTING = threading.Lock()


@dataclass(eq=False)
class TargetGuard:
    """The guard of a model: counts of permitted, protected and actual target tokens by epoch; see `guard_model`."""

    epoch: int = 1
    #: By epoch `COUNTS` and the number of batches, of this process and, once an epoch has ended, of all others.
    _counts: dict[int, torch.Tensor] = field(default_factory=dict)
    _elsewhere: dict[int, torch.Tensor] = field(default_factory=dict)
    _hooks: list[Any] = field(default_factory=list)
    #: Of this process: a bit for each token that was a target, the checksum of these tokens (`mark_tokens`), and the
    #: number of targets without a token index.
    _marks: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    _checksum: int = 0
    _unplaced: int = 0

    def counts(self) -> dict[int, dict[str, int]]:
        """Return epoch -> numbers of permitted tokens, protected tokens, actual targets, and violations (always 0)."""
        rows = {epoch: row[:-1].tolist() for epoch, row in sorted(self._totals().items())}
        return {epoch: {**dict(zip(COUNTS, row, strict=True)), "violations": 0} for epoch, row in rows.items()}

    @property
    def batches(self) -> int:
        """Number of batches that were checked by all processes; those of other processes are added when an epoch
        ends.
        """
        return sum(int(row[-1]) for row in self._totals().values())

    @property
    def own_batches(self) -> int:
        """The number of batches that this process checked."""
        return sum(int(row[-1]) for row in self._counts.values())

    def release(self) -> None:
        """Remove the guard's hooks from the model."""
        while self._hooks:
            self._hooks.pop().remove()

    def targets(self) -> dict[str, Any]:
        """Return which tokens were targets in this process as JSON values: ``marks``, a bit for each token (packed and
        as base64), their ``checksum`` (`mark_tokens`), and the number of targets ``without_index``.
        """
        marks = base64.b64encode(zlib.compress(self._marks.tobytes())).decode()
        return {"marks": marks, "checksum": f"{self._checksum:016x}", "without_index": self._unplaced}

    def write(self, path: Path | str, processes: list[dict[str, Any]] | None = None, **more: Any) -> None:
        """Write the target counts of all epochs to a private JSON file, with the `targets` of all ``processes``
        (default: of this one alone) and further JSON values ``more``.
        """
        rows = [{"epoch": epoch, **row} for epoch, row in self.counts().items()]
        total = {name: sum(row[name] for row in rows) for name in (*COUNTS, "violations")}
        content = {"format": FORMAT, **more, "batches": self.batches, **total, "epochs": rows}
        content["processes"] = processes or [self.targets()]
        write_private(Path(path), json.dumps(content, indent=1).encode())

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _before_forward(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Hook before the forward pass: remove ``permitted`` from the arguments, and in training mode check the labels
        against it."""
        permitted, index = kwargs.pop(PERMITTED, None), kwargs.pop(TOKEN_INDEX, None)
        if model.training:
            with _COUNTING:
                self._check(kwargs, permitted)
                self._mark(kwargs["labels"], index)
        return args, kwargs

    def _mark(self, labels: torch.Tensor, index: torch.Tensor | None) -> None:
        """Mark the tokens of a batch that are targets, by their token index; both (B, T)."""
        is_target = labels != IGNORE_INDEX
        ids = labels[is_target].cpu().numpy()
        places = np.full(len(ids), -1) if index is None else index[is_target].cpu().numpy()
        known = places >= 0
        self._unplaced += int(np.count_nonzero(~known))
        length = int(places.max(initial=-1)) // 8 + 1
        if length > len(self._marks):
            self._marks = np.pad(self._marks, (0, max(length, 2 * len(self._marks)) - len(self._marks)))
        self._checksum = (self._checksum + int(mark_tokens(self._marks, places[known], ids[known]))) & (2**64 - 1)

    def _check(self, given: dict[str, Any], permitted: torch.Tensor | None) -> None:
        """Add a batch to the counts. Raise `TrainingError` unless each label is -100 or the token id that ``permitted``
        has at its position.
        """
        labels = given.get("labels")
        if permitted is None:
            raise TrainingError(
                f"a batch without the column {PERMITTED!r}: nothing says which tokens are protected. Use "
                "ProtectedCollator, or with_permitted(collator), and remove_unused_columns=False"
            )
        if labels is None or given.get("shift_labels") is not None:
            raise TrainingError(
                "a batch whose labels do not reach the model as `labels`: a loss made elsewhere cannot be watched "
                "(label smoothing, compute_loss_func, labels that are shifted already)"
            )
        if labels.shape != permitted.shape:
            raise TrainingError(f"labels {tuple(labels.shape)} and {PERMITTED} {tuple(permitted.shape)} do not agree")
        is_target = labels != IGNORE_INDEX
        wrong = is_target & (labels != permitted)
        numbers = [permitted >= 0, permitted == PROTECTED, is_target, wrong, wrong & (permitted == PROTECTED)]
        # One wait for the device a batch; the step it belongs to must not be taken before.
        *counted, num_wrong, num_protected = torch.stack([cells.sum() for cells in numbers]).tolist()
        if num_protected:
            raise TrainingError(f"{num_protected} protected tokens are targets in a batch; stopped before its step")
        if num_wrong:
            raise TrainingError(
                f"{num_wrong} labels are not the permitted tokens of their places (a shift, another tokenizer, a "
                "cut or joined row); which of them are protected is not known; stopped before the step"
            )
        self._current_counts().add_(torch.tensor([*counted, 1]))

    def _current_counts(self) -> torch.Tensor:
        """Return the counts of the current epoch and its number of batches, as an int64 tensor that the caller adds
        to.
        """
        return self._counts.setdefault(self.epoch, torch.zeros(len(COUNTS) + 1, dtype=torch.int64))

    def _totals(self) -> dict[int, torch.Tensor]:
        """Return epoch -> tensor of counts and number of batches, over all processes as far as these were summed."""
        return {epoch: row + self._elsewhere.get(epoch, 0) for epoch, row in self._counts.items()}


def _detach(value: Any, kept: tuple[str, ...] = ()) -> Any:
    """Return a model output with its tensors detached, except tensors of at most two axes named in ``kept``."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if hasattr(value, "keys"):
        for name, part in value.items():
            if name not in kept or getattr(part, "ndim", 0) > 2:
                value[name] = _detach(part)
        return value
    return type(value)(map(_detach, value)) if isinstance(value, tuple | list) else value


def _after_forward(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """Hook after the forward pass: detach all outputs except the model's own losses, so that no other loss can be
    trained on."""
    if not model.training:
        return _detach(output)
    if not hasattr(output, "keys") or all(output.get(name) is None for name in OF_THE_LABELS):
        raise TrainingError("the model returned no loss of its own; one made from its logits cannot be watched")
    return _detach(output, kept=OF_THE_LABELS)


def guard_model(model: PreTrainedModel | torch.nn.Module) -> TargetGuard:
    """Hook a model so that, in any training loop, a batch with a protected target raises before the step; return the
    guard.

    Each call of the model in training mode must have the arguments ``labels`` and ``permitted``, of one shape; labels
    stand at their own tokens, as transformers wants them. Outside of training mode nothing is checked, and nothing that
    comes out has a gradient.

    Raises (in the forward pass, so before any step)
    ------------------------------------------------
    TrainingError
        A protected token is a target, a label is not the token of its place, or labels, ``permitted`` or the model's
        own loss are not there.
    """
    guard = TargetGuard()
    guard._hooks += [
        model.register_forward_pre_hook(guard._before_forward, with_kwargs=True),
        model.register_forward_hook(_after_forward, with_kwargs=True),
    ]
    return guard


def _copy_counts(counts: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return a copy of the counts, epoch -> tensor, whose tensors are copies too."""
    return {epoch: row.clone() for epoch, row in counts.items()}


class _Epochs(TrainerCallback):
    """Trainer callback: sets the epoch of guard and collator, checks that each step was guarded, logs counts of an
    epoch over all processes, and writes the ledger (counts and targets) at the end."""

    def __init__(self, guard: TargetGuard, trainer: Trainer, ledger: Path | None):
        self.guard, self.trainer, self.ledger, self._seen = guard, trainer, ledger, 0
        self._first_step: int | None = None
        #: By step of a checkpoint: the first step counted, and the counts by then of this process and of all others.
        self._saved: dict[int, tuple[int | None, list[dict[int, torch.Tensor]]]] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """When training begins: restore the counts of the checkpoint from which it resumes, and remember the first step
        that the counts cover."""
        guard, step = self.guard, state.global_step
        if step:  # of a checkpoint of another guard nothing was counted that led to its weights
            self._first_step, counts = self._saved.get(step, (step, [{}, {}]))
            guard._counts, guard._elsewhere = map(_copy_counts, counts)
        elif self._first_step is None:
            self._first_step = 0
        self._seen = guard.own_batches

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """When a checkpoint is saved: keep a copy of the counts so far, to restore if a training resumes from it."""
        counts = [_copy_counts(self.guard._counts), _copy_counts(self.guard._elsewhere)]
        self._saved[state.global_step] = self._first_step, counts

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Set the epoch of the guard and of the collator."""
        self.guard.epoch = int(state.epoch or 0) + 1
        if isinstance(self.trainer.data_collator, ProtectedCollator):
            self.trainer.data_collator.epoch = self.guard.epoch

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise `TrainingError` if the guard has seen no batch since the last step."""
        if self.guard.own_batches == self._seen:
            raise TrainingError("a step whose batches the guard did not see: was the model replaced or wrapped anew?")
        self._seen = self.guard.own_batches

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Sum the epoch's target counts over all processes, and log them."""
        row = (
            self.guard._current_counts()
        )  # stays that of this process: a second training would add the sum once more in each
        self.guard._elsewhere[self.guard.epoch] = (
            self.trainer.accelerator.reduce(row.to(args.device), "sum").cpu() - row
        )
        said = self.guard.counts()[self.guard.epoch]
        self.trainer.log({f"guard_{name}": number for name, number in said.items()})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write counts and targets of all processes to the ledger file, in the main process."""
        from accelerate.utils import gather_object  # transformers asks for it where a Trainer trains

        if self.ledger is None:
            return
        processes = gather_object([self.guard.targets()])
        if not state.is_world_process_zero:
            return
        source = windows_of(self.trainer.train_dataset)
        more = {} if source is None else {"recipe": source.recipe.to_dict(), "protection": source.fingerprint}
        # What a resumed training did before is in no count of its guard.
        self.guard.write(self.ledger, processes, first_step=self._first_step, **more)


def guard_trainer(trainer: Trainer, *, ledger: Path | str | None = None) -> TargetGuard:
    """Guard the model of a transformers or TRL trainer against protected targets; return the guard. Call it before
    ``trainer.train()``.

    ``remove_unused_columns`` is switched off, which would take ``permitted`` away. At the end counts and targets are
    written to ``ledger``, a private JSON file, with recipe and fingerprint of the protection where the dataset is one
    of `protected_dataset`; `reticent.trainers.verify_guarded` verifies it. After each epoch the counts are logged as
    ``guard_targets`` and so on, to whatever ``report_to`` of the trainer names: numbers alone.

    Raises
    ------
    PolicyError
        A setting by which the loss is not the model's own: label smoothing, ``compute_loss_func``; or ``push_to_hub``,
        by which a model would leave that nobody has audited.
    """
    if trainer.args.push_to_hub:
        raise PolicyError(
            "push_to_hub: nobody has judged this model; train without it, audit the model and let it leave by "
            "`reticent dossier export --push-to-hub`"
        )
    for name in ("label_smoother", "compute_loss_func"):
        if getattr(trainer, name, None) is not None:
            raise PolicyError(f"{name}: a loss that is not the model's own cannot be watched; train without it")
    trainer.args.remove_unused_columns = False
    guard = guard_model(trainer.model)  # type: ignore[arg-type]
    trainer.add_callback(_Epochs(guard, trainer, None if ledger is None else Path(ledger)))
    return guard
