#!/usr/bin/env python3
"""What keys use and what it costs, budgets, the audit log; stores that cannot be used: damaged, newer, on a full disk."""
import datetime
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import batches_e2e
from batches_e2e import COMPLETIONS, line
from live_server import MODEL, PROGRAM, SLOW, Server, wait_for
from server_ops_e2e import bearer, keys

TODAY = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
RESPONSES = "/v1/responses"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data, self.file = self.folder / "data", str(self.folder / "keys.json")

    def config(self, **fields):
        path = self.folder / "models.json"
        model = {"model": str(MODEL), "name": "story", "kv_cache_memory": "64M", **fields}
        path.write_text(json.dumps({"models": [model]}))
        return path

    def serve(self, *flags, price=None):
        config = self.config(**({"price": price} if price else {}))
        return Server("--models-config", config, "--data-dir", self.data, "--api-key-file", self.file, *flags, model=None)

    def use(self, server, headers, query=""):
        reply = server.get("/v1/usage" + query, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()


class Use(Case):
    def test_by_key_and_model(self):
        admin = bearer(keys("add", "-f", self.file, "--name", "chief", "--scope", "admin"))
        mine = bearer(keys("add", "-f", self.file, "--name", "mine"))
        other = bearer(keys("add", "-f", self.file, "--name", "other"))
        mine_id = mine["Authorization"].split("-")[1]
        price = {"input": 2, "output": 10, "cached_input": 1}
        with self.serve(price=price) as server:
            usage = [server.post(COMPLETIONS, {"prompt": "Once upon a time " * 8, "max_tokens": 7, "ignore_eos": True}, mine).json()["usage"] for _ in range(3)]
            server.post(COMPLETIONS, {"prompt": "One", "max_tokens": 2}, other)
            server.post(COMPLETIONS, {"prompt": "One", "temperature": -1}, other)  # refused: nothing was used
            server.post(COMPLETIONS, {"prompt": "One", "max_tokens": 1}, admin)
            got = self.use(server, mine)
            self.assertEqual(len(got["data"]), 1)
            row = got["data"][0]
            self.assertEqual((row["day"], row["key"], row["model"], row["requests"]), (TODAY, mine_id, "story", 3))
            cached = sum(one["prompt_tokens_details"]["cached_tokens"] for one in usage)
            self.assertGreater(cached, 0)
            self.assertEqual((row["input_tokens"], row["output_tokens"], row["cached_tokens"]), (sum(one["prompt_tokens"] for one in usage), 21, cached))
            cost = ((row["input_tokens"] - cached) * 2 + cached * 1 + 21 * 10) / 1e6
            self.assertAlmostEqual(row["cost"], cost, 9)
            self.assertGreater(row["seconds"], 0)
            everything = self.use(server, admin)
            self.assertEqual(sum(one["requests"] for one in everything["data"]), 5)
            self.assertEqual(everything["total"]["requests"], 5)
            self.assertEqual(len({one["key"] for one in everything["data"]}), 3)
            self.assertEqual(self.use(server, admin, f"?key={mine_id}")["data"], got["data"])
            self.assertEqual(self.use(server, admin, "?start=2000-01-01&end=2000-02-01")["data"], [])
            for query, who in ((f"?key={mine_id}", other), ("?start=soon", mine), ("?colour=1", mine), ("?end=2026-02-30", mine)):
                self.assertEqual(server.get("/v1/usage" + query, who).status, 400, query)
            self.assertEqual(server.get("/v1/usage").status, 401)
            # The command reads beside the server, which has the folder.
            rows = [json.loads(one) for one in keys("usage", "-d", str(self.data), "--json").splitlines()]
            self.assertEqual(rows, everything["data"])
            table = keys("usage", "-d", str(self.data), "-f", self.file, "--by", "key")
            self.assertRegex(table, rf"{mine_id} .* mine")
        with self.serve(price=price) as server:
            self.assertEqual(self.use(server, mine)["data"], got["data"])

    def test_all_that_generates_is_counted(self):
        mine = bearer(keys("add", "-f", self.file))
        template = "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}"
        with Server("--data-dir", self.data, "--api-key-file", self.file, "--chat-template", template) as server:
            batches = batches_e2e.Case()
            batches.folder = self.folder
            made = batches.create(server, [line(i) for i in range(4)], headers=mine)
            batches.wait(server, made["id"], headers=mine)
            self.assertEqual(self.use(server, mine)["total"]["requests"], 4)
            reply = server.post(RESPONSES, {"input": "Once", "background": True, "max_output_tokens": 5}, mine).json()
            self.assertTrue(wait_for(lambda: server.get(f"{RESPONSES}/{reply['id']}", mine).json()["status"] not in ("queued", "in_progress")))
            self.assertTrue(wait_for(lambda: self.use(server, mine)["total"]["requests"] == 5))
            for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
                               ("/v1/generate", {"prompt": "x", "max_tokens": 2}), ("/api/generate", {"prompt": "x", "stream": False, "options": {"num_predict": 2}}),
                               ("/v1/messages", {"model": MODEL.name, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2})):
                self.assertEqual(server.post(path, body, mine).status, 200, path)
            self.assertTrue(wait_for(lambda: self.use(server, mine)["total"]["requests"] == 9))

    def test_killed(self):
        """What is older than the last second is there."""
        mine = bearer(keys("add", "-f", self.file))
        for run in range(3):
            with self.serve() as server:
                self.assertEqual(self.use(server, mine)["total"]["requests"], 5 * run)
                for _ in range(5):
                    self.assertEqual(server.post(COMPLETIONS, {"prompt": "Once", "max_tokens": 2}, mine).status, 200)
                time.sleep(2.5 * SLOW)
                server.process.kill()
                server.process.wait()

    def test_without_a_store_or_keys(self):
        with Server() as server:
            server.generate()
            got = self.use(server, None)
            self.assertEqual((got["kept"], got["total"]["requests"], got["data"][0]["key"]), (False, 1, ""))
            self.assertEqual(server.get("/v1/audit").status, 404)

    def test_prices_that_are_none(self):
        for price, words in (({"input": -1}, "price.input"), ({"inputs": 1}, "price.inputs"), (5, "price: expected"), ({"output": "x"}, "price.output")):
            done = subprocess.run([PROGRAM, "serve", "--models-config", str(self.config(price=price))], capture_output=True, text=True, timeout=60 * SLOW)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


class Budgets(Case):
    def test_a_spent_one(self):
        mine = bearer(keys("add", "-f", self.file, "--tokens-per-day", "30"))
        rich = bearer(keys("add", "-f", self.file, "--cost-per-month", "0.001"))
        ask = {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True}
        price = {"input": 10, "output": 40}
        with self.serve(price=price) as server:
            statuses = [server.post(COMPLETIONS, ask, mine).status for _ in range(3)]
            self.assertEqual(statuses, [200, 429, 429])  # the second one might go over it
            rest = 30 - self.use(server, mine)["budgets"][0]["used"]
            self.assertEqual(server.post(COMPLETIONS, {**ask, "prompt": [5], "max_tokens": rest - 1}, mine).status, 200)
            reply = server.post(COMPLETIONS, {"prompt": [5], "max_tokens": 1}, mine)
            self.assertIn("30 tokens per day", reply.json()["error"]["message"])
            self.assertRegex(reply.json()["error"]["message"], r"renewed at \d{4}-\d\d-\d\dT00:00:00Z")
            self.assertLessEqual(int(reply.headers["Retry-After"]), 86400)
            budget = self.use(server, mine)["budgets"][0]
            self.assertEqual((budget["name"], budget["limit"]), ("tokens_per_day", 30))
            self.assertEqual(budget["used"], 30)
            statuses = [server.post(COMPLETIONS, ask, rich).status for _ in range(3)]
            self.assertEqual(statuses, [200, 429, 429])
            self.assertIn("cost per month", server.post(COMPLETIONS, ask, rich).json()["error"]["message"])
            self.assertEqual(server.get("/v1/models", mine).status, 200)
            self.assertEqual(server.stop(), 0)
        with self.serve(price=price) as server:  # a restart gives nothing back
            self.assertEqual([server.post(COMPLETIONS, ask, one).status for one in (mine, rich)], [429, 429])
        self.assertIn("tok/day", keys("list", "-f", self.file))

    def test_lines_of_a_batch(self):
        mine = bearer(keys("add", "-f", self.file, "--tokens-per-day", "100"))
        with self.serve("--max-num-seqs", 2) as server:
            batches = batches_e2e.Case()
            batches.folder = self.folder
            made = batches.create(server, [line(i, prompt="Once upon a time", max_tokens=20, ignore_eos=True) for i in range(12)], headers=mine)
            ended = batches.wait(server, made["id"], headers=mine)
            self.assertEqual(ended["status"], "completed")
            self.assertGreaterEqual(ended["request_counts"]["completed"], 3)
            self.assertLessEqual(self.use(server, mine)["budgets"][0]["used"], 100)
            errors = batches.results(server, ended["error_file_id"], mine)
            self.assertEqual({one["error"]["code"] for one in errors.values()}, {"budget_exceeded"})
            self.assertEqual(sum(ended["request_counts"][one] for one in ("completed", "failed")), 12)


class Audit(Case):
    def test_what_administrators_do(self):
        admin = bearer(keys("add", "-f", self.file, "--name", "chief", "--scope", "admin"))
        mine = bearer(keys("add", "-f", self.file))
        admin_id = admin["Authorization"].split("-")[1]
        with self.serve() as server:
            self.assertEqual(server.post("/v1/models/reload", {"model": "story"}, admin).status, 200)
            self.assertEqual(server.post("/v1/models/unload", {"model": "none"}, admin).status, 404)
            self.assertEqual(server.post("/v1/models/unload", {"model": "story"}, mine).status, 403)  # was not done
            self.assertEqual(server.post("/reset_prefix_cache", {}, admin).status, 200)
            keys("add", "-f", self.file, "--name", "late")
            self.assertTrue(wait_for(lambda: len(server.get("/v1/audit", admin).json()["data"]) == 4))
            got = server.get("/v1/audit", admin).json()["data"]
            self.assertEqual([(one["act"], one["status"], one["key"]) for one in got],
                             [("key added", None, ""), ("POST /reset_prefix_cache", 200, admin_id),
                              ("POST /v1/models/unload", 404, admin_id), ("POST /v1/models/reload", 200, admin_id)])
            self.assertIn('"late"', got[0]["about"])
            self.assertEqual(json.loads(got[-1]["about"]), {"model": "story"})
            page = server.get("/v1/audit?limit=2", admin).json()
            self.assertTrue(page["has_more"])
            self.assertEqual(server.get(f"/v1/audit?before={page['data'][-1]['number']}", admin).json()["data"], got[2:])
            self.assertEqual(server.get("/v1/audit", mine).status, 403)
            for query in ("limit=0", "limit=1001", "before=x", "colour=1"):
                self.assertEqual(server.get("/v1/audit?" + query, admin).status, 400, query)
        rows = [json.loads(one) for one in keys("audit", "-d", str(self.data), "--json").splitlines()]
        self.assertEqual([one["number"] for one in rows], [one["number"] for one in got])


class Damaged(Case):
    """Stores that cannot be used, or not for now: what needs them says so, everything else goes on."""

    def only_others_work(self, words):
        with Server("--data-dir", self.data) as server:
            self.assertIn(words, server.log())
            for reply in (server.get("/v1/files"), server.get("/v1/batches"), server.get(f"{RESPONSES}/resp_1"), server.get("/v1/audit"),
                          server.post(RESPONSES, {"input": "x", "previous_response_id": "resp_1"})):
                self.assertEqual(reply.status, 500, reply.body)
                self.assertIn(words, reply.json()["error"]["message"])
            self.assertEqual(server.generate().status, 200)
            self.assertEqual(self.use(server, None)["kept"], False)

    def test_a_newer_store(self):
        Server("--data-dir", self.data).__enter__().stop()
        with sqlite3.connect(self.data / "penstock.db") as database:
            database.execute("PRAGMA user_version = 999")
        self.only_others_work("a newer Penstock wrote it")

    def test_a_corrupt_store(self):
        Server("--data-dir", self.data).__enter__().stop()
        path = self.data / "penstock.db"
        whole = path.read_bytes()
        for damaged, words in ((b"not a database" * 1000, "not a database"), (whole[:4096] + b"\xff" * 4096 + whole[8192:], "damaged")):
            path.write_bytes(damaged)
            self.only_others_work(words)
            self.assertEqual(path.read_bytes(), damaged)  # left for whoever can mend it

    def test_an_older_store(self):
        Server("--data-dir", self.data).__enter__().stop()
        with sqlite3.connect(self.data / "penstock.db") as database:  # as the version with files alone left it
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('settings', 'files', 'sqlite_sequence')").fetchall():
                database.execute(f"DROP TABLE {name}")
            database.execute("PRAGMA user_version = 1")
        with Server("--data-dir", self.data) as server:
            for path in ("/v1/files", "/v1/batches", "/v1/audit"):
                self.assertEqual(server.get(path).json()["data"], [], path)
            self.assertTrue(self.use(server, None)["kept"])

    @unittest.skipUnless(os.geteuid() == 0, "a full disk is made of a small tmpfs, which takes root")
    def test_a_full_disk(self):
        self.data.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(self.data)], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.data)], check=True)
        template = "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}"
        batches = batches_e2e.Case()
        batches.folder = self.folder
        with Server("--data-dir", self.data, "--chat-template", template) as server:
            kept = server.post(RESPONSES, {"input": "Once", "max_output_tokens": 2}).json()
            self.assertTrue(kept["store"])
            self.assertTrue(wait_for(lambda: self.use(server, None)["total"]["requests"] == 1))
            filler = self.data / "filler"
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError:
                    pass
            upload = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: form-data; name="file"; '
                      'filename="in.jsonl"\r\n\r\n' + "x" * 100000 + "\r\n--xyz--\r\n")
            reply = server.request("POST", "/v1/files", upload.encode(), {"Content-Type": "multipart/form-data; boundary=xyz"})
            self.assertEqual(reply.status, 500, reply.body)
            tools = [{"type": "function", "name": "f", "parameters": {"description": "x" * 100000}}]
            lost = server.post(RESPONSES, {"input": "Once", "tools": tools, "tool_choice": "none", "max_output_tokens": 2}).json()
            self.assertFalse(lost["store"], "a full disk kept it")
            self.assertEqual(server.get(f"{RESPONSES}/{kept['id']}").json(), kept)
            for _ in range(5):
                self.assertEqual(server.generate().status, 200)
            self.assertEqual(self.use(server, None)["total"]["requests"], 7)
            filler.unlink()
            self.assertTrue(wait_for(lambda: server.get("/v1/usage").status == 200))
            self.assertEqual(self.use(server, None)["total"]["requests"], 7)  # what could not be written waited
            again = server.post(RESPONSES, {"input": "Once", "max_output_tokens": 2}).json()
            self.assertTrue(again["store"])
            batches.wait(server, batches.create(server, [line(1)])["id"])

    @unittest.skipUnless(os.geteuid() == 0, "a full disk is made of a small tmpfs, which takes root")
    def test_deleting_on_a_full_disk(self):
        self.data.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(self.data)], capture_output=True).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.data)], check=True)
        template = "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}"

        def fill():
            with (self.data / f"filler{len(list(self.data.iterdir()))}").open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"x" * 4096)
                except OSError:
                    pass

        def upload(server, text):
            body = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--xyz\r\nContent-Disposition: form-data; '
                    f'name="file"; filename="in.jsonl"\r\n\r\n{text}\r\n--xyz--\r\n')
            return server.request("POST", "/v1/files", body.encode(), {"Content-Type": "multipart/form-data; boundary=xyz"})

        def respond(server, n):
            tools = [{"type": "function", "name": "f", "parameters": {"description": "x" * n}}]
            return server.post(RESPONSES, {"input": "Once", "tools": tools, "tool_choice": "none", "max_output_tokens": 2}).json()

        with Server("--data-dir", self.data, "--chat-template", template) as server:
            files = [upload(server, "x" * 100_000).json()["id"] for _ in range(3)]
            talk = server.post("/v1/conversations", {"items": [{"type": "message", "role": "user", "content": "Once"}] * 3}).json()["id"]
            item = server.get(f"/v1/conversations/{talk}/items").json()["data"][0]["id"]
            kept = [respond(server, 300_000) for _ in range(12)]  # more than the log has before it is written back
            self.assertTrue(all(one["store"] for one in kept))
            fill()
            while (lost := respond(server, 100_000))["store"]:  # what the log has room for
                kept.append(lost)
            while respond(server, 10)["store"]:
                pass
            paths = [f"{RESPONSES}/{one['id']}" for one in kept] + [f"/v1/conversations/{talk}/items/{item}", f"/v1/conversations/{talk}"]
            for path in [f"/v1/files/{files[0]}", *paths, f"/v1/files/{files[1]}"]:
                fill()
                self.assertEqual(server.get("/v1/usage").status, 200)
                reply = server.request("DELETE", path)
                self.assertEqual(reply.status, 200, (path, reply.body))
                self.assertEqual(server.get(path).status, 404)
            self.assertTrue(respond(server, 100_000)["store"], "what was deleted makes room")
            self.assertEqual(server.stop(), 0)
        fill()
        with Server("--data-dir", self.data) as server:  # starts on a full disk, with what was kept
            self.assertEqual([one["id"] for one in server.get("/v1/files").json()["data"]], [files[2]])
            self.assertEqual(server.request("DELETE", f"/v1/files/{files[2]}").status, 200)

    def test_a_file_of_two_gigabytes(self):
        with Server("--data-dir", self.data) as server:
            sock = server.raw(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=xyz\r\n"
                              b"Content-Length: 2147483648\r\n\r\n--xyz\r\n")
            self.assertIn(b" 413 ", sock.recv(4096).split(b"\r\n")[0])
            self.assertEqual(server.get("/v1/files").json()["data"], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
