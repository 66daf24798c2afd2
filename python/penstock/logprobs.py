"""Log-probabilities of tokens, as vLLM's `vllm.logprobs` has them."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional


@dataclass
class Logprob:
    """A token's log-probability before temperature, penalties and filters.

    Attributes:
        logprob: natural logarithm, at most 0.
        rank: 1 for the most likely token.
        decoded_token: what the token adds to a text; what is no whole character becomes U+FFFD.
    """

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


LogprobsOnePosition = Dict[int, Logprob]
# The first of a prompt is None: nothing precedes it.
PromptLogprobs = List[Optional[LogprobsOnePosition]]
SampleLogprobs = List[LogprobsOnePosition]
