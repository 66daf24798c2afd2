"""vLLM's names of what goes wrong in an engine."""
from ...errors import EngineError

EngineDeadError = EngineGenerateError = EngineError

__all__ = ["EngineDeadError", "EngineGenerateError"]
