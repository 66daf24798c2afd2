#!/usr/bin/env python3
"""/v1/batches: from upload to results, mistakes with their lines, cancel, expiry, owners, SIGKILL at any moment, others first."""
import json
import pathlib
import random
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from live_server import LARGER_MODEL, MODEL, SLOW, SLOW_KERNELS, SOURCE, Server
from server_ops_e2e import bearer, keys

COMPLETIONS = "/v1/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id, url=COMPLETIONS, method="POST", **body):
    body = body or {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
    return json.dumps({"custom_id": str(custom_id), "method": method, "url": url, "body": body})


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *flags, **more):
        return Server("--data-dir", self.folder / "data", *flags, **more)

    def upload(self, server, lines, headers=None):
        text = lines if isinstance(lines, str) else "".join(one + "\n" for one in lines)
        body = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
                '--xyz\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + text + "\r\n--xyz--\r\n")
        reply = server.request("POST", "/v1/files", body.encode(), {"Content-Type": "multipart/form-data; boundary=xyz", **(headers or {})})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()["id"]

    def create(self, server, lines, endpoint=COMPLETIONS, window="24h", headers=None, **fields):
        body = {"input_file_id": self.upload(server, lines, headers), "endpoint": endpoint, "completion_window": window, **fields}
        reply = server.post("/v1/batches", body, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def state(self, server, batch, headers=None):
        return server.get(f"/v1/batches/{batch}", headers).json()

    def wait(self, server, batch, until=ENDED, headers=None, seconds=60):
        end = time.monotonic() + seconds * SLOW
        while (now := self.state(server, batch, headers))["status"] not in until:
            self.assertLess(time.monotonic(), end, now)
            time.sleep(0.02)
        return now

    def results(self, server, file, headers=None):
        """{custom_id: result}, each there once."""
        if file is None:
            return {}
        lines = [json.loads(one) for one in server.get(f"/v1/files/{file}/content", headers).body.decode().splitlines()]
        self.assertEqual(len({one["custom_id"] for one in lines}), len(lines))
        return {one["custom_id"]: one for one in lines}


class Life(Case):
    def test_results_are_those_of_requests(self):
        prompts = {str(i): f"Once upon a time {'there was ' * (i % 7)}" for i in range(40)}
        with self.serve() as server:
            made = self.create(server, [line(i, prompt=prompt, max_tokens=5, temperature=0) for i, prompt in prompts.items()],
                               metadata={"run": "7"})
            self.assertEqual((made["object"], made["status"], made["metadata"]), ("batch", "validating", {"run": "7"}))
            self.assertEqual(made["expires_at"] - made["created_at"], 86400)
            batch = self.wait(server, made["id"])
            self.assertEqual(batch["status"], "completed")
            self.assertEqual(batch["request_counts"], {"total": 40, "completed": 40, "failed": 0})
            self.assertIsNone(batch["error_file_id"])
            for when in ("in_progress_at", "finalizing_at", "completed_at"):
                self.assertGreaterEqual(batch[when], batch["created_at"])
            got = self.results(server, batch["output_file_id"])
            self.assertEqual(set(got), set(prompts))
            for i, prompt in prompts.items():
                response = got[i]["response"]
                self.assertEqual((response["status_code"], got[i]["error"]), (200, None))
                alone = server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 5, "temperature": 0}).json()
                self.assertEqual(response["body"]["choices"], alone["choices"])
            output = server.get(f"/v1/files/{batch['output_file_id']}").json()
            self.assertEqual(output["purpose"], "batch_output")
            self.assertEqual(list((self.folder / "data" / "batches").iterdir()), [])
            metrics = server.metrics()
            self.assertEqual(metrics['penstock:batch_lines_total{result="completed"}'], 40)
            self.assertEqual(metrics["penstock:batch_lines_running"], 0)
            self.assertEqual([one["id"] for one in server.get("/v1/batches").json()["data"]], [made["id"]])

    def test_lines_that_are_refused_are_in_the_error_file(self):
        lines = [line("good"), line("bad", prompt="x", temperature=-1), line("unknown", prompt="x", temprature=1), line("other", prompt="x", model="gpt-9")]
        with self.serve() as server:
            batch = self.wait(server, self.create(server, lines)["id"])
            self.assertEqual(batch["request_counts"], {"total": 4, "completed": 1, "failed": 3})
            self.assertEqual(set(self.results(server, batch["output_file_id"])), {"good"})
            errors = self.results(server, batch["error_file_id"])
            self.assertEqual({i: one["response"]["status_code"] for i, one in errors.items()}, {"bad": 400, "unknown": 400, "other": 404})
            self.assertIn("temperature", errors["bad"]["response"]["body"]["error"]["message"])

    def test_other_endpoints(self):
        vectors = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
        with self.serve("--runner", "pooling", model=vectors) as server:
            lines = [line(i, "/v1/embeddings", input=f"the cat {i}") for i in range(5)]
            batch = self.wait(server, self.create(server, lines, "/v1/embeddings")["id"])
            self.assertEqual(batch["request_counts"]["completed"], 5, self.results(server, batch["error_file_id"]))
            got = self.results(server, batch["output_file_id"])
            self.assertEqual(got["3"]["response"]["body"]["data"][0]["object"], "embedding")

    def test_chats(self):
        model = script_model.write(self.folder / "script")
        for endpoint, body, read in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "say plain words"}]},
                                      lambda reply: reply["choices"][0]["message"]["content"]),
                                     ("/v1/responses", {"input": "say plain words"}, lambda reply: reply["output"][0]["content"][0]["text"])):
            with self.serve(model=model) as server:
                batch = self.wait(server, self.create(server, [line(i, endpoint, **body) for i in range(3)], endpoint)["id"])
                got = self.results(server, batch["output_file_id"])
                expected = read(server.post(endpoint, body).json())
                self.assertEqual([read(got[str(i)]["response"]["body"]) for i in range(3)], [expected] * 3)

    def test_mistakes_have_their_lines(self):
        lines = [line("a"), "{", line("a"), line("b", "/v1/chat/completions"), line("c", method="GET"), line("", prompt="x"), "", "[]",
                 line("d", prompt="x", stream=True), json.dumps({"custom_id": "e", "method": "POST", "url": COMPLETIONS})]
        with self.serve() as server:
            batch = self.wait(server, self.create(server, lines)["id"])
            self.assertEqual(batch["status"], "failed")
            found = {one["line"]: one["message"] for one in batch["errors"]["data"]}
            self.assertEqual(set(found), {2, 3, 4, 5, 6, 8, 9, 10})
            for number, words in ((3, "given twice: a"), (4, "as of the batch"), (5, "expected POST"), (9, "not streamed"), (10, "body: expected")):
                self.assertIn(words, found[number])
            self.assertIsNone(batch["output_file_id"])
            for text in ("\n\n", " "):
                batch = self.wait(server, self.create(server, text)["id"])
                self.assertEqual((batch["status"], batch["errors"]["data"][0]["code"]), ("failed", "empty_file"))

    def test_what_is_refused(self):
        with self.serve() as server:
            file = self.upload(server, [line(1)])
            good = {"input_file_id": file, "endpoint": COMPLETIONS, "completion_window": "24h"}
            for change, status, words in (({"endpoint": "/v1/images"}, 400, "endpoint"), ({"completion_window": "soon"}, 400, "completion_window"),
                                          ({"completion_window": "99999h"}, 400, "at most 720h"), ({"input_file_id": "file-none"}, 404, "no such file"),
                                          ({"colour": 1}, 400, "colour"), ({"metadata": {"a": 1}}, 400, "metadata")):
                reply = server.post("/v1/batches", {**good, **change})
                self.assertEqual(reply.status, status, (change, reply.body))
                self.assertIn(words, reply.json()["error"]["message"])
            for path in ("/v1/batches/batch_none", "/v1/batches?after=batch_none"):
                self.assertEqual(server.get(path).status, 404, path)
            for query in ("limit=0", "limit=101", "limit=x", "order=asc"):
                self.assertEqual(server.get(f"/v1/batches?{query}").status, 400, query)
            self.assertEqual(server.post("/v1/batches/batch_none/cancel", {}).status, 404)
        with Server() as server:
            self.assertEqual(server.post("/v1/batches", good).status, 404)

    def test_pages(self):
        with self.serve() as server:
            made = [self.create(server, [line(1)])["id"] for _ in range(5)]
            page = server.get("/v1/batches?limit=2").json()
            self.assertEqual([one["id"] for one in page["data"]], made[:2:-1])
            self.assertTrue(page["has_more"])
            rest = server.get(f"/v1/batches?limit=5&after={page['last_id']}").json()
            self.assertEqual([one["id"] for one in rest["data"]], made[2::-1])
            self.assertFalse(rest["has_more"])

    def test_owners(self):
        file = str(self.folder / "keys.json")
        mine, other = (bearer(keys("add", "-f", file, "--name", name)) for name in ("mine", "other"))
        with self.serve("--api-key-file", file) as server:
            batch = self.wait(server, self.create(server, [line(1)], headers=mine)["id"], headers=mine)
            self.assertEqual(batch["request_counts"]["completed"], 1)
            for reply in (server.get(f"/v1/batches/{batch['id']}", other), server.post(f"/v1/batches/{batch['id']}/cancel", {}, other),
                          server.get(f"/v1/files/{batch['output_file_id']}", other),
                          server.post("/v1/batches", {"input_file_id": batch["input_file_id"], "endpoint": COMPLETIONS,
                                                      "completion_window": "24h"}, other)):
                self.assertEqual(reply.status, 404)
            self.assertEqual(server.get("/v1/batches", other).json()["data"], [])
            self.assertEqual(len(self.results(server, batch["output_file_id"], mine)), 1)

    def test_cached_prompts_are_each_keys_own(self):
        """Of keys of the command line too, which are counted as one."""
        mine, other = bearer("first"), bearer("second")
        prompt = "Once upon a time there was a little girl who lived in a house " * 6
        with self.serve("--api-key", "first", "--api-key", "second") as server:
            cached = []
            for key in (mine, other, other):
                batch = self.wait(server, self.create(server, [line(1, prompt=prompt, max_tokens=1)], headers=key)["id"], headers=key)
                usage = self.results(server, batch["output_file_id"], key)["1"]["response"]["body"]["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"] > 0)
            self.assertEqual(cached, [False, False, True])


class Ends(Case):
    LONG = {"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": True, "temperature": 0}

    def test_results_are_bounded(self):
        """A few lines of input may have results without number: they count with the key's files."""
        limit = 1_000_000
        with self.serve("--max-stored-bytes", limit) as server:
            many = {"prompt": "Once", "n": 30, "max_tokens": 60, "ignore_eos": True, "logprobs": 20}
            made = self.create(server, [line(i, **many) for i in range(200)])
            batch = self.wait(server, made["id"])
            self.assertEqual(batch["status"], "failed", batch)
            self.assertEqual(batch["errors"]["data"][0]["code"], "storage_full")
            self.assertLess(batch["request_counts"]["completed"], 100)
            results = self.results(server, batch["output_file_id"])
            self.assertEqual(len(results), batch["request_counts"]["completed"])
            self.assertLess(sum(len(json.dumps(one)) for one in results.values()), 60 * limit)
            again = {"input_file_id": batch["input_file_id"], "endpoint": COMPLETIONS, "completion_window": "24h"}
            reply = server.post("/v1/batches", again)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn(b"no room for results", reply.body)
            server.request("DELETE", "/v1/files/" + batch["output_file_id"])
            self.assertEqual(server.post("/v1/batches", again).status, 200)

    def test_cancel(self):
        with self.serve("--max-num-seqs", "2", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            lines = [line("short", prompt="Once", max_tokens=1)] + [line(i, **{**self.LONG, "max_tokens": 60}) for i in range(200)]
            batch = self.create(server, lines)["id"]
            self.wait(server, batch, ("in_progress",))
            deadline = time.monotonic() + 60 * SLOW
            while self.state(server, batch)["request_counts"]["completed"] < 1:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            self.assertEqual(server.post(f"/v1/batches/{batch}/cancel", {}).json()["status"], "cancelling")
            ended = self.wait(server, batch)
            self.assertEqual(ended["status"], "cancelled")
            counts = ended["request_counts"]
            self.assertGreater(counts["completed"], 0)
            self.assertLess(counts["completed"], 200)
            self.assertEqual(len(self.results(server, ended["output_file_id"])), counts["completed"])
            self.assertEqual(server.post(f"/v1/batches/{batch}/cancel", {}).status, 400)

    def test_expiry(self):
        with self.serve("--max-num-seqs", "2", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            batch = self.create(server, [line(i, **self.LONG) for i in range(50)], window="2s")["id"]
            ended = self.wait(server, batch)
            self.assertEqual(ended["status"], "expired")
            errors = self.results(server, ended["error_file_id"])
            done = self.results(server, ended["output_file_id"])
            self.assertEqual(set(errors) | set(done), {str(i) for i in range(50)})
            self.assertEqual({one["error"]["code"] for one in errors.values()}, {"batch_expired"})

    def test_others_come_first(self):
        with self.serve("--max-num-seqs", "4", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            batch = self.create(server, [line(i, **{**self.LONG, "max_tokens": 20}) for i in range(300)])["id"]
            self.wait(server, batch, ("in_progress",))
            for _ in range(3):
                reply = server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 2})
                self.assertEqual(reply.status, 200)
            self.assertEqual(self.state(server, batch)["status"], "in_progress")


    def test_a_full_queue_is_waited_for(self):
        with self.serve("--max-num-seqs", "1", "--max-queued-requests", "1", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            stop = threading.Event()

            def others():
                while not stop.is_set():
                    server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 4})
            threads = [threading.Thread(target=others) for _ in range(3)]
            for thread in threads:
                thread.start()
            batch = self.create(server, [line(i) for i in range(6)])["id"]
            time.sleep(1)
            stop.set()
            for thread in threads:
                thread.join()
            self.assertEqual(self.wait(server, batch)["request_counts"], {"total": 6, "completed": 6, "failed": 0})


class Killed(Case):
    def test_no_line_is_lost_or_doubled(self):
        draw, n = random.Random(5), 2500
        lines = [line(i, prompt=f"Once upon a time {i}", max_tokens=1 + i % 9, temperature=0) for i in range(n)]
        with self.serve() as server:
            batch = self.create(server, lines)["id"]
        n_kills = 0
        for _ in range(60):
            with self.serve() as server:
                if self.state(server, batch)["status"] in ENDED:
                    break
                time.sleep(draw.uniform(0, 0.15) * SLOW)
                server.process.kill()
                server.process.wait()
                n_kills += 1
        self.assertGreater(n_kills, 1)
        with self.serve() as server:
            ended = self.wait(server, batch)
            self.assertEqual((ended["status"], ended["request_counts"]), ("completed", {"total": n, "completed": n, "failed": 0}))
            got = self.results(server, ended["output_file_id"])
            self.assertEqual(set(got), {str(i) for i in range(n)})
            for i in (0, 77, n - 1):
                self.assertEqual(got[str(i)]["response"]["body"]["usage"]["completion_tokens"], 1 + i % 9)
            self.assertEqual(len(server.get("/v1/files").json()["data"]), 2)

    def test_a_stop_in_between(self):
        with self.serve("--max-num-seqs", "2", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            batch = self.create(server, [line(i, **{**Ends.LONG, "max_tokens": 40}) for i in range(6)])["id"]
            self.wait(server, batch, ("in_progress",))
            self.assertEqual(server.stop(), 0)
        with self.serve(model=LARGER_MODEL) as server:
            self.assertEqual(self.wait(server, batch)["request_counts"], {"total": 6, "completed": 6, "failed": 0})


if __name__ == "__main__":
    unittest.main(verbosity=2)
