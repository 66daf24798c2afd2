#!/usr/bin/env python3
"""Writes tests/golden/whisper/<name>/: tiny random Whispers, whole, and what transformers writes of sounds.

  config.json, model.safetensors, tokenizer.json, preprocessor_config.json, ...   the Hugging Face directory, F32
  golden.json   {"sounds": [base64 of a file], "cases": [{"sound": index, "asked": {"language", "task", "return_timestamps", ...},
                "tokens": ids, "segments": [{"start", "end", "tokens"}] of long sounds}]}
  words.json    [{"sound": index, "asked": {...}, "segments": [{"tokens", "times": ends of the tokens in seconds, "words": [[text, start,
                end]]}]}]: what return_token_timestamps gives, with heads that generation_config.json names
  tower.bin     int32 {positions, frames, bands, n_tokens, dim}, the spectrum [frames, bands], the encoder's rows [n_tokens, dim]
  logits.bin    int32 {n_prompt, n_decoded, vocab, rows, dim}, ids of both, the encoder's rows, logits [n_prompt + n_decoded, vocab]

Windows have a second. Needs torch, transformers, tokenizers, safetensors, soundfile and soxr. Usage: make_tiny_whisper.py [--words] [name...]
--words: words.json only, of the models that are there.
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
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from make_sound_vectors import loaded, signal
from make_tiny_seeing import WORDS, shake

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "whisper"
POSITIONS = 50
LANGUAGES = ["en", "de", "fr"]


def tokenizer_of(multilingual):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([WORDS], trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    marks = ["<|endoftext|>", "<|startoftranscript|>", *[f"<|{code}|>" for code in (LANGUAGES if multilingual else ["en"])],
             "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    tokenizer.add_special_tokens(marks)
    tokenizer.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>", special=False) for i in range(POSITIONS + 1)])
    return T.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>", eos_token="<|endoftext|>",
                                     pad_token="<|endoftext|>", unk_token="<|endoftext|>")


def whisper(multilingual, bands):
    tokenizer = tokenizer_of(multilingual)
    ids = tokenizer.convert_tokens_to_ids
    eos, start, silent = ids(["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"])
    model = T.WhisperForConditionalGeneration(T.WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=bands, d_model=24, encoder_layers=2, encoder_attention_heads=3, encoder_ffn_dim=40,
        decoder_layers=3, decoder_attention_heads=3, decoder_ffn_dim=44, max_source_positions=POSITIONS, max_target_positions=40,
        pad_token_id=eos, bos_token_id=eos, eos_token_id=eos, decoder_start_token_id=start))
    config = dict(pad_token_id=eos, bos_token_id=eos, eos_token_id=eos, decoder_start_token_id=start, max_length=40,
                  suppress_tokens=sorted([3, 7, *ids(["<|startoftranscript|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>"]),
                                          *ids(["<|translate|>", "<|transcribe|>"])]),
                  begin_suppress_tokens=[ids("Ġ"), eos], no_timestamps_token_id=silent, max_initial_timestamp_index=10,
                  prev_sot_token_id=ids("<|startofprev|>"), is_multilingual=multilingual, return_timestamps=False,
                  alignment_heads=[[1, 0], [2, 1], [2, 2]])
    if multilingual:
        config |= dict(lang_to_id={f"<|{code}|>": ids(f"<|{code}|>") for code in LANGUAGES},
                       task_to_id={task: ids(f"<|{task}|>") for task in ["transcribe", "translate"]})
    model.generation_config = T.GenerationConfig(**config)
    return model, tokenizer, T.WhisperFeatureExtractor(feature_size=bands, chunk_length=1)


SEEDS = {"multilingual": 1303, "english": 3}
MODELS = {"multilingual": lambda: whisper(True, 16), "english": lambda: whisper(False, 20)}


def sound(seconds, rate, channels, kind, subtype, seed):
    file = io.BytesIO()
    soundfile.write(file, signal(seconds, rate, channels, seed), rate, format=kind, subtype=subtype)
    return file.getvalue()


SOUNDS = [sound(0.7, 16000, 1, "WAV", "PCM_16", 1), sound(1.0, 8000, 1, "FLAC", "PCM_16", 2),
          sound(4.37, 16000, 2, "MP3", "MPEG_LAYER_III", 3)]


def cases(multilingual):
    """(sound, arguments of generate())."""
    given = [dict(language="de"), dict(language="fr", task="translate"), dict(task="transcribe")] if multilingual else [{}]
    for number in (0, 1):
        for asked in given:
            yield number, asked
            yield number, asked | dict(return_timestamps=True)
    for asked in given:
        yield 2, asked | dict(return_timestamps=True)
        yield 2, asked | dict(return_timestamps=True, condition_on_prev_tokens=True)
    yield 2, given[0] | dict(return_timestamps=True, temperature=(0.0,), logprob_threshold=-1.0, no_speech_threshold=0.002,
                             compression_ratio_threshold=1.35)


def run(model, extractor, samples, asked):
    calls = []

    def look(progress):
        """generate() never ends where a window ends with <|0.00|> twice."""
        calls.append(progress)
        assert len(calls) < 60, "another seed is needed"
    long = len(samples) > extractor.n_samples
    features = extractor(samples, sampling_rate=16000, return_tensors="pt", **(dict(truncation=False, padding="longest") if long else {}))
    made = model.generate(features["input_features"], do_sample=False, return_segments=True, monitor_progress=look,
                          **asked)
    segments = [{"start": round(float(one["start"]), 4), "end": round(float(one["end"]), 4), "tokens": one["tokens"].tolist()}
                for one in made["segments"][0]]
    return {"tokens": [token for one in segments for token in one["tokens"]], "segments": segments}


def write(name):
    torch.manual_seed(SEEDS[name])
    model, tokenizer, extractor = MODELS[name]()
    model = model.float().eval()
    shake(model)
    where = OUT / name
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    model.save_pretrained(where)
    tokenizer.save_pretrained(where)
    extractor.save_pretrained(where)
    golden = {"sounds": [base64.b64encode(file).decode() for file in SOUNDS], "cases": []}
    with torch.no_grad():
        for number, asked in cases(name == "multilingual"):
            samples = loaded(io.BytesIO(SOUNDS[number]))[0]
            golden["cases"].append({"sound": number, "asked": asked} | run(model, extractor, samples, asked))
            print(name, number, asked, [(one["start"], one["end"], one["tokens"]) for one in golden["cases"][-1]["segments"]])
        samples = loaded(io.BytesIO(SOUNDS[0]))[0]
        spectrum = extractor(samples, sampling_rate=16000, return_tensors="pt")["input_features"]
        rows = model.model.encoder(spectrum).last_hidden_state
        prompt, decoded = [model.config.decoder_start_token_id, 70, 80, 90, 12], []
        while len(decoded) < 6:
            logits = model(encoder_outputs=(rows,), decoder_input_ids=torch.tensor([prompt + decoded])).logits[0]
            decoded.append(int(logits[-1].argmax()))
        logits = model(encoder_outputs=(rows,), decoder_input_ids=torch.tensor([prompt + decoded])).logits[0]
    (where / "golden.json").write_text(json.dumps(golden) + "\n")
    frames = spectrum[0].T.contiguous().numpy().astype(numpy.float32)
    rows = rows[0].contiguous().numpy().astype(numpy.float32)
    (where / "tower.bin").write_bytes(struct.pack("<5i", POSITIONS, *frames.shape, *rows.shape) + frames.tobytes() + rows.tobytes())
    (where / "logits.bin").write_bytes(
        struct.pack("<5i", len(prompt), len(decoded), logits.shape[1], *rows.shape) +
        numpy.array(prompt + decoded, numpy.int32).tobytes() + rows.tobytes() + logits.contiguous().numpy().astype(numpy.float32).tobytes())
    print(name, decoded, sum(path.stat().st_size for path in where.iterdir()) // 1024, "KiB")


class Plain:
    """A tokenizer as WhisperTokenizer's functions for words want it."""
    def __init__(self, tokenizer):
        self.tokenizer, self.eos_token_id, self.language = tokenizer, tokenizer.eos_token_id, None

    def decode(self, tokens, decode_with_timestamps=False):
        return self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def write_words(name):
    from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words
    where = OUT / name
    model = T.WhisperForConditionalGeneration.from_pretrained(where, attn_implementation="eager").float().eval()
    tokenizer = Plain(T.PreTrainedTokenizerFast.from_pretrained(where))
    extractor = T.WhisperFeatureExtractor.from_pretrained(where)
    first = model.generation_config.no_timestamps_token_id + 1
    found = []
    for number, asked in cases(name == "multilingual"):
        if not asked.get("return_timestamps") or "temperature" in asked:
            continue
        samples = loaded(io.BytesIO(SOUNDS[number]))[0]
        long = len(samples) > extractor.n_samples
        features = extractor(samples, sampling_rate=16000, return_tensors="pt", return_attention_mask=True,
                             **(dict(truncation=False, padding="longest") if long else {}))
        with torch.no_grad():
            made = model.generate(features["input_features"], attention_mask=features["attention_mask"], do_sample=False,
                                  return_segments=True, return_token_timestamps=True, **asked)
        segments, before = [], 0.0
        for one in made["segments"][0]:
            tokens, times = one["tokens"].tolist(), [round(float(time), 4) for time in one["token_timestamps"]]
            text = [(token, (before if i == 0 else times[i - 1], times[i])) for i, token in enumerate(tokens)
                    if token < tokenizer.eos_token_id]
            words, _, indices = _combine_tokens_into_words(tokenizer, [token for token, _ in text], asked.get("language", "en"))
            segments.append({"tokens": tokens, "times": times, "start": round(float(one["start"]), 4), "words": [
                [word, text[index[0]][1][0], text[index[-1]][1][1]] for word, index in zip(words, indices)]})
            before = times[-1]
        found.append({"sound": number, "asked": asked, "segments": segments})
        print(name, number, asked, [one["words"] for one in segments])
    (where / "words.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    for wanted in [name for name in sys.argv[1:] if name != "--words"] or MODELS:
        if "--words" not in sys.argv:
            write(wanted)
        write_words(wanted)
