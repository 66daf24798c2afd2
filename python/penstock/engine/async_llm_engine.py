"""vLLM's place for the asynchronous engine."""
from ..async_llm import AsyncLLMEngine

__all__ = ["AsyncLLMEngine"]
