#!/usr/bin/env python3
"""Writes tests/golden/whisper/<name>/: tiny random Whispers, whole, and what transformers writes of sounds.

  config.json, model.safetensors, tokenizer.json, preprocessor_config.json, ...   the Hugging Face directory, F32
  golden.json   {"sounds": [base64 of a file], "cases": [{"sound": index, "asked": {"language", "task", "return_timestamps", ...},
                "tokens": ids, "segments": [{"start", "end", "tokens"}] of long sounds}]}
  tower.bin     int32 {positions, frames, bands, n_tokens, dim}, the spectrum [frames, bands], the encoder's rows [n_tokens, dim]
  logits.bin    int32 {n_prompt, n_decoded, vocab, rows, dim}, ids of both, the encoder's rows, logits [n_prompt + n_decoded, vocab]

Windows have a second. Needs torch, transformers, tokenizers, safetensors, soundfile and soxr. Usage: make_tiny_whisper.py [name...]
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
                  prev_sot_token_id=ids("<|startofprev|>"), is_multilingual=multilingual, return_timestamps=False)
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


if __name__ == "__main__":
    for wanted in sys.argv[1:] or MODELS:
        write(wanted)
