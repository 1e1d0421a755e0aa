"""The DP-SGD part of the training loop: Poisson samples as physical batches, clipped sums, noise.

The update of a step is (sum over sampled units of clip(gradient, C) + N(0, sigma^2 C^2)) / expected number of units. It
does not depend on the division of a sample into physical batches. With several processes it is the same sum: each
process has a share of one sample, and only the first adds noise.

This module imports Opacus. :class:`~reticent.ext.dp.dpsgd.PrivateStep` plans a run and charges its cost.
"""

from __future__ import annotations

import math
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleHooks
from opacus.grad_sample.functorch import ft_compute_per_sample_gradient, prepare_layer
from opacus.optimizers import get_optimizer_class
from torch import nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from transformers.pytorch_utils import Conv1D

from reticent.core.device import autocast, full_float32, uses_bf16
from reticent.core.errors import ArtifactError, TrainingError
from reticent.engine.kernels import hash_keys
from reticent.engine.schema import IGNORE_INDEX
from reticent.ext.dp.budget import Budget, budget_of
from reticent.trainer.config import TrainConfig
from reticent.trainer.distributed import World
from reticent.trainer.ghost_norms import linear_squares, row_squares, tied_products
from reticent.trainer.labels import Targets
from reticent.trainer.ledger import Ledger
from reticent.trainer.models import first_position, lm_head, num_rows
from reticent.trainer.privacy import Guarantee, Plan, PrivacyConfig, plan_privacy, refuse_conflicts, unaccounted_steps
from reticent.trainer.recipes import Recipe
from reticent.trainer.resume import State
from reticent.trainer.steps import (
    EpochPlan,
    MakeTargets,
    align_labels,
    to_device,
    transfers_on_own_stream,
    wait_for_transfer,
)
from reticent.trainer.windows import Batch, Windows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


# ------------------------------------------------------------------------------------------------------------ clipping
#
# Gradients clipped per unit of privacy, on top of Opacus: hooks or ghost clipping, any number of rows per unit.
#
# Ghost clipping makes no gradient of a unit. One backward pass gives the gradient of each layer's output; with the
# layer's input it gives the norm of every unit's gradient [@li2022], and then, scaled by the clip factors, the clipped
# sum, without a second pass [@bu2023]. The norms are of the very products that are added up, so the bound is exact
# whatever the precision of the passes.
#
# Opacus clips single rows of a batch. A unit (a document with several windows, an individual with several documents)
# has several rows. So the rows of a unit are laid end to end along the time axis, before Opacus receives a layer's
# input and output gradient: U units of R x T positions, zeros where a unit has fewer rows. A layer's gradient is a sum
# over positions, so one sample of Opacus is then exactly one unit, in every sampler and in both modes.
#
# Further differences from plain Opacus that transformers need, each tested against a backward pass of one unit at a
# time:
#
# - position ids and token type ids have the full shape (B, T), because a broadcast row has no gradient per row; a model
#   whose positions are not known makes its own, which its position embeddings then refuse unless they are frozen;
# - BERT's head and its decoder share a bias: only the decoder is hooked;
# - ghost clipping is ours, as Opacus' takes two backward passes and no weight with two uses (tied embeddings);
# - GPT-2's ``Conv1D`` has samplers; norms are those of `reticent.trainer.ghost_norms`;
# - norms and clipped sums are computed in float32, independent of the layers' precision.
#
# This module imports Opacus, so import it only where a private run begins.
#
# Shapes: B rows, T positions a row, U units, R rows of the longest unit, M positions that are targets, D, V.


Samples = dict[nn.Parameter, torch.Tensor]


@dataclass(frozen=True, slots=True)
class UnitRows:
    """A physical batch in the layout that a model and its hooks read: the rows of whole privacy units.

    Attributes
    ----------
    inputs : dict of tensors, shape (B, T) each
        Arguments of the model. Every embedding has one row for each row of the batch.
    at : pair of int64 tensors, shapes (B, 1) and (B, M)
        Cells whose output predicts a target; a row with fewer has others, whose label is `IGNORE_INDEX`.
    labels_BM : int64 tensor
    divisors_B : int64 tensor
        Number of targets of the row's unit, or 1 if it has none.
    units_B, slots_B : int64 tensors
        The unit of each row, and its place among ``num_units * longest``, the rows of each unit end to end.
    """

    inputs: dict[str, torch.Tensor]
    at: tuple[torch.Tensor, torch.Tensor]
    labels_BM: torch.Tensor
    divisors_B: torch.Tensor
    units_B: torch.Tensor
    slots_B: torch.Tensor
    num_units: int
    longest: int

    @property
    def num_rows(self) -> int:
        """Number of rows in the batch, B."""
        return len(self.units_B)

    def join_rows_of_units(self, values: torch.Tensor) -> torch.Tensor:
        """Concatenate the rows of each privacy unit along the time axis: (B, T, ...) becomes (U, R * T, ...), where R
        is the largest number of rows of a unit. Missing rows are zeros.
        """
        if self.longest == 1:
            return values
        cells = values.new_zeros((self.num_units * self.longest, *values.shape[1:]))
        cells[self.slots_B] = values
        return cells.reshape(self.num_units, self.longest * values.shape[1], *values.shape[2:])


class UnitRowsMaker:
    """Turns batches into `UnitRows` for one model on one device."""

    def __init__(self, model: PreTrainedModel, objective: str, device: torch.device):
        self._causal, self._device = objective == "clm", device
        self._has_types = any(name.endswith("token_type_embeddings") for name, _ in model.named_modules())
        self._first = first_position(model)

    def __call__(self, batch: Batch, targets: Targets, units_B: np.ndarray) -> UnitRows:
        """Return the layout of a batch with row b of unit ``units_B[b]``: 0 to U - 1, non-decreasing, none missing.

        The divisor of a row's loss is its unit's own number of targets, never the batch's. So the gradient of a unit
        does not depend on other units' documents, and a clip to C is a sensitivity of C.
        """
        labels_BT = align_labels(targets, self._causal)
        is_target_BT = labels_BT != IGNORE_INDEX
        num_wanted = max(1, int(is_target_BT.sum(axis=1).max()))
        columns_BM = np.argsort(~is_target_BT, axis=1, kind="stable")[:, :num_wanted]  # the rest are not targets
        num_targets_U = np.bincount(units_B[np.nonzero(is_target_BT)[0]], minlength=units_B[-1] + 1).clip(min=1)
        ranks_B = np.arange(len(units_B)) - np.searchsorted(units_B, units_B)
        longest = int(ranks_B.max()) + 1
        inputs = {"input_ids": targets.input_ids}
        if not self._causal and not batch.attention.all():  # the host knows; see `reticent.trainer.attention`
            inputs["attention_mask"] = batch.attention
        if self._has_types:
            inputs["token_type_ids"] = np.zeros_like(targets.input_ids)
        if self._first is not None:
            positions_T = self._first + np.arange(targets.input_ids.shape[1])
            inputs["position_ids"] = np.tile(positions_T, (len(units_B), 1))
        return UnitRows(
            {name: self._to_device(values) for name, values in inputs.items()},
            (self._to_device(np.arange(len(units_B))[:, None]), self._to_device(columns_BM)),
            self._to_device(np.take_along_axis(labels_BT, columns_BM, axis=1)),
            self._to_device(num_targets_U[units_B]),
            self._to_device(units_B),
            self._to_device(units_B * longest + ranks_B),
            int(units_B[-1]) + 1,
            longest,
        )

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        """Return an array as a tensor on the device."""
        return to_device(torch.from_numpy(values), self._device)


def _conv1d_grads(layer: Conv1D, activations: list[torch.Tensor], backprops: torch.Tensor) -> Samples:
    """Return each privacy unit's gradients of a GPT-2 Conv1D layer, a linear layer with weight (in, out); one tensor
    (U, ...) for each parameter.
    """
    grads = {}
    if layer.weight.requires_grad:
        grads[layer.weight] = torch.einsum("uti,uto->uio", activations[0], backprops)
    if layer.bias.requires_grad:
        grads[layer.bias] = backprops.sum(dim=1)
    return grads


def _layer_norm_grads(layer: nn.LayerNorm, activations: list[torch.Tensor], backprops: torch.Tensor) -> Samples:
    """Return each privacy unit's gradients of a layer norm, with or without a bias; one tensor (U, D) for each
    parameter.
    """
    grads = {}
    if layer.weight.requires_grad:
        normalised = F.layer_norm(activations[0], layer.normalized_shape, eps=layer.eps)
        grads[layer.weight] = (normalised * backprops).flatten(1, -2).sum(dim=1)
    if layer.bias is not None and layer.bias.requires_grad:
        grads[layer.bias] = backprops.flatten(1, -2).sum(dim=1)
    return grads


#: Input and output gradient of one use of a layer, rows of a unit end to end: (U, L, ...) each.
Uses = list[tuple[nn.Module, torch.Tensor, torch.Tensor]]


def _bias_norms_of_uses(uses: Uses) -> torch.Tensor:
    """Return the norm (U,) of each privacy unit's gradient of one bias, summed over all layer calls that use it."""
    return torch.stack([backprops.sum(dim=1) for _, _, backprops in uses]).sum(dim=0).norm(dim=1)


def _weight_norms_of_uses(uses: Uses) -> torch.Tensor:
    """Return the norm (U,) of each privacy unit's gradient of one weight, which is the sum over all layer calls that
    use the weight. The calls may be of embeddings, linear layers and `Conv1D` layers, also of several kinds (tied
    weights).
    """
    uses = [  # torch gives the row of padding no gradient
        (layer, read, back if (pad := getattr(layer, "padding_idx", None)) is None else back * (read != pad)[..., None])
        for layer, read, back in uses
    ]
    # All uses of a kind are one, with more places.
    embedded, linear = (
        [
            torch.cat(parts, dim=1)
            for parts in zip(*(own for layer, *own in uses if isinstance(layer, kinds)), strict=True)
        ]
        for kinds in (nn.Embedding, (nn.Linear, Conv1D))
    )
    squares = [row_squares(*embedded)] if embedded else []
    if linear:
        squares.append(linear_squares(*linear))
    if embedded and linear:
        squares.append(2 * tied_products(*embedded, *linear))
    return torch.stack(squares).sum(dim=0).clamp(min=0).sqrt()


def _trained_weights(layer: nn.Module) -> list[nn.Parameter]:
    """Return the weights and biases of a layer itself, not of its submodules, that are trained."""
    return [weight for weight in layer.parameters(recurse=False) if weight.requires_grad]


def _gradient(weight: nn.Parameter, layer: nn.Module, read: torch.Tensor, backprops: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a weight or bias of a layer, summed over all rows, from the layer's input, ``read``, and
    output gradient, (B, T, ...) each.
    """
    if weight.ndim == 1:
        return backprops.flatten(0, -2).sum(dim=0)
    if isinstance(layer, nn.Embedding):
        padding = -1 if layer.padding_idx is None else layer.padding_idx
        return torch.ops.aten.embedding_dense_backward(backprops, read, layer.num_embeddings, padding, False)
    back_NO, read_NI = backprops.flatten(0, -2), read.float().flatten(0, -2)
    return read_NI.mT @ back_NO if isinstance(layer, Conv1D) else back_NO.mT @ read_NI


class _PerUnit:
    """Mixin for Opacus' hook classes: lays out rows by privacy unit, so that gradients are per unit.

    ``rows`` is the layout of the current batch; `begin` sets it before each forward pass.
    """

    rows: UnitRows
    _module: nn.Module
    #: The hooked layer that ran last; an error that no layer raises itself is of one near it.
    last: nn.Module | None = None

    def iterate_submodules(self, module: nn.Module) -> Iterator[nn.Module]:
        """Yield the modules that Opacus hooks. A module whose own trained weights all belong to its children too (tied
        weights) is replaced by these children.
        """
        own = _trained_weights(module)
        below = {id(weight) for child in module.children() for weight in child.parameters()}
        if own and all(id(weight) in below for weight in own):
            for child in module.children():
                yield from self.iterate_submodules(child)
        else:
            yield from super().iterate_submodules(module)  # type: ignore[misc]

    def begin(self, rows: UnitRows) -> None:
        """Set for the next forward pass which rows of the batch belong to which privacy unit."""
        self.rows = rows

    def rearrange_grad_samples(
        self, *, module: Any, backprops: torch.Tensor, loss_reduction: str, batch_first: bool
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the inputs and output gradients of a layer in float32, (U, R * T, ...): the rows of each privacy unit
        concatenated.
        """
        activations, backprops = super().rearrange_grad_samples(  # type: ignore[misc]
            module=module, backprops=backprops, loss_reduction=loss_reduction, batch_first=batch_first
        )
        module.max_batch_len = self.rows.num_units
        *activations, backprops = self.rows_of_units(module, [*activations, backprops])
        return activations, backprops

    def rows_of_units(self, module: nn.Module, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return a layer's inputs and, last, its output gradient in float32, (U, R * T, ...): the rows of each privacy
        unit concatenated.
        """
        laid = []
        for each in values:
            if len(each) != self.rows.num_rows:
                seen = f"a {type(module).__name__} sees {len(each)} rows of a batch of {self.rows.num_rows}"
                raise TrainingError(_unsupported_model(self._module, f"{seen}, so it has no gradient per row"))
            each = each.float() if each.is_floating_point() else each
            # A layer with one vector for each row gets a time axis of length 1.
            laid.append(self.rows.join_rows_of_units(each.unsqueeze(1) if values[-1].ndim == 2 else each))
        return laid

    def capture_activations_hook(self, module: nn.Module, *values: Any) -> None:
        """Store a layer's inputs in the forward pass, as Opacus does, with errors that name the layer."""
        self.last = module
        with self.naming_errors():
            super().capture_activations_hook(module, *values)  # type: ignore[misc]

    def capture_backprops_hook(self, module: nn.Module, *values: Any, **options: Any) -> None:
        """Compute a layer's gradients per unit in the backward pass, as Opacus does, with errors that name
        the layer.
        """
        self.last = module
        with self.naming_errors():
            super().capture_backprops_hook(module, *values, **options)  # type: ignore[misc]

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Context manager: turn any error of Opacus or torch into a `TrainingError` that names the layer and a
        remedy."""
        try:
            yield
        except (TrainingError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            names = {module: name for name, module in self._module.named_modules()}
            layer = names.get(self.last) or "its first layer"
            raise TrainingError(_unsupported_model(self._module, f"at {layer} ({type(error).__name__})")) from None

    def detach(self) -> None:
        """Remove all hooks and stored activations from the model."""
        self.cleanup()  # type: ignore[attr-defined]
        for module in self._module.modules():
            for left in ("activations", "max_batch_len"):
                module.__dict__.pop(left, None)


class InstantiatedClipping(_PerUnit, GradSampleHooks):
    """Clipping hooks that keep one gradient per unit in memory; exact in any precision."""

    GRAD_SAMPLERS: ClassVar = {
        **GradSampleHooks.GRAD_SAMPLERS,
        Conv1D: _conv1d_grads,
        nn.LayerNorm: _layer_norm_grads,  # Opacus' asks for a bias
    }


@dataclass(frozen=True, slots=True)
class _Use:
    """One use of a layer in a forward pass: its inputs, and where the gradient of its output arrives."""

    module: nn.Module
    read: list[torch.Tensor]
    output: GradientEdge


class GhostClipping(_PerUnit, GradSampleHooks):
    """Forward hooks that note the inputs of layers. From these and the gradients of their outputs follow the norms of
    all units' gradients, then their clipped sum.

    Linear layers, `Conv1D` and embeddings need no gradient of a unit for that, whatever weights they share; of other
    layers, which are small, there is one for each unit.
    """

    GRAD_SAMPLERS: ClassVar = InstantiatedClipping.GRAD_SAMPLERS
    #: Layers of which no gradient of a unit is made.
    GHOSTS: ClassVar = (nn.Linear, Conv1D, nn.Embedding)

    def __init__(self, model: PreTrainedModel, max_grad_norm: float, **options: Any):
        self._uses: list[_Use] = []
        self._max_grad_norm = max_grad_norm
        super().__init__(model, **options)

    def add_hooks(self, *, batch_first: bool = True, **_: Any) -> None:
        """Hook the forward pass of every layer with trained weights of its own."""
        self.autograd_grad_sample_hooks: list[Any] = []
        self._module.autograd_grad_sample_hooks = self.autograd_grad_sample_hooks  # type: ignore[assignment]
        for module in self.iterate_submodules(self._module):
            if type(module) not in self.GRAD_SAMPLERS:
                prepare_layer(module, batch_first=batch_first)
            hook = module.register_forward_hook(self.capture_activations_hook)
            self.autograd_grad_sample_hooks.append(hook)

    def begin(self, rows: UnitRows) -> None:
        """Set for the next forward pass which rows of the batch belong to which privacy unit, and drop what was stored
        in the pass before.
        """
        super().begin(rows)
        self._uses = []

    def detach(self) -> None:
        """Remove all hooks, and drop what was stored in the last forward pass."""
        super().detach()
        self._uses = []

    def capture_activations_hook(self, module: nn.Module, *values: Any) -> None:
        """Store the inputs of a layer in a forward pass, if gradients will flow through its output."""
        read, output = values
        output = output if isinstance(output, torch.Tensor) else output[0]
        if not torch.is_grad_enabled() or not output.requires_grad:
            return
        self.last = module
        self._uses.append(_Use(module, [value.detach() for value in read], get_gradient_edge(output)))

    def norms(self, losses_B: torch.Tensor, *, retain_graph: bool = False) -> dict[nn.Parameter, torch.Tensor]:
        """Return weight -> norm (U,) of each unit's gradient, by one backward pass to the outputs of the layers.
        Weights that the losses do not depend on are left out.
        """
        norms, _ = self._norms_and_sums(losses_B, retain_graph)
        return norms

    def backward(self, losses_B: torch.Tensor) -> None:
        """Store in ``.grad`` of each trained weight the sum of the units' clipped gradients."""
        norms, add_up = self._norms_and_sums(losses_B)
        with torch.no_grad(), full_float32():
            norm_U = torch.stack(list(norms.values())).norm(dim=0)
            factor_U = (self._max_grad_norm / (norm_U + 1e-6)).clamp(max=1.0)
            sums = add_up(factor_U)
            for weight in self._module.parameters():
                if weight.requires_grad:  # one that these losses do not reach gets noise all the same
                    weight.grad = sums[weight] if weight in sums else torch.zeros_like(weight)

    def _norms_and_sums(
        self, losses_B: torch.Tensor, retain_graph: bool = False
    ) -> tuple[dict[nn.Parameter, torch.Tensor], Callable[[torch.Tensor], Samples]]:
        """Return weight -> norms (U,) of the units' gradients; then a function that takes a factor for each unit, (U,),
        and returns weight -> sum of the gradients times their factors.
        """
        uses, self._uses = self._uses, []
        gradients = torch.autograd.grad(
            losses_B.sum(), [use.output for use in uses], allow_unused=True, retain_graph=retain_graph
        )
        reached = [(use, back) for use, back in zip(uses, gradients, strict=True) if back is not None]
        ghosts = [(use, back) for use, back in reached if type(use.module) in self.GHOSTS]
        with torch.no_grad(), full_float32():
            whole = self._unit_gradients([each for each in reached if type(each[0].module) not in self.GHOSTS])
            norms = {weight: each.flatten(1).norm(dim=1) for weight, each in whole.items()}
            uses_of: dict[nn.Parameter, list[tuple[_Use, torch.Tensor]]] = {}
            for use, back in ghosts:
                for weight in _trained_weights(use.module):
                    uses_of.setdefault(weight, []).append((use, back))
            for weight, of_weight in uses_of.items():
                if weight in whole:
                    where = f"a {type(of_weight[0][0].module).__name__} shares its weight with a layer of another kind"
                    raise TrainingError(_unsupported_model(self._module, where))
                laid = [self._with_rows_of_units(*each) for each in of_weight]  # of one weight at a time
                norms[weight] = (_bias_norms_of_uses if weight.ndim == 1 else _weight_norms_of_uses)(laid)

        def add_up(factor_U: torch.Tensor) -> Samples:
            """Return for each weight the sum of the privacy units' gradients, each times its unit's factor (U,): as a
            rule the factor that clips it."""
            sums = {weight: torch.einsum("u,u...->...", factor_U, each) for weight, each in whole.items()}
            factor_B = factor_U[self.rows.units_B]
            for use, back in ghosts:
                scaled = back.float() * factor_B.reshape(-1, *[1] * (back.ndim - 1))
                for weight in _trained_weights(use.module):
                    found = _gradient(weight, use.module, use.read[0], scaled)
                    sums[weight] = sums[weight] + found if weight in sums else found
            return sums

        return norms, add_up

    def _with_rows_of_units(self, use: _Use, back: torch.Tensor) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
        """Return a layer with its input and output gradient in one call, (U, R * T, ...) each: the rows of each privacy
        unit concatenated.
        """
        self.last = use.module
        read, back = self.rows_of_units(use.module, [use.read[0], back])
        return use.module, read, back

    def _unit_gradients(self, uses: list[tuple[_Use, torch.Tensor]]) -> Samples:
        """Return weight -> gradients of the units, (U, ...), summed over these layer calls; each call is given with its
        output gradient.
        """
        found: Samples = {}
        for use, back in uses:
            self.last = use.module
            *read, laid = self.rows_of_units(use.module, [*use.read, back])
            sampler = self.GRAD_SAMPLERS.get(type(use.module), ft_compute_per_sample_gradient)
            for weight, each in sampler(use.module, read, laid).items():
                if weight.requires_grad:
                    found[weight] = found[weight] + each if weight in found else each
        return found


def _unsupported_model(model: Any, where: str) -> str:
    """Return the error message for a model that cannot be clipped at ``where``, with possible remedies."""
    return (
        f"DP-SGD: {model.config.model_type} is built in a way that clipping cannot follow ({where}); train it with "
        'LoRA ([train.lora]), try the other train.dp.clipping ("hooks", "ghost"), or choose another base model'
    )


def watch_units(model: PreTrainedModel, clipping: str, max_grad_norm: float) -> InstantiatedClipping | GhostClipping:
    """Hook a model so that backward passes compute gradients (``clipping``: "hooks") or their norms and clipped sums
    ("ghost") per privacy unit; return the hooks.

    Raises
    ------
    TrainingError
        A trained layer keeps buffers.
    """
    for module in model.modules():
        decoder, bias = getattr(module, "decoder", None), module._parameters.get("bias")
        if isinstance(decoder, nn.Linear) and bias is not None and bias is not decoder.bias:
            bias.requires_grad_(False)  # BERT, untied: the forward pass never reads it
    try:
        if clipping == "ghost":
            return GhostClipping(model, max_grad_norm, loss_reduction="sum")
        return InstantiatedClipping(model, loss_reduction="sum")
    except Exception as error:  # some layers may be hooked
        for handle in model.__dict__.pop("autograd_grad_sample_hooks", ()):
            handle.remove()
        buffers = isinstance(error, NotImplementedError)
        where = "a trained layer keeps buffers, so rows cannot be separated" if buffers else type(error).__name__
        raise TrainingError(_unsupported_model(model, where)) from None


def unit_losses(model: PreTrainedModel, rows: UnitRows) -> torch.Tensor:
    """Return for each row its part of its privacy unit's mean loss over targets, float32 (B,). The parts of a unit sum
    to that mean.

    A unit without a target has loss 0 and gradient 0.
    """
    head = lm_head(model)
    if head is not None:
        logits_BMV = head(model.base_model(**rows.inputs)[0][rows.at])
    else:
        logits = model(**rows.inputs).logits
        logits_BMV = logits[rows.at] if logits.ndim == 3 else logits[rows.at[0].expand_as(rows.labels_BM)]
    losses_BM = F.cross_entropy(
        logits_BMV.float().transpose(1, 2), rows.labels_BM, reduction="none", ignore_index=IGNORE_INDEX
    )
    return losses_BM.sum(dim=1) / rows.divisors_B


# ------------------------------------------------------------------------------------------------------------ sampling
#
# Poisson samples of units of privacy: the units of each step, their documents, and their physical batches.
#
# Every draw is a function of (secret seed, step, ids of the unit's own documents) alone. So a resumed run draws the
# same samples as an uninterrupted one, the ranks of a distributed run agree on a sample without communication (each
# takes its share of it), and one individual more moves no draw of another. Each unit is in a step with probability
# ``sample_rate``, independently of all others, so batches differ in size and may be empty.
#
# An individual with more than G documents takes part with G of them, **drawn anew in each step**. The contribution to
# a step is clipped for any choice of documents, so a fixed choice would protect no better and the model would learn
# less.
#
# Opacus' `UniformWithReplacementSampler` draws rows, so it does not support units of several rows. It also uses a
# generator that a resumed run cannot rewind. `python -m studies.dp_baseline` trains with these units.
#
# The seed must be secret: epsilon assumes that no observer knows the sample, and the seed determines it.


Unit = Literal["individual", "household", "record"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of privacy units, or a part of one, as windows; the windows of a unit are adjacent.

    Attributes
    ----------
    windows : int64 array, shape (B,), numbers of the windows
    units : int64 array, shape (B,), non-decreasing, from 0 to the number of units of this part minus 1
    """

    windows: np.ndarray
    units: np.ndarray


@dataclass(frozen=True, slots=True)
class Units:
    """Privacy units with their documents and windows; see :func:`find_units`.

    Attributes
    ----------
    documents : int64 array, shape (D,), numbers of documents; documents of a unit are adjacent
    doc_offsets : int64 array, shape (U + 1,), bounds of each unit in ``documents``
    window_offsets : int64 array, shape (D + 1,), bounds of each document's windows
    keys : int64 array, shape (D,), of each of ``documents``; a unit goes by the least of its own
    max_documents : largest number of documents of a unit in a step
    """

    documents: np.ndarray
    doc_offsets: np.ndarray
    window_offsets: np.ndarray
    keys: np.ndarray
    max_documents: int

    def __len__(self) -> int:
        return len(self.doc_offsets) - 1

    def draw(self, sample_rate: float, *, seed: int, step: int, rank: int = 0, num_ranks: int = 1) -> Sample:
        """Draw the Poisson sample of a step, which includes each privacy unit with probability ``sample_rate``; return
        this process's share of it.
        """
        words = np.random.SeedSequence(seed, spawn_key=(step,)).generate_state(4, np.uint64)
        chance = (hash_keys(words[0], np.minimum.reduceat(self.keys, self.doc_offsets[:-1]), words[1]) >> 11) * 2.0**-53
        drawn = np.flatnonzero(chance < sample_rate)
        places, owners = _expand_slices(self.doc_offsets, drawn)
        order = np.lexsort((hash_keys(words[2], self.keys[places], words[3]), owners))
        places, owners = places[order], owners[order]
        kept = np.arange(len(owners)) - np.searchsorted(owners, owners) < self.max_documents
        kept &= owners % num_ranks == rank
        documents, owners = self.documents[places[kept]], owners[kept]
        windows, rows = _expand_slices(self.window_offsets, documents)
        units = np.unique(owners[rows], return_inverse=True)[1]
        return Sample(windows, units)


def find_units(windows: Windows, unit: Unit, max_documents: int = 1) -> Units:
    """Return the privacy units of tokenised documents with the documents and windows of each unit: individuals,
    households or single documents ("record"). A training step reads at most ``max_documents`` documents of a unit.

    Raises
    ------
    TrainingError
        The store is by individual and the unit is the household, or the other way round.
    """
    num_documents, keys = windows.store.num_documents, windows.store.doc_keys
    window_offsets = np.searchsorted(windows.documents, np.arange(num_documents + 1))
    if unit == "record":
        return Units(np.arange(num_documents), np.arange(num_documents + 1), window_offsets, keys, 1)
    if (unit == "household") != windows.store.by_household:
        held = "household" if windows.store.by_household else "individual"
        raise TrainingError(f"train.dp.unit: epsilon is per {unit}, and the tokens of this epoch are by {held}")
    individual = windows.store.individual
    num_of_each = np.unique(individual, return_counts=True)[1]
    bounds = np.concatenate([[0], np.cumsum(num_of_each)])
    documents = np.argsort(individual, kind="stable")
    return Units(documents, bounds, window_offsets, keys[documents], max_documents)


def physical_batches(sample: Sample, windows: Windows, max_rows: int) -> Iterator[Sample]:
    """Split a sample of privacy units into batches of at most ``max_rows`` windows, with units of similar length
    together.

    A unit is never divided, because its norm is computed over all its rows. A unit with more than ``max_rows`` rows is
    a part of its own.
    """
    if not len(sample.units):
        return
    sizes = np.bincount(sample.units)
    starts = np.cumsum(sizes) - sizes
    lengths = np.maximum.reduceat(windows.lengths[sample.windows], starts)
    order = np.argsort(lengths, kind="stable")
    ends = np.cumsum(sizes[order])
    first = 0
    while first < len(order):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + max_rows, side="right")))
        part = order[first:last]
        rows = np.repeat(starts[part] - (ends[first:last] - sizes[part] - before), sizes[part])
        yield Sample(sample.windows[rows + np.arange(len(rows))], np.repeat(np.arange(len(part)), sizes[part]))
        first = last


def dummy_batch(windows: Windows) -> Batch:
    """Return a batch of one padding row for an empty sample, so that its step is taken and noise is added."""
    shape = (1, windows.padded_width(1))
    nothing, none = np.zeros(shape, dtype=np.bool_), np.full(1, -1, dtype=np.int64)
    return Batch(
        none,
        np.full(shape, windows.special.pad, dtype=np.int64),
        np.full(shape, -1, dtype=np.int32),
        np.zeros(shape, dtype=np.uint8),
        nothing,
        ~nothing,
        none,
    )


def _expand_slices(offsets: np.ndarray, slices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays: the indices that the chosen slices of CSR offsets cover, and for each index the position of
    its slice in ``slices``.
    """
    lengths = offsets[slices + 1] - offsets[slices]
    owners = np.repeat(np.arange(len(slices)), lengths)
    starts = offsets[slices] - (np.cumsum(lengths) - lengths)
    return starts[owners] + np.arange(len(owners)), owners


@dataclass(frozen=True, slots=True)
class Part:
    """A physical batch: the rows of whole units, and the unit of each row."""

    batch: Batch
    targets: Targets
    units: np.ndarray

    @property
    def num_units(self) -> int:
        """Number of units with rows in the batch; 0 for the dummy batch of an empty sample."""
        return int(self.units[-1]) + 1 if self.batch.windows[0] >= 0 else 0


@dataclass(frozen=True, slots=True)
class PhysicalBatches:
    """The physical batches of one step, on host and device, with counts; a private step's targets are units."""

    parts: list[Part]
    rows: list[UnitRows]
    ledger: Ledger
    ready: torch.cuda.Event | None = None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of units, of document tokens, of tokens including special ones, and of positions including padding,
        in all batches of the step.
        """
        batches = [part.batch for part in self.parts]
        return (
            sum(part.num_units for part in self.parts),
            sum(batch.num_tokens for batch in batches),
            sum(int(np.count_nonzero(batch.attention)) for batch in batches),
            sum(batch.attention.size for batch in batches),
        )

    def wait(self) -> list[UnitRows]:
        """Return the batches, ready for use on the device. The device waits for their transfer, the host does not."""
        if self.ready is not None:
            for rows in self.rows:
                tensors = (*rows.inputs.values(), *rows.at, rows.labels_BM, rows.divisors_B, rows.units_B, rows.slots_B)
                wait_for_transfer(tensors, self.ready)
        return self.rows


class NoisyGradient:
    """Draws samples, clips gradients and adds noise for one training; ``close`` removes all hooks from the model.

    Parameters
    ----------
    model : in train mode, on its device, with its adapters
    seed : int, the secret seed of samples and noise
    rank, num_ranks : rank of this process and number of processes; all have the same weights
    autocast : context of forward passes
    num_labels : labels of a head; None for one that predicts words
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: str,
        config: PrivacyConfig,
        plan: Plan,
        device: torch.device,
        *,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        num_labels: int | None = None,
    ):
        self.num_labels = num_labels
        self.model, self.config, self.plan, self.device = model, config, plan, device
        self.seed, self.rank, self.num_ranks, self.autocast = seed, rank, num_ranks, autocast
        self.make_rows = UnitRowsMaker(model, objective, device)
        self.hooks = watch_units(model, config.clipping, config.max_grad_norm)
        self.optimizer: Any = None
        self._noise = torch.Generator(device)
        self._checked = False
        #: Whether a step has been taken, or begun, that adds noise: until then nothing of a unit is anywhere.
        self.drew = False

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Wrap the optimizer of the model's trained weights with Opacus' one, which clips and adds noise."""
        wrapper = get_optimizer_class("flat", self.num_ranks > 1, self.config.clipping)
        self.optimizer = wrapper(
            optimizer,
            noise_multiplier=self.plan.noise_multiplier,
            max_grad_norm=self.config.max_grad_norm,
            # Opacus divides by the number of processes once more.
            expected_batch_size=self.plan.expected_units / self.num_ranks,
            loss_reduction="mean",
            generator=self._noise,
        )

    def iter_steps(
        self,
        windows: Windows,
        units: Units,
        make: MakeTargets,
        *,
        first: int,
        last: int,
    ) -> Iterator[PhysicalBatches]:
        """Yield the batches of steps ``first`` to ``last`` (exclusive), each step on a Poisson sample of units, with
        prediction targets from ``make``; an empty sample gives a batch of padding.
        """
        share = {"rank": self.rank, "num_ranks": self.num_ranks}
        for step in range(first, last):
            sample = units.draw(self.plan.sample_rate, seed=self.seed, step=step, **share)
            parts, ledger = [], Ledger()
            for part in physical_batches(sample, windows, self.config.max_physical_batch_size):
                batch = windows.gather(part.windows)
                parts.append(Part(batch, make(batch, ledger), part.units))
            if not parts:
                dummy = dummy_batch(windows)
                parts.append(Part(dummy, make(dummy, ledger), np.zeros(1, dtype=np.int64)))
            with transfers_on_own_stream(self.device) as ready:
                rows = [self.make_rows(part.batch, part.targets, part.units) for part in parts]
            yield PhysicalBatches(parts, rows, ledger, ready())

    def add_gradients(self, data: PhysicalBatches, step: int) -> list[torch.Tensor]:
        """Store the clipped, noisy mean gradient of a step in ``.grad``, the same in every process; return the loss of
        each batch.

        Returns the sum of the units' losses for each physical batch, on the device.
        """
        self._seed_noise(step)
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for turn, (part, rows) in enumerate(zip(data.parts, data.wait(), strict=True)):
            if not self._checked and part.targets.num_targets:
                self._check_units(_first_unit(part))
            torch.manual_seed(self._derive_seed(step, 2, self.rank, turn))  # dropout
            losses_B = self._losses(rows)
            with _no_hook_warnings(), self.hooks.naming_errors():
                if isinstance(self.hooks, GhostClipping):
                    self.hooks.backward(losses_B)
                else:
                    losses_B.sum().backward()
            losses.append(losses_B.detach().sum())
            is_last = turn == len(data.parts) - 1
            self.drew |= is_last
            self.optimizer.signal_skip_step(do_skip=not is_last)
            with full_float32():  # a clip factor of fewer bits would let a gradient be longer than the bound
                self.optimizer.pre_step()  # adds up the clipped sums; at the last batch adds the noise, and divides
            if not is_last:
                self.optimizer.zero_grad(set_to_none=True)
        if self.num_ranks > 1:
            self.optimizer.reduce_gradients()
        return losses

    def check_clipping(self, windows: Windows) -> None:
        """Check on two made-up privacy units, before any privacy cost is charged, that the hooks see all gradients of
        this model; raise `TrainingError` if not.

        Raises
        ------
        TrainingError
            Clipping cannot follow this model: it names the layer, and the way out.
        """
        length = min(8, windows.longest)
        paddings = {getattr(module, "padding_idx", None) for module in self.model.modules()}
        free = np.array([number for number in range(num_rows(self.model)) if number not in paddings][-2 * length :])
        ids = np.resize(free, (3, length)).astype(np.int64)
        attention = np.arange(length) < np.array([[length], [max(2, length - 2)], [max(2, length - 1)]])
        ids[~attention] = windows.special.pad
        num_labels = self.num_labels or num_rows(self.model)
        labels = np.where(attention, ids % num_labels, IGNORE_INDEX)
        labels[2, 2:] = IGNORE_INDEX  # so the norms of the two units differ much
        rows = np.arange(3)
        batch = Batch(rows, ids, np.zeros_like(ids), np.zeros_like(ids), attention, attention, rows)
        self._check_units(Part(batch, Targets(ids, labels), np.array([0, 0, 1])))
        self._checked = False  # of a real one too

    def close(self) -> None:
        """Remove all hooks from the model."""
        self.hooks.detach()

    def _losses(self, rows: UnitRows) -> torch.Tensor:
        """Run the model forward on a batch; return each row's part of its privacy unit's mean loss, (B,)."""
        self.hooks.begin(rows)
        with self.autocast(), self.hooks.naming_errors():
            return unit_losses(self.model, rows)

    def _derive_seed(self, *use: int) -> int:
        """Return a 64-bit seed derived from the secret seed and these numbers."""
        return int(np.random.SeedSequence(self.seed, spawn_key=use).generate_state(1, np.uint64)[0])

    def _seed_noise(self, step: int) -> None:
        """Seed the noise of a step from the secret seed and the step's number, so that a resumed training adds the same
        noise."""
        self._noise.manual_seed(self._derive_seed(step, 1))
        if self.device.type == "cpu":  # its generator uses 32 bits of a seed, few enough to try them all
            words = np.random.SeedSequence(self.seed, spawn_key=(step, 3)).generate_state(624)
            state = self._noise.get_state()
            state[24 : 24 + 624 * 8] = torch.from_numpy(words.astype(np.uint64).view(np.uint8))
            self._noise.set_state(state)

    def _check_units(self, part: Part) -> None:
        """Raise `TrainingError` if the gradient norm of a privacy unit, as the hooks compute it, differs from that of a
        plain backward pass of the unit's loss alone. It finds layers without a hook, and layers that mix the rows of a
        batch.
        """
        devices = [self.device] if self.device.type == "cuda" else []
        trained = {name: weight for name, weight in self.model.named_parameters() if weight.requires_grad}
        with torch.random.fork_rng(devices=devices), _no_hook_warnings(), self.hooks.naming_errors():
            losses_B = self._losses(self.make_rows(part.batch, part.targets, part.units))
            if isinstance(self.hooks, GhostClipping):
                norms = self.hooks.norms(losses_B, retain_graph=True)
            else:
                losses_B.sum().backward(retain_graph=True)
                samples = {weight: getattr(weight, "grad_sample", None) for weight in trained.values()}
                norms = {weight: each.flatten(1).norm(dim=1) for weight, each in samples.items() if each is not None}
        layers = [layer for layer in self.model.modules() if isinstance(layer, nn.Embedding)]
        padded = {id(layer.weight) for layer in layers if layer.padding_idx is not None}
        self.hooks.disable_hooks()
        for unit in np.unique(part.units):
            for weight in trained.values():
                weight.grad = None
            losses_B[torch.from_numpy(part.units == unit).to(self.device)].sum().backward(retain_graph=True)
            for name, weight in trained.items():
                plain = 0.0 if weight.grad is None else float(weight.grad.float().norm())
                off = float(norms[weight][unit]) - plain if weight in norms else math.inf
                if id(weight) in padded and off > 0:  # torch gives the row of padding no gradient, Opacus clips by one
                    off = 0.0
                if abs(off) > 0.05 * plain + 1e-4 * self.config.max_grad_norm:
                    where = f"{name} has a gradient that clipping does not see"
                    raise TrainingError(_unsupported_model(self.model, where))
        self.hooks.enable_hooks()
        for weight in trained.values():
            weight.grad = None
            if isinstance(self.hooks, InstantiatedClipping):
                weight.grad_sample = None  # type: ignore[attr-defined]
        self._checked = True


def _first_unit(part: Part) -> Part:
    """Return the part of a batch with the rows of the first privacy unit that has a prediction target."""
    has_target = (part.targets.labels != IGNORE_INDEX).any(axis=1)
    rows = np.flatnonzero(part.units == part.units[np.argmax(has_target)])
    batch = Batch(*(getattr(part.batch, field.name)[rows] for field in fields(Batch)))
    targets = Targets(part.targets.input_ids[rows], part.targets.labels[rows])
    return Part(batch, targets, np.zeros(len(rows), dtype=np.int64))


@contextmanager
def _no_hook_warnings() -> Iterator[None]:
    """Context manager: silence torch's warning that an embedding's input has no gradient."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        yield


# -------------------------------------------------------------------------------------------------------- private step
#
# A private step: DP-SGD, whose cost is reserved before its training starts and settled when it ends.
#
# The seed of samples, masks and noise is drawn from the system. It exists in two places: in memory, and in the private
# state file of a run that can be resumed, which is deleted when the run ends. Epsilon assumes that the sample is
# secret, so no observer may know the seed.


class PrivateStep:
    """The `~reticent.trainer.steps.Step` of DP-SGD. Its targets are privacy units; an epoch is 1 /
    sample rate steps."""

    #: A step of noise alone is taken too. Otherwise an empty sample would show, and with it an individual's absence.
    takes_empty = True
    #: Gradients are clipped per unit, before the noise; a second clip would change the sum after the noise.
    max_grad_norm = math.inf

    units: Units
    plan: Plan
    budget: Budget | None
    noisy: NoisyGradient
    #: Secret seed of samples, masks and noise, and the name of the run in the budget file.
    seed: int
    name: str
    network: torch.nn.Module | None = None
    #: Whether this process entered the run in the budget file.
    reserved: bool = False

    def __init__(self, recipe: Recipe, config: TrainConfig, privacy: PrivacyConfig, world: World, device: torch.device):
        self.recipe, self.config, self.privacy, self.world, self.device = recipe, config, privacy, world, device

    @property
    def mask_seed(self) -> int:
        """Secret seed of the random masks. The masks of a window depend on it, the document and the window's position
        only, so that other units do not change them.
        """
        return int(np.random.SeedSequence(self.seed, spawn_key=(0, 4)).generate_state(1, np.uint64)[0] >> 1)

    @property
    def guarantee(self) -> Guarantee:
        """The (epsilon, delta) guarantee of the whole training."""
        return self.plan.guarantee

    def after(self, epoch: int) -> Guarantee:
        """Return the (epsilon, delta) guarantee after the first ``epoch`` epochs."""
        return self.plan.after(epoch * self.plan.steps_per_epoch)

    def cache_key(self) -> dict[str, Any]:
        """Return the settings on which the result of DP-SGD depends. Device type and number of processes are among
        them, as they decide the random numbers."""
        # A state of before draws went by documents would go on with other samples under the same noise, one of other
        # passes with other gradients: in their difference the noise would cancel.
        about = {"device": self.device.type, "processes": self.world.size, "drawn_by": "document"}
        about |= {"passes": 1, "bf16": uses_bf16(self.config.bf16, self.device)}
        return {**self.privacy.cache_key(), **about}

    def prepare(self, model: PreTrainedModel, windows: Windows, kept: dict[str, str]) -> None:
        """Find the privacy units, plan the noise, hook the model, and reserve the whole privacy cost of the training in
        the budget. ``kept`` is the saved state of an interrupted training, from which it goes on, or an empty dict to
        be filled.

        Parameters
        ----------
        kept : dict
            Seed, name and noise of this run from the saved state; filled if it is empty.

        Raises
        ------
        ArtifactError
            A resumed run would continue with another noise multiplier.
        PolicyError
            Opacus is missing, a setting is incompatible with DP-SGD, or the privacy budget does not allow the run.
        """
        config, privacy, world = self.config, self.privacy, self.world
        refuse_conflicts((config, privacy))
        self.units = find_units(windows, privacy.unit, privacy.max_documents)
        batch_size = config.batch_size * config.gradient_accumulation_steps * world.size
        unaccounted = unaccounted_steps(self.recipe)
        self.plan = plan_privacy(privacy, len(self.units), config.num_epochs, batch_size, unaccounted)
        self._name_and_seed(kept)
        self.budget = budget_of(privacy)
        self.noisy = NoisyGradient(
            model,
            "clm" if self.recipe.is_causal else "mlm",
            privacy,
            self.plan,
            self.device,
            seed=self.seed,
            rank=world.rank,
            num_ranks=world.size,
            autocast=partial(autocast, config.bf16, self.device),
            num_labels=model.config.num_labels if self.recipe.head else None,
        )
        try:
            self.noisy.check_clipping(windows)
            self._reserve()  # last, after all other reasons to refuse the run
        except BaseException:
            self.noisy.close()
            raise
        world.barrier()  # no process trains before the cost is reserved

    def wrap(self, optimizer: torch.optim.Optimizer) -> None:
        """Wrap the optimizer with Opacus' one, which clips and adds noise."""
        self.noisy.wrap(optimizer)

    def plan_epoch(self, windows: Windows, make: MakeTargets, state: State) -> EpochPlan:
        """Return the number of steps of an epoch, and an iterator over their batches. Each step has a Poisson sample,
        determined by the secret seed and the step's number.
        """
        self.units = find_units(windows, self.privacy.unit, self.privacy.max_documents)
        size = self.plan.steps_per_epoch
        before = (state.epoch - 1) * size
        data = self.noisy.iter_steps(windows, self.units, make, first=before + state.done, last=before + size)
        return EpochPlan(size, self.plan.num_steps, data)

    def backward(self, data: PhysicalBatches, num_targets: float, step: int) -> list[torch.Tensor]:
        """Store in ``.grad`` the clipped, noisy sum of the units' gradients, divided by the expected number of units.
        Return the loss of each batch.
        """
        return self.noisy.add_gradients(data, step)

    def finish(self, num_steps: int) -> dict[str, Any]:
        """Remove the hooks and settle the reserved budget entry; return the privacy cost and the number of steps."""
        self.noisy.close()
        if self.budget is not None and self.world.is_main:
            self.budget.settle(self.name, self.plan.guarantee)
        return {"privacy": {**self.plan.to_dict(), "steps": num_steps}}

    def give_up(self) -> None:
        """Remove the hooks, and release the reserved budget entry if no noise was drawn yet."""
        self.noisy.close()
        if self.reserved and not self.noisy.drew:
            assert self.budget is not None
            self.budget.release(self.name)

    def _reserve(self) -> None:
        """Reserve the training's privacy cost in the budget, in the main process."""
        if self.budget is None or not self.world.is_main:
            return
        about = {key: value for key, value in self.plan.to_dict().items() if key not in ("guarantee", "noise")}
        about["recipe"] = self.recipe.name
        if self.privacy.includes is not None:
            about["includes"] = list(self.privacy.includes)
        self.reserved = self.budget.reserve(self.name, self.plan.guarantee, self.plan.num_units, about)

    def _name_and_seed(self, saved: dict[str, str]) -> None:
        """Set the secret seed and the run's name in the budget: from the ``saved`` state, or new and the same in all
        processes.
        """
        if not saved:
            seed = self.privacy.seed if self.privacy.seed is not None else secrets.randbits(128)
            # The main process shares them by a sum, in words of 32 bits, because its float64 is exact below 2^53.
            words = [seed >> shift & 0xFFFFFFFF for shift in range(0, 128, 32)] + [secrets.randbits(32)]
            words = [int(word) for word in self.world.sum(*(word if self.world.is_main else 0 for word in words))]
            saved["seed"] = f"{sum(word << 32 * place for place, word in enumerate(words[:4])):032x}"
            saved["run"] = f"{words[4]:08x}"
            saved["noise"] = repr(self.plan.noise_multiplier)
        if saved["noise"] != repr(self.plan.noise_multiplier):
            raise ArtifactError(
                f"this training began with noise {saved['noise']} and would go on with {self.plan.noise_multiplier!r}, "
                "which this version of Opacus finds for its epsilon; go on with the other version, or begin anew"
            )
        self.seed, self.name = int(saved["seed"], 16), saved["run"]
