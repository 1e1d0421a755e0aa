"""A model that was trained elsewhere: its files are checked, and it is written as a plain folder of weights.

Everything behind this sees one form only: ``config.json``, safetensors and the tokenizer. A folder that has that form
is copied, byte for byte. An adapter is added to its base, GGUF and quantised weights are turned into float32 numbers of
the same values. Weights in pickle and code are refused, and neither is ever read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reticent.core.artifact import hash_file
from reticent.core.errors import ArtifactError
from reticent.core.json_toml import read_json
from reticent.core.model_folder import folder_of_model
from reticent.trainer.base_files import check_base, differing_parts, positions_in
from reticent.trainer.export import ALLOWED
from reticent.trainer.tokenizer_of_model import tokenizer_json_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Weights that Python runs as code while it reads them.
PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
#: Files of an adapter or of GGUF, beside those of a plain model folder.
OWN = (*ALLOWED, ADAPTER, "*.gguf")
#: Suffix of a model class name -> its objective.
CLASSES = {"ForMaskedLM": "mlm", "ForPreTraining": "mlm", "ForCausalLM": "clm", "LMHeadModel": "clm"}
#: Suffix of the names of model classes without a head, which predict no word.
HEADLESS = "Model"
#: Quantisation method in ``config.json`` -> the package that reads such weights.
READERS = {
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed_tensors",
    "gptq": "gptqmodel",
    "awq": "gptqmodel",
    "hqq": "hqq",
    "quanto": "optimum",
}
#: Largest value of a weight of eight bits.
EIGHT_BITS = 127


def local_folder(model: str, what: str) -> Path:
    """Return the local folder of a model (path or hub name); raise `ArtifactError` if there is none."""
    found = folder_of_model(model, download=True)
    if found is None or not found.is_dir():
        kind = "a file; give its folder" if found else "no such folder, and no such model in the local cache of the hub"
        raise ArtifactError(f"{what}: {model}: {kind}" + ("" if found else " (HF_HUB_OFFLINE=0 allows a download)"))
    return found


def _weight_format(folder: Path) -> str:
    """Return the format of a folder's weights, "adapter", "plain" (safetensors) or "gguf"; raise `ArtifactError`
    without readable weights."""
    if (folder / ADAPTER).exists():
        if not (folder / ADAPTER_WEIGHTS).is_file():
            raise ArtifactError(f"{folder}: an adapter without {ADAPTER_WEIGHTS}; weights in pickle are not read")
        return "adapter"
    for kind, pattern in (("plain", "*.safetensors"), ("gguf", "*.gguf")):
        if any(not path.name.startswith(".") for path in folder.glob(pattern)):
            return kind
    pickles = [path for pattern in PICKLES for path in folder.glob(pattern)]
    if pickles:
        raise ArtifactError(
            f"{folder}: {len(pickles)} files of pickle and no safetensors; reading pickle runs whatever code is in it, "
            "so it was not read: ask whoever made the model for safetensors (save_pretrained writes them)"
        )
    raise ArtifactError(f"{folder}: no weights; expected model.safetensors, a .gguf file or an adapter")


def check_given(model: str, base: str | None, *, window_length: int = 0) -> None:
    """Check the files of a model that was trained elsewhere (format, no code, context length), and that its base has
    the same tokenizer, without reading weights.

    Raises
    ------
    ArtifactError
        There is no such model, its weights are pickle alone, it brings code of its own, it is an adapter without a
        base, its vocabulary does not fit its tokenizer, or its base tokenises texts differently.
    TrainingError
        A window is longer than its context.
    """
    folder = local_folder(model, "subject.model")
    form = _weight_format(folder)
    for name in ("config.json", "tokenizer_config.json", ADAPTER):
        if _read_object(folder / name).get("auto_map"):
            raise ArtifactError(
                f"{folder / name}: auto_map: the model brings code of its own, which was not read and is never run; "
                "ask for it in an architecture that transformers has"
            )
    quantised = _read_object(folder / "config.json").get("quantization_config")
    method = str(quantised.get("quant_method", "bitsandbytes")) if isinstance(quantised, dict) else ""
    if method in READERS and find_spec(READERS[method]) is None:
        raise ArtifactError(
            f"{folder}: weights quantised by {method}, which transformers reads with the package {READERS[method]}; "
            f"it is not installed (pip install {READERS[method].replace('_', '-')}); or ask for the plain model"
        )
    if form == "adapter" and base is None:
        raise ArtifactError(f"{folder}: an adapter is a difference to its base model; name that (--base, subject.base)")
    if form == "adapter" and find_spec("peft") is None:
        raise ArtifactError(f"{folder}: an adapter needs peft, which is not installed; pip install reticent[dp]")
    if base is not None:
        local_folder(base, "subject.base")
    has_own = form != "adapter" and _has_tokenizer(folder)
    if not has_own and base is None and form != "gguf":
        raise ArtifactError(f"{folder}: no tokenizer.json; without a base that has it texts cannot be cut into tokens")
    if form != "adapter":
        own = (folder / "tokenizer.json").read_text(encoding="utf-8") if (folder / "tokenizer.json").is_file() else None
        check_base(folder, tokenizer=own, window_length=window_length)
    if base is not None and _has_tokenizer(folder):
        parts = differing_parts(tokenizer_json_of(folder), tokenizer_json_of(local_folder(base, "subject.base")))
        if parts:
            raise ArtifactError(
                f"subject.base: {base}: cuts texts otherwise than the model ({', '.join(parts)} of tokenizer.json "
                "differ), so it is not the model that this one was trained from"
            )


def _read_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; empty if the file does not exist or holds none."""
    content = read_json(file) if file.is_file() else {}
    return content if isinstance(content, dict) else {}


def _has_tokenizer(folder: Path) -> bool:
    """Return whether the folder has a tokenizer's files."""
    return any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model"))


def objective_of(model: str, base: str | None) -> str | None:
    """Return a model's objective, "mlm" or "clm", by the class that its files name; None if they name none."""
    for each in (model, base):
        folder = folder_of_model(each, download=True) if each is not None else None
        if folder is None or not folder.is_dir():
            continue
        for name in _architectures(folder):
            for end, objective in CLASSES.items():
                if name.endswith(end):
                    return objective
        if is_headless(str(folder)):
            from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

            kind = _read_object(folder / "config.json").get("model_type")
            return "mlm" if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES else "clm"
        if any(folder.glob("*.gguf")):
            return "clm"
    return None


def is_headless(model: str) -> bool:
    """Whether the files of a model are those of an encoder without a head, which predicts no word."""
    folder = folder_of_model(model, download=True)
    names = _architectures(folder) if folder is not None and folder.is_dir() else []
    return bool(names) and all(
        name.endswith(HEADLESS) and not any(name.endswith(end) for end in CLASSES) for name in names
    )


def _architectures(folder: Path) -> list[str]:
    """Return the names of the model classes in ``config.json``."""
    return [str(name) for name in _read_object(folder / "config.json").get("architectures") or ()]


def positions_of(model: str, base: str | None) -> int | None:
    """Return the context length of a model, in tokens, from its files or those of its base; None if unknown."""
    for each in (model, base):
        folder = folder_of_model(each) if each is not None else None
        if folder is not None and (positions := positions_in(folder)) is not None:
            return positions
    return None


def digests_of_given(model: str) -> dict[str, str]:
    """Return the SHA-256 of each file of a model as it was handed over, by file name, for comparison with the
    source."""
    return {path.name: hash_file(path) for path in _model_files(local_folder(model, "subject.model"))}


def _model_files(folder: Path) -> Iterator[Path]:
    """Yield the files that make up the model in a folder (weights, config, tokenizer), sorted by name."""
    for path in sorted(folder.iterdir()):
        is_own = path.is_file() and any(fnmatch(path.name, each) for each in OWN)
        if is_own and not path.name.startswith(".") and path.name != "README.md":
            yield path


def write_given(model: str, base: str | None, objective: str, folder: Path, rounding: str | None = None) -> None:
    """Write a model that was trained elsewhere to ``folder`` in the plain format, merged with its LoRA adapter if it
    has one. ``rounding``: "merged" rounds the weights to the dtype of the base model, "int8" to eight bits.

    Parameters
    ----------
    model : str, path or hub name of the model, which `check_given` must have accepted
    base : str, optional, path or hub name of its base model
    objective : {"mlm", "clm"}
    folder : Path of the folder to write
    rounding : "merged": rounded to the dtype in which the base is stored; "int8": each row of each matrix rounded to
        255 levels up to its largest value, like 8-bit weights; None: unchanged

    Raises
    ------
    ArtifactError
        It cannot be loaded, lacks weights other than a head that it never had, or has weights or predictions that are
        not finite.

    Cost: the model once in memory, in float32; a plain folder is copied.
    """
    from reticent.trainer.models import load_model, load_tokenizer

    source = local_folder(model, "subject.model")
    form, tokens_from = _weight_format(source), source
    if not _has_tokenizer(source) and form != "gguf":
        assert base is not None
        tokens_from = local_folder(base, "subject.base")
    if form == "adapter":
        net = _merge_adapter(load_model(local_folder(str(base), "subject.base"), objective), source)
    else:
        net = load_model(source, objective, complete="body" if is_headless(model) else "all")
    is_quantised = getattr(net.config, "quantization_config", None) is not None
    if is_quantised:
        net = net.dequantize()  # type: ignore[operator]
        del net.config.quantization_config
    if rounding is not None:
        _round_weights(net, rounding, base)
    _require_finite(net, model)
    folder.mkdir(mode=0o700, parents=True)
    if form == "plain" and rounding is None and not is_quantised:
        for path in _model_files(source):
            shutil.copyfile(path, folder / path.name)
    else:
        own: Any = net.base_model if is_headless(model) else net  # a drawn head is no part of it
        own.save_pretrained(folder, safe_serialization=True)
    if not (folder / "tokenizer.json").exists():
        load_tokenizer(tokens_from).save_pretrained(folder)


def _merge_adapter(net: PreTrainedModel, adapter: Path) -> PreTrainedModel:
    """Return the base model with a LoRA adapter merged into its weights; raise `ArtifactError` if it does not fit."""
    from peft import PeftModel

    try:
        wrapped = PeftModel.from_pretrained(net, str(adapter), is_trainable=False)
        # Weights that find no place are a warning at most; this call returns their names.
        found = wrapped.load_adapter(str(adapter), "default", is_trainable=False)
        if found.missing_keys or found.unexpected_keys:
            raise KeyError
        merged = wrapped.merge_and_unload()
    except Exception as error:  # the library raises nothing narrower
        raise ArtifactError(
            f"{adapter}: does not fit the base model ({type(error).__name__}); is it the base that it was trained on?"
        ) from None
    return merged.eval()  # type: ignore[no-any-return]


def _round_weights(net: PreTrainedModel, rounding: str, base: str | None) -> None:
    """Round the weights in place: to the dtype of the base model ("merged"), or to eight bits per weight ("int8")."""
    import torch

    with torch.no_grad():
        if rounding == "merged":
            stored = read_json(local_folder(str(base), "subject.base") / "config.json")
            name = stored.get("dtype") or stored.get("torch_dtype") or "float32"
            kind = getattr(torch, str(name).removeprefix("torch."), torch.float32)
            for weights in net.parameters():
                weights.copy_(weights.to(kind).to(weights.dtype))
            return
        tables = {id(module.weight) for module in net.modules() if isinstance(module, torch.nn.Embedding)}
        for weights in net.parameters():
            if weights.ndim == 2 and id(weights) not in tables:  # those of a linear layer
                step = weights.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / EIGHT_BITS
                weights.copy_((weights / step).round() * step)


def _require_finite(net: PreTrainedModel, model: str) -> None:
    """Raise `ArtifactError` if a weight or a prediction on ordinary tokens is not finite."""
    import torch

    broken = sum(not bool(torch.isfinite(weights).all()) for weights in net.parameters())
    if broken:
        raise ArtifactError(f"{model}: {broken} of its matrices hold values that are no numbers (NaN or infinite)")
    embeddings: Any = net.get_input_embeddings()  # type: ignore[operator]
    ids: Any = torch.arange(1, 9)[None] % int(embeddings.weight.shape[0])
    with torch.no_grad():
        if not bool(torch.isfinite(net(input_ids=ids).logits).all()):
            raise ArtifactError(f"{model}: predicts no numbers (NaN or infinite) of ordinary tokens")
