"""Attention masks chosen on the host, in training and in scoring, so that no forward pass waits for the device.

transformers decides on the device whether a batch has padding, and the host waits for the answer in each forward pass.
Here the host, which made the batch, decides: no padding, no mask. Packed rows need no mask at all: attention runs over
each window by itself, from the bounds of the windows. On CUDA in half precision that is one call of flash attention of
variable length; elsewhere one call of sdpa for each window.

Shapes: B rows, T tokens a row, H heads, D dimensions, W windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from reticent.core.errors import TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Names under which our attention functions are registered in transformers: for padded and for packed rows.
_PADDED, _PACKED = "reticent_padded", "reticent_packed"


@contextmanager
def attention_by_host(model: PreTrainedModel, *, packed: bool = False) -> Iterator[None]:
    """Within the context, make a model apply its attention mask without first reading the mask's values, for which the
    host would wait on a GPU. With ``packed``, each of several windows in a row attends only to itself.

    A model that does not leave its attention to transformers (or, unless rows are packed, is not set to ``sdpa``)
    keeps its own.

    Raises
    ------
    TrainingError
        ``packed``, and the model keeps its own attention.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    config: Any = model.config
    before = config._attn_implementation
    AttentionInterface.register(_PADDED, sdpa_attention_forward)
    AttentionMaskInterface.register(_PADDED, _mask_unread)
    AttentionInterface.register(_PACKED, _packed_attention)  # without a function for masks: none is made
    without_padding_warning(model)
    try:
        if (packed or before == "sdpa") and model._can_set_attn_implementation():
            model.set_attn_implementation(_PACKED if packed else _PADDED)
        if packed and config._attn_implementation != _PACKED:
            raise TrainingError(f"train.packing: {config.model_type} has an attention of its own; set it to false")
        yield
    finally:
        if config._attn_implementation != before:
            model.set_attn_implementation(before)


def using_mask(model: PreTrainedModel, mask: torch.Tensor | None) -> AbstractContextManager[None]:
    """Return a context manager in which a model applies its attention mask without waiting for the mask's values on the
    GPU (`attention_by_host`). It does nothing if ``mask`` is None, that is, without padding."""
    return nullcontext() if mask is None else attention_by_host(model)


def without_padding_warning(model: PreTrainedModel) -> PreTrainedModel:
    """Return the model with its check for padding without a mask disabled, for which each forward pass would wait on a
    GPU."""
    for module in model.modules():
        if hasattr(module, "warn_if_padding_and_no_attention_mask"):
            module.warn_if_padding_and_no_attention_mask = _no_warning  # type: ignore[assignment]
    return model


def _no_warning(*_: Any) -> None:
    """Do nothing, in place of transformers' warning."""


def _mask_unread(
    *arguments: Any, attention_mask: torch.Tensor | None = None, allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False, **options: Any,
) -> torch.Tensor | None:  # fmt: skip
    """Return the attention mask that transformers makes for sdpa. It is omitted only if no padding mask is given, never
    because of the padding mask's values, for which the host would have to wait."""
    from transformers.masking_utils import sdpa_mask

    whole = attention_mask is None
    options["allow_is_causal_skip"] = whole and allow_is_causal_skip
    options["allow_is_bidirectional_skip"] = whole and allow_is_bidirectional_skip
    return sdpa_mask(*arguments, **options, attention_mask=attention_mask)  # type: ignore[misc]


def _packed_attention(
    module: torch.nn.Module,
    query_BHTD: torch.Tensor,
    key_BHTD: torch.Tensor,
    value_BHTD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of each packed window over itself, (B, T, H, D), and None for the weights.

    ``cu_seq_lens_q``, int32 (W + 1,), are the bounds of the windows in the flattened batch; without them each row is
    one window. A token attends to those less than ``sliding_window`` away. `TrainingError` if a mask or another
    modification of the attention scores is given.
    """
    changed = [name for name in ("softcap", "s_aux", "position_bias") if others.get(name) is not None]
    if attention_mask is not None or changed:
        raise TrainingError(f"train.packing: attention by {' and '.join(changed) or 'a mask'} needs it set to false")
    rows, _, length, _ = query_BHTD.shape
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if cu_seq_lens_q is None:
        cu_seq_lens_q = torch.arange(rows + 1, dtype=torch.int32, device=query_BHTD.device) * length
    # All rows one behind the other: (B * T, H, D).
    query, key, value = (states.transpose(1, 2).flatten(0, 1) for states in (query_BHTD, key_BHTD, value_BHTD))
    options: dict[str, Any] = {"dropout": dropout, "scale": scaling, "causal": causal, "reach": sliding_window}
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        attended = _flash(query, key, value, cu_seq_lens_q, length, **options)
    else:
        attended = _one_by_one(query, key, value, cu_seq_lens_q, **options)
    return attended.unflatten(0, (rows, length)), None


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int, *,
    dropout: float, scale: float | None, causal: bool, reach: int | None,
) -> torch.Tensor:  # fmt: skip
    """Return the flash attention of packed windows, each over itself, (tokens, H, D); ``bounds`` has the windows' first
    tokens and the end. It calls torch's internal function, as the public `varlen_attn` has no dropout."""
    behind = -1 if reach is None else reach - 1
    return torch.ops.aten._flash_attention_forward(
        query, key, value, bounds, bounds, longest, longest, dropout, causal, False,
        scale=scale, window_size_left=behind, window_size_right=0 if causal else behind,
    )[0]  # fmt: skip


@torch._disable_dynamo  # torch.compiler.disable loads the compiler at once: a second and a half of every command
def _one_by_one(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, *,
    dropout: float, scale: float | None, causal: bool, reach: int | None,
) -> torch.Tensor:  # fmt: skip
    """Return the attention of packed windows, each over itself, (tokens, H, D), by one call of sdpa for each window;
    ``bounds`` has the windows' first tokens and the end."""
    lengths = bounds.diff().tolist()
    parts = [[part.transpose(0, 1)[None] for part in states.split(lengths)] for states in (query, key, value)]
    attended = []
    for length, own_query, own_key, own_value in zip(lengths, *parts, strict=True):
        mask = None
        if reach is not None and reach < length:  # a window that is longer than a token sees
            at = torch.arange(length, device=query.device)
            away = at[:, None] - at[None, :]
            mask = (away.abs() < reach) & ((away >= 0) | (not causal))
        attended.append(
            F.scaled_dot_product_attention(
                own_query, own_key, own_value, attn_mask=mask, dropout_p=dropout, is_causal=causal and mask is None,
                scale=scale, enable_gqa=query.shape[1] != key.shape[1],
            )[0].transpose(0, 1)
        )  # fmt: skip
    return torch.cat(attended)
