#!/usr/bin/env python3
"""Writes tests/golden/hearing/<name>/: tiny random models that hear, whole, and what transformers makes of sounds in chats.

  config.json, model.safetensors, tokenizer.json, preprocessor_config.json, ...   the Hugging Face directory, F32
  golden.json   [{"messages": OpenAI's messages with sounds as input_audio, "prompt": ids of the expanded prompt,
                "logprobs": log-probabilities of the next token behind the prompt's last token, "reply": ids of the greedy reply}]
  tower.bin     sounds, one after the other: int32 {blocks, positions, frames, bands, n_tokens, dim}, the spectra [blocks, frames,
                bands], the features [n_tokens, dim] that the text model gets in the places of soft tokens

Needs torch, transformers, tokenizers, safetensors, soundfile and soxr. Usage: make_tiny_hearing.py [name...]
"""
import base64
import io
import json
import os
import pathlib
import shutil
import struct
import sys

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", TORCHDYNAMO_DISABLE="1")
import numpy
import soundfile
import torch
import transformers as T

from make_sound_vectors import loaded, signal
from make_tiny_seeing import shake, sizes, tokenizer_of

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "hearing"


def chat(sound):
    """A chat template in which a sound is `sound`."""
    return ("{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
            "{% for c in m.content %}{% if c.type == 'audio' %}" + sound + "{% else %}{{ c.text }}{% endif %}{% endfor %}"
            "{% endif %}<eos>\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


def ear(**more):
    return dict(num_mel_bins=16, max_source_positions=50) | more


class Model:
    """A model, and how its processor and its tower are used. expand(n_samples): soft tokens; views(samples): spectra of blocks."""

    def __init__(self, model, tokenizer, extractor, sound_token):
        self.model, self.tokenizer, self.extractor, self.sound_token = model, tokenizer, extractor, sound_token

    def save(self, where):
        self.model.save_pretrained(where)
        self.tokenizer.save_pretrained(where)
        self.extractor.save_pretrained(where)


class Qwen2Audio(Model):
    def inputs(self, text, sounds):
        processor = T.Qwen2AudioProcessor(self.extractor, self.tokenizer, chat_template=self.tokenizer.chat_template,
                                          audio_token=self.sound_token)
        return processor(text=text, audio=sounds, sampling_rate=16000, return_tensors="pt")

    def features(self, samples):
        made = self.extractor([samples], sampling_rate=16000, return_attention_mask=True, return_tensors="pt")
        frames = int(made["attention_mask"].sum())
        positions = (frames - 1) // 2 + 1
        core = self.model.model
        mask = torch.where(torch.arange(core.config.audio_config.max_source_positions) < positions, 0.0, -torch.inf)
        states = core.audio_tower(made["input_features"], attention_mask=mask[None, None, None].expand(1, 1, len(mask), -1))
        features = core.multi_modal_projector(states.last_hidden_state)[0, :(positions - 2) // 2 + 1]
        return [(positions, made["input_features"], features)]


class Voxtral(Model):
    """Its processor needs mistral-common and its own tokenizer: what it does with sounds is done here."""

    def blocks(self, samples):
        made = self.extractor(samples, sampling_rate=16000, padding=True, truncation=False, return_tensors="pt",
                              pad_to_multiple_of=self.extractor.n_samples)["input_features"]
        blocks = made.reshape(self.extractor.feature_size, -1, self.extractor.nb_max_frames)
        return blocks.transpose(0, 1)

    def inputs(self, text, sounds):
        blocks = [self.blocks(samples) for samples in sounds]
        for one in blocks:
            text = text.replace(self.sound_token, "[SOUND]" * (len(one) * 25), 1)
        ids = self.tokenizer(text.replace("[SOUND]", self.sound_token), return_tensors="pt")
        return {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"], "input_features": torch.cat(blocks)}

    def features(self, samples):
        blocks = self.blocks(samples)
        return [(50, blocks, self.model.get_audio_features(blocks).pooler_output)]


class Qwen3Asr(Model):
    def inputs(self, text, sounds):
        processor = T.Qwen3ASRProcessor(self.extractor, self.tokenizer, chat_template=self.tokenizer.chat_template)
        return processor(text=[text], audio=sounds)

    def features(self, samples):
        """One entry for each window that the layers hear at once."""
        made = self.extractor([samples], sampling_rate=16000, padding=True, return_attention_mask=True)
        spectrum, mask = made["input_features"], made["attention_mask"]
        rows = self.model.get_audio_features(spectrum, mask).pooler_output
        n_frames, window = int(mask.sum()), self.model.config.audio_config.n_window_infer
        entries, done = [], 0
        for first in range(0, n_frames, window):
            n = min(window, n_frames - first)
            positions = n // 100 * 13 + (n % 100 + 7) // 8
            entries.append((positions, spectrum[:, :, first:first + window], rows[done:done + positions]))
            done += positions
        assert done == len(rows), (done, rows.shape)
        return entries


def qwen2_audio():
    marks = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    tokenizer = tokenizer_of(chat("<|audio_bos|><|AUDIO|><|audio_eos|>"), marks, audio_token=marks[0], audio_bos_token=marks[1],
                             audio_eos_token=marks[2])
    config = T.Qwen2AudioConfig(
        text_config=T.Qwen2Config(**sizes(tokenizer)).to_dict(), audio_token_id=tokenizer.convert_tokens_to_ids(marks[0]),
        audio_config=T.Qwen2AudioEncoderConfig(**ear(d_model=24, encoder_layers=2, encoder_attention_heads=3,
                                                     encoder_ffn_dim=40)).to_dict())
    extractor = T.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    return Qwen2Audio(T.Qwen2AudioForConditionalGeneration(config), tokenizer, extractor, marks[0])


def voxtral():
    marks = ["[AUDIO]", "[BEGIN_AUDIO]"]
    tokenizer = tokenizer_of(chat("[BEGIN_AUDIO][AUDIO]"), marks, audio_token=marks[0])
    config = T.VoxtralConfig(
        text_config=T.LlamaConfig(**sizes(tokenizer)).to_dict(), audio_token_id=tokenizer.convert_tokens_to_ids(marks[0]),
        audio_config=ear(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48,
                         model_type="voxtral_encoder"))
    extractor = T.WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    return Voxtral(T.VoxtralForConditionalGeneration(config), tokenizer, extractor, marks[0])


def qwen3_asr():
    marks = ["<|audio_pad|>", "<|audio_start|>", "<|audio_end|>"]
    tokenizer = tokenizer_of(chat("<|audio_start|><|audio_pad|><|audio_end|>"), marks, audio_token=marks[0],
                             audio_bos_token=marks[1], audio_eos_token=marks[2])
    config = T.Qwen3ASRConfig(
        text_config=T.Qwen3Config(**sizes(tokenizer)).to_dict(), audio_token_id=tokenizer.convert_tokens_to_ids(marks[0]),
        tie_word_embeddings=False,
        audio_config=dict(num_mel_bins=16, d_model=24, encoder_layers=2, encoder_attention_heads=3, encoder_ffn_dim=40,
                          n_window=50, n_window_infer=200, output_dim=32, downsample_hidden_size=6, model_type="qwen3_asr_encoder"))
    extractor = T.Qwen3ASRFeatureExtractor(feature_size=16)
    return Qwen3Asr(T.Qwen3ASRForConditionalGeneration(config), tokenizer, extractor, marks[0])


MODELS = {"qwen2_audio": qwen2_audio, "voxtral": voxtral, "qwen3_asr": qwen3_asr}


class Sound:
    """A sound file in memory."""

    def __init__(self, seconds, rate, channels, kind, subtype, seed):
        file = io.BytesIO()
        soundfile.write(file, signal(seconds, rate, channels, seed), rate, format=kind, subtype=subtype)
        self.file, self.format = file.getvalue(), kind.lower()
        self.samples = loaded(io.BytesIO(self.file))[0]

    def part(self):
        return {"type": "input_audio", "input_audio": {"data": base64.b64encode(self.file).decode(), "format": self.format}}


def talks(name):
    """Conversations: parts are texts or sounds."""
    if name == "qwen3_asr":  # its processor takes one sound
        for seconds, rate, kind, subtype in [(0.61, 16000, "WAV", "PCM_16"), (2.37, 22050, "MP3", "MPEG_LAYER_III"), (0.2, 8000, "FLAC", "PCM_16")]:
            yield [("user", ["What is this? ", Sound(seconds, rate, 1, kind, subtype, 4)])]
        return
    more = name == "voxtral"  # hears more than a window
    a, b = Sound(0.6, 16000, 1, "WAV", "PCM_16", 1), Sound(0.93, 22050, 2, "MP3", "MPEG_LAYER_III", 2)
    c = Sound(1.2 if more else 0.31, 8000, 1, "FLAC", "PCM_16", 3)
    yield [("user", [a, "What is in this picture?"])]
    yield [("user", ["Compare the two pictures. ", b, " and ", c, " How many red circles are there?"])]
    yield [("user", [c, "What is this?"]), ("assistant", ["The first one shows a cat."]), ("user", ["How many?", a, b])]


def write(name):
    torch.manual_seed(sum(name.encode()))
    one = MODELS[name]()
    one.model = one.model.float().eval()
    shake(one.model)
    where = OUT / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    one.save(where)
    (where / "generation_config.json").unlink(missing_ok=True)
    golden, towers = [], {}
    for talk in talks(name):
        def messages(of_sound):
            return [{"role": role, "content": [of_sound(part) if isinstance(part, Sound) else {"type": "text", "text": part}
                                               for part in parts]} for role, parts in talk]
        sounds = [part for _, parts in talk for part in parts if isinstance(part, Sound)]
        text = one.tokenizer.apply_chat_template(messages(lambda _: {"type": "audio"}), tokenize=False, add_generation_prompt=True)
        inputs = one.inputs(text, [sound.samples for sound in sounds])
        with torch.no_grad():
            logits = one.model(**inputs).logits[0, -1].float()
            made = one.model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
            for sound in sounds:
                towers.setdefault(sound.file, one.features(sound.samples))
        prompt = inputs["input_ids"][0].tolist()
        golden.append({"messages": messages(lambda sound: sound.part()), "prompt": prompt,
                       "logprobs": [round(x, 5) for x in torch.log_softmax(logits, -1).tolist()],
                       "reply": made[0, len(prompt):].tolist()})
        print(name, len(prompt), golden[-1]["reply"])
    (where / "golden.json").write_text(json.dumps(golden) + "\n")
    with open(where / "tower.bin", "wb") as out:
        for positions, blocks, features in [entry for entries in towers.values() for entry in entries]:
            spectra = blocks.transpose(1, 2).contiguous().numpy().astype(numpy.float32)
            out.write(struct.pack("<6i", len(spectra), positions, *spectra.shape[1:], *features.shape))
            out.write(spectra.tobytes() + features.contiguous().numpy().astype(numpy.float32).tobytes())
            print(name, "tower", positions, spectra.shape, tuple(features.shape), f"scale {features.abs().mean():.3f}")
    print(name, sum(path.stat().st_size for path in where.iterdir()) // 1024, "KiB")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        write(wanted)
