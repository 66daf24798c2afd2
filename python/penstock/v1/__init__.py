"""vLLM's place for its present engine."""
