#!/usr/bin/env python3
"""Writes tests/golden/seeing/<name>/mmproj.gguf: the towers of the tiny models that see, as llama.cpp's own converter writes them.

The converter is run on a copy of each directory whose tensors have the names of published checkpoints; it has no part for LLaVA's
CLIP towers, whose files are written here as its older script did. Needs torch, safetensors, transformers, gguf and a source tree of
llama.cpp. Usage: make_mmproj.py LLAMA_CPP [name...]
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

SEEING = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "seeing"
CONVERTED = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "gemma3", "smolvlm", "pixtral", "mistral3", "internvl", "lfm2_vl", "glm4v"]
WRITTEN = ["llava", "llava_next"]
# The converter knows numbered tensors only up to the number of layers, of which the tiny towers have two or three.
RUN = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf
plain = gguf.get_tensor_name_map
gguf.get_tensor_name_map = lambda arch, blocks: plain(arch, max(blocks, 8))
sys.argv = ["convert_hf_to_gguf.py", "--mmproj", "--outtype", "f32", "--outfile", sys.argv[3], sys.argv[2]]
runpy.run_path(sys.path[0] + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def published(name, config, tensors):
    """The configuration and tensors with the names of checkpoints that transformers 4 has saved."""
    renamed = {}
    for key, value in tensors.items():
        if name in ("gemma3", "lfm2_vl"):
            for root in ("vision_tower.", "model.vision_tower."):
                if key.startswith(root) and not key.startswith(root + "vision_model."):
                    key = key.replace(root, root + "vision_model.", 1)
        if name == "internvl" and not key.startswith("model."):
            key = "model." + key
        if name in ("pixtral", "mistral3"):
            key = key.removeprefix("model.")
        renamed[key] = value
    if name == "internvl":
        config["architectures"] = ["InternVisionModel"]
        config.update(min_dynamic_patch=1, max_dynamic_patch=4)
    if name == "lfm2_vl":  # the converter takes patches of 16 pixels for granted
        key = next(key for key in renamed if key.endswith("patch_embedding.weight"))
        rows = renamed[key].reshape(-1, 4, 4, 3).transpose(0, 3, 1, 2)
        return config, renamed, {"v.patch_embd.weight": numpy.ascontiguousarray(rows)}
    return config, renamed, {}


def convert(llama_cpp, name):
    with tempfile.TemporaryDirectory() as scratch:
        where = pathlib.Path(scratch) / name
        shutil.copytree(SEEING / name, where)
        config, tensors, replaced = published(name, json.loads((where / "config.json").read_text()),
                                              load_file(where / "model.safetensors"))
        if replaced:  # any tensor that the converter can reshape; replaced below
            key = next(key for key in tensors if key.endswith("patch_embedding.weight"))
            tensors[key] = numpy.zeros((tensors[key].shape[0], 16 * 16 * 3), numpy.float32)
        (where / "config.json").write_text(json.dumps(config))
        save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
        out = where / "out.gguf"
        subprocess.run([sys.executable, "-c", RUN, llama_cpp, str(where), str(out)], check=True, stdout=subprocess.DEVNULL)
        copy(out, SEEING / name / "mmproj.gguf", replaced, config["vision_config"].get("window_size"))


def copy(source, target, replaced, window):
    """Copies a GGUF file with other values of some tensors. window: of Qwen2.5-VL, which the converter leaves out as it is 112."""
    import gguf
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "clip")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.name") or field.name.startswith("general.base"):
            continue
        value = field.contents()
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, value)
        else:
            writer.add_key_value(field.name, value, field.types[0])
    if window is not None:
        writer.add_uint32("clip.vision.window_size", window)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, replaced.get(tensor.name, tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_llava(name):
    """A CLIP tower up to the layer whose states are taken, and LLaVA's projector."""
    import gguf
    config = json.loads((SEEING / name / "config.json").read_text())
    images = json.loads((SEEING / name / "processor_config.json").read_text())["image_processor"]
    eye, tensors = config["vision_config"], load_file(SEEING / name / "model.safetensors")
    n_layers = eye["num_hidden_layers"] + 1 + config["vision_feature_layer"]
    out = gguf.GGUFWriter(SEEING / name / "mmproj.gguf", "clip")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", "mlp")
    out.add_bool("clip.use_gelu", False)
    for key, value in dict(image_size=eye["image_size"], patch_size=eye["patch_size"], embedding_length=eye["hidden_size"],
                           feed_forward_length=eye["intermediate_size"], block_count=n_layers,
                           projection_dim=config["text_config"]["hidden_size"]).items():
        out.add_uint32(f"clip.vision.{key}", value)
    out.add_uint32("clip.vision.attention.head_count", eye["num_attention_heads"])
    out.add_float32("clip.vision.attention.layer_norm_epsilon", eye.get("layer_norm_eps", 1e-5))
    for key in ("image_mean", "image_std"):
        out.add_array(f"clip.vision.{key}", images[key])
    if name == "llava_next":
        out.add_array("clip.vision.image_grid_pinpoints", [side for pair in config["image_grid_pinpoints"] for side in pair])
        out.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")
    names = {"embeddings.patch_embedding": "v.patch_embd", "embeddings.position_embedding": "v.position_embd",
             "embeddings.class_embedding": "v.class_embd", "pre_layrnorm": "v.pre_ln", "image_newline": "model.image_newline",
             "multi_modal_projector.linear_1": "mm.0", "multi_modal_projector.linear_2": "mm.2", "layer_norm1": "ln1",
             "layer_norm2": "ln2", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.out_proj": "attn_out", "mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up", "encoder.layers.": "v.blk."}
    for key, value in sorted(tensors.items()):
        if not any(part in key for part in ("vision_tower.", "multi_modal_projector.", "image_newline")):
            continue
        key = key.removeprefix("model.").removeprefix("vision_tower.").removeprefix("vision_model.")
        for theirs, ours in names.items():
            key = key.replace(theirs, ours)
        if "post_layernorm" in key or key.startswith("v.blk.") and int(key.split(".")[2]) >= n_layers:
            continue
        out.add_tensor(key, value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    for wanted in sys.argv[2:] or CONVERTED + WRITTEN:
        if wanted in WRITTEN:
            write_llava(wanted)
        else:
            convert(sys.argv[1], wanted)
        print(wanted, (SEEING / wanted / "mmproj.gguf").stat().st_size // 1024, "KiB")
