"""vLLM's package of its V1 engine."""
