"""The device that models run on, by name; torch is imported when one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reticent.errors import PolicyError

if TYPE_CHECKING:
    import torch

__all__ = ["pick_device", "uses_bf16"]


def pick_device(device: str) -> torch.device:
    """Return the device meant by a name; "auto" is CUDA where there is one, else the CPU.

    Raises
    ------
    PolicyError
        It is no name of a device, or of one that this machine and this build of torch do not have.
    """
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError):  # torch raises nothing narrower
        raise PolicyError(
            f"device {device!r}: not on this machine, or not in this build of torch; auto takes what is there"
        ) from None
    return found


def uses_bf16(bf16: str, device: torch.device) -> bool:
    """Whether the setting "auto", "on" or "off" means bfloat16 autocast on a device; "auto" is on for CUDA."""
    return bf16 == "on" or (bf16 == "auto" and device.type == "cuda")
