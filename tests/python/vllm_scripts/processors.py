from typing import Any

from vllm import LLM, SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, BatchUpdate, LogitsProcessor, RequestLogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


def asked(params: SamplingParams) -> int | None:
    return params.extra_args and params.extra_args.get("target_token")


class OnlyTarget(LogitsProcessor):
    @classmethod
    def validate_params(cls, params: SamplingParams):
        if not isinstance(asked(params), (int, type(None))):
            raise ValueError(f"target_token: {asked(params)}")

    def __init__(self, vllm_config: VllmConfig, device: Any, is_pin_memory: bool):
        assert vllm_config.model_config.model == "model" and device.type == "cpu"
        self.targets: dict[int, int] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None):
        process_dict_updates(self.targets, batch_update, lambda params, prompt, output: asked(params))

    def apply(self, logits):
        for row, target in self.targets.items():
            kept = logits[row, target].item()
            logits[row] = float("-inf")
            logits[row, target] = kept
        return logits


class Wrapped(AdapterLogitsProcessor):
    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        target = asked(params)

        def only(output_ids, logits):
            kept = logits[target].item()
            logits[:] = float("-inf")
            logits[target + len(output_ids)] = kept
            return logits
        return None if target is None else only


params = [SamplingParams(temperature=0, max_tokens=4, extra_args={"target_token": 300}), SamplingParams(temperature=0, max_tokens=4),
          SamplingParams(max_tokens=3, n=2, extra_args={"target_token": 310})]
llm = LLM("model", logits_processors=[OnlyTarget])
first, second, third = llm.generate(["Hello", "Hello", "Hello"], params)
assert first.outputs[0].token_ids == [300] * 4 and second.outputs[0].token_ids != [300] * 4
assert [one.token_ids for one in third.outputs] == [[310] * 3] * 2
try:
    llm.generate("Hello", SamplingParams(extra_args={"target_token": "x"}))
    raise AssertionError
except ValueError as error:
    assert "target_token: x" in str(error)
first, second, third = LLM("model", logits_processors=[Wrapped]).generate(["Hello", "Hello", "Hello"], params)
assert first.outputs[0].token_ids == [300, 301, 302, 303] and second.outputs[0].token_ids != first.outputs[0].token_ids
assert [one.token_ids for one in third.outputs] == [[310, 311, 312]] * 2
