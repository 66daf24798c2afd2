"""The interface for single requests: vLLM's `LLMEngine`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from .._params import check_params, check_prompts, priority_level
from .._pictures import placed
from .._requests import Requests, joined, prepared
from ..engine_args import EngineArgs
from ..inputs import ParsedPrompt, parse_prompt, truncated
from ..llm import LLM
from ..lora.request import LoRARequest
from ..outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from ..pooling_params import PoolingParams
from ..sampling_params import RequestOutputKind
from ..tokenizer import Tokenizer

if TYPE_CHECKING:
    from .. import metrics
    from ..config import ModelConfig, VllmConfig

_STEP_SECONDS = 0.05  # maximum time that step() waits for outputs
AnyOutput = Union[RequestOutput, PoolingRequestOutput[PoolingOutput]]
_Pooling = Tuple[str, ParsedPrompt, Optional[PoolingParams], Any, Optional[Dict[str, Any]]]


class LLMEngine:
    """Accepts requests with names; every step() returns their new outputs. The engine computes on its own thread: step() returns
    the results since the last call. Not thread-safe.

    Args:
        llm: the model; other calls may use it at the same time.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._requests: Optional[Requests] = None
        self._session: Any = None  # session of self._requests
        self._numbers: Dict[str, int] = {}
        self._deltas: Set[int] = set()  # numbers of requests with RequestOutputKind.DELTA
        self._pooling: List[_Pooling] = []

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, usage_context: Any = None, stat_loggers: Any = None,
                         enable_multiprocessing: bool = False) -> "LLMEngine":
        """Opens the model. stat_loggers are refused: get_metrics() returns the metrics."""
        if stat_loggers:
            raise ValueError("stat_loggers: not supported; get_metrics() has what is counted")
        return cls(LLM.from_engine_args(engine_args))

    def add_request(self, request_id: str, prompt: Any, params: Any, arrival_time: Optional[float] = None,
                    lora_request: Optional[LoRARequest] = None, tokenization_kwargs: Optional[Dict[str, Any]] = None,
                    trace_headers: Optional[Mapping[str, str]] = None, priority: int = 0) -> str:
        """Submits a request and returns its name. params: SamplingParams, or PoolingParams for pooling models. arrival_time: that
        of its metrics, in seconds since the epoch; None: now. trace_headers are ignored.

        Raises:
            ValueError: the name is taken, or the engine does not support the prompt or a parameter.
        """
        if not isinstance(request_id, str):
            raise TypeError(f"request_id: expected a text, got {type(request_id).__name__}")
        if request_id in self._numbers or any(request_id == job[0] for job in self._pooling):
            raise ValueError(f"request_id: {request_id!r} is running already")
        parsed = parse_prompt(prompt, images=not isinstance(params, PoolingParams))
        if isinstance(params, PoolingParams):
            self._llm._pooling()
            priority_level(priority, self._llm.args)
            self._pooling.append((request_id, parsed, params, lora_request, tokenization_kwargs))
            return request_id
        session, args = self._llm._generator(), self._llm.args
        check_params(params, args)
        check_prompts([parsed], args)
        parsed = placed(session, args, parsed, options=tokenization_kwargs)
        if tokenization_kwargs:
            parsed = truncated(parsed, tokenization_kwargs, session.tokenizer().encode, session.info()["max_model_len"])
        level = priority_level(priority, args)
        self._llm._adapters.get(lora_request)
        if self._requests is None or self._session is not session:
            self._requests, self._session, self._numbers = Requests(session, self._llm._adapters, args), session, {}
        kind = getattr(params, "output_kind", RequestOutputKind.FINAL_ONLY)
        number = self._requests.submit(request_id, parsed, params, prepared(session, params, args), level,
                                       stream=kind is not RequestOutputKind.FINAL_ONLY, lora=lora_request,
                                       arrival=arrival_time)
        self._numbers[request_id] = number
        if kind is RequestOutputKind.DELTA:
            self._deltas.add(number)
        return request_id

    def step(self) -> List[AnyOutput]:
        """Returns an output for each request with new results, according to `output_kind`; an empty list if there is none within a
        short time. Raises the exception of a logits processor, which ends its request."""
        if self._pooling:
            return self._pool()
        if self._requests is None or not self._numbers:
            return []
        outputs: Dict[int, RequestOutput] = {}
        raised: Optional[BaseException] = None
        for number, output in self._requests.poll(_STEP_SECONDS):
            if isinstance(output, BaseException):
                raised = output
                self._forget(number)
                continue
            before = outputs.get(number)
            outputs[number] = joined(before, output) if before is not None and number in self._deltas else output
            if output.finished:
                self._forget(number)
        if raised is not None:
            raise raised
        return list(outputs.values())

    def _forget(self, number: int) -> None:
        self._deltas.discard(number)
        self._numbers = {name: own for name, own in self._numbers.items() if own != number}

    def _pool(self) -> List[AnyOutput]:
        jobs, self._pooling = self._pooling, []
        pooler = self._llm._pooling()
        found: List[AnyOutput] = []
        for name, prompt, params, lora, options in jobs:
            task = (params.task if params is not None else None) or pooler.default_task or "embed"
            names = [name]
            found += pooler.encode([prompt], task, (params, lambda n, names=names: names, False, lora, options))  # type: ignore[misc]
        return found

    def has_unfinished_requests(self) -> bool:
        """Whether there are unfinished requests."""
        return bool(self._numbers or self._pooling)

    def get_num_unfinished_requests(self) -> int:
        """Returns the number of unfinished requests."""
        return len(self._numbers) + len(self._pooling)

    def abort_request(self, request_ids: Union[str, Sequence[str]], internal: bool = False) -> None:
        """Cancels requests; unknown names are ignored. The next step() returns their final outputs."""
        names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
        self._pooling = [job for job in self._pooling if job[0] not in names]
        for name in names:
            if name in self._numbers and self._requests is not None:
                self._requests.cancel(self._numbers[name])

    # Delegated to LLM.

    @property
    def model_config(self) -> "ModelConfig":
        """The open model's configuration as vLLM's ModelConfig."""
        return self._llm.model_config

    @property
    def vllm_config(self) -> "VllmConfig":
        """The open engine's configuration as vLLM's VllmConfig."""
        return self._llm.vllm_config

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.get_tokenizer()

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.get_tokenizer()

    def get_metrics(self) -> "List[metrics.Metric]":
        """Returns the engine's current metrics."""
        return self._llm.get_metrics()

    def get_supported_tasks(self) -> List[str]:
        """Returns the tasks that the model supports."""
        return self._llm.get_supported_tasks()

    def do_log_stats(self) -> None:
        """Does nothing; get_metrics() returns the metrics."""

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """As LLM.reset_prefix_cache()."""
        return self._llm.reset_prefix_cache(reset_running_requests, reset_connector)

    def reset_mm_cache(self) -> None:
        """Does nothing: there is no multimodal cache."""

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """As LLM.sleep()."""
        self._llm.sleep(level, mode)
        if level > 0:
            self._requests, self._session, self._numbers = None, None, {}

    def wake_up(self, tags: Optional[List[str]] = None) -> None:
        """As LLM.wake_up()."""
        self._llm.wake_up(tags)

    def is_sleeping(self) -> bool:
        """As LLM.is_sleeping."""
        return self._llm.is_sleeping

    def start_profile(self, profile_prefix: Optional[str] = None) -> None:
        """As LLM.start_profile()."""
        self._llm.start_profile(profile_prefix)

    def stop_profile(self) -> str:
        """As LLM.stop_profile()."""
        return self._llm.stop_profile()

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Opens an adapter before requests use it; returns whether it was new."""
        self._llm._generator()
        new = lora_request.lora_int_id not in self._llm._adapters.numbers()
        self._llm._adapters.get(lora_request)
        return new

    def remove_lora(self, lora_id: int) -> bool:
        """Removes an adapter and returns whether it was open. Running requests keep it."""
        self._llm._generator()
        return self._llm._adapters.remove(lora_id)

    def list_loras(self) -> Set[int]:
        """Returns the numbers of the open adapters."""
        self._llm._generator()
        return self._llm._adapters.numbers()

    def collective_rpc(self, *_: Any, **__: Any) -> Any:
        """Not supported: the engine has no workers that could run a function."""
        raise NotImplementedError("collective_rpc: the engine runs in this process and has no workers")

    def apply_model(self, *_: Any, **__: Any) -> Any:
        """Not supported: the model is no Python object."""
        raise NotImplementedError("apply_model: the model is no torch module")
