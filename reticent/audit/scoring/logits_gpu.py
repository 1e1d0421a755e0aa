"""The six scores of each token from its logits on a GPU, in one pass: each logit is read once, in the model's
precision, and nothing of its size is written.

A program has one row and goes over it in blocks. A block's sum, mean and sum of squares are joined to those before it
as by Chan, Golub and LeVeque (1983), all relative to the largest logit so far, so that exponentials do not overflow and
the variance loses no digits. `reticent.audit.scoring.scores` has the same in plain torch, and for a CPU in Numba.

Shapes: N cells, V the vocabulary.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

BLOCK = 4096


@triton.jit  # type: ignore[untyped-decorator]
def _reduce_rows(logits, true, reals, integers, num_rows, num_logits, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Triton kernel: store for one row of logits log p of the true token, entropy, standard deviation of log p, argmax,
    rank of the true token, and log p of the argmax."""
    row = tl.program_id(0).to(tl.int64)
    values = logits + row * num_logits
    wanted = tl.load(values + tl.load(true + row)).to(tl.float32)
    top = tl.full([], -float("inf"), tl.float32)
    total, mean, square = tl.full([], 0, tl.float32), tl.full([], 0, tl.float32), tl.full([], 0, tl.float32)
    argmax, rank, broken = tl.full([], 0, tl.int32), tl.full([], 0, tl.int32), tl.full([], 0, tl.int32)
    for start in range(0, num_logits, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < num_logits
        x = tl.load(values + columns, mask=inside, other=-float("inf")).to(tl.float32)
        broken += tl.sum((x != x).to(tl.int32))
        rank += tl.sum((x > wanted).to(tl.int32))
        highest = tl.max(x)
        first = tl.min(tl.where((x == highest) & inside, columns, num_logits))
        argmax = tl.where(highest > top, first, argmax)
        peak = tl.maximum(top, highest)
        around = tl.where(peak == -float("inf"), 0.0, peak)
        # As in the other ways, a token with a smaller share of the likeliest's probability takes part in no mean.
        distance = tl.maximum(x - around, -87.0)
        weight = tl.where(distance > -87.0, tl.exp(distance), 0.0)
        here = tl.sum(weight)
        own = tl.sum(weight * distance) / tl.maximum(here, 1e-30)
        before = total * tl.where(top == -float("inf"), 0.0, tl.exp(tl.maximum(top - around, -87.0)))
        moved = tl.where(top == -float("inf"), own, mean + (top - around))
        both = tl.maximum(before + here, 1e-30)
        square = square * (before / tl.maximum(total, 1e-30)) + tl.sum(weight * (distance - own) * (distance - own))
        square += (own - moved) * (own - moved) * before * here / both
        mean = moved + (own - moved) * here / both
        total, top = before + here, peak
    # No number, or an infinite one, shows that the model has diverged.
    is_number = (broken == 0) & (tl.abs(top) < float("inf"))
    none = float("nan")
    tl.store(reals + row, tl.where(is_number, wanted - top - tl.log(total), none))
    tl.store(reals + num_rows + row, tl.where(is_number, tl.log(total) - mean, none))
    tl.store(reals + 2 * num_rows + row, tl.where(is_number, tl.sqrt(square / total), none))
    tl.store(reals + 3 * num_rows + row, tl.where(is_number, -tl.log(total), none))
    tl.store(integers + row, argmax)
    tl.store(integers + num_rows + row, rank)


def reduce_logits(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return six GPU arrays (N,), the statistics of `reticent.audit.scoring.scores.score_logits`, from logits of any
    precision.

    Cost: each logit is read once.
    """
    logits, (num_rows, num_logits) = logits_NV.contiguous(), logits_NV.shape
    reals = torch.empty((4, num_rows), dtype=torch.float32, device=logits.device)
    integers = torch.empty((2, num_rows), dtype=torch.int32, device=logits.device)
    _reduce_rows[(num_rows,)](logits, true_N, reals, integers, num_rows, num_logits, BLOCK=BLOCK, num_warps=8)
    return reals[0], reals[1], reals[2], integers[0], integers[1], reals[3]
