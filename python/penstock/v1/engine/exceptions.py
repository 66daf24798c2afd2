"""vLLM's names of an engine's exceptions."""
from ...errors import EngineError

EngineDeadError = EngineGenerateError = EngineError

__all__ = ["EngineDeadError", "EngineGenerateError"]
