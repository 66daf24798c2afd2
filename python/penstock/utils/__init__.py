"""vLLM's place for helpers that its example scripts import."""
from .argparse_utils import FlexibleArgumentParser

__all__ = ["FlexibleArgumentParser"]
