"""The asynchronous engine, under vLLM's module name."""
from ...async_llm import AsyncLLM

__all__ = ["AsyncLLM"]
