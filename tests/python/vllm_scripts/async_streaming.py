import asyncio

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM


async def stream(engine, prompt, request_id):
    params = SamplingParams(max_tokens=20, temperature=0.8, seed=42, output_kind=RequestOutputKind.DELTA)
    async for output in engine.generate(request_id=request_id, prompt=prompt, sampling_params=params):
        for completion in output.outputs:
            print(completion.text, end="", flush=True)
        if output.finished:
            break


async def main():
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model="model", enforce_eager=True))
    try:
        for i, prompt in enumerate(["The future of", "In a galaxy", "The key to"]):
            await stream(engine, prompt, f"stream-{i}")
    finally:
        engine.shutdown()


asyncio.run(main())
