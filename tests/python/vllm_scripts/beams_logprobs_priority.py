from vllm import LLM, SamplingParams, TokensPrompt
from vllm.inputs import TextPrompt
from vllm.lora.request import LoRARequest
from vllm.logprobs import Logprob
from vllm.sampling_params import BeamSearchParams

llm = LLM("model", scheduling_policy="priority", speculative_config={"method": "ngram", "num_speculative_tokens": 3,
                                                                     "prompt_lookup_max": 4}, seed=1)
found = llm.beam_search([{"prompt": "Once"}], BeamSearchParams(beam_width=2, max_tokens=4))
assert len(found[0].sequences) == 2
outputs = llm.generate([TextPrompt(prompt="Once"), TokensPrompt(prompt_token_ids=[1, 300])],
                       [SamplingParams(max_tokens=3, logprobs=2), SamplingParams(max_tokens=3, prompt_logprobs=1, n=2)],
                       priority=[0, 1], lora_request=None)
assert isinstance(next(iter(outputs[0].outputs[0].logprobs[0].values())), Logprob)
assert len(outputs[1].outputs) == 2 and LoRARequest
print(llm.get_tokenizer().decode(outputs[0].outputs[0].token_ids))
