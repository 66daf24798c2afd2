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


def files_of(data: Any) -> List[bytes]:
    """Returns the pictures of a prompt's `multi_modal_data` as image files. Errors: TypeError, ValueError."""
    if not isinstance(data, Mapping):
        raise TypeError(f"multi_modal_data: expected a dictionary, got {type(data).__name__}")
    for name, value in data.items():
        if name != "image" and value is not None:
            raise ValueError(f"multi_modal_data: {name!r} is not supported: models are given text and pictures (\"image\")")
    images = data.get("image")
    if images is None:
        return []
    listed = isinstance(images, (list, tuple)) or getattr(images, "ndim", 0) == 4
    return [file_of(image, f"multi_modal_data: image {i}") for i, image in enumerate(images if listed else [images])]


def with_files(messages: List[Any]) -> List[Any]:
    """Returns messages in which pictures of Python ("image_pil", and "image" that is no text) are image files."""
    def part_of(part: Any, where: str) -> Any:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("image_pil", "image") and part.get(kind) is not None and not isinstance(part[kind], str):
            return {"type": "image", "image": file_of(part[kind], where)}
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


def check_number(n: int, args: Opening) -> None:
    """Checks the number of a prompt's pictures. Errors: ValueError."""
    if args.most_pictures is not None and n > args.most_pictures:
        raise ValueError(f"limit_mm_per_prompt: expected at most {args.most_pictures} pictures in a prompt, got {n}")


def placed(session: _core.ModelSession, args: Opening, prompt: ParsedPrompt, kwargs: Optional[Dict[str, Any]] = None,
           options: Optional[Dict[str, Any]] = None) -> ParsedPrompt:
    """Returns a prompt with the tokens of its pictures in place of their placeholders. kwargs: mm_processor_kwargs of its call;
    options: tokenization_kwargs. Errors: ValueError."""
    settings = settings_of(session, args, kwargs, prompt.mm_processor_kwargs)
    if not prompt.images:
        return prompt
    check_number(len(prompt.images), args)
    add_special = bool((options or {}).get("add_special_tokens", True))
    ids, pictures = session.place_images(prompt.content, prompt.images, settings, add_special)
    return ParsedPrompt(prompt.text, ids, prompt.cache_salt, pictures=pictures)


def chat_prompt(session: _core.ModelSession, args: Opening, conversation: List[Any], options: Dict[str, Any],
                kwargs: Optional[Dict[str, Any]] = None) -> ParsedPrompt:
    """Returns the prompt of a conversation. options: see ModelSession.read_chat(). Errors: ValueError."""
    found: Tuple[str, List[int], Optional[_core.PlacedPictures]] = session.read_chat(
        with_files(conversation), {**options, "picture_settings": settings_of(session, args, kwargs)})
    text, ids, pictures = found
    if pictures is not None and session.info()["sees"]:
        check_number(pictures.count, args)
    return ParsedPrompt(text, ids, pictures=pictures)
