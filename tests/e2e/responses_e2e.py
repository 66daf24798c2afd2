#!/usr/bin/env python3
"""/v1/responses that are kept: conversations that go on, reading, deleting, in the background, owners, bounds, SIGKILL."""
import json
import pathlib
import random
import socket
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from live_server import LARGER_MODEL, SLOW, SLOW_KERNELS, Server, read_head, read_until, wait_for
from server_ops_e2e import bearer, keys

RESPONSES = "/v1/responses"
TEMPLATE = "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"
LONG = {"input": "Once upon a time", "max_output_tokens": 300, "ignore_eos": True, "temperature": 0, "background": True}
ENDED = ("completed", "incomplete", "failed", "cancelled")


def events_of(body):
    blocks = [one for one in body.decode().split("\n\n") if one and not one.startswith(":")]
    return [json.loads(one.split("data: ", 1)[1]) for one in blocks]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *flags, **more):
        return Server("--data-dir", self.folder / "data", "--chat-template", TEMPLATE, *flags, **more)

    def slow(self, *flags):
        return self.serve("--threads", 1, *flags, model=LARGER_MODEL, env=SLOW_KERNELS)

    def ask(self, server, headers=None, **body):
        body = {"temperature": 0, "max_output_tokens": 8, **body}
        reply = server.post(RESPONSES, body, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def state(self, server, response, headers=None):
        return server.get(f"{RESPONSES}/{response}", headers).json()

    def wait(self, server, response, headers=None):
        return wait_for(lambda: (now := self.state(server, response, headers))["status"] in ENDED and now)


class Kept(Case):
    def test_a_conversation_goes_on(self):
        with self.serve() as server:
            first = self.ask(server, input="Once upon a time")
            self.assertTrue(first["store"])
            second = self.ask(server, input=[{"role": "user", "content": "there was"}], previous_response_id=first["id"])
            self.assertEqual(second["previous_response_id"], first["id"])
            said = first["output"][0]["content"][0]["text"]
            whole = self.ask(server, store=False, input=[{"role": "user", "content": "Once upon a time"}, {"role": "assistant", "content": said},
                                                         {"role": "user", "content": "there was"}])
            self.assertEqual(second["output"][0]["content"][0]["text"], whole["output"][0]["content"][0]["text"])
            self.assertEqual(second["usage"]["input_tokens"], whole["usage"]["input_tokens"])
            self.assertGreater(second["usage"]["input_tokens"], first["usage"]["input_tokens"] + 8)
            # What it goes on from may go.
            self.assertEqual(server.request("DELETE", f"{RESPONSES}/{first['id']}").json()["deleted"], True)
            third = self.ask(server, input="a dog", previous_response_id=second["id"])
            self.assertGreater(third["usage"]["input_tokens"], second["usage"]["input_tokens"])
            self.assertFalse(whole["store"])
            for gone in (first["id"], whole["id"], "resp_none"):
                self.assertEqual(server.get(f"{RESPONSES}/{gone}").status, 404)
                reply = server.post(RESPONSES, {"input": "x", "previous_response_id": gone})
                self.assertEqual((reply.status, reply.json()["error"]["param"]), (400, "previous_response_id"))
            # Mistakes in the new items are told by their own places.
            reply = server.post(RESPONSES, {"input": [{"type": "unknown"}], "previous_response_id": second["id"]})
            self.assertIn("input[0]", reply.json()["error"]["message"])
        with self.serve() as server:
            self.assertEqual(self.state(server, third["id"]), third)

    def test_streams_are_kept_too(self):
        with self.serve() as server:
            reply = server.post(RESPONSES, {"input": "Once", "max_output_tokens": 5, "temperature": 0, "stream": True})
            events = events_of(reply.body)
            last = events[-1]["response"]
            self.assertEqual(self.state(server, last["id"]), last)
            self.assertEqual([one["sequence_number"] for one in events], list(range(len(events))))

    def test_items(self):
        with self.serve() as server:
            first = self.ask(server, input="Once")
            second = self.ask(server, input=[{"role": "user", "content": "one"}, {"type": "message", "role": "user", "content": "two"}],
                              previous_response_id=first["id"])
            path = f"{RESPONSES}/{second['id']}/input_items"
            items = server.get(path + "?order=asc").json()
            self.assertEqual([item["role"] for item in items["data"]], ["user", "assistant", "user", "user"])
            self.assertEqual([item["content"][0]["text"] for item in items["data"]],
                             ["Once", first["output"][0]["content"][0]["text"], "one", "two"])
            self.assertEqual(len({item["id"] for item in items["data"]}), 4)
            page = server.get(path + "?limit=3").json()
            self.assertEqual([item["content"][0]["text"] for item in page["data"]][:2], ["two", "one"])
            self.assertTrue(page["has_more"])
            rest = server.get(path + f"?after={page['last_id']}").json()
            self.assertEqual(([item["content"][0]["text"] for item in rest["data"]], rest["has_more"]), (["Once"], False))
            for query, status in (("limit=0", 400), ("limit=101", 400), ("order=up", 400), ("colour=1", 400), ("after=none", 404)):
                self.assertEqual(server.get(f"{path}?{query}").status, status, query)

    def test_log_probabilities_where_they_are_asked_for(self):
        with self.serve() as server:
            made = self.ask(server, input="Once", top_logprobs=2, include=["message.output_text.logprobs"])
            self.assertEqual(len(made["output"][0]["content"][0]["logprobs"]), 8)
            self.assertEqual(self.state(server, made["id"] + "?include[]=message.output_text.logprobs"), made)
            self.assertEqual(self.state(server, made["id"])["output"][0]["content"][0]["logprobs"], [])

    def test_what_is_refused(self):
        with self.serve() as server:
            made = self.ask(server, input="Once")["id"]
            for query in ("stream=maybe", "stream=true", "starting_after=1", "include=all", "colour=1", "starting_after=x&stream=true"):
                self.assertEqual(server.get(f"{RESPONSES}/{made}?{query}").status, 400, query)
            self.assertEqual(server.post(f"{RESPONSES}/{made}/cancel", {}).status, 400)
            self.assertEqual(server.post(f"{RESPONSES}/resp_none/cancel", {}).status, 404)
            self.assertEqual(server.request("DELETE", f"{RESPONSES}/resp_none").status, 404)
            reply = server.post(RESPONSES, {"input": "x", "background": True, "store": False})
            self.assertEqual((reply.status, reply.json()["error"]["param"]), (400, "background"))
        with Server("--chat-template", TEMPLATE) as server:
            self.assertFalse(self.ask(server, input="Once", store=True)["store"])
            for fields in ({"background": True}, {"previous_response_id": "resp_1"}):
                reply = server.post(RESPONSES, {"input": "x", **fields})
                self.assertEqual(reply.status, 400)
                self.assertIn("--data-dir", reply.json()["error"]["message"])
            self.assertEqual(server.get(f"{RESPONSES}/resp_1").status, 404)

    def test_owners(self):
        file = str(self.folder / "keys.json")
        mine, other = (bearer(keys("add", "-f", file, "--name", name)) for name in ("mine", "other"))
        with self.serve("--api-key-file", file) as server:
            made = self.ask(server, mine, input="Once")["id"]
            self.assertEqual(server.get(f"{RESPONSES}/{made}", mine).status, 200)
            for reply in (server.get(f"{RESPONSES}/{made}", other), server.get(f"{RESPONSES}/{made}/input_items", other),
                          server.post(f"{RESPONSES}/{made}/cancel", {}, other), server.request("DELETE", f"{RESPONSES}/{made}", None, other)):
                self.assertEqual(reply.status, 404)
            self.assertEqual(server.post(RESPONSES, {"input": "x", "previous_response_id": made}, other).status, 400)

    def test_bounds(self):
        with self.serve("--max-stored-responses", 2, "--max-stored-response-bytes", 20000) as server:
            made = [self.ask(server, input=f"Once {i}")["id"] for i in range(4)]
            self.assertEqual([server.get(f"{RESPONSES}/{one}").status for one in made], [404, 404, 200, 200])
            large = {"input": "Once", "metadata": {str(i): "x" * 500 for i in range(16)}, "tool_choice": "none",
                     "tools": [{"type": "function", "name": "f", "description": "x" * 30000}]}  # which the reply repeats
            self.assertFalse(self.ask(server, **large)["store"])
            reply = server.post(RESPONSES, {**large, "background": True})
            self.assertEqual(reply.status, 400, reply.body)
        with self.serve("--stored-response-days", 1e-5) as server:
            made = self.ask(server, input="Once")["id"]
            self.assertTrue(wait_for(lambda: server.get(f"{RESPONSES}/{made}").status == 404))


class Background(Case):
    def test_it_goes_on_without_its_client(self):
        with self.serve() as server:
            made = self.ask(server, input="Once upon a time", background=True)
            self.assertEqual((made["status"], made["background"], made["output"]), ("queued", True, []))
            ended = self.wait(server, made["id"])
            alone = self.ask(server, input="Once upon a time", store=False)
            self.assertEqual(ended["output"][0]["content"][0]["text"], alone["output"][0]["content"][0]["text"])
            self.assertEqual((ended["status"], ended["usage"]["output_tokens"]), (alone["status"], alone["usage"]["output_tokens"]))
            follow = self.ask(server, input="and", previous_response_id=made["id"])
            self.assertGreater(follow["usage"]["input_tokens"], alone["usage"]["input_tokens"] + 8)
            self.assertEqual(server.post(f"{RESPONSES}/{made['id']}/cancel", {}).json()["status"], ended["status"])

    def test_its_stream_can_be_read_again(self):
        with self.slow() as server:
            body = {**LONG, "max_output_tokens": 60, "stream": True}
            whole = events_of(server.post(RESPONSES, body).body)
            made = whole[0]["response"]["id"]
            numbers = list(range(len(whole)))
            self.assertEqual([one["sequence_number"] for one in whole], numbers)
            self.assertEqual(whole[-1]["type"], "response.incomplete")
            self.assertEqual(events_of(server.get(f"{RESPONSES}/{made}?stream=true").body), whole)
            self.assertEqual(events_of(server.get(f"{RESPONSES}/{made}?stream=true&starting_after=7").body), whole[8:])
            self.assertEqual(events_of(server.get(f"{RESPONSES}/{made}?stream=true&starting_after=9999").body), [])
            # One whose client leaves in the middle; the next reads on while it is generated.
            sock = server.stream(body, RESPONSES)
            head = read_until(sock, b'"sequence_number":9}')
            sock.close()
            made = json.loads(head.split(b"data: ")[1].split(b"\n\n")[0])["response"]["id"]
            self.assertEqual(self.state(server, made)["status"], "in_progress")
            rest = events_of(server.get(f"{RESPONSES}/{made}?stream=true&starting_after=9").body)
            self.assertEqual([one["sequence_number"] for one in rest], numbers[10:])
            text = "".join(one["delta"] for one in rest if one["type"] == "response.output_text.delta")
            self.assertTrue(rest[-1]["response"]["output"][0]["content"][0]["text"].endswith(text))
            self.assertEqual(self.state(server, made)["status"], "incomplete")

    def test_cancel_and_delete(self):
        with self.slow("--max-num-seqs", 1) as server:
            made, waits, third = (self.ask(server, **LONG)["id"] for _ in range(3))
            self.assertTrue(wait_for(lambda: self.state(server, made)["status"] == "in_progress"))
            for one in (made, waits):
                self.assertEqual(server.post(f"{RESPONSES}/{one}/cancel", {}).json()["status"], "cancelled")
                self.assertEqual(self.state(server, one)["status"], "cancelled")
                self.assertEqual(server.post(f"{RESPONSES}/{one}/cancel", {}).json()["status"], "cancelled")
            self.assertEqual(server.request("DELETE", f"{RESPONSES}/{third}").status, 200)
            self.assertEqual(server.get(f"{RESPONSES}/{third}").status, 404)
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") == 0))
            self.assertEqual(server.metric("penstock:num_requests_waiting"), 0)

    def test_a_full_queue_is_waited_for(self):
        with self.slow("--max-num-seqs", 1, "--max-queued-requests", 1) as server:
            made = [self.ask(server, input="Once", background=True, max_output_tokens=5)["id"] for _ in range(6)]
            self.assertEqual({self.wait(server, one)["usage"]["output_tokens"] for one in made}, {5})

    def test_what_cannot_be_generated_says_why(self):
        with self.serve() as server:
            made = self.ask(server, input="Once", background=True, guided_regex="(((a{1,1000}){1,1000}){1,1000}b)*c")["id"]
            ended = self.wait(server, made)
            self.assertEqual(ended["status"], "failed")
            self.assertIn("guided_regex", ended["error"]["message"])

    def test_a_stop_waits_and_then_says_so(self):
        for patience, status in ((60, "incomplete"), (0, "failed")):
            with self.slow("--shutdown-timeout", patience) as server:
                made = self.ask(server, **{**LONG, "max_output_tokens": 40 if patience else 300})["id"]
                self.assertTrue(wait_for(lambda: self.state(server, made)["status"] == "in_progress"))
                self.assertEqual(server.stop(), 0)
            with self.serve() as server:
                ended = self.state(server, made)
                self.assertEqual(ended["status"], status)
                if status == "failed":
                    self.assertIn("stopped", ended["error"]["message"])

    def test_killed(self):
        """Nothing that was acknowledged is gone, and what was under way says that it failed."""
        draw = random.Random(3)
        kept, begun = {}, []
        for _ in range(8):
            with self.serve(model=LARGER_MODEL) as server:
                for made, reply in kept.items():
                    self.assertEqual(self.state(server, made), reply)
                for made in begun:
                    now = self.state(server, made)
                    self.assertIn(now["status"], ("failed", "incomplete"))
                    if now["status"] == "failed":
                        self.assertIn("ended while", now["error"]["message"])
                    else:
                        self.assertEqual(now["usage"]["output_tokens"], 30)
                begun = [self.ask(server, **{**LONG, "max_output_tokens": 30})["id"] for _ in range(3)]
                made = self.ask(server, input="Once", max_output_tokens=3)
                kept[made["id"]] = made
                time.sleep(draw.random() * 0.15)
                server.process.kill()
                server.process.wait()


class Readers(Case):
    def test_slow_ones_hold_what_they_are_sent(self):
        """And not all that is stored of the response."""
        item = {"type": "message", "role": "user", "content": "Once", "note": "x" * 20_000_000}
        tool = {"type": "web_search", "of_nobody": "x" * 2_000_000}
        with self.serve("--no-log-requests") as server:
            made = self.ask(server, input=[item], tools=[tool], max_output_tokens=2)["id"]
            self.state(server, made)
            before = server.rss()
            for _ in range(16):
                sock = server.raw()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.sendall(f"GET {RESPONSES}/{made} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                self.assertTrue(read_head(sock)[0].startswith(b"HTTP/1.1 200"))
            if SLOW == 1:
                self.assertLess(server.rss() - before, 150_000_000)


class Tools(Case):
    def test_calls_and_their_results(self):
        """A tool's result follows the call that is stored."""
        model = script_model.write(self.folder / "script")
        tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}, "strict": False}
        with Server("--data-dir", self.folder / "data", model=model) as server:
            first = self.ask(server, input="weather", tools=[tool], max_output_tokens=100)
            call = next(item for item in first["output"] if item["type"] == "function_call")
            second = self.ask(server, previous_response_id=first["id"], max_output_tokens=20,
                              input=[{"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}])
            items = server.get(f"{RESPONSES}/{second['id']}/input_items?order=asc").json()["data"]
            self.assertEqual([item["type"] for item in items if item["type"] != "reasoning"], ["message", "function_call", "function_call_output"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
