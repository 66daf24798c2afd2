#!/usr/bin/env python3
"""Tools of MCP servers in /v1/responses: listed, asked about, called, bounded; plain, streamed, kept and in the background."""
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from live_server import SLOW, SOURCE, Server, children, read_until, wait_for
from responses_e2e import ENDED, RESPONSES, events_of
from server_ops_e2e import bearer, keys

FAKE = SOURCE / "tests" / "support" / "fake_mcp.py"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.model = script_model.write(pathlib.Path(cls.place.name) / "model")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def serve(self, *flags, more="", environment="", name="fake"):
        config = self.folder / "penstock.toml"
        config.write_text(f'[mcp.{name}]\ncommand = "{FAKE}"\n{more}\n[mcp.{name}.env]\n'
                          f'FAKE_MCP_NOTES = "{self.folder / "notes"}"\n{environment}\n')
        return Server(*flags, model=self.model, before=("--config", config))

    def notes(self):
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def calls(self):
        return [line for line in self.notes() if line.startswith("call ")]

    def body(self, text="weather", tool=None, **more):
        tool = {"type": "mcp", "server_label": "fake", "require_approval": "never", "allowed_tools": ["get_weather"], **(tool or {})}
        return {"input": text, "tools": [tool], "temperature": 0, **more}

    def ask(self, server, *args, headers=None, status=200, **more):
        reply = server.post(RESPONSES, self.body(*args, **more), headers)
        self.assertEqual(reply.status, status, reply.body)
        return reply.json()

    def types(self, response):
        return [item["type"] for item in response["output"]]


class Calls(Case):
    def test_a_call_is_run_and_the_model_goes_on(self):
        with self.serve() as server:
            made = self.ask(server)
            self.assertEqual(self.types(made), ["mcp_list_tools", "mcp_call", "message"])
            listed, call, message = made["output"]
            self.assertEqual([tool["name"] for tool in listed["tools"]], ["get_weather"])
            self.assertEqual(listed["tools"][0]["input_schema"]["properties"], {"city": {"type": "string"}})
            self.assertEqual((listed["server_label"], listed["error"]), ("fake", None))
            self.assertEqual((call["server_label"], call["name"], json.loads(call["arguments"])), ("fake", "get_weather", {"city": "Paris"}))
            self.assertEqual((call["output"], call["error"], call["status"], call["approval_request_id"]),
                             ("sun in Paris", None, "completed", None))
            self.assertEqual(message["content"][0]["text"], "It is sunny in Paris.")
            self.assertEqual((made["status"], made["incomplete_details"]), ("completed", None))
            self.assertEqual(self.calls(), ['call get_weather {"city": "Paris"}'])
            usage = made["usage"]
            self.assertGreater(usage["output_tokens"], 6)  # both rounds
            self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
            self.assertGreater(usage["input_tokens_details"]["cached_tokens"], 0)
            # The program stays, its tools are known.
            self.ask(server)
            self.assertEqual((self.notes().count("start"), self.notes().count("tools/list")), (1, 1))

    def test_two_calls_of_a_turn(self):
        with self.serve() as server:
            made = self.ask(server, "several", {"allowed_tools": ["get_weather", "get_time"]})
            self.assertEqual(self.types(made)[-3:], ["mcp_call", "mcp_call", "message"])
            self.assertEqual([item["output"] for item in made["output"] if item["type"] == "mcp_call"], ["sun in Rome", "noon"])

    def test_a_function_of_the_client_beside_it_ends_the_response(self):
        with self.serve() as server:
            body = self.body("several")
            body["tools"].append({"type": "function", "name": "get_time", "parameters": {"type": "object"}, "strict": False})
            made = server.post(RESPONSES, body).json()
            self.assertEqual(self.types(made)[-2:], ["mcp_call", "function_call"])
            self.assertEqual(made["output"][-2]["output"], "sun in Rome")
            body["input"] = [{"role": "user", "content": "several"}, *made["output"],
                             {"type": "function_call_output", "call_id": made["output"][-1]["call_id"], "output": "noon"}]
            after = server.post(RESPONSES, body).json()
            self.assertEqual(self.types(after), ["message"])  # the list has been told
            self.assertEqual(len(self.calls()), 1)

    def test_streamed_as_plain(self):
        with self.serve() as server:
            plain = self.ask(server)
            for _ in range(2):  # the second one's tools are known
                events = events_of(server.post(RESPONSES, self.body(stream=True)).body)
                self.assertEqual([one["sequence_number"] for one in events], list(range(len(events))))
                names = [one["type"] for one in events]
                self.assertEqual(names[:6], [
                    "response.created", "response.in_progress", "response.output_item.added", "response.mcp_list_tools.in_progress",
                    "response.mcp_list_tools.completed", "response.output_item.done"])
                mcp = [(one["type"], one["output_index"]) for one in events if "mcp_call" in one["type"]]
                deltas = [one for one in mcp if one[0] == "response.mcp_call_arguments.delta"]
                self.assertGreater(len(deltas), 1)
                self.assertEqual([mcp[0], *mcp[len(deltas) + 1:]], [(f"response.{name}", 1) for name in (
                    "mcp_call.in_progress", "mcp_call_arguments.done", "mcp_call.completed")])
                arguments = "".join(one["delta"] for one in events if one["type"] == "response.mcp_call_arguments.delta")
                last = events[-1]["response"]
                self.assertEqual(names[-1], "response.completed")
                self.assertEqual(arguments, last["output"][1]["arguments"])
                done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
                self.assertEqual(done, last["output"])
                for one, other in zip(plain["output"], last["output"]):
                    self.assertEqual({**one, "id": ""}, {**other, "id": ""})
                self.assertEqual(last["usage"]["output_tokens"], plain["usage"]["output_tokens"])

    def test_what_a_tool_says_went_wrong_goes_to_the_model(self):
        with self.serve(more="timeout = 10", environment='FAKE_MCP_START = "0"') as server:
            made = self.ask(server, "broken", {"allowed_tools": ["fail"]})  # no call at all
            self.assertEqual(self.types(made), ["mcp_list_tools", "message"])

    def test_what_nests_deeply_can_be_read_again_or_is_refused(self):
        for depth, listed in ((100, True), (245, False)):
            with self.serve("--data-dir", self.folder / "data", environment=f'FAKE_MCP_DEEP = "{depth}"') as server:
                made = server.post(RESPONSES, self.body())
                if not listed:
                    self.assertIn("nested at most 128 deep", made.body.decode())
                    continue
                self.assertEqual(server.get(f"{RESPONSES}/{made.json()['id']}").json(), made.json())
                after = self.ask(server, "plain", previous_response_id=made.json()["id"])
                self.assertEqual(self.types(after), ["message"])

    def test_kept_and_gone_on_with(self):
        with self.serve("--data-dir", self.folder / "data") as server:
            first = self.ask(server)
            self.assertEqual(server.get(f"{RESPONSES}/{first['id']}").json(), first)
            second = self.ask(server, "plain", previous_response_id=first["id"])
            self.assertEqual(self.types(second), ["message"])
            self.assertGreater(second["usage"]["input_tokens_details"]["cached_tokens"], 48)
            items = server.get(f"{RESPONSES}/{second['id']}/input_items?order=asc").json()["data"]
            self.assertEqual([item["type"] for item in items], ["message", "mcp_list_tools", "mcp_call", "message", "message"])

    def test_in_the_background(self):
        with self.serve("--data-dir", self.folder / "data") as server:
            made = self.ask(server, background=True)
            ended = wait_for(lambda: (now := server.get(f"{RESPONSES}/{made['id']}").json())["status"] in ENDED and now)
            self.assertEqual((ended["status"], self.types(ended)), ("completed", ["mcp_list_tools", "mcp_call", "message"]))
            made = self.ask(server, background=True, tool={"server_label": "fake", "allowed_tools": ["absent"]})
            ended = wait_for(lambda: (now := server.get(f"{RESPONSES}/{made['id']}").json())["status"] in ENDED and now)
            self.assertEqual(ended["status"], "failed")
            self.assertIn("fake has no tool absent", ended["error"]["message"])

    def test_in_the_background_when_the_queue_is_full(self):
        with self.serve("--data-dir", self.folder / "data", "--max-num-seqs", 1, "--max-queued-requests", 1) as server:
            self.ask(server)  # its tools are known: the first round is refused before anything is sent
            made = [self.ask(server, background=True) for _ in range(12)]
            for one in made:
                ended = wait_for(lambda one=one: (now := server.get(f"{RESPONSES}/{one['id']}").json())["status"] in ENDED and now)
                self.assertEqual((ended["status"], ended["error"]), ("completed", None))
                self.assertEqual(self.types(ended), ["mcp_list_tools", "mcp_call", "message"])

    def test_a_full_queue_between_rounds_is_waited_for(self):
        """What a tool has said is not lost: a request is refused with 429 before anything is done, or completes."""
        with self.serve("--max-num-seqs", 1, "--max-queued-requests", 1) as server, ThreadPoolExecutor(8) as threads:
            self.ask(server)
            for stream in (False, True):
                replies = list(threads.map(lambda _: server.post(RESPONSES, self.body(stream=stream)), range(24)))
                self.assertLessEqual({reply.status for reply in replies}, {200, 429})
                made = [events_of(reply.body)[-1]["response"] if stream else reply.json() for reply in replies if reply.status == 200]
                self.assertGreater(len(made), 1)
                for one in made:
                    self.assertEqual((one["status"], one["error"]), ("completed", None))
                    self.assertEqual(self.types(one), ["mcp_list_tools", "mcp_call", "message"])


class Approval(Case):
    def test_yes_and_no(self):
        with self.serve("--data-dir", self.folder / "data") as server:
            for tool in ({"require_approval": "always"}, {"require_approval": None},
                         {"require_approval": {"never": {"tool_names": ["get_time"]}}},
                         {"require_approval": {"always": {"read_only": True}}}):
                asked = self.ask(server, tool=tool)
                self.assertEqual(self.types(asked), ["mcp_list_tools", "mcp_approval_request"])
                self.assertEqual(asked["status"], "completed")
                request = asked["output"][1]
                self.assertEqual((request["server_label"], request["name"], json.loads(request["arguments"])),
                                 ("fake", "get_weather", {"city": "Paris"}))
            self.assertEqual(self.calls(), [])
            answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
            made = self.ask(server, [answer], {"require_approval": "always"}, previous_response_id=asked["id"])
            self.assertEqual(self.types(made), ["mcp_call", "message"])
            self.assertEqual((made["output"][0]["approval_request_id"], made["output"][0]["output"]), (request["id"], "sun in Paris"))
            self.assertEqual(len(self.calls()), 1)
            # It is run once.
            after = self.ask(server, "plain", {"require_approval": "always"}, previous_response_id=made["id"])
            self.assertEqual((self.types(after), len(self.calls())), (["message"], 1))
            no = self.ask(server, [{**answer, "approve": False, "reason": "not now"}], previous_response_id=asked["id"])
            self.assertEqual((self.types(no), len(self.calls())), (["message"], 1))
            # Without a store: the client gives the items back, streamed.
            items = [{"role": "user", "content": "weather"}, *asked["output"], answer]
            events = events_of(server.post(RESPONSES, self.body(items, stream=True, store=False)).body)
            names = [one["type"] for one in events]
            self.assertEqual(names[:3], ["response.created", "response.in_progress", "response.output_item.added"])
            self.assertIn("response.mcp_call.completed", names)
            self.assertEqual(self.types(events[-1]["response"]), ["mcp_call", "message"])

    def test_each_is_run_once(self):
        request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "fake", "name": "get_weather",
                   "arguments": '{"city": "Rome"}'}
        yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        no = {**yes, "approve": False}
        user = {"role": "user", "content": "plain"}
        run = {"type": "mcp_call", "id": "mcp_1", "server_label": "fake", "name": "get_weather", "arguments": "{}", "output": "sun",
               "approval_request_id": "mcpr_1"}
        with self.serve() as server:
            for items, n_calls in (([yes, yes, yes], 1), ([yes, no], 1), ([no, yes], 2), ([yes, run, yes], 2), ([request, yes], 3)):
                self.ask(server, [user, request, *items])
                self.assertEqual(len(self.calls()), n_calls, items)
            error = self.ask(server, [user, request, {**request, "arguments": "{}"}, yes], status=400)["error"]
            self.assertIn("input[2].id: there is another mcp_approval_request", error["message"])
            large = {**request, "arguments": json.dumps({str(i): 0 for i in range(200000)})}
            begin = time.monotonic()
            error = self.ask(server, [user, large, yes], status=400)["error"]
            self.assertIn("bytes of arguments, expected at most 65536", error["message"])
            self.assertLess(time.monotonic() - begin, 10)

    def test_what_is_no_answer(self):
        with self.serve() as server:
            answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_none", "approve": True}
            error = self.ask(server, [answer], status=400)["error"]
            self.assertIn("input[0].approval_request_id: expected the id of an mcp_approval_request", error["message"])
            request = {"type": "mcp_approval_request", "id": "mcpr_none", "server_label": "other", "name": "x", "arguments": "{}"}
            error = self.ask(server, [request, answer], status=400)["error"]
            self.assertIn("agrees to a call of the MCP server other", error["message"])
            # A tool that is not allowed is not called because somebody says yes.
            request = {**request, "server_label": "fake", "name": "die"}
            made = self.ask(server, [{"role": "user", "content": "plain"}, request, answer])
            self.assertIn("fake has no tool die that may be called", made["output"][-2]["error"])

    def test_the_operators_word(self):
        for more, section, never, unsaid in (('require_approval = "always"', "", True, True), ('require_approval = "never"', "", False, False),
                                             ('require_approval = "always"', 'never = ["get_weather"]', False, False),
                                             ("", 'always = ["get_weather"]', True, True)):
            extra = f"{more}\n[mcp.fake.approval]\n{section}" if section else more
            with self.subTest(more=more, section=section), self.serve(more=extra) as server:
                for approval, asks in (("never", never), (None, unsaid), ("always", True)):
                    made = self.ask(server, tool={"require_approval": approval})
                    self.assertEqual("mcp_approval_request" in self.types(made), asks, approval)


class Bounds(Case):
    def test_what_is_refused(self):
        with self.serve() as server:
            for tool, said in (({"server_label": "other"}, 'tools[0].server_label: expected a configured MCP server (fake), got "other"'),
                               ({"server_url": "http://127.0.0.1:1/"}, "tools[0].server_url: MCP servers are those of this server's"),
                               ({"headers": {"a": "b"}}, "tools[0].headers"), ({"authorization": "x"}, "tools[0].authorization"),
                               ({"connector_id": "connector_gmail"}, "tools[0].connector_id"),
                               ({"allowed_tools": ["absent"]}, "tools[0].allowed_tools: fake has no tool absent"),
                               ({"require_approval": "maybe"}, "require_approval")):
                self.assertIn(said, self.ask(server, tool=tool, status=400)["error"]["message"])
            body = self.body()
            body["tools"] *= 2
            self.assertIn("fake is there twice", server.post(RESPONSES, body).json()["error"]["message"])
            body = self.body()
            body["tools"].append({"type": "function", "name": "get_weather"})
            self.assertIn("another tool with the name get_weather", server.post(RESPONSES, body).json()["error"]["message"])
        with Server(model=self.model) as server:
            self.assertIn("no MCP servers are configured", self.ask(server, status=400)["error"]["message"])

    def test_keys(self):
        file = str(self.folder / "keys.json")
        mine, other = (bearer(keys("add", "-f", file, "--name", name)) for name in ("mine", "other"))
        ids = {one["name"]: one["id"] for one in json.loads(pathlib.Path(file).read_text())["keys"]}
        with self.serve("--api-key-file", file, more=f'keys = ["{ids["mine"]}"]') as server:
            self.assertEqual(self.types(self.ask(server, headers=mine))[1], "mcp_call")
            error = self.ask(server, headers=other, status=400)["error"]["message"]
            self.assertIn('expected a configured MCP server (), got "fake"', error)

    def test_keys_whose_calls_are_long_leave_threads_to_others(self):
        file = str(self.folder / "keys.json")
        *busy, other = (bearer(keys("add", "-f", file, "--name", f"k{i}")) for i in range(6))
        wait = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "fake", "name": "wait", "arguments": '{"seconds": 60}'}
        yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        long = self.body([{"role": "user", "content": "plain"}, wait, yes], {"allowed_tools": ["wait"]}, stream=True)
        with self.serve("--api-key-file", file) as server:
            self.ask(server, headers=other)
            for key in busy:
                for _ in range(6):
                    server.stream(long, RESPONSES, key)
            self.assertTrue(wait_for(lambda: len(self.calls()) >= 20), self.calls())  # each has all that it may have
            begin = time.monotonic()
            self.assertEqual(self.types(self.ask(server, headers=other))[-2:], ["mcp_call", "message"])
            self.assertLess(time.monotonic() - begin, 20 * SLOW)
            self.assertEqual(sum("wait" in call for call in self.calls()), 20)

    def test_rounds_calls_and_tokens(self):
        with self.serve("--max-tool-rounds", 1) as server:
            made = self.ask(server)
            self.assertEqual((made["status"], made["incomplete_details"]), ("incomplete", {"reason": "max_tool_calls"}))
            self.assertEqual((self.types(made)[-1], made["output"][-1]["output"]), ("mcp_call", "sun in Paris"))
        with self.serve() as server:
            made = self.ask(server, "several", {"allowed_tools": ["get_weather", "get_time"]}, max_tool_calls=1)
            self.assertEqual((made["status"], made["incomplete_details"]), ("incomplete", {"reason": "max_tool_calls"}))
            self.assertEqual([item["error"] for item in made["output"] if item["type"] == "mcp_call"],
                             [None, "not called: max_tool_calls is 1"])
            self.assertEqual(len(self.calls()), 2)
            whole = self.ask(server)["usage"]["output_tokens"]
            made = self.ask(server, max_output_tokens=whole - 1)
            self.assertEqual((made["status"], made["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
            self.assertEqual(made["usage"]["output_tokens"], whole - 1)

    def test_time(self):
        requests = [{"type": "mcp_approval_request", "id": f"mcpr_{i}", "server_label": "fake", "name": "wait",
                     "arguments": '{"seconds": 60}'} for i in range(3)]
        answers = [{"type": "mcp_approval_response", "approval_request_id": f"mcpr_{i}", "approve": True} for i in range(3)]
        with self.serve("--max-tool-time", 2) as server:
            made = self.ask(server, [{"role": "user", "content": "plain"}, *requests, *answers], {"allowed_tools": ["wait"]})
            self.assertEqual((made["status"], made["incomplete_details"]), ("incomplete", {"reason": "max_tool_time"}))
            self.assertEqual([item["error"] for item in made["output"] if item["type"] == "mcp_call"],
                             ["tools/call: no answer in time"] + ["not called: the response's time for tools is up"] * 2)
            self.assertEqual(len(self.calls()), 1)

    def test_a_model_that_goes_while_a_tool_hangs_in_the_background(self):
        wait = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "fake", "name": "wait", "arguments": '{"seconds": 60}'}
        yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        with self.serve("--enable-sleep-mode", "--unload-timeout", 1, "--data-dir", self.folder / "data") as server:
            made = self.ask(server, [{"role": "user", "content": "plain"}, wait, yes], {"allowed_tools": ["wait"]}, background=True)
            self.assertTrue(wait_for(self.calls))
            begin = time.monotonic()
            self.assertEqual(server.post("/sleep?mode=abort", {}).status, 200)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertEqual(server.post("/wake_up", {}).status, 200)
            state = lambda: json.loads(server.get(f"{RESPONSES}/{made['id']}").body)["status"]
            self.assertTrue(wait_for(lambda: state() in ENDED), state())

    def test_a_budget_that_the_rounds_before_used_up(self):
        file = str(self.folder / "keys.json")
        rich = bearer(keys("add", "-f", file, "--name", "rich"))
        with self.serve("--api-key-file", file) as server:
            used = self.ask(server, headers=rich, max_output_tokens=60)["usage"]
        first = used["input_tokens"] * 45 // 100  # of the first of two rounds
        poor = bearer(keys("add", "-f", file, "--name", "poor", "--tokens-per-day", str(first + 90)))
        with self.serve("--api-key-file", file, "--data-dir", self.folder / "data") as server:
            made = self.ask(server, headers=poor, max_output_tokens=60, background=True)
            state = lambda: json.loads(server.get(f"{RESPONSES}/{made['id']}", poor).body)
            self.assertTrue(wait_for(lambda: state()["status"] in ENDED), state())
            self.assertEqual(state()["status"], "failed")
            self.assertIn("are used", state()["error"]["message"])

    def test_choice(self):
        with self.serve() as server:
            for choice in ({"type": "mcp", "server_label": "fake"}, {"type": "mcp", "server_label": "fake", "name": "get_weather"}, "auto"):
                made = self.ask(server, tool_choice=choice)
                self.assertEqual(self.types(made)[-2:], ["mcp_call", "message"], choice)
            error = self.ask(server, tool_choice={"type": "mcp", "server_label": "fake", "name": "absent"}, status=400)
            self.assertIn("tool_choice: fake has no tool absent", error["error"]["message"])

    def test_a_server_that_does_not_start(self):
        with self.serve(environment='FAKE_MCP_DIES = "1"') as server:
            error = self.ask(server, status=424)["error"]
            self.assertIn("the tools of the MCP server fake cannot be listed", error["message"])
            events = events_of(server.post(RESPONSES, self.body(stream=True)).body)
            self.assertEqual([one["type"] for one in events][-3:],
                             ["response.mcp_list_tools.failed", "response.output_item.done", "response.failed"])
            self.assertIn("cannot be listed", events[-1]["response"]["error"]["message"])
            self.assertTrue(wait_for(lambda: "mcp fake: I cannot" in server.log()))

    def test_a_client_that_leaves_and_a_stop(self):
        wait = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "fake", "name": "wait", "arguments": '{"seconds": 60}'}
        yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
        body = self.body([{"role": "user", "content": "plain"}, wait, yes], {"allowed_tools": ["wait"]}, stream=True)
        with self.serve("--shutdown-timeout", 1, "--sse-keep-alive-interval", 0.1) as server:
            sock = server.stream(body, RESPONSES)
            read_until(sock, b": keep-alive")
            self.assertTrue(wait_for(self.calls))
            sock.close()
            self.assertTrue(wait_for(lambda: any(line.startswith("cancelled") for line in self.notes())))
            sock = server.stream(body, RESPONSES)
            self.assertTrue(wait_for(lambda: len(self.calls()) == 2))
            child = children(server.process)
            self.assertEqual(len(child), 1)
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 20)
            self.assertFalse(os.path.exists(f"/proc/{child[0]}"))

    def test_configurations_that_are_refused(self):
        for text, said in (("[mcp.a]\nurl = \"ftp://x\"", "url: expected http:// or https://"), ("[mcp.a]\ncolour = \"x\"", "[mcp.a] colour"),
                           ("[mcp.a]\ncommand = \"x\"\nurl = \"http://x\"", "either command or url"), ("[mcp.a]", "either command or url"),
                           ("[mcp.a]\ncommand = \"x\"\ntimeout = \"soon\"", "[mcp.a] timeout: expected seconds"),
                           ("[mcp.a]\ncommand = \"x\"\n[mcp.a.env]\nA = \"${NO_SUCH_VARIABLE}\"", "the environment has no NO_SUCH_VARIABLE"),
                           ("[mcp.a]\ncommand = \"x\"\nrequire_approval = \"sometimes\"", "expected never or always"),
                           ("[mcp.a]\ncommand = \"x\"\nmax_result_bytes = 1", "a size of 256 bytes to 4 MiB")):
            config = self.folder / "wrong.toml"
            config.write_text(text + "\n")
            with self.assertRaises(AssertionError) as failure:
                Server(model=self.model, before=("--config", config))
            self.assertIn(said, str(failure.exception), text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
