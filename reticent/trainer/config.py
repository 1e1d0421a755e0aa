"""TrainConfig: the settings of the training loop; names follow transformers' TrainingArguments where one exists."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from reticent.core.errors import PolicyError

__all__ = ["LoraSettings", "TrainConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters, in peft's names.

    Parameters
    ----------
    target_modules : tuple of str, optional
        Names of modules that get an adapter; by default those that peft has for the architecture.
    """

    r: int = 8
    lora_alpha: float = 16.0
    lora_dropout: float = 0.0
    target_modules: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.r < 1 or not 0 < self.lora_alpha < math.inf or not 0 <= self.lora_dropout < 1:
            raise PolicyError("train.lora: r must be at least 1, lora_alpha positive, lora_dropout at least 0, below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """How a recipe is trained.

    Parameters
    ----------
    window_length : int
        Tokens a window holds, special tokens included.
    batch_size : int
        Windows a micro-batch.
    learning_rate : float
        The peak, after ``warmup_steps`` steps in which it rises from 0.
    lr_scheduler_type : {"linear", "constant_with_warmup"}
        After the peak: a linear fall to 0 over the whole training, or none.
    checkpoint_epochs : tuple of int
        Epochs after which a checkpoint is kept; the last epoch always is.
    mask_share : float
        Share of the eligible words that MLM masks.
    bf16 : {"auto", "on", "off"}
        bfloat16 autocast; "auto" is on for CUDA and off elsewhere. It pays on a CPU that multiplies bfloat16 (AMX).
    packing : bool
        Several windows in one row of ``window_length`` tokens, none of which sees another; ``batch_size`` then counts
        rows.
    torch_compile : bool
        Compile the model (dynamic shapes); the first steps take tens of seconds.
    lora : LoraSettings, optional
        Train low-rank adapters instead of all weights.
    save_steps : int
        Steps after which the state is saved that a stopped run goes on from; 0 saves it after each epoch.
    logging_steps : int
        Steps after which one is logged; on CUDA also how often losses are read and checked.
    report_to : tuple of str
        ``"tensorboard"`` beside ``metrics.jsonl``, which is always written.
    """

    num_epochs: int = 8
    checkpoint_epochs: tuple[int, ...] = (4, 8, 16, 32, 64)
    window_length: int = 512
    batch_size: int = 16
    learning_rate: float = 1e-4
    lr_scheduler_type: Literal["linear", "constant_with_warmup"] = "linear"
    warmup_steps: int = 0
    weight_decay: float = 0.01
    mask_share: float = 0.15
    gradient_accumulation_steps: int = 1
    max_grad_norm: float = 1.0
    device: str = "auto"
    bf16: Literal["auto", "on", "off"] = "auto"
    seed: int = 0
    packing: bool = False
    torch_compile: bool = False
    lora: LoraSettings | None = None
    save_steps: int = 0
    logging_steps: int = 10
    report_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("num_epochs", "window_length", "batch_size", "gradient_accumulation_steps", "logging_steps"):
            if getattr(self, name) < 1:
                raise PolicyError(f"train.{name}: expected at least 1, got {getattr(self, name)}")
        for name in ("warmup_steps", "save_steps"):
            if getattr(self, name) < 0:
                raise PolicyError(f"train.{name}: expected at least 0, got {getattr(self, name)}")
        if set(self.report_to) - {"tensorboard"}:
            raise PolicyError(f'train.report_to: expected [] or ["tensorboard"], got {list(self.report_to)}')
        if not 0 < self.mask_share < 1:
            raise PolicyError(f"train.mask_share: expected a share between 0 and 1, got {self.mask_share}")
        if not (0 < self.learning_rate < math.inf and self.max_grad_norm > 0 and 0 <= self.weight_decay < math.inf):
            raise PolicyError(
                "train: learning_rate (finite) and max_grad_norm must be positive, weight_decay finite and not negative"
            )
