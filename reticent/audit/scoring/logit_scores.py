"""Logits + true tokens -> the six numbers of each token in `TokenScores`: the cost of a scoring pass beside the model.

On a CPU a Numba kernel keeps a row of logits in the cache from the first pass over it to the last, and takes one
exponential a logit; elsewhere it is torch. Both have the same order of columns
(`token_scores.COLUMNS`) and agree to float32's rounding.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numba
import numpy as np
import torch

__all__ = ["score_logits"]

#: Without the assumptions that there are no NaN and no infinities: these show that a model has diverged.
_jit = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})
#: Below it exp(x) is 0 in float32 and the token takes part in no mean.
_LOWEST = np.float32(-87.0)
_LOG2_E = np.float32(1.0 / math.log(2.0))
#: ln 2 in two parts, the first exact in few bits, so that x - n ln 2 loses none.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(math.log(2.0) - 0.693359375)
#: Taylor's coefficients of exp(z), |z| <= ln 2 / 2, from z^7 down to z^2: an error under 2e-9.
_EXP = tuple(np.float32(1 / math.factorial(n)) for n in range(7, 1, -1))


def score_logits(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return log p of the true token, entropy, standard deviation of log p, argmax, rank and log p of the argmax; shape
    (N,) each. NaN in log p where a logit of the row is no number.
    """
    fits_float32 = logits_NV.dtype in (torch.float32, torch.bfloat16)
    if logits_NV.device.type == "cpu" and fits_float32 and not logits_NV.requires_grad:
        return _in_numba(logits_NV.float().contiguous(), true_N)
    return _in_torch(logits_NV, true_N)


def _in_torch(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.autocast(logits_NV.device.type, enabled=False):  # it would take the products for those of a model
        return _columns(logits_NV, true_N)


def _columns(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    log_p = torch.log_softmax(logits_NV.float(), dim=-1)
    true_log_p = log_p.gather(1, true_N[:, None])
    top, argmax = log_p.max(-1)
    rank = (log_p > true_log_p).sum(-1).to(torch.int32)
    p = log_p.exp()
    # A token that is ruled out has log p of minus infinity and takes part in no mean.
    log_p.masked_fill_(p == 0, 0.0)
    mean = torch.linalg.vecdot(p, log_p)
    # Around the mean: the difference of two squares loses every digit where the model is unsure.
    variance = torch.linalg.vecdot(p, log_p.sub_(mean[:, None]).square_())
    return true_log_p[:, 0], -mean, variance.sqrt(), argmax.to(torch.int32), rank, top


def _in_numba(logits_NV: torch.Tensor, true_N: torch.Tensor) -> tuple[torch.Tensor, ...]:
    logits, true, num_rows = logits_NV.numpy(), true_N.numpy(), len(true_N)
    reals, integers = np.empty((4, num_rows), np.float32), np.empty((2, num_rows), np.int32)
    num_parts = max(1, min(torch.get_num_threads(), num_rows))
    bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]

    def score(part: int) -> None:
        rows = slice(bounds[part], bounds[part + 1])
        _score_rows(logits[rows], true[rows], reals[:, rows], integers[:, rows])

    if num_parts == 1:
        score(0)
    else:
        list(_pool(num_parts).map(score, range(num_parts)))
    log_p, entropy, std, top = (torch.from_numpy(row) for row in reals)
    argmax, rank = (torch.from_numpy(row) for row in integers)
    return log_p, entropy, std, argmax, rank, top


@cache
def _pool(num_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(num_threads, thread_name_prefix="logits")


# A fork has none of the threads, and would wait for them for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)


@_jit
def _score_rows(logits: np.ndarray, true: np.ndarray, reals: np.ndarray, integers: np.ndarray) -> None:
    """Fill (log p, entropy, std, log p of the argmax) and (argmax, rank) of rows; means are over p around the largest
    logit, so that nothing overflows, and the variance around the mean.
    """
    num_logits = logits.shape[1]
    weights = np.empty(num_logits, np.float32)
    for row in range(len(logits)):
        values, wanted = logits[row], logits[row, true[row]]
        top, rank, broken = values[0], np.int32(0), np.int32(0)
        for at in range(num_logits):
            value = values[at]
            top = value if value > top else top
            rank += np.int32(value > wanted)
            broken += np.int32(value != value)  # NaN
        argmax = np.int32(0)
        while argmax < num_logits - 1 and values[argmax] != top:
            argmax += np.int32(1)
        if broken or not abs(top) < np.inf:
            reals[:, row], integers[0, row], integers[1, row] = np.nan, argmax, rank
            continue
        _exponentials(values, top, weights)
        total, first = np.float32(0), np.float32(0)
        for at in range(num_logits):
            total += weights[at]
            first += weights[at] * max(values[at] - top, _LOWEST)
        mean, second = first / total, np.float32(0)
        for at in range(num_logits):
            second += weights[at] * (max(values[at] - top, _LOWEST) - mean) ** 2
        log_total = np.float32(math.log(total))
        reals[0, row] = wanted - top - log_total
        reals[1, row] = log_total - mean
        reals[2, row] = math.sqrt(second / total)
        reals[3, row] = -log_total
        integers[0, row], integers[1, row] = argmax, rank


@_jit
def _exponentials(values: np.ndarray, top: np.float32, out: np.ndarray) -> None:
    """exp(values - top) as 2^n exp(z): in integers and a polynomial, which the compiler turns into vectors."""
    bits = out.view(np.int32)
    half, one = np.float32(0.5), np.float32(1)
    for at in range(len(values)):
        exponent = np.int32(max(values[at] - top, _LOWEST) * _LOG2_E - half)
        bits[at] = (exponent + np.int32(127)) << np.int32(23)
    for at in range(len(values)):
        x = max(values[at] - top, _LOWEST)
        power = np.float32(np.int32(x * _LOG2_E - half))
        z = x - power * _LN2_HIGH - power * _LN2_LOW
        series = _EXP[0]
        series = series * z + _EXP[1]
        series = series * z + _EXP[2]
        series = series * z + _EXP[3]
        series = series * z + _EXP[4]
        series = series * z + _EXP[5]
        out[at] = out[at] * (series * z * z + z + one) if x > _LOWEST else np.float32(0)
