#!/usr/bin/env python3
"""Writes tests/golden/published/<name>.json: a published config.json, what it becomes at small sizes, and the tensors of that.

  config    as published: of text models tools/published_configs.py, of multimodal ones what their class assumes
  reduced   the same with the sizes of a row of make_tiny_models.py or tiny_newer_models.py
  tensors   {name: shape} as transformers would save them, of other modalities' layers the first

Needs what make_tiny_models.py needs. Usage: make_published.py [name...]; deterministic.
"""
import json
import os
import re
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import make_tiny_models as tiny
import published_configs
import tiny_newer_models as newer
import torch
import transformers as T
from transformers.core_model_loading import revert_weight_conversion

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "published")
# Keys of sizes, which are replaced by those of the tiny row.
SIZES = re.compile(r"(heads_per_ngram|split_ngram_parts|size|dim|rank|heads|layers|experts|per_tok|topk|top_k|inner|embd|n_head|n_layer|d_model|ffn_dim|n_groups|vocab.*|"
                   r"mrope_section|moe_k|n_shared_experts|num_shared_expert|_n_groups|rotary_dim|mlp_only_layers|expert|d_state|d_head|d_inner)$")
ENCODER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=71, pad_token_id=1)
KEPT = {"attention_chunk_size", "num_nextn_predict_layers", "no_rope_layers", "moe_every_n_layers", "max_window_layers"}


def tiny_rows():
    """Returns {model_type: configuration of its first row}."""
    rows = {}
    encoders = ("bert", "xlm-roberta", "modernbert", "nomic_bert", "gte", "albert", "electra", "mpnet", "deberta-v2", "longformer")
    for kind in encoders:
        rows[kind] = T.AutoConfig.for_model(kind, **{key: ENCODER[key] for key in ENCODER})
    for row in [*tiny.MODELS.values(), *newer.MODELS.values()]:
        try:
            config = row()[0].get_text_config()
        except Exception:  # rows that need another tool
            continue
        rows.setdefault(config.model_type, config)
    return rows


def reduced(text, row):
    """Returns the text model's configuration with small sizes."""
    small = row.to_dict()
    aliases = row.attribute_map
    lists = [value for key, value in text.items() if isinstance(value, list) and key.endswith(("layer_types", "block_types"))]
    layer_key = aliases.get("num_hidden_layers", "num_hidden_layers")
    n_published = text.get(layer_key) or (len(lists[0]) if lists else 0)
    n_layers = min(n_published or 99, max(4, small.get(layer_key) or 2))
    out = {}
    for key, value in text.items():
        own = small.get(key, small.get(aliases.get(key, key)))
        if isinstance(value, list) and len(value) == n_published and n_published > 0:
            value = value[:n_layers]
        if key == layer_key:
            value = n_layers
        elif isinstance(value, list) and SIZES.search(key) and all(type(item) is int for item in value) and type(own) is int:
            value = [own] * len(value)
        elif SIZES.search(key) and key not in KEPT and type(value) in (int, list) and type(own) in (int, list):
            value = own
        elif isinstance(value, dict) and isinstance(own, dict) and key.startswith("rope"):
            value = {k: own.get(k, v) if SIZES.search(k) or k.endswith(("_section", "t_factor", "g_factor")) else v for k, v in value.items()}
        out[key] = value
    for key in ("hidden_size", "num_attention_heads", "vocab_size", "intermediate_size", "head_dim", "num_key_value_heads"):
        key = aliases.get(key, key)
        if key not in out and type(small.get(key)) is int:
            out[key] = small[key]
    out[layer_key] = n_layers
    ropes = out.get("rope_scaling")
    if isinstance(ropes, dict) and "short_factor" in ropes:
        pairs = int(out["hidden_size"] // out["num_attention_heads"] * out.get("partial_rotary_factor", 1.0)) // 2
        out["rope_scaling"] = ropes | {key: ropes[key][:pairs] for key in ("short_factor", "long_factor")}
    return out | published_configs.SMALL.get(text.get("model_type"), {})


def tensors(config, renamed, layout=None):
    for auto in (T.AutoModelForMultimodalLM, T.AutoModelForImageTextToText, T.AutoModelForCausalLM, T.AutoModel):
        if type(config) in auto._model_mapping:
            break
    config.get_text_config().pad_token_id = 1
    with torch.device("meta"):
        model = auto.from_config(config)
    state = revert_weight_conversion(model, model.state_dict())
    if layout:
        state = layout(dict(state), config.to_dict())
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    shapes = {name: list(value.shape) for name, value in state.items() if name not in tied}
    for old, new in renamed:
        shapes = {re.sub(old, new, name): shape for name, shape in shapes.items()}
    beside = re.compile(r"\.(layers|blocks|layer|h)\.[1-9]\d*\.")
    text_layers = re.compile(r"^(model\.|model\.llm\.|model\.[LH]_module\.|transformer\.encoder\.|language_model\.backbone\.|language_model\.model\.decoder\.|model\.language_model\.model\.|bert\.encoder\.|roberta\.encoder\.|electra\.encoder\.|albert\.encoder\.|mpnet\.encoder\.|longformer\.encoder\.|deberta\.encoder\.|transformer\.|gpt_neox\.|backbone\.|encoder\.|language_model\.|model\.language_model\.|model\.text_model\.|"
                             r"language_model\.model\.|thinker\.model\.|model\.decoder\.)?(layers|h|layer|blocks|albert_layer_groups|attn_res)\.")
    kept, seen = {}, {}
    for name, shape in shapes.items():
        part = tuple(re.sub(r"\d+", "", name).split(".")[:4])
        seen[part] = seen.get(part, 0) + 1
        if text_layers.match(name) or (not beside.search(name) and seen[part] <= 3):
            kept[name] = shape
    return kept


def with_names_of_floats(value):
    """Replaces numbers that JSON cannot represent by transformers' spelling."""
    if isinstance(value, dict):
        return {key: with_names_of_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_names_of_floats(each) for each in value]
    return {"__float__": "Infinity"} if value == float("inf") else value


def write(name, published, rows):
    published = json.loads(json.dumps(published))
    inside = next((key for key in ("text_config", "language_config", "llm_config") if isinstance(published.get(key), dict)), None)
    text = published[inside] if inside else published
    kind = text.get("model_type", published["model_type"])
    small = reduced(text, rows[published_configs.ROWS.get(kind, kind)]) if name not in published_configs.SHAPES else text | published_configs.SMALL[name]
    whole = published | {inside: small} if inside else small
    known = published_configs.AS.get(name, whole)
    known = known(whole) if callable(known) else known
    shapes = published_configs.SHAPES.get(name)
    made = shapes(whole) if shapes else tensors(T.AutoConfig.for_model(**known), published_configs.RENAMED.get(name, ()), published_configs.LAYOUTS.get(name))
    made |= {key: shape for key, shape in published_configs.BESIDE.get(name, {}).items()}
    with open(os.path.join(OUT, name + ".json"), "w") as file:
        json.dump(with_names_of_floats({"config": published, "reduced": whole}), file)
        file.seek(file.tell() - 1)
        file.write(', "tensors": {\n' + ",\n".join(f"{json.dumps(key)}: {json.dumps(shape)}" for key, shape in made.items()) + "\n}}\n")
    print(f"{name}: {len(made)} tensors", flush=True)


def wrappers(rows):
    """Returns {model_type: configuration} of multimodal classes around text models that have a row."""
    found = {}
    mapping = T.models.auto.modeling_auto
    for kind in sorted({*mapping.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, *mapping.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}):
        try:
            config = T.AutoConfig.for_model(kind)
            text = config.get_text_config()
        except Exception:  # classes without defaults
            continue
        if kind in published_configs.LEFT_OUT:
            continue
        for (part, key), value in published_configs.CHANGED.get(kind, {}).items():
            setattr(getattr(config, part), key, value)
        if text is not config and text.model_type in rows and isinstance(getattr(config, "text_config", None), T.PreTrainedConfig):
            found[kind] = config.to_diff_dict()
    return found


def main():
    T.logging.set_verbosity_error()
    os.makedirs(OUT, exist_ok=True)
    rows = tiny_rows()
    all_of_them = {**wrappers(rows), **published_configs.PUBLISHED}
    for name in sys.argv[1:] or sorted(all_of_them):
        try:
            write(name, all_of_them[name], rows)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)


if __name__ == "__main__":
    main()
