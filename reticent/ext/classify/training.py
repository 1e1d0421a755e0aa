"""Training of a head on top of a checkpoint: a document classifier or a tagger, with some layers of the model.

The schedule of classifiers is that of [@boutet2025] §5.5, which follows [@sun2019]: four epochs, learning rate 2e-5, a
tenth of the steps as warm-up. Only the last layer is trained with the head, so the checkpoint learns little more about
individuals; word embeddings are never trained. All checkpoints with one seed get the same initial head.

The trainer's loop trains it (`reticent.trainer.loop.train`), plain or by DP-SGD. A document longer than a window is
trained on one of its windows, drawn anew in each epoch. Its predicted class has the highest mean log-probability over
its windows. With ``windows="first"`` the rest of a document is cut off, which is common practice. Classes are not
weighted.

Shapes: B windows of a batch, T tokens, C classes, D documents.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F

from reticent.core.artifact import held_folder
from reticent.core.device import autocast, pick_device
from reticent.core.errors import ArtifactError, PolicyError
from reticent.engine.store import LISTS, TokenStore
from reticent.ext.classify.labels import LabelledTokens
from reticent.trainer.config import ClassifyConfig, HeadConfig
from reticent.trainer.distributed import World
from reticent.trainer.loop import train
from reticent.trainer.metrics import FILES
from reticent.trainer.models import check_fit, load_model, load_tokenizer, special_ids
from reticent.trainer.resume import delete_state
from reticent.trainer.windows import Batch, SpecialIds, cut_windows, padding_multiple

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from reticent.trainer.privacy import Guarantee, PrivacyConfig
    from reticent.trainer.recipes import Objective, Recipe

__all__ = ["Classified", "ClassifyConfig", "StepReport", "classify", "train_head"]

TIMINGS = FILES[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """The predictions of a trained head for the held-out documents, and a record of its training.

    Attributes
    ----------
    predicted : int64 array, a class for each held-out document, or a tag for each of their tokens, in their order
    losses : mean cross entropy of each epoch in nats
    num_trained, num_parameters : number of trained weights, and of all weights
    guarantee : of a training by DP-SGD
    """

    predicted: np.ndarray
    losses: list[float]
    num_steps: int
    num_trained: int
    num_parameters: int
    seconds: float
    guarantee: Guarantee | None = None


class StepReport(TypedDict):
    """The report of one training step, for a progress callback."""

    step: int
    num_steps: int
    epoch: int
    loss: float


class Labelled(Protocol):
    """Protocol of documents with labels: `LabelledTokens` or `TaggedTokens`."""

    @property
    def store(self) -> TokenStore:
        """Tokens of the D labelled documents."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes or tags, in the order of their numbers."""

    @property
    def is_train(self) -> np.ndarray:
        """Whether each document is for training, bool (D,); the others are held out."""

    @property
    def households(self) -> np.ndarray | None:
        """Household of each individual, by individual code; None if every individual is a household alone."""


def classify(
    model_folder: Path | str,
    documents: LabelledTokens,
    config: ClassifyConfig | None = None,
    *,
    out: Path | None = None,
    progress: Callable[[StepReport], None] | None = None,
    epoch_store: Callable[[int], TokenStore] | None = None,
    privacy: PrivacyConfig | None = None,
    keep_state: bool = False,
) -> Classified:
    """Train a document classifier on top of a checkpoint, and predict the classes of the held-out documents.

    Parameters
    ----------
    model_folder : folder (or hub name) of a masked or causal model, with its tokenizer
    documents : LabelledTokens, made with that tokenizer
    out : Path, optional
        Folder for the classifier, readable by ``AutoModelForSequenceClassification``, with its ledger and metrics, and
        further checkpoints in ``epoch-NNNN``; files have mode 0600. After a kill the same call goes on in it.
    progress : callable, optional
        Called with a report after each step.
    epoch_store : callable, optional
        Returns the training documents as they are read in an epoch, by their ids, if ``config.text`` is not "keep":
        tokens with surrogates or tags, of more documents if need be.
    privacy : PrivacyConfig, optional
        DP-SGD; it goes with ``config.private``.
    keep_state : bool
        The state stays in ``out``, so that after a kill in what comes next the same call trains nothing; who is done
        with that calls `delete_state`.

    Raises
    ------
    ArtifactError
        The folder has no model, or its architecture has no classifier or no stack of layers; or ``out`` holds another
        training.
    TrainingError
        Tokens or windows do not fit the model, or the loss or its gradient is not finite.
    PolicyError
        Settings that do not go together; see `train`.

    Cost: that of training without the gradients of the frozen layers. On the CPU two runs give identical bits.
    """
    config = config or ClassifyConfig()
    own = documents.classes[documents.is_train]
    return train_head(
        model_folder, documents, config, labels=lambda _: own, epoch_store=epoch_store, out=out, progress=progress,
        privacy=privacy, keep_state=keep_state,
    )  # fmt: skip


def train_head(
    model_folder: Path | str,
    documents: Labelled,
    config: HeadConfig,
    *,
    labels: Callable[[TokenStore], np.ndarray],
    epoch_store: Callable[[int], TokenStore] | None,
    out: Path | None,
    progress: Callable[[StepReport], None] | None,
    privacy: PrivacyConfig | None,
    keep_state: bool,
) -> Classified:
    """Train a head on labelled documents, to classify documents or to tag tokens, and predict the labels of the
    held-out ones; see `classify`.

    ``labels`` returns those of the training documents in the store of an epoch.
    """
    started = time.perf_counter()
    if (epoch_store is None) != (config.text == "keep"):
        raise PolicyError(f'{config.section}.text: "{config.text}" needs epoch_store, and "keep" has none')
    if config.private != (privacy is not None):
        raise PolicyError(f"{config.section}.private: DP-SGD needs its settings ([train.dp]), and they need it")
    device, tokenizer = pick_device(config.device), load_tokenizer(model_folder)
    objective = _objective_of(model_folder)
    recipe = config.recipe(objective)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model, special = _new_head(model_folder, objective, recipe, documents.class_names, tokenizer)
    check_fit(model, documents.store, tokenizer, special, config.window_length)
    trained = _freeze_weights(model, config.layers)
    train_store, num_units = training_units(documents, privacy)
    stores = epoch_store
    if isinstance(documents, LabelledTokens):
        if epoch_store is not None:
            stores = partial(_select_of_epoch, epoch_store, train_store.doc_ids)
        if isinstance(config, ClassifyConfig) and config.windows == "first":
            first = partial(_first_windows, length=config.window_length - special.num_added)
            train_store, stores = first(train_store), None if stores is None else _map_stores(stores, first)
    if privacy is not None:  # the warm-up tells no number that is not public
        num_windows = privacy.num_units or num_units
        if privacy.sample_rate is not None:
            num_windows = config.batch_size * max(1, round(1 / privacy.sample_rate))
    elif config.head == "class":
        num_windows = int(np.count_nonzero(np.diff(train_store.doc_offsets)))
    else:
        num_windows = len(cut_windows(train_store, config.window_length, special))
    with held_folder("reticent-classify-") if out is None else nullcontext(out) as folder:
        found = train(
            model,
            train_store if stores is None else stores(1),
            recipe,
            config.training(num_windows),
            folder,
            tokenizer=str(model_folder),
            progress=progress,  # type: ignore[arg-type]
            epoch_store=stores,
            privacy=privacy,
            has_spans_and_index=True,
            labels=labels,
            world=World(),  # where torchrun started several, the others wait
            keep_state=out is not None,
        )
        predicted = _predict(model.eval(), documents, config, special, padding_multiple(device))
        if out is not None:
            last = found.checkpoints[config.num_epochs]  # it is the model, and stands beside its ledger
            if last.exists():  # or it was moved before a kill
                for file in last.iterdir():
                    file.replace(out / file.name)
                last.rmdir()
            (out / TIMINGS).unlink()  # an artefact has the same files each time
            if not keep_state:
                delete_state(out)
    return Classified(
        predicted=predicted,
        losses=found.losses,
        num_steps=found.num_steps,
        num_trained=sum(parameter.numel() for parameter in trained),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=time.perf_counter() - started,
        guarantee=found.guarantee,
    )


def training_units(documents: Labelled, privacy: PrivacyConfig | None) -> tuple[TokenStore, int]:
    """Return the token store of the training documents and the number of privacy units in it. If the unit is the
    household, households replace the individuals of the store.
    """
    store = documents.store.select(np.flatnonzero(documents.is_train))
    if privacy is not None and privacy.unit == "household":
        if documents.households is None:
            raise PolicyError('train.dp.unit = "household": the documents name no households')
        store = store.with_units_as_individuals(documents.households)
    is_record = privacy is not None and privacy.unit == "record"
    return store, store.num_documents if is_record else len(np.unique(store.individual))


def _select_of_epoch(epoch_store: Callable[[int], TokenStore], doc_ids: pa.Array, epoch: int) -> TokenStore:
    """Return the documents with these ids, in this order, from the token store of an epoch."""
    store = epoch_store(epoch)
    rows = pc.index_in(doc_ids, value_set=store.doc_ids)
    if rows.null_count:
        raise ArtifactError(f"{rows.null_count} of the documents to train on have no tokens for epoch {epoch}")
    return store.select(rows.to_numpy())


def _map_stores(stores: Callable[[int], TokenStore], transform: Callable[[TokenStore], TokenStore]) -> Any:
    """Return the composition of two functions: it takes an epoch and returns ``transform`` of the token store that
    ``stores`` returns for this epoch.
    """
    return lambda epoch: transform(stores(epoch))


def _first_windows(store: TokenStore, length: int) -> TokenStore:
    """Return the token store with each document cut off after ``length`` tokens."""
    lengths = np.diff(store.doc_offsets)
    kept = np.arange(store.num_tokens) - np.repeat(store.doc_offsets[:-1], lengths) < length
    offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, length))]).astype(np.int64)
    columns = {name: getattr(store, name)[kept] for name in LISTS}
    return store.with_columns(**columns, doc_offsets=offsets)


# ------------------------------------------------------------------------------------------------------------ the model


def _new_head(
    folder: Path | str, objective: str, recipe: Recipe, names: tuple[str, ...], tokenizer: PreTrainedTokenizerFast
) -> tuple[PreTrainedModel, SpecialIds]:
    """Return a checkpoint's model with a randomly initialised classification or tagging head for the labels ``names``,
    and its special token ids.

    A pooler is a part of the head and is new too, because masked language modelling trains none.
    """
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    kinds = {"class": AutoModelForSequenceClassification, "tags": AutoModelForTokenClassification}
    base: Any = load_model(folder, objective)
    special = special_ids(tokenizer, objective)
    config = copy.deepcopy(base.config)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}
    if recipe.head == "class":
        config.problem_type = "single_label_classification"
    config.pad_token_id = special.pad  # causal classifiers need it to find the last token
    try:
        model: Any = kinds[recipe.head or "class"].from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    except ValueError:  # its own message lists all architectures
        what = "classifier" if recipe.head == "class" else "tagger"
        raise ArtifactError(f"{folder}: transformers has no {what} of the kind {config.model_type}") from None
    missing, unexpected = model.base_model.load_state_dict(base.base_model.state_dict(), strict=False)
    # A tagger has no pooler, which the base may have.
    if any(not name.startswith("pooler.") for name in (*missing, *unexpected)):
        raise ArtifactError(f"{folder}: its weights are not those of a {config.model_type} classifier without its head")
    return model, special


def _objective_of(folder: Path | str) -> Objective:
    """Return the training objective of a model folder: "mlm" (masked) or "clm" (causal language model)."""
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


def _freeze_weights(model: PreTrainedModel, layers: str) -> list[torch.nn.Parameter]:
    """Freeze all weights of a classifier except the head, the pooler, and the transformer layers, or if ``layers`` is
    "last" the last of these only. Return the parameters that are trained.
    """
    base: Any = model.base_model
    depth = getattr(model.config, "num_hidden_layers", None)
    stacks = [part for part in base.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == depth]
    if not stacks or getattr(model.config, "is_encoder_decoder", False):
        raise ArtifactError(
            f"a model of the kind {model.config.model_type} has no last layer to train: layers not found"
        )
    of_base = {id(parameter) for parameter in base.parameters()}
    parts = [
        stacks[0][-1] if layers == "last" else stacks[0],
        *([base.pooler] if getattr(base, "pooler", None) is not None else []),
    ]
    wanted = {id(parameter) for part in parts for parameter in part.parameters()}
    trained = []
    for parameter in model.parameters():
        parameter.requires_grad = id(parameter) in wanted or id(parameter) not in of_base
        if parameter.requires_grad:
            trained.append(parameter)
    return trained


# ------------------------------------------------------------------------------------------------------ its predictions


@torch.no_grad()
def _predict(
    model: PreTrainedModel, documents: Labelled, config: HeadConfig, special: SpecialIds, pad_to: int
) -> np.ndarray:
    """Predict the held-out documents; return int64, one class a document or one tag a token. A document's class is that
    with the highest mean log-probability over its windows, 0 if it has none.
    """
    store = documents.store.select(np.flatnonzero(~documents.is_train))
    if isinstance(config, ClassifyConfig) and config.windows == "first":
        store = _first_windows(store, config.window_length - special.num_added)
    windows = cut_windows(store, config.window_length, special, pad_to_multiple_of=pad_to)
    if config.head == "tags":
        tags = np.zeros(store.num_tokens, dtype=np.int64)
        for numbers in windows.scoring_order(config.batch_size):
            batch = windows.gather(numbers)
            found = _logits(model, batch, config).argmax(dim=-1).cpu().numpy()
            positions = windows.token_positions(numbers, found.shape[1])
            tags[positions[batch.is_text]] = found[batch.is_text]
        return tags
    scores_DC = np.zeros((store.num_documents, model.config.num_labels or 0))
    for numbers in windows.scoring_order(config.batch_size):
        log_probs_BC = F.log_softmax(_logits(model, windows.gather(numbers), config), dim=-1)
        # A sum over the windows of a document has the same highest class as their mean.
        np.add.at(scores_DC, windows.documents[numbers], log_probs_BC.double().cpu().numpy())
    return scores_DC.argmax(axis=1)


def _logits(model: PreTrainedModel, batch: Batch, config: HeadConfig) -> torch.Tensor:
    """Return the logits of a batch of windows, float32 (B, C) of a classifier or (B, T, C) of a tagger."""
    device = model.device
    input_ids_BT = torch.from_numpy(batch.input_ids).to(device, non_blocking=True)
    attention_BT = torch.from_numpy(batch.attention).to(device, non_blocking=True)
    with autocast(config.bf16, device):
        return model(input_ids=input_ids_BT, attention_mask=attention_BT).logits.float()
