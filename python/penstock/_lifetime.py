"""What is open when the interpreter ends is closed before it does: engine threads do not outlive it."""
from __future__ import annotations

import atexit
import weakref
from typing import Any

from . import _core

_open: "weakref.WeakSet[Any]" = weakref.WeakSet()


def closes_at_exit(engine: Any) -> None:
    """`engine` has a method close()."""
    _open.add(engine)


@atexit.register
def _close_all() -> None:
    for engine in list(_open):
        engine.close()
    _core.end_of_interpreter(5.0)
