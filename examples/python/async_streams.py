"""Several stories at once, each as it is written. Usage: async_streams.py [MODEL]"""
import asyncio
import sys

from penstock import AsyncLLM, RequestOutputKind, SamplingParams


async def tell(engine, number, beginning):
    params = SamplingParams(max_tokens=30, seed=number, output_kind=RequestOutputKind.DELTA)
    async for output in engine.generate(beginning, params, request_id=f"story-{number}"):
        print(f"{number}: {output.outputs[0].text!r}")


async def main():
    engine = AsyncLLM(sys.argv[1] if len(sys.argv) > 1 else "")
    await asyncio.gather(*(tell(engine, number, beginning)
                           for number, beginning in enumerate(["Once upon a time", "The little dog", "It was cold"])))
    engine.shutdown()


asyncio.run(main())
