#!/usr/bin/env python3
"""Several models in one server: names, loading at the start and on first use, room for each other, idle ones, admin's routes, keys, errors."""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from live_server import LARGER_MODEL, MODEL, PROGRAM, SLOW, SLOW_KERNELS, SOURCE, Server
from server_ops_e2e import bearer, keys

VECTORS = SOURCE / "models" / "penstock-embed-2m-q8_0.gguf"
STORY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


def config_file(folder, models, **rest):
    path = pathlib.Path(folder) / "models.json"
    path.write_text("// sections\n" + json.dumps({"models": models, **rest}))
    return path


def serve(folder, models, *flags, env=None, **rest):
    return Server("--models-config", config_file(folder, models, **rest), *flags, model=None, env=env)


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def text(self, server, model, status=200, **fields):
        reply = server.post("/v1/completions", {**STORY, "model": model, **fields})
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()["choices"][0]["text"] if status == 200 else reply.json()["error"]["message"]

    def states(self, server, headers=None):
        return {one["id"]: one["state"] for one in server.get("/v1/models", headers).json()["data"]}


class Serving(Case):
    def test_each_answers_by_its_names(self):
        models = [{"name": "big", "aliases": ["gpt-4", "gpt-4o"], "model": str(LARGER_MODEL)}, {"name": "small", "model": str(MODEL)},
                  {"name": "vectors", "model": str(VECTORS), "runner": "pooling"}]
        with serve(self.folder, models) as server, Server(model=LARGER_MODEL) as big, Server(model=MODEL) as small:
            self.assertEqual(self.states(server), dict.fromkeys(("big", "gpt-4", "gpt-4o", "small", "vectors"), "loaded"))
            for names, alone in ((("big", "gpt-4", "gpt-4o", ""), big), (("small",), small)):
                expected = alone.post("/v1/completions", STORY).json()["choices"][0]["text"]
                for name in names:
                    self.assertEqual(self.text(server, name), expected, name)
            self.assertNotEqual(self.text(server, "big", max_tokens=40), self.text(server, "small", max_tokens=40))
            self.assertEqual(len(server.post("/v1/embeddings", {"model": "vectors", "input": "a cat"}).json()["data"]), 1)
            self.assertIn("expected big or gpt-4 or gpt-4o or small or vectors, got large", self.text(server, "large", 404))
            self.assertIn("served for text", server.post("/v1/embeddings", {"model": "small", "input": "a"}).json()["error"]["message"])
            names = {key.split('model_name="')[1].split('"')[0] for key in server.metrics() if 'model_name="' in key}
            self.assertEqual(names, {"big", "small", "vectors"})

    def test_metrics_tell_the_models_apart(self):
        with serve(self.folder, [{"name": "a", "model": str(MODEL)}, {"name": "b", "model": str(MODEL)}]) as server:
            series = [line.rsplit(" ", 1)[0] for line in server.get("/metrics").body.decode().splitlines() if line[:1] not in ("#", "")]
            self.assertGreater(len(series), 100)
            self.assertEqual(sorted(one for one in set(series) if series.count(one) > 1), [])

    def test_both_at_once(self):
        models = [{"name": "big", "model": str(LARGER_MODEL)}, {"name": "small", "model": str(MODEL)}]
        with serve(self.folder, models) as server:
            expected = {name: self.text(server, name, max_tokens=40) for name in ("big", "small")}
            got = []
            threads = [threading.Thread(target=lambda name=name: got.append((name, self.text(server, name, max_tokens=40))))
                       for name in ("big", "small") * 6]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sorted(got), sorted(6 * list(expected.items())))

    def test_flags(self):
        with Server("--model", f"a={MODEL}", "--model", str(VECTORS), model=None) as server:
            self.assertEqual(self.states(server), {"a": "loaded", VECTORS.name: "loaded"})
            self.text(server, "a")

    def test_defaults_of_a_section(self):
        script = script_model.write(pathlib.Path(self.folder) / "script")
        models = [{"name": "greedy", "model": str(MODEL), "sampling": {"temperature": 0, "max_tokens": 3}},
                  {"name": "drawn", "model": str(MODEL)},
                  {"name": "chat", "model": str(script), "system_prompt": "Be brief.",
                   "chat_template": "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"}]
        with serve(self.folder, models) as server:
            prompt = {"prompt": "Once upon a time", "max_tokens": 20}
            greedy = {server.post("/v1/completions", {**prompt, "model": "greedy"}).body.split(b'"text"')[1].split(b"}")[0] for _ in range(3)}
            self.assertEqual(len(greedy), 1)
            drawn = {server.post("/v1/completions", {**prompt, "model": "drawn", "seed": i}).json()["choices"][0]["text"] for i in range(4)}
            self.assertGreater(len(drawn), 1)
            ask = lambda *roles: server.post("/apply-template", {"model": "chat", "messages": [{"role": role, "content": "hi"} for role in roles]}).json()["prompt"]
            self.assertEqual(ask("user"), "[system]Be brief.[user]hi")
            self.assertEqual(ask("system", "user"), "[system]hi[user]hi")

    def test_a_model_that_fails_disturbs_nobody(self):
        bad = pathlib.Path(self.folder) / "bad.gguf"
        bad.write_bytes(MODEL.read_bytes()[:5000])
        with serve(self.folder, [{"name": "bad", "model": str(bad)}, {"name": "good", "model": str(MODEL)}]) as server:
            self.assertEqual(server.get("/ready").status, 200)
            self.text(server, "good")
            for _ in range(2):
                self.assertIn("bad could not be loaded", self.text(server, "bad", 503))
            listed = server.get("/v1/models/bad").json()
            self.assertEqual((listed["state"], listed["max_model_len"]), ("failed", None))
            self.assertIn("bad.gguf", listed["error"])
            slots = server.get("/slots?model=bad")
            self.assertEqual(slots.status, 503)
            self.assertIn("bad could not be loaded", slots.json()["error"]["message"])
            self.assertEqual(len(server.get("/slots?model=good").json()), len(server.get("/slots?model=good&fail_on_no_slot=1").json()))
            reply = server.post("/v1/models/load", {"model": "bad"})
            self.assertEqual(reply.status, 503)
            bad.write_bytes(MODEL.read_bytes())
            self.assertEqual(server.post("/v1/models/load", {"model": "bad"}).json()["state"], "loaded")
            self.assertEqual(self.text(server, "bad"), self.text(server, "good"))

    def test_without_any_model_it_ends(self):
        files = []
        for name in ("one", "two"):
            files.append(pathlib.Path(self.folder) / f"{name}.gguf")
            files[-1].write_bytes(b"GGUF")
        done = subprocess.run([PROGRAM, "serve", "--port", "0", *(f"--model={file}" for file in files)], capture_output=True, text=True,
                              timeout=60 * SLOW)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("one.gguf", done.stderr)


class Loading(Case):
    def test_on_first_use(self):
        models = [{"name": "now", "model": str(MODEL)}, {"name": "later", "model": str(MODEL), "load": "first use"}]
        with serve(self.folder, models) as server:
            self.assertEqual(self.states(server), {"now": "loaded", "later": "unloaded"})
            free = server.get("/slots?model=later&fail_on_no_slot=1")  # a request would get it loaded
            self.assertEqual((free.status, free.json()), (200, []))
            expected, got = self.text(server, "now"), []
            threads = [threading.Thread(target=lambda: got.append(self.text(server, "later"))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(got, [expected] * 8)
            self.assertEqual(self.states(server)["later"], "loaded")

    def test_idle_ones_go(self):
        models = [{"name": "stays", "model": str(MODEL)}, {"name": "goes", "model": str(MODEL), "idle_timeout": 0.5}]
        with serve(self.folder, models) as server:
            self.text(server, "goes")
            self.assertTrue(wait_for(lambda: self.states(server) == {"stays": "loaded", "goes": "unloaded"}))
            self.text(server, "goes")
            self.assertEqual(self.states(server)["goes"], "loaded")

    def test_they_make_room_for_each_other(self):
        # Each takes some 20 MiB; there is room for two.
        models = [{"name": name, "model": str(MODEL), "kv_cache_memory": "16MiB", "load": "first use"} for name in ("a", "b", "c")]
        models[0]["pinned"] = True
        with serve(self.folder, models, memory="40MiB") as server:
            expected = self.text(server, "a")
            for _ in range(3):
                for name, other in (("b", "c"), ("c", "b")):
                    self.assertEqual(self.text(server, name), expected)
                    self.assertEqual(self.states(server), {"a": "loaded", name: "loaded", other: "unloaded"})

    def test_requests_under_way_end_first(self):
        models = [{"name": name, "model": str(LARGER_MODEL), "kv_cache_memory": "8MiB", "load": "first use"} for name in ("a", "b")]
        with serve(self.folder, models, memory="32MiB", env=SLOW_KERNELS) as server:
            long = {"max_tokens": 60, "ignore_eos": True}
            got = {}
            first = threading.Thread(target=lambda: got.update(a=self.text(server, "a", **long)))
            first.start()
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") == 1))
            got["b"] = self.text(server, "b", **long)
            first.join()
            self.assertEqual(got["a"], got["b"])
            self.assertEqual(self.states(server), {"a": "unloaded", "b": "loaded"})

    def test_who_reads_slowly_keeps_no_model(self):
        models = [{"name": name, "model": str(MODEL), "kv_cache_memory": "16MiB", "load": "first use"} for name in ("a", "b", "c")]
        with serve(self.folder, models, "--unload-timeout", "1", "--write-timeout", "600", memory="24MiB") as server:
            self.text(server, "a")
            body = json.dumps({"model": "a", "prompt": "Once", "max_tokens": 200, "n": 16, "ignore_eos": True, "logprobs": 20, "stream": True})
            slow = self.enterContext(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            slow.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") > 0))
            begin = time.monotonic()
            for name in ("b", "c", "a"):
                self.text(server, name)
            self.assertLess(time.monotonic() - begin, 30 * SLOW)

    def test_who_is_late_is_told(self):
        models = [{"name": name, "model": str(LARGER_MODEL), "kv_cache_memory": "8MiB", "load": "first use"} for name in ("a", "b")]
        with serve(self.folder, models, "--unload-timeout", "0.5", memory="32MiB", env=SLOW_KERNELS) as server:
            got = {}
            def ask(stream):
                got[stream] = server.post("/v1/completions", {**STORY, "model": "a", "max_tokens": 400, "ignore_eos": True, "stream": stream})
            threads = [threading.Thread(target=ask, args=(stream,)) for stream in (False, True)]
            for thread in threads:
                thread.start()
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") == 2))
            self.text(server, "b")
            for thread in threads:
                thread.join()
            self.assertEqual((got[False].status, got[False].headers["Retry-After"]), (503, "1"), got[False].body)
            self.assertIn(b'"finish_reason":"abort"', got[True].body)

    def test_a_request_waits_for_no_model_while_it_keeps_one(self):
        # The model of vectors has room beside no other.
        script = script_model.write(pathlib.Path(self.folder) / "script")
        models = [{"name": "a", "model": str(script), "kv_cache_memory": "16MiB", "load": "first use"},
                  {"name": "vectors", "model": str(VECTORS), "kv_cache_memory": "16MiB", "load": "first use"}]
        chat = {"model": "a", "messages": [{"role": "user", "content": "hello there"}], "temperature": 0, "max_tokens": 8}
        with serve(self.folder, models, "--reply-cache", "10MiB", "--reply-cache-by-meaning", "vectors", memory="24MiB") as server:
            for text in ("hello there", "good morning"):
                chat["messages"][0]["content"] = text
                reply = server.post("/v1/chat/completions", chat, timeout=30)
                self.assertEqual(reply.status, 200, reply.body)
                self.assertIn("fwd=bypass; detail=embedder", reply.headers["Cache-Status"])
        with serve(self.folder, models, "--reply-cache", "10MiB", "--reply-cache-by-meaning", "vectors", memory="400MiB") as server:
            def finds_by_meaning():
                chat["messages"][0]["content"] += "!"
                return "penstock-meaning; fwd=miss" in server.post("/v1/chat/completions", chat).headers["Cache-Status"]
            self.assertTrue(wait_for(finds_by_meaning))  # it is loaded beside the requests

    def test_what_cannot_fit(self):
        models = [{"name": "a", "model": str(MODEL), "kv_cache_memory": "16MiB", "pinned": True},
                  {"name": "b", "model": str(MODEL), "kv_cache_memory": "16MiB", "load": "first use"},
                  {"name": "c", "model": str(MODEL), "memory": "1GiB", "load": "first use"}]
        with serve(self.folder, models, memory="24MiB") as server:
            self.assertIn("pinned models leave", self.text(server, "b", 503))
            self.assertIn("all models together may take 24", self.text(server, "c", 503))
            self.text(server, "a")

    def test_memory_comes_back(self):
        models = [{"name": "a", "model": str(LARGER_MODEL), "kv_cache_memory": "64MiB"}, {"name": "b", "model": str(MODEL)}]
        with serve(self.folder, models) as server:
            def round_trip():
                self.text(server, "a", max_tokens=50)
                self.assertEqual(server.post("/v1/models/unload", {"model": "a"}).json()["state"], "unloaded")
                return server.rss()
            first = round_trip()
            for _ in range(5):
                last = round_trip()
            self.assertLess(last, first + (16 << 20))


class Admin(Case):
    def test_load_unload_reload(self):
        with Server(model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            name = server.get("/v1/models").json()["data"][0]["id"]
            got = []
            long = threading.Thread(target=lambda: got.append(self.text(server, name, max_tokens=40, ignore_eos=True)))
            long.start()
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") == 1))
            reply = server.post("/v1/models/unload", {"model": name}).json()
            self.assertEqual((reply["model"], reply["state"]), (name, "unloaded"))
            long.join()
            self.assertGreater(len(got[0]), 40)  # it ended as if nothing were
            self.assertEqual(server.post("/v1/models/load", {"model": name}).json()["state"], "loaded")
            self.assertEqual(server.post("/v1/models/reload", {"model": name}).json()["state"], "loaded")
            self.text(server, name)
            self.assertEqual(server.post("/v1/models/unload", {"model": "other"}).status, 404)
            for body in ({}, {"model": 5}, {"model": name, "force": True}, []):
                self.assertEqual(server.post("/v1/models/load", body).status, 400, body)

    def test_sleep_gives_memory_back_and_keeps_the_cache_in_the_store(self):
        store = pathlib.Path(self.folder) / "store"
        prompt = {"prompt": "Once upon a time there was a little girl who liked to play in the garden with her dog.", "max_tokens": 8, "temperature": 0}
        with Server("--enable-sleep-mode", "--kv-store", f"{store}:64M", "--kv-cache-memory", "256M", model=LARGER_MODEL) as server:
            said = server.post("/v1/completions", prompt).json()
            # much of the cache is touched, so that it is resident
            for i in range(8):
                server.post("/v1/completions", {"prompt": f"{i} is a number. " * 40, "max_tokens": 1})
            self.assertEqual(server.get("/is_sleeping").json(), {"is_sleeping": False})
            awake = server.rss()
            for query in ("level=3", "level=x", "mode=keep"):
                self.assertEqual(server.post(f"/sleep?{query}", {}).status, 400, query)
            for _ in range(2):
                self.assertEqual(server.post("/sleep?level=1&mode=wait", {}).status, 200)
            self.assertEqual(server.get("/is_sleeping").json(), {"is_sleeping": True})
            self.assertLess(server.rss(), awake - (10 << 20))
            for path, body in (("/v1/completions", prompt), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
                               ("/tokenize", {"prompt": "a"}), ("/v1/models/load", {"model": LARGER_MODEL.name})):
                reply = server.post(path, body)
                self.assertEqual(reply.status, 503, path)
                self.assertIn("asleep", reply.body.decode(), path)
            self.assertEqual([server.get(path).status for path in ("/health", "/ready", "/metrics", "/v1/models")], [200, 503, 200, 200])
            self.assertEqual(server.post("/wake_up?tags=all", {}).status, 400)
            for _ in range(2):
                self.assertEqual(server.post("/wake_up", {}).status, 200)
            self.assertEqual(server.get("/ready").status, 200)
            again = server.post("/v1/completions", prompt).json()
            self.assertEqual(again["choices"][0]["text"], said["choices"][0]["text"])
            self.assertGreaterEqual(again["usage"]["prompt_tokens_details"]["cached_tokens"], 16)

    def test_sleep_ends_what_runs(self):
        with Server("--enable-sleep-mode", model=LARGER_MODEL, env=SLOW_KERNELS) as server:
            got = []
            ask = lambda: got.append(server.post("/v1/completions", {**STORY, "max_tokens": 400, "ignore_eos": True}).status)
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") >= 1))
            self.assertEqual(server.post("/sleep", {}, timeout=60).status, 200)
            for thread in threads:
                thread.join()
            self.assertEqual(set(got), {503})
            self.assertEqual(server.stop(), 0)  # asleep

    def test_requests_wait_for_a_model_that_comes_again(self):
        with Server(model=MODEL) as server:
            name = server.get("/v1/models").json()["data"][0]["id"]
            done, statuses = threading.Event(), set()
            bodies = [("/v1/completions", {**STORY, "model": name}), ("/invocations", {**STORY, "model": name}), ("/tokenize", {"prompt": "a"})]
            def ask(path, body):
                while not done.is_set():
                    reply = server.post(path, body, timeout=60)
                    statuses.add((path, reply.status, reply.body[:200] if reply.status != 200 else b""))
            threads = [threading.Thread(target=ask, args=one) for one in bodies * 2]
            for thread in threads:
                thread.start()
            for _ in range(30):
                self.assertEqual(server.post("/v1/models/unload", {"model": name}, timeout=60).status, 200)
            done.set()
            for thread in threads:
                thread.join()
            self.assertEqual(statuses, {(path, 200, b"") for path, _ in bodies})

    def test_a_stop_while_models_come_and_go(self):
        models = [{"name": name, "model": str(MODEL), "kv_cache_memory": "16MiB", "load": "first use"} for name in ("a", "b")]
        with serve(self.folder, models, memory="24MiB") as server:
            def ask(name):
                try:
                    while server.post("/v1/completions", {**STORY, "model": name}).status in (200, 503):
                        pass
                except OSError:
                    pass
            threads = [threading.Thread(target=ask, args=(name,)) for name in "abab"]
            for thread in threads:
                thread.start()
            time.sleep(1)
            self.assertEqual(server.stop(), 0)
            for thread in threads:
                thread.join()

    def test_keys(self):
        file = str(pathlib.Path(self.folder) / "keys.json")
        few, other, boss = (keys("add", "-f", file, "--name", name, "--scope", scope)
                            for name, scope in (("few", "inference"), ("other", "inference"), ("boss", "admin")))
        models = [{"name": "secret", "model": str(MODEL), "keys": [few.split("-")[1]]}, {"name": "open", "model": str(MODEL)}]
        with serve(self.folder, models, "--api-key-file", file, "--enable-sleep-mode") as server:
            both, one = {"secret": "loaded", "open": "loaded"}, {"open": "loaded"}
            for key, seen in ((few, both), (other, one), (boss, both)):
                self.assertEqual(self.states(server, bearer(key)), seen)
                reply = server.post("/v1/completions", {**STORY, "model": "secret"}, bearer(key))
                self.assertEqual(reply.status, 200 if "secret" in seen else 404)
                self.assertEqual(server.get("/v1/models/secret", bearer(key)).status, reply.status)
            self.assertIn("expected open, got secret", server.post("/v1/completions", {**STORY, "model": "secret"}, bearer(other)).body.decode())
            self.assertEqual(server.post("/v1/completions", STORY, bearer(other)).json()["model"], "open")
            for key, status in ((few, 403), (boss, 200)):
                for action in ("unload", "load", "reload"):
                    self.assertEqual(server.post(f"/v1/models/{action}", {"model": "open"}, bearer(key)).status, status)
            for path, answers in (("/sleep", {few: 403, "no": 401, boss: 200}), ("/wake_up", {few: 403, "no": 401, boss: 200})):
                for key, status in answers.items():
                    self.assertEqual(server.post(path, {}, bearer(key)).status, status, path)
                sleeps = server.get("/is_sleeping", bearer(few)).json()["is_sleeping"]
                self.assertEqual(sleeps, path == "/sleep")
                self.assertEqual(server.post("/v1/completions", STORY, bearer(other)).status, 503 if sleeps else 200)


class Errors(Case):
    def refused(self, *flags):
        done = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertNotIn(done.returncode, (0, -6, -11), done.stderr)
        return done.stderr

    def test_of_the_file(self):
        good = {"name": "a", "model": str(MODEL)}
        for models, words in (
                ([good, good], "expected every name once, got a"), ([], "a list of models"), ([5], "models[0]: expected an object"),
                ([{"name": "a"}], "models[0].model: expected a path or a name"), ([{**good, "colour": 1}], "models[0].colour: there is no such field"),
                ([good, {**good, "name": "b", "threads": "two"}], 'models[1].threads: expected a whole number, got "two"'),
                ([{**good, "threads": 99999999999}], "models[0].threads: expected a whole number"),
                ([{**good, "pinned": 1}], "models[0].pinned: expected true or false"), ([{**good, "memory": "lots"}], "a size such as 512MiB"),
                ([{**good, "kv_cache_memory": -5}], "a size such as 512MiB"), ([{**good, "load": "soon"}], 'expected "start" or "first use"'),
                ([{**good, "runner": "draft"}], "auto, generate or pooling"), ([{**good, "sampling": {"warmth": 1}}], "SamplingParams, not warmth"),
                ([{**good, "sampling": {"temperature": "hot"}}], "temperature"), ([{**good, "idle_timeout": -1}], "0 to 1e7 seconds"),
                ([{**good, "aliases": "b"}], "a list of texts"), ([{**good, "keys": ["x"]}], "--api-key-file"),
                ([{**good, "model": "/nonexistent/model.gguf"}], "/nonexistent/model.gguf")):
            self.assertIn(words, self.refused("--models-config", config_file(self.folder, models)))
        self.assertIn("no such field", self.refused("--models-config", config_file(self.folder, [good], colour=1)))
        broken = pathlib.Path(self.folder) / "broken.json"
        for text in ("{", "[]", "", '{"models": 5}', "\x00\xff"):
            broken.write_bytes(text.encode("latin-1"))
            self.assertIn("broken.json", self.refused("--models-config", broken))

    def test_of_flags(self):
        self.assertIn("excludes", self.refused("--models-config", config_file(self.folder, []), "--model", MODEL))
        self.assertIn("--served-model-name: of which", self.refused("--model", f"a={MODEL}", "--model", f"b={MODEL}", "--served-model-name", "x"))
        self.assertIn("got a for two models", self.refused("--model", f"a={MODEL}", "--model", f"a={MODEL}"))
        self.assertIn("NAME=MODEL", self.refused("--model", f"={MODEL}"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
