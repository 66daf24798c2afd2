"""Penstock as a model of the LM Evaluation Harness (lm-eval).

    python -m penstock.lm_eval_model --model penstock --model_args pretrained=model.gguf --tasks hellaswag,gsm8k

accepts lm-eval's own arguments. In other programs: importing this module registers the model "penstock".
"""
from __future__ import annotations

import itertools
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .llm import LLM
from .sampling_params import SamplingParams

Pair = Tuple[Optional[Tuple[str, str]], List[int], List[int]]


@register_model("penstock")  # type: ignore[untyped-decorator,unused-ignore]
class PenstockLM(TemplateLM):  # type: ignore[misc,unused-ignore]
    """Computes log-likelihoods and texts of whole tasks; the engine forms the batches.

    Args:
        pretrained: the model, as LLM takes it.
        max_gen_toks: maximum tokens of a text if the task does not set it.
        add_bos_token: whether the tokenizer's first token (BOS) is added to texts; None: as the tokenizer does.
        batch_size, device, max_batch_size: lm-eval's arguments; ignored.
        **arguments: arguments of LLM.
    """

    def __init__(self, pretrained: str = "", max_gen_toks: int = 256, add_bos_token: Optional[bool] = None,
                 batch_size: Any = "auto", device: Any = None, max_batch_size: Any = None, **arguments: Any) -> None:
        super().__init__()
        self._llm = LLM(pretrained, **arguments)
        self.tokenizer = self._llm.get_tokenizer()
        self.max_length = int(self._llm.info["max_model_len"])
        self.max_gen_toks = max_gen_toks
        self.add_bos_token = add_bos_token
        self.batch_size = batch_size
        self._name = pretrained or "penstock"

    @property
    def eot_token_id(self) -> int:
        """The end-of-sequence token."""
        return int(self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else 0)

    @property
    def prefix_token_id(self) -> int:
        """The token that precedes a text without context."""
        first = self.tokenizer.bos_token_id
        return int(first if first is not None else self.eot_token_id)

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches tokenized prompts."""
        return self._name.replace("/", "__")

    def chat_template(self, chat_template: Union[bool, str] = False) -> str:
        """Returns the model's chat template, for lm-eval's report."""
        return (self.tokenizer.chat_template or "") if chat_template else ""

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Returns the prompt of a conversation."""
        return str(self.tokenizer.apply_chat_template(chat_history, tokenize=False, add_generation_prompt=add_generation_prompt,
                                                      continue_final_message=not add_generation_prompt))

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> List[int]:
        """Returns token ids; by default with the tokenizer's first token, unless the text starts with it."""
        if add_special_tokens is None:
            first = self.tokenizer.bos_token
            add_special_tokens = self.add_bos_token is not False and not (first and string.startswith(first))
        return self.tokenizer.encode(string, add_special_tokens=add_special_tokens)

    def _loglikelihood_tokens(self, requests: Sequence[Pair], disable_tqdm: bool = False, **_: Any) -> List[Tuple[float, bool]]:
        most = self.max_length - 1
        prompts, n_scored = [], []
        for _key, context, continuation in requests:
            prompts.append((context + continuation)[-most:])
            n_scored.append(min(len(continuation), len(prompts[-1]) - 1))
        params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self._llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=not disable_tqdm)
        answers = []
        for (key, _context, _continuation), output, ids, n in zip(requests, outputs, prompts, n_scored):
            entries = [(output.prompt_logprobs or [])[i] or {} for i in range(len(ids) - n, len(ids))]
            found = [row[token] for row, token in zip(entries, ids[len(ids) - n:])]
            answers.append((sum(one.logprob for one in found), all(one.rank == 1 for one in found)))
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[float]:
        """Returns the log-likelihoods of whole texts, computed in windows of the model's context."""
        windows: List[List[Pair]] = []
        for (text,) in (request.args for request in requests):
            rolling = get_rolling_token_windows(token_list=self.tok_encode(text, add_special_tokens=False),
                                                prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 1,
                                                context_len=1)
            windows.append([(None, *make_disjoint_window(window)) for window in rolling])
        scores = iter(self._loglikelihood_tokens(list(itertools.chain(*windows)), disable_tqdm))
        sums = [sum(next(scores)[0] for _ in own) for own in windows]
        for request, total in zip(requests, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return sums

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> List[str]:
        """Generates texts up to a stop string or the task's token limit."""
        prompts, params = [], []
        for context, options in (request.args for request in requests):
            param = self._params(dict(options))
            ids = self.tok_encode(context)
            prompts.append({"prompt_token_ids": ids[-(self.max_length - (param.max_tokens or 1)):]})
            params.append(param)
        outputs = self._llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        texts = [output.outputs[0].text for output in outputs]
        for request, text in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts

    def _params(self, options: Dict[str, Any]) -> SamplingParams:
        until = options.pop("until", None) or []
        stop = [text for text in ([until] if isinstance(until, str) else until) if text]
        length = options.pop("max_gen_toks", None) or options.pop("max_tokens", None) or self.max_gen_toks
        sampled = options.pop("do_sample", None)
        if sampled is False or (sampled is None and "temperature" not in options):
            options["temperature"] = 0.0
        known = {name: value for name, value in options.items() if name in SamplingParams.__dataclass_fields__}
        return SamplingParams(max_tokens=min(int(length), self.max_length - 1), stop=stop, **known)


def main() -> None:
    """Runs lm-eval's program with the model "penstock" registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
