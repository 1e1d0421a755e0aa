"""The training loop: one function, read from top to bottom.

Loss is the sum over targets divided by the number of targets of the whole step, over all its micro-batches and
processes, so it does not change with how a step is split. On the CPU two runs give the same bits, and a run that was
stopped and resumed gives those of one that was not.

On CUDA nothing waits for the device but the reading of losses, once in ``logging_steps`` steps: a step whose gradient
is not finite is left out on the device itself, with all after it, and found when the losses are read.
"""

from __future__ import annotations

import contextlib
import copy
import math
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from reticent.core.device import uses_bf16
from reticent.core.errors import PolicyError, TrainingError
from reticent.engine.store import TokenStore
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World, join_world
from reticent.trainer.export import write_model
from reticent.trainer.feed import Step, iter_steps, micro_batch, on_device, plan_steps
from reticent.trainer.labels import Ledger, Targets, make_targets, protect_store
from reticent.trainer.lora import add_adapter
from reticent.trainer.metrics import Clock, LossReader, open_metrics
from reticent.trainer.models import check_fit, freeze_embeddings, lm_head, load_tokenizer, logits_of, special_ids
from reticent.trainer.packing import block_diagonal_mask, require_packable
from reticent.trainer.privacy import Guarantee, PrivacyConfig
from reticent.trainer.private_step import PrivateRun
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import State, delete_state, identity_of, read_state, restore, save_state
from reticent.trainer.stopping import graceful_stop
from reticent.trainer.verify import write_ledger
from reticent.trainer.windows import Batch, cut_windows, prefetched

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["TargetLoss", "TrainResult", "target_loss", "train"]


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training left: checkpoint folders by epoch, the ledger, its mean loss per epoch, and the share of each
    epoch's time in which the loop waited for data; of DP-SGD what it guarantees.
    """

    checkpoints: dict[int, Path]
    ledger: Ledger
    losses: list[float]
    num_steps: int
    num_tokens: int
    seconds: float
    waited: list[float] = field(default_factory=list)
    guarantee: Guarantee | None = None


def train(
    model: PreTrainedModel,
    store: TokenStore,
    recipe: Recipe,
    config: TrainConfig,
    out: Path | str,
    *,
    tokenizer: str | Path,
    progress: Callable[[dict[str, Any]], None] | None = None,
    epoch_store: Callable[[int], TokenStore] | None = None,
    privacy: PrivacyConfig | None = None,
    resume: bool = True,
    world: World | None = None,
) -> TrainResult:
    """Fine-tune ``model`` in place with a recipe; checkpoints go to ``out/epoch-NNNN``, plain ``save_pretrained``
    folders.

    A training that was stopped (SIGTERM, Ctrl-C: it finishes its step, saves its state and ends as the signal would
    have ended it) or killed goes on from its last state when it is called again. Under torchrun every process calls
    it with the same arguments; ``batch_size`` windows go to each, and only the first writes.

    Parameters
    ----------
    store : TokenStore
        Protected tokens of the members (of the pseudonymised text for ``mlma`` and ``clma``).
    tokenizer : path, hub name or ``tokenizer.json`` text
        The model's own; saved beside it.
    progress : callable, optional
        Gets a dict (step, num_steps, epoch, loss) after each step; on CUDA the loss is the last one that was read.
    epoch_store : callable, optional
        Gives the tokens of each epoch where they change, always the same for the same epoch. The learning rate falls
        to 0 over as many steps as there would be if all later epochs were as long as the one at hand.
    privacy : PrivacyConfig, optional
        Makes it DP-SGD, and ``ledger.json`` says with which epsilon, per what. Epochs are then 1 / sample rate steps of
        Poisson samples, and a loss is a mean over the units drawn.
    resume : bool
        False begins anew, whatever state is there.
    world : World, optional
        The processes that take part; by default those that torchrun started.

    Raises
    ------
    TrainingError
        The tokens do not fit the model, none of them has a flag the recipe protects, nothing is eligible as a target, a
        protected token is a target, or the loss or its gradient is not finite. Checkpoints written before stay.
    ArtifactError
        ``out`` holds the state of another training.
    PolicyError
        A setting does not go with DP-SGD, or the privacy budget does not allow this run.
    """
    out, world = Path(out), world or join_world()
    device = world.device(config.device)
    fast_tokenizer = load_tokenizer(tokenizer)
    special = special_ids(fast_tokenizer, recipe.objective)
    check_fit(model, store, fast_tokenizer, special, config.window_length)
    _check_privacy(recipe, privacy, epoch_store)
    protected = protect_store(store, recipe, special, len(fast_tokenizer))
    more = {**privacy.cache_key(), "device": device.type, "processes": world.size} if privacy else None
    identity = identity_of(model, store, recipe, config, world.size, more=more)
    world.barrier()  # the first may have had to make the folder, or to empty it
    found = read_state(out, identity) if resume else None
    state = found or State()

    model = model.to(device=device).train()  # type: ignore
    adapter = add_adapter(model, config.lora, seed=config.seed) if config.lora else None
    if recipe.freeze_embeddings:
        freeze_embeddings(model)
    causal = recipe.objective == "clm"
    if config.packing:
        require_packable(model, causal=causal)
    multiple = 64 if device.type == "cuda" else 8
    windows = cut_windows(protected.store, config.window_length, special, pad_to_multiple_of=multiple)
    private = PrivateRun(model, windows, recipe, config, privacy, state.private, world, device) if privacy else None
    loss_of = TargetLoss(model, causal=causal)
    network = loss_of if private else _prepared(loss_of, config, world, device)
    optimizer = _optimizer(model, config, device)
    if private:
        private.steps.wrap(optimizer)
    if found:
        restore(out, model, optimizer)
    elif world.is_main:
        delete_state(out)
    keep = {epoch for epoch in config.checkpoint_epochs if epoch <= config.num_epochs} | {config.num_epochs}
    ledger = state.ledger if world.is_main else Ledger()  # of this process; the state has the sum over all
    clock, autocast = Clock(), _autocast(config, device)

    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        graceful_stop() as stop,
        open_metrics(out, state, config.report_to, write=world.is_main) as metrics,
    ):
        reader = LossReader(state, metrics, world, config.logging_steps, out)

        def save() -> None:
            reader.read()
            state.ledger = ledger.summed(world.sum)
            state.sizes, state.seconds = metrics.sizes(), state.seconds + clock.lap()
            if world.is_main:
                save_state(out, identity, state, model, optimizer)

        while state.epoch <= config.num_epochs:
            clock.begin_epoch()
            if epoch_store is not None:
                protected = protect_store(epoch_store(state.epoch), recipe, special, len(fast_tokenizer))
                windows = cut_windows(protected.store, config.window_length, special, pad_to_multiple_of=multiple)
            ledger.begin_epoch(state.epoch, protected.fingerprint)
            seed = private.mask_seed if private else config.seed
            make = _maker(recipe, config, special.mask, seed, state.epoch, protected.random_ids)
            counted = copy.deepcopy(ledger)
            if private:
                epoch_steps, num_steps = private.plan.steps_per_epoch, private.plan.num_steps
                steps: Any = private.iter_epoch(windows, make, counted, epoch=state.epoch, done=state.done)
            else:
                plan = plan_steps(windows, config, world, state.epoch)
                epoch_steps = len(plan)
                num_steps = state.first_step + epoch_steps * (config.num_epochs - state.epoch + 1)
                steps = iter_steps(windows, plan[state.done :], make, counted, causal=causal, device=device)
            with closing(prefetched(steps)) as feed:
                for step in clock.watch(feed):
                    num_targets, num_tokens, filled, cells, stops = world.sum(*step.counts, stop.asked)
                    if stops:  # a signal to one process stops all of them before the same step
                        save()
                        raise SystemExit(128 + signal.SIGTERM)
                    if num_targets or private:  # an empty sample is a step too: who is in it would show otherwise
                        rate = _set_rate(optimizer, config, state.step, num_steps)
                        if private:
                            losses, longest = private.steps.add_gradients(step.parts, state.step), math.inf
                        else:
                            losses = _add_gradients(network, step, num_targets, world, autocast)
                            longest = config.max_grad_norm
                        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), longest)
                        reader.add(num_targets, losses, norm, rate)
                        if device.type == "cpu":
                            reader.read()
                        else:
                            optimizer.found_inf = reader.found_inf  # type: ignore[attr-defined]
                        optimizer.step()
                        optimizer.zero_grad(set_to_none=True)
                        state.step += 1
                    ledger = step.ledger
                    state.done += 1
                    state.num_tokens += int(num_tokens)
                    state.num_filled += int(filled)
                    state.num_cells += int(cells)
                    if num_targets and state.step % config.logging_steps == 0:
                        reader.read()
                    if (num_targets or private) and progress:
                        progress(
                            {"step": state.step, "num_steps": num_steps, "epoch": state.epoch, "loss": reader.last}
                        )
                    if config.save_steps and state.step % config.save_steps == 0 and state.done < epoch_steps:
                        save()
            reader.read()
            if state.epoch_targets == 0 and not private:
                raise TrainingError(f"recipe {recipe.name}: no token of the corpus is eligible as a target")
            state.losses.append(state.epoch_loss / max(state.epoch_targets, 1))
            times = clock.of_epoch()
            state.waited.append(times["waited"])
            about = {"epoch": state.epoch, "step": state.step}
            padding = 1 - state.num_filled / state.num_cells
            metrics.log({**about, "loss": state.losses[-1], "targets": state.epoch_targets, "padding": padding})
            metrics.log({**about, **times}, "timings.jsonl")
            if state.epoch in keep:
                state.checkpoints.append(state.epoch)
                if world.is_main:
                    folder = _folder(out, state.epoch)
                    write_model(
                        model, fast_tokenizer, folder, recipe=recipe, epoch=state.epoch, adapter=adapter,
                        guarantee=private.plan.guarantee if private else None,
                    )  # fmt: skip
            state.begin_epoch()
            if state.epoch <= config.num_epochs:
                save()
    if private:
        private.finish(world)
    if adapter:
        adapter.merge()
    total = ledger.summed(world.sum)
    if world.is_main:
        cost: dict[str, Any] = {"privacy": {**private.plan.to_dict(), "steps": state.step}} if private else {}
        write_ledger(out / "ledger.json", total, recipe, config, special, **cost)
        delete_state(out)
    promise = private.plan.guarantee if private else None
    checkpoints = {epoch: _folder(out, epoch) for epoch in state.checkpoints}
    return TrainResult(
        checkpoints,
        total,
        state.losses,
        state.step,
        state.num_tokens,
        state.seconds + clock.lap(),
        state.waited,
        promise,
    )


class TargetLoss(torch.nn.Module):
    """A model as the sum of its cross entropy over the targets of a micro-batch (a float32 scalar).

    Logits are made at the cells that predict a target and nowhere else, so a protected token has no gradient.
    """

    def __init__(self, model: PreTrainedModel, *, causal: bool):
        super().__init__()
        self.model, self.causal = model, causal
        self._head = (lm_head(model),)  # in a tuple: its weights are the model's already

    def forward(
        self,
        input_ids: torch.Tensor,
        attention: torch.Tensor | None,
        positions: torch.Tensor | None,
        segments: torch.Tensor | None,
        at: torch.Tensor,
        labels: torch.Tensor,
    ) -> torch.Tensor:
        if segments is not None and positions is not None:
            attention = block_diagonal_mask(segments, positions, self.causal)
        logits = logits_of(self.model, self._head[0], input_ids, attention, at, positions)
        return F.cross_entropy(logits.float(), labels, reduction="sum")


def target_loss(
    model: PreTrainedModel, batch: Batch, targets: Targets, objective: str, device: torch.device
) -> torch.Tensor:
    """Return the sum of the cross entropy over the targets of a batch (a float32 scalar)."""
    causal = objective == "clm"
    return TargetLoss(model, causal=causal)(*on_device(micro_batch(batch, targets, causal), device).inputs)


def _add_gradients(
    network: torch.nn.Module,
    step: Step,
    num_targets: float,
    world: World,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> list[torch.Tensor]:
    """Add the gradient of the step's mean loss; returns the loss of each micro-batch, a sum, still on the device."""
    losses = []
    micro_batches = step.wait()
    for turn, micro in enumerate(micro_batches):
        torch.manual_seed(micro.seed)
        apart = world.size > 1 and turn < len(micro_batches) - 1  # processes exchange gradients once a step
        with network.no_sync() if apart else contextlib.nullcontext():  # type: ignore[operator]
            with autocast():
                loss = network(*micro.inputs)
            (loss * world.size / num_targets).backward()  # processes take the mean of their gradients
        losses.append(loss.detach())
    return losses


def _maker(
    recipe: Recipe, config: TrainConfig, mask_id: int | None, seed: int, epoch: int, random_ids: np.ndarray | None
) -> Callable[[Batch, Ledger], Targets]:
    def make(batch: Batch, ledger: Ledger) -> Targets:
        return make_targets(
            batch,
            recipe,
            ledger,
            mask_id=mask_id,
            mask_share=config.mask_share,
            seed=seed,
            epoch=epoch,
            random_ids=random_ids,
        )

    return make


def _check_privacy(recipe: Recipe, privacy: PrivacyConfig | None, epoch_store: Any) -> None:
    if recipe.private and privacy is None:
        raise PolicyError(f"recipe {recipe.name}: DP-SGD needs its settings; give [train.dp]")
    if privacy is not None and epoch_store is not None:
        raise PolicyError(f"recipe {recipe.name}: text that changes each epoch does not go with DP-SGD")


def _prepared(network: TargetLoss, config: TrainConfig, world: World, device: torch.device) -> torch.nn.Module:
    """The network compiled, and with its gradients shared among processes, where that is asked for."""
    if config.torch_compile:
        network.compile(dynamic=True)
    if world.size == 1:
        return network
    devices = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(network, device_ids=devices, broadcast_buffers=False)


def _folder(out: Path, epoch: int) -> Path:
    return out / f"epoch-{epoch:04d}"


def _optimizer(model: PreTrainedModel, config: TrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW; biases and norms are not decayed."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, num_steps: int) -> float:
    """Set and return the learning rate of a step, counted from 0: that of the schedule of this name in transformers."""
    share = 1.0
    if step < config.warmup_steps:
        share = step / config.warmup_steps
    elif config.lr_scheduler_type == "linear":
        share = max(0.0, (num_steps - step) / max(1, num_steps - config.warmup_steps))
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * share
    return config.learning_rate * share


def _autocast(config: TrainConfig, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    if uses_bf16(config.bf16, device):
        return lambda: torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext
