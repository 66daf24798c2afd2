"""Parsing of prompts before they are rendered."""
from __future__ import annotations

from typing import Any, Dict

from ...inputs import parse_prompt


def parse_model_prompt(model_config: Any, prompt: Any) -> Dict[str, Any]:
    """Converts a prompt in any form that generate() accepts to a dictionary. Errors: ValueError, TypeError."""
    parsed = parse_prompt(prompt)
    found: Dict[str, Any] = {"prompt": parsed.text, "prompt_token_ids": parsed.token_ids, "cache_salt": parsed.cache_salt or None}
    return {name: value for name, value in found.items() if value is not None}


__all__ = ["parse_model_prompt"]
