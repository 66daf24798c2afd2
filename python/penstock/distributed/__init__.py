"""vLLM's module for distributed processes. Here only memory needs to be cleaned up."""
from .parallel_state import cleanup_dist_env_and_memory, destroy_distributed_environment, destroy_model_parallel

__all__ = ["cleanup_dist_env_and_memory", "destroy_distributed_environment", "destroy_model_parallel"]
