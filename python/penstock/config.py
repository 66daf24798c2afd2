"""vLLM's configuration classes: LLM accepts them instead of dictionaries, and they describe an open engine."""
from __future__ import annotations

from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Dict, Optional

from .pooling_params import PoolerConfig

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint
    from ._engine_rules import Opening


class Settings:
    """Settings by name. The effect of each is defined by the argument of LLM that takes the object."""

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    def as_dict(self) -> Dict[str, Any]:
        """Returns the settings that were given."""
        return dict(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class AttentionConfig(Settings):
    """Settings of LLM(attention_config=...), which are ignored: they apply to GPUs only."""


class CacheConfig(Settings):
    """A part of VllmConfig."""


class CompilationConfig(Settings):
    """Settings of LLM(compilation_config=...), which are ignored: they apply to GPUs only."""


class DeviceConfig(Settings):
    """A part of VllmConfig."""


class ECTransferConfig(Settings):
    """Settings of LLM(ec_transfer_config=...), which is not supported."""


class EPLBConfig(Settings):
    """Settings of LLM(eplb_config=...), which are ignored: they apply to GPUs only."""


class KernelConfig(Settings):
    """Settings of LLM(kernel_config=...), which are ignored: they apply to GPUs only."""


class KVEventsConfig(Settings):
    """Settings of LLM(kv_events_config=...), which is not supported."""


class KVTransferConfig(Settings):
    """Settings of LLM(kv_transfer_config=...): engines that share a folder of blocks."""


class LoadConfig(Settings):
    """A part of VllmConfig."""


class LoRAConfig(Settings):
    """A part of VllmConfig."""


class ModelConfig(Settings):
    """The configuration of an open model."""

    def get_vocab_size(self) -> int:
        """Returns the size of the tokenizer's vocabulary."""
        return int(self.vocab_size or 0)

    def get_hidden_size(self) -> Optional[int]:
        """Returns the size of a hidden state; None if config.json does not have it."""
        return getattr(self.hf_text_config, "hidden_size", None)


class ObservabilityConfig(Settings):
    """A part of VllmConfig."""


class ParallelConfig(Settings):
    """A part of VllmConfig."""


class ProfilerConfig(Settings):
    """Settings of LLM(profiler_config=...); torch_profiler_dir: folder for profiles."""


class SchedulerConfig(Settings):
    """A part of VllmConfig."""


class SpeculativeConfig(Settings):
    """Settings of LLM(speculative_config=...)."""


class StructuredOutputsConfig(Settings):
    """Settings of LLM(structured_outputs_config=...)."""


class VllmConfig(Settings):
    """The configuration of an open engine."""


class WeightTransferConfig(Settings):
    """Settings of LLM(weight_transfer_config=...), which is not supported."""


class CompilationMode(IntEnum):
    """A setting of CompilationConfig."""

    NONE = 0
    STOCK_TORCH_COMPILE = 1
    DYNAMO_TRACE_ONCE = 2
    VLLM_COMPILE = 3


class CUDAGraphMode(Enum):
    """A setting of CompilationConfig."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (2, 0)
    FULL_AND_PIECEWISE = (2, 1)


def _as_object(config: Dict[str, Any]) -> SimpleNamespace:
    """Returns config.json as an object like transformers' config: the keys of id2label are integers."""
    fields = dict(config)
    if isinstance(fields.get("id2label"), dict):
        fields["id2label"] = {int(key) if str(key).isdigit() else key: label for key, label in fields["id2label"].items()}
    return SimpleNamespace(**fields)


def model_config_of(opening: "Opening", checkpoint: "Optional[Checkpoint]" = None,
                    info: Optional[Dict[str, Any]] = None) -> ModelConfig:
    """Returns the ModelConfig of an opening. info: ModelSession.info() of the open model, if it is open."""
    config = checkpoint.config if checkpoint is not None else None
    info = info or {}
    fields: Dict[str, Any] = dict(
        model=opening.model_name or opening.config["model"], tokenizer=opening.model_name or opening.config["model"],
        runner_type=opening.runner, seed=opening.config.get("seed", 0), dtype="float32", architecture=info.get("architecture"),
        quantization=opening.config.get("quantize") or (checkpoint.method if checkpoint is not None else None),
        max_model_len=info.get("max_model_len", opening.config.get("max_model_len")), vocab_size=info.get("vocab_size"),
        served_model_name=opening.served_name or opening.model_name, is_encoder_decoder=False, is_multimodal_model=False,
        skip_tokenizer_init=opening.skip_tokenizer, max_logprobs=opening.max_logprobs)
    if config is not None:
        text = config.get("text_config")
        fields.update(hf_config=_as_object(config), hf_text_config=_as_object(text if isinstance(text, dict) else config),
                      architectures=config.get("architectures"))
    return ModelConfig(**fields)


def vllm_config_of(opening: "Opening", checkpoint: "Optional[Checkpoint]" = None, info: Optional[Dict[str, Any]] = None,
                   settings: Optional[Dict[str, Any]] = None) -> VllmConfig:
    """Returns the VllmConfig of an opening. info, settings: ModelSession.info() and config() of the open engine, if it is open."""
    have = {**opening.config, **(settings or {})}
    n_outside, rank = opening.n_outside
    sizes = {name: int(opening.given.get(name) or have.get(name) or 1)
             for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")}
    return VllmConfig(
        model_config=model_config_of(opening, checkpoint, info),
        parallel_config=ParallelConfig(**{**sizes, "data_parallel_size": max(n_outside, sizes["data_parallel_size"])},
                                       data_parallel_rank=rank,
                                       world_size=sizes["tensor_parallel_size"] * sizes["pipeline_parallel_size"]),
        cache_config=CacheConfig(block_size=have.get("block_size"), num_gpu_blocks=(info or {}).get("n_blocks"),
                                 enable_prefix_caching=have.get("enable_prefix_caching"), cache_dtype=have.get("kv_cache_dtype")),
        scheduler_config=SchedulerConfig(max_num_seqs=have.get("max_num_seqs"), policy=have.get("policy"),
                                         max_num_batched_tokens=have.get("max_num_batched_tokens")),
        device_config=DeviceConfig(device="cpu", device_type="cpu"), load_config=LoadConfig(load_format=opening.load_format),
        lora_config=LoRAConfig(max_loras=have.get("max_loras"), max_lora_rank=have.get("max_lora_rank"))
        if opening.enable_lora else None,
        speculative_config=SpeculativeConfig(method=have.get("spec")) if have.get("spec") else None,
        structured_outputs_config=StructuredOutputsConfig(backend="auto", **vars(opening.structured)),
        observability_config=ObservabilityConfig(), compilation_config=CompilationConfig())


__all__ = [
    "AttentionConfig", "CUDAGraphMode", "CacheConfig", "CompilationConfig", "CompilationMode", "DeviceConfig",
    "ECTransferConfig", "EPLBConfig", "KVEventsConfig", "KVTransferConfig", "KernelConfig", "LoRAConfig", "LoadConfig",
    "ModelConfig", "ObservabilityConfig", "ParallelConfig", "PoolerConfig", "ProfilerConfig", "SchedulerConfig", "Settings",
    "SpeculativeConfig", "StructuredOutputsConfig", "VllmConfig", "WeightTransferConfig",
]
