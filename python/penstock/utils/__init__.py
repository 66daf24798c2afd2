"""vLLM's helpers that its example scripts import."""
from __future__ import annotations

import random
import uuid

from .argparse_utils import FlexibleArgumentParser
from .network_utils import get_ip, get_open_port


def random_uuid() -> str:
    """Returns a unique name."""
    return uuid.uuid4().hex


def set_random_seed(seed: int) -> None:
    """Seeds Python's random module; requests have their own seeds."""
    random.seed(seed)


def cdiv(a: int, b: int) -> int:
    """Returns a / b, rounded up."""
    return -(-a // b)


__all__ = ["FlexibleArgumentParser", "cdiv", "get_ip", "get_open_port", "random_uuid", "set_random_seed"]
