"""vLLM's package of usage reports. Penstock reports nothing."""
