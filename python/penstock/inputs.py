"""The forms of prompts."""
from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

if sys.version_info >= (3, 11):
    from typing import NotRequired, TypedDict
else:  # only for type checkers; not used at run time
    from typing import Generic, TypedDict, TypeVar

    _T = TypeVar("_T")

    class NotRequired(Generic[_T]):
        """A key that may be absent."""


class TextPrompt(TypedDict):
    """A text. Special tokens in it are parsed, and the tokenizer's first token (BOS) is added."""

    prompt: str
    cache_salt: NotRequired[str]  # prefix cache blocks are shared only between prompts with the same salt
    # {"image": one or a list, "video": one or a list}: pictures and videos, each for one placeholder of the prompt, as the model's
    # chat template writes it
    multi_modal_data: NotRequired[Dict[str, Any]]
    mm_processor_kwargs: NotRequired[Dict[str, Any]]  # settings of the image processor


class TokensPrompt(TypedDict):
    """Token ids, used unchanged."""

    prompt_token_ids: List[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]
    multi_modal_data: NotRequired[Dict[str, Any]]
    mm_processor_kwargs: NotRequired[Dict[str, Any]]


SingletonPrompt = Union[str, List[int], TextPrompt, TokensPrompt]
PromptType = SingletonPrompt

_KNOWN = {"prompt", "prompt_token_ids", "cache_salt", "multi_modal_data", "mm_processor_kwargs", "multi_modal_uuids",
          "prompt_embeds", "type"}


# Iterable types that are no lists of prompts or token ids: bytes iterate as numbers, sets have no order.
_NO_LISTS = (bytes, bytearray, memoryview, set, frozenset)


@dataclass
class ParsedPrompt:
    """One prompt: its text, its token ids, or both; then the ids are used."""

    text: Optional[str]
    token_ids: Optional[List[int]]
    cache_salt: str = ""
    images: Optional[List[Any]] = None  # files of its pictures and videos (_pictures.files_of), whose placeholders it has
    mm_processor_kwargs: Optional[Dict[str, Any]] = None
    pictures: Any = None  # _core.PlacedPictures: token_ids has the tokens of these pictures

    @property
    def content(self) -> Union[str, List[int]]:
        """The input for the engine: token ids if there are any, else the text."""
        return self.token_ids if self.token_ids is not None else self.text or ""


def parse_prompt(prompt: Any, images: bool = False) -> ParsedPrompt:
    """Parses one prompt in any form. images: it may have pictures. Errors: TypeError, ValueError."""
    if isinstance(prompt, str):
        return ParsedPrompt(prompt, None)
    if isinstance(prompt, Mapping):
        return _parse_mapping(prompt, images)
    if _is_ids(prompt):
        return ParsedPrompt(None, [int(token) for token in prompt])
    raise TypeError(f"prompt: expected a text, token ids, or a dictionary with prompt or prompt_token_ids, got "
                    f"{type(prompt).__name__}")


def _parse_mapping(prompt: Mapping[str, Any], images: bool) -> ParsedPrompt:
    for name in prompt:
        if name not in _KNOWN:
            raise ValueError(f"prompt: {name!r} is no key of a prompt; known are prompt, prompt_token_ids and cache_salt")
    for name in ("multi_modal_data", "prompt_embeds", "mm_processor_kwargs"):
        if prompt.get(name) and (name == "prompt_embeds" or not images):
            raise ValueError(f"prompt: {name} is not supported: models are given text or token ids")
    text, ids = prompt.get("prompt"), prompt.get("prompt_token_ids")
    if text is None and ids is None:
        raise ValueError("prompt: a dictionary has prompt or prompt_token_ids, got neither")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"prompt: expected a text, got {type(text).__name__}")
    if ids is not None and not _is_ids(ids):
        raise TypeError("prompt_token_ids: expected a list of integers")
    salt = prompt.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise TypeError(f"cache_salt: expected a text, got {type(salt).__name__}")
    parsed = ParsedPrompt(text, None if ids is None else [int(token) for token in ids], salt or "")
    if images:
        from ._pictures import files_of

        parsed.images = files_of(prompt.get("multi_modal_data") or {}) or None
        parsed.mm_processor_kwargs = prompt.get("mm_processor_kwargs")
    return parsed


def _is_ids(value: Any) -> bool:
    if isinstance(value, (str, *_NO_LISTS, Mapping)) or not hasattr(value, "__len__") or not hasattr(value, "__iter__"):
        return False
    return all(hasattr(token, "__index__") and not isinstance(token, bool) for token in value)


def parse_prompts(prompts: Any, images: bool = False) -> List[ParsedPrompt]:
    """Parses one prompt or a list of prompts. A list of integers is one prompt. Errors: TypeError, ValueError."""
    if isinstance(prompts, (str, Mapping)):
        return [parse_prompt(prompts, images)]
    if isinstance(prompts, _NO_LISTS) or not hasattr(prompts, "__iter__"):
        raise TypeError(f"prompts: expected a prompt or a list of prompts, got {type(prompts).__name__}")
    listed: Sequence[Any] = list(prompts)
    if listed and _is_ids(listed):
        return [parse_prompt(listed)]
    return [parse_prompt(prompt, images) for prompt in listed]


def truncated(prompt: ParsedPrompt, options: Optional[Dict[str, Any]], encode: Any, max_model_len: int) -> ParsedPrompt:
    """Applies `tokenization_kwargs` to a prompt: add_special_tokens, truncate_prompt_tokens (keeps the last tokens; -1:
    max_model_len), truncation and max_length (keeps the first tokens; without max_length max_model_len); truncation_side says
    otherwise. Errors: ValueError."""
    if not options:
        return prompt
    known = {"add_special_tokens", "truncate_prompt_tokens", "truncation", "max_length", "truncation_side"}
    for name in options:
        if name not in known:
            raise ValueError(f"tokenization_kwargs: {name!r} is not supported; known are {', '.join(sorted(known))}")
    if prompt.pictures is not None:
        for name in options:
            if name != "add_special_tokens":
                raise ValueError(f"tokenization_kwargs: {name!r}: a prompt with pictures is not cut")
        return prompt
    side, cuts = options.get("truncation_side"), _cuts(options, max_model_len - 1)
    if side not in (None, "left", "right"):
        raise ValueError(f"truncation_side: expected left or right, got {side!r}")
    ids = prompt.token_ids
    if ids is None:
        ids = encode(prompt.text or "", bool(options.get("add_special_tokens", True)))
    for most, usual_side in cuts:
        ids = ids[-most:] if (side or usual_side) == "left" else ids[:most]
    return ParsedPrompt(prompt.text, ids, prompt.cache_salt)


def _cuts(options: Dict[str, Any], longest: int) -> List[Tuple[int, str]]:
    """Returns the lengths to which a prompt is cut, and the side on which each cuts if nothing else is said."""
    cuts = []
    last, truncation, length = options.get("truncate_prompt_tokens"), options.get("truncation"), options.get("max_length")
    if last is not None:
        cuts.append(("truncate_prompt_tokens", last, longest if last == -1 else int(last), "left"))
    if truncation not in (None, True, False, "longest_first", "only_first", "do_not_truncate"):
        raise ValueError(f"truncation: expected True, False, longest_first, only_first or do_not_truncate, got {truncation!r}")
    if truncation in (True, "longest_first", "only_first") or (truncation is None and length is not None):
        cuts.append(("max_length", length, longest if length is None else int(length), "right"))
    for name, given, most, _ in cuts:
        if most < 1:
            raise ValueError(f"{name}: expected at least 1{', or -1' if name == 'truncate_prompt_tokens' else ''}, got {given}")
    return [(most, side) for _, _, most, side in cuts]
