"""vLLM's package of entry points."""
