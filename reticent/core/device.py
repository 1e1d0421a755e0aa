"""The device that models run on, by name; torch is imported only when needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from reticent.core.errors import PolicyError

if TYPE_CHECKING:
    import torch

#: Names of devices that models may run on, with or without a number.
DEVICE = re.compile(r"auto|(cpu|cuda|hip|hpu|maia|mps|mtia|npu|xla|xpu)(:[0-9]+)?")


def check_device(device: str) -> None:
    """Raise `PolicyError` if the text is not a device name; torch is not needed for this."""
    if not DEVICE.fullmatch(device):
        raise _unknown_error(device)


def pick_device(device: str) -> torch.device:
    """Return the torch device for a name; "auto" is CUDA if available, else the CPU. A GPU includes its number.

    On CUDA this process then takes the factors of float32 products to 10 bits (TF32) and adds them up in float32;
    `full_float32` is the exception.

    Raises
    ------
    PolicyError
        It is no name of a device, or of one that this machine and this build of torch do not have.
    """
    check_device(device)
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.empty(1, device=torch.device(device)).device
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises nothing narrower
        raise _unknown_error(device) from None
    if found.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return found


@contextmanager
def full_float32() -> Iterator[None]:
    """Disable TF32 within the ``with`` block, so that CUDA multiplies float32 matrices at full precision."""
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _unknown_error(device: str) -> PolicyError:
    """Return the error that a device does not exist on this machine."""
    return PolicyError(
        f"device {device!r}: not on this machine, or not in this build of torch; auto takes what is there"
    )


def uses_bf16(bf16: str, device: torch.device) -> bool:
    """Whether the setting ``bf16`` ("auto", "on" or "off") turns bfloat16 on for a device; "auto" does so on a GPU that
    supports it."""
    if bf16 != "auto" or device.type != "cuda":
        return bf16 == "on"
    import torch

    return torch.cuda.is_bf16_supported(including_emulation=False)


def autocast(bf16: str, device: torch.device) -> AbstractContextManager[Any]:
    """Return a new autocast context for forward passes, in bfloat16 if `uses_bf16` says so."""
    if not uses_bf16(bf16, device):
        return nullcontext()
    import torch

    return torch.autocast(device.type, dtype=torch.bfloat16)
