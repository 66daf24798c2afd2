#!/usr/bin/env python3
"""Speed of pictures, as JSON: decoding and resizing beside Pillow, images a second of towers, the first token of a picture that
was seen before.

    bench/pictures.py [--build build/release] [--threads 2] [--rounds 9] [decode] [towers] [first-token]     (default: all)

decode       JPEG, PNG and WebP of 1920 x 1080, resized to 1024 x 576 (bicubic), one thread; Pillow does the same in this process,
             in turns with ours. Ratios are Pillow's time by ours.
towers       SigLIP so400m at 384, Qwen3-VL at a megapixel, Pixtral at 1024; random BF16 weights; processor and tower.
first-token  A server with a small text model and a small tower: a text alone, a picture that is new, and one that was
             seen before with as many tokens; all behind prompts that are in the prefix cache but for their last words. Medians
             seen by the client. ratio: seen before by text alone.

Needs Pillow and numpy; towers and first-token also torch and transformers, which write the configurations. Run it on a machine
that does nothing else.
"""
import argparse
import base64
import contextlib
import http.client
import io
import json
import os
import pathlib
import statistics
import struct
import subprocess
import tempfile
import time

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
import numpy
import served
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent


def picture(width, height, seed=1):
    """Ramps, stripes and noise."""
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.RandomState(seed).randint(0, 40, (height, width, 3))
    planes = [x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), 127 + 120 * numpy.sin((x + seed * y) / 37)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, -1) * 0.8 + noise, 0, 255).astype(numpy.uint8))


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def run(args, *command):
    done = subprocess.run([args.build / "bench" / "bench_pictures", *map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr[-1000:]}")
    return json.loads(done.stdout)


def median_ms(rounds, work):
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(taken)


def decode(args):
    image, result = picture(1920, 1080), {}
    for kind, options in [("JPEG", dict(quality=90)), ("PNG", {}), ("WEBP", dict(quality=80))]:
        file = saved(image, kind, **options)
        with tempfile.NamedTemporaryFile() as stored:
            stored.write(file)
            stored.flush()
            rows = []
            for _ in range(3):  # in turns
                ours = run(args, "decode", stored.name, 1024, 576, args.rounds)
                opened = Image.open(io.BytesIO(file)).convert("RGB")
                theirs = {"decode_ms": median_ms(args.rounds, lambda: Image.open(io.BytesIO(file)).convert("RGB").load()),
                          "resize_ms": median_ms(args.rounds, lambda: opened.resize((1024, 576), Image.Resampling.BICUBIC))}
                rows.append((ours, theirs))
            own = {key: statistics.median(ours[key] for ours, _ in rows) for key in ("decode_ms", "resize_ms")}
            pillow = {key: statistics.median(theirs[key] for _, theirs in rows) for key in own}
            result[kind] = {"penstock": own, "pillow": {key: round(value, 3) for key, value in pillow.items()}, "ratios": {
                **{key[:-3]: round(pillow[key] / own[key], 2) for key in own},
                "both": round(sum(pillow.values()) / sum(own.values()), 2)}}
    return result


def text_of(**more):
    return dict(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=2, head_dim=64, max_position_embeddings=8192, pad_token_id=0, bos_token_id=None, eos_token_id=1,
                tie_word_embeddings=False) | more


def tower_models():
    """{name: (model's class, configuration, image processor, width, height)}"""
    import transformers as T
    mrope = dict(rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[12, 10, 10], mrope_interleaved=True))
    so400m = T.SiglipVisionConfig(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16,
                                  image_size=384, patch_size=14)
    qwen = T.Qwen3VLConfig(text_config=text_of(**mrope), image_token_id=3, video_token_id=4, vision_start_token_id=5,
                           vision_end_token_id=6, vision_config=dict(out_hidden_size=256))
    pixtral = T.LlavaConfig(text_config=T.MistralConfig(**text_of()), vision_feature_layer=-1, image_token_index=3,
                            vision_feature_select_strategy="full", vision_config=T.PixtralVisionConfig(
                                hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
                                image_size=1024, patch_size=16))
    onevision = T.LlavaOnevisionConfig(text_config=T.Qwen2Config(**text_of()), vision_config=so400m, image_grid_pinpoints=[[384, 384]],
                                       image_token_index=3, video_token_index=4, vision_feature_layer=-1)
    return {
        "SigLIP so400m 384": (T.LlavaOnevisionForConditionalGeneration, onevision, T.LlavaOnevisionImageProcessor(
            size=dict(height=384, width=384), image_grid_pinpoints=[[384, 384]]), 384, 384),
        "Qwen3-VL 1 megapixel": (T.Qwen3VLForConditionalGeneration, qwen, T.Qwen2VLImageProcessor(
            patch_size=16, size=dict(shortest_edge=65536, longest_edge=16777216)), 1024, 1024),
        "Pixtral 1024": (T.LlavaForConditionalGeneration, pixtral, T.PixtralImageProcessor(
            size=dict(longest_edge=1024), patch_size=16), 1024, 1024),
    }


def write_model(where, kind, config, processor):
    """Writes a directory whose weights are random BF16 numbers."""
    import torch
    with torch.device("meta"):
        shapes = {name: list(value.shape) for name, value in kind(config).state_dict().items()}
    config.architectures = [kind.__name__]
    config.save_pretrained(where)
    (where / "preprocessor_config.json").write_text(processor.to_json_string())
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    noise = numpy.random.RandomState(1)
    with open(where / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            values = noise.standard_normal(int(numpy.prod(shape))).astype(numpy.float32) * (1 if len(shape) < 2 else 0.02)
            file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())


def towers(args):
    result = {}
    for name, (kind, config, processor, width, height) in tower_models().items():
        with tempfile.TemporaryDirectory() as where:
            write_model(pathlib.Path(where), kind, config, processor)
            result[name] = run(args, "tower", where, width, height, max(args.rounds // 3, 1), args.threads)
        result[name]["threads"] = args.threads
    return result


@contextlib.contextmanager
def server_of(args, directory):
    server, port = served.start([args.build / "penstock", "serve", "-m", directory, "--port", "0", "--threads", args.threads])
    try:
        yield port
    finally:
        served.stop(server)


def first_token(args):
    directory = ROOT / "tests" / "golden" / "seeing" / "qwen2_vl"
    with server_of(args, directory) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def ask(content):
            begin = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", json.dumps(
                {"max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": content}]}), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            body = json.loads(reply.read())
            assert reply.status == 200, body
            return 1e3 * (time.perf_counter() - begin), body["usage"]["prompt_tokens"]

        def shown(seed):
            url = "data:image/png;base64," + base64.b64encode(saved(picture(64, 64, seed), "PNG")).decode()
            return {"type": "image_url", "image_url": {"url": url}}
        known, rows, tokens = shown(1), [], None
        ask([known, {"type": "text", "text": "start"}])
        for i in range(10 * args.rounds):
            words = {"type": "text", "text": f" what is in it, number {i:04}?"}
            before, n = ask([known, words])
            tokens = tokens or n
            alone, _ = ask([{"type": "text", "text": " it" * max(tokens - 24, 1)}, words])
            rows.append((alone, ask([shown(i + 2), words])[0], before))
    alone, new, before = (statistics.median(column) for column in zip(*rows))
    return {"tokens": tokens, "text_ms": round(alone, 3), "new_picture_ms": round(new, 3), "seen_picture_ms": round(before, 3),
            "ratio": round(statistics.median(row[2] / row[0] for row in rows), 3)}


PARTS = {"decode": decode, "towers": towers, "first-token": first_token}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all of them without")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"parts: expected {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    print(json.dumps({"load": os.getloadavg()[0]} | {part: PARTS[part](args) for part in args.parts or PARTS}, indent=2))


if __name__ == "__main__":
    main()
