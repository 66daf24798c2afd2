"""vLLM's place for arguments and the asynchronous engine."""
