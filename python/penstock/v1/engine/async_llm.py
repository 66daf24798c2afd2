"""vLLM's place for the asynchronous engine."""
from ...async_llm import AsyncLLM

__all__ = ["AsyncLLM"]
