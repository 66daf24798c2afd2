"""AsyncLLM: streams, cancellation, many at once."""
import asyncio
import gc
import json
import os
import resource
import time
import weakref

import pytest

import penstock
from conftest import ROOT, SMALL, STORIES
from penstock import AsyncEngineArgs, AsyncLLM, PoolingParams, RequestOutputKind, SamplingParams


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


@pytest.mark.parametrize("interval", [1, 4])
def test_deltas_of_several_sequences_are_their_texts(engine, stories, interval):
    """Sequences that end at different times: each is told once, with its end, and nothing of it comes again."""
    for seed in range(4):
        ends = dict(n=4, temperature=1.3, seed=seed, max_tokens=40, logprobs=1, stop=["."])
        whole = stories.generate("Once upon a time", SamplingParams(**ends))[0].outputs
        assert len({len(one.token_ids) for one in whole}) > 1
        outputs = run(collect(engine, "Once upon a time", SamplingParams(
            output_kind=RequestOutputKind.DELTA, stream_interval=interval, **ends)))
        parts = [part for output in outputs for part in output.outputs]
        assert outputs[-1].finished and not any(output.finished for output in outputs[:-1])
        for one in whole:
            own = [part for part in parts if part.index == one.index]
            assert "".join(part.text for part in own) == one.text
            assert sum((part.token_ids for part in own), []) == one.token_ids
            assert sum((part.logprobs for part in own), []) == one.logprobs
            assert [part.finish_reason for part in own] == [None] * (len(own) - 1) + [one.finish_reason]
            assert own[-1].stop_reason == one.stop_reason
            assert own[-1].cumulative_logprob == pytest.approx(one.cumulative_logprob, abs=1e-4)


def test_ends_of_several_sequences_in_whole_outputs(engine):
    outputs = run(collect(engine, "Once upon a time", SamplingParams(n=3, temperature=1.3, seed=1, max_tokens=40, stop=["."])))
    for before, after in zip(outputs, outputs[1:]):
        told = {part.index: part for part in after.outputs}
        for part in before.outputs:
            assert told[part.index].text.startswith(part.text)
            if part.finished():
                assert (told[part.index].text, told[part.index].finish_reason) == (part.text, part.finish_reason)


def test_intervals(engine):
    def n_outputs(**more):
        return len(run(collect(engine, "Once upon a time", params_of(more.pop("kind"), max_tokens=40, ignore_eos=True, **more))))
    for kind in (RequestOutputKind.CUMULATIVE, RequestOutputKind.DELTA):
        assert n_outputs(kind=kind, stream_interval=10) <= n_outputs(kind=kind) // 4
    slow = AsyncLLM(SMALL, stream_interval=10)
    outputs = run(collect(slow, "Once", params_of(RequestOutputKind.DELTA, max_tokens=40, ignore_eos=True)))
    assert len(outputs) <= 8 and sum(len(output.outputs[0].token_ids) for output in outputs) == 40
    slow.shutdown()


def test_whole_texts_whatever_the_kind(stories):
    texts = {stories.generate("Once upon a time", params_of(kind))[0].outputs[0].text for kind in RequestOutputKind}
    assert len(texts) == 1


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
        while engine._follower.n_open and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert engine._follower.n_open == 0
        return [metric for metric in await engine.get_metrics() if metric.name == "vllm:num_requests_running"][0].value
    assert run(leave()) == 0


@pytest.mark.parametrize("n_turns", range(1, 6))
def test_leaving_before_the_request_is_submitted(engine, n_turns):
    async def leave():
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=400, ignore_eos=True), "early"))
        with engine._follower._lock:  # as if other callers were submitting
            for _ in range(n_turns):
                await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.sleep(0.02)
        assert engine._follower.n_open == 0
        assert (await collect(engine, "Once", params_of(RequestOutputKind.FINAL_ONLY), "early"))[0].finished
    run(leave())


def test_abort_by_name(engine):
    async def aborted():
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=450, ignore_eos=True), "mine"))
        while not engine._follower.numbers(["mine"]):
            await asyncio.sleep(0.001)
        with pytest.raises(ValueError, match="running already"):
            await collect(engine, "Once", None, "mine")
        await engine.abort("mine", internal=False)
        await engine.abort(["nobody"], internal=True)
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


def threads_of_this_process():
    return len(os.listdir("/proc/self/task"))


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_a_dropped_engine_is_freed():
    """As shutdown() frees it: its threads and its memory; with requests that nobody waits for any more, too."""
    def drop(with_request):
        engine = AsyncLLM(SMALL, threads=1, kv_cache_memory_bytes=8 << 20)

        async def begin():
            await engine.generate("Once", params_of(RequestOutputKind.DELTA, max_tokens=400, ignore_eos=True)).__anext__()
        if with_request:
            asyncio.run(begin())
        return weakref.ref(engine)

    drop(True)
    gc.collect()
    n_threads = threads_of_this_process()
    for _ in range(3):
        assert drop(False)() is None
    before = resident()
    for i in range(12):
        name = drop(i % 2 == 0)
        gc.collect()
        assert name() is None
    end = time.monotonic() + 10  # the system lists a thread for a moment after it was joined
    while threads_of_this_process() > n_threads and time.monotonic() < end:
        time.sleep(0.01)
    assert threads_of_this_process() <= n_threads
    assert resident() - before < 16 << 20


def test_pause_and_resume(engine):
    long = params_of(RequestOutputKind.DELTA, max_tokens=120, ignore_eos=True)

    async def paused(mode):
        task = asyncio.create_task(collect(engine, "Once", long, "old"))
        while not engine._follower.numbers(["old"]):
            await asyncio.sleep(0.001)
        await engine.pause_generation(mode=mode)
        assert await engine.is_paused()
        late = asyncio.create_task(collect(engine, "Once", long, "late"))
        await asyncio.sleep(0.1)
        assert not late.done() and task.done() is (mode != "keep")
        await engine.resume_generation()
        old, new = await asyncio.gather(task, late)
        n_tokens = [sum(len(output.outputs[0].token_ids) for output in outputs) for outputs in (old, new)]
        return n_tokens, old[-1].outputs[0].finish_reason
    assert run(paused("keep")) == ([120, 120], "length")
    assert run(paused("wait")) == ([120, 120], "length")
    (n_old, n_new), reason = run(paused("abort"))
    assert n_old < 120 and n_new == 120 and reason == "abort"
    with pytest.raises(ValueError, match="mode"):
        run(engine.pause_generation(mode="later"))


def test_waiting_for_the_end_and_profiles(tmp_path):
    async def drained():
        engine = AsyncLLM(SMALL, profiler_config={"torch_profiler_dir": str(tmp_path / "profiles")})
        try:
            await engine.start_profile("mine")
            task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.CUMULATIVE, max_tokens=200, ignore_eos=True)))
            while engine.get_num_unfinished_requests() == 0:
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError, match="1 requests run"):
                await engine.pause_generation(mode="keep")
                await engine.wait_for_requests_to_drain(0.05)
            await engine.resume_generation()
            await engine.wait_for_requests_to_drain()
            assert engine.get_num_unfinished_requests() == 0 and len((await task)[-1].outputs[0].token_ids) == 200
            report = json.loads(open(await engine.stop_profile()).read())
            assert sorted((tmp_path / "profiles").glob("mine-*.json")) and report["wall_seconds"] > 0
            ids = engine.tokenizer.encode("A dog")
            assert engine.tokenizer.decode(ids, skip_special_tokens=True).strip() == "A dog"
        finally:
            engine.shutdown()
    run(drained())


def test_sleep_and_wake_up():
    async def through():
        engine = AsyncLLM(SMALL)
        before = await collect(engine, "Once", params_of(RequestOutputKind.FINAL_ONLY))
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.DELTA, max_tokens=450, ignore_eos=True), "x"))
        while not engine._follower.numbers(["x"]):
            await asyncio.sleep(0.001)
        await engine.sleep()
        with pytest.raises(penstock.EngineError, match="sleep"):
            await task
        assert await engine.is_sleeping() and not engine.errored
        with pytest.raises(penstock.EngineError, match="asleep"):
            await collect(engine, "Once", None)
        with pytest.raises(ValueError, match="tags"):
            await engine.wake_up(["everything"])
        await engine.wake_up(["weights", "kv_cache"])
        after = await collect(engine, "Once", params_of(RequestOutputKind.FINAL_ONLY))
        assert after[0].outputs[0].text == before[0].outputs[0].text
        with pytest.raises(ValueError, match="mode"):
            await engine.sleep(mode="keep")
        engine.shutdown()
        assert engine.errored and "closed" in str(engine.dead_error) and engine.is_stopped
    run(through())


def test_shutdown_waits_as_long_as_it_is_told():
    async def ended(**more):
        engine = AsyncLLM(SMALL, **more)
        task = asyncio.create_task(collect(engine, "Once", params_of(RequestOutputKind.FINAL_ONLY, max_tokens=300, ignore_eos=True), "x"))
        while not engine._follower.numbers(["x"]) and not task.done():  # a busy machine may see its end first
            await asyncio.sleep(0.001)
        await asyncio.get_running_loop().run_in_executor(None, engine.shutdown)
        return await task
    assert run(ended(shutdown_timeout=30))[0].outputs[0].finish_reason == "length"


def test_encode():
    async def vectors():
        engine = AsyncLLM(str(ROOT / "tests/golden/sentences/mean_normalized"))
        try:
            (one,) = [output async for output in engine.encode("A text", PoolingParams(task="token_embed"), "mine")]
            assert one.request_id == "mine" and one.outputs.data.shape[0] == len(one.prompt_token_ids)
            (whole,) = [output async for output in engine.encode("A text")]
            assert whole.outputs.data.ndim == 1 and (await engine.get_tokenizer()).encode("A text") == whole.prompt_token_ids
            with pytest.raises(ValueError, match="pooling"):
                await collect(engine, "x", None)
            assert "embed" in await engine.get_supported_tasks() and (await engine.get_metrics())[0].value > 0
        finally:
            engine.shutdown()
    run(vectors())


def test_encode_of_a_model_of_text(engine):
    with pytest.raises(ValueError, match="runner='pooling'"):
        run(engine.encode("x").__anext__())
