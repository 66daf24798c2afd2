"""vLLM's clean-up functions of scripts that open several models in turn."""
from __future__ import annotations

import gc


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """Frees engines without references."""
    gc.collect()


def destroy_model_parallel() -> None:
    """Does nothing: an engine's ranks end with the engine."""


def destroy_distributed_environment() -> None:
    """Does nothing: an engine's ranks end with the engine."""
