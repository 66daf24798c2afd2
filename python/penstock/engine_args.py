"""vLLM's arguments of an engine, as Penstock's engine takes them.

An argument is honoured, or refused with what was expected; those that mean something only on GPUs are taken, and what is lost
is said once. Every setting of Penstock's own (docs/serving.md lists them: threads, preset, packed_cache, policy, ...) is an
argument too.
"""
from __future__ import annotations

import argparse
import difflib
import json
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Set

from ._core import engine_settings
from .pooling_params import PoolerConfig

# Says nothing about what is computed here.
_NO_EFFECT = {
    "trust_remote_code", "disable_log_stats", "served_model_name", "enable_log_requests", "disable_log_requests",
    "disable_custom_all_reduce", "async_scheduling", "enable_chunked_prefill", "distributed_executor_backend",
    "mm_processor_kwargs", "limit_mm_per_prompt", "allowed_local_media_path", "allowed_media_domains", "worker_cls",
    "max_logprobs", "enable_sleep_mode", "skip_tokenizer_init", "offload_num_in_group",
    "offload_prefetch_step", "prefix_caching_hash_algo",
    "fully_sharded_loras",
}
# Means something on GPUs only.
_GPU_ONLY = {
    "swap_space", "cpu_offload_gb", "offload_group_size", "offload_params", "compilation_config", "attention_config", "num_gpu_blocks_override", "max_seq_len_to_capture",
    "max_parallel_loading_workers", "disable_async_output_proc", "use_v2_block_manager", "device", "kernel_config",
    "attention_backend", "disable_cascade_attn", "watermark",
}
_NOT_YET = {
    "kv_transfer_config": "caches are not moved between engines",
    "kv_offloading_size": "use swap_dir and preemption='swap'", "hf_token": "set HF_TOKEN in the environment",
    "download_dir": "set HF_HUB_CACHE in the environment", "config_format": "the format is found by the files",
    "logits_processors": "give them to SamplingParams(logits_processors=[...])",
    "enable_return_routed_experts": "not supported", "return_sampling_mask": "not supported",
    "quantization_config": "use quantization", "allow_deprecated_quantization": "not supported",
    "otlp_traces_endpoint": "not supported", "hf_overrides": "the configuration is the checkpoint's",
}
_RENAMED = {"task": "runner or convert", "guided_decoding_backend": "structured_outputs_config",
            "num_speculative_tokens": "speculative_config", "speculative_model": "speculative_config"}
# What the files of a checkpoint say by themselves.
_BY_THE_FILES = {"awq", "awq_marlin", "gptq", "gptq_marlin", "gguf", "compressed-tensors", "auto-round", "bitsandbytes"}
_KV_DTYPES = {"auto": "auto", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
              "f16": "f16", "bf16": "bf16", "f32": "f32", "int8": "int8"}
_DTYPES = {"auto", "float16", "half", "bfloat16", "float32", "float"}
_SPECULATORS = {"ngram": "ngram", "draft_model": "draft", "draft": "draft", "medusa": "medusa", "mtp": "mtp",
                "eagle3": "eagle3",
                "early-exit": "early-exit", "early_exit": "early-exit", "grammar": "grammar", "off": "off"}

_said: Set[str] = set()


def say_once(text: str) -> None:
    """Warns, the first time."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=4)


@dataclass
class EngineArgs:
    """What an engine is opened with.

    Attributes:
        config: settings of Penstock's engine.
        runner: "generate" or "pooling"; "auto" until the model is known.
        model_name: as it was given.
    """

    config: Dict[str, Any] = field(default_factory=dict)
    runner: str = "auto"
    model_name: str = ""
    chat_template: Optional[str] = None
    generation_config: str = "auto"
    override_generation_config: Dict[str, Any] = field(default_factory=dict)
    pooler_config: PoolerConfig = field(default_factory=PoolerConfig)
    max_logprobs: Optional[int] = None
    profile_dir: str = ""
    enable_lora: bool = False
    given: Dict[str, Any] = field(default_factory=dict)

    def __init__(self, model: str = "", **arguments: Any) -> None:
        self.config = {"model": os.fspath(model)}
        self.runner, self.chat_template, self.generation_config = "auto", None, "auto"
        self.model_name = os.fspath(model)
        self.override_generation_config = {}
        self.pooler_config = PoolerConfig()
        self.max_logprobs = None
        self.profile_dir = ""
        self.enable_lora = False
        self.given = dict(arguments)
        own = set(engine_settings())
        for name, value in arguments.items():
            handler = _HANDLERS.get(name)
            if handler is not None:
                handler(self, value)
            elif name in _GPU_ONLY:
                if value not in (None, False, 0, "auto", ""):
                    say_once(f"{name} means something on GPUs only, and is ignored")
            elif name in _NO_EFFECT:
                if name == "max_logprobs":
                    self.max_logprobs = value
            elif name in _NOT_YET:
                if value not in (None, False, 0, "auto", "", [], {}):
                    raise ValueError(f"{name}: {_NOT_YET[name]}")
            elif name in own:
                if value is not None:
                    self.config[name] = value
            else:
                raise TypeError(_unknown(name, own))

    @classmethod
    def add_cli_args(cls, parser: Any) -> Any:
        """Gives an ArgumentParser an option for every argument; what is not given on the command line is not set, so that
        LLM(**vars(parser.parse_args())) opens a model."""
        taken = {option for action in parser._actions for option in action.option_strings}
        group = parser.add_argument_group("engine")
        for name in cls.known_names():
            flag = "--" + name.replace("_", "-")
            if flag not in taken:
                group.add_argument(flag, dest=name, type=_value_of, nargs="?", const=True, default=argparse.SUPPRESS,
                                   metavar="VALUE")
        return parser

    @classmethod
    def from_cli_args(cls, args: Any) -> "EngineArgs":
        """Of a parsed command line."""
        known = set(cls.known_names())
        return cls(**{name: value for name, value in vars(args).items() if name in known})

    @classmethod
    def known_names(cls) -> List[str]:
        """Every argument there is."""
        return sorted({"model"} | set(_HANDLERS) | _GPU_ONLY | _NO_EFFECT | set(_NOT_YET) | set(engine_settings()))


def _value_of(text: str) -> Any:
    """An option's value: a number, a truth, JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


class AsyncEngineArgs(EngineArgs):
    """The same, for AsyncLLM."""


def _unknown(name: str, own: Set[str]) -> str:
    if name in _RENAMED:
        return f"there is no argument {name!r}; it is {_RENAMED[name]} now"
    near = difflib.get_close_matches(name, EngineArgs.known_names(), n=1, cutoff=0.5)
    return f"there is no argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


Handler = Callable[[EngineArgs, Any], None]


def _is_one(name: str, what: str) -> Handler:
    def handle(_: EngineArgs, value: Any) -> None:
        if value not in (None, 1):
            raise ValueError(f"{name}: {what}; expected 1, got {value}")
    return handle


def _only(name: str, *allowed: Any) -> Handler:
    def handle(_: EngineArgs, value: Any) -> None:
        if value is not None and value not in allowed:
            raise ValueError(f"{name}: expected {' or '.join(map(repr, allowed))}, got {value!r}")
    return handle


def _setting(name: str, convert: Callable[[Any], Any] = lambda value: value) -> Handler:
    def handle(args: EngineArgs, value: Any) -> None:
        if value is not None:
            args.config[name] = convert(value)
    return handle


def _tokenizer(args: EngineArgs, value: Any) -> None:
    if value is not None and os.fspath(value) != args.model_name:
        raise ValueError(f"tokenizer: a model is used with the tokenizer of its own files, got {value!r}")


def _dtype(_: EngineArgs, value: Any) -> None:
    name = str(value).replace("torch.", "")
    if name not in _DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(sorted(_DTYPES))}, got {value!r}")
    if name != "auto":
        say_once("dtype: weights stay as the checkpoint has them (quantization rounds them), and sums are made in float32")


def _quantization(args: EngineArgs, value: Any) -> None:
    if value is not None and value not in _BY_THE_FILES:
        args.config["quantize"] = str(value)


def _enable_lora(args: EngineArgs, value: Any) -> None:
    args.enable_lora = bool(value)


def _max_loras(args: EngineArgs, value: Any) -> None:
    """Those of a batch are those in memory, which is the processor's: the larger number holds."""
    if value is not None:
        args.config["max_loras"] = max(value, args.config.get("max_loras", 0))


def _max_model_len(args: EngineArgs, value: Any) -> None:
    if value in (None, "auto", -1):
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_model_len: expected at least 1, got {value!r}")
    args.config["max_model_len"] = value


def _kv_cache_dtype(args: EngineArgs, value: Any) -> None:
    if value is None:
        return
    if value not in _KV_DTYPES:
        raise ValueError(f"kv_cache_dtype: expected one of {', '.join(_KV_DTYPES)}, got {value!r}")
    args.config["kv_cache_dtype"] = _KV_DTYPES[value]


def _mamba_cache_dtype(args: EngineArgs, value: Any) -> None:
    """All states have one type here; mamba_ssm_cache_dtype, where it is given too, has the last word."""
    if value not in (None, "auto", "float32", "bfloat16"):
        raise ValueError(f"mamba_cache_dtype: expected auto, float32 or bfloat16, got {value!r}")
    if value not in (None, "auto") and args.given.get("mamba_ssm_cache_dtype") in (None, "auto"):
        args.config["mamba_ssm_cache_dtype"] = value


def _scheduling_policy(args: EngineArgs, value: Any) -> None:
    policies = {"fcfs": "continuous", "priority": "priority"}
    if value is None:
        return
    if value not in policies:
        raise ValueError(f"scheduling_policy: expected fcfs or priority, got {value!r}")
    args.config["policy"] = policies[value]


def _speculative_config(args: EngineArgs, value: Any) -> None:
    if not value:
        return
    if not isinstance(value, dict):
        raise TypeError(f"speculative_config: expected a dictionary, got {type(value).__name__}")
    left = dict(value)
    model = left.pop("model", None)
    method = left.pop("method", None) or ("draft_model" if model else None)
    if method not in _SPECULATORS:
        raise ValueError(f"speculative_config: method: expected one of {', '.join(_SPECULATORS)}, got {method!r}")
    args.config["spec"] = _SPECULATORS[method]
    if model is not None and method != "ngram":
        args.config["spec_heads" if method in ("medusa", "eagle3") else "draft_model"] = os.fspath(model)
    length = left.pop("num_speculative_tokens", None)
    if length is not None:
        args.config["spec_length"] = str(length)
    for name in ("prompt_lookup_max", "prompt_lookup_min"):
        if left.pop(name, None) is not None:
            say_once(f"speculative_config: {name} is ignored: the longest repeat is found")
    if left.pop("draft_tensor_parallel_size", 1) not in (None, 1):
        raise ValueError("speculative_config: draft_tensor_parallel_size: expected 1")
    for name in ("corpus", "exit_layer"):
        if name in left:
            args.config[f"spec_{name}"] = left.pop(name)
    if left:
        raise ValueError(f"speculative_config: {next(iter(left))!r} is not supported")


def _spec_alias(key: str) -> Handler:
    def handle(args: EngineArgs, value: Any) -> None:
        if value is None:
            return
        names = {"spec_method": "spec", "spec_model": "draft_model", "spec_tokens": "spec_length"}
        if key == "spec_method" and value not in _SPECULATORS:
            raise ValueError(f"spec_method: expected one of {', '.join(_SPECULATORS)}, got {value!r}")
        args.config[names[key]] = _SPECULATORS[value] if key == "spec_method" else str(value)
    return handle


def _runner(args: EngineArgs, value: Any) -> None:
    if value not in (None, "auto", "generate", "pooling"):
        raise ValueError(f"runner: expected auto, generate or pooling, got {value!r}")
    if value not in (None, "auto"):
        args.runner = value


def _convert(args: EngineArgs, value: Any) -> None:
    if value not in (None, "auto", "none", "embed", "classify"):
        raise ValueError(f"convert: expected auto, none, embed or classify, got {value!r}")
    if value in ("embed", "classify"):
        args.runner = "pooling"


def _chat_template(args: EngineArgs, value: Any) -> None:
    if value is None:
        return
    text = os.fspath(value)
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    elif "{" not in text:
        raise FileNotFoundError(f"chat_template: {text!r} is neither a file nor a template")
    args.chat_template = text


def _generation_config(args: EngineArgs, value: Any) -> None:
    if value not in (None, "auto", "vllm"):
        raise ValueError(f"generation_config: expected auto (the checkpoint's) or vllm (the library's defaults), got {value!r}")
    args.generation_config = value or "auto"


def _pooler_config(args: EngineArgs, value: Any) -> None:
    if value is None:
        return
    args.pooler_config = PoolerConfig(**value) if isinstance(value, dict) else value


def _revision(args: EngineArgs, value: Any) -> None:
    if value is not None and "@" not in args.model_name and not os.path.exists(args.model_name):
        args.config["model"] = f"{args.model_name}@{value}"


def _profiler_config(args: EngineArgs, value: Any) -> None:
    if isinstance(value, dict):
        args.profile_dir = value.get("torch_profiler_dir") or value.get("profiler_dir") or ""


def _override(args: EngineArgs, value: Any) -> None:
    args.override_generation_config = dict(value or {})


def _structured_outputs(_: EngineArgs, value: Any) -> None:
    backend = value.get("backend") if isinstance(value, dict) else getattr(value, "backend", None)
    if backend not in (None, "auto"):
        say_once(f"structured_outputs_config: backend {backend!r} is ignored: grammars are the engine's own")


_HANDLERS: Dict[str, Handler] = {
    "enable_lora": _enable_lora, "max_loras": _max_loras, "max_cpu_loras": _max_loras, "lora_dtype": _only("lora_dtype", "auto"),
    "tokenizer": _tokenizer,
    "tokenizer_mode": _only("tokenizer_mode", "auto", "hf", "slow", "mistral"),
    "tokenizer_revision": lambda args, value: None,
    "dtype": _dtype,
    "quantization": _quantization,
    "quantize": _setting("quantize"),
    "load_format": _only("load_format", "auto", "safetensors", "gguf", "hf", "mistral"),
    "tensor_parallel_size": _setting("tensor_parallel_size", int),
    "pipeline_parallel_size": _setting("pipeline_parallel_size", int),
    "data_parallel_size": _setting("data_parallel_size", int),
    "max_model_len": _max_model_len,
    "kv_cache_dtype": _kv_cache_dtype,
    "mamba_cache_dtype": _mamba_cache_dtype,
    "kv_cache_memory_bytes": _setting("kv_cache_memory", int),
    "gpu_memory_utilization": _setting("memory_utilization", float),
    "seed": _setting("seed", int),
    "scheduling_policy": _scheduling_policy,
    "max_num_queued_reqs": _setting("max_queued_requests", int),
    "max_num_queued_tokens": _setting("max_queued_tokens", int),
    "speculative_config": _speculative_config,
    "spec_method": _spec_alias("spec_method"),
    "spec_model": _spec_alias("spec_model"),
    "spec_tokens": _spec_alias("spec_tokens"),
    "runner": _runner,
    "convert": _convert,
    "chat_template": _chat_template,
    "generation_config": _generation_config,
    "override_generation_config": _override,
    "pooler_config": _pooler_config,
    "override_pooler_config": _pooler_config,
    "revision": _revision,
    "code_revision": lambda args, value: None,
    "profiler_config": _profiler_config,
    "structured_outputs_config": _structured_outputs,
    "logprobs_mode": _only("logprobs_mode", "raw_logprobs"),
    "stream_interval": _only("stream_interval", 1),
    "model_impl": _only("model_impl", "auto", "vllm"),
}
