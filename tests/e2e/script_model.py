"""A model that says what a test wants: one token follows another by a fixed table.

Every piece of a script is a token of its own; the row of the output matrix of a token is the embedding of the token
before it, and the layer between adds nothing. So a chat's last token, which the template chooses by a word in the last
message, decides the whole reply, and a test knows it to the letter.
"""
import array
import json
import pathlib
import random
import struct

WIDTH = 256
EOS = "<|end|>"
MARKER = "<tool_call>"  # the one marker that is a special token, as in some models

# name: the pieces of the reply; a piece occurs once in all of them.
SCRIPTS = {
    "plain": ["Hello", " there", "!"],
    "weather": [MARKER, '\n{"name": "get_weather", "arg', 'uments": {"city": "Par', 'is"}}\n</tool_', "call>"],
    "think": ["<think>\nLet me ", "think.\n</thi", "nk>\n\nThe answer", " is 42."],
    "several": ["<think>Two cities.", "</think>I will ", "look.\n<tool_call>{\"name\": \"get_weather\", ",
                '"arguments": {"city": "Rome"}}</tool_call>\n<tool_', 'call>{"name": "get_time", "arguments": {}}',
                "</tool_call>\n"],
    "letter": [MARKER + '\n{"name": "send_le', 'tter", "arguments": {"text": "Dear', " friend", ",\\n how", " are you", ' today?", "copies"', ": 2}}\n</tool_cal", "l>"],
    "broken": ["<tool_call>this is", " no call</tool_call> at all"],
    "sunny": ["It is sunny", " in Paris."],
    "endless": ["la ", "li "],
    "ponder": ["<think>", "so ", "and "],  # until somebody says enough:
    "enough": ["</think>", "Right", " then."],
}
# What follows <|fim_middle|>, the token that asks for what stands between two texts.
MIDDLE = ["    total = 0", "\n    for x in xs:", "\n        total += x", "\nprint(", "total)"]
LOOPS = {"endless": 0, "ponder": 1}  # the piece that follows the last

TEMPLATE = """{#- hermes calls: <tool_call> </tool_call>; reasoning: <think> </think> -#}
{%- set ns = namespace(go='plain') -%}
{%- if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif -%}
{%- for m in messages -%}
<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}[{{ call.function.name }} {{ call.function.arguments | tojson }}]{% endfor -%}
{%- if not (loop.last and not add_generation_prompt) %}<|end|>{% endif -%}
{%- for name in NAMES %}{% if name in (m.content or '') %}{% set ns.go = name %}{% endif %}{% endfor -%}
{%- if m.role == 'tool' %}{% set ns.go = 'sunny' %}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{{ '<|go:' ~ ns.go ~ '|>' }}{% endif -%}"""


def byte_alphabet():
    """GPT-2's printable stand-in for every byte."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte if byte in kept else 256 + extra)
        extra += byte not in kept
    return letters


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def write(directory, scripts=None, template=None, width=WIDTH, context=1024):
    """scripts: {name: pieces} instead of those above; template: a text that ends in <|go:NAME|> of one of them; width: with
    more replies the scores of tokens must differ more; context: most tokens of a sequence.
    Returns the directory."""
    directory = pathlib.Path(directory)
    scripts = SCRIPTS if scripts is None else scripts
    template = TEMPLATE.replace("NAMES", json.dumps(sorted(scripts))) if template is None else template
    vocab = {letter: byte for byte, letter in byte_alphabet().items()}
    added = {}

    letters = byte_alphabet()

    def token(text, special):
        if set(text) <= set(letters.values()):  # the decoder takes each of these for a byte
            text = "".join(letters[byte] for byte in text.encode())
        added.setdefault(text, {"id": 256 + len(added), "content": text, "special": special, "single_word": False,
                                "lstrip": False, "rstrip": False, "normalized": False})
        return added[text]["id"]

    eos = token(EOS, True)
    for role in ("system", "user", "assistant", "tool"):
        token(f"<|{role}|>", True)
    after = {}
    for name, pieces in scripts.items():
        ids = [token(f"<|go:{name}|>", True)] + [token(piece, piece == MARKER) for piece in pieces]
        ids.append(ids[1 + LOOPS[name]] if scripts is SCRIPTS and name in LOOPS else eos)
        for here, there in zip(ids, ids[1:]):
            assert here not in after, f"{name}: a piece occurs twice"
            after[here] = there
    for mark in ("prefix", "suffix"):
        token(f"<|fim_{mark}|>", True)
    ids = [token("<|fim_middle|>", True)] + [token(piece, False) for piece in MIDDLE] + [token("<|fim_pad|>", True)]
    after.update(zip(ids, ids[1:]))
    size = 256 + len(added)
    write_model(directory, size, after, eos, width, context)
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added.values()),
                 "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                           "merges": []}}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS,
        "chat_template": template}))
    return directory


def write_model(directory, size, after, eos, width, context):
    signs = random.Random(1)
    rows = [array.array("f", (signs.choice((-1.0, 1.0)) for _ in range(width))) for _ in range(size)]
    nothing = array.array("f", bytes(4 * width))
    head = [nothing] * size
    # Many tokens lead to the end: they have a quarter of their rows in common, which alone is its row of the output matrix.
    common = rows[eos][:width // 4]
    for here in (here for here, there in after.items() if there == eos):
        rows[here][:width // 4] = common
    head[eos] = array.array("f", [4 * sign for sign in common] + [0.0] * (width - len(common)))
    for here, there in after.items():
        if there == eos:
            continue
        head[there] = array.array("f", (a + b for a, b in zip(head[there], rows[here])))

    def matrix(n, m):
        return [n, m], array.array("f", bytes(4 * n * m))

    ones = array.array("f", [1.0] * width)
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": ([size, width], array.array("f", b"".join(row.tobytes() for row in rows))),
               "lm_head.weight": ([size, width], array.array("f", b"".join(row.tobytes() for row in head))),
               "model.norm.weight": ([width], ones),
               layer + "input_layernorm.weight": ([width], ones),
               layer + "post_attention_layernorm.weight": ([width], ones)}
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        tensors[f"{layer}self_attn.{name}.weight"] = matrix(width, width)
    for name in ("gate_proj", "up_proj"):
        tensors[f"{layer}mlp.{name}.weight"] = matrix(64, width)
    tensors[layer + "mlp.down_proj.weight"] = matrix(width, 64)
    directory.mkdir(parents=True, exist_ok=True)
    write_safetensors(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 1, "vocab_size": size,
        "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "torch_dtype": "float32", "eos_token_id": eos, "bos_token_id": None}))


if __name__ == "__main__":
    import sys
    print(write(sys.argv[1]))
