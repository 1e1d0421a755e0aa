"""The processes of one training, as started by torchrun and described by RANK, WORLD_SIZE and LOCAL_RANK.

Counts are summed on the CPU over gloo, so a sum never waits for the GPU. Gradients use NCCL on CUDA. A program that is
started alone is a world of one process and starts no communication.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from reticent.core.device import pick_device

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

#: The main process may detect, index and tokenise for hours while the others wait; torchrun ends them if it fails.
PATIENCE = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class World:
    """The rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes the results."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over all processes, in float64: counts below 2^53 are exact. Waits for every
        process."""
        if self.size == 1:
            return list(values)
        import torch

        totals = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(totals)
        return totals.tolist()

    def broadcast_from_main(self, value: bool) -> bool:
        """Return the main process's value in every process. Waits for every process."""
        return bool(self.sum(value and self.is_main)[0])

    def barrier(self) -> None:
        """Wait until every process has reached this call."""
        self.sum(0)

    def device(self, name: str) -> torch.device:
        """Return the device of this process; "auto" and "cuda" mean the GPU with its local rank."""
        import torch

        if self.size > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
            name = f"cuda:{self.local_rank}"
        device = pick_device(name)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        return device


def shard(network: torch.nn.Module, model: PreTrainedModel, world: World, device: torch.device) -> None:
    """Shard a model's weights over all processes (FSDP): each layer separately, the rest with tied embeddings together.
    ``network`` is the module that runs ``model``."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    depth = getattr(model.config, "num_hidden_layers", None)
    stacks = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == depth]
    for layer in itertools.chain(*stacks):
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)


def whole(value: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a sharded one (every process must call it); a tensor that is not sharded is returned
    unchanged."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def like(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``value``, a full tensor, on the device of ``weight``, and distributed over the processes as ``weight``
    is, if that is sharded and the shapes agree."""
    moved = value.to(weight.device)
    if not hasattr(weight, "full_tensor") or value.shape != weight.shape:
        return moved
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(moved, weight.device_mesh, weight.placements)  # type: ignore[attr-defined]


def whole_state(model: torch.nn.Module, world: World) -> dict[str, torch.Tensor] | None:
    """Return the state dict of a sharded model with full weights, on the host of the first process; None in the others,
    and for a model that is not sharded. Every process must call it."""
    if not any(hasattr(weight, "full_tensor") for weight in model.parameters()):
        return None
    weights = {}
    for weight in model.parameters():
        value = whole(weight.detach())
        if world.is_main:
            weights[id(weight)] = value.cpu()
    if not world.is_main:
        return None
    of_names = {name: weights[id(weight)] for name, weight in model.named_parameters(remove_duplicate=False)}
    return {**model.state_dict(), **of_names}


def launched() -> World:
    """Return the `World` (rank and number of processes of a training) that the launcher's environment variables
    describe, without joining its process group.
    """
    rank, size, local = (int(os.environ.get(name, default)) for name, default in _VARIABLES)
    return World(rank, size, local) if size > 1 else World()


_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))


def join_world() -> World:
    """Join the process group of a distributed training, once, and return its `World`; a program that was started alone
    joins nothing.
    """
    world = launched()
    if world.size > 1:
        import torch

        if not torch.distributed.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            if torch.cuda.is_available():
                torch.cuda.set_device(world.local_rank % torch.cuda.device_count())
            torch.distributed.init_process_group(backend, timeout=PATIENCE)
    return world


def leave_world() -> None:
    """Leave the process group."""
    if launched().size > 1:
        import torch

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
