"""vLLM's package of the forms of prompts."""
