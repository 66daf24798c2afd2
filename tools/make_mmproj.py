#!/usr/bin/env python3
"""Writes tests/golden/{seeing,hearing}/<name>/mmproj.gguf: the towers of tiny models, as llama.cpp's own converter writes them.

The converter is run on a copy of each directory whose tensors have the names of published checkpoints; it has no part for LLaVA's
CLIP towers, whose files are written here as its older script did. Towers that hear are written here with the names of its gguf package
and the keys of its tools/mtmd/clip-impl.h; they need no source tree ("-" in its place). Needs torch, safetensors, transformers, gguf and a source tree of
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
HEARING = SEEING.parent / "hearing"
HEARD = {"qwen2_audio": "qwen2a", "voxtral": "voxtral", "ultravox": "ultravox", "qwen2_5_omni": "qwen2.5o"}  # name: projector
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


def sines(n, dim):
    scale = numpy.exp(-numpy.log(10000) / (dim // 2 - 1) * numpy.arange(dim // 2))
    angles = numpy.arange(n)[:, None] * scale[None]
    return numpy.concatenate([numpy.sin(angles), numpy.cos(angles)], 1).astype(numpy.float32)


def write_heard(name):
    """Whisper's encoder with a projector, and the tower that sees of a model with both. Kernels of convolutions, which the converter
    makes F16, are F32 but for one model: rounded ones are up to 0.003 off in log-probabilities."""
    import gguf
    config, tensors = json.loads((HEARING / name / "config.json").read_text()), load_file(HEARING / name / "model.safetensors")
    config = config.get("thinker_config", config)
    tensors = {key.removeprefix("thinker."): value for key, value in tensors.items()}
    ear, eye = config["audio_config"], config.get("vision_config")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 8)
    out = gguf.GGUFWriter(HEARING / name / "mmproj.gguf", "clip")
    out.add_bool("clip.has_audio_encoder", True)
    out.add_bool("clip.has_vision_encoder", eye is not None)
    out.add_string("clip.projector_type", HEARD[name])
    def size(usual, own):
        return ear.get(own, ear.get(usual))
    sizes = dict(embedding_length=size("hidden_size", "d_model"), feed_forward_length=size("intermediate_size", "encoder_ffn_dim"),
                 block_count=size("num_hidden_layers", "encoder_layers"), num_mel_bins=ear["num_mel_bins"], projection_dim=32)
    sizes["attention.head_count"] = size("num_attention_heads", "encoder_attention_heads")
    if name in ("voxtral", "ultravox"):
        sizes["projector.stack_factor"] = config.get("stack_factor", sizes["feed_forward_length"] // sizes["embedding_length"])
    if eye is not None:  # published towers have 100, which the converter leaves out
        sizes["n_window"] = ear["n_window"]
    for key, value in sizes.items():
        out.add_uint32(f"clip.audio.{key}", value)
    out.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    if eye is not None:
        tensors["audio_tower.embed_positions.weight"] = sines(ear["max_source_positions"], ear["d_model"])
        write_omni_eye(out, eye, tensors)
    for key, value in sorted(tensors.items()):
        if not key.startswith(("audio_tower.", "multi_modal_projector.", "visual.")) or "audio_bos_eos" in key:
            continue
        stem, end = key.rsplit(".", 1)
        stem = "audio." + stem if stem.startswith("multi_modal_projector") else stem
        if ".conv" in key:
            value = value[:, None] if end == "bias" else value.astype(numpy.float16) if name == "qwen2_audio" else value
        if stem == "visual.patch_embed.proj":
            out.add_tensor("v.patch_embd.weight", numpy.ascontiguousarray(value[:, :, 0]))
            out.add_tensor("v.patch_embd.weight.1", numpy.ascontiguousarray(value[:, :, 1]))
            continue
        if ".attn.qkv" in stem:  # the converter splits them
            for part, rows in zip("qkv", numpy.split(value, 3)):
                out.add_tensor(names.get_name(stem.replace("qkv", part)) + "." + end, numpy.ascontiguousarray(rows))
            continue
        out.add_tensor(names.get_name(stem) + "." + end, value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def write_omni_eye(out, eye, tensors):
    """Keys of Qwen2.5-VL's tower."""
    out.add_bool("clip.use_silu", True)
    for key, value in dict(image_size=560, patch_size=eye["patch_size"], embedding_length=eye["hidden_size"], block_count=eye["depth"],
                           feed_forward_length=eye["intermediate_size"], projection_dim=eye["out_hidden_size"],
                           n_wa_pattern=eye["fullatt_block_indexes"][0] + 1, window_size=eye["window_size"],
                           image_min_pixels=256, image_max_pixels=4096).items():
        out.add_uint32(f"clip.vision.{key}", value)
    out.add_uint32("clip.vision.attention.head_count", eye["num_heads"])
    out.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    images = json.loads((HEARING / "qwen2_5_omni" / "preprocessor_config.json").read_text())
    for key in ("image_mean", "image_std"):
        out.add_array(f"clip.vision.{key}", images[key])


if __name__ == "__main__":
    for wanted in sys.argv[2:] or [*CONVERTED, *WRITTEN, *HEARD]:
        if wanted in HEARD:
            write_heard(wanted)
        elif wanted in WRITTEN:
            write_llava(wanted)
        else:
            convert(sys.argv[1], wanted)
        folder = HEARING if wanted in HEARD else SEEING
        print(wanted, (folder / wanted / "mmproj.gguf").stat().st_size // 1024, "KiB")
