"""LoRA through peft: low-rank adapters are trained, the base model is frozen, and a checkpoint has both merged.

The adapters are inserted into the given model, so the loop treats it as any other. Embeddings are never adapted: input
and output share them, and a merged checkpoint would have to separate them.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reticent.core.errors import PolicyError
from reticent.core.json_toml import read_json
from reticent.trainer.config import LoraSettings

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Adapter:
    """The LoRA adapters in a model; see :func:`add_adapter`."""

    def __init__(self, wrapped: Any, trained_before: list[str]):
        self._wrapped, self._trained_before = wrapped, trained_before

    def merged(self) -> PreTrainedModel:
        """Return a copy of the model with the adapters merged into its weights. Cost: the model's memory once more."""
        return copy.deepcopy(self._wrapped).merge_and_unload()

    def save(self, folder: Path) -> None:
        """Write the adapters alone, in peft's format, without the local path of the base model."""
        self._wrapped.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        path = folder / "adapter_config.json"
        about = read_json(path)
        about["base_model_name_or_path"] = None
        if isinstance(about["target_modules"], list):  # peft writes a set in the order of its hashes
            about["target_modules"].sort()
        path.write_text(json.dumps(about, indent=1, sort_keys=True), encoding="utf-8")

    def merge(self) -> None:
        """Merge the adapters into the weights of the model itself, which gets its original layers back."""
        model = self._wrapped.merge_and_unload()
        for name, weight in model.named_parameters():
            weight.requires_grad_(name in self._trained_before)


def add_adapter(model: PreTrainedModel, settings: LoraSettings, *, seed: int) -> Adapter:
    """Insert adapters into ``model``, freeze all other weights, and return the adapters.

    Raises
    ------
    PolicyError
        peft is not installed, ``target_modules`` names no module of this model, or names its embeddings.
    """
    try:
        from peft import LoraConfig, get_peft_model
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError:
        raise PolicyError("train.lora: needs peft; pip install reticent[dp]") from None
    from transformers.pytorch_utils import Conv1D

    chosen = list(settings.target_modules) if settings.target_modules else None
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        try:
            wrapped = get_peft_model(
                model,
                LoraConfig(
                    r=settings.r,
                    lora_alpha=settings.lora_alpha,  # type: ignore[arg-type]
                    lora_dropout=settings.lora_dropout,
                    target_modules="all-linear" if chosen == ["all-linear"] else chosen,  # a word of peft, no name
                    fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
                ),
            )
        except ValueError:
            raise PolicyError(
                f"train.lora.target_modules: names no module of {model.config.model_type} that can have an adapter"
                if settings.target_modules
                else f"train.lora.target_modules: must be given for {model.config.model_type}"
            ) from None
    if any(isinstance(end, BaseTunerLayer) for end in (model.get_input_embeddings(), model.get_output_embeddings())):
        raise PolicyError("train.lora.target_modules: names the embeddings, which input and output share")
    return Adapter(wrapped, trained)
