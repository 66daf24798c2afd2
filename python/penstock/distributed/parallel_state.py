"""The ends of scripts that open one model after the other."""
from __future__ import annotations

import gc


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Frees engines that nobody has any more."""
    gc.collect()


def destroy_model_parallel() -> None:
    """Nothing: an engine's ranks end with it."""


def destroy_distributed_environment() -> None:
    """Nothing: an engine's ranks end with it."""
