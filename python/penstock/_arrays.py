"""Arrays that scripts for vLLM, which have torch's tensors there, can go on with."""
from __future__ import annotations

from typing import Any, Optional

import numpy


class Rows(numpy.ndarray):
    """An array of numpy; the methods that torch has too take its `dim` as well."""

    def float(self) -> "Rows":
        """As numbers of 32 bits, which they are."""
        return self

    def cpu(self) -> "Rows":
        """In the memory of the processor, where it is."""
        return self

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The same numbers as a plain array."""
        return self.view(numpy.ndarray)

    def argmax(self, axis: Optional[int] = None, *rest: Any, dim: Optional[int] = None, **more: Any) -> Any:  # type: ignore[override]
        """As numpy's; dim is axis."""
        return super().argmax(axis if dim is None else dim, *rest, **more)

    def sum(self, axis: Any = None, *rest: Any, dim: Any = None, **more: Any) -> Any:
        """As numpy's; dim is axis."""
        return super().sum(axis if dim is None else dim, *rest, **more)

    def mean(self, axis: Any = None, *rest: Any, dim: Any = None, **more: Any) -> Any:
        """As numpy's; dim is axis."""
        return super().mean(axis if dim is None else dim, *rest, **more)


def rows(data: Any) -> Rows:
    """The same numbers, without a copy."""
    return numpy.asarray(data).view(Rows)
