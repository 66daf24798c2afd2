"""numpy arrays with the methods of torch tensors that scripts for vLLM use."""
from __future__ import annotations

from typing import Any, Optional

import numpy


class Rows(numpy.ndarray):
    """A numpy array with some methods of torch.Tensor; reductions accept torch's `dim`."""

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
        """Lets torch's functions take these arrays as tensors."""
        import torch

        def tensor(value: Any) -> Any:
            if type(value) in (list, tuple):
                return type(value)(map(tensor, value))
            return torch.from_numpy(value.view(numpy.ndarray)) if isinstance(value, cls) else value
        return function(*map(tensor, arguments), **{name: tensor(value) for name, value in (named or {}).items()})

    def float(self) -> "Rows":
        """Returns self: values are float32 already."""
        return self

    def cpu(self) -> "Rows":
        """Returns self: arrays are in CPU memory."""
        return self

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """Returns a view as a plain numpy array."""
        return self.view(numpy.ndarray)

    def argmax(self, axis: Optional[int] = None, *rest: Any, dim: Optional[int] = None, **more: Any) -> Any:  # type: ignore[override]
        """As numpy's method; `dim` is an alias of `axis`."""
        return super().argmax(axis if dim is None else dim, *rest, **more)

    def sum(self, axis: Any = None, *rest: Any, dim: Any = None, **more: Any) -> Any:
        """As numpy's method; `dim` is an alias of `axis`."""
        return super().sum(axis if dim is None else dim, *rest, **more)

    def mean(self, axis: Any = None, *rest: Any, dim: Any = None, **more: Any) -> Any:
        """As numpy's method; `dim` is an alias of `axis`."""
        return super().mean(axis if dim is None else dim, *rest, **more)


def rows(data: Any) -> Rows:
    """Returns `data` as Rows, without a copy if possible."""
    return numpy.asarray(data).view(Rows)
