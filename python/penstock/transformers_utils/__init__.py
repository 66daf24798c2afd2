"""Modules under vLLM's names."""
