"""An engine's metrics as objects, in the form of vLLM's metrics reader."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence


@dataclass
class Metric:
    """The base of metrics: name, labels and help text."""

    name: str
    labels: Dict[str, str] = field(default_factory=dict)
    help: str = ""


@dataclass
class Counter(Metric):
    """A value that only grows."""

    value: float = 0


@dataclass
class Gauge(Metric):
    """A current value."""

    value: float = 0.0


@dataclass
class Vector(Metric):
    """A vector of counters, by position."""

    values: List[float] = field(default_factory=list)


@dataclass
class Histogram(Metric):
    """A histogram. buckets: cumulative number of observations by upper bound."""

    count: int = 0
    sum: float = 0.0
    buckets: Dict[str, int] = field(default_factory=dict)


def snapshot(rows: Sequence[Any], model_name: str) -> List[Metric]:
    """Converts the engine's rows (name, kind, help, value) to metrics with vLLM's prefix "vllm:"."""
    metrics: List[Metric] = []
    for name, kind, text, value in rows:
        labels = {"model_name": model_name, "engine": "0"}
        full = "vllm:" + name
        if kind == "counter":
            metrics.append(Counter(full, labels, text, value))
        elif kind == "gauge":
            metrics.append(Gauge(full, labels, text, value))
        elif kind == "vector":
            metrics.append(Vector(full, labels, text, value))
        else:
            bounds, counts, total, count = value
            buckets: Dict[str, int] = {}
            so_far = 0
            for bound, number in zip([str(bound) for bound in bounds] + ["+Inf"], counts):
                so_far += number
                buckets[bound] = so_far
            metrics.append(Histogram(full, labels, text, count, total, buckets))
    return metrics
