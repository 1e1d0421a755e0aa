"""Gradients clipped per unit of privacy, on top of Opacus: hooks or ghost clipping, any number of rows per unit.

Opacus clips single rows of a batch. A unit (a document with several windows, an individual with several documents) has
several rows. So the rows of a unit are laid end to end along the time axis, before Opacus receives a layer's input and
output gradient: U units of R x T positions, zeros where a unit has fewer rows. A layer's gradient is a sum over
positions, so one sample of Opacus is then exactly one unit, in every sampler and in both modes.

Further differences from plain Opacus that transformers need, each tested against a backward pass of one unit at a time:

- position ids and token type ids have the full shape (B, T), because a broadcast row has no gradient per row;
- BERT's head and its decoder share a bias: only the decoder is hooked;
- ghost clipping does not support a weight with two uses: tied embeddings are instantiated per unit (V x D x 4 bytes for
  each unit), all other layers are not;
- GPT-2's ``Conv1D`` has samplers; a norm is taken from the instantiated gradient where that is smaller than the two
  T x T products (long units, small layers, LoRA);
- norms are computed in float32, independent of the layers' precision.

This module imports Opacus, so import it only where a private run begins.

Shapes: B rows, T positions a row, U units, R rows of the longest unit, M positions that are targets, D, V.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleHooks
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleHooksFastGradientClipping
from opacus.grad_sample.linear import compute_linear_grad_sample, compute_linear_norm_sample
from torch import nn
from transformers.pytorch_utils import Conv1D

from reticent.core.errors import TrainingError
from reticent.engine.schema import IGNORE_INDEX
from reticent.trainer.labels import Targets
from reticent.trainer.models import lm_head
from reticent.trainer.windows import Batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["GhostClipping", "InstantiatedClipping", "RowLayout", "unit_losses", "watch_units"]

Samples = dict[nn.Parameter, torch.Tensor]


class RowLayout:
    """The unit of each row of a batch; rows of a unit are adjacent, and units are in the order of their numbers.

    Parameters
    ----------
    units_B : int64 array, shape (B,), 0 to U - 1, non-decreasing, every number present
    """

    def __init__(self, units_B: np.ndarray, device: torch.device):
        firsts_U = np.searchsorted(units_B, np.arange(units_B[-1] + 1))
        ranks_B = np.arange(len(units_B)) - firsts_U[units_B]
        self.num_rows, self.num_units = len(units_B), len(firsts_U)
        self.longest = int(ranks_B.max()) + 1
        self.units_B = torch.from_numpy(units_B).to(device)
        self._slots_B = torch.from_numpy(units_B * self.longest + ranks_B).to(device)

    def lay(self, values: torch.Tensor) -> torch.Tensor:
        """Return (B, T, ...) as (U, R * T, ...): the rows of each unit end to end, followed by zeros."""
        if self.longest == 1:
            return values
        cells = values.new_zeros((self.num_units * self.longest, *values.shape[1:]))
        cells[self._slots_B] = values
        return cells.reshape(self.num_units, self.longest * values.shape[1], *values.shape[2:])


def _conv1d_grads(layer: Conv1D, activations: list[torch.Tensor], backprops: torch.Tensor) -> Samples:
    """GPT-2's layer is a linear one whose weight is stored (in, out)."""
    grads = {}
    if layer.weight.requires_grad:
        grads[layer.weight] = torch.einsum("uti,uto->uio", activations[0], backprops)
    if layer.bias.requires_grad:
        grads[layer.bias] = backprops.sum(dim=1)
    return grads


def _norms_by(grad_sampler: Callable[..., Samples]) -> Callable[..., Samples]:
    """A norm sampler for linear layers: by two T x T products, or from the gradient itself where that is smaller."""

    def norms(layer: Any, activations: list[torch.Tensor], backprops: torch.Tensor) -> Samples:
        length, num_weights = backprops.shape[1], activations[0].shape[-1] * backprops.shape[-1]
        if 2 * length * length > num_weights:
            grads = grad_sampler(layer, activations, backprops)
            return {weight: grad.flatten(1).norm(dim=1) for weight, grad in grads.items()}
        return compute_linear_norm_sample(layer, activations, backprops)

    return norms


class _TiedEmbedding(nn.Embedding):
    """An embedding whose weight another layer uses too; ghost clipping knows no norm sampler for this class."""


class _TiedLinear(nn.Linear):
    """As `_TiedEmbedding`."""


_TIED: dict[type, type] = {nn.Embedding: _TiedEmbedding, nn.Linear: _TiedLinear}


class _PerUnit:
    """The part that both modes share; a mixin in front of a class of Opacus' hooks.

    ``rows`` is the layout of the current batch; set it before each forward pass.
    """

    rows: RowLayout
    _module: nn.Module

    def iterate_submodules(self, module: nn.Module) -> Iterator[nn.Module]:
        """Modules to hook; a module whose own weights all belong to its children is skipped in favour of these."""
        own = [weight for weight in module.parameters(recurse=False) if weight.requires_grad]
        below = {id(weight) for child in module.children() for weight in child.parameters()}
        if own and all(id(weight) in below for weight in own):
            for child in module.children():
                yield from self.iterate_submodules(child)
        else:
            yield from super().iterate_submodules(module)  # type: ignore[misc]

    def rearrange_grad_samples(
        self, *, module: Any, backprops: torch.Tensor, loss_reduction: str, batch_first: bool
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        activations, backprops = super().rearrange_grad_samples(  # type: ignore[misc]
            module=module, backprops=backprops, loss_reduction=loss_reduction, batch_first=batch_first
        )
        laid = []
        for values in (*activations, backprops):
            if len(values) != self.rows.num_rows:
                raise TrainingError(
                    f"DP-SGD: a {type(module).__name__} sees {len(values)} rows of a batch of {self.rows.num_rows}, so "
                    "it has no gradient per row"
                )
            values = values.float() if values.is_floating_point() else values
            # A layer with one vector for each row gets a time axis of length 1.
            laid.append(self.rows.lay(values.unsqueeze(1) if backprops.ndim == 2 else values))
        module.max_batch_len = self.rows.num_units
        return laid[:-1], laid[-1]

    def detach(self) -> None:
        """Remove the hooks; the model is then as before."""
        self.cleanup()  # type: ignore[attr-defined]
        for module in self._module.modules():
            if isinstance(module, (_TiedEmbedding, _TiedLinear)):
                module.__class__ = type(module).__base__  # type: ignore[assignment]


class InstantiatedClipping(_PerUnit, GradSampleHooks):
    """Keeps one gradient per unit in memory; exact in any precision."""

    GRAD_SAMPLERS: ClassVar = {**GradSampleHooks.GRAD_SAMPLERS, Conv1D: _conv1d_grads}


class GhostClipping(_PerUnit, GradSampleHooksFastGradientClipping):
    """Computes norms per unit without the gradients, then runs a second backward pass of the losses times the clip
    coefficients."""

    GRAD_SAMPLERS: ClassVar = {
        **GradSampleHooksFastGradientClipping.GRAD_SAMPLERS,
        Conv1D: _conv1d_grads,
        _TiedEmbedding: GradSampleHooksFastGradientClipping.GRAD_SAMPLERS[nn.Embedding],
        _TiedLinear: GradSampleHooksFastGradientClipping.GRAD_SAMPLERS[nn.Linear],
    }
    NORM_SAMPLERS: ClassVar = {
        **GradSampleHooksFastGradientClipping.NORM_SAMPLERS,
        nn.Linear: _norms_by(compute_linear_grad_sample),
        Conv1D: _norms_by(_conv1d_grads),
    }

    def get_clipping_coef(self) -> torch.Tensor:
        """The clip coefficient of each row, which is that of its unit."""
        return super().get_clipping_coef()[self.rows.units_B]


def watch_units(model: PreTrainedModel, clipping: str, max_grad_norm: float) -> InstantiatedClipping | GhostClipping:
    """Hook a model so that backward passes compute gradients, or their norms, per unit.

    Raises
    ------
    TrainingError
        A trained layer keeps buffers, or layers of an unsupported kind share a weight.
    """
    for module in model.modules():
        decoder, bias = getattr(module, "decoder", None), module._parameters.get("bias")
        if isinstance(decoder, nn.Linear) and bias is not None and bias is not decoder.bias:
            bias.requires_grad_(False)  # BERT, untied: the forward pass never reads it
    try:
        if clipping == "hooks":
            return InstantiatedClipping(model, loss_reduction="sum")
        for module in _sharing_weights(model):
            if type(module) not in _TIED:
                raise TrainingError(f"DP-SGD: a {type(module).__name__} shares its weight, which ghost clipping cannot")
            module.__class__ = _TIED[type(module)]
        return GhostClipping(model, loss_reduction="sum", max_grad_norm=max_grad_norm)
    except NotImplementedError:
        raise TrainingError(
            "DP-SGD: a trained layer of this model keeps buffers, so rows cannot be separated"
        ) from None


def _sharing_weights(model: nn.Module) -> Iterable[nn.Module]:
    """Leaf modules that share a trained weight with another leaf."""
    owners: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        if not any(True for _ in module.children()):
            for weight in module.parameters(recurse=False):
                if weight.requires_grad:
                    owners.setdefault(id(weight), []).append(module)
    return {id(module): module for found in owners.values() if len(found) > 1 for module in found}.values()


def unit_losses(
    model: PreTrainedModel, batch: Batch, targets: Targets, objective: str, rows: RowLayout
) -> torch.Tensor:
    """Return each row's share of its unit's loss, float32 (B,); over a unit they sum to the mean over its targets.

    The divisor is the unit's own number of targets, never the batch's. So the gradient of a unit does not depend on
    other units' documents, and a clip to C is a sensitivity of C. A unit without a target has loss 0 and gradient 0.
    """
    device = rows.units_B.device
    labels_BT = targets.labels
    if objective == "clm":  # position t predicts the token at t + 1
        labels_BT = np.concatenate([labels_BT[:, 1:], np.full_like(labels_BT[:, :1], IGNORE_INDEX)], axis=1)
    is_target_BT = labels_BT != IGNORE_INDEX
    num_wanted = max(1, int(is_target_BT.sum(axis=1).max()))
    columns_BM = np.argsort(~is_target_BT, axis=1, kind="stable")[:, :num_wanted]  # the rest are not targets
    labels_BM = torch.from_numpy(np.take_along_axis(labels_BT, columns_BM, axis=1)).to(device)
    inputs = _whole_inputs(model, torch.from_numpy(targets.input_ids).to(device), batch.attention)
    at = (torch.arange(len(columns_BM), device=device)[:, None], torch.from_numpy(columns_BM).to(device))
    head = lm_head(model)
    logits_BMV = model(**inputs).logits[at] if head is None else head(model.base_model(**inputs)[0][at])
    losses_BM = F.cross_entropy(
        logits_BMV.float().transpose(1, 2), labels_BM, reduction="none", ignore_index=IGNORE_INDEX
    )
    num_targets_B = (labels_BM != IGNORE_INDEX).sum(dim=1)
    num_targets_U = torch.zeros(rows.num_units, dtype=torch.int64, device=device)
    num_targets_U.index_add_(0, rows.units_B, num_targets_B)
    return losses_BM.sum(dim=1) / num_targets_U.clamp(min=1)[rows.units_B]


def _whole_inputs(model: PreTrainedModel, input_ids_BT: torch.Tensor, attention_BT: np.ndarray) -> dict[str, Any]:
    """Model inputs that give every embedding one row for each row of the batch."""
    inputs: dict[str, Any] = {"input_ids": input_ids_BT}
    inputs["attention_mask"] = torch.from_numpy(attention_BT).to(input_ids_BT.device)
    modules = dict(model.named_modules())
    if any(name.endswith("token_type_embeddings") for name in modules):
        inputs["token_type_ids"] = torch.zeros_like(input_ids_BT)
    makes_its_own = any(hasattr(module, "create_position_ids_from_input_ids") for module in modules.values())
    if not makes_its_own and "position_ids" in inspect.signature(model.base_model.forward).parameters:
        positions_T = torch.arange(input_ids_BT.shape[1], device=input_ids_BT.device)
        inputs["position_ids"] = positions_T.expand_as(input_ids_BT).contiguous()
    return inputs
