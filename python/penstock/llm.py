"""Offline inference: vLLM's `LLM`."""
from __future__ import annotations

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
from ._pictures import chat_prompt, placed
from ._pooling import ParamsOrList as PoolingParamsOrList
from ._pooling import Pooler
from ._profile import Profiler
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

_POLL_SECONDS = 0.05  # maximum delay of Ctrl-C
_MOST_IN_FLIGHT = 1024  # maximum number of requests of one call in the engine
# A request to submit: name, prompt, parameters, priority level, adapter.
Job = Tuple[str, ParsedPrompt, AnyParams, int, Optional[LoRARequest]]


class LLM:
    """A model and its engine, which turns prompts into texts, vectors or scores.

    Args:
        model: a GGUF file, a Hugging Face directory, or a name ("org/name", "org/name:Q4_K_M"), which is searched on disk, else
            downloaded. Empty: the built-in story model.
        **arguments: vLLM's arguments and Penstock's own: the fields of EngineArgs.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: an argument is not supported, or the model cannot be read.
        TypeError: an argument is unknown; the message suggests the most similar one.
        MemoryError: weights and cache do not fit into memory.

    Thread-safe; requests of all threads share the engine's batch. Ctrl-C during a call cancels its requests; the engine stays
    usable.
    """

    @takes_arguments_of(EngineArgs)
    def __init__(self, model: Any = "", **arguments: Any) -> None:
        self.args = EngineArgs(model, **arguments).opening
        self._checkpoint = _checkpoint.found(self.args)
        self._engine: Optional["weakref.ref[LLMEngine]"] = None
        self._counter = 0
        self._n_calls = 0  # number of running generate calls
        self._rests = False  # paused by sleep(level=0)
        self._session: Optional[_core.ModelSession] = None
        self._pooler: Optional[Pooler] = None
        self._queued: List[Job] = []
        self._profiler = Profiler()
        self._closed = False
        self.wake_up()
        closes_at_exit(self)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> "LLM":
        """Opens an engine with arguments as an EngineArgs."""
        given = engine_args.given()
        return cls(given.pop("model"), **given)

    # Lifecycle.

    def close(self) -> None:
        """Cancels running requests and frees the memory. The `LLM` cannot be used afterwards."""
        self._closed = True
        self.sleep()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """Frees weights and cache until wake_up(). Running requests are cancelled or, with mode="wait", finished first. Levels 1
        and 2 are equal: weights are read from the file again. Level 0 only pauses the engine and frees nothing."""
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
        """Opens the engine again as a whole. tags: parts that vLLM wakes separately; here any tag wakes all of them."""
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
        """Whether the engine is asleep, after sleep()."""
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
        """Returns the completions of prompts, in their order; always whole ones, whatever `output_kind` is.

        Args:
            prompts: a text, token ids, a dictionary with prompt or prompt_token_ids, or a list of those. A dictionary's
                multi_modal_data {"image": one or a list} has a picture (PIL image, array of bytes [height, width, 3], image file as
                bytes) for each placeholder of the prompt, and "video" a video (a list of such frames, an array of bytes [frames,
                height, width, 3], or a tuple of these and metadata: fps, total_num_frames, frames_indices, do_sample_frames).
            sampling_params: one for all prompts, or a list; None: get_default_sampling_params().
            use_tqdm: whether progress is shown; or a class in tqdm's manner.
            priority: for all, or one for each; lower runs earlier, with scheduling_policy="priority".
            tokenization_kwargs: add_special_tokens, truncate_prompt_tokens.
            mm_processor_kwargs: settings of the image processor, over those of the checkpoint's files.

        Raises:
            ValueError: a prompt or parameter that the engine does not support; all requests of the call are cancelled.
        """
        parsed = parse_prompts(prompts, images=True)
        check_prompts(parsed, self.args)
        return self._generate(self._jobs(parsed, sampling_params, lora_request, priority, tokenization_kwargs,
                                         mm_processor_kwargs), use_tqdm)

    def chat(self, messages: Union[Messages, Sequence[Messages]], sampling_params: Optional[ParamsOrList] = None,
             use_tqdm: UseTqdm = True, lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
             chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
             add_generation_prompt: Optional[bool] = None, continue_final_message: bool = False,
             tools: Optional[Sequence[Dict[str, Any]]] = None, chat_template_kwargs: Optional[Dict[str, Any]] = None,
             tokenization_kwargs: Optional[Dict[str, Any]] = None,
             mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Returns the replies to one conversation or to several. Texts are unparsed: tool calls stay in them as the model wrote
        them. Parts of messages may be pictures: {"type": "image_url", "image_url": {"url": data URL}}, {"type": "image_pil",
        "image_pil": PIL image}."""
        prompts = self._rendered(messages, chat_template, chat_template_content_format, add_generation_prompt,
                                 continue_final_message, tools, chat_template_kwargs, mm_processor_kwargs)
        return self._generate(self._jobs(prompts, sampling_params, lora_request, priority, tokenization_kwargs), use_tqdm)

    def _rendered(self, messages: Union[Messages, Sequence[Messages]], chat_template: Optional[str],
                  chat_template_content_format: str, add_generation_prompt: Optional[bool], continue_final_message: bool,
                  tools: Optional[Sequence[Dict[str, Any]]],
                  chat_template_kwargs: Optional[Dict[str, Any]],
                  mm_processor_kwargs: Optional[Dict[str, Any]]) -> List[ParsedPrompt]:
        """Returns the prompts of the conversations of chat() and enqueue_chat()."""
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        conversations = fitting(messages, add_generation_prompt, continue_final_message, chat_template_content_format)
        session = self._generator()
        options = {"tools": None if tools is None else list(tools), "variables": chat_template_kwargs,
                   "chat_template": chat_template or self.args.chat_template,
                   "add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
        return [chat_prompt(session, self.args, list(conversation), options, mm_processor_kwargs) for conversation in conversations]

    def enqueue(self, prompts: Any, sampling_params: Optional[ParamsOrList] = None, *, use_tqdm: UseTqdm = False,
                lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
                tokenization_kwargs: Optional[Dict[str, Any]] = None,
                mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[str]:
        """Queues prompts for wait_for_completion(); returns the names of their requests."""
        parsed = parse_prompts(prompts, images=True)
        check_prompts(parsed, self.args)
        jobs = self._jobs(parsed, sampling_params, lora_request, priority, tokenization_kwargs, mm_processor_kwargs)
        self._queued += jobs
        return [job[0] for job in jobs]

    def enqueue_chat(self, messages: Union[Messages, Sequence[Messages]], sampling_params: Optional[ParamsOrList] = None,
                     use_tqdm: UseTqdm = False, lora_request: Any = None, priority: Union[None, int, Sequence[int]] = None,
                     chat_template: Optional[str] = None, chat_template_content_format: str = "auto",
                     add_generation_prompt: Optional[bool] = None, continue_final_message: bool = False,
                     tools: Optional[Sequence[Dict[str, Any]]] = None, chat_template_kwargs: Optional[Dict[str, Any]] = None,
                     tokenization_kwargs: Optional[Dict[str, Any]] = None,
                     mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[str]:
        """Queues conversations for wait_for_completion(), as chat() takes them; returns the names of their requests."""
        prompts = self._rendered(messages, chat_template, chat_template_content_format, add_generation_prompt,
                                 continue_final_message, tools, chat_template_kwargs, mm_processor_kwargs)
        jobs = self._jobs(prompts, sampling_params, lora_request, priority, tokenization_kwargs)
        self._queued += jobs
        return [job[0] for job in jobs]

    def wait_for_completion(self, output_type: Any = None, *, use_tqdm: UseTqdm = True) -> List[RequestOutput]:
        """Runs the queued prompts and returns their outputs in order. output_type: None or RequestOutput."""
        kinds = output_type if isinstance(output_type, tuple) else (output_type,)
        if output_type is not None and RequestOutput not in kinds:
            raise TypeError(f"output_type: what was noted gives RequestOutput, got {output_type!r}")
        jobs, self._queued = self._queued, []
        return self._generate(jobs, use_tqdm)

    def beam_search(self, prompts: Any, params: BeamSearchParams, lora_request: Any = None, use_tqdm: UseTqdm = False,
                    concurrency_limit: Optional[int] = None, priority: Optional[int] = None) -> List[BeamSearchOutput]:
        """Returns the `params.beam_width` most likely texts of each prompt that a beam search finds, most likely first."""
        jobs = self._jobs(parse_prompts(prompts, images=True), params, lora_request, priority, None)
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
              tokenization_kwargs: Optional[Dict[str, Any]], mm_processor_kwargs: Optional[Dict[str, Any]] = None) -> List[Job]:
        session = self._generator()
        prompts = [placed(session, self.args, prompt, mm_processor_kwargs, tokenization_kwargs) for prompt in prompts]
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
                        if not places:  # other callers' requests fill the queue
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
            if requests.n_open:
                requests.cancel_all()
            bar.close()
        return [output for output in outputs if output is not None]

    # Vectors, classes, scores.

    def embed(self, prompts: Any, *, use_tqdm: UseTqdm = True, pooling_params: PoolingParamsOrList = None,
              lora_request: Any = None, tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[EmbeddingRequestOutput]:
        """Returns a vector for each prompt. pooling_params, lora_request: one for all prompts, or a list. tokenization_kwargs:
        truncation, truncate_prompt_tokens, prompt_name (of the checkpoint's prompts; "": none). With the pooler_config's task
        "token_embed": what encode() returns."""
        pooler = self._pooling()
        call = pooling_params, self._names, use_tqdm, lora_request, tokenization_kwargs
        if pooler.default_task == "token_embed":
            return pooler.encode(parse_prompts(prompts), "token_embed", call)  # type: ignore[return-value]
        return pooler.embed(parse_prompts(prompts), call)

    def encode(self, prompts: Any, pooling_params: PoolingParamsOrList = None, *, use_tqdm: UseTqdm = True,
               lora_request: Any = None, pooling_task: Optional[str] = None,
               tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[PoolingRequestOutput[PoolingOutput]]:
        """Returns the pooler's output for each prompt as an array. pooling_task: "embed" (usual default): a vector; "token_embed":
        a vector for each token, [tokens, dimensions]; "classify": class probabilities; "token_classify": those of each token,
        [tokens, classes]."""
        pooler = self._pooling()
        given = pooling_params[0] if isinstance(pooling_params, (list, tuple)) and pooling_params else pooling_params
        task = pooling_task or getattr(given, "task", None) or pooler.default_task or "embed"
        return pooler.encode(parse_prompts(prompts), task, (pooling_params, self._names, use_tqdm, lora_request,
                                                            tokenization_kwargs))

    def reward(self, prompts: Any, pooling_params: PoolingParamsOrList = None, *, use_tqdm: UseTqdm = True, lora_request: Any = None,
               tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[PoolingRequestOutput[PoolingOutput]]:
        """Returns the reward model's output for each token: encode() with pooling_task="token_classify"."""
        return self.encode(prompts, pooling_params, use_tqdm=use_tqdm, lora_request=lora_request, pooling_task="token_classify",
                           tokenization_kwargs=tokenization_kwargs)

    def classify(self, prompts: Any, *, pooling_params: PoolingParamsOrList = None, use_tqdm: UseTqdm = True,
                 lora_request: Any = None,
                 tokenization_kwargs: Optional[Dict[str, Any]] = None) -> List[ClassificationRequestOutput]:
        """Returns the class probabilities of a classifier for each prompt."""
        return self._pooling().classify(parse_prompts(prompts), (pooling_params, self._names, use_tqdm, lora_request,
                                                                 tokenization_kwargs))

    def score(self, data_1: Any, data_2: Any, /, *, use_tqdm: UseTqdm = True, pooling_params: PoolingParamsOrList = None,
              lora_request: Any = None, tokenization_kwargs: Optional[Dict[str, Any]] = None,
              chat_template: Optional[str] = None) -> List[ScoringRequestOutput]:
        """Returns the similarity or relevance scores of texts: one with one, one with each of several, or pairs. Embedding models:
        cosine similarity of the vectors; cross-encoders: score of their head. chat_template: for cross-encoders, the template of a
        pair, with messages of the roles "query" and "document"."""
        return self._pooling().score(data_1, data_2, chat_template, (pooling_params, self._names, use_tqdm, lora_request,
                                                                     tokenization_kwargs))

    def _names(self, n: int) -> List[str]:
        first = self._counter
        self._counter += n
        return [str(first + i) for i in range(n)]

    # Properties.

    def get_tokenizer(self) -> Tokenizer:
        """Returns the model's tokenizer. Errors: ValueError, if the checkpoint has none or with skip_tokenizer_init."""
        return tokenizer_of(self._pooler or self._generator(), self.args)

    def apply_chat_template(self, messages: Messages, **options: Any) -> Any:
        """Returns the prompt of a conversation. options: see Tokenizer.apply_chat_template()."""
        return self.get_tokenizer().apply_chat_template(messages, **options)

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns the default sampling parameters: vLLM's, overridden by the checkpoint's generation_config."""
        return default_params(self._generator(), self.args)

    def get_metrics(self) -> List[metrics.Metric]:
        """Returns the engine's current metrics."""
        return metrics.snapshot((self._pooler or self._generator()).metrics(), label_of(self.args))

    @property
    def info(self) -> Dict[str, Any]:
        """Properties of the open model: architecture, backend, sizes in bytes and tokens; for pooling models dimensions and
        labels."""
        return (self._pooler or self._generator()).info()

    @property
    def config(self) -> Dict[str, Any]:
        """The engine's settings, with all automatic values resolved; for pooling models the settings that were given."""
        return dict(self.args.config) if self._pooler is not None else self._generator().config()

    @property
    def llm_engine(self) -> "LLMEngine":
        """The same engine with the interface for single requests."""
        from .engine.llm_engine import LLMEngine

        engine = self._engine() if self._engine is not None else None
        if engine is None:
            engine = LLMEngine(self)
            self._engine = weakref.ref(engine)
        return engine

    @property
    def model_config(self) -> "ModelConfig":
        """The open model's configuration as vLLM's ModelConfig."""
        from .config import model_config_of

        return model_config_of(self.args, self._checkpoint, self.info)

    @property
    def vllm_config(self) -> "VllmConfig":
        """The open engine's configuration as vLLM's VllmConfig."""
        from .config import vllm_config_of

        return vllm_config_of(self.args, self._checkpoint, self.info, self.config)

    @property
    def renderer(self) -> "Renderer":
        """A renderer, which tokenizes prompts before they are passed to generate()."""
        from .renderers import Renderer

        return Renderer(self.get_tokenizer())

    def get_supported_tasks(self) -> List[str]:
        """The tasks that the model supports."""
        if self._pooler is None:
            return ["generate"]
        return self._pooler.tasks()

    def reset_prefix_cache(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        """Clears the prefix cache. Running requests keep their blocks, which does not affect their texts. There is no connector to
        reset."""
        self._generator().reset_prefix_cache()
        return True

    def reset_mm_cache(self) -> None:
        """Does nothing: there is no multimodal cache."""

    def release_kv_cache_memory(self) -> None:
        """Frees the cache, together with the weights, until wake_up()."""
        self.sleep()

    def get_world_size(self, include_dp: bool = True) -> int:
        """Returns the number of ranks that share the model, in all data-parallel engines unless include_dp is False."""
        config = self.config
        ranks: int = config.get("tensor_parallel_size", 1) * config.get("pipeline_parallel_size", 1)
        return ranks * int(config.get("data_parallel_size", 1)) if include_dp else ranks

    def start_profile(self, profile_prefix: Optional[str] = None) -> None:
        """Starts profiling. profile_prefix: prefix of the profile's file name."""
        self._profiler.start(profile_prefix, (self._pooler or self._generator()).metrics())

    def stop_profile(self) -> str:
        """Writes the profile since start_profile() as JSON to profiler_config's folder or the current one; returns the path."""
        return self._profiler.stop((self._pooler or self._generator()).metrics(), self.args.profile_dir)

    def collective_rpc(self, *_: Any, **__: Any) -> Any:
        """Not supported: the engine has no workers that could run a function."""
        raise NotImplementedError("collective_rpc: the engine runs in this process and has no workers")

    def apply_model(self, *_: Any, **__: Any) -> Any:
        """Not supported: the model is no Python object."""
        raise NotImplementedError("apply_model: the model is no torch module")

    def __repr__(self) -> str:
        return f"LLM(model={self.args.config['model']!r}, runner={self.args.runner!r})"


def tokenizer_of(model: Union[Pooler, _core.ModelSession], args: Opening) -> Tokenizer:
    """Returns a model's tokenizer. Errors: ValueError, if there is none."""
    if args.skip_tokenizer:
        raise ValueError("the engine was opened with skip_tokenizer_init: it has no tokenizer to give")
    native = model.native_tokenizer() if isinstance(model, Pooler) else model.tokenizer()
    if native is None:
        raise ValueError("the checkpoint has no tokenizer")
    return Tokenizer(native, model.render_chat, args.chat_template)


def label_of(args: Opening) -> str:
    """Returns the model's name in metrics."""
    return args.served_name or os.path.basename(args.model_name or args.config["model"])


def check_sleep(level: int, mode: str) -> None:
    """Checks the arguments of sleep(). Errors: ValueError."""
    if level not in (0, 1, 2):
        raise ValueError(f"level: expected 0, 1 or 2, got {level}")
    if mode not in ("abort", "wait") and not (mode == "keep" and level == 0):
        raise ValueError(f"mode: expected abort or wait (what runs cannot be kept when its cache is freed; keep is for level 0), "
                         f"got {mode!r}")


def check_tags(tags: Optional[Sequence[str]]) -> None:
    """Checks the tags of wake_up(). Errors: ValueError."""
    for tag in tags or ():
        if tag not in ("weights", "kv_cache", "scheduling"):
            raise ValueError(f"tags: expected weights, kv_cache or scheduling, got {tag!r}")
