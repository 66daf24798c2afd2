"""The engine arguments, under vLLM's module name."""
from ..engine_args import AsyncEngineArgs, EngineArgs

__all__ = ["AsyncEngineArgs", "EngineArgs"]
