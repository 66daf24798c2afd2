"""Every parameter that is taken acts or is refused: a row for each, held to the signatures, so that a new one needs a row."""
import asyncio
import dataclasses
import decimal
import inspect
import warnings

import pytest

import penstock
from conftest import ROOT, SMALL, STORIES
from penstock import AsyncLLM, BeamSearchParams, EngineArgs, LoRARequest, PoolingParams, SamplingParams, StructuredOutputsParams
from penstock import _core, _engine_rules
from penstock.pooling_params import LateChunkingParams
from penstock.config import KVTransferConfig, PoolerConfig, ProfilerConfig, StructuredOutputsConfig

SHAPES = str(ROOT / "models/penstock-stories-1m-bf16")

# --- EngineArgs -------------------------------------------------------------------------------------------------------------

# A value that is not the default, and what comes of it: a setting of the engine, or an attribute of the opening.
ACTS = {
    "model": ("m", {"model": "m"}), "runner": ("pooling", "runner"), "convert": ("embed", "runner"),
    "revision": ("abc", {"model": "@abc"}), "skip_tokenizer_init": (True, "skip_tokenizer"), "tokens_only": (True, "skip_tokenizer"),
    "enable_trace_replay": (True, "trace_replay"), "max_num_active_seqs": (3, {"max_num_seqs": 3}),
    "max_num_scheduled_tokens": (64, {"max_num_batched_tokens": 64}), "served_model_name": ("x", "served_name"),
    "chat_template": ("{{ messages }}", "chat_template"), "generation_config": ("vllm", "generation_config"),
    "override_generation_config": ({"top_k": 3}, "override_generation_config"), "hf_overrides": ({"rope_theta": 1}, "hf_overrides"),
    "pooler_config": (PoolerConfig(pooling_type="CLS"), "pooler_config"),
    "override_pooler_config": ({"pooling_type": "CLS"}, "pooler_config"), "load_format": ("gguf", "load_format"),
    "seed": (7, {"seed": 7}), "quantization": ("awq", "quantization"), "load_in_4bit": (True, "quantization"),
    "load_in_8bit": (True, "quantization"), "quantization_config": ({"load_in_4bit": True}, "quantization"),
    "quantize": ("q8_0", {"quantize": "q8_0"}), "kv_cache_dtype": ("int8", {"kv_cache_dtype": "int8"}),
    "mamba_cache_dtype": ("bfloat16", {"mamba_ssm_cache_dtype": "bfloat16"}),
    "mamba_ssm_cache_dtype": ("bfloat16", {"mamba_ssm_cache_dtype": "bfloat16"}), "batch_invariant": (True, {"batch_invariant": True}),
    "max_logprobs": (5, "max_logprobs"), "logits_processors": (["a:B"], "logits_processors"),
    "structured_outputs_config": (StructuredOutputsConfig(disable_any_whitespace=True), "structured"),
    "max_model_len": (64, {"max_model_len": 64}), "gpu_memory_utilization": (0.5, {"memory_utilization": 0.5}),
    "kv_cache_memory_bytes": (1 << 20, {"kv_cache_memory": 1 << 20}), "max_loras": (3, {"max_loras": 3}),
    "max_cpu_loras": (9, {"max_loras": 9}), "enable_lora": (True, "enable_lora"), "scheduling_policy": ("priority", {"policy": "priority"}),
    "max_num_queued_reqs": (5, {"max_queued_requests": 5}), "max_num_queued_tokens": (6, {"max_queued_tokens": 6}),
    "stream_interval": (4, "stream_interval"), "shutdown_timeout": (2.5, "shutdown_timeout"),
    "tensor_parallel_size": (2, {"tensor_parallel_size": 2}), "pipeline_parallel_size": (2, {"pipeline_parallel_size": 2}),
    "data_parallel_size": (2, {"data_parallel_size": 2}), "speculative_config": ({"method": "ngram"}, {"spec": "ngram"}),
    "spec_method": ("ngram", {"spec": "ngram"}), "spec_model": ("d", {"draft_model": "d"}), "spec_tokens": (3, {"spec_length": "3"}),
    "limit_mm_per_prompt": ({"image": 1}, "most_pictures"), "mm_processor_kwargs": ({"x": 1}, "mm_processor_kwargs"),
    "profiler_config": (ProfilerConfig(profiler="torch", torch_profiler_dir="/p"), "profile_dir"),
    "kv_offloading_size": (2, {"kv_store": "memory:2147483648"}),
    "kv_transfer_config": (KVTransferConfig(kv_connector="ExampleConnector", kv_role="kv_producer",
                                            kv_connector_extra_config={"shared_storage_path": "/s"}),
                           {"kv_store": "/s", "role": "prefill"}),
    # Penstock's own, by their own names.
    **{name: (value, {name: value}) for name, value in dict(
        max_num_seqs=3, max_num_batched_tokens=64, memory_utilization=0.5, kv_cache_memory=1 << 20, block_size=32,
        enable_prefix_caching=False, mmproj="m.gguf", kv_store="k:1G", role="decode", prefix_history=64,
        state_snapshot_interval=8, kv_layout="contiguous",
        packed_cache="off", experts_offload=True, n_cpu_moe=2, cpu_moe=True, expert_cache_memory=5, override_tensor="exps=CPU",
        prefill_chunk=16, policy="priority", max_batch_size=2,
        max_wait_ms=5.0, max_tokens_per_batch=9, priority_ageing_s=1.0, preset="chat", max_queued_requests=3, max_queued_tokens=9,
        backend="cpu", threads=1, thread_weight=0.5, rank_wire_dtype="bf16", enforce_eager=True, spec="ngram", draft_model="d",
        spec_length="3", spec_corpus="c", spec_heads="h", spec_exit_layer=1, max_lora_rank=4).items()},
}
# A value that would change what is computed, and words of the refusal.
REFUSED = {
    "tokenizer": ("other", "tokenizer of its own"), "tokenizer_mode": ("deepseek_v32", "expected 'auto'"),
    "tokenizer_revision": ("abc", "revision"), "download_dir": ("/d", "HF_HUB_CACHE"), "hf_token": ("t", "HF_TOKEN"),
    "hf_config_path": ("/c", "beside the weights"), "config_format": ("gguf2", "expected 'auto'"), "model_impl": ("transformers", "'vllm'"),
    "ignore_patterns": (["x"], "downloaded"), "dtype": ("int4", "dtype"), "calculate_kv_scales": (True, "no scales"),
    "disable_sliding_window": (True, "max_model_len"), "logprobs_mode": ("raw_logits", "raw_logprobs"),
    "reasoning_parser": ("qwen3", "--reasoning-parser"), "reasoning_parser_plugin": ("p", "penstock serve"),
    "num_gpu_blocks_override": (10, "kv_cache_memory_bytes"), "scheduler_cls": ("x.Y", "policy"),
    "distributed_executor_backend": ("mine", "external_launcher"), "worker_cls": ("x.Y", "no workers"),
    "worker_extension_cls": ("x.Y", "no workers"), "lora_dtype": ("float16", "auto"), "default_mm_loras": ({"image": "x"}, "text"),
    "lora_target_modules": (["q_proj"], "their files"), "otlp_traces_endpoint": ("http://x", "server"),
    "collect_detailed_traces": (["all"], "server"), "enable_return_routed_experts": (True, "not supported"),
    "return_sampling_mask": (True, "not supported"), "enable_mm_embeds": (True, "text"), "enable_prompt_embeds": (True, "text"),
    "io_processor_plugin": ("x", "not supported"), "kv_sharing_fast_prefill": (True, "every token"), "nnodes": (2, "expected 1"),
    "node_rank": (1, "expected 0"), "prefill_context_parallel_size": (2, "expected 1"), "decode_context_parallel_size": (2, "expected 1"),
    "data_parallel_rank": (1, "hosts"), "data_parallel_start_rank": (1, "hosts"), "data_parallel_size_local": (2, "hosts"),
    "data_parallel_address": ("10.0.0.1", "hosts"), "data_parallel_rpc_port": (5, "hosts"), "data_parallel_hybrid_lb": (True, "hosts"),
    "data_parallel_external_lb": (True, "hosts"),
    "kv_events_config": ({"x": 1}, "not supported"), "ec_transfer_config": ({"x": 1}, "text"), "weight_transfer_config": ({"x": 1}, "files"),
    "kv_offloading_backend": ("lmcache", "native"), "model_weights": ("s3://x", "beside"), "model_class_overrides": ({"A": "b:C"}, "no classes"),
    "kv_cache_dtype_skip_layers": (["0"], "one type"), "enable_mamba_cache_stochastic_rounding": (True, "nearest"),
    "watermark_config": ({"x": 1}, "not supported"), "diffusion_config": ({"x": 1}, "not supported"),
    "reasoning_config": ({"x": 1}, "chat template"), "sleep_preserve_parameter_names": (["x"], "as a whole"),
    "enable_moe_shared_loras": (True, "their files"), "custom_histogram_buckets": ({"x": [1.0]}, "fixed"),
    "aux_output_config": ({"x": 1}, "not supported"), "per_request_spec_decode_metrics": ("summary", "expected 'none'"),
    "device_ids": ([1], "CUDA_VISIBLE_DEVICES"), "mm_encoder_only": (True, "text"),
    "data_parallel_multi_port_external_lb": (True, "hosts"),
}
# What tunes a GPU's engine: the numbers that come out are the same, and somebody may have counted on the speed.
TOLD = dict(
    model_loader_extra_config={"x": 1}, swap_space=4, max_num_partial_prefills=2, max_long_partial_prefills=2,
    long_prefill_token_threshold=9, watermark=0.1, compilation_config=3, attention_config={"x": 1}, attention_backend="FLASH_ATTN",
    kernel_config={"x": 1}, optimization_level=2, performance_mode="x", additional_config={"x": 1}, cpu_offload_gb=4,
    cpu_offload_params={"x"}, offload_backend="uva", offload_group_size=4, offload_params={"x"}, max_seq_len_to_capture=8,
    cuda_graph_sizes=[1], cudagraph_capture_sizes=[1], max_cudagraph_capture_size=4, disable_cascade_attn=True,
    disable_hybrid_kv_cache_manager=True, disable_async_output_proc=True, max_parallel_loading_workers=2, ray_workers_use_nsight=True,
    device="cuda", mamba_block_size=8, mamba_cache_mode="all", mamba_backend="triton", enable_expert_parallel=True, moe_backend="triton",
    all2all_backend="x", enable_eplb=True, eplb_config={"x": 1}, enable_dbo=True, engram_config={"x": 1}, use_fp64_gumbel=True,
    prefix_match_unit=8, prefix_cache_retention_interval=9, enable_mamba_shared_prefix_checkpoint=True,
    long_prefill_token_threshold_adaptive=True, prefill_schedule_interval=2, cudagraph_metrics=True,
    enable_layerwise_nvtx_tracing=True, enable_mfu_metrics=True, enable_mm_processor_stats=True, ir_op_priority={"x": 1},
    linear_backend="x", sparse_indexer_topk_backend="x", gdn_prefill_backend="x", kda_prefill_backend="x", kda_decode_backend="x",
    monokernel=True, mamba_ssu_algorithm="x", use_replayssm=True, enable_cumem_allocator=True, enable_nccl_comm_suspend=True,
    enable_shm_tensor_arena=True, enable_batch_sharded_sampling=True, enable_hc_sp=True, numa_bind=True,
    numa_bind_nodes=[0], numa_bind_cpus=["0"], enable_ep_weight_filter=True, enable_elastic_ep=True, ubatch_size=2,
    mamba_config={"backend": "triton"})
# What texts do not depend on: names, logs, forms of files, schedules, what only images have.
NOTHING = dict(
    trust_remote_code=True, code_revision="abc", safetensors_load_strategy="eager", use_tqdm_on_load=False, pt_load_map_location="cpu",
    allow_deprecated_quantization=True, prefix_caching_hash_algo="xxhash", enable_chunked_prefill=False, async_scheduling=True,
    enable_sleep_mode=True, fully_sharded_loras=True, enable_tower_connector_lora=True, specialize_active_lora=True,
    disable_log_stats=False, enable_log_requests=True, disable_log_requests=False, aggregate_engine_logging=True,
    show_hidden_metrics_for_version="0.1", kv_cache_metrics=True, kv_cache_metrics_sample=0.5, enable_logging_iteration_details=True,
    allowed_local_media_path="/", allowed_media_domains=["x"], media_io_kwargs={"x": 1}, mm_processor_cache_gb=0,
    disable_mm_preprocessor_cache=True, disable_chunked_mm_input=True,
    interleave_mm_strings=True, language_model_only=True, skip_mm_profiling=True, offload_num_in_group=2, offload_prefetch_step=2,
    disable_custom_all_reduce=True, use_v2_block_manager=False, expert_placement_strategy="round_robin",
    enable_flashinfer_autotune=False, master_addr="10.0.0.1", master_port=5, data_parallel_backend="ray",
    safetensors_prefetch_num_threads=2, safetensors_prefetch_block_size=2, mamba_cache_philox_rounds=2, swa_bounded_replay=False,
    scheduler_reserve_full_isl=False, sleep_mode_backend="x", sleep_mode_offload_cudagraph=True, enable_mixed_moe_lora_format=True,
    max_lora_cls_labels=2, logging_config={"x": 1}, log_level="DEBUG", log_config_file="x", jit_monitor_mode="error",
    jit_monitor_verbose=True, watchdog_config={"x": 1}, fail_on_environ_validation=True, mm_encoder_tp_mode="data",
    mm_encoder_attn_backend="x", mm_encoder_attn_dtype="fp8", mm_encoder_fp8_scale_path="x", mm_encoder_fp8_scale_save_path="x",
    mm_encoder_fp8_scale_save_margin=2.0, mm_processor_cache_type="shm", mm_processor_device="cpu", mm_hasher_algorithm="sha256",
    mm_shm_cache_max_object_size_mb=2, mm_tensor_ipc="x", mm_ipc_gpu_memory_gb=2, mm_device_do_normalize=False, video_pruning_rate=0.5,
    video_pruning_method="x", ec_manager_config={"x": 1}, replayssm_buffer_len=8, renderer_num_workers=2, elastic_ep_max_dp_size=2,
    dbo_decode_token_threshold=2, dbo_prefill_token_threshold=2, dcp_comm_backend="x", dcp_q_replicate=True,
    dcp_kv_cache_interleave_size=2, cp_kv_cache_interleave_size=2, distributed_timeout_seconds=2, cpu_distributed_timeout_seconds=2,
    enable_fault_tolerance=True, fault_tolerance_config={"x": 1}, dp_sync_interval=2, disable_nccl_for_dp_synchronization=True)


def opening(**arguments):
    return EngineArgs(**{"model": "some/model", **arguments}).opening


def without_given(one):
    return {name: value for name, value in vars(one).items() if name != "given"}


def test_every_argument_of_an_engine_has_a_row():
    rows = [*ACTS, *REFUSED, *TOLD, *NOTHING]
    assert sorted(rows) == sorted(set(rows)) == sorted(EngineArgs.known_names())
    assert set(EngineArgs.known_names()) - {"model"} == set(_engine_rules.RULES)
    assert set(_core.engine_settings()) <= set(EngineArgs.known_names())


@pytest.mark.parametrize("name", ACTS)
def test_arguments_act(name):
    value, evidence = ACTS[name]
    given, plain = opening(**{name: value}), opening()
    if isinstance(evidence, str):
        assert getattr(given, evidence) != getattr(plain, evidence)
    else:
        for setting, expected in evidence.items():
            assert given.config[setting] == expected or (name == "revision" and given.config[setting].endswith(expected))
            assert given.config[setting] != plain.config.get(setting)


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_are_refused(name):
    value, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as error:
        opening(**{name: value})
    assert str(error.value).startswith(f"{name}: ")


@pytest.mark.parametrize("name", TOLD)
def test_arguments_of_gpus_are_told_once(name, monkeypatch):
    monkeypatch.setattr(_engine_rules, "_said", set())
    with pytest.warns(UserWarning, match=f"^{name} means something on GPUs only"):
        given = opening(**{name: TOLD[name]})
    assert without_given(given) == without_given(opening())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opening(**{name: TOLD[name]})


@pytest.mark.parametrize("name", NOTHING)
def test_arguments_that_change_nothing(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert without_given(opening(**{name: NOTHING[name]})) == without_given(opening())


def test_defaults_say_nothing():
    everything = {f.name: f.default for f in dataclasses.fields(EngineArgs) if f.name != "model"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert without_given(opening(**everything)) == without_given(opening())
    args = EngineArgs("some/model", max_model_len=64, speculative_config={"method": "ngram"}, quantization="fp8")
    assert EngineArgs(**dataclasses.asdict(args)).opening == args.opening


FOLDER = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}


# --- Keys inside of arguments -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("arguments, evidence", [
    ({"structured_outputs_config": {"disable_any_whitespace": True}}, lambda o: o.structured.disable_any_whitespace),
    ({"structured_outputs_config": {"disable_additional_properties": True}}, lambda o: o.structured.disable_additional_properties),
    ({"structured_outputs_config": {"backend": "auto", "disable_fallback": True, "enable_in_reasoning": True}},
     lambda o: o == opening(structured_outputs_config={"backend": "auto"}) or True),
    ({"speculative_config": {"model": "d", "num_speculative_tokens": 3}},
     lambda o: (o.config["spec"], o.config["draft_model"], o.config["spec_length"]) == ("draft", "d", "3")),
    ({"speculative_config": {"method": "eagle3", "model": "h"}}, lambda o: o.config["spec_heads"] == "h"),
    ({"speculative_config": {"method": "ngram", "parallel_drafting": False, "disable_padded_drafter_batch": False}},
     lambda o: o.config["spec"] == "ngram"),
    ({"quantization_config": {"load_in_8bit": True}}, lambda o: o.quantization == "bitsandbytes-8bit"),
    ({"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4", "bnb_4bit_compute_dtype": "bfloat16"}},
     lambda o: o.quantization == "bitsandbytes-fp4"),
    ({"quantization": "bitsandbytes", "load_in_8bit": True}, lambda o: o.quantization == "bitsandbytes-8bit"),
    ({"kv_transfer_config": {"kv_connector": "SharedStorageConnector", "kv_role": "kv_consumer", "kv_rank": 1, "engine_id": "x"}},
     lambda o: (o.config["kv_store"], o.config["role"]) == ("/tmp", "decode")),
    ({"max_num_seqs": 8, "max_num_active_seqs": 3}, lambda o: o.config["max_num_seqs"] == 3),
    ({"max_num_seqs": 2, "max_num_active_seqs": 3}, lambda o: o.config["max_num_seqs"] == 2),
    ({"kv_offloading_size": 2}, lambda o: o.config["kv_store"] == "memory:2147483648"),
    ({"kv_offloading_size": 0.5, "kv_store": "/k:1G"}, lambda o: o.config["kv_store"] == "memory:536870912,/k:1G"),
    ({"pooler_config": {"use_activation": False, "dimensions": 4, "task": "classify"}},
     lambda o: (o.pooler_config.use_activation, o.pooler_config.dimensions, o.pooler_config.task) == (False, 4, "classify"))])
def test_keys_act(arguments, evidence):
    assert evidence(opening(**arguments))


@pytest.mark.parametrize("arguments, words", [
    ({"structured_outputs_config": {"backend": "mine"}}, "backend"), ({"structured_outputs_config": {"colour": 1}}, "colour"),
    ({"structured_outputs_config": {"reasoning_parser": "qwen3"}}, "reasoning_parser"),
    ({"speculative_config": {"method": "eagle", "model": "x"}}, "eagle"), ({"speculative_config": {"method": "ngram", "colour": 1}}, "colour"),
    ({"speculative_config": {"method": "ngram", "rejection_sample_method": "synthetic"}}, "rejection_sample_method"),
    ({"speculative_config": {"model": "d", "draft_tensor_parallel_size": 2}}, "expected 1"),
    ({"quantization_config": {"quant_method": "gptq"}}, "bitsandbytes"), ({"quantization_config": {}}, "load_in_4bit or load_in_8bit"),
    ({"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_type": "int4"}}, "nf4 or fp4"),
    ({"quantization_config": {"load_in_8bit": True, "llm_int8_skip_modules": ["x"]}}, "llm_int8_skip_modules"),
    ({"load_in_4bit": True, "load_in_8bit": True}, "expected one"), ({"quantization": "awq", "load_in_4bit": True}, "expected one"),
    ({"pooler_config": {"pooling_type": "STEP"}}, "pooling_type"), ({"pooler_config": {"max_embed_len": 9}}, "max_embed_len"),
    ({"pooler_config": {"task": "rank"}}, "task"), ({"hf_overrides": lambda config: config}, "dictionary"),
    ({"profiler_config": {"profiler": "cuda"}}, "profiler"), ({"runner": "generate", "convert": "embed"}, "pooling"),
    ({"mamba_config": {"enable_stochastic_rounding": True}}, "nearest"), ({"max_num_active_seqs": 0}, "at least 1"),
    ({"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both"}}, "kv_connector: expected ExampleConnector"),
    ({"kv_transfer_config": {"kv_connector": "ExampleConnector"}}, "kv_role: expected kv_producer"),
    ({"kv_transfer_config": {**FOLDER, "kv_connector_extra_config": {"colour": 1}}}, "'colour' is not supported"),
    ({"kv_transfer_config": {**FOLDER, "kv_connector_module_path": "x"}}, "kv_connector_module_path"),
    ({"kv_transfer_config": {**FOLDER, "kv_load_failure_policy": "fail"}}, "kv_load_failure_policy"),
    ({"kv_transfer_config": FOLDER, "role": "decode"}, "role is, which is given too"),
    ({"kv_cache_memory": 1, "kv_cache_memory_bytes": 2}, "another name"), ({"stream_interval": 0}, "at least 1"),
    ({"shutdown_timeout": -1}, "at least 0"), ({"distributed_executor_backend": "external_launcher"}, "RANK")])
def test_keys_are_refused(arguments, words, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match=words):
        opening(**arguments)


def test_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setenv("VLLM_TORCH_PROFILER_DIR", "/p")
    assert opening().config["batch_invariant"] is True and opening().profile_dir == "/p"
    monkeypatch.setenv("RANK", "3")
    alone = opening(distributed_executor_backend="external_launcher", tensor_parallel_size=2, data_parallel_size=2)
    assert "tensor_parallel_size" not in alone.config and alone.n_outside == (2, 1)


# --- Hints ----------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("wrong, right", [
    ("max_modellen", "max_model_len"), ("tensor_paralel_size", "tensor_parallel_size"), ("quantisation", "quantization"),
    ("enable_prefix_cache", "enable_prefix_caching"), ("gpu_memory_utilisation", "gpu_memory_utilization"), ("thread", "threads"),
    ("load_in_8_bit", "load_in_8bit"), ("torch_dtype", "dtype"), ("task", "runner or convert"), ("n_ctx", "max_model_len"),
    ("temperature", "SamplingParams"), ("max_tokens", "SamplingParams"), ("max_new_tokens", "max_tokens")])
def test_hints_name_what_was_meant(wrong, right):
    with pytest.raises(TypeError, match=f"no argument '{wrong}'.*{right}"):
        EngineArgs("m", **{wrong: 1})


@pytest.mark.parametrize("name", ["use_safetensors", "low_cpu_mem_usage", "attn_implementation", "ngl", "rope_freq_base", "verbose",
                                  "colour", "chat_format", "streaming", "callbacks", "use_fast", "padding_side", "numa", "flash_attn"])
def test_hints_do_not_mislead(name):
    with pytest.raises(TypeError) as error:
        penstock.LLM("m", **{name: 1})
    assert str(error.value) == f"there is no argument {name!r}"


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 10**400, decimal.Decimal("NaN"), LOOP], ids=repr)
def test_arguments_that_are_no_numbers(value):
    """TypeError or ValueError, whichever argument has them."""
    for name in set(EngineArgs.known_names()) - {"model"}:
        try:
            opening(**{name: value})
        except (TypeError, ValueError) as error:
            assert len(str(error)) < 2000
    for make in (lambda: PoolingParams(dimensions=value), lambda: BeamSearchParams(beam_width=value, max_tokens=1),
                 lambda: BeamSearchParams(beam_width=1, max_tokens=value), lambda: LoRARequest("a", value, "path")):
        try:
            make()
        except (TypeError, ValueError):
            pass


# --- SamplingParams -------------------------------------------------------------------------------------------------------------

LONG = dict(max_tokens=40, temperature=0)
ENDS = dict(logit_bias={2: 100.0}, temperature=0)  # token 2 ends a text
REPEATS = dict(dry_multiplier=4.0, dry_allowed_length=1, temperature=0, max_tokens=40)
# A field, the value, and what else is given: with the field another output comes than without.
SAMPLED = {
    "n": (2, {}), "presence_penalty": (2.0, LONG), "frequency_penalty": (2.0, LONG), "repetition_penalty": (1.8, LONG),
    "temperature": (0.0, {}), "top_p": (0.05, {}), "top_k": (1, {}), "min_p": (0.9, {}), "seed": (2, {}), "stop": ([" the"], LONG),
    "stop_token_ids": ([], LONG), "ignore_eos": (True, ENDS), "max_tokens": (3, {}), "min_tokens": (4, ENDS), "logprobs": (1, {}),
    "prompt_logprobs": (1, {}), "detokenize": (False, {}), "skip_special_tokens": (False, dict(allowed_token_ids=[1])),
    "include_stop_str_in_output": (True, dict(stop=[" the"], **LONG)),
    "structured_outputs": (StructuredOutputsParams(choice=["Yes", "No"]), {}), "logit_bias": ({300: 100.0}, {}),
    "allowed_token_ids": ([300, 301], {}), "bad_words": ([], LONG), "skip_reading_prefix_cache": (True, {}), "typical_p": (0.05, {}),
    "penalty_last_n": (0, dict(repetition_penalty=1.8, **LONG)),
    "dry_multiplier": (4.0, dict(dry_allowed_length=1, **LONG)), "dry_base": (1000.0, dict(REPEATS, dry_multiplier=0.5, dry_allowed_length=0)),
    "dry_allowed_length": (40, REPEATS), "dry_penalty_last_n": (1, REPEATS), "dry_sequence_breakers": ([" "], REPEATS),
    "xtc_probability": (1.0, {}), "xtc_threshold": (0.5, dict(xtc_probability=1.0)), "mirostat": (2, {}),
    "mirostat_tau": (0.1, dict(mirostat=2)), "mirostat_eta": (1.0, dict(mirostat=2, mirostat_tau=1.0)), "banned_token_ids": ([], LONG),
    "logits_processors": ([lambda ids, logits: logits.__setitem__(slice(None), -logits)], {}),
}
# Fields that act elsewhere: where streams are, where the model has reasoning, where the engine has processors that read them.
ELSEWHERE = {"output_kind": "async_test.test_kinds_agree", "stream_interval": "async_test.test_intervals",
             "trace_decode_token_ids": "generate_test.test_replay",
             "thinking_token_budget": "generate_test.test_thinking_budget", "extra_args": "vllm_scripts/processors.py"}
SAMPLING_REFUSED = {"logprob_token_ids": ([1], "not supported"), "flat_logprobs": (True, "not supported"),
                    "repetition_detection": ({"x": 1}, "not supported"), "watermarking": (True, "not supported"),
                    "prompt_logprob_token_ids": ([[1]], "not supported"), "prompt_logprob_start": (1, "not supported"),
                    "routed_experts_prompt_start": (1, "not supported")}
# spaces_between_special_tokens is of slow tokenizers: texts are put together as fast ones do, without. skip_clone saves a copy that
# is not made.
SAMPLING_NOTHING = {"spaces_between_special_tokens": False, "skip_clone": True}


def test_every_sampling_parameter_has_a_row():
    rows = [*SAMPLED, *ELSEWHERE, *SAMPLING_REFUSED, *SAMPLING_NOTHING]
    assert sorted(rows) == sorted(set(rows)) == sorted(f.name for f in dataclasses.fields(SamplingParams))


def observed(llm, prompt, **fields):
    output = llm.generate(prompt, SamplingParams(**fields), use_tqdm=False)[0]
    return [(one.text, one.token_ids, one.logprobs, one.finish_reason, one.stop_reason) for one in output.outputs], \
        output.prompt_logprobs, output.num_cached_tokens


@pytest.mark.parametrize("name", SAMPLED)
def test_sampling_parameters_act(stories, name):
    value, more = SAMPLED[name]
    prompt = "Once upon a time there was a little girl who liked to play in the park with a big red ball."
    base = {"max_tokens": 12, "seed": 1, **more}
    stories.generate(prompt, SamplingParams(max_tokens=1), use_tqdm=False)  # which is in the prefix cache from here on
    plain = observed(stories, prompt, **base)
    tokens = plain[0][0][1]
    if name in ("stop_token_ids", "banned_token_ids"):
        value = [tokens[5]]
    if name == "bad_words":
        value = [stories.get_tokenizer().decode(tokens[5:7]).strip()]
    assert observed(stories, prompt, **base) == plain
    assert observed(stories, prompt, **{**base, name: value}) != plain, plain


@pytest.mark.parametrize("name", SAMPLING_REFUSED)
def test_sampling_parameters_are_refused(name):
    value, words = SAMPLING_REFUSED[name]
    with pytest.raises(ValueError, match=f"^{name}: .*{words}"):
        SamplingParams(**{name: value})


def test_sampling_parameters_that_change_nothing(stories):
    base = dict(max_tokens=12, seed=1)
    for name, value in SAMPLING_NOTHING.items():
        assert observed(stories, "Once", **base, **{name: value})[0] == observed(stories, "Once", **base)[0], name


def test_parameters_that_nothing_reads_are_refused(stories):
    with pytest.raises(ValueError, match="extra_args: nothing reads them"):
        stories.generate("x", SamplingParams(extra_args={"a": 1}))
    with pytest.raises(ValueError, match="no marks of reasoning"):
        stories.generate("x", SamplingParams(thinking_token_budget=3))


@pytest.mark.parametrize("fields, words", [({"allowed_token_ids": []}, "at least one"), ({"structured_outputs": {"choice": []}}, "choice"),
                                           ({"structured_outputs": {}}, "exactly one")])
def test_empty_lists_are_no_missing_ones(fields, words):
    with pytest.raises(ValueError, match=words):
        SamplingParams(**fields)


@pytest.mark.parametrize("prompts", [b"abc", bytearray(b"abc"), memoryview(b"abc"), {1, 2}, [b"abc"], {"prompt_token_ids": b"abc"},
                                     {"prompt": b"abc"}, {"prompt": "a", "cache_salt": 5}], ids=repr)
def test_bytes_are_no_prompts(stories, prompts):
    with pytest.raises(TypeError, match="expected"):
        stories.generate(prompts, SamplingParams(max_tokens=1), use_tqdm=False)


# --- BeamSearchParams ---------------------------------------------------------------------------------------------------------------

BEAMS = {"beam_width": (3, {}), "max_tokens": (4, {}), "ignore_eos": (True, dict(allowed_token_ids=[2, 300, 301])), "length_penalty": (-4.0, dict(beam_width=4)),
         "include_stop_str_in_output": None, "structured_outputs": (StructuredOutputsParams(choice=["Yes", "No"]), {}),
         "skip_special_tokens": (False, {}), "allowed_token_ids": ([300, 301, 302], {}), "temperature": "refused"}


@pytest.mark.parametrize("name", BEAMS)
def test_parameters_of_beams(stories, name):
    assert set(BEAMS) == {f.name for f in dataclasses.fields(BeamSearchParams)}
    if BEAMS[name] is None:  # beams are ended by tokens: there is no stop string to keep
        return
    if BEAMS[name] == "refused":
        with pytest.raises(ValueError, match="temperature"):
            BeamSearchParams(2, 4, temperature=1.0)
        return
    value, more = BEAMS[name]

    def found(**fields):
        params = BeamSearchParams(**{"beam_width": 2, "max_tokens": 40 if name == "length_penalty" else 8, **fields})
        prompt = "The end." if name == "length_penalty" else "Once"
        return [(one.tokens, one.text) for one in stories.beam_search([prompt], params)[0].sequences]
    assert found(**{**more, name: value}) != found(**more)


# --- Methods ------------------------------------------------------------------------------------------------------------------------

EMBEDDER = str(ROOT / "tests/golden/sentences/mean_normalized")
CROSS = str(ROOT / "tests/golden/cross_encoders/bert")
GREEDY = SamplingParams(temperature=0, max_tokens=6)
MESSAGES = [{"role": "user", "content": "plain"}]


class Counted:
    """A bar of progress that knows how often it was made."""

    made = 0

    def __init__(self, **_):
        Counted.made += 1

    def update(self, n):
        pass

    def close(self):
        pass


def shown(call):
    before = Counted.made
    call(Counted)
    return Counted.made > before


def refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
    return True


@pytest.fixture(scope="module")
def embedder():
    with penstock.LLM(EMBEDDER) as llm:
        yield llm


@pytest.fixture(scope="module")
def cross():
    with penstock.LLM(CROSS) as llm:
        yield llm


def text(outputs):
    return outputs[0].outputs[0].text


ADAPTER = LoRARequest("a", 1, "/a")
GENERATE = {
    "prompts": lambda g: text(g(prompts="Once")) != text(g(prompts="The dog")),
    "sampling_params": lambda g: text(g("Once", sampling_params=GREEDY)) != text(g("Once", SamplingParams(temperature=0, max_tokens=2))),
    "use_tqdm": lambda g: shown(lambda bar: g("Once", GREEDY, use_tqdm=bar)),
    "lora_request": lambda g: refused(lambda: g("Once", GREEDY, lora_request=ADAPTER), "enable_lora"),
    "priority": lambda g: refused(lambda: g("Once", GREEDY, priority=1), "scheduling_policy"),
    "tokenization_kwargs": lambda g: len(g("one two three", GREEDY, tokenization_kwargs={"truncate_prompt_tokens": 2})[0].prompt_token_ids) == 2,
    "mm_processor_kwargs": lambda g: refused(lambda: g("Once", GREEDY, mm_processor_kwargs={"x": 1}), "mm_processor_kwargs"),
}
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ extra }}"
CHAT = {
    "messages": lambda c: c(messages=MESSAGES)[0].prompt != c(messages=[{"role": "user", "content": "think"}])[0].prompt,
    "sampling_params": lambda c: text(c(MESSAGES, GREEDY)) != text(c(MESSAGES, SamplingParams(temperature=0, max_tokens=1))),
    "use_tqdm": lambda c: shown(lambda bar: c(MESSAGES, GREEDY, use_tqdm=bar)),
    "lora_request": lambda c: refused(lambda: c(MESSAGES, GREEDY, lora_request=ADAPTER), "enable_lora"),
    "priority": lambda c: refused(lambda: c(MESSAGES, GREEDY, priority=1), "scheduling_policy"),
    "chat_template": lambda c: c(MESSAGES, GREEDY, chat_template=TEMPLATE)[0].prompt == "plain",
    "chat_template_content_format": lambda c: refused(lambda: c(MESSAGES, GREEDY, chat_template_content_format="x"), "content_format"),
    "add_generation_prompt": lambda c: c(MESSAGES, GREEDY, add_generation_prompt=False)[0].prompt != c(MESSAGES, GREEDY)[0].prompt,
    "continue_final_message": lambda c: c(MESSAGES, GREEDY, continue_final_message=True)[0].prompt.endswith("plain") and refused(
        lambda: c(MESSAGES, GREEDY, continue_final_message=True, add_generation_prompt=True), "continue_final_message"),
    "tools": lambda c: "get_it" in c(MESSAGES, GREEDY, tools=[{"type": "function", "function": {"name": "get_it", "parameters": {}}}])[0].prompt,
    "chat_template_kwargs": lambda c: c(MESSAGES, GREEDY, chat_template=TEMPLATE, chat_template_kwargs={"extra": "!"})[0].prompt == "plain!",
    "tokenization_kwargs": lambda c: len(c(MESSAGES, GREEDY, tokenization_kwargs={"truncate_prompt_tokens": 2})[0].prompt_token_ids) == 2,
    "mm_processor_kwargs": lambda c: refused(lambda: c(MESSAGES, GREEDY, mm_processor_kwargs={"x": 1}), "mm_processor_kwargs"),
}


def pooling_rows(call, data):
    """Rows that all methods of vectors share."""
    return {
        "pooling_params": lambda: refused(lambda: call(pooling_params=PoolingParams(truncate_prompt_tokens=0)), "truncate_prompt_tokens"),
        "use_tqdm": lambda: shown(lambda bar: call(use_tqdm=bar)),
        "lora_request": lambda: refused(lambda: call(lora_request=ADAPTER), "enable_lora"),
        "tokenization_kwargs": lambda: len(call(tokenization_kwargs={"truncate_prompt_tokens": 4})[0].prompt_token_ids) < len(
            data(call())) and refused(lambda: call(tokenization_kwargs={"padding": True}), "padding"),
    }


@pytest.mark.parametrize("name", GENERATE)
def test_generate(stories, name):
    assert list(GENERATE) == [p for p in inspect.signature(penstock.LLM.generate).parameters if p != "self"]
    assert GENERATE[name](stories.generate)


@pytest.mark.parametrize("name", CHAT)
def test_chat(script, name):
    assert sorted(CHAT) == sorted(p for p in inspect.signature(penstock.LLM.chat).parameters if p != "self")
    assert CHAT[name](script.chat)


@pytest.mark.parametrize("method", ["embed", "encode", "reward", "classify", "score"])
def test_methods_of_vectors(embedder, cross, method):
    llm = {"classify": cross, "score": cross}.get(method, embedder)
    first = ["a rather long text about cats"] if method != "score" else ["a rather long text", "about cats"]
    if method == "reward":
        def call(**more):
            return penstock.LLM.encode(embedder, *first, pooling_task="token_embed", **more)
    else:
        def call(**more):
            return getattr(llm, method)(*first, **more)
    rows = pooling_rows(call, lambda outputs: outputs[0].prompt_token_ids)
    own = {
        "prompts": lambda: llm.embed("a")[0].prompt_token_ids != llm.embed("b c")[0].prompt_token_ids if method != "classify" else
        llm.classify("a")[0].outputs.probs != llm.classify("b c")[0].outputs.probs,
        "pooling_task": lambda: embedder.encode("a b", pooling_task="token_embed")[0].outputs.data.ndim == 2,
        "data_1": lambda: cross.score("a", "b")[0].outputs.score != cross.score("c d", "b")[0].outputs.score,
        "data_2": lambda: cross.score("a", "b")[0].outputs.score != cross.score("a", "c d")[0].outputs.score,
        "chat_template": lambda: cross.score("a", "b", chat_template="{% for m in messages %}{{ m.content }} {% endfor %}")[
            0].prompt_token_ids != cross.score("a", "b")[0].prompt_token_ids and refused(
                lambda: embedder.score("a", "b", chat_template="{{ messages[0].content }}"), "no classification head"),
    }
    for name in [p for p in inspect.signature(getattr(penstock.LLM, method)).parameters if p != "self"]:
        assert {**rows, **own}[name](), name


def test_pooling_parameters(embedder, cross):
    plain = embedder.embed("a rather long text")[0]
    rows = {
        "use_activation": lambda: embedder.embed("a rather long text", pooling_params=PoolingParams(use_activation=False))[
            0].outputs.embedding != plain.outputs.embedding and cross.classify("a", pooling_params=PoolingParams(use_activation=False))[
                0].outputs.probs != cross.classify("a")[0].outputs.probs,
        "dimensions": lambda: len(embedder.embed("a", pooling_params=PoolingParams(dimensions=4))[0].outputs.embedding) == 4 and refused(
            lambda: cross.classify("a", pooling_params=PoolingParams(dimensions=4)), "dimensions"),
        "task": lambda: embedder.encode("a b", PoolingParams(task="token_embed"))[0].outputs.data.ndim == 2 and refused(
            lambda: embedder.embed("a", pooling_params=PoolingParams(task="classify")), "task"),
        "truncate_prompt_tokens": lambda: len(embedder.embed("a rather long text", pooling_params=PoolingParams(
            truncate_prompt_tokens=3))[0].prompt_token_ids) == 3,
        "step_tag_id": lambda: refused(lambda: PoolingParams(step_tag_id=1), "step_tag_id"),
        "returned_token_ids": lambda: refused(lambda: PoolingParams(returned_token_ids=[1]), "returned_token_ids"),
        "extra_kwargs": lambda: refused(lambda: PoolingParams(extra_kwargs={"a": 1}), "extra_kwargs"),
        "late_interaction_params": lambda: refused(lambda: PoolingParams(late_interaction_params=1), "late_interaction_params"),
        "late_chunking_params": lambda: refused(lambda: PoolingParams(late_chunking_params=LateChunkingParams(8)), "token_embed"),
        # Nothing is streamed, token ids are in every output, and there is no prefix cache.
        **{name: lambda name=name, value=value: embedder.embed("a rather long text", pooling_params=PoolingParams(**{name: value}))[
            0].outputs.embedding == plain.outputs.embedding
           for name, value in (("requires_token_ids", True), ("skip_reading_prefix_cache", True), ("output_kind", 2))},
    }
    assert set(rows) == {f.name for f in dataclasses.fields(PoolingParams)}
    for name, row in rows.items():
        assert row(), name
    each = embedder.embed(["a b c", "a b c"], pooling_params=[PoolingParams(dimensions=4), PoolingParams(dimensions=8)])
    assert [len(one.outputs.embedding) for one in each] == [4, 8]
    with pytest.raises(ValueError, match="expected one or 2"):
        embedder.embed(["a", "b"], pooling_params=[PoolingParams()] * 3)


def test_the_pooler_config_acts():
    with penstock.LLM(EMBEDDER, pooler_config={"use_activation": False, "dimensions": 4, "task": "token_embed"}) as llm:
        assert llm.encode("a b")[0].outputs.data.shape[1] == 4
        assert llm.embed("a b")[0].outputs.data.shape == (len(llm.embed("a b")[0].prompt_token_ids), 4)
    with penstock.LLM(CROSS, pooler_config=PoolerConfig(use_activation=False)) as llm, penstock.LLM(CROSS) as plain:
        raw = PoolingParams(use_activation=False)
        assert llm.classify("a")[0].outputs.probs == plain.classify("a", pooling_params=raw)[0].outputs.probs
    with penstock.LLM(EMBEDDER, max_model_len=6) as llm:
        with pytest.raises(ValueError, match="at most 6 tokens"):
            llm.embed("a rather long text about many things")
        cut = llm.embed("a rather long text about many things", pooling_params=PoolingParams(truncate_prompt_tokens=-1))[0]
        assert len(cut.prompt_token_ids) == 6
    for arguments in ({"speculative_config": {"method": "ngram"}}, {"kv_cache_dtype": "int8"}, {"kv_store": "/x"}):
        with pytest.raises(ValueError, match="gives vectors"):
            penstock.LLM(EMBEDDER, **arguments)


# --- Arguments that act beyond the engine's settings ----------------------------------------------------------------------------------

def test_arguments_act_on_calls():
    structured = SamplingParams(max_tokens=60, seed=1, structured_outputs=StructuredOutputsParams(
        json={"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}, complete_within_max_tokens=True))
    with penstock.LLM(SMALL, served_model_name=["first", "second"], max_logprobs=2, structured_outputs_config={
            "disable_any_whitespace": True, "disable_additional_properties": True}) as llm:
        assert llm.get_metrics()[0].labels["model_name"] == "first"
        with pytest.raises(ValueError, match="max_logprobs"):
            llm.generate("x", SamplingParams(logprobs=3), use_tqdm=False)
        assert text(llm.generate("JSON:", structured, use_tqdm=False)) in ('{"a":1}', '{"a":1.0}')
    with penstock.LLM(SMALL, skip_tokenizer_init=True) as llm:
        with pytest.raises(ValueError, match="skip_tokenizer_init"):
            llm.generate("x", SamplingParams(max_tokens=1), use_tqdm=False)
        with pytest.raises(ValueError, match="skip_tokenizer_init"):
            llm.get_tokenizer()
        one = llm.generate([1, 300], SamplingParams(max_tokens=3, logprobs=1), use_tqdm=False)[0].outputs[0]
        assert one.text == "" and len(one.token_ids) == 3
        assert all(entry.decoded_token is None for row in one.logprobs for entry in row.values())


def test_detokenize_false_makes_no_text(stories):
    params = SamplingParams(max_tokens=4, temperature=0, detokenize=False, logprobs=1, prompt_logprobs=1)
    output = stories.generate("Once upon", params, use_tqdm=False)[0]
    rows = output.outputs[0].logprobs + output.prompt_logprobs[1:]
    assert output.outputs[0].text == "" and len(output.outputs[0].token_ids) == 4
    assert all(entry.decoded_token is None for row in rows for entry in row.values())


def test_the_time_of_arrival_is_that_of_the_metrics():
    with penstock.LLM(SMALL) as llm:
        engine = llm.llm_engine
        engine.add_request("a", "Once", SamplingParams(max_tokens=1), arrival_time=12.5)
        outputs = []
        while engine.has_unfinished_requests():
            outputs += engine.step()
    assert outputs[-1].metrics.arrival_time == 12.5


@pytest.mark.parametrize("name, value", [("padding", True), ("truncation", True), ("max_length", 4), ("return_tensors", "pt"),
                                         ("return_assistant_tokens_mask", True), ("tokenizer_kwargs", {"a": 1})])
def test_chat_templates_do_not_change_tokens(script, name, value):
    tokenizer = script.get_tokenizer()
    with pytest.raises(ValueError, match=f"apply_chat_template: {name}"):
        tokenizer.apply_chat_template(MESSAGES, **{name: value})
    assert tokenizer.apply_chat_template(MESSAGES, **{name: None}) == tokenizer.apply_chat_template(MESSAGES)


def test_prompts_have_no_arguments_of_images(stories):
    with pytest.raises(ValueError, match="mm_processor_kwargs"):
        stories.generate({"prompt": "x", "mm_processor_kwargs": {"a": 1}}, use_tqdm=False)


# Fields of StructuredOutputsParams beside the one that holds, and whether a text shows that they act.
SPACED = {"disable_any_whitespace": (True, lambda text: " " not in text and "\n" not in text),
          "whitespace_pattern": (" ", lambda text: text.startswith('{ "a"')),
          "additional_properties": (True, lambda text: "," in text[text.index("]"):]),
          "complete_within_max_tokens": (True, lambda text: text.endswith("}"))}


def test_parameters_of_structured_outputs(stories):
    held = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}  # generate_test and the grammar's own tests
    closing = {"disable_additional_properties"}  # the default
    assert {*SPACED, *held, *closing} == {f.name for f in dataclasses.fields(StructuredOutputsParams)}
    for name, (value, shows) in SPACED.items():
        more_keys = name == "additional_properties"
        completes = name == "complete_within_max_tokens"
        a = {"type": "string"} if completes else {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 3}
        schema = {"properties": {"a": a}, "required": ["a"], "type": "object", **({} if more_keys else {"additionalProperties": False})}
        texts = []
        for more in ({name: value}, {}):
            held_to = StructuredOutputsParams(json=schema, **{"disable_any_whitespace": more_keys, **more})
            params = SamplingParams(max_tokens=10 if completes else 40, seed=1, structured_outputs=held_to)
            texts.append(text(stories.generate("x", params, use_tqdm=False)))
        assert shows(texts[0]) and not shows(texts[1]), (name, texts)


def test_white_space_that_must_stand_has_no_shortest_ending(stories):
    held = StructuredOutputsParams(json={"type": "object"}, whitespace_pattern=" {3}", complete_within_max_tokens=True)
    with pytest.raises(ValueError, match="whitespace_pattern demands white space"):
        stories.generate("x", SamplingParams(max_tokens=40, structured_outputs=held), use_tqdm=False)


def test_arguments_of_the_asynchronous_engine():
    names = list(inspect.signature(AsyncLLM.__init__).parameters)
    assert names == ["self", *(f.name for f in dataclasses.fields(EngineArgs))]
    assert list(inspect.signature(penstock.LLM.__init__).parameters) == names

    async def run():
        engine = AsyncLLM(STORIES, max_num_seqs=4)
        try:
            with pytest.raises(ValueError, match="stat_loggers"):
                AsyncLLM.from_engine_args(penstock.AsyncEngineArgs(SMALL), stat_loggers=[object()])

            async def last(**more):
                async for output in engine.generate("one two three", GREEDY, **more):
                    found = output
                return found
            for more, words in (({"lora_request": ADAPTER}, "enable_lora"), ({"priority": 1}, "scheduling_policy"),
                                ({"tokenization_kwargs": {"padding": True}}, "padding")):
                with pytest.raises(ValueError, match=words):
                    await last(**more)
            named = await last(request_id="mine", tokenization_kwargs={"truncate_prompt_tokens": 2}, trace_headers={"a": "b"})
            assert named.request_id == "mine" and len(named.prompt_token_ids) == 2
        finally:
            engine.shutdown()
    asyncio.run(run())
    rows = {"prompt", "sampling_params", "request_id", "lora_request", "priority", "trace_headers", "tokenization_kwargs"}
    assert {p for p in inspect.signature(AsyncLLM.generate).parameters if p != "self"} == rows


class Refuses:
    """As an array of several values: an integer by its type, and by its value none."""

    def __index__(self):
        raise TypeError("only an array of one value is an integer")


@pytest.mark.parametrize("value", [Refuses(), [Refuses()], {"a": Refuses()}, "\ud800", ["\ud800"], {"\ud800": 1}, b"x", object(), {1, 2}, 1j, 10**400, decimal.Decimal("NaN"),
                                   [[1]], {None: 1}], ids=repr)
def test_values_that_mean_nothing(stories, value):
    """TypeError or ValueError, whichever field has them."""
    for each in dataclasses.fields(SamplingParams):
        try:
            stories.generate("Once", SamplingParams(**{"max_tokens": 1, each.name: value}))
        except (TypeError, ValueError):
            pass
    for call in (lambda: stories.generate(value, GREEDY), lambda: stories.generate({"prompt_token_ids": value}, GREEDY),
                 lambda: stories.chat(MESSAGES, GREEDY, chat_template=TEMPLATE, chat_template_kwargs={"extra": value}),
                 lambda: stories.chat([{"role": "user", "content": value}], GREEDY, chat_template=TEMPLATE)):
        try:
            call()
        except (TypeError, ValueError):
            pass
