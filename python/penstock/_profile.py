"""Profiles of engines: what their counters counted within a time."""
from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from .errors import EngineError

Metrics = List[Tuple[str, str, str, Any]]  # as of ModelSession.metrics()


class Profiler:
    """The profile of an engine that runs."""

    def __init__(self) -> None:
        self._begun: Optional[Tuple[float, Dict[str, float], str]] = None

    def start(self, prefix: Optional[str], metrics: Metrics) -> None:
        """Begins a profile. prefix: that of its file's name; metrics: the engine's at this time."""
        self._begun = time.monotonic(), _counters(metrics), prefix or f"penstock-profile-{os.getpid()}"

    def stop(self, metrics: Metrics, folder: str) -> str:
        """Writes the profile as JSON into a folder ("": the current one) and returns its path. metrics: the engine's at this time.
        Errors: EngineError, if none was begun."""
        if self._begun is None:
            raise EngineError("stop_profile: start_profile() was not called")
        (start, before, prefix), self._begun = self._begun, None
        report = {name: value - before.get(name, 0.0) for name, value in _counters(metrics).items()}
        report["wall_seconds"] = time.monotonic() - start
        os.makedirs(folder or ".", exist_ok=True)
        path = os.path.join(folder or ".", f"{prefix}-{int(time.time() * 1000)}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        return path


def _counters(metrics: Metrics) -> Dict[str, float]:
    return {name: value for name, kind, _, value in metrics if kind == "counter"}
