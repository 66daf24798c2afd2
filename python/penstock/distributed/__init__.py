"""vLLM's place for what processes of one model share. Here there is nothing to clean up but memory."""
from .parallel_state import cleanup_dist_env_and_memory, destroy_distributed_environment, destroy_model_parallel

__all__ = ["cleanup_dist_env_and_memory", "destroy_distributed_environment", "destroy_model_parallel"]
