"""Checks and converts the parameters of requests for an engine."""
from __future__ import annotations

from typing import Any, Dict, List, Union

from . import _core
from ._engine_rules import Opening
from ._logits_processors import check_extra_args
from .inputs import ParsedPrompt
from .sampling_params import BeamSearchParams, SamplingParams


def check_params(params: Any, args: Opening) -> None:
    """Checks sampling parameters. Errors: TypeError, ValueError."""
    if not isinstance(params, (SamplingParams, BeamSearchParams)):
        raise TypeError(f"sampling_params: expected SamplingParams, got {type(params).__name__}")
    check_extra_args(args, params)
    if getattr(params, "trace_decode_token_ids", None) is not None and not args.trace_replay:
        raise ValueError("trace_decode_token_ids: the engine was opened without enable_trace_replay")
    if args.max_logprobs is not None and isinstance(params, SamplingParams):
        for name in ("logprobs", "prompt_logprobs"):
            asked = getattr(params, name)
            if asked is not None and args.max_logprobs >= 0 and (asked > args.max_logprobs or asked < 0):
                raise ValueError(f"{name}: expected at most max_logprobs ({args.max_logprobs}), got {asked}")


def check_prompts(prompts: List[ParsedPrompt], args: Opening) -> None:
    """Checks that the engine supports the prompts. Errors: ValueError."""
    if args.skip_tokenizer and any(prompt.token_ids is None for prompt in prompts):
        raise ValueError("prompt: expected token ids: the engine was opened with skip_tokenizer_init")


def priority_level(priority: int, args: Opening) -> int:
    """Converts vLLM's priority (lower is earlier, default 0) to the engine's levels: 0 high, 1 normal, 2 low."""
    if priority != 0 and args.config.get("policy") != "priority":
        raise ValueError(f"priority: got {priority}, and scheduling_policy is not 'priority'")
    return 1 if priority == 0 else 0 if priority < 0 else 2


def default_params(session: _core.ModelSession, args: Opening) -> SamplingParams:
    """Returns the sampling parameters of requests that give none."""
    known = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "max_tokens", "penalty_last_n",
             "xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta")
    values: Dict[str, Any] = {}
    if args.generation_config == "auto":
        found = session.default_params()
        values = {name: found[name] for name in known}
    renamed = {"max_new_tokens": "max_tokens"}
    for name, value in args.override_generation_config.items():
        field = renamed.get(name, name)
        if field not in SamplingParams.__dataclass_fields__:
            raise ValueError(f"override_generation_config: {name!r} is no parameter of a request")
        values[field] = value
    return SamplingParams(**values)


def fitting(messages: Any, add_generation_prompt: bool, continue_final_message: bool, content_format: str) -> List[Any]:
    """Returns the conversations of a call of chat(). Errors: ValueError.

    content_format: vLLM's argument; ignored, since the content format of the template is detected.
    """
    if content_format not in ("auto", "string", "openai"):
        raise ValueError(f"chat_template_content_format: expected auto, string or openai, got {content_format!r}")
    if continue_final_message and add_generation_prompt:
        raise ValueError("continue_final_message: expected add_generation_prompt=False with it")
    listed: List[Union[Any, List[Any]]] = list(messages)
    return [listed] if listed and isinstance(listed[0], dict) else listed
