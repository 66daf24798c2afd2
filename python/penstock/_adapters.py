"""LoRA adapters that requests have named, by their numbers."""
from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Protocol, Set, Tuple

from . import _core
from .lora.request import LoRARequest


class Opens(Protocol):
    """A model that takes adapters."""

    def open_adapter(self, path: str) -> _core.OpenedAdapter:
        """The adapter in this folder."""
        ...


class Adapters:
    """What was opened stays until it is removed; any thread."""

    def __init__(self, session: Opens, enabled: bool) -> None:
        self._session = session
        self._enabled = enabled
        self._open: Dict[int, Tuple[LoRARequest, _core.OpenedAdapter]] = {}
        self._lock = threading.Lock()

    def get(self, request: Optional[LoRARequest]) -> Optional[_core.OpenedAdapter]:
        """The adapter, opened if it is new. Errors: ValueError (adapters are not enabled, it is one of another model, its number is
        that of another adapter), FileNotFoundError."""
        if request is None:
            return None
        if not isinstance(request, LoRARequest):
            raise TypeError(f"lora_request: expected a LoRARequest, got {type(request).__name__}")
        if not self._enabled:
            raise ValueError("lora_request: adapters are not enabled: open the model with enable_lora=True")
        with self._lock:
            known = self._open.get(request.lora_int_id)
            if known is not None and not (request.load_inplace and known[0] != request):
                if known[0].lora_path != request.lora_path:
                    raise ValueError(f"lora_request: lora_int_id {request.lora_int_id} is that of {known[0].lora_path}, "
                                     f"not of {request.lora_path}")
                return known[1]
            opened = self._session.open_adapter(os.fspath(request.lora_path))
            self._open[request.lora_int_id] = (request, opened)
            return opened

    def for_each(self, requests: Any, n: int) -> List[Optional[LoRARequest]]:
        """One request for all of n prompts, or a list with one for each; every adapter is open then."""
        each = list(requests) if isinstance(requests, (list, tuple)) else [requests] * n
        if len(each) != n:
            raise ValueError(f"lora_request: expected one or {n}, as many as prompts, got {len(each)}")
        for request in each:
            self.get(request)
        return each

    def remove(self, number: int) -> bool:
        """Whether there was one; requests that have it go on."""
        with self._lock:
            return self._open.pop(number, None) is not None

    def numbers(self) -> Set[int]:
        """Of those that are open."""
        with self._lock:
            return set(self._open)
