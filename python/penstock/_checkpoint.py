"""Finds a model's files and reads from them the runner, the quantization method and the configuration with hf_overrides."""
from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from typing import Any, Dict, Optional

from . import _core
from ._engine_rules import Opening
from .distributed.parallel_state import join_processes

# Aliases of quantization methods in vLLM.
_SAME = {"awq_marlin": "awq", "gptq_marlin": "gptq", "gptq_marlin_24": "gptq", "gptq_bitblas": "gptq", "auto_round": "auto-round",
         "intel/auto-round": "auto-round", "inc": "auto-round", "fbgemm_fp8": "fp8", "gpt_oss_mxfp4": "mxfp4",
         "modelopt_fp4": "modelopt", "modelopt_mxfp8": "modelopt", "modelopt_mixed": "modelopt"}
# vLLM's quantization methods that describe the files of a checkpoint, unlike Penstock's encodings (q8_0, int8, ...).
_OF_FILES = {"awq", "gptq", "gguf", "compressed-tensors", "auto-round", "mxfp4", "aqlm", "bitblas", "deepspeedfp", "experts_int8", "hqq",
             "marlin", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "moe_wna16", "petit_nvfp4", "ptpc_fp8", "quark", "squeezellm",
             "torchao", "tpu_int8", "humming", "cpu_awq", "online", "bitnet"}
# vLLM's methods that quantize full-precision weights during loading, and Penstock's encodings for them.
_AT_LOAD = {"bitsandbytes-4bit": "nf4", "bitsandbytes-fp4": "fp4", "bitsandbytes-8bit": "int8", "fp8": "fp8"}
# Fields of config.json that hf_overrides may add to a checkpoint without them.
_FIELDS = {"architectures", "rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings", "sliding_window", "num_labels",
           "id2label", "label2id", "problem_type", "classifier_from_token", "method", "is_original_qwen3_reranker", "eos_token_id",
           "bos_token_id", "pad_token_id", "tie_word_embeddings", "quantization_config", "text_config", "num_hidden_layers",
           "sentence_transformers", "is_matryoshka", "matryoshka_dimensions", "is_causal"}


@dataclass
class Checkpoint:
    """The files of a model.

    Attributes:
        path: path of the GGUF file or directory to open; with hf_overrides a temporary directory, which is removed with this
            object.
        config: config.json with the overrides applied; None for a GGUF file.
    """

    path: str
    config: Optional[Dict[str, Any]]

    @property
    def method(self) -> Optional[str]:
        """vLLM's name of the quantization method of the weights; None: not quantized."""
        if self.config is None:
            return "gguf"
        quantized = self.config.get("quantization_config")
        if not isinstance(quantized, dict):
            return None
        method = str(quantized.get("quant_method", ""))
        return _SAME.get(method, method)


def found(opening: Opening) -> Checkpoint:
    """Finds or downloads the model and sets model, runner and quantize of the opening. Errors: ValueError, FileNotFoundError."""
    if opening.given.get("distributed_executor_backend") == "external_launcher":
        join_processes()
    path, pools = _core.find_model(opening.config["model"])
    checkpoint = Checkpoint(path, _config_of(path))
    if opening.hf_overrides:
        _override(checkpoint, opening)
        pools = _core.find_model(checkpoint.path)[1]
    opening.config["model"] = checkpoint.path
    if opening.runner == "auto":
        opening.runner = "pooling" if pools else "generate"
    _check_format(opening, checkpoint)
    _quantize(opening, checkpoint)
    return checkpoint


def _config_of(path: str) -> Optional[Dict[str, Any]]:
    folder = path if os.path.isdir(path) else os.path.dirname(path) if path.endswith(".safetensors") else ""
    if not folder and not path.endswith(".safetensors"):
        return None
    config = _object_in(os.path.join(folder, "config.json"))
    if config is None:
        return {} if folder else None
    # NVIDIA's Model Optimizer: settings may be in hf_quant_config.json instead of config.json.
    apart = (_object_in(os.path.join(folder, "hf_quant_config.json")) or {}).get("quantization")
    if "quantization_config" not in config and isinstance(apart, dict) and apart.get("quant_algo"):
        config["quantization_config"] = {**apart, "quant_method": "modelopt"}
    return config


def _object_in(path: str) -> Optional[Dict[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else {}


def _check_format(opening: Opening, checkpoint: Checkpoint) -> None:
    wanted = opening.load_format
    gguf = checkpoint.config is None
    if (wanted == "gguf" and not gguf) or (wanted in ("safetensors", "hf", "mistral", "bitsandbytes") and gguf):
        raise ValueError(f"load_format: {wanted!r} was asked for, and {checkpoint.path} is {'a GGUF file' if gguf else 'none'}")


def _quantize(opening: Opening, checkpoint: Checkpoint) -> None:
    asked = opening.quantization
    if asked is None:
        return
    name = asked.split("-")[0] if asked.startswith("bitsandbytes") else _SAME.get(asked, asked)
    if name == checkpoint.method:
        return
    have = checkpoint.method
    if asked in _AT_LOAD and have is None:
        name = _AT_LOAD[asked]
    elif asked in _AT_LOAD or name in _OF_FILES:
        raise ValueError(f"quantization: {asked!r} was asked for, and {checkpoint.path} is "
                         f"{'not quantized' if have is None else 'quantized by ' + have}")
    if opening.config.get("quantize") not in (None, "", name):
        raise ValueError(f"quantization: {asked!r} is {name}, and quantize is {opening.config['quantize']}")
    opening.config["quantize"] = name


def _override(checkpoint: Checkpoint, opening: Opening) -> None:
    """Replaces the checkpoint's path by a temporary directory with the changed config.json and links to the other files."""
    if checkpoint.config is None or not os.path.isdir(checkpoint.path):
        raise ValueError(f"hf_overrides: expected a Hugging Face directory with a config.json, got {checkpoint.path}")
    overrides = dict(opening.hf_overrides)
    longest = overrides.pop("max_model_len", None)
    if longest is not None and "max_model_len" not in opening.config:
        opening.config["max_model_len"] = int(longest)
    changed = dict(checkpoint.config)
    for name, value in overrides.items():
        inner = changed.get("text_config")
        if name not in changed and isinstance(inner, dict) and name in inner:
            raise ValueError(f"hf_overrides: {name!r} is in text_config: expected {{'text_config': {{{name!r}: ...}}}}")
        if name not in changed and name not in _FIELDS:
            raise ValueError(f"hf_overrides: {name!r} is no field of {checkpoint.path}/config.json")
        if name == "rope_parameters":
            changed.pop("rope_scaling", None)
        rope = changed.get("rope_parameters")
        if name == "rope_theta" and isinstance(rope, dict):  # which counts ahead of the one outside
            if "rope_theta" not in rope and any(isinstance(one, dict) for one in rope.values()):
                raise ValueError("hf_overrides: 'rope_theta' differs by layer: expected {'rope_parameters': {...}}")
            changed["rope_parameters"] = {**rope, "rope_theta": value}
        old = changed.get(name)
        changed[name] = {**old, **value} if name.endswith("_config") and isinstance(old, dict) and isinstance(value, dict) else value
    checkpoint.config = changed
    folder = tempfile.mkdtemp(prefix="penstock-config-")
    weakref.finalize(checkpoint, shutil.rmtree, folder, True)
    for entry in os.scandir(checkpoint.path):
        if entry.name != "config.json":
            os.symlink(os.path.abspath(entry.path), os.path.join(folder, entry.name))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(changed, file)
    checkpoint.path = folder
