"""The classes of LLM.get_metrics(), under vLLM's module name."""
from ...metrics import Counter, Gauge, Histogram, Metric, Vector

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "Vector"]
