"""Clipped gradients per unit of privacy, on Opacus: hooks or ghost clipping, any number of rows a unit.

Opacus clips rows of a batch. A unit (a document with several windows, an individual with several documents) is
several rows, so its rows are laid end to end along the time axis before Opacus sees a layer's input and the gradient
that flows back to it: U units of R x T positions, zeros where a unit has fewer rows. A layer's gradient is a sum over
positions, so one sample of Opacus is then exactly one unit, in every sampler and in both modes.

What else plain Opacus does not do for transformers, each exact to rounding against a backward of one unit at a time:

- position and token type ids go in whole, (B, T): a broadcast row of them has no gradient per row;
- BERT's head owns a bias that its decoder owns too: only the decoder is hooked;
- ghost clipping refuses a weight with two uses: tied embeddings are instantiated per unit (V x D x 4 bytes a unit),
  all other layers are not;
- GPT-2's ``Conv1D`` has samplers; a norm is taken from the instantiated gradient where that is smaller than the two
  T x T products (long units, small layers, LoRA);
- norms are taken in float32 whatever the layers compute in.

This module imports Opacus: import it where a private run begins.

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
    """Which unit each row of a batch belongs to; rows of a unit stand together, units in the order of their number.

    Parameters
    ----------
    units_B : int64 array, shape (B,), 0 to U - 1, none left out, not decreasing
    """

    def __init__(self, units_B: np.ndarray, device: torch.device):
        firsts_U = np.searchsorted(units_B, np.arange(units_B[-1] + 1))
        ranks_B = np.arange(len(units_B)) - firsts_U[units_B]
        self.num_rows, self.num_units = len(units_B), len(firsts_U)
        self.longest = int(ranks_B.max()) + 1
        self.units_B = torch.from_numpy(units_B).to(device)
        self._slots_B = torch.from_numpy(units_B * self.longest + ranks_B).to(device)

    def lay(self, values: torch.Tensor) -> torch.Tensor:
        """Return (B, T, ...) as (U, R * T, ...), the rows of a unit end to end, zeros after the last."""
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
    """The part that both modes share; stands before a class of Opacus' hooks.

    ``rows`` says whose the rows of the batch at hand are; set it before each forward pass.
    """

    rows: RowLayout
    _module: nn.Module

    def iterate_submodules(self, module: nn.Module) -> Iterator[nn.Module]:
        """Modules to hook: a module all of whose own weights are its children's is passed over for them."""
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
            # A layer that works on one vector a row has a time axis of length 1.
            laid.append(self.rows.lay(values.unsqueeze(1) if backprops.ndim == 2 else values))
        module.max_batch_len = self.rows.num_units
        return laid[:-1], laid[-1]

    def detach(self) -> None:
        """Leave the model as it was."""
        self.cleanup()  # type: ignore[attr-defined]
        for module in self._module.modules():
            if isinstance(module, (_TiedEmbedding, _TiedLinear)):
                module.__class__ = type(module).__base__  # type: ignore[assignment]


class InstantiatedClipping(_PerUnit, GradSampleHooks):
    """One gradient per unit in memory; exact in any precision."""

    GRAD_SAMPLERS: ClassVar = {**GradSampleHooks.GRAD_SAMPLERS, Conv1D: _conv1d_grads}


class GhostClipping(_PerUnit, GradSampleHooksFastGradientClipping):
    """Norms per unit without the gradients, then a second backward pass of the losses times the clip coefficients."""

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
        """Clip coefficient of each row: its unit's."""
        return super().get_clipping_coef()[self.rows.units_B]


def watch_units(model: PreTrainedModel, clipping: str, max_grad_norm: float) -> InstantiatedClipping | GhostClipping:
    """Hook a model so that backward passes leave gradients, or their norms, per unit.

    Raises
    ------
    TrainingError
        A layer has buffers that are trained with it, or a weight is shared by layers of a kind that has no rule.
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
    """Leaves that own a trained weight which another leaf owns too."""
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

    The divisor is the unit's own number of targets, never the batch's: one unit's gradient then depends on no other
    else's documents, and a clip to C is a sensitivity of C. A unit without a target has loss 0 and gradient 0.
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
    """Inputs of which every embedding of the model gets one row for each row of the batch."""
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
