"""LLMEngine, under vLLM's module name."""
from ...engine.llm_engine import LLMEngine

__all__ = ["LLMEngine"]
