#!/usr/bin/env python3
"""Writes the table of src/model/arch/hf_sizes.cc: the sizes that transformers' configuration classes assume, by model_type.

A multimodal config.json describes its text model by what differs from its class, so sizes may be missing there. Types are those
that the lists of src/model/arch name. Needs transformers. Usage: make_hf_sizes.py
"""
import os
import re
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1")
import transformers as T

ARCHITECTURES = Path(__file__).parent.parent / "src" / "model" / "arch"
TABLE = ARCHITECTURES / "hf_sizes.cc"
# In the order of the table's columns.
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
         "max_position_embeddings")


def known_types():
    text = "".join(path.read_text() for path in ARCHITECTURES.glob("*.cc"))
    return {name for names in re.findall(r"\.hf_types = \{([^}]*)\}", text) for name in re.findall(r'"([^"]+)"', names)}


def sizes(name):
    """Returns the sizes that the class states; derived sizes are left to the reader of the table."""
    kind = type(T.AutoConfig.for_model(name))
    stated = {key: getattr(kind, kind.attribute_map.get(key, key), None) for key in SIZES}
    return {key: value for key, value in stated.items() if isinstance(value, int) and not isinstance(value, bool)}


def main():
    T.logging.set_verbosity_error()
    text_only = T.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    rows = []
    for name in sorted(known_types()):
        parts = name.endswith("_text") and name in T.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
        if (name not in text_only and not parts) or T.AutoConfig.for_model(name).get_text_config().model_type != name:
            continue
        found = sizes(name)
        if found.get("num_key_value_heads") == found.get("num_attention_heads"):
            found.pop("num_key_value_heads", None)
        if "hidden_size" not in found or name == "bloom":  # this class describes no published model
            continue
        rows.append(f'    {{"{name}", {{{", ".join(str(found.get(key, 0)) for key in SIZES)}}}}},')
    before, after = re.split(r"(?<=Row kRows\[\] = {\n).*?(?=^};)", TABLE.read_text(), flags=re.DOTALL | re.MULTILINE)
    TABLE.write_text(before + "\n".join(rows) + "\n" + after)


if __name__ == "__main__":
    main()
