"""The asynchronous engine, under vLLM's module name."""
from ..async_llm import AsyncLLMEngine

__all__ = ["AsyncLLMEngine"]
