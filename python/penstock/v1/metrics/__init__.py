"""vLLM's place for what was counted."""
