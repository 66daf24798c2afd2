"""LoRA adapters of single requests, as vLLM has them."""
import asyncio
import sys

import pytest

import penstock
from penstock import LoRARequest, SamplingParams

from conftest import ROOT, SMALL

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from lora_model import write_adapter  # noqa: E402

GREEDY = SamplingParams(max_tokens=24, temperature=0)
SHAPES = ROOT / "models" / "penstock-stories-1m-bf16"  # the same model, in another format
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [LoRARequest(f"style{i}", i, str(write_adapter(folder / str(i), SHAPES, seed=i))) for i in range(1, 5)]


@pytest.fixture(scope="module")
def adapted():
    with penstock.LLM(SMALL, enable_lora=True, max_loras=2, max_lora_rank=16, batch_invariant=True) as llm:
        yield llm


def texts(outputs):
    return [output.outputs[0].text for output in outputs]


def test_one_for_each_prompt(adapted, adapters):
    each = [None, *adapters] * 3
    outputs = adapted.generate([PROMPT] * len(each), GREEDY, lora_request=each)
    assert [output.lora_request for output in outputs] == each
    alone = [texts(adapted.generate(PROMPT, GREEDY, lora_request=one))[0] for one in [None, *adapters]]
    assert texts(outputs) == alone * 3
    assert len(set(alone)) == 5
    assert texts(adapted.generate([PROMPT] * 2, GREEDY, lora_request=adapters[0])) == [alone[1]] * 2
    with pytest.raises(ValueError, match="expected one or 2"):
        adapted.generate([PROMPT] * 2, GREEDY, lora_request=adapters)


def test_directories_and_files_agree(adapted, adapters):
    with penstock.LLM(str(SHAPES), enable_lora=True) as llm:
        prompt_logprobs = SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0)
        sums = []
        for one in (llm, adapted):
            rows = one.generate("The dog saw a cat.", prompt_logprobs, lora_request=adapters[2])[0].prompt_logprobs
            sums.append(sum(next(iter(row.values())).logprob for row in rows[1:]))
        assert sums[0] == pytest.approx(sums[1], rel=0.02)  # BF16 against Q8_0


def test_refused(adapted, adapters, stories, tmp_path):
    with pytest.raises(ValueError, match="not enabled"):
        stories.generate(PROMPT, GREEDY, lora_request=adapters[0])
    with pytest.raises(TypeError, match="LoRARequest"):
        adapted.generate(PROMPT, GREEDY, lora_request="style")
    with pytest.raises(ValueError, match="is that of"):
        adapted.generate(PROMPT, GREEDY, lora_request=LoRARequest("other", 1, adapters[1].lora_path))
    with pytest.raises(FileNotFoundError):
        adapted.generate(PROMPT, GREEDY, lora_request=LoRARequest("other", 9, str(tmp_path / "none")))
    wide = write_adapter(tmp_path / "wide", SHAPES, rank=17)
    with pytest.raises(ValueError, match="max_lora_rank"):
        adapted.generate(PROMPT, GREEDY, lora_request=LoRARequest("wide", 9, str(wide)))
    assert texts(adapted.generate(PROMPT, GREEDY, lora_request=adapters[0]))[0]


def test_replaced_in_place(adapted, adapters):
    first = LoRARequest("new", 20, adapters[0].lora_path)
    second = LoRARequest("new", 20, adapters[1].lora_path, load_inplace=True)
    got = [texts(adapted.generate(PROMPT, GREEDY, lora_request=one))[0] for one in (first, second)]
    assert got == [texts(adapted.generate(PROMPT, GREEDY, lora_request=one))[0] for one in adapters[:2]]


def test_files_that_change_in_place(adapted, adapters, tmp_path):
    """A folder that training writes again and again: with load_inplace its new weights are used, without it the opened ones."""
    folder = tmp_path / "trained"
    found = []
    for seed in (1, 2):
        write_adapter(folder, SHAPES, seed=seed)
        for one in (LoRARequest("kept", 21, str(folder)), LoRARequest("trained", 22, str(folder), load_inplace=True)):
            found.append(texts(adapted.generate(PROMPT, GREEDY, lora_request=one))[0])
    first, second = (texts(adapted.generate(PROMPT, GREEDY, lora_request=one))[0] for one in adapters[:2])
    assert found == [first, first, first, second]


def test_sleeping(adapters):
    with penstock.LLM(SMALL, enable_lora=True) as llm:
        before = texts(llm.generate(PROMPT, GREEDY, lora_request=adapters[0]))
        llm.sleep()
        llm.wake_up()
        assert texts(llm.generate(PROMPT, GREEDY, lora_request=adapters[0])) == before


def test_async(adapters):
    async def run():
        engine = penstock.AsyncLLM(SMALL, enable_lora=True, max_loras=1)
        try:
            assert await engine.add_lora(adapters[0])
            assert not await engine.add_lora(adapters[0])

            async def text(request):
                async for output in engine.generate(PROMPT, GREEDY, lora_request=request):
                    last = output
                return last.outputs[0].text
            found = await asyncio.gather(*(text(one) for one in [None, *adapters] * 2))
            assert await engine.list_loras() == {1, 2, 3, 4}
            assert await engine.remove_lora(1) and not await engine.remove_lora(1)
            return found
        finally:
            engine.shutdown()
    found = asyncio.run(run())
    assert found[:5] == found[5:]
    assert len(set(found)) == 5
