#!/usr/bin/env python3
"""Ultravox in torch, for tools/make_tiny_hearing.py: its own code lies beside its checkpoints.

A sound's spectrum, padded with silence to whole frames, is cut into pieces of the encoder's length. Whisper's encoder reads each as
long as it is; rows of zeros fill its states up to a multiple of stack_factor, so many of which are one token's. Behind the last
piece of a longer sound the published processor puts frames of zeros that no position attends to; their states, which its last token
would have in part, are zeros here.
"""
import json
import pathlib

import torch
import transformers as T
from safetensors.torch import save_file
from transformers.models.whisper.modeling_whisper import WhisperEncoder


class RmsNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Projector(torch.nn.Module):
    def __init__(self, width, hidden, out, middle):
        super().__init__()
        self.ln_pre, self.linear_1 = RmsNorm(width), torch.nn.Linear(width, hidden, bias=False)
        self.linear_2 = torch.nn.Linear(hidden // 2, out, bias=False)
        self.ln_mid = RmsNorm(hidden // 2) if middle else torch.nn.Identity()
        self.ln_post = torch.nn.Identity() if middle else RmsNorm(out)

    def forward(self, x):
        x, gate = self.linear_1(self.ln_pre(x)).chunk(2, -1)
        return self.ln_post(self.linear_2(self.ln_mid(torch.nn.functional.silu(gate) * x)))


class Model(torch.nn.Module):
    """text: a configuration of transformers; ear: Whisper's sizes."""

    def __init__(self, text, ear, hidden_size=44, stack_factor=8, projector_ln_mid=False):
        super().__init__()
        self.ear = T.WhisperConfig(**ear)
        self.text, self.settings = text, dict(hidden_size=hidden_size, stack_factor=stack_factor, projector_ln_mid=projector_ln_mid)
        self.audio_tower = WhisperEncoder(self.ear)
        self.multi_modal_projector = Projector(stack_factor * self.ear.d_model, hidden_size, text.hidden_size, projector_ln_mid)
        self.language_model = T.AutoModelForCausalLM.from_config(text)

    def heard(self, spectrum):
        """spectrum: [1, bands, frames]. Returns [tokens, width of the text model]."""
        tower, gelu = self.audio_tower, torch.nn.functional.gelu
        states = gelu(tower.conv2(gelu(tower.conv1(spectrum)))).transpose(1, 2)
        states = states + tower.embed_positions.weight[:states.shape[1]]
        for layer in tower.layers:
            made = layer(states, attention_mask=None)
            states = made[0] if isinstance(made, tuple) else made
        states = tower.layer_norm(states)[0]
        stack = self.settings["stack_factor"]
        states = torch.nn.functional.pad(states, (0, 0, 0, -len(states) % stack))
        return self.multi_modal_projector(states.reshape(len(states) // stack, -1))

    def embeddings(self, input_ids, places, rows):
        table = self.language_model.get_input_embeddings()(input_ids)
        for place, one in zip(places, rows):
            table[0, place:place + len(one)] = one
        return table

    def forward(self, input_ids, places, rows):
        return self.language_model(inputs_embeds=self.embeddings(input_ids, places, rows))

    def generate(self, input_ids, places, rows, max_new_tokens, **_):
        for _ in range(max_new_tokens):
            token = self(input_ids, places, rows).logits[0, -1].argmax()
            input_ids = torch.cat([input_ids, token.reshape(1, 1)], 1)
        return input_ids


def pieces(model, extractor, samples):
    """Returns (positions, spectrum [1, bands, frames], rows) of every piece."""
    hop, window = extractor.hop_length, extractor.nb_max_frames
    frames = max(-(-len(samples) // hop), 2)
    padded = torch.nn.functional.pad(torch.tensor(samples), (0, frames * hop - len(samples)))
    spectrum = torch.tensor(extractor([padded.numpy()], sampling_rate=extractor.sampling_rate, padding="longest",
                                      truncation=False)["input_features"])
    assert spectrum.shape[2] == frames
    made = []
    for first in range(0, frames, window):
        piece = spectrum[:, :, first:first + window]
        if first > 0:
            piece = torch.nn.functional.pad(piece, (0, piece.shape[2] % 2))
        made.append(((piece.shape[2] + 1) // 2, piece, model.heard(piece)))
    return made


def save(model, where):
    config = {"architectures": ["UltravoxModel"], "model_type": "ultravox", "audio_config": model.ear.to_dict(),
              "text_config": model.text.to_dict(), "audio_model_id": None, "text_model_id": None, "ignore_index": -100, "norm_init": 0.4,
              "projector_act": "swiglu", "audio_latency_block_size": None, "initializer_range": 0.02,
              "vocab_size": model.text.vocab_size, **model.settings}
    pathlib.Path(where, "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, pathlib.Path(where, "model.safetensors"),
              metadata={"format": "pt"})
