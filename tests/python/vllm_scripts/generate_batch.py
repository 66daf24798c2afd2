from vllm import LLM, SamplingParams

llm = LLM(model="model", enforce_eager=True, gpu_memory_utilization=0.5, max_model_len=256)
params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=8)
for output in llm.generate(["Hello, my name is", "The capital of France is"], params):
    print(f"{output.prompt!r} -> {output.outputs[0].text!r} {output.request_id} {output.finished}")
