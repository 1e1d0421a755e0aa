"""Gradient norms of many units (individuals or documents) at once, from a layer's input and the gradient of its output.

The gradient of a unit is a sum of products over its token positions, so its squared norm follows from inner products of
these positions ("ghost" norms [@li2022]); where that costs more, the gradients themselves are made, few at a time.
DP-SGD clips by these norms, and the audit measures them of documents.

Every function returns squared norms, float, shape (U,), which rounding may leave below 0. Padding positions of a unit
have zero output gradients.

Shapes: U units, L positions of the longest unit, K the same of an embedding that is a linear layer too, I inputs and O
outputs of a layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

#: Number of intermediate values in memory, by device.
MOST_NUMBERS = {"cuda": 1 << 27, "cpu": 1 << 23}


def linear_squares(read_ULI: torch.Tensor, back_ULO: torch.Tensor) -> torch.Tensor:
    """Return for each unit (individual or document) the squared norm of the gradient of a linear layer's weight, (U,),
    from the layer's inputs and output gradients."""
    (length, num_in), num_out = read_ULI.shape[1:], back_ULO.shape[-1]
    by_places = length * (num_in + num_out) < num_in * num_out
    most = _num_units_at_once(read_ULI, 2 * length * length if by_places else num_in * num_out)
    return torch.cat(
        [
            ((read @ read.mT).mul_(back @ back.mT) if by_places else (read.mT @ back).square_()).sum((1, 2))
            for read, back in zip(read_ULI.split(most), back_ULO.split(most), strict=True)
        ]
    )


def row_squares(ids_UL: torch.Tensor, back_ULO: torch.Tensor) -> torch.Tensor:
    """Return for each unit (individual or document) the squared norm of an embedding's gradient, (U,), from token ids
    and output gradients; positions with the same id share a row.
    """
    order = ids_UL.argsort(dim=1)
    ordered = ids_UL.gather(1, order)
    slots = F.pad((ordered[:, 1:] != ordered[:, :-1]).cumsum(dim=1), (1, 0))[:, : ids_UL.shape[1]]  # one an id
    rows = torch.zeros_like(back_ULO)
    rows.scatter_add_(1, slots[..., None].expand_as(rows), back_ULO.gather(1, order[..., None].expand_as(rows)))
    return rows.square_().sum((1, 2))


def tied_products(
    ids_UK: torch.Tensor, back_UKI: torch.Tensor, read_ULI: torch.Tensor, back_ULO: torch.Tensor
) -> torch.Tensor:
    """Return for each unit (individual or document) the inner product of the two gradients that a tied matrix has, as
    an embedding and as a linear layer; twice this plus the squares of both is the squared norm of their sum."""
    most = _num_units_at_once(back_ULO, 2 * ids_UK.shape[1] * back_ULO.shape[1])
    return torch.cat(
        [
            (read @ embedded.mT).mul_(back.gather(2, ids[:, None].expand(-1, back.shape[1], -1))).sum((1, 2))
            for ids, embedded, read, back in zip(
                *(values.split(most) for values in (ids_UK, back_UKI, read_ULI, back_ULO)), strict=True
            )
        ]
    )


def _num_units_at_once(values: torch.Tensor, numbers: int) -> int:
    """Return how many units (individuals or documents) fit into memory at once, if each needs ``numbers`` intermediate
    values.
    """
    return max(1, MOST_NUMBERS["cuda" if values.is_cuda else "cpu"] // max(1, numbers))
