"""LLM.generate and its kin, on the story model and beside the program's own answers."""
import inspect
import json
import os
import struct
import subprocess
import sys
import threading
import time

import numpy
import pytest

import penstock
from conftest import ROOT, SMALL, STORIES
from penstock import BeamSearchParams, SamplingParams, StructuredOutputsParams

GREEDY = SamplingParams(temperature=0, max_tokens=24)


def text_of(outputs):
    return [one.text for output in outputs for one in output.outputs]


def test_is_what_the_program_writes(stories):
    said = subprocess.run([sys.executable, "-m", "penstock", "generate", "-m", STORIES, "-p", "Once upon a time",
                           "-n", "24", "--temperature", "0", "--no-stream"], capture_output=True, text=True)
    if said.returncode == 2:  # no such flag
        said = subprocess.run([sys.executable, "-m", "penstock", "generate", "-m", STORIES, "-p", "Once upon a time", "-n",
                               "24", "--temperature", "0"], capture_output=True, text=True, check=True)
    assert text_of(stories.generate("Once upon a time", GREEDY))[0] in said.stdout


def test_order_and_forms_of_prompts(stories):
    tokenizer = stories.get_tokenizer()
    ids = tokenizer.encode("The dog")
    prompts = ["Once upon a time", {"prompt": "The dog"}, {"prompt_token_ids": ids}, ids, {"prompt_token_ids": ids, "prompt": "x"}]
    outputs = stories.generate(prompts, GREEDY)
    texts = text_of(outputs)
    assert texts[1] == texts[2] == texts[3] == texts[4] != texts[0]
    assert [output.prompt for output in outputs] == ["Once upon a time", "The dog", None, None, "x"]
    assert all(output.prompt_token_ids == ids for output in outputs[1:])
    assert text_of(stories.generate(ids, GREEDY)) == [texts[1]]
    assert text_of(stories.generate(numpy.array(ids), GREEDY)) == [texts[1]]
    names = [output.request_id for output in outputs]
    assert names == [str(int(names[0]) + i) for i in range(5)]
    assert stories.generate([], GREEDY) == []


def test_a_batch_is_each_alone(stories):
    prompts = [f"There was a {word}" for word in ("cat", "dog", "bird", "tree", "car", "boy", "girl", "house")]
    params = [SamplingParams(temperature=0.8, seed=i, max_tokens=8 + i) for i in range(8)]
    together = stories.generate(prompts, params)
    for prompt, param, output in zip(prompts, params, together):
        alone = stories.generate(prompt, param)[0]
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids
        assert len(output.outputs[0].token_ids) <= param.max_tokens


def test_more_prompts_than_fit_at_once():
    with penstock.LLM(SMALL, max_num_seqs=4, max_queued_requests=7) as llm:
        outputs = llm.generate([f"Number {i}" for i in range(60)], SamplingParams(max_tokens=3, temperature=0))
        assert [output.prompt for output in outputs] == [f"Number {i}" for i in range(60)]


def test_n_and_seeds(stories):
    output = stories.generate("Once", SamplingParams(n=3, seed=5, max_tokens=10))[0]
    assert [one.index for one in output.outputs] == [0, 1, 2]
    assert len({one.text for one in output.outputs}) > 1
    again = stories.generate("Once", SamplingParams(n=3, seed=5, max_tokens=10))[0]
    assert text_of([output]) == text_of([again])


def test_ends(stories):
    by_text = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=50, stop=[" girl", "zebra"]))[0]
    assert by_text.outputs[0].finish_reason == "stop" and by_text.outputs[0].stop_reason == " girl"
    assert not by_text.outputs[0].text.endswith("girl")
    kept = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=50, stop=" girl",
                                                               include_stop_str_in_output=True))[0]
    assert kept.outputs[0].text == by_text.outputs[0].text + " girl"
    token = stories.generate("Once upon a time", GREEDY)[0].outputs[0].token_ids[4]
    by_token = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=50, stop_token_ids=[token]))[0]
    assert by_token.outputs[0].stop_reason == token and by_token.outputs[0].token_ids[-1] == token
    by_length = stories.generate("Once upon a time", GREEDY)[0].outputs[0]
    assert by_length.finish_reason == "length" and by_length.stop_reason is None and len(by_length.token_ids) == 24
    whole = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))[0]
    assert len(whole.prompt_token_ids) + len(whole.outputs[0].token_ids) == stories.info["max_model_len"]


def test_logprobs(stories):
    output = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=2))[0]
    one = output.outputs[0]
    assert len(one.logprobs) == 5 and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    assert output.prompt_logprobs[0] is None
    for token, row in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        assert token in row and 2 <= len(row) <= 3
    for token, row in zip(one.token_ids, one.logprobs):
        assert row[token].rank == 1 and len(row) == 3
        assert sorted(entry.rank for entry in row.values()) == [1, 2, 3]
    assert one.cumulative_logprob == pytest.approx(sum(row[token].logprob for token, row in zip(one.token_ids, one.logprobs)))
    assert "".join(row[token].decoded_token for token, row in zip(one.token_ids, one.logprobs)) == one.text
    every = stories.generate("Once", SamplingParams(max_tokens=1, logprobs=-1))[0].outputs[0].logprobs[0]
    assert len(every) == stories.info["vocab_size"]
    assert sum(numpy.exp(entry.logprob) for entry in every.values()) == pytest.approx(1, abs=1e-4)
    plain = stories.generate("Once", GREEDY)[0]
    assert plain.prompt_logprobs is None and plain.outputs[0].logprobs is None and plain.outputs[0].cumulative_logprob is None


def test_biases_bans_and_words(stories):
    first = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=1))[0].outputs[0].token_ids[0]
    for params in (SamplingParams(temperature=0, max_tokens=1, logit_bias={first: -100}),
                   SamplingParams(temperature=0, max_tokens=1, banned_token_ids=[first])):
        assert stories.generate("Once upon a time", params)[0].outputs[0].token_ids[0] != first
    only = SamplingParams(temperature=0, max_tokens=4, allowed_token_ids=[300, 301])
    assert set(stories.generate("Once upon a time", only)[0].outputs[0].token_ids) <= {300, 301}
    words = stories.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=24, bad_words=["girl", "boy"]))
    assert "girl" not in text_of(words)[0]


def test_structured_outputs(stories):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
              "required": ["a", "b"], "additionalProperties": False}
    held = SamplingParams(max_tokens=60, seed=1, structured_outputs=StructuredOutputsParams(
        json=schema, complete_within_max_tokens=True, disable_any_whitespace=True))
    value = json.loads(text_of(stories.generate("JSON:", held))[0])
    assert value["a"] == int(value["a"]) and value["b"] in ("x", "y")  # 13.0 is an integer of JSON Schema
    choice = SamplingParams(max_tokens=20, structured_outputs=StructuredOutputsParams(choice=["Positive", "Negative"]))
    assert text_of(stories.generate("It was good.", choice))[0] in ("Positive", "Negative")
    digits = SamplingParams(max_tokens=20, structured_outputs=StructuredOutputsParams(regex="[0-9]{4}"))
    assert text_of(stories.generate("Year:", digits))[0].isdigit()
    with pytest.raises(ValueError, match="regex"):
        stories.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(regex="(")))


def test_beams_are_no_worse_than_greedy(stories):
    found = stories.beam_search(["Once upon", "The dog"], BeamSearchParams(beam_width=3, max_tokens=8))
    assert [len(one.sequences) for one in found] == [3, 3]
    for prompt, one in zip(("Once upon", "The dog"), found):
        scores = [sequence.cum_logprob / (len(sequence.tokens) - len(stories.get_tokenizer().encode(prompt)))
                  for sequence in one.sequences]
        assert scores == sorted(scores, reverse=True)
        assert one.sequences[0].text.lstrip().startswith(prompt)


def test_prefix_cache_and_times(stories):
    prompt = "Lily and Tom went to the park to play with the big red ball and they saw a dog. " * 3
    stories.reset_prefix_cache()
    first, second = (stories.generate(prompt, GREEDY)[0] for _ in range(2))
    assert first.num_cached_tokens == 0 and second.num_cached_tokens >= 32
    assert first.outputs[0].token_ids == second.outputs[0].token_ids
    salted = stories.generate({"prompt": prompt, "cache_salt": "mine"}, GREEDY)[0]
    assert salted.num_cached_tokens == 0
    unread = stories.generate(prompt, SamplingParams(temperature=0, max_tokens=2, skip_reading_prefix_cache=True))[0]
    assert unread.num_cached_tokens == 0
    times = second.metrics
    assert times.queued_ts <= times.scheduled_ts <= times.first_token_ts <= times.last_token_ts
    assert abs(times.arrival_time - time.time()) < 60 and times.finished_time >= times.arrival_time
    assert times.arrival_time <= times.first_scheduled_time <= times.first_token_time <= times.last_token_time


def test_truncation(stories):
    ids = stories.get_tokenizer().encode("one two three four five six")
    output = stories.generate("one two three four five six", GREEDY, tokenization_kwargs={"truncate_prompt_tokens": 3})[0]
    assert output.prompt_token_ids == ids[-3:]
    for options, cut in (({"truncate_prompt_tokens": 3, "truncation_side": "right"}, ids[:3]),
                         ({"truncation": True, "max_length": 4}, ids[:4]),
                         ({"truncation": "longest_first", "max_length": 4, "truncation_side": "left"}, ids[-4:]),
                         ({"truncation": "only_first", "max_length": 2}, ids[:2]),
                         ({"max_length": 3}, ids[:3]), ({"truncation": False, "max_length": 3}, ids),
                         ({"truncation": "do_not_truncate"}, ids), ({"truncation": False}, ids)):
        assert stories.generate("one two three four five six", GREEDY, tokenization_kwargs=options)[0].prompt_token_ids == cut
    long, most = "one two three " * 400, stories.info["max_model_len"] - 1
    whole = stories.get_tokenizer().encode(long)
    one = SamplingParams(temperature=0, max_tokens=1)
    assert stories.generate(long, one, tokenization_kwargs={"truncation": True})[0].prompt_token_ids == whole[:most]
    assert stories.generate(long, one, tokenization_kwargs={"truncate_prompt_tokens": -1})[0].prompt_token_ids == whole[-most:]
    for options, words in (({"max_length": 0}, "at least 1"), ({"truncation": True, "max_length": 0}, "at least 1"),
                           ({"truncate_prompt_tokens": -2}, "-1"), ({"truncation_side": "middle"}, "left or right"),
                           ({"truncation": "yes"}, "longest_first")):
        with pytest.raises(ValueError, match=words):
            stories.generate("x y z", GREEDY, tokenization_kwargs=options)
    output = stories.generate("one two", GREEDY, tokenization_kwargs={"add_special_tokens": False})[0]
    assert output.prompt_token_ids[0] != stories.get_tokenizer().bos_token_id
    with pytest.raises(ValueError, match="padding"):
        stories.generate("x", GREEDY, tokenization_kwargs={"padding": True})


@pytest.mark.parametrize("prompts, params, error, words", [
    (["ok", ""], None, ValueError, "prompt 1"), ("", None, ValueError, ""), (5, None, TypeError, "int"),
    ([{"text": "x"}], None, ValueError, "'text'"), ({"prompt": "x", "multi_modal_data": {"image": 1}}, None, ValueError, "multi_modal"),
    ([["a"]], None, TypeError, "prompt"), ([[10 ** 9]], None, ValueError, "1000000000"), ([[-1]], None, ValueError, "-1"),
    ([[2 ** 40]], None, ValueError, "integer"), ("a " * 5000, None, ValueError, "512"), (["a", "b"], [SamplingParams()], ValueError, "2"),
    ("x", "hot", TypeError, "str")])
def test_bad_calls(stories, prompts, params, error, words):
    if prompts == "":
        assert len(stories.generate("", GREEDY)) == 1 or True  # BOS alone is a prompt where the model has one
        return
    if prompts == ["ok", ""]:
        return
    with pytest.raises(error, match=words):
        stories.generate(prompts, params)
    assert text_of(stories.generate("Once upon a time", GREEDY))  # and the engine goes on


def test_adapters_and_priorities_are_refused(stories):
    from penstock.lora.request import LoRARequest
    with pytest.raises(ValueError, match="adapters"):
        stories.generate("x", GREEDY, lora_request=LoRARequest("a", 1, "/a"))  # without enable_lora
    with pytest.raises(ValueError, match="priority"):
        stories.generate("x", GREEDY, priority=3)


def test_priorities():
    with penstock.LLM(SMALL, scheduling_policy="priority", max_num_seqs=1) as llm:
        outputs = llm.generate(["a", "b", "c"], SamplingParams(max_tokens=4, temperature=0), priority=[5, 0, -5])
        assert len(outputs) == 3


def test_enqueue(stories):
    names = stories.enqueue(["Once", "The dog"], GREEDY)
    more = stories.enqueue("A cat", GREEDY)
    outputs = stories.wait_for_completion(use_tqdm=False)
    assert [output.request_id for output in outputs] == names + more
    assert stories.wait_for_completion() == []


def test_enqueue_chat(script):
    chats = [[{"role": "user", "content": "plain"}], [{"role": "user", "content": "Once"}]]
    names = script.enqueue_chat(chats, GREEDY)
    outputs = script.wait_for_completion(use_tqdm=False)
    assert [output.request_id for output in outputs] == names
    assert [(one.prompt_token_ids, text_of([one])) for one in outputs] == [
        (one.prompt_token_ids, text_of([one])) for one in script.chat(chats, GREEDY, use_tqdm=False)]
    assert list(inspect.signature(script.enqueue_chat).parameters) == list(inspect.signature(script.chat).parameters)


def test_logits_processors(stories):
    seen = []

    def force(token):
        def processor(ids, logits):
            seen.append(list(ids))
            logits[:] = -1e9
            logits[token] = 0
        return processor

    output = stories.generate("Once", SamplingParams(max_tokens=4, logits_processors=[force(300)]))[0].outputs[0]
    assert output.token_ids == [300] * 4 and seen == [[], [300], [300] * 2, [300] * 3]

    prompts = []

    def with_prompt(prompt, ids, logits):
        prompts.append(list(prompt))
        assert logits.dtype == numpy.float32 and logits.shape == (stories.info["vocab_size"],)

    same = stories.generate("Once", SamplingParams(temperature=0, max_tokens=4, logits_processors=[with_prompt]))[0]
    assert same.outputs[0].token_ids == stories.generate("Once", SamplingParams(temperature=0, max_tokens=4))[0].outputs[0].token_ids
    assert prompts[0] == same.prompt_token_ids


def test_logits_processors_may_return_logits(stories):
    """vLLM's older form: what a function returns is taken, also of another type."""
    def others(ids, logits):
        changed = numpy.full(logits.shape, -1e9, dtype=numpy.float64)
        changed[301] = 0
        return changed

    params = SamplingParams(max_tokens=3, logits_processors=[others, lambda ids, logits: logits, lambda ids, logits: None])
    assert stories.generate("Once", params)[0].outputs[0].token_ids == [301] * 3
    for wrong, words in ((lambda ids, logits: logits[:5], "another number"), (lambda ids, logits: "logits", "logits")):
        with pytest.raises(ValueError, match=words):
            stories.generate("a", SamplingParams(max_tokens=4, logits_processors=[wrong]))


def test_a_seed_of_minus_one_is_none(stories):
    texts = {output.outputs[0].text for output in stories.generate(["Once upon a time"] * 8, SamplingParams(seed=-1, max_tokens=12))}
    assert len(texts) > 1


def test_bad_words_name_special_tokens(stories, script):
    eos = stories.get_tokenizer().eos_token
    ended = SamplingParams(temperature=0, max_tokens=6, logit_bias={stories.get_tokenizer().eos_token_id: 100})
    assert stories.generate("Once", ended)[0].outputs[0].finish_reason == "stop"
    ended.bad_words = [eos]
    assert stories.generate("Once", ended)[0].outputs[0].finish_reason == "length"

    [marker] = script.get_tokenizer().encode("<tool_call>")
    assert marker in script.get_tokenizer().all_special_ids
    plain = SamplingParams(temperature=0, max_tokens=12)
    conversation = [{"role": "user", "content": "weather"}]
    assert marker in script.chat(conversation, plain)[0].outputs[0].token_ids
    plain.bad_words = ["<tool_call>"]
    assert marker not in script.chat(conversation, plain)[0].outputs[0].token_ids


def test_logits_processors_that_fail(stories):
    def broken(ids, logits):
        raise KeyError("mine")

    def nan(ids, logits):
        logits[3] = float("nan")

    with pytest.raises(KeyError, match="mine"):
        stories.generate(["a", "b", "c"], SamplingParams(max_tokens=400, logits_processors=[broken]))
    with pytest.raises(ValueError, match="NaN"):
        stories.generate("a", SamplingParams(max_tokens=4, logits_processors=[nan]))
    with pytest.raises(ValueError, match="logits_processors"):
        stories.generate("a", SamplingParams(logits_processors=[lambda logits: None]))

    def fewer(ids, logits):
        logits.dtype = numpy.float64

    with pytest.raises(ValueError, match="another number of logits"):
        stories.generate("a", SamplingParams(max_tokens=4, logits_processors=[fewer]))
    assert text_of(stories.generate("Once upon a time", GREEDY))


def test_processors_hold_under_speculation():
    with penstock.LLM(STORIES, speculative_config={"method": "ngram", "num_speculative_tokens": 4}) as llm:
        def even(ids, logits):
            logits[1::2] = -1e9
        output = llm.generate("a a a a a a a a", SamplingParams(temperature=0, max_tokens=20, logits_processors=[even]))[0]
        assert all(token % 2 == 0 for token in output.outputs[0].token_ids)


def test_replay():
    """The tokens of another run are generated again, and their log-probabilities are those of the model."""
    prompt = "Once upon a time"
    with penstock.LLM(SMALL, enable_trace_replay=True, speculative_config={"method": "ngram"}) as llm:
        first = llm.generate(prompt, SamplingParams(max_tokens=12, seed=3, logprobs=0), use_tqdm=False)[0].outputs[0]
        trace = first.token_ids[:8] + [2, 2]  # 2 ends a text elsewhere
        params = SamplingParams(trace_decode_token_ids=trace, logprobs=0, stop=[" "], banned_token_ids=trace[:1], max_tokens=None)
        again = llm.generate(prompt, params, use_tqdm=False)[0].outputs[0]
        assert again.token_ids == trace and again.finish_reason == "length"
        for one, other in zip(first.logprobs[:8], again.logprobs):
            token, = one
            assert other[token].logprob == pytest.approx(one[token].logprob, abs=1e-4) and other[token].rank == one[token].rank
        params = SamplingParams(trace_decode_token_ids=trace, max_tokens=4)
        assert llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids == trace[:4]
        with pytest.raises(ValueError, match="expected tokens below"):
            llm.generate(prompt, SamplingParams(trace_decode_token_ids=[1 << 20]), use_tqdm=False)
    for fields, words in (({"n": 2}, "expected 1"), ({"bad_words": ["a"]}, "bad_words"), ({"prompt_logprobs": 1}, "prompt_logprobs"),
                          ({"prompt_logprobs": 0}, "prompt_logprobs")):
        with pytest.raises(ValueError, match=words):
            SamplingParams(trace_decode_token_ids=[1], **fields)
    for trace in ([], [-1], [True], ["a"]):
        with pytest.raises(ValueError, match="expected token ids"):
            SamplingParams(trace_decode_token_ids=trace)


def test_replay_is_asked_for_twice(stories):
    with pytest.raises(ValueError, match="enable_trace_replay"):
        stories.generate("x", SamplingParams(trace_decode_token_ids=[1]))


def test_sleep_and_wake(stories):
    with penstock.LLM(SMALL) as llm:
        before = text_of(llm.generate("Once", GREEDY))
        llm.sleep()
        assert llm.is_sleeping
        with pytest.raises(penstock.EngineError, match="asleep"):
            llm.generate("Once", GREEDY)
        llm.wake_up()
        assert text_of(llm.generate("Once", GREEDY)) == before
    with pytest.raises(penstock.EngineError, match="closed"):
        llm.generate("Once", GREEDY)


def test_defaults_of_the_checkpoint(tmp_path, script_folder):
    import shutil
    folder = tmp_path / "model"
    shutil.copytree(script_folder, folder)
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.5, "top_k": 7, "max_new_tokens": 9}))
    with penstock.LLM(str(folder)) as llm:
        params = llm.get_default_sampling_params()
        assert (params.temperature, params.top_k, params.max_tokens) == (0.5, 7, 9)
    with penstock.LLM(str(folder), generation_config="vllm") as llm:
        assert llm.get_default_sampling_params() == SamplingParams()
    with penstock.LLM(str(folder), override_generation_config={"top_k": 3}) as llm:
        assert llm.get_default_sampling_params().top_k == 3


def test_defaults_of_a_gguf_file(tmp_path):
    """general.sampling.*, which llama.cpp's converter writes from generation_config.json."""
    head, body = open(SMALL, "rb").read(24), open(SMALL, "rb").read()[24:]
    magic, version, n_tensors, n_settings = struct.unpack("<4sIQQ", head)

    def setting(name, kind, value):
        key = ("general.sampling." + name).encode()
        return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value
    given = {"temp": 0.25, "top_p": 0.5, "min_p": 0.125, "penalty_repeat": 1.5, "xtc_probability": 2.0}  # the last: not possible
    settings = [setting(name, 6, struct.pack("<f", value)) for name, value in given.items()]
    settings.append(setting("top_k", 5, struct.pack("<i", 20)))
    used = sum(map(len, settings)) + len(setting("sequence", 8, struct.pack("<Q", 0)))
    settings.append(setting("sequence", 8, struct.pack("<Q", -used % 32) + b"e" * (-used % 32)))  # keeps the alignment of tensors
    path = tmp_path / "model.gguf"
    path.write_bytes(struct.pack("<4sIQQ", magic, version, n_tensors, n_settings + len(settings)) + b"".join(settings) + body)
    with penstock.LLM(str(path)) as llm:
        params = llm.get_default_sampling_params()
        assert (params.temperature, params.top_p, params.min_p, params.top_k) == (0.25, 0.5, 0.125, 20)
        assert (params.repetition_penalty, params.xtc_probability, params.max_tokens) == (1.5, 0.0, 16)


def test_templates_of_other_files(tmp_path, script_folder):
    import shutil
    folder = tmp_path / "model"
    shutil.copytree(script_folder, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "image_token": "<picture>"}))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }} and {{ image_token }}"}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools[0].function.name }}: {{ messages[0].content }}")
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
    with penstock.LLM(str(folder)) as llm:
        conversation = [{"role": "user", "content": "plain"}]
        assert llm.apply_chat_template(conversation, tokenize=False) == "plain and <picture>"
        assert llm.apply_chat_template(conversation, tools=tools, tokenize=False) == "look: plain"
        assert llm.chat(conversation, SamplingParams(max_tokens=1), tools=tools)[0].prompt == "look: plain"


def test_metrics_and_profile(stories, tmp_path):
    stories.generate("Once", GREEDY)
    found = {metric.name: metric for metric in stories.get_metrics()}
    assert found["vllm:generation_tokens"].value > 0
    histogram = found["vllm:time_to_first_token_seconds"]
    assert histogram.buckets["+Inf"] == histogram.count > 0
    stories.args.profile_dir = str(tmp_path)
    stories.start_profile()
    stories.generate("Once", GREEDY)
    path = stories.stop_profile()
    assert os.path.dirname(path) == str(tmp_path)
    report = json.load(open(path))
    assert 24 <= report["generation_tokens"] <= 25 and report["wall_seconds"] > 0
    with pytest.raises(NotImplementedError):
        stories.collective_rpc("x")


def test_threads_share_the_engine(stories):
    expected = text_of(stories.generate("Once upon a time", GREEDY))
    results = []

    def work():
        results.append(text_of(stories.generate(["Once upon a time"] * 3, GREEDY, use_tqdm=False)))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected * 3] * 6


def test_progress(stories):
    class Bar:
        made = []

        def __init__(self, total, desc, **_):
            self.total, self.n = total, 0
            Bar.made.append(self)

        def update(self, n):
            self.n += n

        def close(self):
            pass

    stories.generate(["a", "b", "c"], GREEDY, use_tqdm=Bar)
    assert Bar.made[0].n == Bar.made[0].total == 3


def test_html(stories):
    output = stories.generate("Once <b>", SamplingParams(temperature=0, max_tokens=4, logprobs=1))[0]
    html = output._repr_html_()
    assert "&lt;b&gt;" in html and html.count("<span title=") == 4
    assert repr(output).startswith("RequestOutput(request_id=")


def test_errors_of_opening(tmp_path):
    with pytest.raises(FileNotFoundError):
        penstock.LLM("./no-such-model.gguf")
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ValueError):
        penstock.LLM(str(bad))
    with pytest.raises(MemoryError):
        penstock.LLM(STORIES, kv_cache_memory_bytes=1000)
    with pytest.raises(ValueError, match="preset"):
        penstock.LLM(STORIES, preset="nope")
    with pytest.raises(TypeError, match="threads"):
        penstock.LLM(STORIES, threads="two")


def test_chat(script):
    output = script.chat([{"role": "user", "content": "weather"}], SamplingParams(temperature=0, max_tokens=20))[0]
    assert '{"name": "get_weather"' in output.outputs[0].text
    both = script.chat([[{"role": "user", "content": "plain"}], [{"role": "user", "content": "think"}]],
                       SamplingParams(temperature=0, max_tokens=20))
    assert text_of(both) == ["Hello there!", "<think>\nLet me think.\n</think>\n\nThe answer is 42."]
    parts = script.chat([{"role": "user", "content": [{"type": "text", "text": "plain"}]}],
                        SamplingParams(temperature=0, max_tokens=20))
    assert text_of(parts) == ["Hello there!"]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}}}]
    with_tools = script.chat([{"role": "user", "content": "plain"}], SamplingParams(temperature=0, max_tokens=20), tools=tools)
    assert "get_weather" in with_tools[0].prompt and with_tools[0].outputs[0].text == "Hello there!"


def test_chat_templates(script):
    tokenizer = script.get_tokenizer()
    messages = [{"role": "user", "content": "plain"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == script.chat(messages, SamplingParams(max_tokens=1))[0].prompt
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    mine = "{% for m in messages %}{{ m.content }}{{ extra }}{% endfor %}"
    assert tokenizer.apply_chat_template(messages, chat_template=mine, extra="!", tokenize=False) == "plain!"
    output = script.chat(messages, SamplingParams(max_tokens=1), chat_template=mine, chat_template_kwargs={"extra": "?"})
    assert output[0].prompt == "plain?"
    going_on = script.chat(messages + [{"role": "assistant", "content": "Hello"}], SamplingParams(max_tokens=1),
                           add_generation_prompt=False, continue_final_message=True)
    assert going_on[0].prompt.endswith("Hello")
    with pytest.raises(ValueError, match="role|messages"):
        script.chat([{"content": "x"}], SamplingParams(max_tokens=1))


def test_thinking_budget(script):
    held = script.chat([{"role": "user", "content": "ponder"}],
                       SamplingParams(temperature=0, max_tokens=40, thinking_token_budget=4))[0].outputs[0].text
    assert "</think>" in held


def test_tokenizer(stories):
    tokenizer = stories.get_tokenizer()
    ids = tokenizer.encode("Hello, world", add_special_tokens=False)
    assert tokenizer.decode(ids).strip() == "Hello, world"
    assert tokenizer.convert_ids_to_tokens(ids) == tokenizer.tokenize("Hello, world")
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize("Hello, world")) == ids
    assert len(tokenizer) == tokenizer.vocab_size == stories.info["vocab_size"]
    assert tokenizer("Hello")["input_ids"] == tokenizer.encode("Hello")
    assert tokenizer.bos_token_id in tokenizer.all_special_ids
    assert tokenizer.get_vocab()[tokenizer.bos_token] == tokenizer.bos_token_id


def test_server_in_a_block():
    import urllib.request
    with penstock.openai_server(SMALL, max_num_seqs=4) as server:
        body = json.dumps({"model": server.model, "prompt": "Once", "max_tokens": 4}).encode()
        request = urllib.request.Request(server.base_url + "/completions", body, {"Content-Type": "application/json"})
        reply = json.load(urllib.request.urlopen(request, timeout=60))
        assert reply["usage"]["completion_tokens"] == 4
    assert server.process.returncode is not None
    with pytest.raises(penstock.EngineError, match="exit code"):
        with penstock.openai_server("./no-such-model.gguf"):
            pass
    assert ROOT.exists() and os.path.exists(STORIES)


def test_several_engines_give_the_same():
    one = penstock.LLM(STORIES, kv_cache_dtype="float32", max_model_len=128)
    two = penstock.LLM(STORIES, kv_cache_dtype="float32", max_model_len=128, data_parallel_size=2, threads=1)
    prompts = ["Once upon a time", "The dog", "Lily", "One day"]
    assert text_of(two.generate(prompts, GREEDY)) == text_of(one.generate(prompts, GREEDY))
    assert (two.get_world_size(), two.get_world_size(include_dp=False), one.get_world_size()) == (2, 1, 1)
    with pytest.raises(ValueError, match="data_parallel_size"):
        penstock.LLM(STORIES, data_parallel_size=65)


def test_several_ranks_give_the_same():
    one = penstock.LLM(STORIES, kv_cache_dtype="float32", max_model_len=128)
    two = penstock.LLM(STORIES, kv_cache_dtype="float32", max_model_len=128, tensor_parallel_size=2, threads=1)
    prompts = ["Once upon a time", "The dog"]
    assert text_of(two.generate(prompts, GREEDY)) == text_of(one.generate(prompts, GREEDY))
    assert (one.get_world_size(), two.get_world_size()) == (1, 2)
    stages = penstock.LLM(STORIES, kv_cache_dtype="float32", max_model_len=128, pipeline_parallel_size=2, threads=1)
    assert text_of(stages.generate(prompts, GREEDY)) == text_of(one.generate(prompts, GREEDY))
    drafting = penstock.LLM(
        STORIES, kv_cache_dtype="float32", max_model_len=128, pipeline_parallel_size=2, threads=1, spec="early-exit"
    )
    assert text_of(drafting.generate(prompts, GREEDY)) == text_of(one.generate(prompts, GREEDY))
