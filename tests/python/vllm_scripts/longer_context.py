from vllm import LLM, SamplingParams

overrides = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
             "max_model_len": 2048}
params = SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=0)
text = "Once upon a time there was a dog. " * 20
plain, longer = LLM("directory-model"), LLM("directory-model", hf_overrides=overrides)
assert longer.model_config.max_model_len == 2048 and plain.model_config.max_model_len == 512
assert longer.model_config.hf_config.rope_parameters["factor"] == 4.0
long = longer.generate(text * 4, params)[0]
assert len(long.prompt_token_ids) > 512 and len(long.outputs[0].token_ids) == 4


def surprise(llm):
    rows = llm.generate(text, params)[0].prompt_logprobs[1:]
    return sum(next(iter(row.values())).logprob for row in rows)


assert surprise(plain) != surprise(longer)
