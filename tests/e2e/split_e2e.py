#!/usr/bin/env python3
"""Prefill and decode apart: servers of role prefill and decode that share a folder, or a Redis, beside one server alone."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import LARGER_MODEL, PROGRAM, SLOW, SLOW_KERNELS, Server, read_all, slow_server, wait_for  # noqa: E402

STORY = "Once upon a time there was a little girl who liked to play in the garden with her dog and her cat. " * 3
FLAGS = ("--batch-invariant", "--chat-template", "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}")
TURNS = [{"role": "user", "content": STORY}]
# A request of each API, and where its text is.
ASKED = {
    "/v1/completions": ({"prompt": STORY, "max_tokens": 12}, lambda r: r["choices"][0]["text"]),
    "/v1/chat/completions": ({"messages": TURNS, "max_tokens": 12}, lambda r: r["choices"][0]["message"]["content"]),
    "/v1/responses": ({"input": STORY, "max_output_tokens": 16}, lambda r: r["output"][-1]["content"][0]["text"]),
    "/v1/messages": ({"messages": TURNS, "max_tokens": 12}, lambda r: r["content"][0]["text"]),
    "/v1/generate": ({"prompt": STORY, "max_tokens": 12}, lambda r: r["text"]),
    "/api/chat": ({"messages": TURNS, "stream": False, "options": {"num_predict": 12, "temperature": 0}}, lambda r: r["message"]["content"]),
    "/api/generate": ({"prompt": STORY, "raw": True, "stream": False, "options": {"num_predict": 12, "temperature": 0}}, lambda r: r["response"]),
    "/completion": ({"prompt": STORY, "n_predict": 12}, lambda r: r["content"]),
}


def body_of(path, **more):
    asked = ASKED[path][0]
    return {**asked, **({} if "options" in asked else {"temperature": 0}), **more}


def prefill(store, **options):
    return Server(*FLAGS, "--role", "prefill", "--kv-store", store, **options)


def decode(store, **options):
    return Server(*FLAGS, "--role", "decode", "--kv-store", store, **options)


def text(server, path, **more):
    reply = server.post(path, body_of(path, **more))
    assert reply.status == 200, reply.body
    return ASKED[path][1](reply.json())


def redis(test, *flags, tls=False):
    """A Redis of the test's own: (process, URL)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # the same program under the name of another (tests/engine/redis_server.h)
    ports = ["--port", "0", "--tls-port", str(port)] if tls else ["--port", str(port)]
    process = subprocess.Popen(["redis-server", *ports, "--bind", "127.0.0.1", "--save", "", *flags],
                               executable="/usr/bin/redis-check-rdb", stdout=subprocess.DEVNULL)
    test.addCleanup(process.wait)
    test.addCleanup(process.kill)

    def answers():
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    wait_for(answers, 20)
    return process, f"redis{'s' if tls else ''}://127.0.0.1:{port}"


class SplitTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server(*FLAGS) as alone:
            cls.expected = {path: text(alone, path) for path in ASKED}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.store = f"{folder.name}:64M"

    def hand_over(self, store, path="/v1/completions"):
        with prefill(store) as one, decode(store) as other:
            reply = one.post(path, body_of(path)).json()
            self.assertEqual(reply["object"], "prefill")
            n_prompt = reply["usage"]["prompt_tokens"]
            self.assertEqual(reply["stored_tokens"], (n_prompt - 1) // 16 * 16)
            self.assertEqual(reply["usage"]["completion_tokens"], 0)
            self.assertGreater(n_prompt, 60)
            self.assertEqual(text(other, path), self.expected[path])
            # The first prompt that a server looks up is read: it has not measured yet what is sooner.
            self.assertEqual(other.metric("penstock:prompt_tokens_from_store_total"), reply["stored_tokens"])
            self.assertEqual(other.metric("penstock:prompt_tokens_cached_total"), reply["stored_tokens"])
            self.assertEqual(one.metric("penstock:kv_store_unsettled_total"), 0)
            return reply

    def test_by_a_folder(self):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages"):
            with self.subTest(path=path):
                self.hand_over(f"{self.folder}/{path.replace('/', '-')}:64M", path)

    def test_by_redis(self):
        _, url = redis(self)
        self.hand_over(url)

    def test_by_both(self):
        _, url = redis(self)
        with prefill(f"{self.folder}/one:64M,{url}") as one, decode(f"{self.folder}/other:64M,{url}") as other:
            stored = one.post("/v1/completions", body_of("/v1/completions")).json()["stored_tokens"]
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])
            self.assertEqual(other.metric("penstock:prompt_tokens_from_store_total"), stored)

    def test_every_api(self):
        with prefill(self.store) as one, decode(self.store) as other:
            for path in ASKED:
                for more in ({}, {"stream": True}):
                    with self.subTest(path=path, **more):
                        reply = one.post(path, body_of(path, **more))
                        self.assertEqual(reply.status, 200, reply.body)
                        self.assertEqual(reply.json()["object"], "prefill")
                        self.assertGreaterEqual(reply.json()["stored_tokens"], 48)
                self.assertEqual(text(other, path), self.expected[path], path)
            reply = one.post("/v1/completions", {"prompt": [STORY, "A dog. " + STORY], "n": 3, "max_tokens": 4}).json()
            self.assertGreaterEqual(reply["stored_tokens"], 2 * 48)
            self.assertEqual(one.metric("penstock:generation_tokens_total"), 0)

    def test_what_a_prefill_server_refuses(self):
        with prefill(self.store) as one:
            for path, more, word in (("/v1/completions", {"prompt_logprobs": 1}, "prompt_logprobs"),
                                     ("/v1/completions", {"use_beam_search": True, "n": 1}, "use_beam_search"),
                                     ("/v1/completions", {"prompt": "x" * 20000}, "tokens"),
                                     ("/v1/completions", {"temperature": -1}, "temperature")):
                with self.subTest(word=word):
                    reply = one.post(path, body_of(path, **more))
                    self.assertGreaterEqual(reply.status, 400)
                    self.assertIn(word, reply.json()["error"]["message"])
            self.assertEqual(one.post("/v1/completions", body_of("/v1/completions")).status, 200)
        with prefill(self.store) as one:
            reply = one.post("/v1/responses", {"input": STORY, "background": True, "store": True})
            self.assertGreaterEqual(reply.status, 400)
        done = subprocess.run([PROGRAM, "serve", "--role", "prefill", "--port", "0"], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("role: prefill needs a kv_store", done.stderr)
        done = subprocess.run([PROGRAM, "serve", "--role", "x", "--port", "0"], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertIn("expected prefill, decode or both, got 'x'", done.stderr)

    def test_keys_do_not_share(self):
        made = [subprocess.run([PROGRAM, "keys", "add", "-f", f"{self.folder}/keys.json"], capture_output=True, text=True, check=True).stdout.strip()
                for _ in range(2)]
        flags = ("--api-key-file", f"{self.folder}/keys.json")
        with Server(*FLAGS, *flags, "--role", "prefill", "--kv-store", self.store) as one, \
                Server(*FLAGS, *flags, "--role", "decode", "--kv-store", self.store) as other:
            asked = [{"Authorization": f"Bearer {key}"} for key in made]
            stored = one.post("/v1/completions", body_of("/v1/completions"), asked[0]).json()["stored_tokens"]
            self.assertGreater(stored, 0)
            for headers, n in ((asked[1], 0), (asked[0], stored)):
                reply = other.post("/v1/completions", body_of("/v1/completions"), headers).json()
                self.assertEqual(reply["choices"][0]["text"], self.expected["/v1/completions"])
                self.assertEqual(reply["usage"]["prompt_tokens_details"]["cached_tokens"], n)

    def test_a_killed_prefill_server(self):
        with slow_server(*FLAGS[1:], "--role", "prefill", "--kv-store", self.store) as one, decode(self.store) as other:
            sock = one.stream({"prompt": [f"{i} {STORY}" for i in range(64)], "max_tokens": 4})  # seconds of computing
            wait_for(lambda: one.metric("penstock:prompt_tokens_total") > 0, 30 * SLOW)
            one.process.kill()
            self.assertEqual(read_all(sock), b"")
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])

    def ask_beside(self, other, prompt, wait, **more):
        """Has a server asked on a thread; (thread, replies)."""
        replies = []
        body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, **more}
        thread = threading.Thread(target=lambda: replies.append(other.post("/v1/completions", body, {"x-prefill-wait": str(wait)})))
        thread.start()
        return thread, replies

    def test_blocks_are_read_while_they_are_made(self):
        _, url = redis(self)
        prompts = [f"Tale {i}. {STORY}" for i in range(12)]
        with Server("--threads", 1, *FLAGS, "--role", "prefill", "--kv-store", url, "--max-num-batched-tokens", 64, "--max-num-seqs", 1,
                    model=LARGER_MODEL, env=SLOW_KERNELS) as one, \
                Server(*FLAGS, "--role", "decode", "--kv-store", url, model=LARGER_MODEL, env=SLOW_KERNELS) as other, \
                Server(*FLAGS, model=LARGER_MODEL, env=SLOW_KERNELS) as alone:
            thread, replies = self.ask_beside(other, prompts, 60)
            wait_for(lambda: other.metric("penstock:num_requests_waiting") > 0, 20 * SLOW)
            made = []
            maker = threading.Thread(target=lambda: made.append(one.post("/v1/completions", {"prompt": prompts, "max_tokens": 12})))
            maker.start()
            wait_for(lambda: other.metric("penstock:kv_store_read_blocks_total") > 0, 120 * SLOW)
            self.assertFalse(made, "the prompts are not done yet")
            maker.join()
            thread.join()
            self.assertEqual((made[0].status, replies[0].status), (200, 200))
            self.assertEqual(other.metric("penstock:kv_store_followed_total"), len(prompts))
            for choice, prompt in zip(replies[0].json()["choices"], prompts):
                expected = alone.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0}).json()
                self.assertEqual(choice["text"], expected["choices"][0]["text"])

    def test_who_makes_a_prompt_dies_or_never_comes(self):
        _, url = redis(self)
        prompts = [f"Tale {i}. {STORY}" for i in range(20)]
        slow = {"model": LARGER_MODEL, "env": SLOW_KERNELS}
        with Server("--threads", 1, *FLAGS, "--role", "prefill", "--kv-store", url, "--max-num-batched-tokens", 64, "--max-num-seqs", 1, **slow) as one, \
                Server(*FLAGS, "--role", "decode", "--kv-store", url, **slow) as other:
            thread, replies = self.ask_beside(other, prompts, 3)
            sock = one.stream({"prompt": prompts, "max_tokens": 12})
            wait_for(lambda: one.metric("penstock:kv_store_written_blocks_total") > 0, 60 * SLOW)
            one.process.kill()
            self.assertEqual(read_all(sock), b"")
            thread.join()
            self.assertEqual(replies[0].status, 200)
            self.assertGreater(other.metric("penstock:kv_store_lost_total"), 0)
            begun = time.monotonic()
            reply = other.post("/v1/completions", {"prompt": "Nobody computes this. " + STORY, "max_tokens": 4}, {"x-prefill-wait": "1"})
            self.assertEqual(reply.status, 200)
            self.assertGreaterEqual(time.monotonic() - begun, 1)
            self.assertLess(time.monotonic() - begun, 1 + 20 * SLOW)
            for wrong in ("-1", "61", "soon", "nan", "1e9"):
                reply = other.post("/v1/completions", {"prompt": STORY, "max_tokens": 4}, {"x-prefill-wait": wrong})
                self.assertEqual(reply.status, 400)
                self.assertIn("x-prefill-wait", reply.json()["error"]["message"])
            # One who leaves meanwhile is let go.
            sock = other.stream({"prompt": "Nor this. " + STORY, "max_tokens": 4}, headers={"x-prefill-wait": "60"})
            wait_for(lambda: other.metric("penstock:num_requests_waiting") > 0, 20 * SLOW)
            sock.close()
            wait_for(lambda: other.metric("penstock:num_requests_waiting") == 0, 20 * SLOW)

    def test_by_a_redis_with_tls_and_a_password(self):
        certificate = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tls", "cert.pem")
        process, url = redis(self, "--requirepass", "gehe!m@1", "--tls-cert-file", certificate, "--tls-key-file", certificate.replace("cert", "key"),
                             "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no", tls=True)
        secret = {"PENSTOCK_REDIS_PASSWORD": "gehe!m@1"}
        url += "?ca=" + certificate
        with prefill(url, env=secret) as one, decode(url.replace("://", "://:gehe%21m%401@")) as other, decode(url) as stranger:
            stored = one.post("/v1/completions", body_of("/v1/completions")).json()["stored_tokens"]
            self.assertGreater(stored, 0)
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])
            self.assertEqual(other.metric("penstock:prompt_tokens_from_store_total"), stored)
            self.assertEqual(text(stranger, "/v1/completions"), self.expected["/v1/completions"])
            process.kill()
            process.wait()
            for server in (one, other, stranger):
                server.post("/v1/completions", {"prompt": "After it. " + STORY, "max_tokens": 4})
                told = server.log() + "".join(str(server.get(path).body) for path in ("/metrics", "/version", "/load", "/v1/models", "/openapi.json"))
                wait_for(lambda server=server: "kv store: redis" in server.log(), 20 * SLOW)
                for form in ("gehe!m", "gehe%21m"):
                    self.assertNotIn(form, told)
        wrong = url.replace("://", "://:gehe%21m%401@").replace("127.0.0.1:", "127.0.0.1:x")
        done = subprocess.run([PROGRAM, "serve", "--kv-store", wrong, "--port", "0"], capture_output=True, text=True, timeout=60 * SLOW)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("gehe", done.stdout + done.stderr)

    def test_a_killed_decode_server(self):
        with prefill(self.store) as one, decode(self.store) as other:
            stored = one.post("/v1/completions", body_of("/v1/completions")).json()["stored_tokens"]
            with decode(self.store) as dies:
                sock = dies.stream(body_of("/v1/completions", max_tokens=400, ignore_eos=True, stream=True))
                dies.process.kill()
                read_all(sock)
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])
            self.assertEqual(other.metric("penstock:prompt_tokens_from_store_total"), stored)

    def test_a_redis_that_hangs_is_full_or_gone(self):
        process, url = redis(self)
        with prefill(url) as one, decode(url) as other:
            process.send_signal(signal.SIGSTOP)
            begun = time.monotonic()
            reply = one.post("/v1/completions", body_of("/v1/completions"))
            self.assertEqual((reply.status, reply.json()["stored_tokens"]), (200, 0))
            self.assertLess(time.monotonic() - begun, 10 * SLOW)
            self.assertGreaterEqual(one.metric("penstock:kv_store_unsettled_total"), 1)
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
            for path in ASKED:
                self.assertEqual(one.post(path, body_of(path)).status, 200)
                self.assertEqual(text(other, path), self.expected[path], path)
        _, url = redis(self, "--maxmemory", "1100000", "--maxmemory-policy", "noeviction")
        with prefill(url) as one, decode(url) as other:
            reply = one.post("/v1/completions", body_of("/v1/completions")).json()
            self.assertLess(reply["stored_tokens"], (reply["usage"]["prompt_tokens"] - 1) // 16 * 16)
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])

    def test_a_folder_that_cannot_be_written(self):
        with prefill(self.store) as one, decode(self.store) as other:
            inside = next(pathlib.Path(self.folder).glob("penstock-kv/*"))
            for each in sorted(inside.rglob("*"), reverse=True):
                each.rmdir() if each.is_dir() else each.unlink()
            inside.rmdir()
            inside.write_text("in the way")
            begun = time.monotonic()
            reply = one.post("/v1/completions", body_of("/v1/completions")).json()
            self.assertEqual(reply["stored_tokens"], 0)
            self.assertLess(time.monotonic() - begun, 10 * SLOW)
            self.assertEqual(text(other, "/v1/completions"), self.expected["/v1/completions"])

    def test_those_who_leave_hold_nothing(self):
        process, url = redis(self)
        with prefill(url) as one:
            process.send_signal(signal.SIGSTOP)
            self.addCleanup(process.send_signal, signal.SIGCONT)
            socks = [one.stream({"prompt": f"{i} {STORY}", "max_tokens": 4}) for i in range(20)]
            wait_for(lambda: one.metric("penstock:prompt_tokens_total") > 0, 30)
            for sock in socks:
                sock.close()
            wait_for(lambda: one.get("/load").json().get("server_load", 0) == 0, 20)
            self.assertEqual(one.stop(), 0)

    def test_many_at_once(self):
        with prefill(self.store) as one, decode(self.store) as other:
            prompts = [f"Tale {i}. {STORY}" for i in range(12)]
            replies = {}

            def ask(i):
                reply = one.post("/v1/completions", {"prompt": prompts[i], "max_tokens": 4, "temperature": 0})
                replies[i] = (reply.json(), other.post("/v1/completions", {"prompt": prompts[i], "max_tokens": 8, "temperature": 0}).json())

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with Server(*FLAGS) as alone:
            for i, (first, second) in replies.items():
                self.assertEqual(first["stored_tokens"], (first["usage"]["prompt_tokens"] - 1) // 16 * 16)
                expected = alone.post("/v1/completions", {"prompt": prompts[i], "max_tokens": 8, "temperature": 0}).json()
                self.assertEqual(second["choices"][0]["text"], expected["choices"][0]["text"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
