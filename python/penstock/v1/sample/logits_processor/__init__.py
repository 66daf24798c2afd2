"""Logits processors of an engine in vLLM's form: classes that process batches. LLM(logits_processors=[MyProcessor]).

Each request has a processor of its own, whose batch is one sequence in slot 0.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

# f(output_token_ids, logits) or f(prompt_token_ids, output_token_ids, logits) -> logits, of one sequence.
RequestLogitsProcessor = Callable[..., Any]


class MoveDirectionality(Enum):
    """Whether a sequence moves to another slot, or two sequences swap slots."""

    UNIDIRECTIONAL = 0
    SWAP = 1


# (slot, its SamplingParams, token ids of the prompt, token ids of the output, a list that grows)
AddedRequest = Tuple[int, Any, Optional[List[int]], List[int]]
RemovedRequest = int
MovedRequest = Tuple[int, int, MoveDirectionality]


@dataclass(frozen=True)
class BatchUpdate:
    """How a batch differs from the last step's: slots that became free, then sequences that came, then those that moved."""

    batch_size: int
    removed: Sequence[RemovedRequest]
    added: Sequence[AddedRequest]
    moved: Sequence[MovedRequest]


class LogitsProcessor(ABC):
    """Changes the logits of a batch, [sequences, vocab_size]."""

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for parameters of a request that are not supported."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        """device: the CPU."""

    @abstractmethod
    def apply(self, logits: Any) -> Any:
        """Returns the changed logits: a torch tensor if torch is installed, else a numpy array."""

    @abstractmethod
    def is_argmax_invariant(self) -> bool:
        """Whether apply() never changes the most likely token."""

    @abstractmethod
    def update_state(self, batch_update: Optional[BatchUpdate]) -> None:
        """Called before each apply(). None: the batch is the same as in the last step."""


def process_dict_updates(req_entries: Dict[int, Any], batch_update: Optional[BatchUpdate],
                         new_state: Callable[[Any, Optional[List[int]], List[int]], Any]) -> bool:
    """Updates the states by slot and returns whether any changed. new_state: makes the state of a new sequence; None: it needs
    none."""
    if batch_update is None:
        return False
    changed = False
    for slot in batch_update.removed:
        changed |= req_entries.pop(slot, None) is not None
    for slot, params, prompt, output in batch_update.added:
        changed |= req_entries.pop(slot, None) is not None
        state = new_state(params, prompt, output)
        if state is not None:
            req_entries[slot] = state
            changed = True
    for source, target, direction in batch_update.moved:
        moving, there = req_entries.pop(source, None), req_entries.pop(target, None)
        changed |= moving is not None or there is not None
        if moving is not None:
            req_entries[target] = moving
        if there is not None and direction is MoveDirectionality.SWAP:
            req_entries[source] = there
    return changed


class AdapterLogitsProcessor(LogitsProcessor):
    """A processor of batches that applies functions of single sequences."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self.req_info: Dict[int, Callable[[Any], Any]] = {}

    @abstractmethod
    def new_req_logits_processor(self, params: Any) -> Optional[RequestLogitsProcessor]:
        """Returns the function for a request with these parameters; None: its logits are unchanged."""

    def _of_request(self, params: Any, prompt: Optional[List[int]], output: List[int]) -> Optional[Callable[[Any], Any]]:
        import inspect

        function = self.new_req_logits_processor(params)
        if function is None:
            return None
        takes_prompt = len(inspect.signature(function).parameters) == 3
        return lambda logits: function(prompt, output, logits) if takes_prompt else function(output, logits)

    def update_state(self, batch_update: Optional[BatchUpdate]) -> None:
        process_dict_updates(self.req_info, batch_update, self._of_request)

    def apply(self, logits: Any) -> Any:
        for slot, function in self.req_info.items():
            logits[slot] = function(logits[slot])
        return logits


__all__ = ["AdapterLogitsProcessor", "AddedRequest", "BatchUpdate", "LogitsProcessor", "MoveDirectionality", "MovedRequest",
           "RemovedRequest", "RequestLogitsProcessor", "process_dict_updates"]
