"""vLLM's package of engine arguments and the asynchronous engine."""
