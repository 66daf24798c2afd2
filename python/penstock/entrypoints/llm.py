"""LLM, under vLLM's module name."""
from ..llm import LLM

__all__ = ["LLM"]
