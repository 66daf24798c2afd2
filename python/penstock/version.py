"""The version, under vLLM's module name."""
from ._core import __version__

__version_tuple__ = tuple(int(part) for part in __version__.split("."))

__all__ = ["__version__", "__version_tuple__"]
