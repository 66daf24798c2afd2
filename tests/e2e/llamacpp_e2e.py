#!/usr/bin/env python3
"""llama.cpp's own API: /completion, /infill, /props, /slots; streams against whole replies and both against OpenAI's routes."""
import json
import pathlib
import tempfile
import threading
import time
import unittest

import script_model
from serving import SOURCE, Server

PROMPT = "Once upon a time"
GREEDY = {"temperature": 0, "n_predict": 12}
MIDDLE = "".join(script_model.MIDDLE)


def setUpModule():
    global story, script, vectors, directory
    directory = tempfile.TemporaryDirectory()
    story = Server().__enter__()
    script = Server(script_model.write(pathlib.Path(directory.name) / "script"), "--max-num-seqs", 3).__enter__()
    vectors = Server(SOURCE / "tests" / "golden" / "sentences" / "mean_normalized").__enter__()


def tearDownModule():
    for server in (story, script, vectors):
        server.__exit__()
    directory.cleanup()


def completion(body, status=200, server=None):
    return (server or story).post("/completion", {"prompt": PROMPT, **GREEDY, **body}, status)


def events(server, path, body):
    found = server.events(path, body)
    assert all(name is None for name, _ in found)
    return [event for _, event in found]


def openai(**fields):
    reply = story.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 12, "return_token_ids": True, **fields})
    return reply["choices"][0], reply["usage"]


class Completion(unittest.TestCase):
    def test_the_same_as_openais(self):
        choice, usage = openai()
        reply = completion({"return_tokens": True})
        self.assertEqual((reply["content"], reply["tokens"]), (choice["text"], choice["token_ids"]))
        self.assertEqual((reply["tokens_evaluated"], reply["tokens_predicted"]), (usage["prompt_tokens"], usage["completion_tokens"]))
        self.assertEqual((reply["stop"], reply["stop_type"], reply["stopping_word"], reply["truncated"]), (True, "limit", "", False))
        self.assertEqual((reply["index"], reply["model"]), (0, story.model))
        self.assertIn(PROMPT, reply["prompt"])
        self.assertEqual(completion({})["tokens"], [])

    def test_timings(self):
        prompt = {"prompt": PROMPT + " there was a timings fish" * 8}
        first, again = completion(prompt), completion(prompt)
        for reply in (first, again):
            timings = reply["timings"]
            self.assertEqual(timings["prompt_n"] + timings["cache_n"], reply["tokens_evaluated"])
            self.assertEqual(timings["predicted_n"], 12)
            self.assertAlmostEqual(timings["predicted_per_token_ms"] * 12, timings["predicted_ms"])
            self.assertAlmostEqual(timings["predicted_per_second"], 12000 / timings["predicted_ms"], places=3)
            self.assertEqual(timings["cache_n"], reply["tokens_cached"])
        self.assertEqual(first["timings"]["cache_n"], 0)
        self.assertGreater(again["timings"]["cache_n"], 0)
        self.assertEqual(completion({**prompt, "cache_prompt": False})["timings"]["cache_n"], 0)

    def test_a_stream_is_the_whole_reply(self):
        whole = completion({"return_tokens": True, "stop": ["girl"]})
        stream = events(story, "/completion", {"prompt": PROMPT, **GREEDY, "stop": ["girl"]})
        self.assertGreater(len(stream), 3)
        self.assertEqual("".join(event["content"] for event in stream), whole["content"])
        self.assertEqual([event["stop"] for event in stream], [False] * (len(stream) - 1) + [True])
        self.assertEqual([token for event in stream for token in event["tokens"]], whole["tokens"])
        last = stream[-1]
        for name in ("stop_type", "stopping_word", "tokens_evaluated", "tokens_predicted", "prompt"):
            self.assertEqual(last[name], whole[name], name)
        self.assertEqual((last["stop_type"], last["stopping_word"]), ("word", "girl"))
        self.assertEqual({**last["generation_settings"], "stream": False}, whole["generation_settings"])
        self.assertNotIn("timings", stream[0])
        self.assertIn("timings", events(story, "/completion", {"prompt": PROMPT, **GREEDY, "timings_per_token": True})[0])

    def test_the_models_end(self):
        reply = completion({"prompt": "<|go:plain|>", "n_predict": -1}, server=script)
        self.assertEqual((reply["content"], reply["stop_type"], reply["truncated"]), ("Hello there!", "eos", False))
        reply = completion({"prompt": "<|go:endless|>", "n_predict": -1}, server=script)
        self.assertEqual((reply["stop_type"], reply["truncated"]), ("limit", True))

    def test_the_other_name_of_n_predict(self):
        """llama.cpp reads max_tokens where n_predict is absent, in /infill as well."""
        for body in ({"max_tokens": 3, "n_predict": None}, {"max_tokens": 3, "n_predict": 3}):
            self.assertEqual(completion(body)["tokens_predicted"], 3)
        self.assertEqual(completion({"max_tokens": 0, "n_predict": None})["content"], "")
        refused = completion({"max_tokens": 3}, status=400)  # n_predict is 12
        self.assertIn("max_tokens", refused["error"]["message"])
        filled = script.post("/infill", {"input_prefix": "def f(xs):\n", "input_suffix": "\n", "max_tokens": 2, "temperature": 0})
        self.assertEqual(filled["tokens_predicted"], 2)

    def test_no_tokens_warm_the_cache(self):
        prompt = {"prompt": "A warm " + PROMPT * 6}
        reply = completion({**prompt, "n_predict": 0})
        self.assertEqual((reply["content"], reply["tokens_predicted"], reply["stop_type"]), ("", 0, "limit"))
        self.assertGreater(completion(prompt)["tokens_cached"], 0)

    def test_forms_of_prompts(self):
        ids = story.post("/tokenize", {"content": PROMPT, "add_special": True})["tokens"]
        expected = completion({})["content"]
        half = story.post("/tokenize", {"content": PROMPT[:9], "add_special": True})["tokens"]
        for prompt in (ids, {"prompt_string": PROMPT}, [PROMPT[:9], *ids[len(half):]]):
            reply = completion({"prompt": prompt})
            self.assertEqual((reply["content"], reply["tokens_evaluated"]), (expected, len(ids)), prompt)
        behind = story.post("/tokenize", {"content": PROMPT[9:]})["tokens"]
        self.assertEqual(completion({"prompt": [*half, PROMPT[9:]]})["prompt"], completion({"prompt": [*half, *behind]})["prompt"])
        several = completion({"prompt": [PROMPT, ids, {"prompt_string": PROMPT}, [PROMPT[:9], *ids[len(half):]]]})
        self.assertEqual([(one["index"], one["content"]) for one in several], [(i, expected) for i in range(4)])
        self.assertEqual([one["content"] for one in completion({"prompt": [PROMPT]})], [expected])
        two = completion({"n_cmpl": 2})
        self.assertEqual([(one["index"], one["content"]) for one in two], [(0, expected), (1, expected)])
        stream = events(story, "/completion", {"prompt": [PROMPT, ids], **GREEDY})
        for index in (0, 1):
            self.assertEqual("".join(event["content"] for event in stream if event["index"] == index), expected)

    def test_probabilities(self):
        choice, _ = openai(logprobs=3)
        rows = completion({"n_probs": 3})["completion_probabilities"]
        self.assertEqual([row["id"] for row in rows], choice["token_ids"])
        for row, logprob, tops in zip(rows, choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]):
            self.assertAlmostEqual(row["logprob"], logprob, places=4)
            self.assertEqual({top["token"]: round(top["logprob"], 3) for top in row["top_logprobs"]},
                             {token: round(value, 3) for token, value in tops.items()})
            self.assertEqual(bytes(row["bytes"]).decode(), row["token"])
        stream = events(story, "/completion", {"prompt": PROMPT, **GREEDY, "n_probs": 3})
        self.assertEqual([row["id"] for event in stream for row in event.get("completion_probabilities", [])], choice["token_ids"])
        self.assertIn("n_probs", completion({"n_probs": 21}, 400)["error"]["message"])

    def test_biases_and_bans(self):
        first = completion({"n_predict": 1, "return_tokens": True})
        token, text = first["tokens"][0], first["content"]
        for bias in ([[token, False]], [[token, -100]], [[text, False]], {str(token): False}, {text: -100}):
            self.assertNotEqual(completion({"n_predict": 1, "return_tokens": True, "logit_bias": bias})["tokens"], [token], bias)
        for bias in ([[token]], [[token, True]], [["a", 1, 2]], [[-1, 1]], [[1.5, 1]], {"a": True}, [[2**40, 1]], {"99999999": 1}):
            self.assertIn("logit_bias", completion({"logit_bias": bias}, 400)["error"]["message"])

    def test_forms_of_the_text(self):
        self.assertIn(json.loads(completion({"json_schema": {"enum": ["cat", "dog"]}, "n_predict": 40})["content"]), ("cat", "dog"))
        reply = completion({"grammar": 'root ::= "yes" | "no"'})
        self.assertIn(reply["content"], ("yes", "no"))
        self.assertIn("root", reply["generation_settings"]["grammar"])
        self.assertIn("grammar", completion({"grammar": "root ::= ("}, 400)["error"]["message"])

    def test_settings(self):
        asked = {"temperature": 0.5, "top_k": 7, "top_p": 0.5, "min_p": 0.25, "typical_p": 0.5, "repeat_penalty": 1.25, "presence_penalty": 0.5,
                 "frequency_penalty": 0.25, "dry_multiplier": 0.5, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 8,
                 "dry_sequence_breakers": ["x"], "xtc_probability": 0.5, "xtc_threshold": 0.25, "mirostat": 2, "mirostat_tau": 4, "mirostat_eta": 0.5,
                 "seed": 11, "stop": ["zzz"], "ignore_eos": True, "n_predict": 3, "n_probs": 2}
        got = completion(asked)["generation_settings"]
        self.assertEqual({name: got[name] for name in asked}, asked)
        self.assertEqual(completion({"temperature": 1, "seed": 5})["content"], completion({"temperature": 1, "seed": 5})["content"])
        for seed in (-1, 0xffffffff):
            self.assertEqual(completion({"seed": seed})["generation_settings"]["seed"], 0xffffffff)

    def test_samplers_that_are_left_out_do_nothing(self):
        got = completion({"samplers": ["top_k", "infill"], "top_k": 1, "top_p": 0.5, "min_p": 0.9, "xtc_probability": 1, "repeat_penalty": 3,
                          "dry_multiplier": 5})
        settings = got["generation_settings"]
        self.assertEqual([settings[name] for name in ("top_k", "top_p", "min_p", "xtc_probability", "repeat_penalty", "dry_multiplier", "temperature")],
                         [1, 1, 0, 0, 1, 0, 1])
        self.assertEqual(got["content"], completion({})["content"])

    def test_response_fields(self):
        reply = completion({"response_fields": ["content", "timings/predicted_n", "generation_settings/n_predict", "none/such", "content/x"]})
        self.assertEqual(set(reply), {"content", "timings/predicted_n", "generation_settings/n_predict"})
        self.assertEqual(reply["timings/predicted_n"], 12)

    def test_what_cannot_be_honoured_is_refused_by_name(self):
        for field, value in (("dynatemp_range", 0.5), ("min_keep", 2), ("top_n_sigma", 1),
                             ("lora", [{"id": 0, "scale": 1}]), ("samplers", ["best"]), ("repeat_last_n", 5000), ("temperature", -1), ("temperatur", 1)):
            reply = completion({"repeat_penalty": 1.5, field: value}, 400)
            self.assertIn(field, reply["error"]["message"])
        self.assertIn("prompt", completion({"prompt": {"prompt_string": "x", "multimodal_data": ["QQ=="]}}, 400)["error"]["message"])
        self.assertIn("token ids", completion({"prompt": [10 ** 8]}, 400)["error"]["message"])
        self.assertIn("between prompts", completion({"prompt": [["a"], 5]}, 400)["error"]["message"])
        self.assertIn("choices", completion({"prompt": ["a"] * 70, "n": 2}, 400)["error"]["message"])
        self.assertIn("vectors", completion({}, 400, vectors)["error"]["message"])


class Infill(unittest.TestCase):
    def ask(self, status=200, **fields):
        return script.post("/infill", {"input_prefix": "def f(xs):\n", "input_suffix": "\n", "n_predict": 64, "temperature": 0, **fields}, status)

    def test_the_middle(self):
        reply = self.ask()
        self.assertEqual((reply["content"], reply["stop_type"]), (MIDDLE, "eos"))
        self.assertEqual(reply["prompt"], "<|fim_prefix|>def f(xs):\n<|fim_suffix|>\n<|fim_middle|>")
        stream = events(script, "/infill", {"input_prefix": "def f(xs):\n", "input_suffix": "\n", "n_predict": 64, "temperature": 0})
        self.assertEqual("".join(event["content"] for event in stream), MIDDLE)

    def test_what_is_there_already_and_other_files(self):
        reply = self.ask(prompt="    total", input_extra=[{"filename": "a.py", "text": "import b"}, {"text": "import c"}])
        snippet = "\n\n--- snippet ---\n\n"
        self.assertEqual(reply["prompt"], f"{snippet}import b{snippet}import c<|fim_prefix|>def f(xs):\n    total<|fim_suffix|>\n<|fim_middle|>")

    def test_files_that_do_not_fit_lose_their_beginning(self):
        reply = self.ask(input_extra=[{"text": "a" * 600}, {"text": "b" * 600}])
        self.assertEqual(reply["tokens_evaluated"], 1024 - 64)
        self.assertIn("b" * 600 + "<|fim_prefix|>", reply["prompt"])
        self.assertIn("maximum context length", self.ask(400, input_prefix="a" * 1100)["error"]["message"])

    def test_marks_in_code_are_text(self):
        marked = "x = '<|fim_suffix|>'"
        self.assertEqual(self.ask(input_prefix=marked)["tokens_evaluated"], len(marked) + 4)

    def test_indentation_and_time_end_it(self):
        whole = self.ask(n_indent=4)
        self.assertEqual((whole["content"], whole["stop_type"]), ("    total = 0\n    for x in xs:\n        total += x", "limit"))
        body = {"input_prefix": "", "input_suffix": "", "n_predict": 64, "temperature": 0, "n_indent": 4}
        self.assertEqual("".join(event["content"] for event in events(script, "/infill", body)), whole["content"])
        self.assertEqual(self.ask(n_indent=0)["content"], MIDDLE)
        self.assertEqual(self.ask(t_max_predict_ms=60000)["content"], MIDDLE)
        start = time.monotonic()
        # After the line break nothing is forced: each token takes a step.
        slow = story.post("/completion", {"prompt": "a\n", "n_predict": 400, "ignore_eos": True, "t_max_predict_ms": 1, "grammar": 'root ::= "a\\n" [a-z ]+'})
        self.assertEqual(slow["stop_type"], "limit")
        self.assertLess(slow["tokens_predicted"], 400)
        self.assertLess(time.monotonic() - start, 60)

    def test_what_was_cut_is_not_given_again(self):
        """A text that ended by its indentation, to whoever asks for all of it."""
        body = {"input_prefix": "", "input_suffix": "", "n_predict": 64, "temperature": 0}
        with Server(pathlib.Path(directory.name) / "script", "--reply-cache", "16M") as server:
            cut = [server.post("/infill", {**body, **fields})["content"] for fields in ({"n_indent": 4}, {}, {"n_indent": 4})]
        self.assertEqual(cut, ["    total = 0\n    for x in xs:\n        total += x", MIDDLE, cut[0]])

    def test_what_editors_send(self):
        reply = self.ask(id_slot=0, top_k=40, top_p=0.99, stream=False, samplers=["top_k", "top_p", "infill"], cache_prompt=True, t_max_prompt_ms=500,
                         t_max_predict_ms=100000, n_indent=0, stop=["print"],
                         response_fields=["content", "timings/prompt_n", "timings/predicted_n", "truncated", "tokens_cached"])
        self.assertEqual(reply["content"], "    total = 0\n    for x in xs:\n        total += x\n")
        self.assertEqual(set(reply), {"content", "timings/prompt_n", "timings/predicted_n", "truncated", "tokens_cached"})

    def test_suffixes_of_the_other_apis(self):
        body = {"prompt": "def f(xs):\n", "suffix": "\n", "temperature": 0, "max_tokens": 64}
        choice = script.post("/v1/completions", {**body, "echo": True})["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"]), (body["prompt"] + MIDDLE, "stop"))
        self.assertEqual(script.post("/v1/completions", body)["usage"]["prompt_tokens"], self.ask()["tokens_evaluated"])
        reply = script.post("/api/generate", {"prompt": "def f(xs):\n", "suffix": "\n", "stream": False, "options": {"temperature": 0}})
        self.assertEqual((reply["response"], reply["done_reason"]), (MIDDLE, "stop"))
        self.assertIn("token ids", script.post("/v1/completions", {"prompt": [65], "suffix": "b"}, 400)["error"]["message"])
        self.assertIn("system", script.post("/api/generate", {"prompt": "a", "suffix": "b", "system": "c"}, 400)["error"])
        self.assertIn("no middle", story.post("/v1/completions", {"prompt": "a", "suffix": "b"}, 400)["error"]["message"])

    def test_a_model_without_the_tokens(self):
        reply = story.post("/infill", {"input_prefix": "a", "input_suffix": "b"}, 400)
        self.assertIn("fills in no middle", reply["error"]["message"])


class State(unittest.TestCase):
    def test_props(self):
        props = script.get("/props")
        self.assertEqual((props["total_slots"], props["model_alias"], props["fill_in_middle"]), (3, script.model, True))
        self.assertEqual(props["chat_template"], script.get("/tokenizer_info")["chat_template"])
        self.assertEqual((props["bos_token"], props["eos_token"]), ("", script_model.EOS))
        defaults = props["default_generation_settings"]
        self.assertEqual(defaults["n_ctx"], script.get("/v1/models")["data"][0]["max_model_len"])
        given = script.post("/completion", {"prompt": "a", "n_predict": 1})["generation_settings"]
        self.assertEqual(set(defaults["params"]), set(given))
        self.assertEqual(script.get(f"/props?model={script.model}"), props)
        self.assertIn("expected", script.get("/props?model=none", 404)["error"]["message"])
        self.assertFalse(story.get("/props")["fill_in_middle"])
        self.assertIn("vectors", vectors.get("/props", 400)["error"]["message"])

    def test_slots(self):
        slots = script.get("/slots")
        self.assertEqual([(slot["id"], slot["is_processing"]) for slot in slots], [(0, False), (1, False), (2, False)])
        self.assertIn("vectors", vectors.get("/slots", 400)["error"]["message"])
        body = {"prompt": "<|go:endless|>", "n_predict": 1000, "temperature": 0, "top_k": 5}
        busy, full, done = [], False, []

        def ask():
            done.append(script.post("/completion", body))

        for rounds in range(1, 21):  # they may be over before anybody has looked
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            while len(done) < 4 * rounds and not (busy and full):
                busy += [slot for slot in script.get("/slots") if slot["is_processing"] and slot["next_token"]["n_decoded"] > 0]
                full = full or script.request("GET", "/slots?fail_on_no_slot=1")[0] == 503
            for thread in threads:
                thread.join()
            if busy and full:
                break
        self.assertTrue(full)
        for slot in busy:
            self.assertEqual((slot["params"]["top_k"], slot["params"]["n_predict"]), (5, 1000))
            self.assertEqual(slot["next_token"]["n_decoded"] + slot["next_token"]["n_remain"], 1000)
        self.assertTrue(busy)
        self.assertFalse(any(slot["is_processing"] for slot in script.get("/slots")))
        self.assertEqual(len(script.get("/slots?fail_on_no_slot=1")), 3)

    def test_slots_of_what_is_not_loaded(self):
        loaded = story.get("/slots")
        story.post("/api/generate", {"model": story.model, "keep_alive": 0})
        for _ in range(1000):
            state = story.get("/v1/models")["data"][0]["state"]
            self.assertEqual(story.get("/slots"), loaded)
            if state == "unloaded":
                break
        self.assertEqual(state, "unloaded")
        self.assertEqual(story.get("/props")["total_slots"], len(loaded))  # which loads it


if __name__ == "__main__":
    unittest.main(verbosity=2)
