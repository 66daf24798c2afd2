#!/usr/bin/env python3
"""Writes the golden files of tests/images/: what Pillow, torchvision and transformers make of pictures.

Needs Pillow 13, torchvision 0.29 and transformers 5.24; does not run in CI. Pictures are drawn by draw(), as
tests/images/drawn_image.h does in C++, so that only sizes and checksums (CRC-32) are stored.

Usage: make_image_vectors.py [decode] [resize] [processors] [videos]   (default: all)
"""
import io
import json
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "images"


def draw(width, height, seed, channels=3):
    """Returns [height, width, channels] uint8: ramps with noise."""
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (height, width, channels)), indexing="ij")
    h = (x * np.uint32(73856093)) ^ (y * np.uint32(19349663)) ^ (c * np.uint32(83492791)) ^ np.uint32(seed * 2654435761 % 2**32)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0x5BD1E995)
    h ^= h >> np.uint32(15)
    ramp = x * np.uint32(5) + y * np.uint32(3) + c * np.uint32(85)
    ramp = np.where(ramp & 256, 255 - (ramp & 255), ramp & 255)
    return np.where(h & 7, (ramp + (h >> np.uint32(24) & 31)) & 255, h >> np.uint32(8) & 255).astype(np.uint8)


def picture(width, height, seed, channels=3):
    array = draw(width, height, seed, channels)
    return Image.fromarray(array[:, :, 0] if channels == 1 else array)


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def exif(orientation):
    e = Image.Exif()
    e[0x0112] = orientation
    return e.tobytes()


def png_bytes(width, height, bits, color_type, rows, *, interlace=False, extra=()):
    """Writes a PNG whose rows are given as bytes; interlaced: rows of samples are spread by Adam7 (8 bits and more)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    if interlace:
        n = len(rows[0]) * 8 // (width * bits)  # samples of a pixel
        samples = np.array([[(row[i * bits // 8] if bits == 8 else row[2 * i] << 8 | row[2 * i + 1] if bits == 16 else
                              row[i * bits // 8] >> (8 - bits - i * bits % 8) & (1 << bits) - 1) for i in range(width * n)]
                            for row in rows]).reshape(height, width, n)
        data = b""
        for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
            part = samples[y0::dy, x0::dx]
            if part.size == 0:
                continue
            for line in part:
                flat = line.reshape(-1)
                text = "".join(format(int(v), f"0{bits}b") for v in flat)
                text += "0" * (-len(text) % 8)
                data += b"\0" + bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
    else:
        data = b"".join(b"\0" + row for row in rows)
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlace))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(k, d) for k, d in extra) +
            chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b""))


def bmp_bytes(width, height, bits, pixels, *, compression=0, palette=b"", masks=(), header=40, top_down=False, colors=0):
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        head = struct.pack("<IiiHHIIiiII", header, width, -height if top_down else height, 1, bits, compression, len(pixels), 2835, 2835, colors, 0)
        head += b"".join(struct.pack("<I", m) for m in masks)
        head += bytes(max(0, header - len(head)))
    offset = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + head + palette + pixels


def bmp_files():
    rng = np.random.default_rng(5)
    def rows(width, height, bits):
        return rng.integers(0, 256, (width * bits + 31) // 32 * 4 * height, dtype=np.uint8).tobytes()
    def palette(n, size=4):
        return rng.integers(0, 256, n * size, dtype=np.uint8).tobytes()
    yield "1bit.bmp", bmp_bytes(13, 5, 1, rows(13, 5, 1), palette=palette(2))
    yield "4bit.bmp", bmp_bytes(13, 5, 4, rows(13, 5, 4), palette=palette(16))
    yield "8bit.bmp", bmp_bytes(13, 5, 8, rows(13, 5, 8), palette=palette(256))
    yield "8bit_few.bmp", bmp_bytes(13, 5, 8, bytes(b % 7 for b in rows(13, 5, 8)), palette=palette(7), colors=7)
    yield "8bit_grey.bmp", bmp_bytes(13, 5, 8, rows(13, 5, 8), palette=b"".join(bytes((i, i, i, 0)) for i in range(256)))
    yield "os2.bmp", bmp_bytes(13, 5, 4, rows(13, 5, 4), palette=palette(16, 3), header=12)
    yield "os2_24.bmp", bmp_bytes(13, 5, 24, rows(13, 5, 24), header=12)
    yield "16bit.bmp", bmp_bytes(13, 5, 16, rows(13, 5, 16))
    yield "565.bmp", bmp_bytes(13, 5, 16, rows(13, 5, 16), compression=3, masks=(0xF800, 0x7E0, 0x1F))
    yield "555.bmp", bmp_bytes(13, 5, 16, rows(13, 5, 16), compression=3, masks=(0x7C00, 0x3E0, 0x1F))
    yield "24bit.bmp", bmp_bytes(13, 5, 24, rows(13, 5, 24))
    yield "24bit_top.bmp", bmp_bytes(13, 5, 24, rows(13, 5, 24), top_down=True)
    yield "32bit.bmp", bmp_bytes(13, 5, 32, rows(13, 5, 32))
    yield "32bit_xbgr.bmp", bmp_bytes(13, 5, 32, rows(13, 5, 32), compression=3, masks=(0xFF000000, 0xFF0000, 0xFF00))
    yield "v5_rgba.bmp", bmp_bytes(13, 5, 32, rows(13, 5, 32), compression=3, masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000), header=124)
    yield "v4_24.bmp", bmp_bytes(13, 5, 24, rows(13, 5, 24), header=108)
    rle8 = bytes((5, 7, 8, 3, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 4, 9, 0, 0, 13, 6, 0, 0, 3, 1, 0, 2, 2, 1, 3, 2, 0, 0, 0, 3, 8, 9, 10, 0, 10, 11, 0, 0, 0, 1))
    yield "rle8.bmp", bmp_bytes(13, 6, 8, rle8, compression=1, palette=palette(256))
    rle4 = bytes((5, 0x7A, 8, 0x31, 0, 0, 0, 5, 0x12, 0x34, 0x50, 0, 8, 0x9C, 0, 0, 13, 0x67, 0, 0, 0, 3, 0x89, 0xA0, 10, 0xBC, 0, 0, 13, 0x11, 0, 1))
    yield "rle4.bmp", bmp_bytes(13, 5, 4, rle4, compression=2, palette=palette(16))


def png_files():
    rng = np.random.default_rng(6)
    def rows(width, height, bits, n):
        return [rng.integers(0, 256, (width * n * bits + 7) // 8, dtype=np.uint8).tobytes() for _ in range(height)]
    palette = [(b"PLTE", rng.integers(0, 256, 48, dtype=np.uint8).tobytes())]
    palette2 = [(b"PLTE", rng.integers(0, 256, 6, dtype=np.uint8).tobytes())]
    palette4 = [(b"PLTE", rng.integers(0, 256, 12, dtype=np.uint8).tobytes())]
    palette256 = [(b"PLTE", rng.integers(0, 256, 768, dtype=np.uint8).tobytes())]
    clear = [(b"tRNS", bytes((0, 255, 128, 7)))]
    for interlace in (False, True):
        end = "_adam7.png" if interlace else ".png"
        for bits in (1, 2, 4, 8, 16):
            yield f"grey{bits}{end}", png_bytes(11, 9, bits, 0, rows(11, 9, bits, 1), interlace=interlace)
        for bits, colors in ((1, palette2), (2, palette4), (4, palette), (8, palette256)):
            yield f"palette{bits}{end}", png_bytes(11, 9, bits, 3, rows(11, 9, bits, 1), interlace=interlace, extra=colors)
        yield f"palette_alpha{end}", png_bytes(11, 9, 4, 3, rows(11, 9, 4, 1), interlace=interlace, extra=palette + clear)
        for name, color_type, n in (("rgb", 2, 3), ("grey_alpha", 4, 2), ("rgba", 6, 4)):
            for bits in (8, 16):
                yield f"{name}{bits}{end}", png_bytes(11, 9, bits, color_type, rows(11, 9, bits, n), interlace=interlace)
    line = bytes((1, 2, 3, 200, 100, 50, 1, 2, 3))
    yield "rgb_key.png", png_bytes(3, 2, 8, 2, [line, line], extra=[(b"tRNS", struct.pack(">HHH", 1, 2, 3))])
    yield "one.png", png_bytes(1, 1, 8, 2, [b"\1\2\3"])
    yield "one_adam7.png", png_bytes(1, 1, 8, 2, [b"\1\2\3"], interlace=True)
    yield "exif_png.png", png_bytes(3, 2, 8, 2, [bytes(range(9)), bytes(range(9, 18))], extra=[(b"eXIf", exif(6)[6:])])


def save(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def jpeg_files():
    small = picture(37, 21, 1)
    yield "rgb.jpg", save(small, "JPEG", quality=90)
    yield "rgb_444.jpg", save(small, "JPEG", quality=95, subsampling=0)
    yield "progressive.jpg", save(small, "JPEG", quality=80, progressive=True)
    yield "restart.jpg", save(small, "JPEG", quality=80, restart_marker_blocks=1)
    yield "grey.jpg", save(picture(37, 21, 2, 1), "JPEG")
    yield "cmyk.jpg", save(Image.fromarray(draw(19, 10, 3, 4), "CMYK"), "JPEG", quality=95)
    yield "one.jpg", save(picture(1, 1, 4), "JPEG")
    yield "wide.jpg", save(picture(300, 2, 5), "JPEG")
    for orientation in range(1, 9):
        yield f"turned{orientation}.jpg", save(picture(9, 6, 7), "JPEG", quality=95, exif=exif(orientation))
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
    yield "xmp.jpg", save(picture(9, 6, 7), "JPEG", quality=95, xmp=xmp)


def other_files():
    yield "lossy.webp", save(picture(37, 21, 8), "WEBP", quality=80)
    yield "lossless.webp", save(picture(37, 21, 9), "WEBP", lossless=True)
    yield "alpha.webp", save(picture(17, 11, 10, 4), "WEBP", lossless=True, exact=True)
    yield "alpha_lossy.webp", save(picture(17, 11, 10, 4), "WEBP", quality=70)
    yield "turned.webp", save(picture(9, 6, 11), "WEBP", lossless=True, exif=exif(5))
    frames = [picture(17, 11, seed) for seed in (12, 13, 14)]
    yield "moving.webp", save(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=50, lossless=True)
    clear = [picture(17, 11, seed, 4) for seed in (12, 13)]
    yield "moving_alpha.webp", save(clear[0], "WEBP", save_all=True, append_images=clear[1:], duration=50, lossless=True)
    few = picture(17, 11, 15).quantize(13)
    yield "plain.gif", save(few, "GIF")
    yield "adam.gif", save(few, "GIF", interlace=1)
    yield "clear.gif", save(few, "GIF", transparency=3)
    yield "moving.gif", save(frames[0].quantize(60), "GIF", save_all=True, append_images=[f.quantize(60) for f in frames[1:]], duration=50)
    yield "apng.png", save(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50)
    # A first picture that covers a part of the screen: 7 x 5 at (4, 3) of 17 x 11.
    plain = save(picture(7, 5, 16).quantize(8), "GIF")
    at = plain.index(b",", 13 + 3 * (2 << (plain[10] & 7)))
    part = bytearray(plain)
    part[6:10] = struct.pack("<HH", 17, 11)
    part[at + 1:at + 5] = struct.pack("<HH", 4, 3)
    yield "part.gif", bytes(part)


def on_white(image):
    """transformers' convert_to_rgb() of a PIL picture, upright."""
    from transformers.image_transforms import convert_to_rgb
    return convert_to_rgb(ImageOps.exif_transpose(image), return_numpy=True)


def make_decode():
    folder = GOLDEN / "files"
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, data in [*jpeg_files(), *png_files(), *bmp_files(), *other_files()]:
        (folder / name).write_bytes(data)
        rgb = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
        white = on_white(Image.open(io.BytesIO(data)))
        expected[name] = {"width": rgb.shape[1], "height": rgb.shape[0], "rgb": crc(rgb), "white": crc(white)}
    write("decode.json", expected)


def write(name, value):
    lines = (f'  {json.dumps(k)}: {json.dumps(v)}' for k, v in value.items()) if isinstance(value, dict) else (f"  {json.dumps(v)}" for v in value)
    ends = "{}" if isinstance(value, dict) else "[]"
    (GOLDEN / name).write_text(ends[0] + "\n" + ",\n".join(lines) + "\n" + ends[1] + "\n")


def make_resize():
    import torch
    from torchvision.transforms.v2 import functional as F
    modes = {"bilinear": F.InterpolationMode.BILINEAR, "bicubic": F.InterpolationMode.BICUBIC, "lanczos": F.InterpolationMode.LANCZOS}
    sizes = [(1, 1, 1, 1), (1, 1, 5, 7), (1, 9, 4, 3), (640, 480, 336, 336), (333, 217, 512, 334), (97, 61, 97, 30), (97, 61, 40, 61),
             (1000, 3, 700, 2), (3, 1000, 2, 700), (2, 2, 300, 1), (1023, 769, 28, 28), (50, 40, 49, 41), (4000, 30, 112, 896)]
    rng = np.random.default_rng(7)
    sizes += [tuple(int(v) for v in np.exp(rng.uniform(0, 6.3, 4)).astype(int)) for _ in range(60)]
    cases = []
    for i, (w, h, ow, oh) in enumerate(sizes):
        image = torch.from_numpy(draw(w, h, i)).permute(2, 0, 1).contiguous()
        crcs = {name: crc(F.resize(image, [oh, ow], interpolation=mode, antialias=True).permute(1, 2, 0).numpy()) for name, mode in modes.items()}
        cases.append({"from": [w, h], "to": [ow, oh], "seed": i, **crcs})
    write("resize.json", cases)


def make_processors():
    import image_families
    rng = np.random.default_rng(8)
    sizes = [(1, 1), (17, 1), (97, 61), (333, 217), (20, 700)]  # with pixels
    planned = [tuple(int(v) for v in np.exp(rng.uniform(1, 7.3, 2)).astype(int)) for _ in range(24)]
    planned += [(2, 3), (1, 40), (500, 20), (640, 480)]
    planned += [(w, h) for w in (111, 112, 113, 224, 336, 448) for h in (112, 223, 336)]
    cases = {}
    for name, family in image_families.FAMILIES.items():
        pictures = []
        for i, (width, height) in enumerate(sizes + planned):
            case = {"size": [width, height], "seed": i}
            try:
                views, prompt = image_families.run(name, family, picture(width, height, i))
                case["views"] = [[h, w] for h, w, _ in views]
                case["prompt"] = prompt
                if i < len(sizes):
                    check = 0
                    for _, _, pixels in views:
                        check = zlib.crc32(pixels.contiguous().numpy().tobytes(), check)
                    case["pixels"] = check
                    case["first"] = [float(v) for v in views[0][2].reshape(-1)[:2]]
            except (ValueError, RuntimeError, ZeroDivisionError) as error:
                case["error"] = str(error).split("\n")[0][:80]
            if len(set(map(tuple, case.get("views", [])))) == 1:  # all of one size
                case["views"] = [case["views"][0], len(case["views"])]
            pictures.append(case)
        errors = sum("error" in case for case in pictures)
        print(name, len(pictures), "pictures,", errors, "errors", {case["error"] for case in pictures if "error" in case})
        cases[name] = {**image_families.files(family), "pictures": pictures}
    lines = []
    for name, case in cases.items():
        pictures = ",\n    ".join(json.dumps(picture) for picture in case.pop("pictures"))
        lines.append(f'  {json.dumps(name)}: {json.dumps(case)[:-1]}, "pictures": [\n    {pictures}]}}')
    (GOLDEN / "processors.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


VIDEO_PROCESSORS = {  # name: (class, settings, number of frames of a view)
    "qwen2_vl": ("Qwen2VLVideoProcessor", {}, 2),
    "qwen2_vl_share": ("Qwen2VLVideoProcessor", dict(cap_pixels_per_frame=True, max_video_tokens=300,
                                                     size=dict(shortest_edge=784, longest_edge=100352)), 2),
    "qwen2_vl_fps": ("Qwen2VLVideoProcessor", dict(do_sample_frames=True, fps=2, min_pixels=784, max_pixels=50176, max_frames=20), 2),
    "qwen2_vl_number": ("Qwen2VLVideoProcessor", dict(do_sample_frames=True, num_frames=7, size=dict(shortest_edge=784, longest_edge=50176)), 2),
    "qwen3_vl": ("Qwen3VLVideoProcessor", {}, 2),
    "qwen3_vl_published": ("Qwen3VLVideoProcessor", dict(size=dict(shortest_edge=4096, longest_edge=25165824)), 2),
    "qwen3_vl_share": ("Qwen3VLVideoProcessor", dict(cap_pixels_per_frame=True, max_video_tokens=16, max_frames=10,
                                                     size=dict(shortest_edge=4096, longest_edge=600000)), 2),
    "glm4v": ("Glm4vVideoProcessor", dict(size=dict(shortest_edge=12544, longest_edge=400000)), 2),
    "glm4v_short": ("Glm4vVideoProcessor", dict(max_duration=3, fps=3, size=dict(shortest_edge=12544, longest_edge=400000)), 2),
    "glm46v": ("Glm46VVideoProcessor", dict(size=dict(shortest_edge=12544, longest_edge=400000)), 2),
    "internvl": ("InternVLVideoProcessor", dict(do_sample_frames=True, num_frames=3), 1),
    "onevision": ("LlavaOnevisionVideoProcessor", dict(do_sample_frames=True, num_frames=4, size=dict(height=28, width=28)), 1),
    "onevision_fps": ("LlavaOnevisionVideoProcessor", dict(do_sample_frames=True, fps=1), 1),
    "smolvlm": ("SmolVLMVideoProcessor", dict(do_sample_frames=True, fps=1, num_frames=4, size=dict(longest_edge=64),
                                              max_image_size=dict(longest_edge=28)), 1),
    "smolvlm_all": ("SmolVLMVideoProcessor", dict(size=dict(height=50, width=33), max_image_size=dict(longest_edge=30)), 1),
    "smolvlm_sampling": ("SmolVLMVideoProcessor", dict(do_sample_frames=True, max_image_size=dict(longest_edge=28), video_sampling=dict(
        fps=2, max_frames=9, video_size=dict(longest_edge=41))), 1),
    "internvl_first": ("InternVLVideoProcessor", dict(do_sample_frames=True, fps=1, initial_shift=False, size=dict(height=28, width=42)), 1),
}


def make_videos():
    """Which frames are read, their size, and a checksum of all pixels, or "error"."""
    import transformers
    rng = np.random.default_rng(9)
    videos = [(97, 61, 5, 4.0), (333, 217, 2, 1.0), (40, 200, 9, 24.0), (17, 30, 12, 3.7), (64, 64, 1, 2.0), (56, 84, 31, 10.0),
              (30, 20, 200, 29.97), (8, 8, 1000, 25.0), (8, 8, 333, 0.5)]
    videos += [(8, 8, int(np.exp(rng.uniform(0.5, 6.5))), round(float(np.exp(rng.uniform(-1, 4))), 3)) for _ in range(24)]
    cases = {}
    for name, (kind, settings, n_of_view) in VIDEO_PROCESSORS.items():
        processor = getattr(transformers, kind)(**settings)
        found = []
        for i, (width, height, n, fps) in enumerate(videos):
            case = {"size": [width, height], "n": n, "fps": fps, "seed": i}
            try:
                metadata = transformers.video_utils.VideoMetadata(total_num_frames=n, fps=fps)
                metadata.duration = n / fps
                chosen = list(range(n))
                if processor.do_sample_frames:
                    known = {key: getattr(processor, key) for key in ("num_frames", "fps", "min_frames", "max_frames", "initial_shift",
                                                                      "temporal_patch_size") if hasattr(processor, key)}
                    chosen = [int(index) for index in processor.sample_frames(metadata, **known)]
                case["frames"] = chosen
                if i < 5:
                    frames = np.stack([draw(width, height, 100 * i + index) for index in chosen])
                    made = processor(videos=[frames], do_sample_frames=False, return_tensors="pt")
                    made = made["pixel_values" if "pixel_values" in made else "pixel_values_videos"]
                    case["pixels"] = crc(made.numpy())
                    n_views = -(-len(chosen) // n_of_view)
                    case["numbers"] = made.numel() // n_views
            except (ValueError, RuntimeError, ZeroDivisionError, TypeError, IndexError) as error:
                case["error"] = str(error).split("\n")[0][:80]
                case.pop("frames", None)
            found.append(case)
        print(name, {case["error"] for case in found if "error" in case})
        cases[name] = {"video_processor": json.loads(processor.to_json_string()), "videos": found}
    lines = []
    for name, case in cases.items():
        found = ",\n    ".join(json.dumps(one) for one in case.pop("videos"))
        lines.append(f'  {json.dumps(name)}: {json.dumps(case)[:-1]}, "videos": [\n    {found}]}}')
    (GOLDEN / "videos.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parts = {"decode": make_decode, "resize": make_resize, "processors": make_processors, "videos": make_videos}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
