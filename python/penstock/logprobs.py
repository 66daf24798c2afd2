"""Log-probabilities of tokens, in the form of `vllm.logprobs`."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional


@dataclass
class Logprob:
    """A token's log-probability before temperature, penalties and filters.

    Attributes:
        logprob: natural logarithm, at most 0.
        rank: 1 for the most likely token.
        decoded_token: text of the token; incomplete characters become U+FFFD.
    """

    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


LogprobsOnePosition = Dict[int, Logprob]
# The entry of a prompt's first token is None, since no token precedes it.
PromptLogprobs = List[Optional[LogprobsOnePosition]]
SampleLogprobs = List[LogprobsOnePosition]
