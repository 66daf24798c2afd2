"""vLLM's functions of scripts that open several models in turn, or run in the processes of a launcher."""
from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from typing import Any


@dataclass
class GroupCoordinator:
    """The processes of a launcher.

    Attributes:
        rank, world_size: number of this process, and of all.
        cpu_group, device_group: torch's process group; None where the script has not imported torch.distributed.
    """

    rank: int
    world_size: int
    cpu_group: Any = None

    @property
    def device_group(self) -> Any:
        """The same as cpu_group: the engine uses no group of a device."""
        return self.cpu_group


def join_processes() -> None:
    """Makes torch's default process group in a process of torchrun, where the script has imported torch.distributed: scripts ask it
    for their rank once an engine is open."""
    torch = sys.modules.get("torch.distributed")
    if torch is not None and "MASTER_ADDR" in os.environ and torch.is_available() and not torch.is_initialized():
        torch.init_process_group("gloo")


def get_world_group() -> GroupCoordinator:
    """Returns the processes of the launcher; without one this process alone."""
    torch = sys.modules.get("torch.distributed")
    group = torch.group.WORLD if torch is not None and torch.is_available() and torch.is_initialized() else None
    return GroupCoordinator(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)), group)


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Frees engines without references."""
    gc.collect()


def destroy_model_parallel() -> None:
    """Does nothing: an engine's ranks end with the engine."""


def destroy_distributed_environment() -> None:
    """Does nothing: an engine's ranks end with the engine."""
