"""vLLM's place for what it reports of its use. Nothing is reported here."""
