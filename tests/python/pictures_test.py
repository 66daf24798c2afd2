"""Pictures in Python, as vLLM's offline examples give them: replies of tiny models that see are transformers' (tests/golden/seeing)."""
import asyncio
import base64
import io
import json
import wave

import numpy
import pytest
from PIL import Image

import penstock
from conftest import ROOT
from penstock import SamplingParams
from penstock._pictures import file_of

SEEING, EARS = ROOT / "tests/golden/seeing", ROOT / "tests/golden/hearing"
HEARING = EARS / "qwen2_audio"
PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
ARGUMENTS = dict(max_model_len=512, kv_cache_dtype="f32", threads=2)


def talks_of(name):
    return json.loads((SEEING / name / "golden.json").read_text())


def images_of(talk):
    return [Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].split(",")[1])))
            for message in talk["messages"] for part in message["content"] if part["type"] == "image_url"]


def with_parts(talk, part_of):
    """The conversation with part_of(image) in place of each picture."""
    images = iter(images_of(talk))
    return [{**message, "content": [part_of(next(images)) if part["type"] == "image_url" else part for part in message["content"]]}
            for message in talk["messages"]]


def expect(output, talk):
    assert output.prompt_token_ids == talk["prompt"]
    assert output.outputs[0].token_ids == talk["reply"]


@pytest.fixture(scope="module")
def qwen():
    with penstock.LLM(str(SEEING / "qwen3_vl"), **ARGUMENTS) as llm:
        yield llm


@pytest.fixture(scope="module")
def gemma():
    with penstock.LLM(str(SEEING / "gemma3"), **ARGUMENTS) as llm:
        yield llm


def test_chat(qwen):
    talks = talks_of("qwen3_vl")
    for part_of in [lambda image: {"type": "image_pil", "image_pil": image},
                    lambda image: {"type": "image", "image": numpy.asarray(image)}]:
        for output, talk in zip(qwen.chat([with_parts(talk, part_of) for talk in talks], PARAMS), talks):
            expect(output, talk)
    expect(qwen.chat(talks[1]["messages"], PARAMS)[0], talks[1])  # data URLs
    qwen.enqueue_chat(talks[0]["messages"], PARAMS)
    expect(qwen.wait_for_completion()[0], talks[0])


@pytest.mark.parametrize("name", ["gemma3", "gemma4", "smolvlm"])
def test_chat_of_others(name):
    talks = talks_of(name)
    with penstock.LLM(str(SEEING / name), **ARGUMENTS) as llm:
        for part_of in [lambda image: {"type": "image_pil", "image_pil": image},
                        lambda image: {"type": "image", "image": numpy.asarray(image)}]:
            for output, talk in zip(llm.chat([with_parts(talk, part_of) for talk in talks], PARAMS), talks):
                expect(output, talk)


@pytest.mark.parametrize("name", ["qwen3_vl", "gemma3"])
def test_prompts_with_placeholders(name, request):
    llm = request.getfixturevalue({"qwen3_vl": "qwen", "gemma3": "gemma"}[name])
    place = {"qwen3_vl": "<|vision_start|><|image_pad|><|vision_end|>", "gemma3": "<start_of_image>"}[name]
    talks = talks_of(name)
    prompts = []
    for talk in talks[:2]:
        words = "".join(place if part["type"] == "image_url" else part["text"] for part in talk["messages"][0]["content"])
        prompts.append({"prompt": f"user: {words}<eos>\nassistant:", "multi_modal_data": {"image": images_of(talk)}})
    for output, talk, prompt in zip(llm.generate(prompts, PARAMS), talks, prompts):
        expect(output, talk)
        assert output.prompt == prompt["prompt"]
    ids = llm.get_tokenizer().encode(prompts[1]["prompt"])
    data = {"image": [numpy.asarray(image).transpose(2, 0, 1) for image in images_of(talks[1])]}
    output = llm.generate({"prompt_token_ids": ids, "multi_modal_data": data}, PARAMS)[0]
    assert len(output.prompt_token_ids) == len(talks[1]["prompt"]) > len(ids)
    if name == "qwen3_vl":  # gemma's text around a picture makes other tokens with its neighbours
        expect(output, talks[1])


def videos_of(talk):
    """[(frames as PIL images, fps or None)]"""
    return [([Image.open(io.BytesIO(base64.b64decode(frame))) for frame in part["video_url"]["url"].split(",")[1:]], part.get("fps"))
            for message in talk["messages"] for part in message["content"] if part["type"] == "video_url"]


def test_videos(qwen):
    talks = json.loads((SEEING / "qwen3_vl" / "videos.json").read_text())
    for output, talk in zip(qwen.chat([talk["messages"] for talk in talks], PARAMS), talks):
        expect(output, talk)
    place = "<|vision_start|><|video_pad|><|vision_end|>"
    for talk in talks[:2]:
        [(frames, fps)] = videos_of(talk)
        words = "".join(place if part["type"] == "video_url" else part["text"] for part in talk["messages"][0]["content"])
        array = numpy.stack([numpy.asarray(frame) for frame in frames])
        metadata = {"fps": fps, "total_num_frames": len(frames), "video_backend": "none"} if fps else {"do_sample_frames": False}
        for video in (frames, array, (array, metadata), [frames], [(array, metadata)]):
            if fps and not (isinstance(video, tuple) or isinstance(video[0], tuple)):
                continue
            output = qwen.generate({"prompt": f"user: {words}<eos>\nassistant:", "multi_modal_data": {"video": video}}, PARAMS)[0]
            expect(output, talk)
    frames, _ = videos_of(talks[0])[0]
    text = talks[0]["messages"][0]["content"][1]
    expect(qwen.chat([{"role": "user", "content": [{"type": "video", "video": frames}, text]}], PARAMS)[0], talks[0])


@pytest.mark.parametrize("video, words", [
    ("movie.mp4", "expected a list of frames"),
    ([b"no image"], "frame 0"),
    (numpy.zeros((2, 8, 8, 3), numpy.float32), "frame 0: expected a PIL image"),
    ((numpy.zeros((2, 8, 8, 3), numpy.uint8), {"fps": -1}), "fps: expected a number above 0"),
])
def test_videos_that_are_refused(qwen, video, words):
    prompt = {"prompt": "<|video_pad|>", "multi_modal_data": {"video": video}}
    with pytest.raises((ValueError, TypeError), match=words):
        qwen.generate(prompt, PARAMS)


@pytest.mark.parametrize("name", ["qwen2_audio", "ultravox", "granite_speech", "gemma3n"])
def test_sounds_of_conversations(name):
    with penstock.LLM(str(EARS / name), limit_mm_per_prompt={"image": 0}, **ARGUMENTS) as llm:
        for talk in json.loads((EARS / name / "golden.json").read_text()):
            expect(llm.chat(talk["messages"], PARAMS)[0], talk)


@pytest.mark.parametrize("name", ["qwen2_5_omni", "qwen3_omni", "gemma4"])
def test_pictures_and_sounds_of_conversations(name):
    talks = json.loads((EARS / name / "golden.json").read_text())
    with pytest.raises(ValueError, match="limit_mm_per_prompt: expected image, video or audio, got 'images'"):
        penstock.LLM(str(EARS / name), limit_mm_per_prompt={"images": 1}, **ARGUMENTS)
    with penstock.LLM(str(EARS / name), limit_mm_per_prompt={"image": 1}, **ARGUMENTS) as llm:  # sounds do not count
        for output, talk in zip(llm.chat([talk["messages"] for talk in talks], PARAMS), talks):
            expect(output, talk)
        two = [part for part in talks[3]["messages"][0]["content"] if part["type"] == "image_url"] * 2
        with pytest.raises(ValueError, match="limit_mm_per_prompt: expected at most 1 pictures in a prompt, got 2"):
            llm.chat([{"role": "user", "content": two}], PARAMS)


def test_sounds_of_prompts():
    talk = json.loads((HEARING / "golden.json").read_text())[0]
    sound, text = talk["messages"][0]["content"]
    file = base64.b64decode(sound["input_audio"]["data"])
    with wave.open(io.BytesIO(file)) as opened:
        samples, rate = numpy.frombuffer(opened.readframes(opened.getnframes()), "<i2"), opened.getframerate()
    prompt = f"user: <|audio_bos|><|AUDIO|><|audio_eos|>{text['text']}<eos>\nassistant:"
    with penstock.LLM(str(HEARING), **ARGUMENTS) as llm:
        for audio in (file, (samples, rate), [(samples.astype(numpy.float32) / 32768, rate)]):
            expect(llm.generate({"prompt": prompt, "multi_modal_data": {"audio": audio}}, PARAMS)[0], talk)
        for audio, words in [(samples, "expected a tuple of samples"), ((samples[:, None], rate), "one channel"), (b"no", "audio 0: ")]:
            with pytest.raises(ValueError, match=words):
                llm.generate({"prompt": prompt, "multi_modal_data": {"audio": audio}}, PARAMS)


def test_async_and_steps(qwen):
    talk = talks_of("qwen3_vl")[0]
    prompt = {"prompt": "user: <|vision_start|><|image_pad|><|vision_end|>What is in this picture?<eos>\nassistant:",
              "multi_modal_data": {"image": images_of(talk)[0]}}
    steps, outputs = qwen.llm_engine, []
    steps.add_request("a", prompt, PARAMS)
    while steps.has_unfinished_requests():
        outputs += steps.step()
    expect(outputs[-1], talk)

    async def stream():
        engine = penstock.AsyncLLM(str(SEEING / "qwen3_vl"), **ARGUMENTS)
        try:
            return [output async for output in engine.generate(prompt, PARAMS, "b")]
        finally:
            engine.shutdown()
    expect(asyncio.run(stream())[-1], talk)


def test_settings_of_the_processor(qwen):
    image = Image.fromarray(numpy.zeros((64, 64, 3), numpy.uint8))
    prompt = {"prompt": "<|vision_start|><|image_pad|><|vision_end|>", "multi_modal_data": {"image": image}}
    whole = len(qwen.generate(prompt, PARAMS)[0].prompt_token_ids)
    assert whole == 66
    small = {"size": {"shortest_edge": 256, "longest_edge": 1024}}
    assert len(qwen.generate(prompt, PARAMS, mm_processor_kwargs=small)[0].prompt_token_ids) == 18
    assert len(qwen.generate({**prompt, "mm_processor_kwargs": small}, PARAMS)[0].prompt_token_ids) == 18
    parts = [{"role": "user", "content": [{"type": "image_pil", "image_pil": image}]}]
    large, little = (len(qwen.chat(parts, PARAMS, mm_processor_kwargs=one)[0].prompt_token_ids) for one in (None, small))
    assert large - little == whole - 18
    with pytest.raises(ValueError, match='mm_processor_kwargs: .*"colours" is not known'):
        qwen.generate(prompt, PARAMS, mm_processor_kwargs={"colours": 2})
    with penstock.LLM(str(SEEING / "qwen3_vl"), mm_processor_kwargs=small, limit_mm_per_prompt={"image": {"count": 1}}, **ARGUMENTS) as llm:
        assert len(llm.generate(prompt, PARAMS)[0].prompt_token_ids) == 18
        two = {"prompt": prompt["prompt"] * 2, "multi_modal_data": {"image": [image, image]}}
        with pytest.raises(ValueError, match="limit_mm_per_prompt: expected at most 1 pictures in a prompt, got 2"):
            llm.generate(two, PARAMS)
        with pytest.raises(ValueError, match="limit_mm_per_prompt"):
            llm.chat(talks_of("qwen3_vl")[1]["messages"], PARAMS)


def test_pixels():
    """What becomes of images that are not RGB: transparent pixels go on white, as in transformers."""
    def pixels(image):
        return numpy.asarray(Image.open(io.BytesIO(file_of(image, "x"))))
    drawn = numpy.random.RandomState(1).randint(0, 255, (5, 7, 3), numpy.uint8)
    for same in [drawn, Image.fromarray(drawn), drawn.transpose(2, 0, 1), file_of(drawn, "x")]:
        assert (pixels(same) == drawn).all()
    assert (pixels(drawn[:, :, 0]) == drawn[:, :, :1]).all()
    assert (pixels(Image.fromarray(drawn[:, :, 0])) == drawn[:, :, :1]).all()
    clear = Image.fromarray(numpy.dstack([drawn, numpy.full((5, 7), 0, numpy.uint8)]))
    assert (pixels(clear) == 255).all()


@pytest.mark.parametrize("data, error, words", [
    ({"image": 1}, ValueError, "image 0: expected a PIL image"), ({"video": [1]}, ValueError, "video 0: expected a list of frames"),
    ([1], TypeError, "dictionary"), ({"image": [numpy.zeros((4, 4, 3))]}, ValueError, "image 0: .*float64"),
    ({"image": numpy.zeros((4, 4, 5), numpy.uint8)}, ValueError, r"\[4, 4, 5\]"), ({"image": b"no"}, ValueError, "image 0: "),
    ({"image": [Image.new("RGB", (8, 8))] * 2}, ValueError, r"expected <\|image_pad\|> 2 times, once for each picture, got 1"),
    ({"image": [Image.new("RGB", (8, 8))] * 65}, ValueError, "at most 64 pictures")])
def test_what_is_refused(qwen, data, error, words):
    for prompt in [{"prompt": "<|image_pad|>"}, {"prompt_token_ids": qwen.get_tokenizer().encode("<|image_pad|>")}]:
        with pytest.raises(error, match=words):
            qwen.generate({**prompt, "multi_modal_data": data}, PARAMS)


def test_pictures_where_there_is_no_place_for_them(qwen, stories):
    picture = {"prompt": "<|image_pad|>", "multi_modal_data": {"image": Image.new("RGB", (8, 8))}}
    with pytest.raises(ValueError, match="image 0: this model has no eyes"):
        stories.generate(picture, PARAMS)
    with penstock.LLM(str(HEARING), **ARGUMENTS) as llm:
        with pytest.raises(ValueError, match="image 0: this model has no eyes, it reads text and hears sounds"):
            llm.generate(picture, PARAMS)
        with pytest.raises(ValueError, match="mm_processor_kwargs: this model"):
            llm.generate("a", PARAMS, mm_processor_kwargs={"size": 1})
    with pytest.raises(ValueError, match="truncate_prompt_tokens.*a prompt with pictures is not cut"):
        qwen.generate(picture, PARAMS, tokenization_kwargs={"truncate_prompt_tokens": 3})
    with pytest.raises(ValueError, match="LLM.chat takes it"):
        qwen.apply_chat_template(talks_of("qwen3_vl")[0]["messages"])
    with pytest.raises(ValueError, match="multi_modal_data"):
        qwen.renderer.render_cmpl([picture])
