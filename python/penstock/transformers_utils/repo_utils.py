"""vLLM's access to the hub."""
from __future__ import annotations

from typing import Any


def hf_api() -> Any:
    """Returns a huggingface_hub.HfApi. Errors: ModuleNotFoundError, where that package is not installed."""
    import huggingface_hub

    return huggingface_hub.HfApi()


__all__ = ["hf_api"]
