"""Asynchronous generation in an event loop: vLLM's `AsyncLLM`."""
from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any, AsyncGenerator, Callable, Dict, List, Optional, Set, TypeVar, Union

from . import _checkpoint, _core, metrics
from ._arguments import takes_arguments_of
from ._follower import Follower, Stream
from ._lifetime import closes_at_exit
from ._params import check_params, check_prompts, default_params, priority_level
from ._pictures import placed
from ._pooling import Pooler
from ._profile import Profiler
from ._requests import Requests, encoded, joined, prepared
from .engine_args import AsyncEngineArgs, EngineArgs
from .errors import EngineError
from .inputs import parse_prompt, truncated
from .llm import check_sleep, check_tags, label_of, tokenizer_of
from .lora.request import LoRARequest
from .outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from .pooling_params import PoolingParams
from .sampling_params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .config import ModelConfig, VllmConfig

_T = TypeVar("_T")


class AsyncLLM:
    """An engine whose requests are asynchronous generators. The arguments are those of LLM.

    Methods may be called from the threads of several event loops; all requests share the engine's batch. An engine without
    references is freed, as by shutdown().
    """

    @takes_arguments_of(AsyncEngineArgs)
    def __init__(self, model: Any = "", **arguments: Any) -> None:
        if isinstance(model, EngineArgs):
            arguments = model.given()
            model = arguments.pop("model")
        self.args = AsyncEngineArgs(model, **arguments).opening
        self._checkpoint = _checkpoint.found(self.args)
        self._names = 0
        self._stopped = False
        self._paused = False
        self._follower: Optional[Follower] = None
        self._pooler: Optional[Pooler] = None
        self._lock = threading.Lock()
        self._profiler = Profiler()
        self._wake()
        closes_at_exit(self)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, start_engine_loop: bool = True, usage_context: Any = None,
                         stat_loggers: Any = None, enable_log_requests: bool = False,
                         disable_log_stats: bool = True) -> "AsyncLLM":
        """Opens an engine with arguments as an EngineArgs. stat_loggers are refused: get_metrics() returns the metrics."""
        if stat_loggers:
            raise ValueError("stat_loggers: not supported; get_metrics() has what is counted")
        given = engine_args.given()
        return cls(given.pop("model"), **given)

    @classmethod
    def from_vllm_config(cls, *_: Any, **__: Any) -> "AsyncLLM":
        """Not supported: a VllmConfig describes an open engine and cannot open one."""
        raise NotImplementedError("from_vllm_config: expected from_engine_args()")

    def _wake(self) -> None:
        with self._lock:
            if self._follower is not None or self._pooler is not None:
                return
            if self.args.runner == "pooling":
                self._pooler = Pooler(self.args)
            else:
                self._follower = Follower(self.args)
                self._release = weakref.finalize(self, self._follower.close)

    def _generator(self) -> Follower:
        follower = self._follower
        if follower is not None:
            return follower
        if self._stopped or self._pooler is None:
            raise EngineError("the engine is closed" if self._stopped else "the engine is asleep: call wake_up() first")
        raise ValueError("this model was opened for pooling (runner='pooling'): it gives vectors and no text")

    def _model(self) -> Union[Pooler, _core.ModelSession]:
        return self._pooler or self._generator().session

    @staticmethod
    async def _apart(call: Callable[..., _T], *arguments: Any) -> _T:
        """Runs a blocking call in the loop's thread pool."""
        return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)

    # Requests.

    async def generate(self, prompt: Any, sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None, *,
                       lora_request: Any = None, priority: int = 0, trace_headers: Optional[Dict[str, str]] = None,
                       tokenization_kwargs: Optional[Dict[str, Any]] = None) -> AsyncGenerator[RequestOutput, None]:
        """Yields a request's outputs as they come: cumulative, deltas, or only the final one (`sampling_params.output_kind`).
        Closing the generator or cancelling its task cancels the request. trace_headers are ignored.

        Raises:
            ValueError: a prompt or parameter that the engine does not support.
            EngineError: the engine is closed or asleep, or the request has failed.
        """
        follower = self._generator()
        params = sampling_params if sampling_params is not None else default_params(follower.session, self.args)
        check_params(params, self.args)
        level = priority_level(priority, self.args)
        stream = Stream(asyncio.get_running_loop(), request_id or "")
        interval = params.stream_interval or self.args.stream_interval
        held: Optional[RequestOutput] = None  # DELTA: outputs not yet yielded
        n_held = 0
        try:
            await self._apart(self._submit, follower, prompt, params, request_id, level, tokenization_kwargs, stream, lora_request)
            while True:
                news = await stream.queue.get()
                if isinstance(news, BaseException):
                    raise news
                if held is not None:
                    news = joined(held, news)
                held = None
                n_held += 1
                if not news.finished and (params.output_kind is RequestOutputKind.FINAL_ONLY or n_held < interval):
                    held = news if params.output_kind is RequestOutputKind.DELTA else None
                    continue
                n_held = 0
                for one in news.outputs:
                    if one.finish_reason == "error":
                        raise EngineError(one.error or "the request failed")
                yield news
                if news.finished:
                    return
        finally:
            follower.leave(stream)

    def _submit(self, follower: Follower, prompt: Any, params: SamplingParams, request_id: Optional[str], level: int,
                options: Optional[Dict[str, Any]], stream: Stream, lora: Optional[LoRARequest]) -> None:
        """Tokenizes and submits a request. Runs in the loop's thread pool, since tokenizing a long text takes time."""
        parsed = parse_prompt(prompt, images=True)
        check_prompts([parsed], self.args)
        parsed = placed(follower.session, self.args, parsed, options=options)
        encode = follower.session.tokenizer().encode
        if options:
            parsed = truncated(parsed, options, encode, follower.session.info()["max_model_len"])
        if parsed.token_ids is None:
            parsed.token_ids = encode(parsed.text or "")
        ready = prepared(follower.session, params, self.args)
        follower.adapters.get(lora)
        pictures = encoded(parsed)

        def send(requests: Requests) -> int:
            return requests.submit(request_id or "", parsed, params, ready, level,
                                   stream=params.output_kind is not RequestOutputKind.FINAL_ONLY, lora=lora, pictures=pictures)
        follower.submit(request_id, stream, send)

    async def encode(self, prompt: Any, pooling_params: Optional[PoolingParams] = None, request_id: Optional[str] = None, *,
                     lora_request: Any = None, trace_headers: Optional[Dict[str, str]] = None, priority: int = 0,
                     tokenization_kwargs: Optional[Dict[str, Any]] = None
                     ) -> AsyncGenerator[PoolingRequestOutput[PoolingOutput], None]:
        """Yields one output: the result of LLM.encode() for the prompt, with the task of pooling_params. Calls are serialized, so
        that priorities are refused."""
        pooler = self._pooler
        if pooler is None:
            self._generator()
            raise ValueError("this model was opened to generate text; open it with runner='pooling' for vectors and scores")
        priority_level(priority, self.args)
        self._names += 1
        name = request_id if request_id is not None else str(self._names)
        task = (pooling_params.task if pooling_params is not None else None) or pooler.default_task or "embed"
        found = await self._apart(pooler.encode, [parse_prompt(prompt)], task,
                                  (pooling_params, lambda n: [name] * n, False, lora_request, tokenization_kwargs))
        yield found[0]

    async def abort(self, request_id: Union[str, List[str]], internal: bool = False) -> None:
        """Cancels requests by name; unknown names are ignored. Their generators receive a final output. internal: vLLM's argument;
        ignored, since a request has only one name here."""
        follower = self._generator()
        follower.cancel(follower.numbers([request_id] if isinstance(request_id, str) else request_id))

    async def pause_generation(self, *, mode: str = "abort", wait_for_inflight_requests: bool = False,
                               clear_cache: bool = True) -> None:
        """Pauses the engine between two steps: no tokens are generated until resume_generation(), and new requests wait.

        mode: handling of running requests: "abort" ends them, "wait" finishes them first (new requests run as well until then),
            "keep" suspends them. clear_cache: clears the prefix cache, except with "keep".
        """
        if mode not in ("abort", "wait", "keep"):
            raise ValueError(f"mode: expected abort, wait or keep, got {mode!r}")
        follower = self._generator()
        if mode == "wait" or wait_for_inflight_requests:
            await self._apart(follower.wait, follower.numbers())
            mode = "wait"
        self._paused = True
        await self._apart(follower.session.set_paused, True)
        if mode == "abort":
            running = follower.numbers()
            follower.cancel(running)
            await self._apart(follower.wait, running)
        if clear_cache and mode != "keep":
            follower.session.reset_prefix_cache()

    async def resume_generation(self) -> None:
        """Resumes the engine after pause_generation()."""
        await self._apart(self._generator().session.set_paused, False)
        self._paused = False

    async def is_paused(self) -> bool:
        """Whether the engine is paused by pause_generation()."""
        return self._paused

    async def wait_for_requests_to_drain(self, drain_timeout: float = 300) -> None:
        """Waits until the requests that run now have ended. Errors: TimeoutError, after drain_timeout seconds."""
        follower = self._generator()
        asked = follower.numbers()
        await self._apart(follower.wait, asked, drain_timeout)
        left = set(asked) & set(follower.numbers())
        if left:
            raise TimeoutError(f"wait_for_requests_to_drain: {len(left)} requests run after {drain_timeout} s")

    # Lifecycle.

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """As LLM.sleep()."""
        check_sleep(level, mode)
        if level == 0:
            await self.pause_generation(mode=mode)
            return
        if mode == "wait" and self._follower is not None:
            await self._apart(self._follower.wait, self._follower.numbers())
        await self._apart(self._free, EngineError("the engine was put to sleep"))

    async def wake_up(self, tags: Optional[List[str]] = None) -> None:
        """As LLM.wake_up()."""
        check_tags(tags)
        if self._stopped:
            raise EngineError("the engine is closed")
        if self._paused and self._follower is not None:
            await self.resume_generation()
        await self._apart(self._wake)

    async def is_sleeping(self) -> bool:
        """Whether the engine is asleep, after sleep()."""
        return self._follower is None and self._pooler is None and not self._stopped

    def _free(self, error: Optional[BaseException] = None) -> None:
        with self._lock:
            follower, self._follower, self._pooler = self._follower, None, None
            self._paused = False
        if follower is not None:
            self._release.detach()
            follower.close(error)

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Waits at most `timeout` seconds (default: shutdown_timeout) for running requests, cancels the others and frees the
        memory; generators that still wait raise EngineError."""
        if self._stopped:
            return
        self._stopped = True
        patience = self.args.shutdown_timeout if timeout is None else timeout
        if self._follower is not None and patience > 0:
            self._follower.wait(self._follower.numbers(), patience)
        self._free()

    close = shutdown

    @property
    def is_running(self) -> bool:
        """Whether the engine accepts requests."""
        return not self._stopped

    @property
    def is_stopped(self) -> bool:
        """Whether shutdown() was called, after which all requests are refused."""
        return self._stopped

    @property
    def errored(self) -> bool:
        """Whether the engine has failed and cannot continue."""
        return self._health() is not None

    @property
    def dead_error(self) -> BaseException:
        """The error after which the engine cannot continue."""
        return self._health() or EngineError("the engine is well")

    def _health(self) -> Optional[BaseException]:
        try:
            if self._stopped:
                raise EngineError("the engine is closed")
            if self._follower is not None:
                self._follower.session.check_health()
        except Exception as error:  # any error of the engine
            return error
        return None

    async def check_health(self) -> None:
        """Raises EngineError if the engine has failed."""
        error = self._health()
        if error is not None:
            raise error

    # Adapters.

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Opens an adapter before requests use it; returns whether it was new. Errors: those of generate()."""
        adapters = self._pooler.adapters if self._pooler is not None else self._generator().adapters
        new = lora_request.lora_int_id not in adapters.numbers()
        await self._apart(adapters.get, lora_request)
        return new

    async def remove_lora(self, lora_id: int) -> bool:
        """Removes an adapter and returns whether it was open. Running requests keep it."""
        return (self._pooler.adapters if self._pooler is not None else self._generator().adapters).remove(lora_id)

    async def list_loras(self) -> Set[int]:
        """Returns the numbers of the open adapters."""
        return (self._pooler.adapters if self._pooler is not None else self._generator().adapters).numbers()

    # Properties.

    async def get_tokenizer(self) -> Tokenizer:
        """Returns the model's tokenizer."""
        return tokenizer_of(self._model(), self.args)

    async def get_metrics(self) -> List[metrics.Metric]:
        """Returns the engine's current metrics."""
        return metrics.snapshot(self._model().metrics(), label_of(self.args))

    async def get_default_sampling_params(self) -> SamplingParams:
        """Returns the default sampling parameters: vLLM's, overridden by the checkpoint's generation_config."""
        return default_params(self._generator().session, self.args)

    async def get_supported_tasks(self) -> List[str]:
        """Returns the tasks that the model supports."""
        return ["generate"] if self._pooler is None else self._pooler.tasks()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return tokenizer_of(self._model(), self.args)

    def get_num_unfinished_requests(self) -> int:
        """Returns the number of unfinished requests that generate."""
        return len(self._follower.numbers()) if self._follower is not None else 0

    async def start_profile(self, profile_prefix: Optional[str] = None) -> None:
        """As LLM.start_profile()."""
        self._profiler.start(profile_prefix, self._model().metrics())

    async def stop_profile(self) -> str:
        """As LLM.stop_profile()."""
        return await self._apart(self._profiler.stop, self._model().metrics(), self.args.profile_dir)

    @property
    def model_config(self) -> "ModelConfig":
        """The open model's configuration as vLLM's ModelConfig."""
        from .config import model_config_of

        return model_config_of(self.args, self._checkpoint, self._model().info())

    @property
    def vllm_config(self) -> "VllmConfig":
        """The open engine's configuration as vLLM's VllmConfig."""
        from .config import vllm_config_of

        settings = None if self._pooler is not None else self._generator().session.config()
        return vllm_config_of(self.args, self._checkpoint, self._model().info(), settings)

    async def get_model_config(self) -> "ModelConfig":
        """Returns model_config."""
        return self.model_config

    async def get_vllm_config(self) -> "VllmConfig":
        """Returns vllm_config."""
        return self.vllm_config

    async def is_tracing_enabled(self) -> bool:
        """Returns False: the engine sends no traces."""
        return False

    async def do_log_stats(self) -> None:
        """Does nothing; get_metrics() returns the metrics."""

    async def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Clears the prefix cache. Running requests keep their blocks, which does not affect their texts. There is no connector to
        reset."""
        self._generator().session.reset_prefix_cache()
        return True

    async def reset_mm_cache(self) -> None:
        """Does nothing: there is no multimodal cache."""

    async def collective_rpc(self, *_: Any, **__: Any) -> Any:
        """Not supported: the engine has no workers that could run a function."""
        raise NotImplementedError("collective_rpc: the engine runs in this process and has no workers")


AsyncLLMEngine = AsyncLLM
