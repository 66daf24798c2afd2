"""Ctrl-C, exits, forks, several engines, memory: in processes of their own where they would end this one."""
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import penstock
from conftest import SMALL, STORIES
from penstock import SamplingParams

LONG = "SamplingParams(max_tokens=480, ignore_eos=True, temperature=0)"


def python(code, **more):
    code = f"import penstock, os, signal, threading, time, sys\nfrom penstock import *\nSTORIES={STORIES!r}\nSMALL={SMALL!r}\n" + \
        textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, **more)


def test_ctrl_c_stops_within_100_ms_and_leaves_the_engine_usable():
    result = python(f"""
        llm = LLM(STORIES)
        for _ in range(5):
            pressed = []
            def press():
                time.sleep(0.3)
                pressed.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=press).start()
            try:
                llm.generate(["Once"] * 2000, {LONG}, use_tqdm=False)
                print("not interrupted")
            except KeyboardInterrupt:
                print("took", time.monotonic() - pressed[0])
        print(llm.generate("Once", SamplingParams(max_tokens=3), use_tqdm=False)[0].outputs[0].finish_reason)
    """)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.split("\n")
    took = [float(line.split()[1]) for line in lines if line.startswith("took")]
    assert len(took) == 5 and "length" in lines
    assert sorted(took)[2] < 0.1


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit(0)"])
def test_exit_with_running_requests(end):
    result = python(f"""
        import asyncio
        llm = LLM(STORIES)
        engine = AsyncLLM(SMALL)
        threading.Thread(target=lambda: llm.generate(["Once"] * 500, {LONG}, use_tqdm=False), daemon=True).start()
        async def begin():
            stream = engine.generate("Once", {LONG}, "x")
            await stream.__anext__()
        asyncio.run(begin())
        time.sleep(0.2)
        print("here", flush=True)
        {end}
    """)
    assert result.returncode == 0 and "here" in result.stdout, (result.returncode, result.stderr)


def test_two_engines_in_one_process(stories):
    with penstock.LLM(SMALL) as other:
        one = stories.generate("Once", SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)[0].outputs[0].text
        two = other.generate("Once", SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)[0].outputs[0].text
    assert one and two
    assert stories.generate("Once", SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)[0].outputs[0].text == one


def test_a_forked_process_is_told(stories):
    stories.generate("Once", SamplingParams(max_tokens=1), use_tqdm=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            stories.generate("Once", SamplingParams(max_tokens=1), use_tqdm=False)
            said = "nothing"
        except penstock.EngineError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert "fork" in said and "spawn" in said


def _child(path, queue):
    with penstock.LLM(path) as llm:
        queue.put(llm.generate("Once", SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)[0].outputs[0].text)


def test_spawned_processes(stories):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(STORIES, queue)) for _ in range(2)]
    for child in children:
        child.start()
    texts = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    expected = stories.generate("Once", SamplingParams(temperature=0, max_tokens=4), use_tqdm=False)[0].outputs[0].text
    assert texts == [expected] * 2


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_nothing_leaks():
    """Opens and requests, after a first round that fills pools; many more with PENSTOCK_LEAK_ROUNDS."""
    rounds = int(os.environ.get("PENSTOCK_LEAK_ROUNDS", "1"))

    def opens(n):
        for _ in range(n):
            with penstock.LLM(SMALL, max_num_seqs=4, kv_cache_memory_bytes=8 << 20) as llm:
                llm.generate("Once", SamplingParams(max_tokens=1), use_tqdm=False)

    def requests(llm, n):
        prompts = [f"Number {i % 50}" for i in range(1000)]
        for _ in range(n):
            llm.generate(prompts, SamplingParams(max_tokens=2, logprobs=1), use_tqdm=False)

    opens(20)
    before = resident()
    opens(100 * rounds)
    assert resident() - before < 8 << 20
    with penstock.LLM(SMALL) as llm:
        requests(llm, 2)
        before = resident()
        requests(llm, 4 * rounds)
        assert resident() - before < 8 << 20


def test_signals_of_the_program():
    program = subprocess.Popen([sys.executable, "-m", "penstock", "serve", "-m", SMALL, "--port", "0"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) in (0, 130)


def test_the_module_runs_the_story():
    result = subprocess.run([sys.executable, "-m", "penstock"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "Once upon a time" in result.stdout
    result = subprocess.run([sys.executable, "-m", "penstock", "nonsense"], capture_output=True, text=True)
    assert result.returncode == 2
