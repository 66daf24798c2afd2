"""Closes open engines before the interpreter ends, so that their threads do not outlive it."""
from __future__ import annotations

import atexit
import weakref
from typing import Any

from . import _core

_open: "weakref.WeakSet[Any]" = weakref.WeakSet()


def closes_at_exit(engine: Any) -> None:
    """Registers an engine to be closed before the interpreter ends. engine: an object with a method close()."""
    _open.add(engine)


@atexit.register
def _close_all() -> None:
    for engine in list(_open):
        engine.close()
    _core.end_of_interpreter(5.0)
