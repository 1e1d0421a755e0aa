"""The training loop: one function, read from top to bottom.

Loss is the sum over targets divided by the number of targets of the whole step, so it does not change with how a step
is split into micro-batches. On the CPU two runs give the same bits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from reticent.device import pick_device
from reticent.engine.schema import IGNORE_INDEX
from reticent.engine.store import TokenStore
from reticent.errors import TrainingError
from reticent.trainer.config import TrainConfig
from reticent.trainer.export import write_model
from reticent.trainer.labels import (
    Ledger,
    Targets,
    check_protection,
    fingerprint_protection,
    make_targets,
    replacement_ids,
    with_drops,
)
from reticent.trainer.models import check_fit, freeze_embeddings, load_tokenizer, logits_at, special_ids
from reticent.trainer.recipes import Recipe
from reticent.trainer.verify import write_ledger
from reticent.trainer.windows import Batch, Windows, cut_windows, prefetched

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["TrainResult", "target_loss", "train"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training left: checkpoint folders by epoch, the ledger, and its mean loss per epoch."""

    checkpoints: dict[int, Path]
    ledger: Ledger
    losses: list[float]
    num_steps: int
    num_tokens: int
    seconds: float


def train(
    model: PreTrainedModel,
    store: TokenStore,
    recipe: Recipe,
    config: TrainConfig,
    out: Path | str,
    *,
    tokenizer: str | Path,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> TrainResult:
    """Fine-tune ``model`` in place with a recipe; checkpoints go to ``out/epoch-NNNN``, plain ``save_pretrained``
    folders.

    Parameters
    ----------
    store : TokenStore
        Protected tokens of the members (of the pseudonymised text for ``mlma`` and ``clma``).
    tokenizer : path, hub name or ``tokenizer.json`` text
        The model's own; saved beside it.
    progress : callable, optional
        Gets a dict (step, num_steps, epoch, loss) after each step.

    Raises
    ------
    TrainingError
        The tokens do not fit the model, none of them has a flag the recipe protects, nothing is eligible as a target, a
        protected token is a target, or the loss or its gradient is not finite. Checkpoints written before stay.
    """
    from transformers import get_linear_schedule_with_warmup

    started = time.perf_counter()
    out = Path(out)
    device = pick_device(config.device)
    fast_tokenizer = load_tokenizer(tokenizer)
    special = special_ids(fast_tokenizer, recipe.objective)
    check_fit(model, store, fast_tokenizer, special, config.window_length)
    store.check()
    check_protection(store, recipe)
    drawn_from = replacement_ids(store, recipe, special, len(fast_tokenizer))
    protection = fingerprint_protection(store, recipe)
    store = with_drops(store, recipe)
    windows = cut_windows(store, config.window_length, special, pad_to_multiple_of=64 if device.type == "cuda" else 8)
    ledger = Ledger()
    model = model.to(device=device).train()  # type: ignore
    if recipe.freeze_embeddings:
        freeze_embeddings(model)
    optimizer = _optimizer(model, config, device)
    num_batches = math.ceil(len(windows) / config.batch_size)
    num_steps = config.num_epochs * math.ceil(num_batches / config.gradient_accumulation_steps)
    schedule = get_linear_schedule_with_warmup(optimizer, config.warmup_steps, num_steps)
    autocast = _autocast(config, device)
    keep = {epoch for epoch in config.checkpoint_epochs if epoch <= config.num_epochs} | {config.num_epochs}
    checkpoints: dict[int, Path] = {}
    losses: list[float] = []
    step = 0

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), _metrics(out) as log:
        torch.manual_seed(config.seed)
        for epoch in range(1, config.num_epochs + 1):
            epoch_loss, epoch_targets = 0.0, 0
            ledger.begin_epoch(epoch, protection)
            batches = prefetched(_targets(windows, recipe, ledger, config, epoch, drawn_from))
            for group in _grouped(batches, config.gradient_accumulation_steps):
                num_targets = sum(targets.num_targets for _, targets in group)
                if num_targets == 0:
                    continue
                step_loss = 0.0
                for batch, targets in group:
                    with autocast():
                        loss = target_loss(model, batch, targets, recipe.objective, device)
                    (loss / num_targets).backward()
                    step_loss += float(loss.detach())
                if not math.isfinite(step_loss):
                    raise TrainingError(
                        f"the loss is not finite in epoch {epoch}, step {step + 1}; lower the learning rate"
                    )
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
                if not math.isfinite(norm):  # a finite loss can have a gradient that is not
                    raise TrainingError(
                        f"the gradient is not finite in epoch {epoch}, step {step + 1}; lower the learning rate"
                    )
                optimizer.step()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
                epoch_loss += step_loss
                epoch_targets += num_targets
                if progress:
                    progress({"step": step, "num_steps": num_steps, "epoch": epoch, "loss": step_loss / num_targets})
            if epoch_targets == 0:
                raise TrainingError(f"recipe {recipe.name}: no token of the corpus is eligible as a target")
            losses.append(epoch_loss / epoch_targets)
            log({"epoch": epoch, "loss": losses[-1], "targets": epoch_targets, "step": step})
            if epoch in keep:
                checkpoints[epoch] = out / f"epoch-{epoch:04d}"
                write_model(model, fast_tokenizer, checkpoints[epoch], recipe=recipe, epoch=epoch)
    write_ledger(out / "ledger.json", ledger, recipe, config, special)
    num_tokens = config.num_epochs * store.num_tokens
    return TrainResult(checkpoints, ledger, losses, step, num_tokens, time.perf_counter() - started)


def target_loss(
    model: PreTrainedModel, batch: Batch, targets: Targets, objective: str, device: torch.device
) -> torch.Tensor:
    """Return the sum of the cross entropy over the targets of a batch (a float32 scalar).

    Logits are made at the positions that predict a target and nowhere else, so a protected token has no gradient.
    """
    input_ids = torch.from_numpy(targets.input_ids).to(device, non_blocking=True)
    labels = torch.from_numpy(targets.labels).to(device, non_blocking=True)
    if objective == "clm":  # position t predicts the token at t + 1
        labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORE_INDEX)], dim=1)
        attention = None  # padding stands on the right, where a causal model does not look
    else:
        attention = torch.from_numpy(batch.attention).to(device, non_blocking=True)
    wanted = labels != IGNORE_INDEX
    logits = logits_at(model, input_ids, attention, wanted)
    return F.cross_entropy(logits.float(), labels[wanted], reduction="sum")


def _targets(
    windows: Windows, recipe: Recipe, ledger: Ledger, config: TrainConfig, epoch: int, random_ids: np.ndarray | None
) -> Iterator[tuple[Batch, Targets]]:
    for numbers in windows.epoch_order(config.batch_size, seed=config.seed, epoch=epoch):
        batch = windows.gather(numbers)
        yield (
            batch,
            make_targets(
                batch,
                recipe,
                ledger,
                mask_id=windows.special.mask,
                mask_share=config.mask_share,
                seed=config.seed,
                epoch=epoch,
                random_ids=random_ids,
            ),
        )


def _grouped(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    group: list[Any] = []
    for item in items:
        group.append(item)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _optimizer(model: PreTrainedModel, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW; biases and norms are not decayed."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def _autocast(config: TrainConfig, device: torch.device) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    if config.bf16 == "on" or (config.bf16 == "auto" and device.type == "cuda"):
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext


@contextlib.contextmanager
def _metrics(out: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Append JSON lines to ``metrics.jsonl``, private."""
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(out / "metrics.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a") as file:

        def log(values: dict[str, Any]) -> None:
            file.write(json.dumps(values) + "\n")
            file.flush()

        yield log
