"""Outputs as HTML for notebooks: the text, with tokens shaded by their probability."""
from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, List

if TYPE_CHECKING:
    from .outputs import CompletionOutput, RequestOutput


def _token(text: str, logprob: float) -> str:
    probability = math.exp(min(0.0, logprob))
    shade = 0.55 * (1.0 - probability)
    shown = html.escape(text).replace("\n", "&#8629;<br>")
    return (f'<span title="{probability:.1%}" style="background:rgba(214,90,49,{shade:.2f})">{shown}</span>')


def completion(output: "CompletionOutput") -> str:
    """Returns one text as HTML. With logprobs every token is shaded: the darker, the less likely."""
    if output.logprobs:
        parts: List[str] = []
        for token, row in zip(output.token_ids, output.logprobs):
            entry = row.get(token)
            if entry is not None:
                parts.append(_token(entry.decoded_token or "", entry.logprob))
        body = "".join(parts)
    else:
        body = html.escape(output.text).replace("\n", "<br>")
    end = "" if output.finish_reason is None else (
        f' <small style="opacity:.6">[{html.escape(output.finish_reason)}, {len(output.token_ids)} tokens]</small>')
    return f'<div style="white-space:pre-wrap">{body}{end}</div>'


def request(output: "RequestOutput") -> str:
    """Returns a prompt and its texts as HTML."""
    prompt = html.escape(output.prompt or f"({len(output.prompt_token_ids or [])} tokens)").replace("\n", "<br>")
    texts = "".join(f"<li>{completion(one)}</li>" for one in output.outputs)
    return f'<div><b>{prompt}</b><ol start="0">{texts}</ol></div>'
