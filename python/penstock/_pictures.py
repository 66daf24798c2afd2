"""Pictures of prompts: what callers give becomes image files, and these their places in prompts."""
from __future__ import annotations

import struct
import zlib
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _core
from ._engine_rules import Opening
from .inputs import ParsedPrompt

_EXPECTED = "a PIL image, an array of bytes [height, width, 3], or the bytes of an image file"


def _png(pixels: bytes, width: int, height: int) -> bytes:
    """Returns a PNG file. pixels: [height, width, 3]."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    row = width * 3
    rows = b"".join(b"\0" + pixels[y * row:(y + 1) * row] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def _of_pil(image: Any) -> bytes:
    """Transparent pixels go on white, as in transformers."""
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        from PIL import Image

        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    image = image.convert("RGB")
    return _png(image.tobytes(), *image.size)


def _of_array(array: Any, where: str) -> bytes:
    import numpy

    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim == 3 and array.shape[0] in (1, 3):
        array = numpy.moveaxis(array, 0, -1)
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape or array.dtype != numpy.uint8:
        raise ValueError(f"{where}: expected {_EXPECTED}, got an array of {array.dtype} {list(array.shape)}")
    height, width = array.shape[:2]
    return _png(numpy.ascontiguousarray(numpy.broadcast_to(array, (height, width, 3))).tobytes(), width, height)


def file_of(image: Any, where: str) -> bytes:
    """Returns a picture as an image file. Errors: ValueError, naming `where`."""
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if hasattr(image, "getbands") and hasattr(image, "convert"):
        return _of_pil(image)
    if hasattr(image, "detach"):  # torch
        image = image.detach().cpu().numpy()
    if hasattr(image, "__array_interface__"):
        import numpy

        return _of_array(numpy.asarray(image), where)
    raise ValueError(f"{where}: expected {_EXPECTED}, got {type(image).__name__}")


def _is_frame(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview)) or hasattr(value, "getbands") or getattr(value, "ndim", 0) in (2, 3)


def video_of(video: Any, where: str) -> Dict[str, Any]:
    """Returns a video (frames, or a tuple of frames and metadata) as image files with its metadata. Errors: ValueError."""
    metadata: Any = None
    if isinstance(video, tuple) and len(video) == 2 and (video[1] is None or isinstance(video[1], Mapping)):
        video, metadata = video
    if not (isinstance(video, (list, tuple)) or getattr(video, "ndim", 0) == 4) or isinstance(video, (str, bytes)):
        raise ValueError(f"{where}: expected a list of frames, an array of bytes [frames, height, width, 3], or a tuple of these "
                         f"and metadata, got {type(video).__name__}")
    known = {key: metadata[key] for key in ("fps", "duration", "total_num_frames", "frames_indices", "do_sample_frames")
             if metadata and metadata.get(key) is not None}
    if "frames_indices" in known:
        known["frames_indices"] = [int(index) for index in known["frames_indices"]]
    return {"frames": [file_of(frame, f"{where}: frame {i}") for i, frame in enumerate(video)], "metadata": known}


def _videos_of(data: Mapping[str, Any]) -> List[Dict[str, Any]]:
    videos = data.get("video")
    if videos is None:
        return []
    pair = isinstance(videos, tuple) and len(videos) == 2 and (videos[1] is None or isinstance(videos[1], Mapping))
    frames = isinstance(videos, (list, tuple)) and bool(videos) and all(_is_frame(one) for one in videos)
    many = (isinstance(videos, (list, tuple)) and not pair and not frames) or getattr(videos, "ndim", 0) == 5
    return [video_of(video, f"multi_modal_data: video {i}") for i, video in enumerate(videos if many else [videos])]


def sound_of(sound: Any, where: str) -> Dict[str, bytes]:
    """Returns a sound (an array of samples with its rate, or the bytes of a file) as {"sound": file}. Errors: ValueError."""
    if isinstance(sound, (bytes, bytearray, memoryview)):
        return {"sound": bytes(sound)}
    wanted = f"{where}: expected a tuple of samples (an array of one channel) and their rate, or the bytes of a sound file"
    if not (isinstance(sound, tuple) and len(sound) == 2):
        raise ValueError(f"{wanted}, got {type(sound).__name__}")
    import numpy

    samples, rate = numpy.asarray(sound[0].detach().cpu() if hasattr(sound[0], "detach") else sound[0]), sound[1]
    if samples.dtype == numpy.int16:
        samples = samples.astype(numpy.float32) / 32768
    if samples.ndim != 1 or samples.dtype.kind != "f" or not 1 <= rate <= 2 ** 20 or rate != int(rate):
        raise ValueError(f"{wanted}, got {samples.dtype} {list(samples.shape)} and {rate!r}")
    data, rate = samples.astype("<f4").tobytes(), int(rate)
    head = struct.pack("<IHHIIHH", 16, 3, 1, rate, 4 * rate, 4, 32)  # one channel of F32
    return {"sound": b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + head + b"data" + struct.pack("<I", len(data)) + data}


def _sounds_of(data: Mapping[str, Any]) -> List[Dict[str, bytes]]:
    sounds = data.get("audio")
    if sounds is None:
        return []
    return [sound_of(sound, f"multi_modal_data: audio {i}") for i, sound in enumerate(sounds if isinstance(sounds, list) else [sounds])]


def files_of(data: Any) -> List[Any]:
    """Returns the pictures of a prompt's `multi_modal_data` as image files, and videos and sounds as video_of() and sound_of() do.
    Errors: TypeError, ValueError."""
    if not isinstance(data, Mapping):
        raise TypeError(f"multi_modal_data: expected a dictionary, got {type(data).__name__}")
    for name, value in data.items():
        if name not in ("image", "video", "audio") and value is not None:
            raise ValueError(f"multi_modal_data: {name!r} is not supported: models are given text, pictures (\"image\"), videos "
                             "(\"video\") and sounds (\"audio\")")
    images = data.get("image")
    if images is None:
        return [*_videos_of(data), *_sounds_of(data)]
    listed = isinstance(images, (list, tuple)) or getattr(images, "ndim", 0) == 4
    return [*(file_of(image, f"multi_modal_data: image {i}") for i, image in enumerate(images if listed else [images])),
            *_videos_of(data), *_sounds_of(data)]


def with_files(messages: List[Any]) -> List[Any]:
    """Returns messages in which pictures and videos of Python ("image_pil", "image" and "video" that are no text) are image files."""
    def part_of(part: Any, where: str) -> Any:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("image_pil", "image") and part.get(kind) is not None and not isinstance(part[kind], str):
            return {"type": "image", "image": file_of(part[kind], where)}
        if kind == "video" and part.get(kind) is not None and not isinstance(part[kind], str):
            if isinstance(part[kind], (list, tuple)) and part[kind] and all(isinstance(one, str) for one in part[kind]):
                return part
            with_metadata = part.get("metadata") is not None and not isinstance(part[kind], tuple)
            video = video_of((part[kind], part["metadata"]) if with_metadata else part[kind], where)
            return {"type": "video", "video": video["frames"], "metadata": video["metadata"],
                    **({"fps": part["fps"]} if part.get("fps") is not None else {})}
        return part

    def message_of(message: Any, where: str) -> Any:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, (list, tuple)):
            return message
        return {**message, "content": [part_of(part, f"{where}.content[{i}]") for i, part in enumerate(content)]}
    return [message_of(message, f"messages[{i}]") for i, message in enumerate(messages)]


def settings_of(session: _core.ModelSession, args: Opening, *given: Optional[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Returns the settings of the image processor for a request: the engine's and those of its call. Errors: ValueError."""
    asked: Dict[str, Any] = {}
    for one in given:
        asked.update(one or {})
    if asked and not session.info()["sees"]:
        raise ValueError("mm_processor_kwargs: this model is given text or token ids")
    return {**args.mm_processor_kwargs, **asked} or None


def check_number(n: int, n_videos: int, n_sounds: int, args: Opening) -> None:
    """Checks the numbers of a prompt's pictures, videos and sounds. Errors: ValueError."""
    for kind, got, most in (("pictures", n, args.most_pictures), ("videos", n_videos, args.most_videos), ("sounds", n_sounds, args.most_sounds)):
        if most is not None and got > most:
            raise ValueError(f"limit_mm_per_prompt: expected at most {most} {kind} in a prompt, got {got}")


def placed(session: _core.ModelSession, args: Opening, prompt: ParsedPrompt, kwargs: Optional[Dict[str, Any]] = None,
           options: Optional[Dict[str, Any]] = None) -> ParsedPrompt:
    """Returns a prompt with the tokens of its pictures in place of their placeholders. kwargs: mm_processor_kwargs of its call;
    options: tokenization_kwargs. Errors: ValueError."""
    settings = settings_of(session, args, kwargs, prompt.mm_processor_kwargs)
    if not prompt.images:
        return prompt
    n_videos, n_sounds = (sum(isinstance(one, dict) and name in one for one in prompt.images) for name in ("frames", "sound"))
    check_number(len(prompt.images) - n_videos - n_sounds, n_videos, n_sounds, args)
    add_special = bool((options or {}).get("add_special_tokens", True))
    ids, pictures = session.place_images(prompt.content, prompt.images, settings, add_special)
    return ParsedPrompt(prompt.text, ids, prompt.cache_salt, pictures=pictures)


def chat_prompt(session: _core.ModelSession, args: Opening, conversation: List[Any], options: Dict[str, Any],
                kwargs: Optional[Dict[str, Any]] = None) -> ParsedPrompt:
    """Returns the prompt of a conversation. options: see ModelSession.read_chat(). Errors: ValueError."""
    found: Tuple[str, List[int], Optional[_core.PlacedPictures]] = session.read_chat(
        with_files(conversation), {**options, "picture_settings": settings_of(session, args, kwargs)})
    text, ids, pictures = found
    if pictures is not None:
        check_number(pictures.count - pictures.n_videos, pictures.n_videos, pictures.n_sounds, args)
    return ParsedPrompt(text, ids, pictures=pictures)
