from vllm import LLM, SamplingParams

prefix = "You are a teacher. These are the lines that were written in class today, one after the other, and all the same. " * 4
prompts = [prefix + each for each in ("First", "Second", "Third")]
params = SamplingParams(temperature=0.0, max_tokens=6)
regular = LLM(model="model", enable_prefix_caching=False, gpu_memory_utilization=0.4)
cached = LLM(model="model", enable_prefix_caching=True, gpu_memory_utilization=0.4)
cached.generate(prompts[0], params)
a = [output.outputs[0].text for output in regular.generate(prompts, params)]
outputs = cached.generate(prompts, params)
assert a == [output.outputs[0].text for output in outputs]
assert all(output.num_cached_tokens > 0 for output in outputs)
metrics = {metric.name: metric for metric in cached.get_metrics()}
assert metrics["vllm:prefix_cache_hits"].value > 0
