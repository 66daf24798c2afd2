"""The cache of open LoRA adapters, by lora_int_id."""
from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Optional, Protocol, Set, Tuple

from . import _core
from .lora.request import LoRARequest


_Files = Tuple[Tuple[str, int, int], ...]


def _files(folder: str) -> _Files:
    """Returns the names, times and sizes of a folder's files; of a file and of a missing folder nothing."""
    if not os.path.isdir(folder):
        return ()
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries]
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))


class Opens(Protocol):
    """The protocol of models that can open adapters."""

    def open_adapter(self, path: str) -> _core.OpenedAdapter:
        """Opens the adapter in the folder `path`."""
        ...


class Adapters:
    """The open adapters of a model; each stays open until remove(). Thread-safe."""

    def __init__(self, session: Opens, enabled: bool) -> None:
        self._session = session
        self._enabled = enabled
        self._open: Dict[int, Tuple[str, _Files, _core.OpenedAdapter]] = {}  # with the path and files that were opened
        self._lock = threading.Lock()

    def get(self, request: Optional[LoRARequest]) -> Optional[_core.OpenedAdapter]:
        """Returns the adapter of a request and opens it if necessary. Errors: ValueError (adapters are not enabled, the adapter
        belongs to another model, or its number to another adapter), FileNotFoundError."""
        if request is None:
            return None
        if not isinstance(request, LoRARequest):
            raise TypeError(f"lora_request: expected a LoRARequest, got {type(request).__name__}")
        if not self._enabled:
            raise ValueError("lora_request: adapters are not enabled: open the model with enable_lora=True")
        with self._lock:
            known = self._open.get(request.lora_int_id)
            files = _files(request.lora_path) if request.load_inplace else ()
            if known is not None and not (request.load_inplace and known[:2] != (request.lora_path, files)):
                if known[0] != request.lora_path:
                    raise ValueError(f"lora_request: lora_int_id {request.lora_int_id} is that of {known[0]}, "
                                     f"not of {request.lora_path}")
                return known[2]
            opened = self._session.open_adapter(os.fspath(request.lora_path))
            self._open[request.lora_int_id] = request.lora_path, files, opened
            return opened

    def for_each(self, requests: Any, n: int) -> List[Optional[LoRARequest]]:
        """Returns the LoRA request of each of n prompts and opens their adapters. requests: one for all prompts, or a list."""
        each = list(requests) if isinstance(requests, (list, tuple)) else [requests] * n
        if len(each) != n:
            raise ValueError(f"lora_request: expected one or {n}, as many as prompts, got {len(each)}")
        for request in each:
            self.get(request)
        return each

    def remove(self, number: int) -> bool:
        """Removes an adapter and returns whether it was open. Running requests keep it."""
        with self._lock:
            return self._open.pop(number, None) is not None

    def numbers(self) -> Set[int]:
        """Returns the numbers of the open adapters."""
        with self._lock:
            return set(self._open)
