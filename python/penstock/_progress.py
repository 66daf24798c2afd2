"""Progress bars on a terminal: tqdm's if it is installed, else a simple line."""
from __future__ import annotations

import sys
import time
from typing import Any, Callable, Union


class _Line:
    """A progress line on stderr, redrawn at most ten times a second; silent if stderr is no terminal."""

    def __init__(self, total: int, desc: str) -> None:
        self._total, self._desc, self._done = total, desc, 0
        self._start = time.monotonic()
        self._last = 0.0
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def update(self, n: int = 1) -> None:
        """Adds n finished items."""
        self._done += n
        now = time.monotonic()
        if self._shown and (now - self._last > 0.1 or self._done == self._total):
            self._last = now
            rate = self._done / max(now - self._start, 1e-9)
            sys.stderr.write(f"\r{self._desc}: {self._done}/{self._total} ({rate:.1f}/s)")
            sys.stderr.flush()

    def close(self) -> None:
        """Ends the line."""
        if self._shown and self._done:
            sys.stderr.write("\n")


class _Nothing:
    def update(self, n: int = 1) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


def progress(use_tqdm: Union[bool, Callable[..., Any]], total: int, desc: str) -> Any:
    """Returns a progress bar with update(n) and close(). use_tqdm: False: none; a class with tqdm's interface is used instead of
    tqdm."""
    if not use_tqdm:
        return _Nothing()
    if callable(use_tqdm):
        return use_tqdm(total=total, desc=desc, dynamic_ncols=True)
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(total, desc)
    return tqdm(total=total, desc=desc, dynamic_ncols=True)
