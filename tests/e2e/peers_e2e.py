#!/usr/bin/env python3
"""Routes and fields of llama.cpp's server, vLLM, Text Embeddings Inference and OpenAI beside the ones with files of their own."""
import base64
import json
import pathlib
import tempfile
import unittest

import script_model
from serving import SOURCE, Server

GOLDEN = SOURCE / "tests" / "golden"
STORY = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
THINKS = "{{ messages[-1].content }}{{ '<|go:think|>' if enable_thinking else '<|go:sunny|>' }}"


def setUpModule():
    global story, script, thinker, sentences, cross, classes, directory
    directory = tempfile.TemporaryDirectory()
    folder = script_model.write(pathlib.Path(directory.name) / "script")
    story = Server(SOURCE / "models" / "penstock-stories-1m-q8_0.gguf", "--chat-template", STORY).__enter__()
    script = Server(folder).__enter__()
    thinker = Server(folder, "--chat-template", THINKS, "--reasoning-parser", "qwen3").__enter__()
    sentences = Server(GOLDEN / "sentences" / "mean_normalized").__enter__()
    cross = Server(GOLDEN / "cross_encoders" / "bert").__enter__()
    classes = Server(GOLDEN / "classifiers" / "bert").__enter__()


def tearDownModule():
    for server in (story, script, thinker, sentences, cross, classes):
        server.__exit__()
    directory.cleanup()


def user(word):
    return [{"role": "user", "content": word}]


def chat(server, status=200, word="plain", **fields):
    return server.post("/v1/chat/completions", {"messages": user(word), **fields}, status)


def said(reply):
    return reply["choices"][0]["message"]["content"]


def refusal(reply):
    return reply["error"]["message"]


class Chats(unittest.TestCase):
    """llama.cpp's fields of chats."""
    asked = {"word": "Once upon a time", "temperature": 0, "n_predict": 12}

    def test_lengths(self):
        reply = chat(story, **self.asked)
        self.assertEqual((reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]), (12, "length"))
        for fields in ({"n_predict": -1}, {"max_tokens": -1}, {"max_completion_tokens": -1, "n_predict": None}):
            self.assertEqual(said(chat(script, **fields)), "Hello there!")
        self.assertIn("n_predict", refusal(chat(story, 400, n_predict=3, max_tokens=3)))

    def test_penalties_and_samplers(self):
        plain, penal = chat(story, **self.asked), chat(story, **self.asked, repeat_penalty=1.8)
        self.assertEqual(said(penal), said(chat(story, **self.asked, repetition_penalty=1.8)))
        self.assertNotEqual(said(penal), said(plain))
        self.assertEqual(said(chat(story, **self.asked, repeat_penalty=1.8, repeat_last_n=0)), said(plain))
        self.assertEqual(said(chat(story, **self.asked, repeat_penalty=1, repeat_last_n=64)), said(plain))
        self.assertIn("repeat_last_n", refusal(chat(story, 400, **self.asked, repeat_penalty=1.8, repeat_last_n=5000)))
        self.assertIn("repeat_penalty", refusal(chat(story, 400, repeat_penalty=1.5, repetition_penalty=1.2)))
        warm = {**self.asked, "temperature": 1.5, "top_k": 1}
        self.assertEqual(said(chat(story, **warm, seed=1)), said(plain))
        without = [said(chat(story, **warm, seed=seed, samplers=["temperature"])) for seed in range(3)]
        self.assertGreater(len({said(plain), *without}), 1)

    def test_seeds(self):
        drawn = {said(chat(story, word="Once", temperature=1.5, seed=-1, n_predict=12)) for _ in range(6)}
        self.assertGreater(len(drawn), 1)

    def test_biases(self):
        asked = {**self.asked, "n_predict": 1, "return_token_ids": True}
        [token] = chat(story, **asked)["choices"][0]["token_ids"]
        for bias in ([[token, False]], [[token, -100]], {str(token): False}, {str(token): -100}):
            self.assertNotEqual(chat(story, **asked, logit_bias=bias)["choices"][0]["token_ids"], [token], bias)
        fish = story.post("/tokenize", {"content": " fish"})["tokens"]
        for bias in ([[" fish", 100]], {" fish": 100}, {str(id): 100 for id in fish}):
            self.assertIn(chat(story, **asked, logit_bias=bias)["choices"][0]["token_ids"][0], fish, bias)
        self.assertIn("logit_bias", refusal(chat(story, 400, logit_bias=[[1]])))

    def test_probabilities(self):
        reply = chat(story, **self.asked, n_probs=3)
        expected = chat(story, **self.asked, logprobs=True, top_logprobs=3)
        self.assertEqual(reply["choices"][0]["logprobs"], expected["choices"][0]["logprobs"])
        self.assertIn("n_probs", refusal(chat(story, 400, n_probs=3, logprobs=True)))
        self.assertIn("top_logprobs", refusal(chat(story, 400, n_probs=21)))

    def test_probabilities_after_sampling(self):
        asked = {**self.asked, "temperature": 0.7, "top_k": 3, "seed": 5, "n_probs": 5}
        content = chat(story, **asked, post_sampling_probs=True)["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 12)
        for one in content:
            self.assertEqual(len(one["top_probs"]), 3)
            self.assertAlmostEqual(sum(top["prob"] for top in one["top_probs"]), 1, places=4)
            self.assertAlmostEqual(one["prob"], next(top["prob"] for top in one["top_probs"] if top["token"] == one["token"]), places=5)
        own = story.post("/completion", {"prompt": "Once", "n_predict": 4, "n_probs": 3, "temperature": 0, "post_sampling_probs": True})
        for one in own["completion_probabilities"]:
            self.assertEqual((one["prob"], [top["prob"] for top in one["top_probs"]]), (1, [1]))
            self.assertNotIn("logprob", one)
        self.assertIn("logprob", story.post("/completion", {"prompt": "Once", "n_predict": 1, "n_probs": 3})["completion_probabilities"][0])
        forced = story.post("/completion", {"prompt": "Once", "n_predict": 1, "n_probs": 5, "grammar": 'root ::= "a" | "b"', "temperature": 1,
                                            "post_sampling_probs": True})["completion_probabilities"][0]
        self.assertLessEqual({top["token"] for top in forced["top_probs"]}, {"a", "b"})
        self.assertAlmostEqual(sum(top["prob"] for top in forced["top_probs"]), 1, places=4)

    def test_the_cache(self):
        word = "A cache fish swam there. " * 8
        chat(story, word=word, n_predict=1)
        cached = [chat(story, word=word, n_predict=1, cache_prompt=wants)["usage"]["prompt_tokens_details"]["cached_tokens"]
                  for wants in (True, False, True)]
        self.assertGreater(cached[0], 0)
        self.assertEqual(cached[1:], [0, cached[0]])

    def test_timings(self):
        self.assertNotIn("timings", chat(story, **self.asked))
        reply = chat(story, **self.asked, timings=True)
        timings = reply["timings"]
        self.assertEqual(timings["prompt_n"] + timings["cache_n"], reply["usage"]["prompt_tokens"])
        self.assertEqual(timings["predicted_n"], 12)
        self.assertAlmostEqual(timings["predicted_per_second"], 12000 / timings["predicted_ms"], places=3)
        self.assertLessEqual({"queued_ms", "prefill_ms", "decode_ms"}, set(timings))
        events = story.chunks("/v1/chat/completions", {"messages": user("Once upon a time"), "temperature": 0, "n_predict": 12,
                                                       "timings_per_token": True})
        counts = [event["timings"]["predicted_n"] for event in events if "timings" in event]
        self.assertEqual(counts, sorted(counts))
        self.assertGreater(len(counts), 10)
        self.assertEqual(counts[-1], 12)

    def test_progress_of_the_prompt(self):
        word = "There was a progress cat. " * 20
        asked = {"messages": user(word), "n_predict": 3, "return_progress": True}
        events = story.chunks("/v1/chat/completions", asked)
        told = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        n_prompt = story.post("/v1/chat/completions/input_tokens", {"messages": user(word)})["input_tokens"]
        self.assertEqual({one["total"] for one in told}, {n_prompt})
        self.assertEqual(told[-1]["processed"], n_prompt)
        self.assertEqual([one["processed"] for one in told], sorted({one["processed"] for one in told}))
        again = [event["prompt_progress"] for event in story.chunks("/v1/chat/completions", asked) if "prompt_progress" in event]
        self.assertGreater(again[-1]["cache"], 0)
        plain = story.post("/v1/chat/completions", {**asked, "temperature": 0})
        self.assertNotIn("prompt_progress", plain)
        own = [event for _, event in story.events("/completion", {"prompt": word, "n_predict": 3, "return_progress": True})]
        progress = [event["prompt_progress"] for event in own if "prompt_progress" in event]
        self.assertEqual(progress[-1]["processed"], progress[-1]["total"])
        self.assertEqual(own[-1]["tokens_evaluated"], progress[-1]["total"])

    def test_reasoning_stays_in_the_text(self):
        for form in ("auto", "deepseek", None):
            message = chat(script, word="think", reasoning_format=form)["choices"][0]["message"]
            self.assertEqual((message["content"], message["reasoning_content"].strip()), ("The answer is 42.", "Let me think."))
        message = chat(script, word="think", reasoning_format="none")["choices"][0]["message"]
        self.assertEqual(message["content"], "<think>\nLet me think.\n</think>\n\nThe answer is 42.")
        self.assertNotIn("reasoning_content", message)
        self.assertIn("reasoning_format", refusal(chat(script, 400, reasoning_format="deepseek-legacy")))

    def test_thinking_is_on_unless_it_is_switched_off(self):
        self.assertIn("Let me", chat(thinker)["choices"][0]["message"]["reasoning"])
        for fields in ({"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}):
            message = chat(thinker, **fields)["choices"][0]["message"]
            self.assertEqual(message["content"], "It is sunny in Paris.")
        prompt = thinker.post("/apply-template", {"messages": user("plain")})["prompt"]
        self.assertTrue(prompt.endswith("<|go:think|>"))
        response = thinker.post("/v1/responses", {"input": "plain"})
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning", "message"])
        response = thinker.post("/v1/responses", {"input": "plain", "reasoning": {"effort": "none"}})
        self.assertEqual([item["type"] for item in response["output"]], ["message"])

    def test_budgets_of_thoughts(self):
        for name in ("thinking_budget_tokens", "thinking_token_budget"):
            reply = chat(script, word="ponder", max_tokens=40, **{name: 4})
            self.assertLess(reply["usage"]["completion_tokens_details"]["reasoning_tokens"], 8, name)

    def test_what_cannot_be_honoured_is_refused(self):
        for name, value in (("dynatemp_range", 0.5), ("min_keep", 2), ("top_n_sigma", 1), ("lora", [{"id": 0, "scale": 1}]),
                            ("t_max_predict_ms", 10), ("n_indent", 2), ("parse_tool_calls", False)):
            self.assertIn(name, refusal(chat(script, 400, **{name: value})))
        for name, value in (("id_slot", 3), ("n_keep", 5), ("dynatemp_range", 0), ("lora", []), ("top_n_sigma", -1), ("typ_p", 1.0)):
            self.assertEqual(said(chat(script, **{name: value})), "Hello there!", name)


class Batches(unittest.TestCase):
    """vLLM's chats of several conversations."""
    path = "/v1/chat/completions/batch"

    def test_a_choice_for_each(self):
        reply = script.post(self.path, {"messages": [user("plain"), user("think"), user("sunny")], "max_tokens": 40})
        self.assertEqual([choice["index"] for choice in reply["choices"]], [0, 1, 2])
        self.assertEqual([choice["message"]["content"] for choice in reply["choices"]], ["Hello there!", "The answer is 42.", "It is sunny in Paris."])
        self.assertIn("Let me think", reply["choices"][1]["message"]["reasoning"])
        alone = [chat(script, word=word, max_tokens=40)["usage"] for word in ("plain", "think", "sunny")]
        for name in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(reply["usage"][name], sum(usage[name] for usage in alone))

    def test_all_are_held_to_one_form(self):
        reply = story.post(self.path, {"messages": [user("Once"), user("Twice")], "structured_outputs": {"choice": ["yes"]}})
        self.assertEqual([choice["message"]["content"] for choice in reply["choices"]], ["yes", "yes"])

    def test_what_is_refused(self):
        two = [user("plain"), user("plain")]
        for fields, word in (({"stream": True}, "stream"), ({"n": 2}, "n"), ({"echo": True}, "echo"), ({"messages": user("x")}, "messages"),
                             ({"messages": []}, "messages"), ({"messages": [user("x")] * 1025}, "messages"), ({"messages": [user("x")] * 300}, "conversations"),
                             ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
                             ({"messages": [user("x"), [{"role": "user", "content": [{"type": "image_url"}]}]]}, "messages[1]"),
                             ({"chat_template_kwargs": {"x": "y" * 2**20}, "messages": [user("x")] * 100}, "fields beside them")):
            self.assertIn(word, refusal(script.post(self.path, {"messages": two, **fields}, 400)))


class Counts(unittest.TestCase):
    def test_chats(self):
        for fields in ({}, {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}):
            body = {"messages": user("plain"), **fields}
            n = script.post("/v1/chat/completions", body)["usage"]["prompt_tokens"]
            for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
                self.assertEqual(script.post(path, body), {"object": "response.input_tokens", "input_tokens": n})

    def test_responses(self):
        body = {"input": "plain", "instructions": "be brief"}
        n = script.post("/v1/responses", body)["usage"]["input_tokens"]
        for path in ("/v1/responses/input_tokens", "/responses/input_tokens"):
            self.assertEqual(script.post(path, body), {"object": "response.input_tokens", "input_tokens": n})

    def test_longer_than_the_context(self):
        for path, body in (("/v1/chat/completions/input_tokens", {"messages": user("x" * 3000)}), ("/v1/responses/input_tokens", {"input": "x" * 3000})):
            self.assertGreater(script.post(path, body)["input_tokens"], 3000)


class Compaction(unittest.TestCase):
    path = "/v1/responses/compact"
    talk = [{"role": "user", "content": "say plain words"}, {"role": "assistant", "content": "Hello there!"}, {"role": "user", "content": "once more"}]

    def test_a_summary_stands_for_the_conversation(self):
        reply = script.post(self.path, {"input": self.talk, "instructions": "be brief"})
        self.assertEqual(reply["object"], "response.compaction")
        *kept, item = reply["output"]
        self.assertEqual([one["content"][0]["text"] for one in kept], ["say plain words", "once more"])
        self.assertEqual(item["type"], "compaction")
        mark, coded = item["encrypted_content"].rsplit(":", 1)
        self.assertEqual(base64.b64decode(coded), b"Hello there!")
        self.assertGreater(reply["usage"]["output_tokens"], 0)
        summary = {"role": "user", "content": "Summary of the conversation before this message:\nHello there!"}
        new = {"role": "user", "content": "sunny"}
        counted = [script.post("/v1/responses/input_tokens", {"input": [*kept, one, new]})["input_tokens"] for one in (item, summary)]
        self.assertEqual(counted[0], counted[1])
        self.assertEqual(script.post("/v1/responses", {"input": [*kept, item, new]})["output"][0]["content"][0]["text"], "It is sunny in Paris.")
        again = script.post(self.path, {"input": [*kept, item, new]})  # of what was compacted
        self.assertEqual([one["type"] for one in again["output"]], ["message", "message", "message", "compaction"])

    def test_what_is_refused(self):
        for content in ("gAAAAABhopaque", "penstock.summary.1:", "penstock.summary.1:!!!!", "penstock.summary.1://///w==", None):
            body = {"input": [{"type": "compaction", "encrypted_content": content}, *self.talk]}
            for path in (self.path, "/v1/responses"):
                self.assertIn("input[0].encrypted_content", refusal(script.post(path, body, 400)))
        for body, word in (({}, "input"), ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
                           ({"input": "x" * 3000}, "context")):
            self.assertIn(word, refusal(script.post(self.path, body, 400)))


class Vectors(unittest.TestCase):
    def embedding(self, body, status=200):
        return sentences.post("/embedding", body, status)

    def test_llamacpps_form(self):
        texts = ["the cat sat", "a dog"]
        expected = [one["embedding"] for one in sentences.post("/v1/embeddings", {"input": texts})["data"]]
        for field in ("content", "input"):
            reply = self.embedding({field: texts})
            self.assertEqual([one["index"] for one in reply], [0, 1])
            self.assertEqual([one["embedding"] for one in reply], [[vector] for vector in expected])
        self.assertEqual(self.embedding({"content": texts[0]})[0]["embedding"], [expected[0]])

    def test_norms(self):
        [raw] = self.embedding({"content": "the cat", "embd_normalize": -1})[0]["embedding"]
        for norm, length in ((0, max(map(abs, raw)) / 32760), (1, sum(map(abs, raw))), (2, sum(x * x for x in raw) ** 0.5), (3, sum(abs(x) ** 3 for x in raw) ** (1 / 3))):
            [vector] = self.embedding({"content": "the cat", "embd_normalize": norm})[0]["embedding"]
            for got, value in zip(vector, raw):
                self.assertAlmostEqual(got / (32760 if norm == 0 else 1), value / length / (32760 if norm == 0 else 1), places=5)

    def test_bad_requests(self):
        for body, word in (({}, "content"), ({"content": "a", "input": "a"}, "both"), ({"content": "a", "embd_normalize": 65}, "embd_normalize"),
                           ({"content": []}, "content"), ({"content": "a", "pooling": "none"}, "pooling")):
            self.assertIn(word, refusal(self.embedding(body, 400)))
        self.assertIn("served for text", refusal(script.post("/embedding", {"content": "a"}, 400)))


class Ranks(unittest.TestCase):
    query, texts = "the cat", ["dog", "sat on a mat", "the cat"]

    def test_teis_form(self):
        expected = cross.post("/v1/rerank", {"query": self.query, "documents": self.texts})["results"]
        for path in ("/rerank", "/v1/rerank", "/reranking", "/v1/reranking"):
            reply = cross.post(path, {"query": self.query, "texts": self.texts})
            self.assertEqual(reply, [{"index": one["index"], "score": one["relevance_score"]} for one in expected])
            self.assertEqual(cross.post(path, {"query": self.query, "documents": self.texts})["results"], expected)
        reply = cross.post("/rerank", {"query": self.query, "texts": self.texts, "return_text": True, "truncate": True, "top_n": 2})
        self.assertEqual([one["text"] for one in reply], [self.texts[one["index"]] for one in expected[:2]])
        raw = cross.post("/rerank", {"query": self.query, "texts": self.texts, "raw_scores": True})
        logits = cross.post("/rerank", {"query": self.query, "documents": self.texts, "use_activation": False})["results"]
        self.assertEqual([one["score"] for one in raw], [one["relevance_score"] for one in logits])
        self.assertNotEqual([one["score"] for one in raw], [one["relevance_score"] for one in expected])

    def test_what_is_refused(self):
        long = {"query": self.query, "texts": ["cat " * 3000]}
        self.assertEqual(cross.post("/rerank", long, 400)["error"]["code"], "context_length_exceeded")
        self.assertEqual(len(cross.post("/rerank", {**long, "truncate": True})), 1)
        for fields, word in (({}, "neither"), ({"texts": ["a"], "documents": ["a"]}, "both"), ({"documents": ["a"], "raw_scores": True}, "raw_scores"),
                             ({"texts": ["a"], "use_activation": True}, "use_activation"), ({"texts": ["a"], "truncation_direction": "Left"}, "truncation_direction"),
                             ({"texts": []}, "texts"), ({"texts": ["a"] * 2049}, "texts"), ({"texts": [{"text": "a"}]}, "texts")):
            self.assertIn(word, refusal(cross.post("/rerank", {"query": "q", **fields}, 400)))


class Invocations(unittest.TestCase):
    def test_the_body_says_what_is_asked(self):
        for server, path, body in ((script, "/v1/chat/completions", {"messages": user("plain")}), (script, "/v1/completions", {"prompt": "<|go:plain|>"}),
                                   (sentences, "/v1/embeddings", {"input": "a"}), (sentences, "/pooling", {"input": "a", "task": "embed"}),
                                   (classes, "/classify", {"input": [5, 6]}), (cross, "/v1/rerank", {"query": "a", "documents": ["b"]}),
                                   (cross, "/rerank", {"query": "a", "texts": ["b"]}), (cross, "/v1/score", {"text_1": "a", "text_2": "b"})):
            got, expected = server.post("/invocations", body), server.post(path, body)
            for reply in (got, expected):
                for name in ("id", "created"):
                    if isinstance(reply, dict):
                        reply.pop(name, None)
            self.assertEqual({key: value for key, value in got.items() if key != "usage"} if isinstance(got, dict) else got,
                             {key: value for key, value in expected.items() if key != "usage"} if isinstance(expected, dict) else expected)

    def test_streams(self):
        chunks = script.chunks("/invocations", {"messages": user("plain")})
        self.assertEqual("".join(one["choices"][0]["delta"].get("content", "") for one in chunks), "Hello there!")

    def test_what_is_refused(self):
        for body, word in (({}, "messages"), ({"zzz": 1}, "messages"), ({"messages": []}, "messages"), ({"messages": user("x"), "temperatur": 1}, "temperatur"),
                           ({"input": "a"}, "served for text")):
            self.assertIn(word, refusal(script.post("/invocations", body, 400)))
        self.assertIn("gpt-9", refusal(script.post("/invocations", {"messages": user("x"), "model": "gpt-9"}, 404)))

    def test_keys_are_asked_for(self):
        with Server(SOURCE / "models" / "penstock-stories-1m-q8_0.gguf", "--api-key", "secret") as server:
            for path in ("/invocations", "/embedding", "/reranking", "/v1/conversations", "/slots/0", "/v1/chat/completions/batch"):
                self.assertEqual(server.request("POST", path, "{}")[0], 401, path)


class Slots(unittest.TestCase):
    def act(self, query, status=200, slot=0):
        got, _, reply = script.request("POST", f"/slots/{slot}{query}", "{}")
        self.assertEqual(got, status, reply)
        return json.loads(reply)

    def test_actions(self):
        self.assertEqual(self.act("?action=erase"), {"id_slot": 0, "n_erased": 0})
        for action in ("save", "restore"):
            self.assertIn("--kv-store", refusal(self.act(f"?action={action}", 501)))
        for query, slot in (("", 0), ("?action=x", 0), ("?action=erase", 99999), ("?action=erase", -1), ("?action=erase", "a")):
            self.act(query, 400, slot)


if __name__ == "__main__":
    unittest.main(verbosity=2)
