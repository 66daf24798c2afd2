"""The rules of an engine's arguments: each one is applied, refused, or ignored because it does not affect the results here."""
from __future__ import annotations

import difflib
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Type

from ._core import engine_settings
from .pooling_params import PoolerConfig


@dataclass
class StructuredDefaults:
    """Defaults of structured outputs for requests that do not set them."""

    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    additional_properties: bool = False


@dataclass
class Opening:
    """The interpreted arguments of an engine.

    Attributes:
        config: settings of Penstock's engine.
        runner: "generate" or "pooling"; "auto" until the model is known.
        model_name: name of the model as it was given.
        quantization: vLLM's name of the requested method; penstock._checkpoint checks it against the checkpoint.
        n_outside: number of externally started processes (torchrun) and the rank of this one; (1, 0): none.
    """

    config: Dict[str, Any]
    model_name: str = ""
    runner: str = "auto"
    chat_template: Optional[str] = None
    generation_config: str = "auto"
    override_generation_config: Dict[str, Any] = field(default_factory=dict)
    pooler_config: PoolerConfig = field(default_factory=PoolerConfig)
    structured: StructuredDefaults = field(default_factory=StructuredDefaults)
    hf_overrides: Dict[str, Any] = field(default_factory=dict)
    quantization: Optional[str] = None
    load_format: str = "auto"
    logits_processors: Sequence[Any] = ()
    max_logprobs: Optional[int] = None
    served_name: Optional[str] = None
    skip_tokenizer: bool = False
    trace_replay: bool = False
    stream_interval: int = 1
    shutdown_timeout: float = 0.0
    profile_dir: str = ""
    enable_lora: bool = False
    most_pictures: Optional[int] = None  # in a prompt
    most_videos: Optional[int] = None
    most_sounds: Optional[int] = None
    mm_processor_kwargs: Dict[str, Any] = field(default_factory=dict)
    n_outside: Tuple[int, int] = (1, 0)
    given: Dict[str, Any] = field(default_factory=dict)


Rule = Callable[[Opening, str, Any], None]

_said: Set[str] = set()


def say_once(text: str) -> None:
    """Warns once per text."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=2)


def settings_of(value: Any, name: str) -> Dict[str, Any]:
    """Returns the settings that are not None of a dictionary or an object of penstock.config. Errors: TypeError."""
    if hasattr(value, "as_dict"):
        value = value.as_dict()
    if not isinstance(value, Mapping):
        raise TypeError(f"{name}: expected a dictionary, got {type(value).__name__}")
    return {key: each for key, each in value.items() if each is not None}


# --- Kinds of rules.

def _nothing(opening: Opening, name: str, value: Any) -> None:
    """Ignores the argument, which does not affect the results here."""


def _gpu(opening: Opening, name: str, value: Any) -> None:
    if value not in (None, False, 0, "auto", "", {}):
        say_once(f"{name} means something on GPUs only, and is ignored")


def _device_ids(opening: Opening, name: str, value: Any) -> None:
    if value is not None and list(value) not in ([], [0], ["0"]):
        raise ValueError(f"{name}: expected [0], got {value!r}; CUDA_VISIBLE_DEVICES chooses the GPU")
    _gpu(opening, name, value)


def _refused(why: str) -> Rule:
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value not in (None, False, 0, "auto", "", [], {}):
            raise ValueError(f"{name}: {why}")
    return rule


def _only(*allowed: Any) -> Rule:
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value is not None and value not in allowed:
            raise ValueError(f"{name}: expected {' or '.join(map(repr, allowed))}, got {value!r}")
    return rule


def _setting(setting: str = "", convert: Callable[[Any], Any] = lambda value: value) -> Rule:
    """Returns the rule of an argument that sets an engine setting; `setting`: its name, if it differs from the argument's."""
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value is None:
            return
        key = setting or name
        if key != name and opening.given.get(key) is not None:
            raise ValueError(f"{name}: is {key} by another name, which is given too")
        opening.config[key] = convert(value)
    return rule


def _kept(attribute: str, kind: Type[Any]) -> Rule:
    """Returns the rule of an argument that is stored in an attribute of Opening."""
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value is not None:
            setattr(opening, attribute, kind(value))
    return rule


def _at_most(setting: str) -> Rule:
    """Returns the rule of an argument that lowers an engine setting, and gives it where nothing else does."""
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value is not None:
            opening.config[setting] = min(int(value), opening.config.get(setting) or int(value))
    return rule


def _at_least(least: int, rule: Rule) -> Rule:
    def checked(opening: Opening, name: str, value: Any) -> None:
        if value is not None and (not isinstance(value, (int, float)) or isinstance(value, bool) or value < least):
            raise ValueError(f"{name}: expected at least {least}, got {value!r}")
        rule(opening, name, value)
    return checked


# --- Rules of single arguments.

_KV_DTYPES = {"auto": "auto", "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
              "f16": "f16", "bf16": "bf16", "f32": "f32", "int8": "int8", "int4": "int4"}
_DTYPES = {"auto", "float16", "half", "bfloat16", "float32", "float"}
_SPECULATORS = {"ngram": "ngram", "draft_model": "draft", "draft": "draft", "medusa": "medusa", "mtp": "mtp", "eagle3": "eagle3",
                "early-exit": "early-exit", "early_exit": "early-exit", "grammar": "grammar", "off": "off"}
# Fields of speculative_config that only affect how drafts are computed and are ignored: texts do not depend on drafts.
_HOW_TO_DRAFT = {"prompt_lookup_max", "prompt_lookup_min", "disable_padded_drafter_batch", "parallel_drafting", "enforce_eager",
                 "max_model_len", "disable_by_batch_size", "attention_backend", "use_local_argmax_reduction", "disable_logprobs"}
_NOT_AT_RANDOM = "states are rounded to the nearest number"
_GRAMMAR_BACKENDS = ("auto", "xgrammar", "guidance", "outlines", "lm-format-enforcer")


def _tokenizer(opening: Opening, name: str, value: Any) -> None:
    if value is not None and os.fspath(value) != opening.model_name:
        raise ValueError(f"{name}: a model is used with the tokenizer of its own files, got {value!r}")


def _same_revision(opening: Opening, name: str, value: Any) -> None:
    if value is not None and value != opening.given.get("revision"):
        raise ValueError(f"{name}: the tokenizer is that of the model's files: expected revision "
                         f"({opening.given.get('revision')!r}), got {value!r}")


def _dtype(opening: Opening, name: str, value: Any) -> None:
    kind = str(value).replace("torch.", "")
    if kind not in _DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(sorted(_DTYPES))}, got {value!r}")
    if kind != "auto":
        say_once("dtype: weights stay as the checkpoint has them (quantization rounds them), and sums are made in float32")


def _ask_quantization(opening: Opening, method: str) -> None:
    if opening.quantization not in (None, method):
        raise ValueError(f"quantization: expected one, got {opening.quantization} and {method}")
    opening.quantization = method


def _quantization(opening: Opening, name: str, value: Any) -> None:
    """Requests a quantization. "bitsandbytes" is ignored if load_in_4bit, load_in_8bit or quantization_config has set its
    variant."""
    if value is None or (value == "bitsandbytes" and str(opening.quantization).startswith("bitsandbytes")):
        return
    _ask_quantization(opening, "bitsandbytes-4bit" if value == "bitsandbytes" else str(value))


def _load_in_bits(method: str) -> Rule:
    def rule(opening: Opening, name: str, value: Any) -> None:
        if value:
            _ask_quantization(opening, method)
    return rule


def _enable_lora(opening: Opening, name: str, value: Any) -> None:
    opening.enable_lora = bool(value)


def _max_loras(opening: Opening, name: str, value: Any) -> None:
    """max_loras and max_cpu_loras: adapters of a batch are in CPU memory, so that one limit, the larger, applies to both."""
    if value is not None:
        opening.config["max_loras"] = max(value, opening.config.get("max_loras", 0))


def _max_model_len(opening: Opening, name: str, value: Any) -> None:
    if value in (None, "auto", -1):
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"max_model_len: expected at least 1, got {value!r}")
    opening.config["max_model_len"] = value


def _kv_cache_dtype(opening: Opening, name: str, value: Any) -> None:
    if value is None:
        return
    if value not in _KV_DTYPES:
        raise ValueError(f"kv_cache_dtype: expected one of {', '.join(_KV_DTYPES)}, got {value!r}")
    opening.config["kv_cache_dtype"] = _KV_DTYPES[value]


def _mamba_cache_dtype(opening: Opening, name: str, value: Any) -> None:
    """All recurrent states have the same type; mamba_ssm_cache_dtype, if given, takes precedence."""
    if value not in (None, "auto", "float32", "bfloat16"):
        raise ValueError(f"mamba_cache_dtype: expected auto, float32 or bfloat16, got {value!r}")
    if value not in (None, "auto") and opening.given.get("mamba_ssm_cache_dtype") in (None, "auto"):
        opening.config["mamba_ssm_cache_dtype"] = value


def _mamba_config(opening: Opening, name: str, value: Any) -> None:
    left = settings_of(value or {}, name)
    if left.pop("enable_stochastic_rounding", False):
        raise ValueError(f"{name}: enable_stochastic_rounding: {_NOT_AT_RANDOM}")
    _gpu(opening, name, left)


def _kv_store(opening: Opening, name: str, value: Any) -> None:
    if opening.given.get("kv_offloading_size") is None:
        opening.config["kv_store"] = value


def _kv_offloading_backend(opening: Opening, name: str, value: Any) -> None:
    if value not in (None, "native"):
        raise ValueError(f"{name}: expected native, got {value!r}: blocks are kept by the engine (kv_store)")


def _kv_offloading_size(opening: Opening, name: str, value: Any) -> None:
    """GiB of the host's memory that keep blocks: the first part of kv_store, in front of what the argument of that name says."""
    if value is None:
        return
    size = int(float(value) * 2**30)
    if size < 2**20:
        raise ValueError(f"{name}: expected GiB of memory, at least 1 MiB, got {value!r}")
    others = opening.given.get("kv_store")
    if opening.given.get("kv_transfer_config"):
        raise ValueError(f"{name} and kv_transfer_config: give kv_store instead, as memory:4G,/folder, and role")
    if others and str(others).startswith("memory:"):
        raise ValueError(f"{name} and kv_store both say how much memory keeps blocks")  # not which: it may have a password
    opening.config["kv_store"] = f"memory:{size}" + (f",{others}" if others else "")


def _scheduling_policy(opening: Opening, name: str, value: Any) -> None:
    policies = {"fcfs": "continuous", "priority": "priority"}
    if value is None:
        return
    if value not in policies:
        raise ValueError(f"scheduling_policy: expected fcfs or priority, got {value!r}")
    opening.config["policy"] = policies[value]


def _speculative_config(opening: Opening, name: str, value: Any) -> None:
    if not value:
        return
    left = settings_of(value, name)
    model = left.pop("model", None)
    method = left.pop("method", None) or ("draft_model" if model else None)
    if method not in _SPECULATORS:
        raise ValueError(f"speculative_config: method: expected one of {', '.join(_SPECULATORS)}, got {method!r}")
    opening.config["spec"] = _SPECULATORS[method]
    if model is not None and method != "ngram":
        opening.config["spec_heads" if method in ("medusa", "eagle3") else "draft_model"] = os.fspath(model)
    length = left.pop("num_speculative_tokens", None)
    if length is not None:
        opening.config["spec_length"] = str(length)
    if left.pop("draft_tensor_parallel_size", 1) != 1:
        raise ValueError("speculative_config: draft_tensor_parallel_size: expected 1")
    if left.pop("rejection_sample_method", "strict") not in ("strict", "standard", "rejection_sampler"):
        raise ValueError("speculative_config: rejection_sample_method: texts are those without speculation; expected strict")
    for key in ("corpus", "exit_layer"):
        if key in left:
            opening.config[f"spec_{key}"] = left.pop(key)
    for key in _HOW_TO_DRAFT.intersection(left):
        if left.pop(key):
            say_once(f"speculative_config: {key} is ignored: drafts are made in one way, which texts do not depend on")
    for key, each in left.items():
        if each:
            raise ValueError(f"speculative_config: {key!r} is not supported")


def _spec_alias(opening: Opening, name: str, value: Any) -> None:
    if value is None:
        return
    names = {"spec_method": "spec", "spec_model": "draft_model", "spec_tokens": "spec_length"}
    if name == "spec_method" and value not in _SPECULATORS:
        raise ValueError(f"spec_method: expected one of {', '.join(_SPECULATORS)}, got {value!r}")
    opening.config[names[name]] = _SPECULATORS[value] if name == "spec_method" else str(value)


def _runner(opening: Opening, name: str, value: Any) -> None:
    if value not in (None, "auto", "generate", "pooling"):
        raise ValueError(f"runner: expected auto, generate or pooling, got {value!r}")
    if value not in (None, "auto"):
        opening.runner = value


def _convert(opening: Opening, name: str, value: Any) -> None:
    if value not in (None, "auto", "none", "embed", "classify"):
        raise ValueError(f"convert: expected auto, none, embed or classify, got {value!r}")
    if value in ("embed", "classify"):
        if opening.given.get("runner") == "generate":
            raise ValueError(f"convert: {value!r} is for runner='pooling'")
        opening.runner = "pooling"


def _chat_template(opening: Opening, name: str, value: Any) -> None:
    if value is None:
        return
    text = os.fspath(value)
    if os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    elif "{" not in text:
        raise FileNotFoundError(f"chat_template: {text!r} is neither a file nor a template")
    opening.chat_template = text


def _generation_config(opening: Opening, name: str, value: Any) -> None:
    if value not in (None, "auto", "vllm"):
        raise ValueError(f"generation_config: expected auto (the checkpoint's) or vllm (the library's defaults), got {value!r}")
    opening.generation_config = value or "auto"


def _pooler_config(opening: Opening, name: str, value: Any) -> None:
    if value is not None:
        opening.pooler_config = value if isinstance(value, PoolerConfig) else PoolerConfig(**settings_of(value, name))


def _revision(opening: Opening, name: str, value: Any) -> None:
    if value is not None and "@" not in opening.model_name and not os.path.exists(opening.model_name):
        opening.config["model"] = f"{opening.model_name}@{value}"


def _profiler_config(opening: Opening, name: str, value: Any) -> None:
    if value is None:
        return
    left = settings_of(value, name)
    opening.profile_dir = str(left.pop("torch_profiler_dir", "") or left.pop("profiler_dir", "") or "")
    if left.get("profiler") not in (None, "torch", "penstock"):
        raise ValueError(f"profiler_config: profiler: expected torch, got {left['profiler']!r}")
    if any(each for key, each in left.items() if key != "profiler"):
        say_once("profiler_config: the profile is a JSON file of the engine's counters and times; other settings are ignored")


def _override(opening: Opening, name: str, value: Any) -> None:
    opening.override_generation_config = dict(value or {})


def _hf_overrides(opening: Opening, name: str, value: Any) -> None:
    if callable(value):
        raise ValueError("hf_overrides: expected a dictionary: a function would be given transformers' object")
    opening.hf_overrides = dict(settings_of(value or {}, name))


def _quantization_config(opening: Opening, name: str, value: Any) -> None:
    if value is None:
        return
    left = settings_of(value, name)
    if left.pop("quant_method", "bitsandbytes") != "bitsandbytes":
        raise ValueError(f"quantization_config: expected bitsandbytes' (load_in_4bit, load_in_8bit); the method of the checkpoint's "
                         f"own files is found by itself")
    four, eight = bool(left.pop("load_in_4bit", False)), bool(left.pop("load_in_8bit", False))
    if four == eight:
        raise ValueError("quantization_config: expected load_in_4bit or load_in_8bit")
    kind = str(left.pop("bnb_4bit_quant_type", "nf4"))
    if kind not in ("nf4", "fp4"):
        raise ValueError(f"quantization_config: bnb_4bit_quant_type: expected nf4 or fp4, got {kind!r}")
    for key in ("bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_4bit_use_double_quant", "_load_in_4bit",
                "_load_in_8bit", "llm_int8_threshold"):
        left.pop(key, None)
    for key, each in left.items():
        if each:
            raise ValueError(f"quantization_config: {key!r} is not supported")
    _ask_quantization(opening, "bitsandbytes-8bit" if eight else "bitsandbytes-4bit" if kind == "nf4" else "bitsandbytes-fp4")


def _structured_outputs(opening: Opening, name: str, value: Any) -> None:
    left = settings_of(value or {}, name)
    backend = left.pop("backend", "auto")
    if backend not in _GRAMMAR_BACKENDS:
        raise ValueError(f"structured_outputs_config: backend: expected one of {', '.join(_GRAMMAR_BACKENDS)}, got {backend!r}")
    if backend != "auto":
        say_once(f"structured_outputs_config: backend {backend!r} is ignored: grammars are the engine's own")
    opening.structured = StructuredDefaults(bool(left.pop("disable_any_whitespace", False)),
                                            bool(left.pop("disable_additional_properties", False)),
                                            bool(left.pop("additional_properties", False)))
    if opening.structured.disable_additional_properties and opening.structured.additional_properties:
        raise ValueError("structured_outputs_config: additional_properties: cannot be True beside disable_additional_properties")
    left.pop("disable_fallback", None)  # there is only one backend, without a fallback
    left.pop("enable_in_reasoning", None)  # constraints apply from the first token on
    for key, each in left.items():
        if each:
            raise ValueError(f"structured_outputs_config: {key!r} is not supported")


def _executor(opening: Opening, name: str, value: Any) -> None:
    """With external_launcher each process that torchrun started computes the whole model; texts are equal since random numbers
    are."""
    if value is None or value in ("mp", "ray", "uni"):
        return
    if value != "external_launcher":
        raise ValueError(f"distributed_executor_backend: expected mp, ray, uni or external_launcher, got {value!r}")
    if "RANK" not in os.environ:
        raise ValueError("distributed_executor_backend: external_launcher: expected a process of torchrun, which sets RANK")
    sizes = {key: int(opening.given.get(key) or 1) for key in ("tensor_parallel_size", "pipeline_parallel_size",
                                                               "data_parallel_size")}
    within = sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]
    opening.n_outside = sizes["data_parallel_size"], int(os.environ["RANK"]) // within % sizes["data_parallel_size"]
    for key in sizes:
        opening.config.pop(key, None)


def _parallel(opening: Opening, name: str, value: Any) -> None:
    if opening.given.get("distributed_executor_backend") != "external_launcher":
        opening.config[name] = int(value)


def _logits_processors(opening: Opening, name: str, value: Any) -> None:
    opening.logits_processors = tuple(value or ())


def _served_name(opening: Opening, name: str, value: Any) -> None:
    names = [value] if isinstance(value, str) else list(value or [])
    opening.served_name = names[0] if names else None


def _own(*names: str) -> Dict[str, Rule]:
    return {name: _setting() for name in names}


def _limit_mm(opening: Opening, name: str, value: Any) -> None:
    """Reads {"image": N, "video": {"count": N}, "audio": N}. Errors: ValueError (also another kind of input)."""
    if unknown := set(value or {}) - {"image", "video", "audio"}:
        raise ValueError(f"{name}: expected image, video or audio, got {', '.join(sorted(map(repr, unknown)))}")
    def most_of(kind: str) -> Optional[int]:
        most = (value or {}).get(kind)
        if isinstance(most, Mapping):
            most = most.get("count")
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise ValueError(f"{name}: expected a number of {kind}s, got {most!r}")
        return most
    opening.most_pictures, opening.most_videos, opening.most_sounds = most_of("image"), most_of("video"), most_of("audio")


# Connectors of vLLM whose engines share a folder, as those with a kv_store do.
_FOLDER_CONNECTORS = ("ExampleConnector", "SharedStorageConnector")
_KV_ROLES = {"kv_producer": "prefill", "kv_consumer": "decode", "kv_both": "both"}
# Settings of vLLM's buffers and connections between two engines, which a store does not have.
_OF_CONNECTIONS = frozenset(("engine_id", "kv_buffer_device", "kv_buffer_size", "kv_ip", "kv_port", "kv_rank", "kv_parallel_size",
                             "enable_permute_local_kv"))


def _kv_transfer_config(opening: Opening, name: str, value: Any) -> None:
    if not value:
        return
    left = settings_of(value, name)
    connector, role = left.pop("kv_connector", None), left.pop("kv_role", None)
    if connector not in _FOLDER_CONNECTORS:
        raise ValueError(f"{name}: kv_connector: expected {' or '.join(_FOLDER_CONNECTORS)}, got {connector!r}; engines share blocks "
                         "by a folder or a Redis: kv_store and role")
    if role not in _KV_ROLES:
        raise ValueError(f"{name}: kv_role: expected {', '.join(_KV_ROLES)}, got {role!r}")
    for setting in ("kv_store", "role"):
        if opening.given.get(setting) is not None:
            raise ValueError(f"{name}: says what {setting} is, which is given too")
    extra = settings_of(left.pop("kv_connector_extra_config", None) or {}, f"{name}: kv_connector_extra_config")
    opening.config["kv_store"] = os.fspath(extra.pop("shared_storage_path", "/tmp"))
    opening.config["role"] = _KV_ROLES[role]
    if left.pop("kv_load_failure_policy", "recompute") != "recompute":
        raise ValueError(f"{name}: kv_load_failure_policy: expected 'recompute': what cannot be loaded is computed")
    for key, each in {**left, **extra}.items():
        if each and key not in _OF_CONNECTIONS:
            raise ValueError(f"{name}: {key!r} is not supported")


_TEXT_ONLY = _refused("models are given text or token ids")
_ONE_HOST = "engines of several hosts are started by penstock serve --hosts (docs/guide/gpus-and-ranks.md)"

# The rule of each argument. Rules run in the order of this table.
RULES: Dict[str, Rule] = {
    # The model and its files.
    "runner": _runner, "convert": _convert, "revision": _revision, "code_revision": _nothing, "tokenizer": _tokenizer,
    "tokenizer_mode": _only("auto", "hf", "slow", "mistral"), "tokenizer_revision": _same_revision,
    **dict.fromkeys(("skip_tokenizer_init", "tokens_only"), _kept("skip_tokenizer", bool)), "trust_remote_code": _nothing,
    "download_dir": _refused("set HF_HUB_CACHE in the environment"), "hf_token": _refused("set HF_TOKEN in the environment"),
    "hf_config_path": _refused("the configuration lies beside the weights; hf_overrides changes it"),
    "hf_overrides": _hf_overrides, "config_format": _only("auto", "hf", "mistral"),
    "model_impl": _only("auto", "vllm"), "model_loader_extra_config": _gpu, "safetensors_load_strategy": _nothing,
    "ignore_patterns": _refused("what is downloaded is chosen by the model's name (docs/guide/models.md)"),
    "safetensors_prefetch_num_threads": _nothing, "safetensors_prefetch_block_size": _nothing, "engram_config": _gpu,
    "model_weights": _refused("weights lie beside the configuration"),
    "model_class_overrides": _refused("models are no classes of Python"),
    "use_tqdm_on_load": _nothing, "pt_load_map_location": _nothing, "served_model_name": _served_name,
    "chat_template": _chat_template, "generation_config": _generation_config, "override_generation_config": _override,
    "pooler_config": _pooler_config, "override_pooler_config": _pooler_config,
    # Number types and quantization.
    "dtype": _dtype, "seed": _setting("seed", int), "quantization_config": _quantization_config,
    "load_in_4bit": _load_in_bits("bitsandbytes-4bit"), "load_in_8bit": _load_in_bits("bitsandbytes-8bit"),
    "quantization": _quantization, "allow_deprecated_quantization": _nothing, "quantize": _setting(),
    "load_format": _only("auto", "safetensors", "gguf", "hf", "mistral", "bitsandbytes"),
    "kv_cache_dtype": _kv_cache_dtype, "calculate_kv_scales": _refused("the cache has no scales of a checkpoint"),
    "kv_cache_dtype_skip_layers": _refused("the cache has one type in all layers"),
    "enable_mamba_cache_stochastic_rounding": _refused(_NOT_AT_RANDOM), "mamba_cache_philox_rounds": _nothing,
    "mamba_cache_dtype": _mamba_cache_dtype, **_own("mamba_ssm_cache_dtype", "batch_invariant"),
    "disable_sliding_window": _refused("windows are those of the model; give max_model_len"),
    "logprobs_mode": _only("raw_logprobs"), "max_logprobs": _kept("max_logprobs", int),
    "enable_trace_replay": _kept("trace_replay", bool), "use_fp64_gumbel": _gpu,
    "watermark_config": _refused("not supported"), "diffusion_config": _refused("not supported"),
    "logits_processors": _logits_processors, "structured_outputs_config": _structured_outputs,
    "reasoning_parser": _refused("texts are as the model wrote them; the server takes them apart (--reasoning-parser)"),
    "reasoning_parser_plugin": _refused("parsers are those of penstock serve"),
    "reasoning_config": _refused("marks of reasoning are those of the chat template"),
    # Memory and steps.
    "max_model_len": _max_model_len, "gpu_memory_utilization": _setting("memory_utilization", float),
    "kv_cache_memory_bytes": _setting("kv_cache_memory", int),
    "num_gpu_blocks_override": _refused("give the size of the cache by kv_cache_memory_bytes"),
    **_own("max_num_seqs", "max_num_batched_tokens", "memory_utilization", "kv_cache_memory", "block_size",
           "enable_prefix_caching", "role", "prefix_history", "state_snapshot_interval", "kv_layout",
           "packed_cache", "experts_offload", "n_cpu_moe", "cpu_moe", "expert_cache_memory",
           "override_tensor", "prefill_chunk", "policy", "max_batch_size", "max_wait_ms",
           "max_tokens_per_batch", "priority_ageing_s", "preset", "max_queued_requests", "max_queued_tokens"),
    "max_num_active_seqs": _at_least(1, _at_most("max_num_seqs")),
    "max_num_scheduled_tokens": _at_least(1, _at_most("max_num_batched_tokens")),
    "prefix_match_unit": _gpu, "prefix_cache_retention_interval": _gpu, "enable_mamba_shared_prefix_checkpoint": _gpu,
    "swa_bounded_replay": _nothing, "long_prefill_token_threshold_adaptive": _gpu, "prefill_schedule_interval": _gpu,
    "scheduler_reserve_full_isl": _nothing, "sleep_mode_backend": _nothing, "sleep_mode_offload_cudagraph": _nothing,
    "sleep_preserve_parameter_names": _refused("a model sleeps as a whole"),
    "prefix_caching_hash_algo": _nothing, "swap_space": _gpu, "enable_chunked_prefill": _nothing,
    "max_num_partial_prefills": _gpu, "max_long_partial_prefills": _gpu, "long_prefill_token_threshold": _gpu,
    "scheduling_policy": _scheduling_policy, "max_num_queued_reqs": _setting("max_queued_requests", int),
    "max_num_queued_tokens": _setting("max_queued_tokens", int), "async_scheduling": _nothing,
    "stream_interval": _at_least(1, _kept("stream_interval", int)),
    "shutdown_timeout": _at_least(0, _kept("shutdown_timeout", float)),
    "scheduler_cls": _refused("policies are the engine's own: policy"), "watermark": _gpu, "enable_sleep_mode": _nothing,
    # Devices and parallelism.
    **_own("backend", "threads", "thread_weight", "rank_wire_dtype", "enforce_eager"),
    "tensor_parallel_size": _parallel, "pipeline_parallel_size": _parallel, "data_parallel_size": _parallel,
    "distributed_executor_backend": _executor, "worker_cls": _refused("the engine has no workers of Python"),
    "worker_extension_cls": _refused("the engine has no workers of Python"),
    # Speculation.
    "speculative_config": _speculative_config, "spec_method": _spec_alias, "spec_model": _spec_alias,
    "spec_tokens": _spec_alias, **_own("spec", "draft_model", "spec_length", "spec_corpus", "spec_heads", "spec_exit_layer"),
    # Adapters.
    "enable_lora": _enable_lora, "max_loras": _max_loras, "max_cpu_loras": _max_loras, **_own("max_lora_rank"),
    "lora_dtype": _only("auto"), "fully_sharded_loras": _nothing, "default_mm_loras": _TEXT_ONLY,
    "lora_target_modules": _refused("adapters act where their files say"), "enable_tower_connector_lora": _nothing,
    "specialize_active_lora": _nothing, "enable_mixed_moe_lora_format": _nothing,
    "enable_moe_shared_loras": _refused("adapters act where their files say"), "max_lora_cls_labels": _nothing,
    # Logging and reports.
    **dict.fromkeys(("disable_log_stats", "enable_log_requests", "disable_log_requests", "aggregate_engine_logging",
                     "show_hidden_metrics_for_version", "kv_cache_metrics", "kv_cache_metrics_sample",
                     "enable_logging_iteration_details", "logging_config", "log_level", "log_config_file", "jit_monitor_mode",
                     "jit_monitor_verbose", "watchdog_config", "fail_on_environ_validation"), _nothing),
    **dict.fromkeys(("cudagraph_metrics", "enable_layerwise_nvtx_tracing", "enable_mfu_metrics", "enable_mm_processor_stats"), _gpu),
    "custom_histogram_buckets": _refused("the buckets of get_metrics() are fixed"), "aux_output_config": _refused("not supported"),
    "per_request_spec_decode_metrics": _only("none"),
    "profiler_config": _profiler_config, "otlp_traces_endpoint": _refused("traces are the server's"),
    "collect_detailed_traces": _refused("traces are the server's"),
    "enable_return_routed_experts": _refused("not supported"), "return_sampling_mask": _refused("not supported"),
    # Multimodal input, which text models ignore.
    "limit_mm_per_prompt": _limit_mm, "mm_processor_kwargs": _kept("mm_processor_kwargs", dict), **_own("mmproj"),
    **dict.fromkeys(("allowed_local_media_path", "allowed_media_domains", "media_io_kwargs", "mm_processor_cache_gb",
                     "disable_mm_preprocessor_cache", "disable_chunked_mm_input",
                     "interleave_mm_strings", "language_model_only", "skip_mm_profiling", "mm_encoder_tp_mode",
                     "mm_encoder_attn_backend", "mm_encoder_attn_dtype", "mm_encoder_fp8_scale_path",
                     "mm_encoder_fp8_scale_save_path", "mm_encoder_fp8_scale_save_margin", "mm_processor_cache_type",
                     "mm_processor_device", "mm_hasher_algorithm", "mm_shm_cache_max_object_size_mb", "mm_tensor_ipc",
                     "mm_ipc_gpu_memory_gb", "mm_device_do_normalize", "video_pruning_rate", "video_pruning_method",
                     "ec_manager_config"), _nothing),
    "mm_encoder_only": _TEXT_ONLY,
    "enable_mm_embeds": _TEXT_ONLY, "enable_prompt_embeds": _TEXT_ONLY, "io_processor_plugin": _refused("not supported"),
    # Tuning of GPU engines.
    **dict.fromkeys(("compilation_config", "attention_config", "attention_backend", "kernel_config", "optimization_level",
                     "performance_mode", "additional_config", "cpu_offload_gb", "cpu_offload_params", "offload_backend",
                     "offload_group_size", "offload_params", "max_seq_len_to_capture", "cuda_graph_sizes",
                     "cudagraph_capture_sizes", "max_cudagraph_capture_size", "disable_cascade_attn",
                     "disable_hybrid_kv_cache_manager", "disable_async_output_proc", "max_parallel_loading_workers",
                     "ray_workers_use_nsight", "device", "mamba_block_size", "mamba_cache_mode", "mamba_backend",
                     "enable_expert_parallel", "moe_backend", "all2all_backend", "enable_eplb", "eplb_config", "enable_dbo",
                     "ir_op_priority", "linear_backend", "sparse_indexer_topk_backend", "gdn_prefill_backend",
                     "kda_prefill_backend", "kda_decode_backend", "monokernel", "mamba_ssu_algorithm", "use_replayssm",
                     "enable_cumem_allocator", "enable_nccl_comm_suspend", "enable_shm_tensor_arena",
                     "enable_batch_sharded_sampling", "enable_hc_sp", "numa_bind", "numa_bind_nodes",
                     "numa_bind_cpus", "enable_ep_weight_filter", "enable_elastic_ep", "ubatch_size"), _gpu),
    "device_ids": _device_ids, "mamba_config": _mamba_config,
    **dict.fromkeys(("offload_num_in_group", "offload_prefetch_step", "disable_custom_all_reduce", "use_v2_block_manager",
                     "expert_placement_strategy", "enable_flashinfer_autotune", "replayssm_buffer_len", "renderer_num_workers",
                     "elastic_ep_max_dp_size", "dbo_decode_token_threshold", "dbo_prefill_token_threshold"), _nothing),
    "kv_sharing_fast_prefill": _refused("every token of a prompt is computed"),
    # Several hosts and external launchers.
    "nnodes": _only(1), "node_rank": _only(0), "master_addr": _nothing, "master_port": _nothing,
    **dict.fromkeys(("dcp_comm_backend", "dcp_q_replicate", "dcp_kv_cache_interleave_size", "cp_kv_cache_interleave_size",
                     "distributed_timeout_seconds", "cpu_distributed_timeout_seconds", "enable_fault_tolerance",
                     "fault_tolerance_config", "dp_sync_interval", "disable_nccl_for_dp_synchronization"), _nothing),
    "prefill_context_parallel_size": _only(1), "decode_context_parallel_size": _only(1),
    **dict.fromkeys(("data_parallel_rank", "data_parallel_start_rank", "data_parallel_size_local", "data_parallel_address",
                     "data_parallel_rpc_port", "data_parallel_hybrid_lb", "data_parallel_external_lb",
                     "data_parallel_multi_port_external_lb"), _refused(_ONE_HOST)),
    "data_parallel_backend": _nothing, "kv_transfer_config": _kv_transfer_config,
    "kv_events_config": _refused("not supported"), "ec_transfer_config": _TEXT_ONLY,
    "weight_transfer_config": _refused("weights are those of the files"),
    "kv_store": _kv_store, "kv_offloading_size": _kv_offloading_size, "kv_offloading_backend": _kv_offloading_backend,
}


def opening_of(given: Dict[str, Any]) -> Opening:
    """Interprets an engine's arguments. given: the arguments that differ from their defaults, and model. Errors: ValueError,
    TypeError, FileNotFoundError (chat template)."""
    name = os.fspath(given["model"])
    opening = Opening({"model": name}, name, given=given)
    if os.environ.get("VLLM_BATCH_INVARIANT") == "1":
        opening.config["batch_invariant"] = True
    if os.environ.get("VLLM_TORCH_PROFILER_DIR"):
        opening.profile_dir = os.environ["VLLM_TORCH_PROFILER_DIR"]
    for argument, rule in RULES.items():
        if argument in given:
            try:
                rule(opening, argument, given[argument])
            # Infinity as a whole number, a list that contains itself, a number where a dictionary belongs.
            except (ArithmeticError, AttributeError, LookupError, RecursionError) as error:
                raise ValueError(f"{argument}: expected another value ({type(error).__name__}: {error})") from error
    opening.load_format = given.get("load_format") or "auto"
    return opening


# Hints for arguments of other libraries and of older versions: their equivalents here.
_ELSEWHERE = {
    "task": "runner or convert", "guided_decoding_backend": "structured_outputs_config", "num_speculative_tokens": "speculative_config",
    "speculative_model": "speculative_config", "torch_dtype": "dtype", "n_ctx": "max_model_len", "context_length": "max_model_len",
    "max_seq_len": "max_model_len", "model_max_length": "max_model_len", "n_threads": "threads", "num_threads": "threads",
    "n_batch": "max_num_batched_tokens", "batch_size": "max_num_seqs", "max_batch_size_tokens": "max_num_batched_tokens",
    "device_map": "backend", "n_gpu_layers": "backend", "model_path": "model", "model_name": "model", "lora_path": "lora_request of generate()",
    "cache_dir": "HF_HUB_CACHE in the environment", "token": "HF_TOKEN in the environment", "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size", "dp_size": "data_parallel_size", "mem_fraction_static": "gpu_memory_utilization",
    "load_in_4_bit": "load_in_4bit", "load_in_8_bit": "load_in_8bit", "use_cache": "enable_prefix_caching", "port": "penstock.openai_server()",
    "host": "penstock.openai_server()", "max_length": "max_model_len", "max_new_tokens": "SamplingParams(max_tokens=...)",
    "do_sample": "SamplingParams(temperature=...)", "num_beams": "beam_search()",
}
_SPELLING = 0.8  # minimum similarity of a misspelt name to a suggested one


def unknown_argument(name: str, known: Set[str]) -> str:
    """Returns the message for an unknown argument."""
    from .sampling_params import SamplingParams

    text = f"there is no argument {name!r}"
    if name in _ELSEWHERE:
        return f"{text}; it is {_ELSEWHERE[name]} here"
    if name in SamplingParams.__dataclass_fields__:
        return f"{text}; it is one of SamplingParams"
    near: List[str] = difflib.get_close_matches(name, sorted(known | set(engine_settings())), n=1, cutoff=_SPELLING)
    return text + (f"; did you mean {near[0]!r}?" if near else "")
