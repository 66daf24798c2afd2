#!/usr/bin/env python3
"""Writes tests/golden/sounds/: sound files of all kinds with what librosa's way of loading makes of them, and features of transformers.

  files/NAME          a tenth or a fifth of a second each
  decode.json         {NAME: {"rate", "channels", "frames", "samples": at 16 kHz}}
  decode/NAME.f32     every third of these samples
  signal.i16          samples at 16 kHz, times 32768
  features.json       {NAME: {"config": of config.json, "extractor": preprocessor_config.json, "n_samples": of signal.i16 that are
                      read, "shape": [blocks, bands, frames]}}
  features/NAME.f32   features in NumPy's double precision, [blocks, frames, bands]

Needs transformers, soundfile and soxr. Usage: make_sound_vectors.py
"""
import json
import pathlib

import numpy
import soundfile
import soxr
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "sounds"
RATE = 16000
FILES = {  # (rate, channels, format, subtype)
    "pcm16_16k.wav": (16000, 1, "WAV", "PCM_16"),
    "pcm8_8k.wav": (8000, 1, "WAV", "PCM_U8"),
    "pcm24_44k_stereo.wav": (44100, 2, "WAV", "PCM_24"),
    "float_48k_stereo.wav": (48000, 2, "WAV", "FLOAT"),
    "ulaw_8k.wav": (8000, 1, "WAV", "ULAW"),
    "adpcm_22k.wav": (22050, 1, "WAV", "IMA_ADPCM"),
    "extensible_24k_3.wav": (24000, 3, "WAVEX", "PCM_16"),
    "flac16_22k_stereo.flac": (22050, 2, "FLAC", "PCM_16"),
    "flac24_96k.flac": (96000, 1, "FLAC", "PCM_24"),
    "vorbis_24k.ogg": (24000, 1, "OGG", "VORBIS"),
    "opus_48k_stereo.ogg": (48000, 2, "OGG", "OPUS"),
    "mp3_44k_stereo.mp3": (44100, 2, "MP3", "MPEG_LAYER_III"),
    "mp3_16k.mp3": (16000, 1, "MP3", "MPEG_LAYER_III"),
}


def signal(seconds, rate, channels=1, seed=1):
    """Something like a voice: harmonics that rise, an envelope, a little noise, and silence at the end."""
    t = numpy.arange(int(seconds * rate)) / rate
    pitch = 2 * numpy.pi * (120 * t + 60 * t * t)
    voice = sum(numpy.sin(k * pitch + k) / k for k in range(1, 20))
    envelope = numpy.clip(numpy.sin(2 * numpy.pi * 3 * t) ** 2 * 0.3, 0, 1) * (t < 0.9 * seconds)
    noise = numpy.random.RandomState(seed).randn(channels, len(t)) * 0.003 * (t < 0.8 * seconds)
    return numpy.stack([envelope * voice * (1 - 0.3 * c) + noise[c] for c in range(channels)], -1).clip(-1, 1)


def loaded(path):
    """Returns what librosa.load(path, sr=16000) does: the mean of channels, resampled by soxr_hq."""
    data, rate = soundfile.read(path, dtype="float32")
    mono = data.mean(-1) if data.ndim > 1 else data
    wanted = -(-len(mono) * RATE // rate)
    made = mono if rate == RATE else soxr.resample(mono, rate, RATE, quality="soxr_hq")
    return numpy.pad(made, (0, max(0, wanted - len(made))))[:wanted].astype(numpy.float32), rate, data.shape


def write_files():
    cases = {}
    (OUT / "files").mkdir(parents=True, exist_ok=True)
    (OUT / "decode").mkdir(exist_ok=True)
    for name, (rate, channels, kind, subtype) in FILES.items():
        path = OUT / "files" / name
        soundfile.write(path, signal(0.1 if kind in ("WAV", "FLAC") else 0.2, rate, channels), rate, format=kind, subtype=subtype)
        made, rate, shape = loaded(path)
        (OUT / "decode" / (name + ".f32")).write_bytes(made[::3].tobytes())
        cases[name] = {"rate": rate, "channels": channels, "frames": shape[0], "samples": len(made)}
        print(name, path.stat().st_size, cases[name])
    (OUT / "decode.json").write_text(json.dumps(cases, indent=1) + "\n")


def whisper(samples, **settings):
    """Features of whole windows in double precision, and how far transformers with torch is from them."""
    extractor = transformers.WhisperFeatureExtractor(chunk_length=1, **settings)
    padded = numpy.pad(samples, (0, -len(samples) % extractor.n_samples)).astype(numpy.float32)
    exact = extractor._np_extract_fbank_features(padded[None], "cpu")[0]
    other = extractor._torch_extract_fbank_features(padded[None], "cpu")[0]
    print("whisper", exact.shape, "torch is off by", abs(exact - other).max())
    blocks = exact.reshape(len(exact), -1, extractor.nb_max_frames).transpose(1, 2, 0)
    return extractor, blocks


def granite_spectrum(samples, bands):
    """What GraniteSpeechFeatureExtractor makes by torchaudio, in double precision: [frames / 2, 2 bands]."""
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function
    filters = mel_filter_bank(257, bands, 0.0, RATE / 2, RATE, norm=None, mel_scale="htk")
    window = numpy.pad(window_function(400, "hann"), 56)
    made = spectrogram(samples.astype(numpy.float64), window, frame_length=512, hop_length=160, power=2.0, mel_filters=filters,
                       mel_floor=1e-10, log_mel="log10").T
    made = numpy.maximum(made, made.max() - 8) / 4 + 1
    return made[:len(made) // 2 * 2].reshape(-1, 2 * bands)


def in_blocks(spectrum, size):
    """[bands, frames] as [blocks, size, bands], with zeros behind the last frame."""
    spectrum = numpy.pad(spectrum, ((0, 0), (0, -spectrum.shape[1] % size)))
    return spectrum.reshape(len(spectrum), -1, size).transpose(1, 2, 0)


def add_pieces(add, samples):
    """What towers hear in pieces as long as the sound is: blocks here are filled up with zeros, views are not."""
    def exact(extractor, part, padded):
        return extractor._np_extract_fbank_features(numpy.pad(part, (0, padded - len(part)))[None].astype(numpy.float32), "cpu")[0]

    extractor = transformers.WhisperFeatureExtractor(feature_size=64, chunk_length=1)
    n = 20777
    spectrum = exact(extractor, samples[:n], -(-n // 160) * 160)
    add("ultravox", {"model_type": "ultravox", "stack_factor": 8, "audio_config": {"max_source_positions": 50}}, n, extractor,
        in_blocks(spectrum, 100))
    extractor = transformers.WhisperFeatureExtractor(feature_size=64, chunk_length=2)
    spectrum = exact(extractor, samples[:n], 32000)[:, :-(-n // 160)]
    add("qwen2_5_omni", {"model_type": "qwen2_5_omni_thinker", "audio_config": {"n_window": 30, "max_source_positions": 1500}}, n,
        extractor, in_blocks(spectrum, 60))
    cases_of_granite = granite_spectrum(samples[:n], 32)
    settings = {"feature_extractor_type": "GraniteSpeechFeatureExtractor", "sampling_rate": RATE, "melspec_kwargs": {
        "hop_length": 160, "n_fft": 512, "n_mels": 32, "sample_rate": RATE, "win_length": 400}}
    add("granite_speech", {"model_type": "granite_speech", "encoder_config": {"input_dim": 64}}, n, settings, cases_of_granite[None])
    ear = {"model_type": "qwen3_omni_moe_thinker", "audio_config": {"n_window": 50, "n_window_infer": 800}}
    for name, n, size in [("qwen3_omni", 17003, 200), ("qwen3_omni_short", 5001, 31)]:
        add(name, ear, n, extractor, in_blocks(exact(extractor, samples[:n], n), size))


def add_gemma(add, samples):
    n = 20777
    for name, more in [("gemma4", {}), ("gemma4_emphasis", dict(preemphasis=0.9, fft_overdrive=True, input_scale_factor=0.5)),
                       ("gemma4_neighbours", dict(preemphasis=0.9, preemphasis_htk_flavor=False, frame_length_ms=25.0, min_frequency=60.0))]:
        extractor = transformers.Gemma4AudioFeatureExtractor(feature_size=32, **more)
        exact, mask = extractor._extract_spectrogram(samples[:n].astype(numpy.float64), numpy.ones(n, numpy.int32))
        other = extractor([samples[:n]], sampling_rate=RATE, return_tensors="np")
        kept = other["input_features"][0][other["input_features_mask"][0]]
        print(name, exact[mask].shape, "single precision is off by", abs(exact[mask] - kept).max())
        settings = json.loads(extractor.to_json_string()) | {key: value for key, value in more.items() if key.endswith("_ms")}
        add(name, {"model_type": "gemma4", "audio_config": {"subsampling_conv_channels": [32, 8]}}, n, settings, exact[mask][None])


def add_gemma3n(add, samples):
    n = 20777
    extractor = transformers.Gemma3nAudioFeatureExtractor(feature_size=32)
    padded = numpy.pad(samples[:n].astype(numpy.float64), (0, -n % 128))
    exact, mask = extractor._extract_spectrogram(padded, (numpy.arange(len(padded)) < n).astype(numpy.int32))
    assert mask.all()
    other = extractor([samples[:n]], sampling_rate=RATE, return_tensors="np")["input_features"][0]
    print("gemma3n", exact.shape, "single precision is off by", abs(exact - other).max())
    add("gemma3n", {"model_type": "gemma3n", "audio_soft_tokens_per_image": 188, "audio_config": {"input_feat_size": 32}}, n, extractor,
        exact[None])


def write_features():
    samples = numpy.round(signal(1.3, RATE)[:, 0] * 32000).astype(numpy.int16)
    (OUT / "signal.i16").write_bytes(samples.tobytes())
    samples = samples.astype(numpy.float32) / 32768
    (OUT / "features").mkdir(exist_ok=True)
    cases = {}

    def add(name, config, n_samples, extractor, blocks):
        settings = extractor if isinstance(extractor, dict) else json.loads(extractor.to_json_string())
        cases[name] = {"config": config, "extractor": settings, "n_samples": n_samples, "shape": blocks.shape}
        (OUT / "features" / (name + ".f32")).write_bytes(blocks.astype(numpy.float32).tobytes())

    hears = {"audio_config": {"max_source_positions": 50, "hidden_size": 8, "intermediate_size": 16}}
    for name, n, bands in [("qwen2_audio", 10001, 80), ("qwen2_audio_short", 500, 128)]:
        add(name, {"model_type": "qwen2_audio"} | hears, n, *whisper(samples[:n], feature_size=bands))
    add("voxtral", {"model_type": "voxtral"} | hears, len(samples), *whisper(samples, feature_size=64))
    # Qwen3-ASR: as long as the sound, then zeros to whole chunks of 100 frames
    extractor = transformers.Qwen3ASRFeatureExtractor(feature_size=64)
    exact = transformers.WhisperFeatureExtractor(feature_size=64)._np_extract_fbank_features(samples[None, :17003], "cpu")
    blocks = numpy.pad(exact, [(0, 0), (0, 0), (0, -exact.shape[2] % 100)]).transpose(0, 2, 1)
    other = extractor([samples[:17003]], sampling_rate=RATE, padding=True)["input_features"].numpy().transpose(0, 2, 1)
    print("qwen3_asr", blocks.shape, "torch is off by", abs(blocks - other).max())
    add("qwen3_asr", {"model_type": "qwen3_asr", "audio_config": {"n_window": 50, "n_window_infer": 800}}, 17003, extractor, blocks)
    add_pieces(add, samples)
    add_gemma(add, samples)
    add_gemma3n(add, samples)
    (OUT / "features.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    write_files()
    write_features()
