"""Renderers, which tokenize prompts separately from generate(): vLLM's `renderers`."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..inputs import TokensPrompt, parse_prompt, truncated
from ..tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenizeParams:
    """The tokenization options, as in `tokenization_kwargs` of generate()."""

    options: Mapping[str, Any] = field(default_factory=dict)

    def with_kwargs(self, **options: Any) -> "TokenizeParams":
        """Returns a copy with these options overridden."""
        return replace(self, options={**self.options, **options})


class Renderer:
    """Tokenizes prompts of one model for generate()."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @property
    def default_cmpl_tok_params(self) -> TokenizeParams:
        """Returns the options with which generate() tokenizes texts."""
        return TokenizeParams()

    @property
    def default_chat_tok_params(self) -> TokenizeParams:
        """Returns the options with which chat() tokenizes the template's text, which has special tokens already."""
        return TokenizeParams({"add_special_tokens": False})

    def get_tokenizer(self) -> Tokenizer:
        """Returns the model's tokenizer."""
        return self.tokenizer

    def render_cmpl(self, prompts: Sequence[Any], tok_params: Optional[TokenizeParams] = None) -> List[TokensPrompt]:
        """Tokenizes prompts in any form that generate() accepts. Errors: ValueError, TypeError."""
        options: Dict[str, Any] = dict(tok_params.options) if tok_params is not None else {}
        return [self._tokens(prompt, options) for prompt in prompts]

    def render_chat(self, conversations: Sequence[Sequence[Dict[str, Any]]], chat_template: Optional[str] = None,
                    **options: Any) -> Tuple[List[Any], List[TokensPrompt]]:
        """Returns the conversations and their prompts. options: see Tokenizer.apply_chat_template()."""
        options.setdefault("add_generation_prompt", True)
        texts = [self.tokenizer.apply_chat_template(one, chat_template=chat_template, tokenize=False, **options)
                 for one in conversations]
        return list(conversations), self.render_cmpl(texts, self.default_chat_tok_params)

    def _tokens(self, prompt: Any, options: Dict[str, Any]) -> TokensPrompt:
        parsed = parse_prompt(prompt)
        if parsed.token_ids is None:
            parsed = truncated(parsed, {"add_special_tokens": True, **options}, self.tokenizer.encode, 1 << 30)
        tokens = TokensPrompt(prompt_token_ids=parsed.token_ids or [])
        if parsed.text is not None:
            tokens["prompt"] = parsed.text
        if parsed.cache_salt:
            tokens["cache_salt"] = parsed.cache_salt
        return tokens


__all__ = ["Renderer", "TokenizeParams"]
