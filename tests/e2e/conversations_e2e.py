#!/usr/bin/env python3
"""/v1/conversations: items that are kept, responses that go on from them and add to them, owners, bounds, the end of a process."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from live_server import Server, wait_for
from server_ops_e2e import bearer, keys

CONVERSATIONS = "/v1/conversations"
TEMPLATE = "{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}\n{% endfor %}"


def message(text, **more):
    return {"type": "message", "role": "user", "content": text, **more}


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *flags, **more):
        return Server("--data-dir", self.folder / "data", "--chat-template", TEMPLATE, *flags, **more)

    def post(self, server, path, body, status=200, headers=None):
        reply = server.post(path, body, headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def get(self, server, path, status=200, headers=None):
        reply = server.get(path, headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def delete(self, server, path, status=200, headers=None):
        reply = server.request("DELETE", path, headers=headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def begin(self, server, *texts, **more):
        return self.post(server, CONVERSATIONS, {"items": [message(text) for text in texts], **more})["id"]

    def texts(self, server, conversation, query="?order=asc&limit=100"):
        page = self.get(server, f"{CONVERSATIONS}/{conversation}/items{query}")
        return [item["content"][0]["text"] for item in page["data"]]

    def respond(self, server, status=200, headers=None, **body):
        return self.post(server, "/v1/responses", {"temperature": 0, "max_output_tokens": 8, **body}, status, headers)


class Kept(Case):
    def test_a_conversation_and_its_items(self):
        with self.serve() as server:
            made = self.post(server, CONVERSATIONS, {"items": [message("one")], "metadata": {"topic": "fish"}})
            self.assertEqual((made["object"], made["metadata"]), ("conversation", {"topic": "fish"}))
            path = f"{CONVERSATIONS}/{made['id']}"
            self.assertEqual(self.get(server, path), made)
            changed = self.post(server, path, {"metadata": {"topic": "cats"}})
            self.assertEqual(changed, {**made, "metadata": {"topic": "cats"}})
            added = self.post(server, path + "/items", {"items": [message("two"), message("three", id="msg_mine")]})
            self.assertEqual([item["content"][0]["text"] for item in added["data"]], ["two", "three"])
            self.assertEqual((added["first_id"], added["last_id"]), (added["data"][0]["id"], "msg_mine"))
            self.assertEqual(self.get(server, path + "/items/msg_mine"), added["data"][1])
            self.assertEqual(self.texts(server, made["id"]), ["one", "two", "three"])
            self.assertEqual(self.delete(server, path + "/items/msg_mine")["id"], made["id"])
            self.assertEqual(self.texts(server, made["id"]), ["one", "two"])
            self.get(server, path + "/items/msg_mine", 404)
            self.delete(server, path + "/items/msg_mine", 404)
            self.assertEqual(self.delete(server, path), {"id": made["id"], "object": "conversation.deleted", "deleted": True})
            for what in ("", "/items"):
                self.get(server, path + what, 404)
            self.delete(server, path, 404)
            self.post(server, path + "/items", {"items": [message("x")]}, 404)
            self.post(server, path, {"metadata": {}}, 404)

    def test_pages(self):
        with self.serve() as server:
            conversation = self.begin(server, *map(str, range(7)))
            self.assertEqual(self.texts(server, conversation, ""), list("6543210"))
            self.assertEqual(self.texts(server, conversation, "?limit=3"), list("654"))
            page = self.get(server, f"{CONVERSATIONS}/{conversation}/items?limit=3&order=asc")
            self.assertTrue(page["has_more"])
            self.assertEqual(self.texts(server, conversation, f"?limit=3&order=asc&after={page['last_id']}"), list("345"))
            last = self.get(server, f"{CONVERSATIONS}/{conversation}/items?limit=4&order=asc&after={page['last_id']}")
            self.assertFalse(last["has_more"])
            for query, status in (("?limit=0", 400), ("?limit=101", 400), ("?limit=x", 400), ("?order=up", 400), ("?x=1", 400), ("?after=none", 404)):
                self.get(server, f"{CONVERSATIONS}/{conversation}/items{query}", status)

    def test_bad_bodies(self):
        with self.serve() as server:
            conversation = self.begin(server)
            self.assertEqual(self.texts(server, conversation), [])
            path = f"{CONVERSATIONS}/{conversation}"
            for where, body in ((CONVERSATIONS, {"items": [message("x")] * 21}), (CONVERSATIONS, {"items": [{"type": "none"}]}), (CONVERSATIONS, {"zzz": 1}),
                                (CONVERSATIONS, {"metadata": {str(i): "" for i in range(17)}}), (CONVERSATIONS, {"items": [message("x", id="a")] * 2}),
                                (path, {}), (path, {"metadata": {"a": 1}}), (path + "/items", {}), (path + "/items", {"items": []}),
                                (path + "/items", {"items": [{"type": "message", "role": "user", "content": [{"type": "input_image"}]}]})):
                self.post(server, where, body, 400)
            self.assertEqual(self.texts(server, conversation), [])

    def test_another_process_has_them(self):
        with self.serve() as server:
            conversation = self.begin(server, "one", "two")
        with self.serve() as server:
            self.assertEqual(self.texts(server, conversation), ["one", "two"])


class Responses(Case):
    def test_they_go_on_and_are_added(self):
        with self.serve() as server:
            conversation = self.begin(server, "Once upon a time")
            first = self.respond(server, input="there was a fish", conversation=conversation)
            self.assertEqual(first["conversation"], {"id": conversation})
            said = first["output"][0]["content"][0]["text"]
            self.assertEqual(self.texts(server, conversation), ["Once upon a time", "there was a fish", said])
            whole = self.respond(server, input=[message("Once upon a time"), message("there was a fish")])
            self.assertEqual(whole["output"][0]["content"][0]["text"], said)
            self.assertIsNone(whole["conversation"])
            n = self.post(server, "/v1/responses/input_tokens", {"input": "and then", "conversation": conversation})["input_tokens"]
            second = self.respond(server, input="and then", conversation={"id": conversation}, store=False)
            self.assertEqual(second["usage"]["input_tokens"], n)
            self.assertEqual(self.texts(server, conversation)[-2:], ["and then", second["output"][0]["content"][0]["text"]])
            items = self.get(server, f"/v1/responses/{first['id']}/input_items?order=asc")["data"]
            self.assertEqual([item["content"][0]["text"] for item in items], ["Once upon a time", "there was a fish"])
            ids = [item["id"] for item in self.get(server, f"{CONVERSATIONS}/{conversation}/items?limit=100")["data"]]
            self.assertEqual(len(ids), len(set(ids)))

    def test_streams_and_the_background(self):
        with self.serve() as server:
            conversation = self.begin(server)
            reply = server.post("/v1/responses", {"input": "Once", "conversation": conversation, "max_output_tokens": 4, "temperature": 0, "stream": True})
            self.assertIn(b"response.incomplete", reply.body)
            self.assertEqual(len(self.texts(server, conversation)), 2)
            made = self.respond(server, input="Twice", conversation=conversation, background=True)
            wait_for(lambda: self.get(server, f"/v1/responses/{made['id']}")["status"] == "incomplete")
            self.assertEqual([text for text in self.texts(server, conversation)][0::2], ["Once", "Twice"])

    def test_what_is_refused(self):
        with self.serve() as server:
            conversation = self.begin(server, "one")
            first = self.respond(server, input="x")
            for body, word in (({"conversation": "conv_none"}, "conversation: no such"), ({"conversation": {}}, "conversation"),
                               ({"conversation": conversation, "previous_response_id": first["id"]}, "beside previous_response_id"),
                               ({"conversation": conversation, "input": [message("x", id="a"), message("y", id="a")]}, "input[1].id"),
                               ({"conversation": conversation, "input": "x" * 9000}, "context")):
                self.assertIn(word, self.respond(server, 400, **{"input": "x", **body})["error"]["message"])
            self.assertEqual(self.texts(server, conversation), ["one"])
        with Server("--chat-template", TEMPLATE) as server:
            self.assertIn("conversation: ", self.respond(server, 400, input="x", conversation="conv_1")["error"]["message"])
            self.assertIn("--data-dir", self.post(server, CONVERSATIONS, {}, 404)["error"]["message"])


class Owners(Case):
    def test_nobody_sees_anothers(self):
        file = str(self.folder / "keys.json")
        mine, other = (bearer(keys("add", "-f", file, "--name", name)) for name in ("mine", "other"))
        with self.serve("--api-key-file", file) as server:
            path = f"{CONVERSATIONS}/{self.post(server, CONVERSATIONS, {'items': [message('secret', id='msg_s')]}, headers=mine)['id']}"
            for where in (path, path + "/items", path + "/items/msg_s"):
                self.get(server, where, headers=mine)
                self.get(server, where, 404, headers=other)
            for where, body in ((path, {"metadata": {}}), (path + "/items", {"items": [message("x")]})):
                self.post(server, where, body, 404, headers=other)
            for where in (path + "/items/msg_s", path):
                self.delete(server, where, 404, headers=other)
            name = path.rsplit("/", 1)[1]
            self.assertIn("no such", self.respond(server, 400, headers=other, input="x", conversation=name)["error"]["message"])
            self.respond(server, headers=mine, input="x", conversation=name)

    def test_a_key_keeps_only_so_much(self):
        with self.serve("--max-stored-responses", 3) as server:
            made = [self.begin(server, str(i)) for i in range(3)]
            self.respond(server, input="x", conversation=made[0], store=False)  # used last
            made.append(self.begin(server, "3"))
            self.assertEqual([server.get(f"{CONVERSATIONS}/{one}").status for one in made], [200, 404, 200, 200])
        with self.serve("--max-stored-response-bytes", 4000) as server:
            conversation = self.begin(server, "x" * 1000)
            self.assertIn("at most 4000 bytes", self.post(server, f"{CONVERSATIONS}/{conversation}/items", {"items": [message("x" * 4000)]}, 400)["error"]["message"])
            self.assertEqual(len(self.texts(server, conversation)), 1)
            self.begin(server, "x" * 3000)
            self.get(server, f"{CONVERSATIONS}/{conversation}", 404)


if __name__ == "__main__":
    unittest.main(verbosity=2)
