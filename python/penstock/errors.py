"""The package's own exceptions."""


class EngineError(RuntimeError):
    """The engine cannot serve a call: it is closed or asleep, belongs to another process, or has failed."""
