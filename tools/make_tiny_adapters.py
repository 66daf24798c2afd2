#!/usr/bin/env python3
"""Writes tests/golden/lora/<name>/ (of the base before a dot) and tests/golden/lora_encoders/<name>/: a random LoRA adapter of each of some tests/golden/models
and tests/golden/encoders, and what PEFT computes with it.

  adapter_config.json, adapter_model.safetensors   as PEFT saves it
  adapter.gguf                                     as llama.cpp's converter writes it
  together/                                        of experts' matrices: as PEFT saves what it made of them
  golden.bin                                       a prompt and its logits, in the form of make_tiny_models.py
  golden.json                                      of encoders instead: sequences and their pooled states {ids, mean, cls, last}

Needs torch, transformers, peft, gguf, and for bases of llama.cpp's LLAMA_CPP, a checkout of it. Usage: make_tiny_adapters.py
[name or encoders/name...]; deterministic but for the order of target_modules.
"""
import json
import os
import subprocess
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ALL = ATTENTION + ["gate_proj", "up_proj", "down_proj"]
FUSED = ["experts.gate_up_proj", "experts.down_proj"]
# name of the base, optionally with a suffix after a dot: arguments of PEFT's LoraConfig
ADAPTERS = {
    "llama2": dict(r=4, lora_alpha=6, target_modules=ALL),
    "llama_mqa": dict(r=3, lora_alpha=5, target_modules=ALL, use_rslora=True),
    "qwen2": dict(r=8, lora_alpha=16, target_modules=ALL, rank_pattern={"down_proj": 2, "layers.1.self_attn.q_proj": 5},
                  alpha_pattern={"down_proj": 3, "k_proj": 1}),
    "qwen3": dict(r=1, lora_alpha=1, target_modules=ALL, layers_to_transform=[1]),
    "qwen3_moe": dict(r=4, lora_alpha=8, target_modules=ATTENTION),
    "gemma2": dict(r=4, lora_alpha=4, target_modules=ALL),
    "phi3": dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "gpt_neox": dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]),
    "falcon": dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense"]),
    "qwen3_next": dict(r=4, lora_alpha=8, target_modules=["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "o_proj"]),
    "gemma3": dict(r=4, lora_alpha=4, target_modules=r".*\.(q_proj|o_proj|up_proj)"),
    # Experts in transformers' form: one parameter for all.
    "qwen3_moe.fused": dict(r=3, lora_alpha=6, target_modules=ATTENTION, target_parameters=FUSED + ["gate.weight"]),
    "qwen2_moe.down": dict(r=4, lora_alpha=8, target_modules=[f"shared_expert.{one}" for one in ALL[4:]] + ["shared_expert_gate"],
                           target_parameters=["1.mlp.experts.down_proj"]),
    "olmoe.fused": dict(r=4, lora_alpha=8, target_modules=[], target_parameters=FUSED, use_rslora=True),
    "granitemoe.fused": dict(r=2, lora_alpha=8, target_modules=[], target_parameters=FUSED,
                             rank_pattern={"experts.gate_up_proj": 5}),
    "gpt_oss.fused": dict(r=4, lora_alpha=16, target_modules=["q_proj"], target_parameters=FUSED),
    "llama4.fused": dict(r=4, lora_alpha=8, target_modules=["o_proj"], target_parameters=FUSED),
}
# Experts as their checkpoints have them: matrices for each, [in, out] by the name behind the layer's. PEFT puts them together.
EACH = {
    "qwen3_moe.each": dict(r=2, lora_alpha=5, experts=6, pattern="mlp.experts.{}.{}",
                           shapes=dict(gate_proj=(32, 16), up_proj=(32, 16), down_proj=(16, 32))),
    "mixtral.each": dict(r=3, lora_alpha=6, experts=4, pattern="block_sparse_moe.experts.{}.{}",
                         shapes=dict(w1=(32, 48), w3=(32, 48), w2=(48, 32))),
}
IN_GGUF = {"llama2", "gemma2", "gemma3", "qwen3_moe", "phi3"}  # the converter supports only lora_alpha
BERT = r".*encoder\.layer.*\.(query|key|value|dense)"
ENCODERS = {
    "bert": dict(r=4, lora_alpha=8, target_modules=BERT),
    "roberta": dict(r=3, lora_alpha=6, target_modules=["query", "value"], use_rslora=True),
    "modernbert": dict(r=4, lora_alpha=4, target_modules=["Wqkv", "Wo", "Wi"]),
    "embedding_gemma": dict(r=4, lora_alpha=4, target_modules=ALL),
}


def draw(model, generator, strength):
    for key, p in model.named_parameters():
        if "lora_" in key:
            p.data.normal_(0, strength / p.shape[-1] ** 0.5, generator=generator)


def with_adapter(kind, base, task, config):
    model = kind.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    model.config._name_or_path = ""
    model.name_or_path = ""
    return get_peft_model(model, LoraConfig(task_type=task, **config)).eval()


def write_each(out, generator, r, lora_alpha, experts, pattern, shapes):
    pairs = {}
    for layer in range(2):
        for expert in range(experts):
            for name, (n_in, n_out) in shapes.items():
                stem = f"base_model.model.model.layers.{layer}." + pattern.format(expert, name)
                pairs[stem + ".lora_A.weight"] = torch.randn(r, n_in, generator=generator) * 0.8 / n_in**0.5
                pairs[stem + ".lora_B.weight"] = torch.randn(n_out, r, generator=generator) * 0.8 / r**0.5
    save_file(pairs, os.path.join(out, "adapter_model.safetensors"))
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=r, lora_alpha=lora_alpha, target_modules=list(shapes), bias="none")
    json.dump(config, open(os.path.join(out, "adapter_config.json"), "w"), indent=2)


def save(model, out):
    model.save_pretrained(out)
    os.remove(os.path.join(out, "README.md"))


def make_encoder(name):
    base, out = os.path.join(GOLDEN, "encoders", name), os.path.join(GOLDEN, "lora_encoders", name)
    os.makedirs(out, exist_ok=True)
    model = with_adapter(AutoModel, base, "FEATURE_EXTRACTION", ENCODERS[name])
    draw(model, torch.Generator().manual_seed(99), 0.6)
    golden, difference = [], 0
    for one in json.load(open(os.path.join(base, "golden.json"))):
        with torch.no_grad():
            states = model(input_ids=torch.tensor([one["ids"]])).last_hidden_state[0]
        golden.append(dict(ids=one["ids"], mean=states.mean(0).tolist(), cls=states[0].tolist(), last=states[-1].tolist()))
        difference = max(difference, np.abs(np.array(one["mean"]) - np.array(golden[-1]["mean"])).max())
    save(model, out)
    json.dump(golden, open(os.path.join(out, "golden.json"), "w"))
    print(f"encoders/{name}: the adapter changes means by up to {difference:.2f}")


def main(names):
    for name in names or [*ADAPTERS, *EACH, *(f"encoders/{one}" for one in ENCODERS)]:
        if name.startswith("encoders/"):
            make_encoder(name.removeprefix("encoders/"))
            continue
        base, out = os.path.join(GOLDEN, "models", name.split(".")[0]), os.path.join(GOLDEN, "lora", name)
        os.makedirs(out, exist_ok=True)
        generator = torch.Generator().manual_seed(99)
        if name in EACH:
            write_each(out, generator, **EACH[name])
            model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
            model = PeftModel.from_pretrained(model, out).eval()
        else:
            model = with_adapter(AutoModelForCausalLM, base, "CAUSAL_LM", ADAPTERS[name])
            draw(model, generator, 0.6)
        ids = torch.randint(2, min(71, model.config.vocab_size), (1, 24), generator=generator)
        with torch.no_grad():
            logits = model(ids).logits[0].numpy()
            with model.disable_adapter():
                difference = np.abs(model(ids).logits[0].numpy() - logits).max()
        if name in EACH:  # PEFT reads the base model's folder as an absolute path
            model.peft_config["default"].base_model_name_or_path = os.path.join("tests/golden/models", name.split(".")[0])
        save(model, os.path.join(out, "together") if name in EACH else out)
        with open(os.path.join(out, "golden.bin"), "wb") as f:
            f.write(np.array([ids.shape[1], 0, logits.shape[1]], np.int32).tobytes())
            f.write(ids.numpy().astype(np.int32).tobytes() + logits.astype(np.float32).tobytes())
        if name in IN_GGUF:
            converter = os.path.join(os.environ["LLAMA_CPP"], "convert_lora_to_gguf.py")
            subprocess.run([sys.executable, converter, "--base", base, "--outtype", "f32", "--outfile",
                            os.path.join(out, "adapter.gguf"), out], check=True)
        print(f"{name}: the adapter changes logits by up to {difference:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
