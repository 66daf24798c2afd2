"""vLLM's place for an engine's arguments."""
from ..engine_args import AsyncEngineArgs, EngineArgs

__all__ = ["AsyncEngineArgs", "EngineArgs"]
