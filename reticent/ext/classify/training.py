"""Downstream task: a classifier of whole documents on top of a checkpoint, with its last layer and a new head trained.

The schedule is that of [@boutet2025] §5.5, which follows [@sun2019]: four epochs, learning rate 2e-5, a tenth of the
steps as warm-up.

All other weights are frozen, so the checkpoint learns nothing more about individuals. All starts with one seed get the
same new head. A document longer than a window is trained with all its windows, each with an equal part of the
document's weight. Its predicted class has the highest mean log-probability over its windows. With ``windows="first"``
the rest of a document is cut off, which is common practice. Classes are not weighted.

Shapes: B windows of a batch, T tokens, C classes, D documents.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
import torch.nn.functional as F

from reticent.core.device import autocast, pick_device
from reticent.core.errors import ArtifactError, TrainingError
from reticent.ext.classify.labels import LabelledTokens
from reticent.trainer.config import ClassifyConfig
from reticent.trainer.export import keep_allowed, write_card
from reticent.trainer.loop import make_optimizer
from reticent.trainer.models import check_fit, load_model, load_tokenizer, special_ids
from reticent.trainer.windows import Batch, SpecialIds, Windows, cut_windows, padding_multiple, prefetched

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

__all__ = ["Classified", "ClassifyConfig", "StepReport", "classify"]

CARD = """# Classifier trained with Reticent

The last layer and the head were trained on labelled documents; the rest is the checkpoint it started from. Its class
names are in `config.json`. It was not shown to be safe to share by being here: read the audit report of its checkpoint.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """The predictions of a classifier, and a record of its training.

    Attributes
    ----------
    predicted : int64 array, shape (held-out documents,), a class for each, in their order
    losses : mean cross entropy of each epoch in nats; all documents have the same weight
    num_trained, num_parameters : number of trained weights, and of all weights
    """

    predicted: np.ndarray
    losses: list[float]
    num_steps: int
    num_trained: int
    num_parameters: int
    seconds: float


class StepReport(TypedDict):
    """One step of a classifier's training; ``learning_rate`` is the rate of that step."""

    step: int
    num_steps: int
    epoch: int
    loss: float
    learning_rate: float


def classify(
    model_folder: Path | str,
    documents: LabelledTokens,
    config: ClassifyConfig | None = None,
    *,
    out: Path | None = None,
    progress: Callable[[StepReport], None] | None = None,
) -> Classified:
    """Train a classifier on top of a checkpoint and predict the classes of the held-out documents.

    Parameters
    ----------
    model_folder : folder (or hub name) of a masked or causal model, with its tokenizer
    documents : LabelledTokens, made with that tokenizer
    out : Path, optional
        New folder for the classifier, readable by ``AutoModelForSequenceClassification``; files have mode 0600.
    progress : callable, optional
        Called with a report after each step.

    Raises
    ------
    ArtifactError
        The folder has no model, or its architecture has no classifier or no stack of layers.
    TrainingError
        Tokens or windows do not fit the model, or the loss or its gradient is not finite.

    Cost: that of training without the gradients of the frozen layers. On the CPU two runs give identical bits.
    """
    started = time.perf_counter()
    config = config or ClassifyConfig()
    device = pick_device(config.device)
    tokenizer = load_tokenizer(model_folder)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model, special = _new_classifier(model_folder, documents.class_names, tokenizer)
        check_fit(model, documents.store, tokenizer, special, config.window_length)
        trained = _freeze(model)
        model = model.to(device=device)  # type: ignore
        train_windows, test_windows = _windows(documents, config, special, padding_multiple(device))
        losses, num_steps = _fit(model.train(), trained, train_windows, documents, config, progress)
        predicted = _predict(model.eval(), test_windows, config)
    if out is not None:
        _save(model, tokenizer, out)
    return Classified(
        predicted=predicted[~documents.is_train],
        losses=losses,
        num_steps=num_steps,
        num_trained=sum(parameter.numel() for parameter in trained),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=time.perf_counter() - started,
    )


def _fit(
    model: PreTrainedModel,
    trained: list[torch.nn.Parameter],
    windows: Windows,
    documents: LabelledTokens,
    config: ClassifyConfig,
    progress: Callable[[StepReport], None] | None,
) -> tuple[list[float], int]:
    """Train; returns the loss of each epoch and the number of steps."""
    from transformers import get_linear_schedule_with_warmup

    weights = 1.0 / np.bincount(windows.documents, minlength=len(documents.classes)).clip(1)
    num_batches = math.ceil(len(windows) / config.batch_size)
    # The same divisor for every batch; otherwise the weight of a window would depend on the others in its batch.
    mean_weight = float(np.count_nonzero(documents.is_train)) / num_batches
    num_steps = config.num_epochs * num_batches
    optimizer = make_optimizer(trained, learning_rate=config.learning_rate, weight_decay=config.weight_decay)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(config.warmup_ratio * num_steps), num_steps)
    losses: list[float] = []
    step = 0
    for epoch in range(1, config.num_epochs + 1):
        total = 0.0
        for batch in prefetched(_batches(windows, config, epoch)):
            of_window = windows.documents[batch.windows]
            classes_B = torch.from_numpy(documents.classes[of_window]).to(model.device)
            weights_B = torch.from_numpy(weights[of_window]).to(model.device, torch.float32)
            each_B = F.cross_entropy(_logits(model, batch, config), classes_B, reduction="none")
            loss = (each_B * weights_B).sum() / mean_weight
            loss.backward()
            step_loss = float(loss.detach())
            norm = float(torch.nn.utils.clip_grad_norm_(trained, config.max_grad_norm))
            step += 1
            if not (math.isfinite(step_loss) and math.isfinite(norm)):
                raise TrainingError(
                    f"the classifier's loss or gradient is not finite in epoch {epoch}, step {step}; lower the "
                    "learning rate"
                )
            rate = schedule.get_last_lr()[0]
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            total += step_loss
            if progress:
                progress(StepReport(step=step, num_steps=num_steps, epoch=epoch, loss=step_loss, learning_rate=rate))
        losses.append(total / num_batches)
    return losses, step


# ------------------------------------------------------------------------------------------------------------ the model


def _new_classifier(
    folder: Path | str, class_names: tuple[str, ...], tokenizer: PreTrainedTokenizerFast
) -> tuple[PreTrainedModel, SpecialIds]:
    """The checkpoint with a new head, and the special tokens of its windows.

    A pooler is a part of the head and is new too, because masked language modelling trains none.
    """
    from transformers import AutoModelForSequenceClassification

    objective = _objective_of(folder)
    base: Any = load_model(folder, objective)
    special = special_ids(tokenizer, objective)
    config = copy.deepcopy(base.config)
    config.id2label = dict(enumerate(class_names))
    config.label2id = {name: number for number, name in enumerate(class_names)}
    config.problem_type = "single_label_classification"
    config.pad_token_id = special.pad  # causal classifiers need it to find the last token
    try:
        model: Any = AutoModelForSequenceClassification.from_config(
            config, attn_implementation="sdpa", dtype=torch.float32
        )
    except ValueError:  # its own message lists all architectures
        raise ArtifactError(f"{folder}: transformers has no classifier of the kind {config.model_type}") from None
    missing, unexpected = model.base_model.load_state_dict(base.base_model.state_dict(), strict=False)
    if unexpected or any(not name.startswith("pooler.") for name in missing):
        raise ArtifactError(f"{folder}: its weights are not those of a {config.model_type} classifier without its head")
    return model, special


def _objective_of(folder: Path | str) -> str:
    """The objective of the model: "mlm" if a token attends to all tokens, "clm" if only to those before it."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    if list(Path(folder).glob("*.gguf")) and not (Path(folder) / "config.json").exists():
        return "clm"
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    except Exception as error:  # a wrong config can fail anywhere in the library
        raise ArtifactError(
            f"{folder}: not a model ({type(error).__name__}); expected a folder with config.json and model.safetensors"
        ) from None
    return "mlm" if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not config.is_decoder else "clm"


def _freeze(model: PreTrainedModel) -> list[torch.nn.Parameter]:
    """Freeze all but the last layer, a pooler and the head; returns the weights that are trained."""
    base: Any = model.base_model
    depth = getattr(model.config, "num_hidden_layers", None)
    stacks = [part for part in base.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == depth]
    if not stacks or getattr(model.config, "is_encoder_decoder", False):
        raise ArtifactError(
            f"a model of the kind {model.config.model_type} has no last layer to train: layers not found"
        )
    of_base = {id(parameter) for parameter in base.parameters()}
    parts = [stacks[0][-1], *([base.pooler] if getattr(base, "pooler", None) is not None else [])]
    wanted = {id(parameter) for part in parts for parameter in part.parameters()}
    trained = []
    for parameter in model.parameters():
        parameter.requires_grad = id(parameter) in wanted or id(parameter) not in of_base
        if parameter.requires_grad:
            trained.append(parameter)
    return trained


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, out: Path) -> None:
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)
    out.mkdir(mode=0o700, parents=True)
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)
    keep_allowed(out)
    write_card(out, CARD, pipeline_tag="text-classification")
    for file in out.iterdir():
        file.chmod(0o600)


# ---------------------------------------------------------------------------------------------------------------- steps


def _windows(
    documents: LabelledTokens, config: ClassifyConfig, special: SpecialIds, pad_to: int
) -> tuple[Windows, Windows]:
    """Windows of the training documents and of the held-out documents; padding never exceeds the window length."""
    pad_to = math.gcd(pad_to, config.window_length)
    windows = cut_windows(documents.store, config.window_length, special, pad_to_multiple_of=pad_to)
    chosen = np.ones(len(windows), dtype=bool)
    if config.windows == "first":
        chosen = np.diff(windows.documents, prepend=-1) > 0
    is_train = documents.is_train[windows.documents]
    sides = [
        replace(windows, documents=windows.documents[part], starts=windows.starts[part], lengths=windows.lengths[part])
        for part in (chosen & is_train, chosen & ~is_train)
    ]
    return sides[0], sides[1]


def _batches(windows: Windows, config: ClassifyConfig, epoch: int) -> Iterator[Batch]:
    for numbers in windows.epoch_order(config.batch_size, seed=config.seed, epoch=epoch):
        yield windows.gather(numbers)


def _logits(model: PreTrainedModel, batch: Batch, config: ClassifyConfig) -> torch.Tensor:
    """Logits of each window, float32 (B, C)."""
    device = model.device
    input_ids_BT = torch.from_numpy(batch.input_ids).to(device, non_blocking=True)
    attention_BT = torch.from_numpy(batch.attention).to(device, non_blocking=True)
    with autocast(config.bf16, device):
        return model(input_ids=input_ids_BT, attention_mask=attention_BT).logits.float()


@torch.no_grad()
def _predict(model: PreTrainedModel, windows: Windows, config: ClassifyConfig) -> np.ndarray:
    """The class of each document by the mean log-probability of its windows, int64 (D,); 0 for one without windows."""
    scores_DC = np.zeros((windows.store.num_documents, model.config.num_labels or 0))
    for numbers in windows.scoring_order(config.batch_size):
        log_probs_BC = F.log_softmax(_logits(model, windows.gather(numbers), config), dim=-1)
        # A sum over the windows of a document has the same highest class as their mean.
        np.add.at(scores_DC, windows.documents[numbers], log_probs_BC.double().cpu().numpy())
    return scores_DC.argmax(axis=1)
