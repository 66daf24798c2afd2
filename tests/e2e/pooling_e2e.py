#!/usr/bin/env python3
"""Embeddings, scores, ranks and classes over HTTP: what `penstock embed` and the golden files say, many clients, and bad requests."""
import base64
import concurrent.futures
import http.client
import json
import struct
import subprocess
import time
import unittest

from serving import PROGRAM, SMALL_MODEL, SOURCE, Server

GOLDEN = SOURCE / "tests" / "golden"
SENTENCES = GOLDEN / "sentences" / "mean_normalized"


def setUpModule():
    global sentences, cross, classes, story
    sentences, cross, classes = (Server(path).__enter__() for path in (SENTENCES, GOLDEN / "cross_encoders" / "bert",
                                                                       GOLDEN / "classifiers" / "bert"))
    story = Server(SMALL_MODEL, "--runner", "pooling").__enter__()


def tearDownModule():
    for server in (sentences, cross, classes, story):
        server.__exit__()


def vectors(reply):
    return [item["embedding"] for item in reply["data"]]


class Embeddings(unittest.TestCase):
    def near(self, got, expected, most=1e-5):
        self.assertEqual(len(got), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(got, expected)), most)

    def test_golden_texts(self):
        cases = [case for case in json.loads((SENTENCES / "golden.json").read_text()) if case["prompt_name"] is None]
        reply = sentences.post("/v1/embeddings", {"input": [case["text"] for case in cases], "truncate_prompt_tokens": -1,
                                                  "model": sentences.model, "user": "u"})
        self.assertEqual([item["index"] for item in reply["data"]], list(range(len(cases))))
        for vector, case in zip(vectors(reply), cases):
            self.near(vector, case["embedding"])
        self.assertEqual((reply["object"], reply["model"]), ("list", sentences.model))

    def test_the_same_as_the_command(self):
        text = "the cat sat"
        printed = subprocess.run([PROGRAM, "embed", "-m", str(SENTENCES), "-p", text, "--json"], capture_output=True, check=True)
        [vector] = vectors(sentences.post("/v1/embeddings", {"input": text}))
        self.near(vector, json.loads(printed.stdout)["embeddings"][0], 1e-6)

    def test_forms_of_input(self):
        text = "the cat sat"
        ids = sentences.post("/tokenize", {"prompt": text})["tokens"]
        [expected] = vectors(sentences.post("/v1/embeddings", {"input": text}))
        for form in ([text], ids, [ids]):
            reply = sentences.post("/v1/embeddings", {"input": form})
            self.near(vectors(reply)[0], expected, 1e-6)
            self.assertEqual(reply["usage"]["prompt_tokens"], len(ids))
        coded = vectors(sentences.post("/v1/embeddings", {"input": text, "encoding_format": "base64"}))[0]
        self.near(struct.unpack(f"<{len(expected)}f", base64.b64decode(coded)), expected, 1e-6)

    def test_dimensions_and_normalisation(self):
        body = {"input": "the cat sat"}
        [whole] = vectors(sentences.post("/v1/embeddings", {**body, "normalize": False}))
        [part] = vectors(sentences.post("/v1/embeddings", {**body, "dimensions": 5}))
        length = sum(x * x for x in whole[:5]) ** 0.5
        self.near(part, [x / length for x in whole[:5]])

    def test_vectors_of_tokens(self):
        reply = sentences.post("/pooling", {"input": ["the cat", "a"], "task": "token_embed", "normalize": False})
        pooled = sentences.post("/pooling", {"input": ["the cat", "a"], "normalize": False})
        for tokens, one in zip(reply["data"], pooled["data"]):
            mean = [sum(column) / len(column) for column in zip(*tokens["data"])]
            self.near(mean, one["data"])
        self.assertEqual(sum(len(item["data"]) for item in reply["data"]), reply["usage"]["prompt_tokens"])

    def test_a_decoder_for_pooling(self):
        [vector] = vectors(story.post("/v1/embeddings", {"input": "Once upon a time"}))
        self.assertGreater(len(vector), 8)

    def test_many_clients_at_once(self):
        texts = [f"the {'cat ' * (1 + i % 7)}" for i in range(64)]
        alone = {text: vectors(sentences.post("/v1/embeddings", {"input": text}))[0] for text in set(texts)}
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for text, reply in zip(texts, pool.map(lambda text: sentences.post("/v1/embeddings", {"input": [text, "a"]}), texts)):
                self.near(vectors(reply)[0], alone[text])

    def test_large_replies(self):
        reply = sentences.post("/v1/embeddings", {"input": ["the cat"] * 2048})
        self.assertEqual(len(reply["data"]), 2048)
        self.assertEqual(len({tuple(vector) for vector in vectors(reply)}), 1)


class Scores(unittest.TestCase):
    def test_cross_encoder(self):
        golden = json.loads((GOLDEN / "cross_encoders" / "bert" / "golden.json").read_text())
        body = {"text_1": [case["first"] for case in golden], "text_2": [case["second"] for case in golden],
                "truncate_prompt_tokens": -1}
        for got, case in zip(cross.post("/score", body)["data"], golden):
            self.assertAlmostEqual(got["score"], case["score"], places=5)
        raw = cross.post("/v1/score", {**body, "use_activation": False})["data"]
        self.assertNotAlmostEqual(raw[0]["score"], golden[0]["score"], places=2)

    def test_names_of_the_two_lists(self):
        expected = cross.post("/v1/score", {"text_1": "the cat", "text_2": ["dog", "sat"]})["data"]
        for first, second in (("queries", "documents"), ("data_1", "data_2"), ("queries", "items")):
            self.assertEqual(cross.post("/score", {first: "the cat", second: ["dog", "sat"]})["data"], expected)
        cross.post("/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400)
        cross.post("/score", {"text_1": ["a", "b"]}, 400)

    def test_cosine_of_embeddings(self):
        texts = ["the cat", "a dog ran off", "find 1 2"]
        rows = vectors(sentences.post("/v1/embeddings", {"input": texts}))
        scores = [item["score"] for item in sentences.post("/v1/score", {"text_1": texts[0], "text_2": texts})["data"]]
        for row, score in zip(rows, scores):
            self.assertAlmostEqual(score, sum(a * b for a, b in zip(rows[0], row)), places=5)

    def test_rerank(self):
        documents = ["sat on a mat.", "dog", {"text": "the cat"}]
        texts = ["sat on a mat.", "dog", "the cat"]
        scores = [item["score"] for item in cross.post("/v1/score", {"text_1": "find: dog", "text_2": texts})["data"]]
        body = {"query": "find: dog", "documents": documents}
        results = cross.post("/v1/rerank", body)["results"]
        self.assertEqual([item["relevance_score"] for item in results], sorted(scores, reverse=True))
        self.assertEqual([item["document"]["text"] for item in results], [texts[item["index"]] for item in results])
        self.assertEqual(cross.post("/rerank", {**body, "top_n": 1})["results"], results[:1])
        cohere = cross.post("/v2/rerank", body)
        self.assertNotIn("document", cohere["results"][0])
        self.assertEqual(cohere["meta"]["api_version"], {"version": "2"})
        self.assertIn("document", cross.post("/v2/rerank", {**body, "return_documents": True})["results"][0])

    def test_classes(self):
        golden = json.loads((GOLDEN / "classifiers" / "bert" / "golden.json").read_text())
        reply = classes.post("/classify", {"input": [case["ids"] for case in golden]})
        for got, case in zip(reply["data"], golden):
            self.assertEqual(got["num_classes"], len(case["probs"]))
            self.assertLess(max(abs(a - b) for a, b in zip(got["probs"], case["probs"])), 1e-5)
            self.assertEqual(got["label"], f"LABEL_{case['probs'].index(max(case['probs']))}")
        same = classes.post("/pooling", {"input": golden[0]["ids"], "task": "classify"})["data"][0]["data"]
        self.assertLess(max(abs(a - b) for a, b in zip(same, golden[0]["probs"])), 1e-5)


class Refusals(unittest.TestCase):
    def refused(self, server, path, body, *parts):
        message = server.post(path, body, 400)["error"]["message"]
        for part in parts:
            self.assertIn(part, message)

    def test_what_cannot_be_embedded(self):
        path = "/v1/embeddings"
        long = "the " * 60
        self.refused(sentences, path, {"input": ["a", long]}, "input 1: expected at most 32 tokens, got 62")
        for body in ({}, {"input": []}, {"input": None}, {"input": [["a"]]}, {"input": [1, "a"]}, {"input": [[]]}, {"input": {"a": 1}},
                     {"input": [-1]}, {"input": "a", "encoding_format": "hex"}, {"input": "a", "dimensions": 0},
                     {"input": "a", "dimensions": 999}, {"input": [99999]}, {"input": "a", "dimension": 1},
                     {"input": "a", "truncate_prompt_tokens": 999}, {"input": "a", "prompt_name": "nobody"},
                     {"input": ["a"] * 2049}, {"input": "a", "priority": 3}):
            self.refused(sentences, path, body)
        self.assertEqual(sentences.request("POST", path, b"{")[0], 400)
        sentences.post(path, {"input": "a", "model": "nobody"}, 404)

    def test_the_wrong_kind_of_model(self):
        for path, body in (("/v1/completions", {"prompt": "x"}), ("/v1/generate", {"prompt": "x"}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                           ("/v1/responses", {"input": "x"}), ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]})):
            got, _, reply = sentences.request("POST", path, json.dumps({**body, "model": sentences.model}))
            self.assertEqual((path, got), (path, 400))
            self.assertIn("gives vectors and no text", reply.decode())
        with Server() as text:
            for path, body in (("/v1/embeddings", {"input": "x"}), ("/v1/rerank", {"query": "x", "documents": ["y"]}),
                               ("/classify", {"input": "x"})):
                self.refused(text, path, body, "--runner pooling")
        self.refused(sentences, "/classify", {"input": "x"}, "no classification head")
        self.refused(classes, "/v1/score", {"text_1": "a", "text_2": "b"}, "3 classes")

    def test_runners(self):
        for flags, words in ((["-m", str(SENTENCES), "--runner", "generate"], "penstock embed"),
                             (["-m", str(SENTENCES), "--runner", "walk"], "--runner")):
            done = subprocess.run([PROGRAM, "serve", *flags, "--port", "0"], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)

    def test_a_client_that_leaves(self):
        before = self.metric("penstock:request_success_abort_total")
        for _ in range(20):
            connection = http.client.HTTPConnection(story.host, story.port)
            connection.request("POST", "/v1/embeddings", json.dumps({"input": ["Once upon a time " * 20] * 500}))
            time.sleep(0.02)
            connection.close()
        deadline = time.monotonic() + 60
        while self.metric("penstock:num_requests_running") + self.metric("penstock:num_requests_waiting") > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertGreater(self.metric("penstock:request_success_abort_total"), before)
        story.post("/v1/embeddings", {"input": "x"})

    @staticmethod
    def metric(name):
        _, _, text = story.request("GET", "/metrics")
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.decode().splitlines() if line.startswith(name + "{"))


class Adapters(unittest.TestCase):
    """Requests name an adapter in the place of the model; the states are PEFT's."""
    ADAPTER = GOLDEN / "lora_encoders" / "bert"

    def check(self, server, name, golden):
        for case in json.loads((golden / "golden.json").read_text()):
            reply = server.post("/v1/embeddings", {"model": name, "input": case["ids"], "normalize": False})
            self.assertLess(max(abs(a - b) for a, b in zip(vectors(reply)[0], case["mean"])), 1e-3)
            self.assertEqual(reply["model"], name)

    def test_by_name(self):
        base = GOLDEN / "encoders" / "bert"
        with Server(base, "--lora-modules", f"formal={self.ADAPTER}", "--lora-dir", GOLDEN) as server:
            self.check(server, "formal", self.ADAPTER)
            self.check(server, server.model, base)
            names = {model["id"]: model.get("parent") for model in server.get("/v1/models")["data"]}
            self.assertEqual(names["formal"], server.model)
            server.request("POST", "/v1/load_lora_adapter", json.dumps({"lora_name": "other", "lora_path": str(self.ADAPTER)}))
            self.check(server, "other", self.ADAPTER)
            server.request("POST", "/v1/unload_lora_adapter", json.dumps({"lora_name": "formal"}))
            status, _, _ = server.request("POST", "/v1/embeddings", json.dumps({"model": "formal", "input": [3]}))
            self.assertEqual(status, 404)
            status, _, reply = server.request("POST", "/v1/load_lora_adapter", json.dumps(
                {"lora_name": "strange", "lora_path": str(GOLDEN / "lora_encoders" / "modernbert")}))
            self.assertEqual(status, 400)
            self.assertIn("another model", reply.decode())


class Operations(unittest.TestCase):
    def test_keys(self):
        with Server(SENTENCES, "--api-key", "secret") as server:
            self.assertEqual(server.request("POST", "/v1/embeddings", json.dumps({"input": "x"}))[0], 401)
            status, _, _ = server.request("POST", "/v1/embeddings", json.dumps({"input": "x"}), {"Authorization": "Bearer secret"})
            self.assertEqual(status, 200)

    def test_drain_finishes_what_runs(self):
        with Server(SMALL_MODEL, "--runner", "pooling") as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
            body = json.dumps({"input": ["Once upon a time " * 10] * 200})
            running = pool.submit(server.request, "POST", "/v1/embeddings", body)
            time.sleep(0.1)
            server.process.terminate()
            self.assertEqual(running.result()[0], 200)
            self.assertEqual(server.process.wait(timeout=30), 0)

    def test_models_and_documents(self):
        self.assertEqual(sentences.get("/v1/models")["data"][0]["max_model_len"], 32)
        self.assertIn("/v1/embeddings", sentences.get("/openapi.json")["paths"])
        self.assertEqual(sentences.post("/detokenize", {"tokens": [5, 6]})["prompt"], "the cat")


if __name__ == "__main__":
    unittest.main(verbosity=2)
