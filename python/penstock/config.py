"""vLLM's classes of settings: LLM takes them where it takes dictionaries; and what an open engine is like, in their terms."""
from __future__ import annotations

from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Dict, Optional

from .pooling_params import PoolerConfig

if TYPE_CHECKING:
    from ._checkpoint import Checkpoint
    from ._engine_rules import Opening


class Settings:
    """Settings by their names. What LLM does with each is said by the argument that takes it."""

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    def as_dict(self) -> Dict[str, Any]:
        """The settings that were given."""
        return dict(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class AttentionConfig(Settings):
    """Of LLM(attention_config=...): means something on GPUs only."""


class CacheConfig(Settings):
    """Of a VllmConfig."""


class CompilationConfig(Settings):
    """Of LLM(compilation_config=...): means something on GPUs only."""


class DeviceConfig(Settings):
    """Of a VllmConfig."""


class ECTransferConfig(Settings):
    """Of LLM(ec_transfer_config=...), which is refused."""


class EPLBConfig(Settings):
    """Of LLM(eplb_config=...): means something on GPUs only."""


class KernelConfig(Settings):
    """Of LLM(kernel_config=...): means something on GPUs only."""


class KVEventsConfig(Settings):
    """Of LLM(kv_events_config=...), which is refused."""


class KVTransferConfig(Settings):
    """Of LLM(kv_transfer_config=...), which is refused."""


class LoadConfig(Settings):
    """Of a VllmConfig."""


class LoRAConfig(Settings):
    """Of a VllmConfig."""


class ModelConfig(Settings):
    """What model is open."""

    def get_vocab_size(self) -> int:
        """Of its tokenizer."""
        return int(self.vocab_size or 0)

    def get_hidden_size(self) -> Optional[int]:
        """Numbers of a state; None where config.json does not say."""
        return getattr(self.hf_text_config, "hidden_size", None)


class ObservabilityConfig(Settings):
    """Of a VllmConfig."""


class ParallelConfig(Settings):
    """Of a VllmConfig."""


class ProfilerConfig(Settings):
    """Of LLM(profiler_config=...): torch_profiler_dir is the folder of profiles."""


class SchedulerConfig(Settings):
    """Of a VllmConfig."""


class SpeculativeConfig(Settings):
    """Of LLM(speculative_config=...)."""


class StructuredOutputsConfig(Settings):
    """Of LLM(structured_outputs_config=...)."""


class VllmConfig(Settings):
    """What engine is open."""


class WeightTransferConfig(Settings):
    """Of LLM(weight_transfer_config=...), which is refused."""


class CompilationMode(IntEnum):
    """Of a CompilationConfig."""

    NONE = 0
    STOCK_TORCH_COMPILE = 1
    DYNAMO_TRACE_ONCE = 2
    VLLM_COMPILE = 3


class CUDAGraphMode(Enum):
    """Of a CompilationConfig."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (2, 0)
    FULL_AND_PIECEWISE = (2, 1)


def _as_object(config: Dict[str, Any]) -> SimpleNamespace:
    """config.json as transformers has it: ids of labels are numbers."""
    fields = dict(config)
    if isinstance(fields.get("id2label"), dict):
        fields["id2label"] = {int(key) if str(key).isdigit() else key: label for key, label in fields["id2label"].items()}
    return SimpleNamespace(**fields)


def model_config_of(opening: "Opening", checkpoint: "Optional[Checkpoint]" = None,
                    info: Optional[Dict[str, Any]] = None) -> ModelConfig:
    """info: of the open model."""
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
    """info, settings: of the open engine, as ModelSession has them."""
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
