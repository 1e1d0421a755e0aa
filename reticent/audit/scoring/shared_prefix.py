"""Shared prefixes: what rows begin with alike is read once, and its keys and values are passed on."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["is_shareable", "states_of"]


def states_of(model: Any, head: Any, **inputs: Any) -> tuple[torch.Tensor, Any]:
    """Return the last hidden states, and the keys and values, None where there are none.

    Parameters
    ----------
    head : of `reticent.trainer.models.lm_head`; without one the model's logits stand for the states
    """
    out = (model if head is None else model.base_model)(**inputs)
    return (out.logits if head is None else out.last_hidden_state), getattr(out, "past_key_values", None)


def is_shareable(cache: Any) -> bool:
    """Say whether keys and values can be repeated for other rows: those of plain layers, and no windows or states."""
    from transformers.cache_utils import DynamicLayer

    layers = getattr(cache, "layers", ())
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
