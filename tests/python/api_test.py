"""Names, defaults and shapes beside vLLM 0.33's (read off its wheel), field by field."""
import dataclasses
import inspect

import pytest

import penstock
from penstock import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams
from penstock.engine_args import EngineArgs

NONE = None
# In vLLM's order.
SAMPLING = [
    ("n", 1), ("presence_penalty", 0.0), ("frequency_penalty", 0.0), ("repetition_penalty", 1.0), ("temperature", 1.0),
    ("top_p", 1.0), ("top_k", 0), ("min_p", 0.0), ("seed", NONE), ("stop", []), ("stop_token_ids", []),
    ("ignore_eos", False), ("max_tokens", 16), ("min_tokens", 0), ("logprobs", NONE), ("prompt_logprobs", NONE),
    ("logprob_token_ids", NONE), ("flat_logprobs", False), ("detokenize", True), ("skip_special_tokens", True),
    ("spaces_between_special_tokens", True), ("include_stop_str_in_output", False),
    ("output_kind", penstock.RequestOutputKind.CUMULATIVE), ("skip_clone", False), ("structured_outputs", NONE),
    ("logit_bias", NONE), ("allowed_token_ids", NONE), ("extra_args", NONE), ("bad_words", []),
    ("skip_reading_prefix_cache", NONE), ("thinking_token_budget", NONE), ("repetition_detection", NONE)]
EXPORTS = """LLM PromptType TextPrompt TokensPrompt SamplingParams RequestOutput CompletionOutput PoolingOutput PoolingRequestOutput
EmbeddingOutput EmbeddingRequestOutput ClassificationOutput ClassificationRequestOutput ScoringOutput ScoringRequestOutput
LLMEngine EngineArgs AsyncLLMEngine AsyncEngineArgs PoolingParams __version__ __version_tuple__""".split()
METHODS = {
    "generate": "prompts sampling_params use_tqdm lora_request priority tokenization_kwargs mm_processor_kwargs",
    "chat": "messages sampling_params use_tqdm lora_request priority chat_template chat_template_content_format "
            "add_generation_prompt continue_final_message tools chat_template_kwargs tokenization_kwargs mm_processor_kwargs",
    "encode": "prompts pooling_params use_tqdm lora_request pooling_task tokenization_kwargs",
    "embed": "prompts use_tqdm pooling_params lora_request tokenization_kwargs",
    "classify": "prompts pooling_params use_tqdm lora_request tokenization_kwargs",
    "score": "data_1 data_2 use_tqdm pooling_params lora_request tokenization_kwargs chat_template",
    "beam_search": "prompts params lora_request use_tqdm concurrency_limit priority",
    "sleep": "level mode", "wake_up": "tags", "get_tokenizer": "", "get_default_sampling_params": "", "get_metrics": "",
    "reset_prefix_cache": "reset_running_requests reset_connector", "reset_mm_cache": "", "release_kv_cache_memory": "",
    "start_profile": "profile_prefix", "stop_profile": "", "get_world_size": "include_dp",
    "wait_for_completion": "output_type use_tqdm",
}
REQUEST_OUTPUT = """request_id prompt prompt_token_ids prompt_logprobs outputs finished metrics lora_request encoder_prompt
encoder_prompt_token_ids num_cached_tokens kv_transfer_params""".split()
COMPLETION_OUTPUT = """index text token_ids cumulative_logprob logprobs routed_experts finish_reason stop_reason
lora_request""".split()
STATS = """num_generation_tokens num_preemptions arrival_time queued_ts scheduled_ts first_token_ts last_token_ts
first_token_latency is_corrupted""".split()
# LLM's and the engine's arguments that scripts pass, with values that mean "as usual".
ARGUMENTS = dict(
    runner="auto", convert="auto", tokenizer=None, tokenizer_mode="auto", skip_tokenizer_init=False, trust_remote_code=True,
    allowed_local_media_path="", allowed_media_domains=None, tensor_parallel_size=1, dtype="auto", quantization=None,
    revision=None, tokenizer_revision=None, chat_template=None, seed=0, gpu_memory_utilization=0.5, cpu_offload_gb=0,
    offload_group_size=0, offload_num_in_group=1, offload_prefetch_step=1, offload_params=None, enforce_eager=False,
    enable_return_routed_experts=False, return_sampling_mask=False, disable_custom_all_reduce=False, hf_token=None,
    hf_overrides=None, mm_processor_kwargs=None, pooler_config=None, structured_outputs_config=None, profiler_config=None,
    attention_config=None, kv_cache_memory_bytes=None, compilation_config=None, quantization_config=None,
    logits_processors=None, spec_method=None, spec_model=None, spec_tokens=None, max_model_len=256, max_num_seqs=8,
    max_num_batched_tokens=512, block_size=16, enable_prefix_caching=True, prefix_caching_hash_algo="sha256",
    enable_chunked_prefill=True, kv_cache_dtype="auto", mamba_cache_dtype="auto", mamba_ssm_cache_dtype="auto", load_format="auto", download_dir=None, served_model_name="x",
    speculative_config=None, enable_lora=False, max_logprobs=20, logprobs_mode="raw_logprobs", scheduling_policy="fcfs",
    kv_transfer_config=None, kv_offloading_size=None, distributed_executor_backend=None, data_parallel_size=1,
    pipeline_parallel_size=1, limit_mm_per_prompt=None, generation_config="auto", override_generation_config=None,
    async_scheduling=None, stream_interval=1, disable_log_stats=True, otlp_traces_endpoint=None, num_gpu_blocks_override=None,
    max_num_queued_reqs=None, max_num_queued_tokens=None, watermark=None)


def test_exports():
    missing = [name for name in EXPORTS if not hasattr(penstock, name)]
    assert not missing
    from penstock.lora.request import LoRARequest
    from penstock.logprobs import Logprob
    from penstock.sampling_params import BeamSearchParams, RequestOutputKind
    assert all((LoRARequest, Logprob, BeamSearchParams, RequestOutputKind))


def test_sampling_params_fields_and_defaults():
    fields = [f.name for f in dataclasses.fields(SamplingParams)]
    assert fields[:len(SAMPLING)] == [name for name, _ in SAMPLING]
    params = SamplingParams()
    assert [(name, getattr(params, name)) for name, _ in SAMPLING] == SAMPLING


def test_every_field_of_the_engine_is_a_field_here():
    engine = SamplingParams()._as_dict()
    llm = LLM.__init__  # the names come from the engine itself
    assert llm is not None
    with penstock.LLM(str(__import__("conftest").SMALL)) as small:
        known = set(small._session.default_params())
    own = {f.name for f in dataclasses.fields(SamplingParams)}
    by_beams = {"use_beam_search", "beam_width", "length_penalty", "early_stopping"}
    assert known - own - by_beams == set()
    assert set(engine) <= known | {"read_prefix_cache", "thinking_token_budget"}


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_vllms_arguments(name):
    parameters = [p for p in inspect.signature(getattr(LLM, name)).parameters if p != "self"]
    assert parameters == METHODS[name].split()


def test_async_methods():
    for name in ("generate", "abort", "get_tokenizer", "check_health", "from_engine_args", "shutdown"):
        assert hasattr(AsyncLLM, name)
    names = list(inspect.signature(AsyncLLM.generate).parameters)
    assert names[1:4] == ["prompt", "sampling_params", "request_id"]


def test_outputs_have_vllms_fields(stories):
    output = stories.generate("Once", SamplingParams(max_tokens=2, temperature=0, logprobs=1), use_tqdm=False)[0]
    for name in REQUEST_OUTPUT:
        assert hasattr(output, name), name
    for name in COMPLETION_OUTPUT:
        assert hasattr(output.outputs[0], name), name
    for name in STATS:
        assert hasattr(output.metrics, name), name
    entry = output.outputs[0].logprobs[0][output.outputs[0].token_ids[0]]
    assert [f.name for f in dataclasses.fields(entry)] == ["logprob", "rank", "decoded_token"]
    assert output.outputs[0].finished()


def test_every_argument_is_taken():
    args = EngineArgs("some/model", **ARGUMENTS)
    assert args.config["max_model_len"] == 256 and args.config["max_num_seqs"] == 8
    assert args.config["memory_utilization"] == 0.5


def test_states_have_the_type_that_is_named_last():
    assert "mamba_ssm_cache_dtype" not in EngineArgs("some/model", mamba_cache_dtype="auto").config
    assert EngineArgs("some/model", mamba_cache_dtype="bfloat16").config["mamba_ssm_cache_dtype"] == "bfloat16"
    both = EngineArgs("some/model", mamba_ssm_cache_dtype="float32", mamba_cache_dtype="bfloat16")
    assert both.config["mamba_ssm_cache_dtype"] == "float32"


@pytest.mark.parametrize("arguments, words", [
    ({"lora_dtype": "float16"}, "auto"),
    ({"dtype": "int4"}, "dtype"), ({"mamba_cache_dtype": "float16"}, "float32 or bfloat16"), ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
    ({"tokenizer": "other/tokenizer"}, "tokenizer"), ({"load_format": "tensorizer"}, "load_format"),
    ({"speculative_config": {"method": "eagle", "model": "x"}}, "eagle"),
    ({"speculative_config": {"method": "ngram", "colour": 1}}, "colour"), ({"max_model_len": 0}, "at least 1"),
    ({"runner": "draft"}, "runner"), ({"scheduling_policy": "lottery"}, "fcfs or priority")])
def test_what_cannot_be_honoured_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        EngineArgs("some/model", **arguments)


def test_unknown_arguments_name_the_nearest():
    with pytest.raises(TypeError, match="max_model_len"):
        EngineArgs("m", max_modellen=3)
    with pytest.raises(TypeError, match="runner or convert"):
        EngineArgs("m", task="embed")


def test_gpu_arguments_are_said_once(recwarn):
    EngineArgs("m", watermark=0.1, swap_space=4)
    EngineArgs("m", watermark=0.1)
    told = [str(w.message) for w in recwarn if "GPUs only" in str(w.message)]
    assert len(told) == len(set(told))


def test_steps_of_gpus_are_computed_as_they_come_if_told():
    assert EngineArgs("m", enforce_eager=True).config["enforce_eager"] is True


def test_speculation_is_mapped():
    args = EngineArgs("m", speculative_config={"method": "draft_model", "model": "d", "num_speculative_tokens": 3})
    assert (args.config["spec"], args.config["draft_model"], args.config["spec_length"]) == ("draft", "d", "3")


@pytest.mark.parametrize("fields, words", [
    ({"n": 0}, "^n:"), ({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"top_p": 1.5}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"), ({"min_tokens": 20}, "min_tokens"), ({"n": 2, "temperature": 0}, "greedy"),
    ({"stop": [""]}, "stop"), ({"logprob_token_ids": [1]}, "logprob_token_ids"), ({"presence_penalty": 3}, "presence"),
    ({"temperature": float("nan")}, "temperature"), ({"detokenize": False, "stop": "x"}, "detokenize")])
def test_sampling_params_refuse(fields, words):
    with pytest.raises(ValueError, match=words):
        SamplingParams(**fields)


def test_structured_outputs_want_exactly_one():
    with pytest.raises(ValueError, match="exactly one"):
        StructuredOutputsParams()
    with pytest.raises(ValueError, match="exactly one"):
        StructuredOutputsParams(regex="a", choice=["b"])


def test_normalisation_as_vllm_does_it():
    assert SamplingParams(stop="x").stop == ["x"]
    assert SamplingParams(temperature=0.001).temperature == 0.01
    greedy = SamplingParams(temperature=0, top_p=0.5, top_k=5, min_p=0.1)
    assert (greedy.top_p, greedy.top_k, greedy.min_p) == (1.0, 0, 0.0)
    assert SamplingParams(logit_bias={"3": 500}).logit_bias == {3: 100.0}
    assert SamplingParams(logprobs=True).logprobs == 1
    clone = SamplingParams(stop=["a"]).clone()
    clone.stop.append("b")
    assert clone.stop == ["a", "b"]


def test_the_stubs_name_what_is_there():
    import ast
    import pathlib
    from penstock import _core
    tree = ast.parse((pathlib.Path(penstock.__file__).parent / "_core.pyi").read_text())
    said = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(said) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in said.items():
        if isinstance(node, ast.ClassDef):
            members = {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__init__"}
            assert members == {member for member in dir(getattr(_core, name)) if not member.startswith("_")}, name
            functions = [(one.name, one) for one in node.body if isinstance(one, ast.FunctionDef)]
        else:
            functions = [(name, node)]
        for one, function in functions:
            owner = getattr(_core, name)
            native = getattr(owner, one) if isinstance(node, ast.ClassDef) else owner
            signatures = getattr(native, "__nb_signature__", None)
            if signatures:
                arguments = [argument.arg for argument in function.args.args]
                assert all(argument in signatures[0][0] or argument == "self" for argument in arguments), (name, one)
