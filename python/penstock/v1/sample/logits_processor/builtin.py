"""The helpers of vLLM's own processors, under vLLM's module name."""
from . import process_dict_updates

__all__ = ["process_dict_updates"]
