"""Offline inference: vLLM's `LLM`."""
from __future__ import annotations

import json
import os
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple, Union

from . import _checkpoint, _core, metrics
from ._adapters import Adapters
from ._arguments import takes_arguments_of
from ._engine_rules import Opening
from ._lifetime import closes_at_exit
from ._params import check_params, check_prompts, default_params, fitting, priority_level
from ._pooling import ParamsOrList as PoolingParamsOrList
from ._pooling import Pooler
from ._progress import progress
from ._requests import AnyParams, Requests, prepared
from .engine_args import EngineArgs
from .errors import EngineError
from .inputs import ParsedPrompt, parse_prompts, truncated
from .lora.request import LoRARequest
from .outputs import (BeamSearchOutput, BeamSearchSequence, ClassificationRequestOutput, EmbeddingRequestOutput,
                      PoolingOutput, PoolingRequestOutput, RequestOutput, ScoringRequestOutput)
from .sampling_params import BeamSearchParams, SamplingParams
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .config import ModelConfig, VllmConfig
    from .engine.llm_engine import LLMEngine
    from .renderers import Renderer

Messages = Sequence[Dict[str, Any]]
UseTqdm = Union[bool, Callable[..., Any]]
ParamsOrList = Union[AnyParams, Sequence[AnyParams]]

_POLL_SECONDS = 0.05  # how long Ctrl-C may have to wait
_MOST_IN_FLIGHT = 1024  # requests of one call that the engine holds at once
# Its name, what is asked, with what, how soon, and with which adapter.
Job = Tuple[str, ParsedPrompt, AnyParams, int, Optional[LoRARequest]]


class LLM:
    """A model and its engine: prompts in, texts (or vectors, or scores) out.

    Args:
        model: a GGUF file, a Hugging Face directory, or a name ("org/name", "org/name:Q4_K_M"), which is looked for on disk
            and downloaded otherwise. Empty: the built-in story model.
        **arguments: vLLM's of the same names, and Penstock's own: the fields of EngineArgs.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: an argument cannot be honoured, or the model cannot be read.
        TypeError: there is no such argument; the nearest is named.
        MemoryError: weights and cache do not fit.

    Methods may be called from several threads: requests share the engine's batch. Within a call Ctrl-C ends what runs, and the
    engine goes on to be usable.
    """

    @takes_arguments_of(EngineArgs)
    def __init__(self, model: Any = "", **arguments: Any) -> None:
        self.args = EngineArgs(model, **arguments).opening
        self._checkpoint = _checkpoint.found(self.args)
        self._engine: Optional["weakref.ref[LLMEngine]"] = None
        self._counter = 0
        self._n_calls = 0  # that generate now
        self._rests = False  # asleep at level 0
        self._session: Optional[_core.ModelSession] = None
        self._pooler: Optional[Pooler] = None
        self._queued: List[Job] = []
        self._profile: Optional[Tuple[float, Dict[str, float]]] = None
        self._closed = False
        self.wake_up()
        closes_at_exit(self)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> "LLM":
        """With arguments that are read already."""
        given = engine_args.given()
        return cls(given.pop("model"), **given)

    # Life.

    def close(self) -> None:
        """Ends what runs and frees the memory. The `LLM` cannot be used any more."""
        self._closed = True
        self.sleep()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """Frees weights and cache until wake_up(); what runs is ended, or with mode="wait" waited for. Levels 1 and 2 are the same:
        weights come from the file again. Level 0 stops the engine where it is, and frees nothing."""
        check_sleep(level, mode)
        if level == 0:
            self._rests = True
            if self._session is not None:
                self._session.set_paused(True)
            return
        while mode == "wait" and self._n_calls > 0:
            time.sleep(_POLL_SECONDS)
        if self._session is not None:
            self._session.close()
        self._session = None
        self._pooler = None

    def wake_up(self, tags: Optional[List[str]] = None) -> None:
        """Opens the engine again, whole: `tags` name parts that vLLM wakes one by one, and the first brings all."""
        if self._closed:
            raise EngineError("the engine is closed")
        check_tags(tags)
        if self.args.runner == "generate":
            if self._session is None:
                self._session = _core.ModelSession(self.args.config)
                self._adapters = Adapters(self._session, self.args.enable_lora)
            elif self._rests:
                self._session.set_paused(False)
        elif self._pooler is None:
            self._pooler = Pooler(self.args)
        self._rests = False

    @property
    def is_sleeping(self) -> bool:
        """Whether sleep() was called, and wake_up() was not."""
        return self._rests or (self._session is None and self._pooler is None)

    def _generator(self) -> _core.ModelSession:
        if self._session is not None and not self._rests:
            return self._session
        if self._closed or self._rests or self._pooler is None:
            raise EngineError("the engine is closed" if self._closed else "the engine is asleep: call wake_up() first")
        raise ValueError("this model was opened for pooling (runner='pooling'): it gives vectors and no text")

    def _pooling(self) -> Pooler:
        if self._pooler is not None and not self._rests:
            return self._pooler
        if self._closed or self._rests or self._session is None:
            raise EngineError("the engine is closed" if self._closed else "the engine is asleep: call wake_up() first")
        raise ValueError("this model was opened to generate text; open it with runner='pooling' for vectors and scores")

    # Text.

    def generate(self, prompts: Any = None, sampling_params: Optional[ParamsOrList] = None, *, use_tqdm: UseTqdm = True,
                 lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
                 tokenization_kwargs: Optional[Dict[str, Any]] = None,
                 mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Completions of prompts, in their order; whole ones, whatever `output_kind` says.

        Args:
            prompts: a text, token ids, a dictionary with prompt or prompt_token_ids, or a list of those.
            sampling_params: for all, or one for each; None is get_default_sampling_params().
            use_tqdm: whether progress is shown; or a class in tqdm's manner.
            priority: for all, or one for each; lower runs earlier, with scheduling_policy="priority".
            tokenization_kwargs: add_special_tokens, truncate_prompt_tokens.

        Raises:
            ValueError: a prompt or a parameter the engine cannot take; nothing of the call goes on then.
        """
        parsed = parse_prompts(prompts)
        check_prompts(parsed, mm_processor_kwargs, self.args)
        return self._generate(self._jobs(parsed, sampling_params, lora_request, priority, tokenization_kwargs), use_tqdm)

    def chat(self, messages: Union[Messages, Sequence[Messages]], sampling_params: Optional[ParamsOrList] = None,
             use_tqdm: UseTqdm = True, lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
             chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
             add_generation_prompt: Optional[bool] = None, continue_final_message: bool = False,
             tools: Optional[Sequence[Dict[str, Any]]] = None, chat_template_kwargs: Optional[Dict[str, Any]] = None,
             tokenization_kwargs: Optional[Dict[str, Any]] = None,
             mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Replies to one conversation, or to each of several. Texts are as the model wrote them, tool calls included."""
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        conversations = fitting(messages, add_generation_prompt, continue_final_message, chat_template_content_format)
        check_prompts([], mm_processor_kwargs, self.args)
        session = self._generator()
        prompts = []
        for conversation in conversations:
            text, ids = session.render_chat(list(conversation), {
                "tools": None if tools is None else list(tools), "variables": chat_template_kwargs,
                "chat_template": chat_template or self.args.chat_template,
                "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message})
            prompts.append(ParsedPrompt(text, ids))
        return self._generate(self._jobs(prompts, sampling_params, lora_request, priority, tokenization_kwargs), use_tqdm)

    def enqueue(self, prompts: Any, sampling_params: Optional[ParamsOrList] = None, *, use_tqdm: UseTqdm = False,
                lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
                tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[str]:
        """Notes prompts for wait_for_completion(); gives the names of their requests."""
        parsed = parse_prompts(prompts)
        check_prompts(parsed, None, self.args)
        jobs = self._jobs(parsed, sampling_params, lora_request, priority, tokenization_kwargs)
        self._queued += jobs
        return [job[0] for job in jobs]

    def wait_for_completion(self, output_type: Any = None, *, use_tqdm: UseTqdm = True) -> List[RequestOutput]:
        """Runs what was noted; outputs in the order in which it was. output_type: RequestOutput, where it is given."""
        kinds = output_type if isinstance(output_type, tuple) else (output_type,)
        if output_type is not None and RequestOutput not in kinds:
            raise TypeError(f"output_type: what was noted gives RequestOutput, got {output_type!r}")
        jobs, self._queued = self._queued, []
        return self._generate(jobs, use_tqdm)

    def beam_search(self, prompts: Any, params: BeamSearchParams, lora_request: Any = None, use_tqdm: UseTqdm = False,
                    concurrency_limit: Optional[int] = None, priority: Optional[int] = None) -> List[BeamSearchOutput]:
        """The `params.beam_width` likeliest texts of each prompt that a search finds, likeliest first."""
        jobs = self._jobs(parse_prompts(prompts), params, lora_request, priority, None)
        outputs = self._generate(jobs, use_tqdm, concurrency_limit or _MOST_IN_FLIGHT)
        tokenizer = self._generator().tokenizer()
        found = []
        for output in outputs:
            prompt_ids = output.prompt_token_ids or []
            sequences = []
            for one in output.outputs:
                tokens = prompt_ids + one.token_ids
                sequences.append(BeamSearchSequence(tokens, one.logprobs or [], one.cumulative_logprob or 0.0,
                                                    tokenizer.decode(tokens, params.skip_special_tokens), one.finish_reason,
                                                    one.stop_reason))
            found.append(BeamSearchOutput(sequences))
        return found

    def _jobs(self, prompts: List[ParsedPrompt], params: Optional[ParamsOrList], lora_request: Any,
              priority: Union[None, int, Sequence[int]],
              tokenization_kwargs: Optional[Dict[str, Any]]) -> List[Job]:
        session = self._generator()
        adapters = self._adapters.for_each(lora_request, len(prompts))
        if params is None:
            params = self.get_default_sampling_params()
        each: List[AnyParams] = list(params) if isinstance(params, (list, tuple)) else [params] * len(prompts)  # type: ignore[list-item]
        if len(each) != len(prompts):
            raise ValueError(f"sampling_params: expected one or {len(prompts)}, as many as prompts, got {len(each)}")
        for one in each:
            check_params(one, self.args)
        priorities = [priority or 0] * len(prompts) if priority is None or isinstance(priority, int) else list(priority)
        if len(priorities) != len(prompts):
            raise ValueError(f"priority: expected one or {len(prompts)}, as many as prompts, got {len(priorities)}")
        levels = [priority_level(one, self.args) for one in priorities]
        if tokenization_kwargs:
            most, encode = session.info()["max_model_len"], session.tokenizer().encode
            prompts = [truncated(prompt, tokenization_kwargs, encode, most) for prompt in prompts]
        first = self._counter
        self._counter += len(prompts)
        return [(str(first + i), prompt, one, level, adapter)
                for i, (prompt, one, level, adapter) in enumerate(zip(prompts, each, levels, adapters))]

    def _generate(self, jobs: List[Job], use_tqdm: UseTqdm, most: int = _MOST_IN_FLIGHT) -> List[RequestOutput]:
        session = self._generator()
        requests = Requests(session, self._adapters, self.args)
        ready: Dict[int, _core.PreparedParams] = {}
        outputs: List[Optional[RequestOutput]] = [None] * len(jobs)
        places: Dict[int, int] = {}
        waiting: Deque[int] = deque(range(len(jobs)))
        bar = progress(use_tqdm, len(jobs), "Processed prompts")
        self._n_calls += 1
        try:
            while waiting or places:
                while waiting and len(places) < most:
                    name, prompt, params, level, adapter = jobs[waiting[0]]
                    try:
                        if id(params) not in ready:
                            ready[id(params)] = prepared(session, params, self.args)
                        number = requests.submit(name, prompt, params, ready[id(params)], level, lora=adapter)
                    except MemoryError:
                        if not places:  # the queue is full of other callers' requests
                            raise
                        break
                    except ValueError as error:
                        raise error if len(jobs) == 1 else ValueError(f"prompt {waiting[0]}: {error}") from None
                    places[number] = waiting.popleft()
                for number, output in requests.poll(_POLL_SECONDS):
                    if isinstance(output, BaseException):
                        raise output
                    outputs[places.pop(number)] = output
                    bar.update(1)
        finally:
            self._n_calls -= 1
            if places:
                requests.cancel_all()
            bar.close()
        return [output for output in outputs if output is not None]

    # Vectors, classes, scores.

    def embed(self, prompts: Any, *, use_tqdm: UseTqdm = True, pooling_params: PoolingParamsOrList = None,
              lora_request: Any = None, tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[EmbeddingRequestOutput]:
        """A vector for each prompt. pooling_params, lora_request: for all, or one for each."""
        return self._pooling().embed(parse_prompts(prompts), (pooling_params, self._names, use_tqdm, lora_request,
                                                              tokenization_kwargs))

    def encode(self, prompts: Any, pooling_params: PoolingParamsOrList = None, *, use_tqdm: UseTqdm = True,
               lora_request: Any = None, pooling_task: Optional[str] = None,
               tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[PoolingRequestOutput[PoolingOutput]]:
        """What the model's pooler gives for each prompt, as an array: with `pooling_task` "embed" (without one) a vector, with
        "token_embed" a vector of each token, [tokens, dimensions], with "classify" the probabilities of classes, with
        "token_classify" those of each token, [tokens, classes]."""
        pooler = self._pooling()
        given = pooling_params[0] if isinstance(pooling_params, (list, tuple)) and pooling_params else pooling_params
        task = pooling_task or getattr(given, "task", None) or pooler.default_task or "embed"
        return pooler.encode(parse_prompts(prompts), task, (pooling_params, self._names, use_tqdm, lora_request,
                                                            tokenization_kwargs))

    def reward(self, prompts: Any, pooling_params: PoolingParamsOrList = None, *, use_tqdm: UseTqdm = True, lora_request: Any = None,
               tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[PoolingRequestOutput[PoolingOutput]]:
        """What a reward model says of each token: encode() with pooling_task="token_classify"."""
        return self.encode(prompts, pooling_params, use_tqdm=use_tqdm, lora_request=lora_request, pooling_task="token_classify",
                           tokenization_kwargs=tokenization_kwargs)

    def classify(self, prompts: Any, *, pooling_params: PoolingParamsOrList = None, use_tqdm: UseTqdm = True,
                 lora_request: Any = None,
                 tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[ClassificationRequestOutput]:
        """The probabilities of a classifier's classes for each prompt."""
        return self._pooling().classify(parse_prompts(prompts), (pooling_params, self._names, use_tqdm, lora_request,
                                                                 tokenization_kwargs))

    def score(self, data_1: Any, data_2: Any, /, *, use_tqdm: UseTqdm = True, pooling_params: PoolingParamsOrList = None,
              lora_request: Any = None, tokenization_kwargs: Optional[Dict[str, Any]] = None,
              chat_template: Optional[str] = None) -> List[ScoringRequestOutput]:
        """How well texts go together: one with one, one with each of many, or pairs. Of embedding models it is the cosine of
        the vectors' angle, of cross-encoders what their head says. chat_template: of cross-encoders, how a pair is written, from
        messages of the roles "query" and "document"."""
        return self._pooling().score(data_1, data_2, chat_template, (pooling_params, self._names, use_tqdm, lora_request,
                                                                     tokenization_kwargs))

    def _names(self, n: int) -> List[str]:
        first = self._counter
        self._counter += n
        return [str(first + i) for i in range(n)]

    # What there is to know.

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer. ValueError where the checkpoint has none, and with skip_tokenizer_init."""
        return tokenizer_of(self._pooler or self._generator(), self.args)

    def apply_chat_template(self, messages: Messages, **options: Any) -> Any:
        """The prompt of a conversation; options as Tokenizer.apply_chat_template has them."""
        return self.get_tokenizer().apply_chat_template(messages, **options)

    def get_default_sampling_params(self) -> SamplingParams:
        """The checkpoint's generation_config over vLLM's defaults."""
        return default_params(self._generator(), self.args)

    def get_metrics(self) -> List[metrics.Metric]:
        """What the engine has counted until now."""
        return metrics.snapshot((self._pooler or self._generator()).metrics(), label_of(self.args))

    @property
    def info(self) -> Dict[str, Any]:
        """What was opened: architecture, backend, sizes in bytes and tokens; of models of vectors dimensions and labels."""
        return (self._pooler or self._generator()).info()

    @property
    def config(self) -> Dict[str, Any]:
        """The engine's settings, with every automatic value filled in; of models of vectors those that were given."""
        return dict(self.args.config) if self._pooler is not None else self._generator().config()

    @property
    def llm_engine(self) -> "LLMEngine":
        """The same engine, for requests one by one."""
        from .engine.llm_engine import LLMEngine

        engine = self._engine() if self._engine is not None else None
        if engine is None:
            engine = LLMEngine(self)
            self._engine = weakref.ref(engine)
        return engine

    @property
    def model_config(self) -> "ModelConfig":
        """What model is open, in vLLM's terms."""
        from .config import model_config_of

        return model_config_of(self.args, self._checkpoint, self.info)

    @property
    def vllm_config(self) -> "VllmConfig":
        """What engine is open, in vLLM's terms."""
        from .config import vllm_config_of

        return vllm_config_of(self.args, self._checkpoint, self.info, self.config)

    @property
    def renderer(self) -> "Renderer":
        """What makes token ids of prompts before generate() is given them."""
        from .renderers import Renderer

        return Renderer(self.get_tokenizer())

    def get_supported_tasks(self) -> List[str]:
        """What the model can be asked for."""
        if self._pooler is None:
            return ["generate"]
        of_tokens = self.info["labels_tokens"]
        classes = ["token_classify"] if of_tokens else ["classify", "score"] if self.info["labels"] else ["score"]
        return ["embed", "token_embed", *classes]

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Forgets the blocks of former prompts. Requests that run keep theirs, which change no text; a connector there is none."""
        self._generator().reset_prefix_cache()
        return True

    def reset_mm_cache(self) -> None:
        """There is none: models are given text."""

    def release_kv_cache_memory(self) -> None:
        """Frees the cache, and with it the weights, until wake_up()."""
        self.sleep()

    def get_world_size(self, include_dp: bool = True) -> int:
        """Ranks that share the model, of all its engines unless include_dp is False."""
        config = self.config
        ranks: int = config.get("tensor_parallel_size", 1) * config.get("pipeline_parallel_size", 1)
        return ranks * int(config.get("data_parallel_size", 1)) if include_dp else ranks

    def start_profile(self, profile_prefix: Optional[str] = None) -> None:
        """Begins to look at where time goes. profile_prefix: what the profile's name begins with."""
        self._profile = (time.monotonic(), self._times())
        self._profile_prefix = profile_prefix or f"penstock-profile-{os.getpid()}"

    def stop_profile(self) -> str:
        """Writes what the engine did since start_profile() as JSON, in profiler_config's folder or here; gives its path."""
        if self._profile is None:
            raise EngineError("stop_profile: start_profile() was not called")
        start, before = self._profile
        self._profile = None
        report = {name: value - before.get(name, 0.0) for name, value in self._times().items()}
        report["wall_seconds"] = time.monotonic() - start
        folder = self.args.profile_dir or "."
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"{self._profile_prefix}-{int(time.time() * 1000)}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
        return path

    def _times(self) -> Dict[str, float]:
        return {name: value for name, kind, _, value in (self._pooler or self._generator()).metrics() if kind == "counter"}

    def collective_rpc(self, *_: Any, **__: Any) -> Any:
        """Refused: there are no workers to send a function to."""
        raise NotImplementedError("collective_rpc: the engine runs in this process and has no workers")

    def apply_model(self, *_: Any, **__: Any) -> Any:
        """Refused: the model is not a Python object."""
        raise NotImplementedError("apply_model: the model is no torch module")

    def __repr__(self) -> str:
        return f"LLM(model={self.args.config['model']!r}, runner={self.args.runner!r})"


def tokenizer_of(model: Union[Pooler, _core.ModelSession], args: Opening) -> Tokenizer:
    """ValueError where there is none."""
    if args.skip_tokenizer:
        raise ValueError("the engine was opened with skip_tokenizer_init: it has no tokenizer to give")
    native = model.native_tokenizer() if isinstance(model, Pooler) else model.tokenizer()
    if native is None:
        raise ValueError("the checkpoint has no tokenizer")
    return Tokenizer(native, model.render_chat, args.chat_template)


def label_of(args: Opening) -> str:
    """What metrics call the model."""
    return args.served_name or os.path.basename(args.model_name or args.config["model"])


def check_sleep(level: int, mode: str) -> None:
    """ValueError."""
    if level not in (0, 1, 2):
        raise ValueError(f"level: expected 0, 1 or 2, got {level}")
    if mode not in ("abort", "wait") and not (mode == "keep" and level == 0):
        raise ValueError(f"mode: expected abort or wait (what runs cannot be kept when its cache is freed; keep is for level 0), "
                         f"got {mode!r}")


def check_tags(tags: Optional[Sequence[str]]) -> None:
    """ValueError."""
    for tag in tags or ():
        if tag not in ("weights", "kv_cache", "scheduling"):
            raise ValueError(f"tags: expected weights, kv_cache or scheduling, got {tag!r}")
