#!/usr/bin/env python3
"""Runs vLLM's offline examples of text on Penstock: `vllm` is this package, and small models stand for the named ones.

  run_vllm_examples.py CHECKOUT [part of a name...]    CHECKOUT: vLLM's source, 0.33; it is only read

Runs in a Python that has penstock, numpy, torch, transformers, tqdm and pydantic. Exits with 1 when an example that is listed as
running ends with an error, or one that is listed as refused ends without the words of its refusal.
"""
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import pathlib
import runpy
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
STORIES = ROOT / "models" / "penstock-stories-1m-bf16"
SECONDS = 180

# Example: the stand-in for its models, and arguments. rl/pause_resume/pause_resume_offline.py is left out: it pauses after 10 ms,
# when the small model's 30 tokens are there already.
RUNS = {
    "basic/offline_inference/basic.py": ("text",),
    "basic/offline_inference/chat.py": ("chat", "--max-tokens=20"),
    "basic/offline_inference/classify.py": ("classifier",),
    "basic/offline_inference/embed.py": ("text",),
    "basic/offline_inference/generate.py": ("text",),
    "basic/offline_inference/score.py": ("scorer",),
    "deployment/async_llm_streaming.py": ("text",),
    "deployment/llm_engine_example.py": ("text",),
    "features/automatic_prefix_caching/automatic_prefix_caching_offline.py": ("long",),
    "features/automatic_prefix_caching/prefix_caching_offline.py": ("text",),
    "features/context_extension/context_extension_offline.py": ("chat",),
    "features/data_parallel/data_parallel_offline.py": ("text", "-dp=2"),
    "features/logits_processor/custom.py": ("text",),
    "features/logits_processor/custom_req.py": ("text",),
    "features/logits_processor/custom_req_init.py": ("text",),
    "features/lora/lora_with_quantization_offline.py": ("quantized",),
    "features/lora/multilora_offline.py": ("text",),
    "features/profiling/run_one_batch_offline.py": ("text", "--profile=both", "--profile-dir=profile"),
    "features/profiling/simple_profiling_offline.py": ("text",),
    "features/reset_kv/reset_kv_offline.py": ("text",),
    "features/structured_outputs/structured_outputs_offline.py": ("text",),
    "features/torchrun/torchrun_dp_example_offline.py": ("text",),
    "features/torchrun/torchrun_example_offline.py": ("long",),
    "generate/qwen_1m_offline.py": ("long",),
    "generate/trace_replay_offline.py": ("text",),
    "observability/metrics/offline.py": ("text",),
    "pooling/classify/classification_with_lora_offline.py": ("classifier",),
    "pooling/embed/embed_jina_embeddings_v3_offline.py": ("text",),
    "pooling/embed/embed_matryoshka_fy_offline.py": ("text",),
    "pooling/reward/sequence_reward_offline.py": ("classifier",),
    "pooling/reward/token_reward_offline.py": ("token classifier",),
    "pooling/score/qwen3_reranker_offline.py": ("reranker",),
    "pooling/score/using_template_offline.py": ("scorer",),
    "pooling/token_classify/ner_offline.py": ("token classifier",),
    "pooling/token_embed/jina_reranker_v3_offline.py": ("text",),
    "pooling/token_embed/multi_vector_retrieval_offline.py": ("text",),
    "rl/batch_invariance/reproducibility_offline.py": ("text",),
    "tool_calling/chat_with_tools_offline.py": ("tools",),
}
# Example: words of the refusal, and arguments.
REFUSED = {
    "disaggregated/example_connector/decode_example.py": ("kv_transfer_config",),
    "disaggregated/example_connector/prefill_example.py": ("kv_transfer_config",),
    "disaggregated/flexkv_connector/prefix_caching_flexkv.py": ("kv_transfer_config", "--model=text"),
    "disaggregated/kv_load_failure_recovery_offline/decode_example.py": ("kv_transfer_config",),
    "disaggregated/kv_load_failure_recovery_offline/prefill_example.py": ("kv_transfer_config",),
    "disaggregated/lmcache/cpu_offload_lmcache.py": ("lmcache",),
    "disaggregated/lmcache/kv_cache_sharing_lmcache_v1.py": ("lmcache",),
    "features/data_parallel/multi_instance_data_parallel.py": ("metrics.loggers",),
    "features/logits_processor/dry.py": ("gpu_sync_debug",),
    "features/prompt_embed/prompt_embed_offline.py": ("enable_prompt_embeds",),
    "features/sharded_state/load_sharded_state_offline.py": ("load_format", "--model=text"),
    "features/sharded_state/save_sharded_state_offline.py": ("model_executor", "--model=text", "--output=out"),
    "features/speculative_decoding/extract_hidden_states_offline.py": ("extract_hidden_states",),
    "features/speculative_decoding/mlpspeculator_offline.py": ("accelerator",),
    "features/speculative_decoding/spec_decode_offline.py": ("benchmarks",),
    "features/tensorize_vllm_model.py": ("model_executor", "serialize"),
    "pooling/token_embed/late_chunking_offline.py": ("late_chunking_params",),
    "rl/routed_experts_e2e.py": ("enable_return_routed_experts",),
    "rl/skip_loading_weights_in_engine_init.py": ("load_format",),
}


# --- The stand-ins ----------------------------------------------------------------------------------------------------------------

def linked(folder, **changes):
    """Creates a directory with the story model's files and another config.json."""
    folder.mkdir()
    for file in STORIES.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((STORIES / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


def headed(folder, architecture, n_labels):
    """Creates the story model with a classification head."""
    labels = {str(i): f"L{i}" for i in range(n_labels)}
    linked(folder, architectures=[architecture], id2label=labels, label2id={label: int(i) for i, label in labels.items()})
    (folder / "model.safetensors").unlink()
    with open(STORIES / "model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    size = json.loads((STORIES / "config.json").read_text())["hidden_size"]
    header["score.weight"] = {"dtype": "F32", "shape": [n_labels, size], "data_offsets": [len(data), len(data) + 4 * n_labels * size]}
    text = json.dumps(header).encode()
    values = struct.pack(f"<{n_labels * size}f", *(0.01 * (i % 7 - 3) for i in range(n_labels * size)))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data + values)
    return folder


def stand_ins(folder):
    """Creates the stand-ins below `folder` and returns {name: path}."""
    sys.path.insert(0, str(ROOT / "tests" / "e2e"))
    import lora_model
    import script_model

    made = {"text": STORIES, "long": linked(folder / "long", max_position_embeddings=16384),
            "chat": script_model.write(folder / "chat"), "adapter": lora_model.write_adapter(folder / "adapter", STORIES),
            "classifier": headed(folder / "classifier", "LlamaForSequenceClassification", 3),
            "scorer": headed(folder / "scorer", "LlamaForSequenceClassification", 1),
            "token classifier": headed(folder / "token-classifier", "LlamaForTokenClassification", 3),
            "reranker": STORIES, "quantized": folder}
    call = {"name": "get_current_weather", "arguments": {"city": "Dallas", "state": "TX", "unit": "fahrenheit"}}
    script_model.SCRIPTS["plain"] = [json.dumps([call])]
    made["tools"] = script_model.write(folder / "tools")
    for layout in ("awq", "gptq"):
        subprocess.run([sys.executable, "-m", "penstock", "quantize", str(STORIES), str(folder / layout), "--layout", layout,
                        "--type", "int4", "-g", "32"], check=True, capture_output=True)
    return {name: str(path) for name, path in made.items()}


# --- Within the process of an example ---------------------------------------------------------------------------------------------

class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports penstock's modules under vllm's names."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.split(".")[0] == "vllm" else None

    def create_module(self, spec):
        return importlib.import_module("penstock" + spec.name[len("vllm"):])

    def exec_module(self, module):
        pass


def stood_in(given, name, made):
    """Replaces the model in an engine's arguments by its stand-in."""
    model = made[name]
    if name == "quantized":
        layout = {"awq": "awq", "gptq": "gptq"}.get(given.get("quantization"))
        model = made["text"] if layout is None else os.path.join(model, layout)
    if name == "reranker":  # whose vocabulary has these words at the beginnings of words only
        given["hf_overrides"] = {**given["hf_overrides"], "architectures": ["LlamaForSequenceClassification"],
                                 "classifier_from_token": ["\u2581no", "\u2581he"]}
    if given.get("max_model_len", 0) > 16384:
        given["max_model_len"] = 16384
    return {**given, "model": model}


def inside(example, name, made, arguments):
    sys.meta_path.insert(0, Alias())
    import penstock.engine_args
    opening_of = penstock.engine_args.opening_of
    penstock.engine_args.opening_of = lambda given: opening_of(stood_in(dict(given), name, made))
    import huggingface_hub
    import transformers
    import urllib.request
    for loader in (transformers.AutoTokenizer, transformers.AutoModelForCausalLM):
        loader.from_pretrained = lambda *_, load=loader.from_pretrained, **named: load(made["text"], **named)
    huggingface_hub.snapshot_download = lambda *_, **__: made["adapter"]
    huggingface_hub.HfApi.snapshot_download = lambda *_, **__: made["adapter"]
    urllib.request.urlopen = lambda *_, **__: io.BytesIO(b"Once upon a time there was a dog. " * 300)
    sys.argv = [example, *arguments]
    runpy.run_path(example, run_name="__main__")


# --- The table --------------------------------------------------------------------------------------------------------------------

def run(checkout, example, name, made, arguments, folder):
    """Runs an example; returns whether it succeeded, and the end of its output."""
    command = [sys.executable]
    if "torchrun" in example:
        n = 4 if "torchrun_example" in example else 2
        command += ["-m", "torch.distributed.run", f"--nproc-per-node={n}"]
    command += [__file__, "--inside", str(checkout / "examples" / example), name, json.dumps(made), *arguments]
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS,
                               env={**os.environ, "TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return False, f"did not end within {SECONDS} s"
    return ended.returncode == 0, (ended.stdout + ended.stderr)[-6000:]


def main():
    if sys.argv[1] == "--inside":
        example, name, made, *arguments = sys.argv[2:]
        return inside(example, name, json.loads(made), arguments)
    checkout, wanted = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    n_run, wrong = 0, []
    with tempfile.TemporaryDirectory() as folder:
        made = stand_ins(pathlib.Path(folder))
        for name in ("output.txt", "prefill_output.txt"):  # left by some examples for others
            (pathlib.Path(folder) / name).write_text("Once upon a time\n")
        for example, (name, *arguments) in [*RUNS.items(), *REFUSED.items()]:
            if wanted and not any(part in example for part in wanted):
                continue
            well, output = run(checkout, example, name if example in RUNS else "text", made, arguments, folder)
            n_run += well
            if well != (example in RUNS) or (example in REFUSED and name not in output):
                wrong.append(example)
                print(output)
            last = (output.strip().splitlines() or [""])[-1]
            print(f"{'runs   ' if well else 'refused'} {example}{'' if well else ': ' + last[:160]}", flush=True)
    print(f"{n_run} run; not as listed: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
