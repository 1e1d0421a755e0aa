"""Six numbers a token from its logits: the kernel and torch against plain float64, and logits at the edges."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fixtures.drawing import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from reticent.audit.scoring import scores as logit_scores

WAYS = {"numba": logit_scores._columns_by_numba, "torch": logit_scores._columns_by_torch}
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:  # the kernel of a GPU, on the CPU: Triton has to be told before it is imported
    from reticent.audit.scoring import logits_gpu

    WAYS["triton"] = logits_gpu.reduce_logits
elif torch.cuda.is_available():
    from reticent.audit.scoring.logits_gpu import reduce_logits

    WAYS["gpu"] = lambda logits, true: tuple(column.cpu() for column in reduce_logits(logits.cuda(), true.cuda()))
INF, NAN = float("inf"), float("nan")


def plainly(logits: np.ndarray, true: np.ndarray) -> list[np.ndarray]:
    """The definition, in float64."""
    logits = logits.astype(np.float64)
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    p = np.exp(log_p)
    terms = np.where(p > 0, log_p, 0.0)
    mean = (p * terms).sum(1, keepdims=True)
    std = np.sqrt((p * (terms - mean) ** 2).sum(1))
    wanted = np.take_along_axis(log_p, true[:, None], 1)
    argmax = logits.argmax(1)
    return [wanted[:, 0], -mean[:, 0], std, argmax, (log_p > wanted).sum(1), log_p.max(1)]


@pytest.mark.parametrize("way", WAYS)
@given(
    rows=st.integers(1, 9),
    vocabulary=st.integers(1, 70),
    scale=st.sampled_from([0.0, 1e-3, 1.0, 8.0, 60.0]),
    shift=st.sampled_from([0.0, -300.0, 300.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(60))
def test_columns_equal_the_definition(
    way: str, rows: int, vocabulary: int, scale: float, shift: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    # Eighths are exact in float32, so that ties are ties.
    logits = (np.round(random.standard_normal((rows, vocabulary)) * scale * 8) / 8 + shift).astype(np.float32)
    true = random.integers(0, vocabulary, rows)
    found = WAYS[way](torch.from_numpy(logits), torch.from_numpy(true))
    for column, (ours, oracle) in enumerate(zip(found, plainly(logits, true), strict=True)):
        assert np.allclose(ours.numpy(), oracle, rtol=2e-6, atol=2e-5), column


@pytest.mark.parametrize("way", WAYS)
def test_a_model_in_bfloat16_takes_no_digits_from_the_columns(way: str) -> None:
    logits = torch.from_numpy(np.random.default_rng(4).standard_normal((7, 300)).astype(np.float32))
    true = torch.arange(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = WAYS[way](logits, true)
    for ours, oracle in zip(found, plainly(logits.numpy(), true.numpy()), strict=True):
        assert np.abs(ours.numpy() - oracle).max() < 2e-5


@pytest.mark.parametrize("way", WAYS)
def test_a_large_vocabulary_loses_no_digits(way: str) -> None:
    logits = torch.from_numpy(np.random.default_rng(3).standard_normal((5, 49_152)).astype(np.float32))
    true = torch.arange(5)
    for ours, oracle in zip(WAYS[way](logits, true), plainly(logits.numpy(), true.numpy()), strict=True):
        assert np.abs(ours.numpy() - oracle).max() < 2e-5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("logits", "true", "log_p", "entropy", "std", "rank"),
    [
        ([0.0, 0.0, 0.0, 0.0], 2, -np.log(4), np.log(4), 0.0, 0),  # unsure: no spread
        ([1000.0, 0.0, 0.0], 0, 0.0, 0.0, 0.0, 0),  # certain
        ([1000.0, 0.0, 0.0], 1, -1000.0, 0.0, 0.0, 1),  # certain, and wrong
        ([0.0, -INF, 0.0], 1, -INF, np.log(2), 0.0, 2),  # ruled out
        ([7.5], 0, 0.0, 0.0, 0.0, 0),  # nothing else to say
    ],
)
def test_edges(
    way: str, logits: list[float], true: int, log_p: float, entropy: float, std: float, rank: int
) -> None:  # fmt: skip
    found = [float(column) for column in WAYS[way](torch.tensor([logits]), torch.tensor([true]))]
    assert found[:3] == pytest.approx([log_p, entropy, std], abs=1e-6)
    assert found[4] == rank


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("logits", [[NAN, 0.0, 0.0], [0.0, 0.0, NAN], [0.0, INF, 0.0], [-INF, -INF, -INF]])
def test_logits_that_are_no_numbers_show_in_the_score(way: str, logits: list[float]) -> None:
    log_p, *_ = WAYS[way](torch.tensor([[1.0, 2.0, 3.0], logits]), torch.tensor([0, 0]))
    assert torch.isfinite(log_p[0])
    assert torch.isnan(log_p[1])


def test_rows_are_shared_out_to_threads_without_a_difference() -> None:
    logits = torch.randn(101, 37, generator=torch.Generator().manual_seed(0))
    true = torch.arange(101) % 37
    before = torch.get_num_threads()
    found = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        try:
            found.append(logit_scores.score_logits(logits, true))
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_a_fork_has_threads_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    logits, true = torch.ones(8, 5), torch.zeros(8, dtype=torch.int64)
    logit_scores._columns_by_numba(logits, true)  # the threads are there
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        logit_scores._columns_by_numba(logits, true)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_half_precision_goes_through_torch() -> None:
    logits = torch.randn(4, 9).to(torch.bfloat16)
    halves = logit_scores.score_logits(logits, torch.arange(4))
    for one, two in zip(halves, logit_scores.score_logits(logits.float(), torch.arange(4)), strict=True):
        assert torch.allclose(one.float(), two.float(), atol=1e-5)


class Bytes(TorchDispatchMode):
    """Counts the bytes that torch's operations read and write of tensors as large as the logits; views are free."""

    def __init__(self, least: int):
        super().__init__()
        self.least, self.num_bytes = least, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [each for each in tree_leaves((args, kwargs, out)) if isinstance(each, torch.Tensor)]
            self.num_bytes += sum(each.nbytes for each in tensors if each.numel() >= self.least)
        return out


def test_eight_bytes_a_logit_are_moved_with_the_head_and_far_more_by_torch_alone() -> None:
    head, states = torch.nn.Linear(4, 50_000), torch.randn(20, 4)
    for way, most in ((logit_scores.score_logits, 4), (logit_scores._columns_by_torch, 100)):
        with Bytes(20 * 50_000) as moved, torch.inference_mode():
            way(head(states), torch.arange(20))
        assert most / 2 < moved.num_bytes / (20 * 50_000) <= most, way  # and the kernel reads each logit, 4 bytes


def test_the_kernel_of_a_gpu_equals_the_definition_and_reads_each_logit_once() -> None:
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", __file__, "-v", "-k", "triton", "-p", "no:cacheprovider"]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 14


if INTERPRETED:  # the interpreter counts what is loaded

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_triton_reads_each_logit_once_as_it_is(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        from triton.runtime.interpreter import InterpreterBuilder

        load, loaded = InterpreterBuilder.create_masked_load, []

        def counted(self: Any, pointers: Any, mask: Any, *given: Any) -> Any:
            loaded.append(int(mask.data.sum()) * pointers.get_element_ty().primitive_bitwidth // 8)
            return load(self, pointers, mask, *given)

        monkeypatch.setattr(InterpreterBuilder, "create_masked_load", counted)
        logits = torch.randn(3, 50_000, generator=torch.Generator().manual_seed(0)).to(dtype)
        found = logits_gpu.reduce_logits(logits, torch.arange(3))
        assert logits.nbytes <= sum(loaded) < 1.001 * logits.nbytes
        for ours, oracle in zip(found, plainly(logits.float().numpy(), np.arange(3)), strict=True):
            assert np.abs(ours.numpy() - oracle).max() < 1e-5


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")
@pytest.mark.parametrize("logits", ["*fp32", "*bf16"])
def test_the_kernel_of_a_gpu_compiles_without_one(logits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from reticent.audit.scoring.logits_gpu import BLOCK, _reduce_rows

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    given = {"logits": logits, "true": "*i64", "reals": "*fp32", "integers": "*i32", "num_rows": "i32"}
    source = ASTSource(_reduce_rows, {**given, "num_logits": "i32", "BLOCK": "constexpr"}, constexprs={"BLOCK": BLOCK})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    assert made.asm["cubin"]
    assert ".local" not in made.asm["ptx"], "a block of a row stays in registers"
