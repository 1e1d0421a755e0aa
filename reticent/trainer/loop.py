"""The training loop, plain or private, in one process or several: read `train` from top to bottom.

The loop does not depend on how gradients are computed; a `reticent.trainer.steps.Step` does that. For every kind
of step, two runs on the CPU give the same bits, and so does a run that was stopped and resumed, because all random
draws are functions of (seed, epoch, step).

On CUDA the host waits for the device only when it reads losses, once in ``logging_steps`` steps. If a gradient is not
finite, the device itself skips this step and all later ones, and the host finds out when it reads the losses.
"""

from __future__ import annotations

import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from reticent.core.device import autocast
from reticent.core.errors import PolicyError, TrainingError
from reticent.core.progress import log_warning
from reticent.core.resolve import resolve
from reticent.engine.schema import DIRECT, INDIRECT
from reticent.engine.store import TokenStore
from reticent.trainer.attention import attention_by_host
from reticent.trainer.config import TrainConfig
from reticent.trainer.context import BatchContext, context_of
from reticent.trainer.distributed import World, join_world, whole, whole_state
from reticent.trainer.export import write_model
from reticent.trainer.labels import ProtectedStore, Targets, label_windows, make_targets, protect_store
from reticent.trainer.ledger import Ledger
from reticent.trainer.lora import Adapter, add_adapter
from reticent.trainer.metrics import Clock, LossReader, Metrics, open_metrics
from reticent.trainer.models import (
    check_fit,
    first_position,
    freeze_embeddings,
    load_tokenizer,
    logits_at,
    num_rows,
    require_sound,
    special_ids,
)
from reticent.trainer.privacy import Guarantee, PrivacyConfig
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import (
    State,
    StateWriter,
    delete_state,
    delete_training,
    identity_of,
    only_training_in,
    read_state,
    restore,
    tokens_digest,
)
from reticent.trainer.steps import MakeTargets, Part, PlainStep, Step, TargetLoss, iter_steps, plan_steps
from reticent.trainer.verify import write_ledger
from reticent.trainer.windows import Batch, SpecialIds, Windows, cut_windows, padding_multiple, prefetched

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LambdaLR
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.engine.public_words import ContextWords


# ----------------------------------------------------------------------------------------------------------- optimizer
#
# The optimizer and its learning rate: AdamW of torch, schedules of transformers.


def make_optimizer(
    weights: Iterable[torch.nn.Parameter], *, learning_rate: float, weight_decay: float
) -> torch.optim.AdamW:
    """Return AdamW over the trainable weights; biases and norms (tensors with one axis) have no weight decay."""
    trained = [weight for weight in weights if weight.requires_grad]
    decayed, others = ([weight for weight in trained if (weight.ndim >= 2) is wide] for wide in (True, False))
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, fused=True)


def make_schedule(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, num_steps: int) -> LambdaLR:
    """Return transformers' learning-rate schedule of the settings, positioned at ``step`` (counted from 0); call its
    ``step()`` after each step.

    A new schedule is made for each epoch, because ``num_steps`` changes if the text changes with the epoch.
    `get_scheduler` cannot begin at a later step, so its functions are called directly.
    """
    from transformers import (
        get_constant_schedule_with_warmup,
        get_cosine_schedule_with_warmup,
        get_linear_schedule_with_warmup,
    )

    for group in optimizer.param_groups:  # torch requires it of a schedule that begins after step 0
        group["initial_lr"] = config.learning_rate
    if config.lr_scheduler_type == "constant_with_warmup":
        return get_constant_schedule_with_warmup(optimizer, config.warmup_steps, last_epoch=step - 1)
    falling = (
        get_linear_schedule_with_warmup if config.lr_scheduler_type == "linear" else get_cosine_schedule_with_warmup
    )
    return falling(optimizer, config.warmup_steps, num_steps, last_epoch=step - 1)


# ------------------------------------------------------------------------------------------------------------ stopping
#
# A request to stop (SIGTERM, SIGHUP, Ctrl-C) is deferred until the training has saved its state.
#
# The first signal is recorded. When the block ends, the previous handler gets it, so the program ends as it would have
# without this module. A second signal goes to the previous handler at once.


SIGNALS: tuple[int, ...] = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@dataclass(slots=True)
class Stop:
    """The signals that this process has received, in order (``came``)."""

    came: list[int] = field(default_factory=list)

    @property
    def asked(self) -> bool:
        """Whether a stop signal was received since the context began."""
        return bool(self.came)


@contextmanager
def graceful_stop() -> Iterator[Stop]:
    """Defer stop signals (SIGTERM, SIGHUP, SIGINT) within the context, and yield the record of those received. Only the
    main thread can defer signals."""
    stop = Stop()
    before: dict[int, Any] = {}

    def record_signal(number: int, frame: Any) -> None:
        """Record a stop signal; a second one goes to the handler that was set before, which usually ends the
        program."""
        if stop.came:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        stop.came.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # `nohup`; a handler that is not Python's
                before[number] = signal.signal(number, record_signal)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.came:
            signal.raise_signal(stop.came[0])


# ------------------------------------------------------------------------------------------------------------ packable
#
# Whether a model can be trained on packed rows: the logits of a window must not depend on the others in its row.


@torch.no_grad()
def require_packable(model: PreTrainedModel) -> None:
    """Raise `TrainingError` unless the model gives a window the same logits when it shares a row with others (packing)
    as alone. It must be called within `attention_by_host`."""
    config: Any = model.config
    training = model.training
    model.eval()
    every = torch.arange(12, device=model.device)
    ids = (every * 7 + 11)[None] % config.vocab_size
    bounds = torch.tensor([0, 5, 12], dtype=torch.int32, device=model.device)
    positions = (every - 5 * (every >= 5))[None]
    first = first_position(model)
    try:
        if first is None:
            raise ValueError
        together = logits_at(model, ids, None, every, positions + first, bounds)
        alone = torch.cat(
            [logits_at(model, part, None, torch.arange(part.shape[1], device=model.device))
             for part in (ids[:, :5], ids[:, 5:])]
        )  # fmt: skip
    except (TypeError, ValueError, RuntimeError) as error:
        raise TrainingError(
            f"train.packing: {config.model_type} takes no "
            + ("position numbers" if first is None else f"bounds of windows ({type(error).__name__})")
        ) from None
    finally:
        model.train(training)
    if float((together - alone).abs().max()) > 1e-4 * float(alone.abs().max()):
        raise TrainingError(
            f"train.packing: in {config.model_type} a window beside another has other logits than alone; set false"
        )


NO_TARGET = "recipe {}: no token of the corpus is eligible as a target"


def _has_target(store: TokenStore, recipe: Recipe) -> bool:
    """Return whether the recipe allows any token of the store as a prediction target; end-of-text tokens are not
    considered."""
    return any(bool(((flags & recipe.protected_flags) == 0).any()) for flags in store.blocks("flags"))


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The results of a training: checkpoint folders by epoch, the ledger, the mean loss of each epoch in nats, the
    share of each epoch's time spent waiting for data (``waited``), the guarantee of DP-SGD, the part of it ``spent`` up
    to each checkpoint, and the held-out losses of each epoch if requested.

    ``ended`` is empty but where training may end early: then it has the last ``epoch`` and ``step``, the ``passes``
    over the documents, with early stopping the ``best_epoch``, which is the one of the checkpoint, and the ``batches``
    of an epoch that was cut.
    """

    checkpoints: dict[int, Path]
    ledger: Ledger
    losses: list[float]
    num_steps: int
    num_tokens: int
    seconds: float
    waited: list[float] = field(default_factory=list)
    guarantee: Guarantee | None = None
    spent: dict[int, Guarantee] = field(default_factory=dict)
    eval_losses: list[float] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)


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
    context: ContextWords | None = None,
    has_spans_and_index: bool = False,
    labels: Callable[[TokenStore], np.ndarray] | None = None,
    heldout: TokenStore | None = None,
    keep_state: bool = False,
) -> TrainResult:
    """Fine-tune ``model`` in place with a recipe, and return the result of the training; checkpoints are written to
    ``out/epoch-NNNN`` as plain ``save_pretrained`` folders.

    A training saves its state from time to time, in a thread of its own. On SIGTERM or Ctrl-C it finishes its step,
    saves its state and ends as the signal would have ended it.
    After a stop or a kill, the same call continues from the last saved state; a training that begins anew deletes the
    checkpoints and the ledger of an earlier one in ``out``. Under torchrun every process calls it with the same
    arguments; each process gets ``batch_size`` windows, and only the first writes.

    Parameters
    ----------
    store : TokenStore
        Protected tokens of the members (of the pseudonymised text for ``mlma`` and ``clma``).
    tokenizer : path, hub name or ``tokenizer.json`` text
        The model's own tokenizer; it is saved with the model.
    progress : callable, optional
        Called with a dict (step, num_steps, epoch, loss) after each step; on CUDA the loss is the last one read.
    epoch_store : callable, optional
        Returns the tokens of an epoch, if they change with the epoch; it must be deterministic. The learning rate falls
        to 0 as if all later epochs were as long as the current one.
    privacy : PrivacyConfig, optional
        Settings of DP-SGD; ``ledger.json`` then has epsilon and its unit. An epoch is 1 / sample rate steps of Poisson
        samples, and a loss is a mean over the units drawn. None: plain training.
    resume : bool
        Whether to go on from a saved state, where there is one; False starts again.
    world : World, optional
        The processes that take part; default: those that torchrun started.
    context : ContextWords, optional
        Public words, with which a recipe with ``context_indirect`` replaces indirect identifiers.
    has_spans_and_index : bool
        Whether the tokens were flagged by both spans and n-gram index, as those of a run: then a kind of identifiers of
        which none was found is no error, if there is one of another kind that the recipe protects.
    labels : callable, optional
        For a recipe with a head: returns the labels of the tokens of an epoch, int64, a class of each document or a tag
        of each token. Of a long document a class is learned by one window, drawn anew in each epoch.
    heldout : TokenStore, optional
        For ``eval_strategy``: protected tokens of individuals who are not trained on. Their ordinary words alone count,
        the same ones after each epoch, and they move no weight. With ``early_stopping_patience`` the best epoch is on
        the disk; ``model`` itself keeps the last weights.
    keep_state : bool
        Whether to keep the saved state at the end, so that the same call returns without training; the caller then
        calls `delete_state`.

    Raises
    ------
    TrainingError
        The tokens do not fit the model or the text of the recipe, the recipe protects direct or indirect identifiers
        and no token has that flag, no token is eligible as a target, a protected token is a target, the model reads an
        identifying word that the recipe replaces, or the loss or its gradient is not finite. Earlier checkpoints are
        kept.
    ArtifactError
        ``out`` holds the state of another training, or another process trains there now.
    PolicyError
        A setting does not go with DP-SGD, the privacy budget does not allow this run, a checkpoint is to be kept after
        the last epoch, a recipe replaces indirect identifiers and there are no public words, or it draws surrogates and
        there is no ``epoch_store``.
    """
    if late := config.late_epochs():
        raise PolicyError(
            f"checkpoint_epochs: training ends after epoch {config.num_epochs} (num_epochs), so "
            f"{', '.join(map(str, late))} cannot be kept; leave out what is later (the last epoch is always kept)"
        )
    context = context_of(recipe, context)
    if recipe.context == "surrogate" and epoch_store is None:
        raise PolicyError(
            f"recipe {recipe.name}: its surrogates are drawn anew in each epoch; give epoch_store, without which the "
            "model would read the identifiers themselves"
        )
    out, world = Path(out), world or join_world()
    if (labels is None) != (recipe.head is None):
        raise PolicyError(f"recipe {recipe.name}: labels are what a head learns; give both or none")
    if (heldout is None) != (config.eval_strategy == "no") or (heldout is not None and recipe.head):
        raise PolicyError(
            "train.eval_strategy: is of the words of held-out individuals; give their tokens (heldout) where it is "
            '"epoch", nowhere else, and not for a head, which predicts no word'
        )
    device = world.device(config.device)
    fast_tokenizer = load_tokenizer(tokenizer)
    special = _with_end_token(special_ids(fast_tokenizer, recipe.objective), recipe, config, model, world)
    for tokens in (store, heldout):
        if tokens is not None:
            check_fit(model, tokens, fast_tokenizer, special, config.window_length)
    if recipe.head is None:
        require_sound(model, recipe.objective)
    step = _choose_step(recipe, config, privacy, world, device)
    # Added tokens may have no row in the embeddings.
    vocab_size = min(len(fast_tokenizer), num_rows(model))
    protected = protect_store(store, recipe, special, vocab_size, has_spans_and_index=has_spans_and_index)
    if special.end is not None and not _has_target(protected.store, recipe):
        raise TrainingError(NO_TARGET.format(recipe.name))
    identity = identity_of(model, store, recipe, config, world.size, more=step.cache_key())
    if context is not None:
        identity["context"] = context.digest
    if labels is not None:
        identity["labels"] = hashlib.sha256(np.ascontiguousarray(labels(protected.store)).data).hexdigest()
    if heldout is not None and config.early_stopping_patience:
        identity["heldout"] = tokens_digest(heldout)
    with ExitStack() as held:
        if world.is_main:
            held.enter_context(only_training_in(out))
        world.barrier()  # the first may have had to make the folder, or to empty it
        found = read_state(out, identity) if resume else None
        state = found or State()

        model = model.to(device=device).train()  # type: ignore
        if config.dtype == "bfloat16":
            for weight in model.parameters():  # not the buffers: frequencies of positions need their bits
                weight.data = weight.data.bfloat16()
        held.enter_context(attention_by_host(model, packed=config.packing))
        adapter = _prepare_weights(model, recipe, config)
        if config.gradient_checkpointing:
            held.enter_context(_checkpointed(model))
        windows = _cut_protected(protected, special, config, device, keyed=recipe.private)
        is_class = recipe.head == "class"
        step.prepare(model, windows.one_of_each(seed=config.seed, epoch=0) if is_class else windows, state.private)
        at_error = held.enter_context(ExitStack())
        at_error.callback(step.give_up)
        optimizer = make_optimizer(
            model.parameters(), learning_rate=config.learning_rate, weight_decay=config.weight_decay
        )
        step.wrap(optimizer)
        if found:
            restore(out, model, optimizer)
        elif world.is_main:
            delete_training(out)

        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            graceful_stop() as stop,
            open_metrics(out, state, config.report_to, write=world.is_main) as metrics,
            StateWriter(out, identity, world) as writer,
        ):
            reader = LossReader(state, metrics, world, config.logging_steps, out)
            # Of this process alone; the state has the sum over all. The epochs are the same, so that they add up.
            ledger = state.ledger if world.is_main else Ledger()
            for epoch, row in state.ledger.epochs.items():
                ledger.begin_epoch(epoch, row["protection"])
            run = _Run(
                model,
                optimizer,
                step,
                state,
                ledger,
                config,
                out,
                world,
                stop,
                metrics,
                reader,
                Clock(),
                writer,
                time.monotonic(),
                state.step,
                None if heldout is None else _Heldout.of(heldout, recipe, config, special, world, device),
            )
            if privacy is not None and not found:
                run.save()
                writer.wait()  # its cost is charged by its name, which the state keeps
            while state.epoch <= config.num_epochs and not state.ended:
                run.clock.begin_epoch()
                if epoch_store is not None:
                    protected = protect_store(
                        epoch_store(state.epoch), recipe, special, vocab_size, has_spans_and_index=has_spans_and_index
                    )
                    windows = _cut_protected(protected, special, config, device, keyed=recipe.private)
                run.ledger.begin_epoch(state.epoch, protected.fingerprint)
                read = windows.one_of_each(seed=step.mask_seed, epoch=state.epoch) if is_class else windows
                replace = (
                    None if context is None else BatchContext(context, windows, recipe, step.mask_seed, state.epoch)
                )
                make: MakeTargets = (
                    _labeller(recipe, config, special.mask, step.mask_seed, state.epoch, protected.random_ids, replace)
                    if labels is None
                    else partial(
                        label_windows, windows=read, labels=labels(protected.store), recipe=recipe,
                        seed=step.mask_seed, epoch=state.epoch,
                    )
                )  # fmt: skip
                num_steps = _take_steps(run, read, make, progress)
                is_kept = _end_epoch(run, recipe, fast_tokenizer, adapter, num_steps)
                state.begin_epoch()
                if is_kept and state.epoch <= config.num_epochs and not state.ended:
                    run.save()  # a checkpoint stays where the training fails later
            # Of a stop by the last step: nothing is trained again, the rest is written next time.
            stops = world.sum(stop.asked)[0]
            if stops or keep_state:
                run.save()
            writer.wait()  # it must not come after the state is deleted
            if stops:  # a signal to one process stops all
                raise SystemExit(128 + signal.SIGTERM)
        cost = step.finish(state.step)
        at_error.pop_all()
        if adapter:
            adapter.merge()
        ledger = run.ledger.summed(world.sum)
        if world.is_main:
            about: dict[str, Any] = (
                {} if context is None else {"context": {"source": context.source, "pool": context.digest}}
            )
            if run.heldout is not None:
                about["eval"] = {"losses": state.eval_losses, "targets": state.eval_targets}
            if state.ended:
                about["ended"] = state.ended
            write_ledger(out / "ledger.json", ledger, recipe, config, special, **about, **cost)
            if not keep_state:
                delete_state(out)
        return TrainResult(
            checkpoints={epoch: _folder(out, epoch) for epoch in state.checkpoints},
            ledger=ledger,
            losses=state.losses,
            num_steps=state.step,
            num_tokens=state.num_tokens,
            seconds=state.seconds + run.clock.lap(),
            waited=state.waited,
            guarantee=step.guarantee,
            spent={epoch: spent for epoch in state.checkpoints if (spent := step.after(epoch)) is not None},
            eval_losses=state.eval_losses,
            ended=state.ended,
        )


@dataclass(slots=True)
class _Heldout:
    """Held-out individuals' tokens for ``eval_loss``: ordinary words drawn once, the same after each epoch."""

    windows: Windows
    make: MakeTargets
    plan: list[list[Part | None]]

    @classmethod
    def of(
        cls, store: TokenStore, recipe: Recipe, config: TrainConfig, special: SpecialIds, world: World,
        device: torch.device,
    ) -> _Heldout:  # fmt: skip
        """Return held-out tokens as windows in batches, for measuring ``eval_loss``. Its targets are drawn among words
        that are neither direct nor indirect identifiers, whatever the recipe protects."""
        store.check()
        ordinary = Recipe(name="ordinary words", objective=recipe.objective, never_target=DIRECT | INDIRECT)
        special = replace(special, end=None)
        multiple = padding_multiple(device)
        windows = cut_windows(store, config.window_length, special, pad_to_multiple_of=multiple)
        make = _labeller(ordinary, config, special.mask, config.seed, 0, None, None)
        return cls(windows, make, plan_steps(windows, config, world, epoch=0))

    @torch.no_grad()
    def loss(self, run: _Run, *, causal: bool, device: torch.device) -> tuple[float, int]:
        """Return (mean loss in nats, number of targets) on held-out tokens, over all processes. Every process must call
        it."""
        network = run.step.network or TargetLoss(run.model)
        losses: list[torch.Tensor] = []
        num_targets = 0
        network.eval()
        with closing(prefetched(iter_steps(self.windows, self.plan, self.make, causal=causal, device=device))) as feed:
            for data in feed:
                num_targets += data.num_targets
                for micro in data.wait():
                    with autocast(run.config.bf16, device):
                        losses.append(network(*micro.inputs))
        network.train()
        if hasattr(network, "reshard"):  # of shared weights: else a backward pass lets go of what the others have
            network.reshard()  # type: ignore[operator]
        own = torch.stack(losses).tolist() if losses else []
        total, counted = run.world.sum(math.fsum(own), num_targets)
        if not counted or not math.isfinite(total):
            what = "is not finite" if counted else "has no word: no ordinary word of theirs may be a target"
            raise TrainingError(f"train.eval_strategy: the loss on held-out individuals {what}")
        return total / counted, int(counted)


@dataclass(slots=True)
class _Run:
    """The mutable state of a running training, and the objects that change it."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    step: Step
    state: State
    #: The ledger of the steps taken so far; steps prepared ahead have ledgers of their own.
    ledger: Ledger
    config: TrainConfig
    out: Path
    world: World
    stop: Stop
    metrics: Metrics
    reader: LossReader
    clock: Clock
    writer: StateWriter
    #: When the last state was saved, or the training began, by `time.monotonic`, and after which step.
    saved: float
    saved_step: int
    heldout: _Heldout | None

    @property
    def is_due(self) -> bool:
        """Whether this process should save the training state before the next step, by the number of steps or minutes
        since the last save; always False except in the first process."""
        steps, minutes = self.config.save_steps, self.config.save_minutes
        by_steps = steps > 0 and self.state.step % steps == 0 and self.state.step > self.saved_step
        by_time = minutes > 0 and time.monotonic() - self.saved >= 60 * minutes
        return self.world.is_main and (by_steps or by_time)

    def save(self) -> None:
        """Save the training state, from which the training can be resumed. Every process must call it, because ledgers
        are summed."""
        self.reader.read()
        self.state.ledger = self.ledger.summed(self.world.sum)
        self.state.sizes = self.metrics.sizes()
        self.state.seconds += self.clock.lap()
        self.writer.save(self.state, self.model, self.optimizer)
        self.saved, self.saved_step = time.monotonic(), self.state.step


def _take_steps(
    run: _Run, windows: Windows, make: MakeTargets, progress: Callable[[dict[str, Any]], None] | None
) -> int:
    """Take the remaining optimizer steps of the epoch, and return the number of steps of the whole epoch."""
    state, step, optimizer, reader, config = run.state, run.step, run.optimizer, run.reader, run.config
    plan = step.plan_epoch(windows, make, state)
    if not state.step and run.world.is_main and config.warmup_steps >= plan.num_steps > 0:
        log_warning(
            f"warmup_steps: {config.warmup_steps} steps, but this training takes {plan.num_steps}, so its rate never "
            "reaches learning_rate; give fewer"
        )
    schedule = make_schedule(optimizer, config, state.step, plan.num_steps)
    with closing(prefetched(plan.data)) as feed:
        for data in run.clock.watch(feed):
            if state.step == config.max_steps:
                break
            num_targets, num_tokens, filled, cells, stops, due = run.world.sum(*data.counts, run.stop.asked, run.is_due)
            if stops or due:  # a signal to one process stops all of them before the same step
                run.save()
            if stops:
                run.writer.wait()
                raise SystemExit(128 + signal.SIGTERM)
            taken = num_targets > 0 or step.takes_empty
            if taken:
                losses = step.backward(data, num_targets, state.step)
                norm = whole(torch.nn.utils.clip_grad_norm_(run.model.parameters(), step.max_grad_norm))
                reader.add(num_targets, losses, norm, float(schedule.get_last_lr()[0]))
                if norm.device.type == "cpu":
                    reader.read()  # raises at a value that is not finite, before it reaches the weights
                else:
                    optimizer.found_inf = reader.found_inf  # type: ignore[attr-defined]
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                state.step += 1
            run.ledger.add(data.ledger)
            state.done += 1
            state.num_tokens += int(num_tokens)
            state.num_filled += int(filled)
            state.num_cells += int(cells)
            if taken and state.step % config.logging_steps == 0:
                reader.read()
            if taken and progress:
                about = {"step": state.step, "num_steps": plan.num_steps, "epoch": state.epoch}
                progress({**about, "loss": reader.last})
            if taken:
                schedule.step()  # last: until the next step begins, the optimizer has the rate of this one
    reader.read()
    return plan.epoch_steps


def _end_epoch(
    run: _Run, recipe: Recipe, tokenizer: PreTrainedTokenizerFast, adapter: Adapter | None, num_steps: int
) -> bool:
    """Log the epoch, decide whether it is the last, write its checkpoint if configured, and return whether one was
    written."""
    state, config = run.state, run.config
    if state.step == state.first_step:
        raise TrainingError(NO_TARGET.format(recipe.name))
    state.losses.append(state.epoch_loss / max(state.epoch_targets, 1))
    times = run.clock.of_epoch()
    state.waited.append(times["waited"])
    about = {"epoch": state.epoch, "step": state.step}
    padding = 1 - state.num_filled / state.num_cells
    spent = run.step.after(state.epoch)
    cost = {} if spent is None or spent.epsilon in (None, math.inf) else {"epsilon": spent.epsilon}
    found: dict[str, float] = {}
    if run.heldout is not None:
        loss, state.eval_targets = run.heldout.loss(run, causal=recipe.is_causal, device=run.model.device)
        state.eval_losses.append(loss)
        found = {"eval_loss": loss, "eval_targets": state.eval_targets}
    of_epoch = {"loss": state.losses[-1], "targets": state.epoch_targets, "padding": padding, **cost, **found}
    run.metrics.log({**about, **of_epoch})
    run.metrics.log({**about, **times}, "timings.jsonl")
    is_kept, number, passes = state.epoch in config.epochs_kept(), state.epoch, float(state.epoch)
    if config.ends_early:
        passes = round(state.epoch - 1 + state.done / num_steps, 2)
        number, patience = config.num_epochs, config.early_stopping_patience
        best = 1 + state.eval_losses.index(min(state.eval_losses)) if patience else state.epoch
        is_late = patience > 0 and state.epoch - best >= patience
        if state.epoch == config.num_epochs or state.step == config.max_steps or is_late:
            state.ended = {**about, "passes": passes, **({"best_epoch": best} if patience else {})}
            if state.done < num_steps:
                state.ended["batches"] = state.done * config.gradient_accumulation_steps * run.world.size
        is_kept = best == state.epoch if patience else bool(state.ended)
    if is_kept:
        state.checkpoints = sorted({*state.checkpoints, number})
        weights = whole_state(run.model, run.world)  # every process has a part of them, or none
        if run.world.is_main:
            write_model(
                run.model, tokenizer, _folder(run.out, number), recipe=recipe, epoch=passes, adapter=adapter,
                guarantee=run.step.guarantee, spent=spent, weights=weights,
            )  # fmt: skip
    return is_kept


def _choose_step(
    recipe: Recipe, config: TrainConfig, privacy: PrivacyConfig | None, world: World, device: torch.device
) -> Step:
    """Return the `Step` that computes gradients: plain or, with privacy settings, DP-SGD."""
    if privacy is None:
        if recipe.private:
            raise PolicyError(f"recipe {recipe.name}: DP-SGD needs its settings; give [train.dp]")
        return PlainStep(recipe, config, world, device)
    return resolve("reticent.ext.dp.dpsgd:PrivateStep")(recipe, config, privacy, world, device)


def _prepare_weights(model: PreTrainedModel, recipe: Recipe, config: TrainConfig) -> Adapter | None:
    """Insert LoRA adapters and freeze embeddings as configured, check that windows can be packed, and return the
    adapters or None."""
    adapter = add_adapter(model, config.lora, seed=config.seed) if config.lora else None
    if recipe.freeze_embeddings:
        freeze_embeddings(model)
    if config.packing:
        require_packable(model)
    return adapter


@contextmanager
def _checkpointed(model: PreTrainedModel) -> Iterator[None]:
    """Recompute layer activations in the backward pass (gradient checkpointing) within the context."""
    try:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError:
        raise TrainingError(
            f"train.gradient_checkpointing: {model.config.model_type} cannot make activations again; set it to false"
        ) from None
    try:
        yield
    finally:
        model.gradient_checkpointing_disable()


def _cut_protected(
    protected: ProtectedStore, special: SpecialIds, config: TrainConfig, device: torch.device, *, keyed: bool
) -> Windows:
    """Return a store's tokens, with their protection flags, cut into windows of the configured length. With ``keyed``,
    random draws go by document and position, not by window number.
    """
    multiple = padding_multiple(device)
    return cut_windows(
        protected.store, config.window_length, special, pad_to_multiple_of=multiple, with_ends=True, keyed=keyed
    )


def _with_end_token(
    special: SpecialIds, recipe: Recipe, config: TrainConfig, model: PreTrainedModel, world: World
) -> SpecialIds:
    """Return the ids of special tokens, without the end-of-text token if it is not to be a prediction target. If it is,
    also set it in the model's generation settings, so that text generated by a checkpoint ends there."""
    if not recipe.is_causal or not config.end_of_text:
        return replace(special, end=None)
    if special.end is None or special.end >= num_rows(model):
        if world.is_main:
            log_warning(
                "train.end_of_text: the tokenizer has no end of a text that the model has an embedding for (eos_token "
                "of tokenizer_config.json), so it is no target; text that the model writes does not stop"
            )
        return replace(special, end=None)
    if (own := getattr(model, "generation_config", None)) is not None:
        known = [] if own.eos_token_id is None else np.atleast_1d(own.eos_token_id).tolist()
        if special.end not in known:
            own.eos_token_id = [*known, special.end] if known else special.end
    return special


def _labeller(
    recipe: Recipe,
    config: TrainConfig,
    mask_id: int | None,
    seed: int,
    epoch: int,
    random_ids: np.ndarray | None,
    context: BatchContext | None,
) -> Callable[[Batch, Ledger], Targets]:
    """Return the function that makes the inputs and labels of a batch in one epoch, and counts them in a ledger."""

    def make(batch: Batch, ledger: Ledger) -> Targets:
        """Return the inputs and labels of a batch under the recipe, after counting them in ``ledger``."""
        return make_targets(
            batch,
            recipe,
            ledger,
            mask_id=mask_id,
            mask_share=config.mask_share,
            seed=seed,
            epoch=epoch,
            random_ids=random_ids,
            context=context,
        )

    return make


def _folder(out: Path, epoch: int) -> Path:
    """Return the checkpoint folder of an epoch."""
    return out / f"epoch-{epoch:04d}"
