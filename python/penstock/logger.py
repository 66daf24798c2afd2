"""Loggers of scripts."""
from __future__ import annotations

import logging
from typing import Any, Set, Tuple

_said: Set[Tuple[str, int, str]] = set()


class Logger(logging.Logger):
    """A logger that can say things once."""

    def _once(self, level: int, message: str, *arguments: Any) -> None:
        text = message % arguments if arguments else message
        if (self.name, level, text) not in _said:
            _said.add((self.name, level, text))
            self.log(level, "%s", text)

    def debug_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """debug(), the first time."""
        self._once(logging.DEBUG, message, *arguments)

    def info_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """info(), the first time."""
        self._once(logging.INFO, message, *arguments)

    def warning_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """warning(), the first time."""
        self._once(logging.WARNING, message, *arguments)


def init_logger(name: str) -> Logger:
    """The logger of this name, which hands on to the root's handlers."""
    if name not in _loggers:
        logger = Logger(name)
        logger.parent = logging.getLogger()
        _loggers[name] = logger
    return _loggers[name]


_loggers: "dict[str, Logger]" = {}
