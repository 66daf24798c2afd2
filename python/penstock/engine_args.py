"""vLLM's engine arguments, with Penstock's own.

The effect of each argument is defined by its rule in penstock._engine_rules: it is applied, refused with an error, or ignored if it
does not affect the results here, with one warning if users may expect an effect. Every setting of Penstock's engine
(docs/reference/flags.md lists them: threads, preset, packed_cache, policy, ...) is an argument too.
"""
from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, Type, Union

from ._engine_rules import Opening, opening_of, unknown_argument

Path = Union[str, "os.PathLike[str]"]
Settings = Union[Dict[str, Any], Any]  # a dictionary, or one of penstock.config's objects


@dataclass
class EngineArgs:
    """The arguments with which an engine is opened. Types and names are vLLM's; None: the engine's default.

    Raises:
        ValueError: an argument is not supported.
        TypeError: an argument is unknown; the message suggests the most similar one.
    """

    model: Path = ""
    # The model and its files.
    runner: Literal["auto", "generate", "pooling"] = "auto"
    convert: Literal["auto", "none", "embed", "classify"] = "auto"
    tokenizer: Optional[Path] = None
    tokenizer_mode: str = "auto"
    skip_tokenizer_init: bool = False
    tokens_only: bool = False
    trust_remote_code: bool = False
    revision: Optional[str] = None
    code_revision: Optional[str] = None
    tokenizer_revision: Optional[str] = None
    download_dir: Optional[Path] = None
    hf_token: Union[bool, str, None] = None
    hf_config_path: Optional[Path] = None
    hf_overrides: Optional[Dict[str, Any]] = None
    load_format: str = "auto"
    config_format: str = "auto"
    model_impl: str = "auto"
    model_loader_extra_config: Optional[Settings] = None
    safetensors_load_strategy: Optional[str] = None
    ignore_patterns: Union[str, List[str], None] = None
    use_tqdm_on_load: bool = True
    pt_load_map_location: Any = None
    safetensors_prefetch_num_threads: Optional[int] = None
    safetensors_prefetch_block_size: Optional[int] = None
    model_weights: str = ""
    model_class_overrides: Optional[Dict[str, str]] = None
    engram_config: Optional[Settings] = None
    served_model_name: Union[str, List[str], None] = None
    chat_template: Optional[Path] = None
    generation_config: str = "auto"
    override_generation_config: Optional[Dict[str, Any]] = None
    pooler_config: Optional[Settings] = None
    override_pooler_config: Optional[Settings] = None
    # Number types and quantization.
    dtype: Any = "auto"
    seed: int = 0
    quantization: Optional[str] = None
    quantization_config: Optional[Settings] = None
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    allow_deprecated_quantization: bool = False
    quantize: Optional[str] = None
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: Optional[List[str]] = None
    calculate_kv_scales: bool = False
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    enable_mamba_cache_stochastic_rounding: bool = False
    mamba_cache_philox_rounds: int = 0
    disable_sliding_window: bool = False
    batch_invariant: Optional[bool] = None
    logprobs_mode: str = "raw_logprobs"
    max_logprobs: Optional[int] = None
    logits_processors: Optional[Sequence[Any]] = None
    enable_trace_replay: bool = False
    use_fp64_gumbel: bool = False
    watermark_config: Optional[Settings] = None
    diffusion_config: Optional[Settings] = None
    structured_outputs_config: Optional[Settings] = None
    reasoning_parser: str = ""
    reasoning_parser_plugin: str = ""
    reasoning_config: Optional[Settings] = None
    # Memory and steps.
    max_model_len: Union[int, str, None] = None
    max_num_seqs: Optional[int] = None
    max_num_active_seqs: Optional[int] = None
    max_num_batched_tokens: Optional[int] = None
    max_num_scheduled_tokens: Optional[int] = None
    gpu_memory_utilization: Optional[float] = None
    memory_utilization: Optional[float] = None
    kv_cache_memory_bytes: Optional[int] = None
    kv_cache_memory: Optional[int] = None
    num_gpu_blocks_override: Optional[int] = None
    block_size: Optional[int] = None
    enable_prefix_caching: Optional[bool] = None
    prefix_caching_hash_algo: str = "sha256"
    prefix_match_unit: Optional[int] = None
    prefix_cache_retention_interval: int = 0
    enable_mamba_shared_prefix_checkpoint: bool = False
    swa_bounded_replay: bool = True
    kv_store: Optional[str] = None
    role: Optional[str] = None
    prefix_history: Optional[int] = None
    state_snapshot_interval: Optional[int] = None
    kv_layout: Optional[str] = None
    swap_space: Optional[float] = None
    packed_cache: Optional[str] = None
    experts_offload: Optional[bool] = None
    n_cpu_moe: Optional[int] = None
    cpu_moe: Optional[bool] = None
    expert_cache_memory: Optional[int] = None
    override_tensor: Optional[str] = None
    enable_chunked_prefill: Optional[bool] = None
    prefill_chunk: Optional[int] = None
    max_num_partial_prefills: int = 1
    max_long_partial_prefills: int = 1
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    prefill_schedule_interval: int = 1
    scheduler_reserve_full_isl: bool = True
    scheduling_policy: str = "fcfs"
    policy: Optional[str] = None
    max_batch_size: Optional[int] = None
    max_wait_ms: Optional[float] = None
    max_tokens_per_batch: Optional[int] = None
    priority_ageing_s: Optional[float] = None
    preset: Optional[str] = None
    max_num_queued_reqs: Optional[int] = None
    max_queued_requests: Optional[int] = None
    max_num_queued_tokens: Optional[int] = None
    max_queued_tokens: Optional[int] = None
    async_scheduling: Optional[bool] = None
    stream_interval: int = 1
    shutdown_timeout: float = 0
    scheduler_cls: Any = None
    watermark: Optional[float] = None
    enable_sleep_mode: bool = False
    sleep_mode_backend: str = "cumem"
    sleep_mode_offload_cudagraph: bool = False
    sleep_preserve_parameter_names: Optional[List[str]] = None
    # Devices and parallelism.
    backend: Optional[str] = None
    threads: Optional[int] = None
    thread_weight: Optional[float] = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    rank_wire_dtype: Optional[str] = None
    distributed_executor_backend: Any = None
    enforce_eager: bool = False
    worker_cls: Any = "auto"
    worker_extension_cls: Any = ""
    # Speculation.
    speculative_config: Optional[Settings] = None
    spec_method: Optional[str] = None
    spec_model: Optional[Path] = None
    spec_tokens: Optional[int] = None
    spec: Optional[str] = None
    draft_model: Optional[str] = None
    spec_length: Optional[str] = None
    spec_corpus: Optional[str] = None
    spec_heads: Optional[str] = None
    spec_exit_layer: Optional[int] = None
    # Adapters.
    enable_lora: bool = False
    max_loras: Optional[int] = None
    max_lora_rank: Optional[int] = None
    max_cpu_loras: Optional[int] = None
    lora_dtype: Any = "auto"
    fully_sharded_loras: bool = False
    default_mm_loras: Optional[Dict[str, str]] = None
    lora_target_modules: Optional[List[str]] = None
    enable_tower_connector_lora: bool = False
    specialize_active_lora: bool = False
    enable_mixed_moe_lora_format: bool = False
    enable_moe_shared_loras: bool = False
    max_lora_cls_labels: Optional[int] = None
    # Logging and reports.
    disable_log_stats: bool = True
    enable_log_requests: bool = False
    disable_log_requests: bool = True
    aggregate_engine_logging: bool = False
    profiler_config: Optional[Settings] = None
    otlp_traces_endpoint: Optional[str] = None
    collect_detailed_traces: Optional[List[str]] = None
    show_hidden_metrics_for_version: Optional[str] = None
    kv_cache_metrics: bool = False
    kv_cache_metrics_sample: float = 0.01
    enable_logging_iteration_details: bool = False
    enable_return_routed_experts: bool = False
    return_sampling_mask: bool = False
    aux_output_config: Optional[Settings] = None
    per_request_spec_decode_metrics: str = "none"
    custom_histogram_buckets: Optional[Dict[str, List[float]]] = None
    cudagraph_metrics: bool = False
    enable_layerwise_nvtx_tracing: bool = False
    enable_mfu_metrics: bool = False
    enable_mm_processor_stats: bool = False
    logging_config: Optional[Settings] = None
    log_level: Optional[str] = None
    log_config_file: Optional[str] = None
    jit_monitor_mode: str = "warn"
    jit_monitor_verbose: bool = False
    watchdog_config: Optional[Settings] = None
    fail_on_environ_validation: bool = False
    # Pictures: limit_mm_per_prompt and mm_processor_kwargs act; text models ignore all of these.
    allowed_local_media_path: str = ""
    allowed_media_domains: Optional[List[str]] = None
    limit_mm_per_prompt: Optional[Dict[str, Any]] = None
    mm_processor_kwargs: Optional[Dict[str, Any]] = None
    mmproj: Optional[str] = None
    media_io_kwargs: Optional[Dict[str, Any]] = None
    mm_processor_cache_gb: float = 4
    disable_mm_preprocessor_cache: bool = False
    disable_chunked_mm_input: bool = False
    interleave_mm_strings: bool = False
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    mm_encoder_only: bool = False
    mm_encoder_tp_mode: str = "weights"
    mm_encoder_attn_backend: Optional[str] = None
    mm_encoder_attn_dtype: Optional[str] = None
    mm_encoder_fp8_scale_path: Optional[str] = None
    mm_encoder_fp8_scale_save_path: Optional[str] = None
    mm_encoder_fp8_scale_save_margin: float = 1.5
    mm_processor_cache_type: str = "lru"
    mm_processor_device: str = "auto"
    mm_hasher_algorithm: str = "blake3"
    mm_shm_cache_max_object_size_mb: int = 128
    mm_tensor_ipc: str = "direct_rpc"
    mm_ipc_gpu_memory_gb: float = 0
    mm_device_do_normalize: Optional[bool] = True
    video_pruning_rate: Optional[float] = None
    video_pruning_method: str = "evs"
    ec_manager_config: Optional[Settings] = None
    enable_mm_embeds: bool = False
    enable_prompt_embeds: bool = False
    io_processor_plugin: Optional[str] = None
    # Tuning of GPU engines.
    compilation_config: Any = None
    attention_config: Any = None
    attention_backend: Optional[str] = None
    kernel_config: Any = None
    ir_op_priority: Any = None
    linear_backend: str = "auto"
    sparse_indexer_topk_backend: str = "auto"
    gdn_prefill_backend: Optional[str] = None
    kda_prefill_backend: Optional[str] = None
    kda_decode_backend: Optional[str] = None
    monokernel: bool = False
    optimization_level: Any = None
    performance_mode: Optional[str] = None
    additional_config: Any = None
    cpu_offload_gb: float = 0
    cpu_offload_params: Any = None
    offload_backend: str = "auto"
    offload_group_size: int = 0
    offload_num_in_group: int = 1
    offload_prefetch_step: int = 1
    offload_params: Any = None
    max_seq_len_to_capture: Optional[int] = None
    cuda_graph_sizes: Optional[List[int]] = None
    cudagraph_capture_sizes: Optional[List[int]] = None
    max_cudagraph_capture_size: Optional[int] = None
    disable_custom_all_reduce: bool = False
    disable_cascade_attn: bool = False
    disable_hybrid_kv_cache_manager: Optional[bool] = None
    disable_async_output_proc: bool = False
    use_v2_block_manager: bool = True
    max_parallel_loading_workers: Optional[int] = None
    ray_workers_use_nsight: bool = False
    device: str = "auto"
    mamba_block_size: Optional[int] = None
    mamba_cache_mode: Optional[str] = None
    mamba_backend: Optional[str] = None
    mamba_config: Optional[Settings] = None
    mamba_ssu_algorithm: Optional[str] = None
    use_replayssm: bool = False
    replayssm_buffer_len: int = 16
    enable_cumem_allocator: bool = False
    enable_nccl_comm_suspend: bool = False
    enable_shm_tensor_arena: bool = False
    enable_batch_sharded_sampling: Optional[bool] = None
    enable_hc_sp: bool = False
    renderer_num_workers: int = 1
    device_ids: Optional[Sequence[Union[int, str]]] = None
    numa_bind: bool = False
    numa_bind_nodes: Optional[List[int]] = None
    numa_bind_cpus: Optional[List[str]] = None
    enable_expert_parallel: bool = False
    moe_backend: str = "auto"
    all2all_backend: Optional[str] = None
    enable_eplb: bool = False
    eplb_config: Any = None
    expert_placement_strategy: str = "linear"
    enable_dbo: bool = False
    enable_ep_weight_filter: bool = False
    enable_elastic_ep: bool = False
    elastic_ep_max_dp_size: Optional[int] = None
    ubatch_size: int = 0
    dbo_decode_token_threshold: int = 32
    dbo_prefill_token_threshold: int = 512
    enable_flashinfer_autotune: bool = True
    kv_sharing_fast_prefill: bool = False
    # Several hosts and external launchers.
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 29501
    prefill_context_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    dcp_comm_backend: Optional[str] = None
    dcp_q_replicate: Optional[bool] = None
    dcp_kv_cache_interleave_size: int = 1
    cp_kv_cache_interleave_size: Optional[int] = None
    distributed_timeout_seconds: Optional[int] = None
    cpu_distributed_timeout_seconds: Optional[int] = None
    enable_fault_tolerance: bool = False
    fault_tolerance_config: Optional[Settings] = None
    data_parallel_rank: Optional[int] = None
    data_parallel_start_rank: Optional[int] = None
    data_parallel_size_local: Optional[int] = None
    data_parallel_address: Optional[str] = None
    data_parallel_rpc_port: Optional[int] = None
    data_parallel_backend: str = "mp"
    data_parallel_hybrid_lb: bool = False
    data_parallel_external_lb: bool = False
    data_parallel_multi_port_external_lb: bool = False
    dp_sync_interval: int = 16
    disable_nccl_for_dp_synchronization: Optional[bool] = None
    kv_transfer_config: Optional[Settings] = None
    kv_events_config: Optional[Settings] = None
    ec_transfer_config: Optional[Settings] = None
    weight_transfer_config: Optional[Settings] = None
    kv_offloading_size: Optional[float] = None
    kv_offloading_backend: Optional[str] = None

    def __post_init__(self) -> None:
        self._opening = opening_of(self.given())

    @property
    def opening(self) -> Opening:
        """The interpreted arguments, as they were at construction."""
        return self._opening

    @property
    def config(self) -> Dict[str, Any]:
        """The settings of Penstock's engine."""
        return self._opening.config

    def given(self) -> Dict[str, Any]:
        """Returns the arguments that differ from their defaults, and the model."""
        each = {f.name: getattr(self, f.name) for f in fields(self)}
        return {f.name: each[f.name] for f in fields(self)
                if f.name == "model" or each[f.name] is not f.default and not same(each[f.name], f.default)}

    def create_engine_config(self, *_: Any, **__: Any) -> Any:
        """Returns a VllmConfig with the values that are known without the model's files."""
        from .config import vllm_config_of

        return vllm_config_of(self._opening)

    @classmethod
    def add_cli_args(cls, parser: Any, **_: Any) -> Any:
        """Adds an option for every argument to an ArgumentParser, or to a group of one, so that LLM(**vars(parser.parse_args()))
        opens a model."""
        taken = {option for action in parser._actions for option in action.option_strings}
        group = parser if isinstance(parser, argparse._ArgumentGroup) else parser.add_argument_group("engine")
        short = {"tensor_parallel_size": ["-tp"], "pipeline_parallel_size": ["-pp"], "data_parallel_size": ["-dp"]}
        for each in fields(cls):
            flags = ["--" + each.name.replace("_", "-"), *short.get(each.name, [])]
            if not taken.intersection(flags):
                group.add_argument(*flags, dest=each.name, type=_value_of, nargs="?", const=True, default=each.default,
                                   metavar="VALUE")
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> "EngineArgs":
        """Returns the arguments of a parsed command line."""
        known = set(cls.known_names())
        return cls(**{name: value for name, value in vars(args).items() if name in known})

    @classmethod
    def known_names(cls) -> List[str]:
        """Returns the names of all arguments."""
        return sorted(f.name for f in fields(cls))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of the same type (True differs from 1)."""
    return isinstance(one, type(other)) and bool(one == other)


def _value_of(text: str) -> Any:
    """Parses the value of an option: JSON, True, False or None; else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _with_hints(cls: Type[EngineArgs]) -> None:
    """Makes the class suggest the most similar argument for an unknown one."""
    plain: Callable[..., None] = cls.__init__
    known = set(cls.known_names())

    @functools.wraps(plain)
    def checked(self: EngineArgs, model: Path = "", **arguments: Any) -> None:
        for name in arguments:
            if name not in known:
                raise TypeError(unknown_argument(name, known))
        plain(self, model, **arguments)

    checked.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
    setattr(cls, "__init__", checked)


_with_hints(EngineArgs)


class AsyncEngineArgs(EngineArgs):
    """EngineArgs for AsyncLLM."""
