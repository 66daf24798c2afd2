"""vLLM's loggers for scripts."""
from __future__ import annotations

import logging
from typing import Any, Set, Tuple

_said: Set[Tuple[str, int, str]] = set()


class Logger(logging.Logger):
    """A logger that can log messages once."""

    def _once(self, level: int, message: str, *arguments: Any) -> None:
        text = message % arguments if arguments else message
        if (self.name, level, text) not in _said:
            _said.add((self.name, level, text))
            self.log(level, "%s", text)

    def debug_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """debug(), once per message."""
        self._once(logging.DEBUG, message, *arguments)

    def info_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """info(), once per message."""
        self._once(logging.INFO, message, *arguments)

    def warning_once(self, message: str, *arguments: Any, scope: str = "process") -> None:
        """warning(), once per message."""
        self._once(logging.WARNING, message, *arguments)


def init_logger(name: str) -> Logger:
    """Returns the logger of this name, which propagates to the root logger's handlers."""
    if name not in _loggers:
        logger = Logger(name)
        logger.parent = logging.getLogger()
        _loggers[name] = logger
    return _loggers[name]


_loggers: "dict[str, Logger]" = {}
