"""vLLM's place for the forms of prompts."""
