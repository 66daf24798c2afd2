"""vLLM's place for sampling."""
