import argparse

from vllm import EngineArgs, LLMEngine, RequestOutput, SamplingParams
from vllm.lora.request import LoRARequest
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parse() -> argparse.Namespace:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(description="requests one by one"))
    parser.set_defaults(model="model")
    return parser.parse_args(["--max-num-seqs", "4", "-tp=1"])


engine = LLMEngine.from_engine_args(EngineArgs.from_cli_args(parse()), usage_context=UsageContext.LLM_CLASS)
waiting = [("A robot", SamplingParams(temperature=0.0, logprobs=1, prompt_logprobs=1, max_tokens=6)),
           ("To be", SamplingParams(temperature=0.8, top_k=5, presence_penalty=0.2, max_tokens=9)),
           ("What is", SamplingParams(n=2, temperature=0.8, top_p=0.95, frequency_penalty=0.1, max_tokens=4))]
done: list[RequestOutput] = []
n_steps = 0
while waiting or engine.has_unfinished_requests():
    if waiting:
        prompt, params = waiting.pop(0)
        engine.add_request(str(len(waiting)), prompt, params, lora_request=None)
    if n_steps == 2:
        engine.reset_prefix_cache(reset_running_requests=True)
    done += [output for output in engine.step() if output.finished]
    n_steps += 1
assert sorted(output.request_id for output in done) == ["0", "1", "2"]
assert sorted(len(output.outputs) for output in done) == [1, 1, 2] and LoRARequest
engine.add_request("left", "Once", SamplingParams(max_tokens=400, ignore_eos=True))
engine.abort_request(["left"])
while engine.has_unfinished_requests():
    last = engine.step()
print(last[0].outputs[0].finish_reason, engine.model_config.max_model_len)
