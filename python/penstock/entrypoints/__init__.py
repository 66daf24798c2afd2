"""vLLM's place for what a script begins with."""
