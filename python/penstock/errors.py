"""Exceptions that Python does not have a name for."""


class EngineError(RuntimeError):
    """The engine cannot go on with a call: it is closed, asleep, of another process, or something inside it failed."""
