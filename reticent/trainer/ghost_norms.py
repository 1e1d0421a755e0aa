"""Norms of the gradients of many units at once, from what a layer read and what came back to it.

The gradient of a unit is a sum of products over its places, so its squared norm follows from the products of these
places with each other ("ghost" norms [@li2022]); it is made itself, of few units at a time, where that is less work.
DP-SGD clips by these norms, and the audit asks them of documents.

Every function returns the squares, float, shape (U,), which rounding may leave below 0. Places that a unit lacks are
zeros in what came back.

Shapes: U units, L places of the longest, K of an embedding that is a linear layer too, I and O numbers that a layer
reads and writes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

#: Numbers of products or gradients that are made at once.
MOST_NUMBERS = {"cuda": 1 << 27, "cpu": 1 << 23}


def linear_squares(read_ULI: torch.Tensor, back_ULO: torch.Tensor) -> torch.Tensor:
    """Return those of the weight of a linear layer."""
    (length, num_in), num_out = read_ULI.shape[1:], back_ULO.shape[-1]
    by_places = length * (num_in + num_out) < num_in * num_out
    most = _at_once(read_ULI, 2 * length * length if by_places else num_in * num_out)
    return torch.cat(
        [
            ((read @ read.mT).mul_(back @ back.mT) if by_places else (read.mT @ back).square_()).sum((1, 2))
            for read, back in zip(read_ULI.split(most), back_ULO.split(most), strict=True)
        ]
    )


def row_squares(ids_UL: torch.Tensor, back_ULO: torch.Tensor) -> torch.Tensor:
    """Return those of the rows of an embedding: places with the same id share a row, and no other row is made."""
    order = ids_UL.argsort(dim=1)
    ordered = ids_UL.gather(1, order)
    slots = F.pad((ordered[:, 1:] != ordered[:, :-1]).cumsum(dim=1), (1, 0))[:, : ids_UL.shape[1]]  # one an id
    rows = torch.zeros_like(back_ULO)
    rows.scatter_add_(1, slots[..., None].expand_as(rows), back_ULO.gather(1, order[..., None].expand_as(rows)))
    return rows.square_().sum((1, 2))


def tied_products(
    ids_UK: torch.Tensor, back_UKI: torch.Tensor, read_ULI: torch.Tensor, back_ULO: torch.Tensor
) -> torch.Tensor:
    """Return the products of the gradients that one matrix has as an embedding and as a linear layer: of the latter
    only the rows count that the former has. The squares of the sum of both are theirs and twice this.
    """
    most = _at_once(back_ULO, 2 * ids_UK.shape[1] * back_ULO.shape[1])
    return torch.cat(
        [
            (read @ embedded.mT).mul_(back.gather(2, ids[:, None].expand(-1, back.shape[1], -1))).sum((1, 2))
            for ids, embedded, read, back in zip(
                *(values.split(most) for values in (ids_UK, back_UKI, read_ULI, back_ULO)), strict=True
            )
        ]
    )


def _at_once(values: torch.Tensor, numbers: int) -> int:
    return max(1, MOST_NUMBERS["cuda" if values.is_cuda else "cpu"] // max(1, numbers))
