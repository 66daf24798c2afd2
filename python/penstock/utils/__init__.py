"""vLLM's place for helpers that its example scripts import."""
from __future__ import annotations

import random
import uuid

from .argparse_utils import FlexibleArgumentParser
from .network_utils import get_ip, get_open_port


def random_uuid() -> str:
    """A name that nothing else has."""
    return uuid.uuid4().hex


def set_random_seed(seed: int) -> None:
    """Seeds Python's random numbers; requests have seeds of their own."""
    random.seed(seed)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


__all__ = ["FlexibleArgumentParser", "cdiv", "get_ip", "get_open_port", "random_uuid", "set_random_seed"]
