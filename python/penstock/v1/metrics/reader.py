"""vLLM's place for the classes of LLM.get_metrics()."""
from ...metrics import Counter, Gauge, Histogram, Metric, Vector

__all__ = ["Counter", "Gauge", "Histogram", "Metric", "Vector"]
