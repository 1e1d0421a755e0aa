"""Models and tokenizers, by local folder or hub name: always safetensors, never code from the hub.

This module is also the only place that computes logits. It does so at chosen positions only, so no logits over a
vocabulary of 50,000 entries are made for tokens whose logits are not used.
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import torch

from reticent.core.errors import ArtifactError, TrainingError
from reticent.core.model_folder import folder_of_model
from reticent.core.progress import log_warning
from reticent.engine.store import TokenStore
from reticent.engine.tokenizer_library import json_of, library_tokenizer, names_in, remember_json
from reticent.trainer.attention import without_padding_warning
from reticent.trainer.windows import SpecialIds

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

from reticent.trainer.base_files import (
    check_base,
    checked_tokenizer_json,
    differing_parts,
    num_weights,
    panic_as_error,
    read_tokenizer_json,
)

#: Largest number of parameters without weights in the files: those of a new head.
MOST_NEW = 1 << 24


def load_model(
    name_or_path: str | Path, objective: str, *, complete: Literal["no", "body", "all"] = "no"
) -> PreTrainedModel:
    """Return a masked ("mlm") or causal ("clm") language model in float32, with sdpa attention if its class has it.
    Weights that the files lack are drawn at random; with ``complete`` "all" they are an error, with "body" only those
    below the head.

    If a folder has a ``.gguf`` file and no safetensors, that file is read. Weights that the checkpoint lacks (the head
    of an encoder) are the same random ones each time, so training and audit use the same base model.

    Raises
    ------
    ArtifactError
        There is no such model (the hub is offline by default), it does not support the objective, or `require_sound`
        refuses it; also where its files lack weights, if all must be ``complete``, or those below the head.
    """
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # the run shows its own
    if folder := folder_of_model(name_or_path):
        check_base(folder)
    auto = AutoModelForMaskedLM if objective == "mlm" else AutoModelForCausalLM
    options: dict[str, Any] = {"dtype": torch.float32, "trust_remote_code": False, "output_loading_info": True}
    gguf = sorted(Path(name_or_path).glob("[!.]*.gguf")) if Path(name_or_path).is_dir() else []
    if gguf and not list(Path(name_or_path).glob("*.safetensors")):
        options["gguf_file"] = gguf[0].name
    else:
        options["use_safetensors"] = True
    try:
        if folder and "use_safetensors" in options:
            _require_size(folder, auto)
        with torch.random.fork_rng(devices=[]), _quiet():
            torch.manual_seed(0)
            try:
                loaded: Any = auto.from_pretrained(str(name_or_path), attn_implementation="sdpa", **options)
            except ValueError:  # not every class has it; packing alone needs it, and asks for it again
                torch.manual_seed(0)
                loaded = auto.from_pretrained(str(name_or_path), **options)
        model, about = loaded
    except (MemoryError, ArtifactError):
        raise
    except Exception as error:  # a wrong config can fail anywhere in the library
        kind, has_head = _architecture_of(name_or_path, auto)
        if kind and not has_head:
            raise ArtifactError(f"{name_or_path}: cannot be loaded as a {objective} model: {kind} is none") from None
        raise ArtifactError(
            f"{name_or_path}: cannot be loaded as a {objective} model ({kind + ': ' if kind else ''}"
            f"{type(error).__name__}); expected a folder with config.json and model.safetensors, or a hub name with "
            "HF_HUB_OFFLINE=0"
            + ("; a .gguf file needs the packages gguf and accelerate" if "gguf_file" in options else "")
        ) from None
    require_sound(model, objective, str(name_or_path))
    body = f"{model.base_model_prefix}."
    missing = [name for name in about["missing_keys"] if complete == "all" or name.startswith(body)]
    if complete != "no" and missing:
        raise ArtifactError(
            f"{name_or_path}: {len(missing)} weights are not in its files; with random ones in their "
            "place it would be another model that is judged"
        )
    _warn_of_random_weights(str(name_or_path), tuple(sorted(about["missing_keys"])))
    model = _as_plain(model) if "gguf_file" in options else model
    _drawn[model] = len(about["missing_keys"])
    return without_padding_warning(model)


def num_drawn(model: PreTrainedModel) -> int:
    """Return the number of weights that were randomly initialised because the model's files lack them."""
    return _drawn.get(model, 0)


def _require_size(folder: Path, auto: Any) -> None:
    """Raise `ArtifactError` if a config describes far more parameters than the weight files hold, before the rest is
    initialised and fills the memory."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
    if getattr(config, "quantization_config", None) is not None:  # fewer numbers, each of several weights
        return
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        asked = sum(weights.numel() for weights in auto.from_config(config, trust_remote_code=False).parameters())
    if asked > 4 * (held := num_weights(folder)) + MOST_NEW:
        raise ArtifactError(f"{folder}: config.json asks for {asked:,} parameters, and the weights have {held:,}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' loading report within the context; `_warn_of_random_weights` reports missing weights."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@lru_cache(maxsize=64)
def _warn_of_random_weights(name: str, weights: tuple[str, ...]) -> None:
    """Warn that a model's files lack some weights, which were drawn at random; once for each model."""
    if weights:
        shown = ", ".join(weights[:3]) + (f" and {len(weights) - 3} more" if len(weights) > 3 else "")
        log_warning(
            f"{name}: {len(weights)} weights are not in its files and were drawn at random ({shown}); if these are its "
            "head, the base model predicts nothing yet, and numbers of it before training mean little"
        )


#: Largest relative change of logits that padding or later tokens may cause.
_MOST_CHANGE = {torch.float32: 1e-3, torch.float64: 1e-3}


@torch.no_grad()
def require_sound(model: PreTrainedModel, objective: str, name: str = "") -> None:
    """Raise `ArtifactError` unless a model's logits are independent of padding (masked model) or of later tokens
    (causal model), as losses and scores assume. It is tried with two rows of tokens, once for each model.

    Raises
    ------
    ArtifactError
        A masked model's logits depend on the padding behind a row, a causal one's on later tokens, or the model needs
        more than tokens.
    """
    if _sound.get(model) == objective:
        return
    kind, training = model.config.model_type, model.training
    where, pad = f"{name}: {kind}" if name else kind, getattr(model.config, "pad_token_id", None)
    try:
        rows, long = num_rows(model), min(12, max_positions(model))
    except AttributeError:
        raise ArtifactError(f"{where} has no embeddings of tokens") from None
    short = min(5, (long + 1) // 2)
    free = [number for number in range(max(rows - 2 * long, 0), rows) if number != pad]
    ids = torch.tensor(free, device=model.device).repeat(2 * long)[: 2 * long].reshape(2, long)
    masks: dict[str, Any] = {}
    if objective == "mlm":
        ids[1, short:] = pad if isinstance(pad, int) and 0 <= pad < rows else 0
        masks["attention_mask"] = (torch.arange(long, device=model.device) < short)[None]
    ids[1, :short] = ids[0, :short]
    model.eval()
    try:
        alone = model(input_ids=ids[:1, :short]).logits
        beside = model(input_ids=ids[1:], **masks).logits[:, :short]
        if objective == "clm":
            alone = torch.cat([alone, model(input_ids=ids[:1]).logits[:, :short]])
    except MemoryError:
        raise
    except Exception as error:  # an architecture can fail anywhere
        raise ArtifactError(f"{where} cannot be run on rows of tokens alone ({type(error).__name__})") from None
    finally:
        model.train(training)
    if not bool(torch.isfinite(alone).all()):  # weights are broken, which a loss or a score says
        return
    same = alone.shape[1:] == beside.shape[1:] and alone.shape[-1] >= 2
    most = _MOST_CHANGE.get(alone.dtype, 5e-2) * float(alone.abs().max())
    if not same or not float((alone - beside).abs().max()) <= most:
        raise ArtifactError(
            f"{where} sees the tokens ahead, so it is no clm model"
            if objective == "clm"
            else f"{where} does not leave the padding behind a row aside, so its losses would depend on the batch"
        )
    _sound[model] = objective


def _architecture_of(name_or_path: str | Path, auto: Any) -> tuple[str, bool]:
    """Return the name of a model's architecture, from its config (empty if unknown), and whether transformers' ``auto``
    class, such as `AutoModelForCausalLM`, supports it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(name_or_path), trust_remote_code=False)
    except Exception:  # the caller names the fault
        return "", False
    return config.model_type, type(config) in auto._model_mapping


def _as_plain(model: PreTrainedModel) -> PreTrainedModel:
    """Return a model loaded from a GGUF file as a plain model, since transformers refuses to save the former."""
    config = copy.deepcopy(model.config)
    del config.quantization_config
    plain: Any = type(model)(config)
    plain.load_state_dict(model.state_dict())
    return plain.eval()


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer of a model folder, a hub name, a ``tokenizer.json`` file, or the text of one.

    The ``tokenizer.json`` of a folder is used unchanged: it makes the tokens of a run, so it is saved with checkpoints
    and used by attacks. From transformers, which may build another tokenizer from ``tokenizer_config.json``, only the
    special tokens are taken.

    Raises
    ------
    ArtifactError
        There is no tokenizer, it cannot be read, or it is not a tokenizer of the tokenizers library.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    text = str(source)
    is_json = text.lstrip().startswith("{")
    if is_json or Path(text).is_file():
        where = "tokenizer" if is_json else text
        content = checked_tokenizer_json(text, where) if is_json else read_tokenizer_json(text)
        try:
            with panic_as_error(where):
                return _wrap_tokenizer(content)
        except ArtifactError:
            raise
        except Exception:  # the library raises nothing narrower
            raise ArtifactError(f"{where}: not a readable tokenizer.json") from None
    if folder := folder_of_model(text):
        check_base(folder, tokenizer=_read_own_json(folder))
    gguf = sorted(Path(text).glob("[!.]*.gguf")) if Path(text).is_dir() else []
    options = {"gguf_file": gguf[0].name} if gguf and not (Path(text) / "tokenizer.json").exists() else {}
    try:
        with panic_as_error(text):
            tokenizer = AutoTokenizer.from_pretrained(text, trust_remote_code=False, use_fast=True, **options)
            if isinstance(tokenizer, PreTrainedTokenizerFast):
                own = _read_own_json(folder_of_model(text))  # again: a hub name may have come only now
                return _wrap_tokenizer(json_of(tokenizer) if own is None else own, tokenizer)
    except (ArtifactError, MemoryError):
        raise
    except Exception as error:  # the library raises nothing narrower
        if not Path(text).exists():
            raise ArtifactError(f"{text}: {_not_found_message()}") from None
        raise ArtifactError(
            f"{text}: no tokenizer can be loaded from here ({type(error).__name__}); expected tokenizer.json in it"
        ) from None
    raise ArtifactError(f"{text}: only tokenizers of the tokenizers library (tokenizer.json) are supported")


def _read_own_json(folder: Path | None) -> str | None:
    """Return the text of the folder's ``tokenizer.json``; None without one."""
    file = folder / "tokenizer.json" if folder else None
    return read_tokenizer_json(file) if file is not None and file.is_file() else None


def _not_found_message() -> str:
    """Return the error message for an unknown model: where it was searched, and how to allow a download."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return "no such folder, and no such model in the local cache of the hub (HF_HUB_OFFLINE=0 allows a download)"
    return "no such folder, and no such model could be had from the hub"


def _wrap_tokenizer(tokenizer_json: str, original: PreTrainedTokenizerFast | None = None) -> PreTrainedTokenizerFast:
    """Return a transformers tokenizer around the text of a ``tokenizer.json``, with the special tokens and limits of
    ``original``; without one, with the usual special tokens of its family."""
    from transformers import PreTrainedTokenizerFast

    if original is not None:
        own = PreTrainedTokenizerFast(
            tokenizer_object=library_tokenizer(tokenizer_json),
            model_max_length=original.model_max_length,
            model_input_names=original.model_input_names,
            clean_up_tokenization_spaces=original.clean_up_tokenization_spaces,
            **original.special_tokens_map,
        )
        return remember_json(own, tokenizer_json)
    known = {
        "pad_token": ("[PAD]", "<pad>", "<|endoftext|>"),
        "unk_token": ("[UNK]", "<unk>"),
        "cls_token": ("[CLS]",),
        "sep_token": ("[SEP]",),
        "mask_token": ("[MASK]", "<mask>"),
        "bos_token": ("<s>", "<|endoftext|>"),
        "eos_token": ("</s>", "<|endoftext|>"),
    }
    listed, found = names_in(tokenizer_json), {}
    for role, names in known.items():
        present = [name for name in names if name in listed]
        if present:
            found[role] = present[0]
    return remember_json(
        PreTrainedTokenizerFast(tokenizer_object=library_tokenizer(tokenizer_json), **found), tokenizer_json
    )


def special_ids(tokenizer: PreTrainedTokenizerFast, objective: str) -> SpecialIds:
    """Return the ids of the special tokens of a window: [CLS] … [SEP] for MLM, the beginning-of-text token for CLM, and
    the tokenizer's own end-of-text token."""
    eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    pad = pad if pad is not None else eos if eos is not None else 0
    if objective == "mlm":
        prefix = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        suffix = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else eos
        return SpecialIds(prefix=prefix, suffix=suffix, pad=pad, mask=tokenizer.mask_token_id)
    prefix = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else eos
    return SpecialIds(prefix=prefix, suffix=None, pad=pad, mask=None, end=eos)


def check_fit(
    model: PreTrainedModel,
    store: TokenStore,
    tokenizer: PreTrainedTokenizerFast,
    special: SpecialIds,
    window_length: int,
) -> None:
    """Raise an error unless all tokens, special ones included, belong to this model and a window fits into its context.

    Raises
    ------
    TrainingError
        An id is beyond the embeddings, the tokens were made with another tokenizer, or a window is too long.
    ArtifactError
        The store has no tokenizer file.
    """
    rows, largest = num_rows(model), store.largest_id()
    if largest >= rows:
        raise TrainingError(f"tokens: id {largest} is beyond the model's {rows} embeddings; other tokenizer?")
    roles = {"first": special.prefix, "last": special.suffix, "padding": special.pad, "mask": special.mask}
    beyond = [role for role, number in roles.items() if number is not None and number >= rows]
    if beyond:
        raise TrainingError(
            f"tokenizer: the {' and '.join(beyond)} token is beyond the model's {rows} embeddings; other tokenizer?"
        )
    if store.path is not None:
        if not store.tokenizer_path.is_file():
            raise ArtifactError(f"{store.tokenizer_path}: missing, so the tokenizer of the tokens is not known")
        made_with = store.tokenizer_path.read_text(encoding="utf-8")
        if parts := differing_parts(made_with, json_of(tokenizer)):
            raise TrainingError(
                f"the tokens were made with another tokenizer than the model's ({', '.join(parts)} of tokenizer.json "
                "differ); run protect again for it"
            )
    if window_length > max_positions(model):
        raise TrainingError(
            f"window_length {window_length} is longer than the model's {max_positions(model)} positions"
        )


def num_rows(model: PreTrainedModel) -> int:
    """Return the number of rows of a model's input embedding matrix: token ids from there on are invalid."""
    embeddings: Any = model.get_input_embeddings()
    return int(embeddings.weight.shape[0])


def max_positions(model: PreTrainedModel) -> int:
    """Return the context length of a model, in tokens; 2^30 if it has no limit.

    RoBERTa and its kin count positions from past the number of the padding token: of 514 they use 512.
    """
    limit = int(getattr(model.config, "max_position_embeddings", None) or 1 << 30)
    tables = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    paddings = [getattr(table, "padding_idx", None) for table in tables]
    return limit - max((1 + padding for padding in paddings if padding is not None), default=0)


@torch.no_grad()
def first_position(model: PreTrainedModel) -> int | None:
    """Return the position id that a model gives to the first token of a row: 0 for most, one past the padding token id
    for RoBERTa and its kin. It is found by trial, once for each model.

    None if the model takes no position ids, or none of those tried reproduces its own logits.
    """
    if model not in _first_positions:
        _first_positions[model] = None
        training = model.training
        model.eval()
        tables = [layer.padding_idx for layer in model.modules() if isinstance(layer, torch.nn.Embedding)]
        tried = sorted({0, 2, *(1 + padding for padding in tables if padding is not None)})
        ids = torch.arange(num_rows(model), device=model.device)[None, -6:]
        numbers = torch.arange(ids.shape[1], device=model.device)[None]
        if "position_ids" in inspect.signature(model.base_model.forward).parameters:
            own = model(input_ids=ids).logits
            for first in tried:
                try:
                    given = model(input_ids=ids, position_ids=numbers + first).logits
                except (IndexError, RuntimeError, TypeError, ValueError):
                    continue
                if torch.allclose(own, given, rtol=1e-4, atol=1e-5 * float(own.abs().max())):
                    _first_positions[model] = first
                    break
        model.train(training)
    return _first_positions[model]


def whole_inputs(
    model: PreTrainedModel, input_ids_BT: torch.Tensor, attention_BT: torch.Tensor | None
) -> dict[str, Any]:
    """Return the model's inputs with token types and positions spelt out for every row of the batch, instead of shared
    by all rows, so that each row's gradient can be separated."""
    inputs: dict[str, Any] = {"input_ids": input_ids_BT, "attention_mask": attention_BT}
    if any(name.endswith("token_type_embeddings") for name, _ in model.named_modules()):
        inputs["token_type_ids"] = torch.zeros_like(input_ids_BT)
    if (first := first_position(model)) is not None:
        positions_T = first + torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device)
        inputs["position_ids"] = positions_T.expand_as(input_ids_BT).contiguous()
    return inputs


@contextmanager
def fused_activations(*models: PreTrainedModel) -> Iterator[None]:
    """Replace the approximate GELU of models by torch's fused one within the context, which saves memory traffic and
    gives the same values up to rounding. For scoring only: trainings stay the same bit for bit."""
    found = [
        (module, name, child)
        for model in models
        for module in model.modules()
        for name, child in module.named_children()
        if type(child).__name__ == "NewGELUActivation"
    ]
    for module, name, _ in found:
        setattr(module, name, torch.nn.GELU(approximate="tanh"))
    try:
        yield
    finally:
        for module, name, child in found:
            setattr(module, name, child)


def freeze_embeddings(model: PreTrainedModel) -> None:
    """Freeze every row of the vocabulary: input embeddings, output embeddings and the output bias.

    With tied weights the first two are one matrix. Without, the output matrix is frozen too; otherwise training would
    lower the probability of words that are never a target. A frozen weight has no gradient and no decay. Position
    embeddings still learn.
    """
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        for parameter in layer.parameters() if layer is not None else ():
            parameter.requires_grad_(False)


def logits_at(
    model: PreTrainedModel,
    input_ids_BT: torch.Tensor,
    attention_BT: torch.Tensor | None,
    wanted: torch.Tensor,
    position_ids_BT: torch.Tensor | None = None,
    bounds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the logits (N, V) at N token positions of a batch, in order. ``wanted`` is a mask (B, T) of these
    positions, or their indices in the flattened batch.

    If the head alone makes the logits (BERT, GPT-2, Llama and similar models), it runs at those cells only. Otherwise
    (scaled or capped logits, heads of several parts) all logits are computed and the wanted ones are selected.

    Parameters
    ----------
    attention_BT : bool tensor, shape (B, T)
        None if there is no padding, or it has no effect (causal models padded on the right).
    wanted : bool tensor, shape (B, T), or int64 tensor, shape (N,)
        Tokens at which logits are computed: a mask, or indices into the flattened batch, with which the host need not
            wait for the GPU to count them.
    position_ids_BT : int64 tensor, shape (B, T)
        Position of each token, counted from `first_position`; None: as the model makes them.
    bounds : int32 tensor, shape (W + 1,)
        Where W packed windows begin and end in the flattened batch; tokens attend within their window only. For use
            within `attention_by_host` alone.
    """
    return logits_of(model, lm_head(model), input_ids_BT, attention_BT, wanted, position_ids_BT, bounds)


def logits_of(
    model: PreTrainedModel,
    head: Any,
    input_ids_BT: torch.Tensor,
    attention_BT: torch.Tensor | None,
    wanted: torch.Tensor,
    position_ids_BT: torch.Tensor | None = None,
    bounds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the logits (N, V) at the ``wanted`` token positions of a batch, computed by the given ``head``, in a form
    that torch.compile can trace; see `logits_at`."""
    states = states_of(model, head, input_ids_BT, attention_BT, wanted, position_ids_BT, bounds)
    return states if head is None else head(states)


def states_of(
    model: PreTrainedModel,
    head: Any,
    input_ids_BT: torch.Tensor,
    attention_BT: torch.Tensor | None,
    wanted: torch.Tensor,
    position_ids_BT: torch.Tensor | None = None,
    bounds: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the last hidden states (N, D), which the head maps to logits, at the ``wanted`` token positions of a batch
    (see `logits_at`). If ``head`` is None, return the logits themselves."""
    inputs = {"input_ids": input_ids_BT, "attention_mask": attention_BT}
    if position_ids_BT is not None:
        inputs["position_ids"] = position_ids_BT
    if bounds is not None:
        inputs["cu_seq_lens_q"] = bounds
    values = model(**inputs).logits if head is None else model.base_model(**inputs).last_hidden_state
    if values.ndim == 2:  # a classifier: one answer a row
        return values.index_select(0, wanted // input_ids_BT.shape[1])
    return values[wanted] if wanted.dtype == torch.bool else values.flatten(0, 1).index_select(0, wanted)


#: Settings by which some architectures change logits after the head. A model with one of them computes its own logits.
_AFTER_THE_HEAD = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_heads: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_sound: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
#: Model -> number of weights that its files lack.
_drawn: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_first_positions: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()


@contextmanager
def without_own_settings(net: Any) -> Iterator[None]:
    """Ignore the model folder's own generation settings (suppressed tokens, repetition penalty) within the context."""
    from transformers import GenerationConfig

    own, net.generation_config = net.generation_config, GenerationConfig()
    try:
        yield
    finally:
        net.generation_config = own


def lm_head(model: PreTrainedModel) -> Any:
    """Return the module that alone maps the last hidden states to the logits; None if there is no such module. Each
    model is tested once."""
    if model not in _heads:
        head = getattr(model, "cls", None) or getattr(model, "lm_head", None)
        alone = (
            head is not None
            and model.base_model is not model
            and not any(getattr(model.config, name, None) for name in _AFTER_THE_HEAD)
            and _reproduces_logits(model, head)
        )
        _heads[model] = head if alone else None
    return _heads[model]


@torch.no_grad()
def _reproduces_logits(model: PreTrainedModel, head: Any) -> bool:
    """Return whether the head, applied to the last hidden states, reproduces the model's logits."""
    training = model.training
    model.eval()
    ids = torch.arange(4, device=model.device)[None] % model.config.vocab_size
    own = model(input_ids=ids).logits
    ours = head(model.base_model(input_ids=ids).last_hidden_state)
    model.train(training)
    return own.shape == ours.shape and torch.allclose(own, ours, rtol=1e-3, atol=1e-5)
