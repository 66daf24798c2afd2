"""Random LoRA adapters for the models that come with the program, as PEFT saves them."""
import array
import json
import os
import pathlib
import random
import struct
import subprocess

# GGUF's names of a layer's matrices, and those of a Hugging Face checkpoint.
MODULES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
           "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def shapes_of(model):
    """Rows and columns by the GGUF name of every matrix of the layers: of a GGUF file, or a directory of the Llama family."""
    config = pathlib.Path(model) / "config.json"
    if config.exists():
        config = json.loads(config.read_text())
        width, wide, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
        keys = width // heads * config["num_key_value_heads"]
        shapes = {"attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width), "attn_output": (width, width),
                  "ffn_gate": (wide, width), "ffn_up": (wide, width), "ffn_down": (width, wide)}
        return {f"blk.{i}.{name}.weight": shape for i in range(config["num_hidden_layers"]) for name, shape in shapes.items()}
    found = json.loads(subprocess.run([os.environ["PENSTOCK"], "inspect", "--json", "--tensors", "-m", str(model)], capture_output=True, check=True).stdout)
    return {one["name"]: one["shape"] for one in found["tensors"] if one["name"].startswith("blk.") and len(one["shape"]) == 2}


def write_adapter(folder, model, seed=1, rank=4, strength=3.0, names=MODULES):
    """A PEFT directory with an adapter of these modules in all layers; `strength` of about 1 changes every word."""
    draw = random.Random(seed)
    tensors = {}
    for name, (rows, cols) in shapes_of(model).items():
        _, layer, module, _ = name.split(".")
        if module not in names:
            continue
        stem = f"base_model.model.model.layers.{layer}.{MODULES[module]}"
        for part, shape, scale in (("A", (rank, cols), cols ** -0.5), ("B", (rows, rank), strength / rank)):
            tensors[f"{stem}.lora_{part}.weight"] = (shape, array.array("f", [draw.gauss(0, scale) for _ in range(shape[0] * shape[1])]))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": sorted(
        {MODULES[name].split(".")[-1] for name in names})}))
    return folder
