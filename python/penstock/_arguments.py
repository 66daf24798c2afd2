"""A decorator that gives a function the signature of another one, for editors and type checkers."""
from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")


def takes_arguments_of(source: "Callable[P, Any]") -> "Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]":
    """Decorates a method that passes its arguments to `source` with the signature of `source`."""
    def decorate(method: Callable[..., None]) -> Any:
        @functools.wraps(method)
        def taking(self: Any, *arguments: Any, **named: Any) -> None:
            method(self, *arguments, **named)

        given = inspect.signature(getattr(source, "__init__") if isinstance(source, type) else source)
        owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        kept = [parameter for name, parameter in given.parameters.items() if name != "self"]
        taking.__signature__ = given.replace(parameters=[owner, *kept])  # type: ignore[attr-defined]
        return taking
    return decorate
