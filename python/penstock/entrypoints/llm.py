"""vLLM's place for LLM."""
from ..llm import LLM

__all__ = ["LLM"]
