import asyncio

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM


async def main():
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model="model", enforce_eager=True))
    counts = []

    async def generate():
        async for output in engine.generate(request_id="one", prompt="Once upon a time",
                                            sampling_params=SamplingParams(max_tokens=200, ignore_eos=True)):
            counts.append(len(output.outputs[0].token_ids))
        return output

    async def control():
        while len(counts) < 3:
            await asyncio.sleep(0.001)
        await engine.pause_generation(mode="keep")
        await asyncio.sleep(0.15)
        held = len(counts)
        await asyncio.sleep(0.15)
        assert len(counts) == held < 200 and await engine.is_paused()
        await engine.resume_generation()

    last, _ = await asyncio.gather(generate(), control())
    assert last.finished and len(last.outputs[0].token_ids) == 200
    assert not engine.errored and engine.is_running and engine.model_config.hf_config is None
    engine.shutdown()


asyncio.run(main())
