"""Measures a shipped file itself (not the checkpoint it came from) and checks it against independent readers.

    python check_export.py FILE.gguf --text heldout.txt [--hf DIR]

The GGUF is read with the `gguf` package, dequantized and run by model.py; a Hugging Face directory is run by transformers.
Prints the measures of evaluate.py. Exit code 1 where tokenizers or logits disagree.
"""

import argparse
import json
import sys

import gguf
import numpy as np
import sentencepiece
import torch

import data
import evaluate
import export
from model import Model, ModelConfig


def read_fields(reader):
    return {k: f.contents() for k, f in reader.fields.items()}


def config_of(fields):
    arch = fields["general.architecture"]
    get = lambda key, default=None: fields.get(f"{arch}.{key}", default)
    return ModelConfig(
        vocab=len(fields["tokenizer.ggml.tokens"]), dim=get("embedding_length"), layers=get("block_count"),
        heads=get("attention.head_count"), kv_heads=get("attention.head_count_kv"), hidden=get("feed_forward_length"),
        context=get("context_length"), rope_theta=get("rope.freq_base"),
        norm_eps=get("attention.layer_norm_rms_epsilon"), exit_layer=fields.get("penstock.exit_layer", 0),
        ternary=arch == "bitnet", window=get("attention.sliding_window", 0))


def deinterleave_rows(w, heads):
    """The inverse of export.interleave_rows."""
    rows, columns = w.shape
    return w.reshape(heads, rows // heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


class ReadTernary(torch.nn.Module):
    """A linear layer on weights that are ternary already; only the activations are rounded."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        return torch.nn.functional.linear((x / step).round().clamp(-128, 127) * step, self.weight)


def load_gguf(path):
    """A model in eval mode from a GGUF file that export.py wrote (or one of the same architectures)."""
    reader = gguf.GGUFReader(path)
    cfg = config_of(read_fields(reader))
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    model = Model(cfg).eval()
    weights = {}
    for ours, p in model.state_dict().items():
        w = stored[export.names(ours)[0]].reshape(tuple(p.shape))
        if not cfg.ternary and ("q_proj" in ours or "k_proj" in ours):
            w = deinterleave_rows(w, cfg.heads if "q_proj" in ours else cfg.kv_heads)
        weights[ours] = torch.from_numpy(np.array(w, np.float32))
    model.load_state_dict(weights)
    if cfg.ternary:
        for block in model.blocks:
            for part in (block.attention, block.mlp):
                for name, child in list(part.named_children()):
                    if name.endswith("proj"):
                        setattr(part, name, ReadTernary(child.weight))
    return model


def sentencepiece_of(path):
    """A SentencePiece processor rebuilt from the GGUF's tokens, scores and types."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    fields = read_fields(gguf.GGUFReader(path))
    proto = pb.ModelProto()
    proto.trainer_spec.model_type = pb.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.add_dummy_prefix = True
    kinds = {1: pb.ModelProto.SentencePiece.NORMAL, 2: pb.ModelProto.SentencePiece.UNKNOWN,
             3: pb.ModelProto.SentencePiece.CONTROL, 6: pb.ModelProto.SentencePiece.BYTE}
    for piece, score, kind in zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.scores"],
                                  fields["tokenizer.ggml.token_type"]):
        proto.pieces.add(piece=piece, score=score, type=kinds[kind])
    sp = sentencepiece.SentencePieceProcessor()
    sp.LoadFromSerializedProto(proto.SerializeToString())
    return sp


def check_hugging_face(folder, model, sp, stories):
    """Largest difference of logits to transformers (bounded by the 8-bit rounding), and equal ids."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    fast = AutoTokenizer.from_pretrained(folder)
    nasty = stories + ["", " ", "  two  spaces ", "new\nline\n\n", "ünïcödé 漢字 🙂", "1234567"]
    wrong = [s for s in nasty if fast.encode(s, add_special_tokens=False) != sp.encode(s)]
    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([([1] + sp.encode(stories[0]))[:model.cfg.context]])
    with torch.no_grad():
        difference = (hf(ids).logits - model.logits(model(ids)[0])).abs().max().item()
    return wrong, difference


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gguf")
    parser.add_argument("--text", required=True)
    parser.add_argument("--hf")
    args = parser.parse_args()
    net, pieces, texts = load_gguf(args.gguf), sentencepiece_of(args.gguf), data.load_stories(args.text)
    result = evaluate.measure(net, pieces, texts)
    if args.hf:
        wrong, result["hf_max_logit_difference"] = check_hugging_face(args.hf, net, pieces, texts)
        result["hf_tokenizer_differs_on"] = wrong
    print(json.dumps(result, indent=1))
    sys.exit(bool(args.hf) and (bool(wrong) or result["hf_max_logit_difference"] > 0.5))
