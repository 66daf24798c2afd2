"""What an engine has counted, as objects: vLLM's metrics reader."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence


@dataclass
class Metric:
    """A name and its labels."""

    name: str
    labels: Dict[str, str] = field(default_factory=dict)
    help: str = ""


@dataclass
class Counter(Metric):
    """A number that only grows."""

    value: float = 0


@dataclass
class Gauge(Metric):
    """A number as it is now."""

    value: float = 0.0


@dataclass
class Vector(Metric):
    """Counters by their place in a sequence."""

    values: List[float] = field(default_factory=list)


@dataclass
class Histogram(Metric):
    """Observations: `buckets` says how many were at most each bound."""

    count: int = 0
    sum: float = 0.0
    buckets: Dict[str, int] = field(default_factory=dict)


def snapshot(rows: Sequence[Any], model_name: str) -> List[Metric]:
    """The engine's rows (name, kind, help, value) as objects, with vLLM's prefix of names."""
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
