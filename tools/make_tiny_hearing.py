#!/usr/bin/env python3
"""Writes tests/golden/hearing/<name>/: tiny random models that hear, whole, and what transformers makes of sounds in chats.

  config.json, model.safetensors, tokenizer.json, preprocessor_config.json, ...   the Hugging Face directory, F32
  golden.json   [{"messages": OpenAI's messages with sounds as input_audio, "prompt": ids of the expanded prompt,
                "logprobs": log-probabilities of the next token behind the prompt's last token, "reply": ids of the greedy reply}]
  videos.json   the same of videos, as lists of frames, with the settings of each request ("mm_processor_kwargs"): the Omni models
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

from PIL import Image
from safetensors.torch import load_file, save_file

import make_tiny_ultravox as ultravox_reference
from make_sound_vectors import granite_spectrum, loaded, signal
from make_tiny_seeing import data_url, eye, frames_of, mrope, picture, shake, sizes, tokenizer_of, video_part, watched_talks

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "hearing"


def chat(sound):
    """A chat template in which a sound is `sound`."""
    return ("{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
            "{% for c in m.content %}{% if c.type == 'audio' %}" + sound + "{% else %}{{ c.text }}{% endif %}{% endfor %}"
            "{% endif %}<eos>\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}")


def chat_of_both(image, sound, video=""):
    """A chat template in which a picture is `image`, a sound `sound` and a video `video`."""
    if video:
        video = "{% elif c.type == 'video' %}" + video
    return chat(sound).replace("{% else %}{{ c.text }}", "{% elif c.type == 'image' %}" + image + video + "{% else %}{{ c.text }}")


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

    def rows(self, samples):
        """Features as the text model's layers read them."""
        return self.features(samples)

    def logits(self, inputs):
        return self.model(**inputs).logits[0, -1].float()

    def reply(self, inputs):
        made = self.model.generate(**inputs, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
        return made[0, inputs["input_ids"].shape[1]:].tolist()


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


class Ultravox(Model):
    """Its code lies beside its checkpoints: the reference is our own."""

    def inputs(self, text, sounds):
        ids, rows, places = [], [], []
        for i, part in enumerate(text.split(self.sound_token)):
            if i > 0:
                rows.append(torch.cat([one[2] for one in self.features(sounds[i - 1])]))
                places.append(len(ids))
                ids += [self.tokenizer.eos_token_id] * len(rows[-1])
            ids += self.tokenizer(part, add_special_tokens=False)["input_ids"]
        return {"input_ids": torch.tensor([ids]), "places": places, "rows": rows}

    def features(self, samples):
        return ultravox_reference.pieces(self.model, self.extractor, samples)

    def save(self, where):
        ultravox_reference.save(self.model, where)
        self.tokenizer.save_pretrained(where)
        self.extractor.save_pretrained(where)


class Omni(Model):
    """Sounds of a request are heard one by one: in transformers their lengths change each other's last frames."""

    image_token, spoken = "", {}

    def spectrum(self, samples):
        made = self.extractor([samples], sampling_rate=16000, return_attention_mask=True, return_tensors="pt", **self.padding)
        return made["input_features"][0, :, :int(made["attention_mask"].sum())]

    def inputs(self, text, sounds, pictures=()):
        spectra = [self.spectrum(samples) for samples in sounds]
        for spectrum in spectra:
            text = text.replace(self.sound_token, "[SOUND]" * self.tokens(spectrum.shape[1]), 1)
        more = {}
        if pictures:
            made = self.images(images=list(pictures), return_tensors="pt")
            more = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}
            for grid in made["image_grid_thw"]:
                text = text.replace(self.image_token, "[PICTURE]" * (int(grid.prod()) // 4), 1)
        text = text.replace("[SOUND]", self.sound_token).replace("[PICTURE]", self.image_token)
        ids = self.tokenizer(text, return_tensors="pt")
        longest = max((one.shape[1] for one in spectra), default=0)
        if spectra:
            more["input_features"] = torch.stack([torch.nn.functional.pad(one, (0, longest - one.shape[1])) for one in spectra])
            more["feature_attention_mask"] = torch.stack([(torch.arange(longest) < one.shape[1]).long() for one in spectra])
        return {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"], **more}

    def features(self, samples):
        """One entry for each window that the layers hear at once."""
        spectrum = self.spectrum(samples)
        n = spectrum.shape[1]
        rows = self.model.get_audio_features(spectrum[None], torch.ones(1, n, dtype=torch.long)).pooler_output
        entries, done = [], 0
        for first in range(0, n, self.heard):
            part = spectrum[:, first:first + self.heard]
            positions, tokens = self.positions(part.shape[1])
            if tokens > 0:
                entries.append((positions, self.given(part, n)[None], rows[done:done + tokens]))
            done += tokens
        assert done == len(rows), (done, rows.shape)
        return entries

    def watched(self, text, parts, settings):
        """What the model's processor makes of a conversation with videos."""
        videos = [part for part in parts if isinstance(part, tuple)]
        pictures = [part for part in parts if isinstance(part, Image.Image)]
        sounds = [part.samples for part in parts if isinstance(part, Sound)]
        processor = getattr(T, self.spoken["processor"])(
            image_processor=self.images, video_processor=T.Qwen2VLVideoProcessor(patch_size=4, merge_size=2, temporal_patch_size=2),
            feature_extractor=self.extractor, tokenizer=self.tokenizer)
        times = [dict(total_num_frames=len(files), fps=rate) for files, rate in videos]
        return processor(text=[text], images=pictures or None, audio=sounds or None, videos=[frames_of(files) for files, _ in videos],
                         images_kwargs={"size": settings["size"]}, return_tensors="pt",
                         videos_kwargs={"do_sample_frames": False} | settings | {"video_metadata": times})

    def save(self, where):
        """As published: the thinker inside of a model that speaks, whose other tensors are left out by the reader."""
        super().save(where)
        config = json.loads((where / "config.json").read_text())
        kind = config["model_type"].removesuffix("_thinker")
        config.pop("transformers_version", None)
        whole = {"architectures": [self.spoken["class"]], "model_type": kind, "thinker_config": config, "enable_audio_output": True}
        (where / "config.json").write_text(json.dumps(whole | self.spoken["configs"], indent=1) + "\n")
        tensors = {"thinker." + name: value for name, value in load_file(where / "model.safetensors").items()}
        for name in self.spoken["tensors"]:
            tensors[name] = torch.randn(4, 3)
        save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
        settings = self.images.to_dict() | self.extractor.to_dict() | {"image_processor_type": "Qwen2VLImageProcessor"}
        settings["processor_class"] = self.spoken["processor"]
        kept = {key: value for key, value in settings.items() if value is not None and key != "mel_filters"}
        (where / "preprocessor_config.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")


class Qwen25Omni(Omni):
    padding, heard = dict(padding="max_length"), 20
    image_token = "<|IMAGE|>"
    spoken = {"class": "Qwen2_5OmniModel", "processor": "Qwen2_5OmniProcessor",
              "configs": {"talker_config": {"model_type": "qwen2_5_omni_talker"}, "token2wav_config": {"model_type": "qwen2_5_omni_token2wav"}},
              "tensors": ["talker.codec_head.weight", "token2wav.code2wav_dit_model.proj_out.weight"]}

    def tokens(self, n):
        return ((n - 1) // 2 + 1) // 2

    def positions(self, n):
        return (n - 1) // 2 + 1, self.tokens(n)

    def given(self, part, _):
        return part


class Qwen3Omni(Omni):
    padding, heard = dict(padding=True, truncation=False), 200
    image_token = "<|image_pad|>"
    spoken = {"class": "Qwen3OmniMoeForConditionalGeneration", "processor": "Qwen3OmniMoeProcessor",
              "configs": {"talker_config": {"model_type": "qwen3_omni_moe_talker"}, "code2wav_config": {"model_type": ""}},
              "tensors": ["talker.codec_head.weight", "code2wav.code_embedding.weight"]}

    def tokens(self, n):
        return n // 100 * 13 + (n % 100 + 7) // 8

    def positions(self, n):
        return self.tokens(n), self.tokens(n)

    def given(self, part, whole):
        return torch.nn.functional.pad(part, (0, -part.shape[1] % 100)) if whole >= 100 else part


class Granite(Model):
    """With an adapter that is there where sounds are; its extractor needs torchaudio, so that what it does is done here."""

    def spectrum(self, samples):
        return torch.tensor(granite_spectrum(samples, 8)).float()[None]

    def inputs(self, text, sounds):
        spectra = [self.spectrum(samples) for samples in sounds]
        rows = [self.features(samples)[0][2] for samples in sounds]
        for one in rows:
            text = text.replace(self.sound_token, "[SOUND]" * len(one), 1)
        ids = self.tokenizer(text.replace("[SOUND]", self.sound_token), return_tensors="pt")
        self.adapt(bool(sounds))
        if not sounds:
            return {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"]}
        # Alone, as here: in a batch shorter ones would hear silence.
        table = self.model.get_input_embeddings()(ids["input_ids"]).detach()
        table[ids["input_ids"] == self.model.config.audio_token_id] = torch.cat(rows)
        return {"input_ids": ids["input_ids"], "table": table}

    def logits(self, inputs):
        """With the scale of its text model, which the class for sounds leaves out."""
        if "table" not in inputs:
            return super().logits(inputs) / self.model.config.text_config.logits_scaling
        return self.model(inputs_embeds=inputs["table"]).logits[0, -1].float() / self.model.config.text_config.logits_scaling

    def reply(self, inputs):
        if "table" not in inputs:
            return super().reply(inputs)
        table, made = inputs["table"], []
        for _ in range(6):
            made.append(int(self.model(inputs_embeds=table).logits[0, -1].argmax()))
            table = torch.cat([table, self.model.get_input_embeddings()(torch.tensor([[made[-1]]]))], 1)
        return made

    def features(self, samples):
        spectrum = self.spectrum(samples)
        with torch.no_grad():
            rows = self.model.get_audio_features(spectrum).pooler_output[0]
        return [(spectrum.shape[1], spectrum.transpose(1, 2), rows)]

    def rows(self, samples):
        factor = self.model.config.text_config.embedding_multiplier
        return [(positions, spectrum, features * factor) for positions, spectrum, features in self.features(samples)]

    def adapt(self, wanted):
        for name, (a, b) in self.adapter.items():
            weight = self.model.get_parameter(name)
            weight.data = self.plain[name] + (b @ a * (ALPHA / RANK) if wanted else 0)

    def prepare(self):
        self.plain, self.adapter = {}, {}
        for name, weight in self.model.named_parameters():
            if "language_model" in name and name.endswith(("q_proj.weight", "v_proj.weight")):
                self.plain[name] = weight.data.clone()
                self.adapter[name] = (torch.randn(RANK, weight.shape[1]) * 0.2, torch.randn(weight.shape[0], RANK) * 0.2)

    def save(self, where):
        self.adapt(False)
        self.model.save_pretrained(where)
        self.tokenizer.save_pretrained(where)
        settings = {"feature_extractor_type": "GraniteSpeechFeatureExtractor", "feature_size": 8, "melspec_kwargs": {
            "hop_length": 160, "n_fft": 512, "n_mels": 8, "sample_rate": 16000, "win_length": 400}, "padding_side": "right",
            "padding_value": 0.0, "projector_downsample_rate": 2, "projector_window_size": 6, "return_attention_mask": True,
            "sampling_rate": 16000}
        (where / "preprocessor_config.json").write_text(json.dumps(settings, indent=1) + "\n")
        save_file({f"base_model.model.{name.removesuffix('.weight')}.lora_{kind}.weight": value.contiguous()
                   for name, pair in self.adapter.items() for kind, value in zip("AB", pair)}, where / "adapter_model.safetensors",
                  metadata={"format": "pt"})
        (where / "adapter_config.json").write_text(json.dumps({
            "peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": ["q_proj", "v_proj"], "bias": "none",
            "base_model_name_or_path": "", "task_type": "CAUSAL_LM"}, indent=1) + "\n")


class Gemma4(Model):
    """It sees, too. Products have bounds, which are drawn so that they are met."""

    def inputs(self, text, sounds, pictures=()):
        made = self.processor(text=text, audio=sounds or None, images=list(pictures) or None, sampling_rate=16000, return_tensors="pt")
        return {key: value for key, value in made.items() if key != "num_soft_tokens_per_image"}

    def features(self, samples):
        made = self.extractor([samples], sampling_rate=16000, return_tensors="pt")
        spectrum, mask = made["input_features"], made["input_features_mask"]
        heard = self.model.model.get_audio_features(spectrum, mask, return_dict=True)
        rows = heard.pooler_output[heard.attention_mask]
        return [(len(rows), spectrum[:, :int(mask.sum())].transpose(1, 2), rows)]

    def prepare(self):
        for name, value in self.model.named_buffers():
            if name.endswith(("input_min", "output_min", "input_max", "output_max")):
                value.fill_((0.8 + torch.rand(())) * (-1 if name.endswith("_min") else 1))

    def save(self, where):
        self.model.save_pretrained(where)
        self.processor.save_pretrained(where)


class Gemma3n(Model):
    """Sounds of a request are heard one by one: in transformers the longest one adds frames to the others."""

    def spectrum(self, samples):
        made = self.extractor([samples], sampling_rate=16000, return_tensors="pt")
        assert made["input_features_mask"].all()
        return made["input_features"]

    def inputs(self, text, sounds):
        for _ in sounds:
            text = text.replace(self.sound_token, "[SOUND]", 1)
        marks = self.tokenizer
        places = f"\n\n{marks.boa_token}" + self.sound_token * self.model.config.audio_soft_tokens_per_image + f"{marks.eoa_token}\n\n"
        ids = self.tokenizer(text.replace("[SOUND]", places), return_tensors="pt")
        spectra = [self.spectrum(samples) for samples in sounds]
        longest = max(one.shape[1] for one in spectra)
        return {"input_ids": ids["input_ids"], "attention_mask": ids["attention_mask"],
                "input_features": torch.cat([torch.nn.functional.pad(one, (0, 0, 0, longest - one.shape[1])) for one in spectra]),
                "input_features_mask": torch.stack([torch.arange(longest) < one.shape[1] for one in spectra])}

    def prepare(self):
        core = self.model.model
        together = core.get_audio_features

        def one_by_one(spectra, silent, **more):
            heard = [together(one[None, :int((~own).sum())], own[None, :int((~own).sum())], **more) for one, own in zip(spectra, silent)]
            longest = max(one.pooler_output.shape[1] for one in heard)
            pad = [longest - one.pooler_output.shape[1] for one in heard]
            heard[0].pooler_output = torch.cat([torch.nn.functional.pad(one.pooler_output, (0, 0, 0, n)) for one, n in zip(heard, pad)])
            heard[0].audio_mel_mask = torch.cat([torch.nn.functional.pad(one.audio_mel_mask, (0, n), value=True)
                                                 for one, n in zip(heard, pad)])
            return heard[0]
        core.get_audio_features = one_by_one

    def features(self, samples):
        spectrum, core = self.spectrum(samples), self.model.model
        n = spectrum.shape[1]
        heard = core.get_audio_features(spectrum, torch.zeros(1, n, dtype=torch.bool), return_dict=True).pooler_output[0]
        fill = core.embed_audio(input_ids=torch.tensor([[core.vocab_size - 1]]))[0]
        behind = core.embed_audio(input_ids=torch.tensor([[self.tokenizer.convert_tokens_to_ids(self.tokenizer.eoa_token)]]))[0]
        rows = torch.cat([heard, fill.expand(self.model.config.audio_soft_tokens_per_image - len(heard), -1), behind])
        return [((n + 3) // 4, spectrum.transpose(1, 2), rows)]

    def save(self, where):
        super().save(where)
        settings = {"audio_seq_length": self.model.config.audio_soft_tokens_per_image, "image_seq_length": 256, "processor_class": "Gemma3nProcessor"}
        (where / "processor_config.json").write_text(json.dumps(settings, indent=1) + "\n")


RANK, ALPHA = 4, 8


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


def ultravox(text, **projector):
    tokenizer = tokenizer_of(chat("<|audio|>"), [])
    model = ultravox_reference.Model(text(**sizes(tokenizer)), ear(d_model=24, encoder_layers=2, encoder_attention_heads=3,
                                                                   encoder_ffn_dim=40), **projector)
    return Ultravox(model, tokenizer, T.WhisperFeatureExtractor(feature_size=16, chunk_length=1), "<|audio|>")


def omni(kind, text, audio, vision, marks):
    """marks: of a picture and a sound, each its token, the first and the last of those around it."""
    (image, image_start, image_end), (sound, sound_start, sound_end) = marks
    names = [image, image_start, image_end, "<|VIDEO|>", sound, sound_start, sound_end]
    template = chat_of_both(image_start + image + image_end, sound_start + sound + sound_end, image_start + "<|VIDEO|>" + image_end)
    tokenizer = tokenizer_of(template, names, image_token=image,
                             video_token="<|VIDEO|>", audio_token=sound, vision_bos_token=image_start, vision_eos_token=image_end,
                             audio_bos_token=sound_start, audio_eos_token=sound_end)
    ids = dict(zip(["image", "vision_start", "vision_end", "video", "audio", "audio_start", "audio_end"],
                   [tokenizer.convert_tokens_to_ids(name) for name in names]))
    kinds = {"Qwen2_5Omni": Qwen25Omni, "Qwen3OmniMoe": Qwen3Omni}
    end = "token_index" if kind == "Qwen2_5Omni" else "token_id"
    config = getattr(T, kind + "ThinkerConfig")(
        text_config=sizes(tokenizer, **text), audio_config=ear(d_model=24, encoder_layers=2, encoder_attention_heads=3,
                                                               encoder_ffn_dim=40, output_dim=32, **audio), vision_config=vision,
        **{f"{key}_{end}": ids[key] for key in ("image", "video", "audio")},
        **{f"{key}_token_id": ids[key] for key in ("vision_start", "vision_end", "audio_start", "audio_end")}, tie_word_embeddings=False)
    extractor = T.WhisperFeatureExtractor(feature_size=16, chunk_length=4)
    one = kinds[kind](getattr(T, kind + "ThinkerForConditionalGeneration")(config), tokenizer, extractor, sound)
    one.images = T.Qwen2VLImageProcessor(patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=256, max_pixels=4096)
    return one


def qwen2_5_omni():
    return omni("Qwen2_5Omni", mrope(), dict(n_window=10), eye(depth=3, window_size=16, fullatt_block_indexes=[1]),
                [("<|IMAGE|>", "<|vision_bos|>", "<|vision_eos|>"), ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")])


def qwen3_omni():
    text = mrope(mrope_interleaved=True) | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, decoder_sparse_step=1)
    return omni("Qwen3OmniMoe", text, dict(n_window=50, n_window_infer=200, downsample_hidden_size=6, conv_chunksize=500),
                eye(depth=3, num_position_embeddings=25, deepstack_visual_indexes=[0, 2]),
                [("<|image_pad|>", "<|vision_start|>", "<|vision_end|>"), ("<|audio_pad|>", "<|audio_start|>", "<|audio_end|>")])


def granite_speech():
    tokenizer = tokenizer_of(chat("<|audio|>"), ["<|audio|>"], audio_token="<|audio|>")
    text = T.GraniteConfig(**sizes(tokenizer, embedding_multiplier=2.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=2.0))
    config = T.GraniteSpeechConfig(
        text_config=text.to_dict(), audio_token_index=tokenizer.convert_tokens_to_ids("<|audio|>"), window_size=6, downsample_rate=2,
        encoder_config=dict(input_dim=16, num_layers=3, hidden_dim=24, num_heads=3, output_dim=10, context_size=20, max_pos_emb=32,
                            conv_kernel_size=5, feedforward_mult=2),
        projector_config=dict(model_type="blip_2_qformer", hidden_size=20, num_hidden_layers=2, num_attention_heads=2,
                              intermediate_size=28, encoder_hidden_size=24, cross_attention_frequency=1), tie_word_embeddings=False)
    return Granite(T.GraniteSpeechForConditionalGeneration(config), tokenizer, None, "<|audio|>")


def gemma4():
    marks = ["<|image>", "<|image|>", "<image|>", "<|audio>", "<|audio|>", "<audio|>", "<|video|>"]
    tokenizer = tokenizer_of(chat_of_both("<|image|>", "<|audio|>"), marks, image_token=marks[1], boi_token=marks[0], eoi_token=marks[2],
                             audio_token=marks[4], boa_token=marks[3], eoa_token=marks[5])
    text = sizes(tokenizer, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2, hidden_size_per_layer_input=6,
                 vocab_size_per_layer_input=len(tokenizer), num_kv_shared_layers=0, enable_moe_block=False, use_double_wide_mlp=False,
                 global_head_dim=16)
    ids = {f"{key}_token_id": tokenizer.convert_tokens_to_ids(token) for key, token in [
        ("image", marks[1]), ("boi", marks[0]), ("eoi", marks[2]), ("audio", marks[4]), ("boa", marks[3]), ("eoa", marks[5]),
        ("video", marks[6])]}
    config = T.Gemma4Config(
        text_config=T.Gemma4TextConfig(**text),
        vision_config=dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3,
                           head_dim=8, patch_size=4, pooling_kernel_size=3, position_embedding_size=40, use_clipped_linears=True),
        audio_config=dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=3, subsampling_conv_channels=[16, 6],
                          conv_kernel_size=3, attention_chunk_size=4, attention_context_left=5, attention_logit_cap=2.0,
                          gradient_clipping=3.0, output_proj_dims=20, residual_weight=0.4, rms_norm_eps=1e-5), **ids)
    extractor = T.Gemma4AudioFeatureExtractor(feature_size=16)
    one = Gemma4(T.Gemma4ForConditionalGeneration(config), tokenizer, extractor, marks[4])
    one.processor = T.Gemma4Processor(
        extractor, T.Gemma4ImageProcessor(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70), tokenizer, T.Gemma4VideoProcessor(),
        image_seq_length=70, chat_template=tokenizer.chat_template)
    return one


def gemma3n():
    """Without weights of its tower that sees, a MobileNet of timm. Marks of pictures and sounds behind the words have embeddings apart."""
    from transformers.models.gemma3n import modeling_gemma3n
    made = modeling_gemma3n.AutoModel.from_config
    modeling_gemma3n.AutoModel.from_config = lambda config, *rest, **more: torch.nn.Module() if "vision" in config.model_type else made(
        config, *rest, **more)
    tokenizer = tokenizer_of(chat("<audio_soft_token>"), ["<start_of_image>", "<start_of_audio>"], boi_token="<start_of_image>",
                             boa_token="<start_of_audio>")
    seen, heard = len(tokenizer), len(tokenizer) + 2
    tokenizer.add_special_tokens({"extra_special_tokens": ["<end_of_image>", "<image_soft_token>", "<end_of_audio>", "<audio_soft_token>"]},
                                 replace_extra_special_tokens=False)
    for name, token in [("eoi_token", "<end_of_image>"), ("image_token", "<image_soft_token>"), ("eoa_token", "<end_of_audio>"),
                        ("audio_token", "<audio_soft_token>")]:
        setattr(tokenizer, name, token)
    text = sizes(tokenizer, vocab_size=heard + 4, sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2,
                 hidden_size_per_layer_input=6, vocab_size_per_layer_input=seen, num_kv_shared_layers=2, laurel_rank=6, tie_word_embeddings=True,
                 activation_sparsity_pattern=[0.5, 0.0, 0.0, 0.0], altup_num_inputs=3, intermediate_size=[48] * 4)
    config = T.Gemma3nConfig(
        text_config=T.Gemma3nTextConfig(**text), vision_config=dict(hidden_size=8, vocab_size=2, vocab_offset=seen),
        audio_config=dict(vocab_size=4, vocab_offset=heard, input_feat_size=18, hidden_size=24, conf_num_attention_heads=3,
                          conf_num_hidden_layers=3, conf_conv_kernel_size=3, conf_attention_chunk_size=3, conf_attention_context_left=5,
                          conf_attention_logit_cap=2.0, gradient_clipping=3.0, conf_residual_weight=0.4, rms_norm_eps=1e-5,
                          sscp_conv_channel_size=[10, 6]),
        audio_soft_tokens_per_image=20, boi_token_id=2, boa_token_id=3, eoi_token_id=seen, image_token_id=seen + 1, eoa_token_id=heard,
        audio_token_id=heard + 1)
    return Gemma3n(T.Gemma3nForConditionalGeneration(config), tokenizer, T.Gemma3nAudioFeatureExtractor(feature_size=18),
                   "<audio_soft_token>")


MODELS = {"gemma3n": gemma3n, "gemma4": gemma4, "granite_speech": granite_speech, "qwen2_audio": qwen2_audio,
          "voxtral": voxtral, "qwen3_asr": qwen3_asr,
          "ultravox": lambda: ultravox(T.LlamaConfig, projector_ln_mid=True), "ultravox_post": lambda: ultravox(T.Qwen3Config),
          "qwen2_5_omni": qwen2_5_omni, "qwen3_omni": qwen3_omni}


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
    if name.endswith("omni") or name == "gemma4":  # they see, too
        long = 1 if name == "qwen3_omni" else 0  # chunks of several sounds are filled up to the longest
        a, b = Sound(0.61 + long, 16000, 1, "WAV", "PCM_16", 1), Sound(0.93 + long, 22050, 2, "MP3", "MPEG_LAYER_III", 2)
        c = Sound(2.37, 8000, 1, "FLAC", "PCM_16", 3)
        yield [("user", [Sound(0.44, 16000, 1, "WAV", "PCM_16", 5), "What is in this picture?"])]
        yield [("user", ["Compare the two pictures. ", b, " and ", picture(37, 52, 1), c, " How many red circles are there?"])]
        yield [("user", [picture(24, 24, 3), c, "What is this?"]), ("assistant", ["The first one shows a cat."]), ("user", ["How many?", a, b])]
        yield [("user", [picture(90, 40, 2), "What is this?"])]
        return
    if name == "granite_speech":  # without a sound there is no adapter
        yield [("user", ["Compare the two pictures. How many red circles are there? What is in this picture?"])]
    if name == "gemma3n":  # hears at most three seconds here
        a, b = Sound(0.61, 16000, 1, "WAV", "PCM_16", 1), Sound(0.93, 22050, 2, "MP3", "MPEG_LAYER_III", 2)
        c = Sound(2.37, 8000, 1, "FLAC", "PCM_16", 3)
        yield [("user", [a, "What is in this picture?"])]
        yield [("user", ["Compare the two pictures. ", b, " and ", c, " How many red circles are there?"])]
        yield [("user", [c, "What is this?"]), ("assistant", ["The first one shows a cat."]), ("user", ["How many?", a, b])]
        return
    more = name == "voxtral" or name.startswith("ultravox")  # hear more than a window
    a, b = Sound(0.6, 16000, 1, "WAV", "PCM_16", 1), Sound(0.93, 22050, 2, "MP3", "MPEG_LAYER_III", 2)
    c = Sound(1.2 if more else 0.31, 8000, 1, "FLAC", "PCM_16", 3)
    yield [("user", [a, "What is in this picture?"])]
    yield [("user", ["Compare the two pictures. ", b, " and ", c, " How many red circles are there?"])]
    yield [("user", [c, "What is this?"]), ("assistant", ["The first one shows a cat."]), ("user", ["How many?", a, b])]


def write_videos(name, one, where):
    size = dict(shortest_edge=512, longest_edge=6144)
    first, second, third = watched_talks()
    second = [("user", [*second[0][1], Sound(0.61, 16000, 1, "WAV", "PCM_16", 1), "What is this?"])]
    chosen = dict(size=size, do_sample_frames=True, fps=1 if name == "qwen2_5_omni" else 2)
    golden = []
    for talk, settings in [(first, dict(size=size)), (second, chosen), (third, dict(size=size))]:
        def messages(of_sound, of_picture, of_video):
            def part_of(part):
                return of_sound(part) if isinstance(part, Sound) else of_picture(part) if isinstance(part, Image.Image) else \
                    of_video(*part) if isinstance(part, tuple) else {"type": "text", "text": part}
            return [{"role": role, "content": [part_of(part) for part in parts]} for role, parts in talk]
        text = one.tokenizer.apply_chat_template(
            messages(lambda _: {"type": "audio"}, lambda _: {"type": "image"}, lambda *_: {"type": "video"}), tokenize=False,
            add_generation_prompt=True)
        inputs = one.watched(text, [part for _, parts in talk for part in parts], settings)
        with torch.no_grad():
            logits, made = one.logits(inputs), one.reply(inputs)
        prompt = inputs["input_ids"][0].tolist()
        golden.append({"messages": messages(lambda sound: sound.part(), lambda image: {
            "type": "image_url", "image_url": {"url": data_url(image)}}, video_part), "mm_processor_kwargs": settings, "prompt": prompt,
                       "logprobs": [round(x, 5) for x in torch.log_softmax(logits, -1).tolist()], "reply": made})
        print(name, "videos", len(prompt), inputs["video_grid_thw"].tolist(), inputs["video_second_per_grid"], made)
    (where / "videos.json").write_text(json.dumps(golden) + "\n")


def write(name):
    torch.manual_seed(sum(name.encode()))
    one = MODELS[name]()
    one.model = one.model.float().eval()
    shake(one.model)
    if hasattr(one, "prepare"):
        one.prepare()
    where = OUT / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    one.save(where)
    (where / "generation_config.json").unlink(missing_ok=True)
    golden, towers = [], {}
    for talk in talks(name):
        def messages(of_sound, of_picture):
            def part_of(part):
                return of_sound(part) if isinstance(part, Sound) else of_picture(part) if isinstance(part, Image.Image) else \
                    {"type": "text", "text": part}
            return [{"role": role, "content": [part_of(part) for part in parts]} for role, parts in talk]
        sounds = [part for _, parts in talk for part in parts if isinstance(part, Sound)]
        pictures = [part for _, parts in talk for part in parts if isinstance(part, Image.Image)]
        text = one.tokenizer.apply_chat_template(messages(lambda _: {"type": "audio"}, lambda _: {"type": "image"}), tokenize=False,
                                                 add_generation_prompt=True)
        inputs = one.inputs(text, [sound.samples for sound in sounds], *([pictures] if pictures else []))
        with torch.no_grad():
            logits, made = one.logits(inputs), one.reply(inputs)
            for sound in sounds:
                towers.setdefault(sound.file, one.rows(sound.samples))
        prompt = inputs["input_ids"][0].tolist()
        golden.append({"messages": messages(lambda sound: sound.part(), lambda image: {
            "type": "image_url", "image_url": {"url": data_url(image)}}), "prompt": prompt,
                       "logprobs": [round(x, 5) for x in torch.log_softmax(logits, -1).tolist()],
                       "reply": made})
        print(name, len(prompt), golden[-1]["reply"])
    (where / "golden.json").write_text(json.dumps(golden) + "\n")
    if isinstance(one, Omni):
        write_videos(name, one, where)
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
