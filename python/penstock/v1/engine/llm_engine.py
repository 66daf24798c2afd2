"""vLLM's place for the engine of requests one by one."""
from ...engine.llm_engine import LLMEngine

__all__ = ["LLMEngine"]
