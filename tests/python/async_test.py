"""AsyncLLM: streams, cancellation, many at once."""
import asyncio
import time

import pytest

import penstock
from conftest import SMALL, STORIES
from penstock import AsyncEngineArgs, AsyncLLM, RequestOutputKind, SamplingParams


@pytest.fixture(scope="module")
def engine():
    engine = AsyncLLM(STORIES, max_num_seqs=16)
    yield engine
    engine.shutdown()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def collect(engine, prompt, params, name=None):
    return [output async for output in engine.generate(prompt, params, name)]


def params_of(kind, **more):
    return SamplingParams(**{"temperature": 0, "max_tokens": 12, "output_kind": kind, **more})


def test_kinds_agree(engine, stories):
    async def all_kinds():
        return await asyncio.gather(*(collect(engine, "Once upon a time", params_of(kind, logprobs=1))
                                      for kind in RequestOutputKind))
    cumulative, delta, final = run(all_kinds())
    whole = stories.generate("Once upon a time", params_of(RequestOutputKind.CUMULATIVE, logprobs=1))[0].outputs[0]
    assert len(final) == 1 and final[0].finished and final[0].outputs[0].text == whole.text
    assert cumulative[-1].finished and cumulative[-1].outputs[0].text == whole.text
    assert len(cumulative) > 3 and all(not output.finished for output in cumulative[:-1])
    for before, after in zip(cumulative, cumulative[1:]):
        assert after.outputs[0].text.startswith(before.outputs[0].text)
        assert after.outputs[0].token_ids[:len(before.outputs[0].token_ids)] == before.outputs[0].token_ids
    assert "".join(output.outputs[0].text for output in delta) == whole.text
    assert sum((output.outputs[0].token_ids for output in delta), []) == whole.token_ids
    assert sum((output.outputs[0].logprobs for output in delta), []) == whole.logprobs
    assert delta[-1].outputs[0].finish_reason == "length" and delta[-1].metrics is not None


def test_several_sequences(engine):
    async def one():
        texts = {}
        async for output in engine.generate("Once", params_of(RequestOutputKind.DELTA, n=3, temperature=0.9, seed=3), "n3"):
            for part in output.outputs:
                texts[part.index] = texts.get(part.index, "") + part.text
            last = output
        return texts, last
    texts, last = run(one())
    assert sorted(texts) == [0, 1, 2] and last.finished


def test_many_at_once(engine, stories):
    prompts = [f"There was a {i}" for i in range(40)]

    async def many():
        return await asyncio.gather(*(collect(engine, prompt, params_of(RequestOutputKind.FINAL_ONLY), f"r{i}")
                                      for i, prompt in enumerate(prompts)))
    outputs = run(many())
    expected = stories.generate(prompts, params_of(RequestOutputKind.FINAL_ONLY))
    assert [one[0].outputs[0].text for one in outputs] == [one.outputs[0].text for one in expected]
    assert [one[0].request_id for one in outputs] == [f"r{i}" for i in range(40)]


def test_leaving_early_ends_the_request(engine):
    async def leave():
        async for _ in engine.generate("Once", params_of(RequestOutputKind.DELTA, max_tokens=400, ignore_eos=True), "left"):
            break
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=400, ignore_eos=True)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadline = time.monotonic() + 5
        while engine._requests.n_open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert engine._requests.n_open == 0
        return [metric for metric in await engine.get_metrics() if metric.name == "vllm:num_requests_running"][0].value
    assert run(leave()) == 0


def test_abort_by_name(engine):
    async def aborted():
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=450, ignore_eos=True), "mine"))
        while "mine" not in engine._numbers:
            await asyncio.sleep(0.001)
        with pytest.raises(ValueError, match="running already"):
            await collect(engine, "Once", None, "mine")
        await engine.abort("mine")
        await engine.abort("nobody")
        return await task
    outputs = run(aborted())
    assert outputs[-1].outputs[0].finish_reason == "abort"


def test_errors_reach_their_own_stream(engine):
    def broken(ids, logits):
        raise ZeroDivisionError("mine")

    async def both():
        good = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.FINAL_ONLY)))
        with pytest.raises(ZeroDivisionError, match="mine"):
            await collect(engine, "Once", params_of(RequestOutputKind.DELTA, logits_processors=[broken]))
        with pytest.raises(ValueError, match="512"):
            await collect(engine, "word " * 3000, params_of(RequestOutputKind.DELTA))
        return await good
    assert run(both())[0].outputs[0].finish_reason == "length"


def test_two_loops_one_engine(engine):
    import threading
    texts = []

    def work():
        texts.append(run(collect(engine, "Once upon a time", params_of(RequestOutputKind.FINAL_ONLY)))[0].outputs[0].text)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4 and len(set(texts)) == 1


def test_shutdown_tells_who_waits():
    async def closed():
        engine = penstock.AsyncLLMEngine.from_engine_args(AsyncEngineArgs(SMALL))
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=500, ignore_eos=True)))
        await asyncio.sleep(0.02)
        await asyncio.get_running_loop().run_in_executor(None, engine.shutdown)
        try:
            outputs = await task
            assert outputs[-1].finished
        except penstock.EngineError:
            pass
        with pytest.raises(penstock.EngineError, match="closed"):
            await collect(engine, "Once", None)
        with pytest.raises(penstock.EngineError):
            await engine.check_health()
    run(closed())
