"""vLLM's module for distributed processes. An engine's own ranks need none of it."""
from .parallel_state import (cleanup_dist_env_and_memory, destroy_distributed_environment, destroy_model_parallel,
                             get_world_group)

__all__ = ["cleanup_dist_env_and_memory", "destroy_distributed_environment", "destroy_model_parallel", "get_world_group"]
