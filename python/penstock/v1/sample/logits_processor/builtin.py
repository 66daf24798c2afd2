"""vLLM's place for what its own processors are made with."""
from . import process_dict_updates

__all__ = ["process_dict_updates"]
