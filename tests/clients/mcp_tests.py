"""Responses with MCP servers' tools: servers of the `mcp` package, asked by the openai package."""
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import openai
import script_model
from serving import Server

ORACLE = pathlib.Path(__file__).resolve().parent / "mcp_oracle.py"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def wait_for_port(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the MCP server does not listen")


class Mcp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.folder.name)
        ports = [free_port(), free_port()]
        cls.services = [subprocess.Popen([sys.executable, ORACLE, str(port), *more])
                        for port, more in zip(ports, ([], ["json"]))]
        config = place / "penstock.toml"
        config.write_text(f'[mcp.program]\ncommand = "{sys.executable}"\nargs = ["{ORACLE}"]\n' + "".join(
            f'[mcp.{name}]\nurl = "http://127.0.0.1:{port}/mcp"\n' for name, port in zip(("events", "json"), ports)))
        for port in ports:
            wait_for_port(port)
        cls.server = Server(script_model.write(place / "script"), "--data-dir", place / "data", before=("--config", config)).__enter__()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        for service in cls.services:
            service.kill()
            service.wait()
        cls.folder.cleanup()

    def ask(self, text, label, approval="never", **more):
        return self.client.responses.create(model=self.server.model, input=text, **more, tools=[
            {"type": "mcp", "server_label": label, "require_approval": approval}])

    def test_calls(self):
        for label in ("program", "events", "json"):
            with self.subTest(label):
                made = self.ask("weather", label)
                self.assertEqual([item.type for item in made.output], ["mcp_list_tools", "mcp_call", "message"])
                self.assertEqual([tool.name for tool in made.output[0].tools], ["get_weather", "get_time", "send_letter"])
                self.assertEqual(made.output[0].tools[0].input_schema["required"], ["city"])
                self.assertEqual((made.output[1].output, made.output[1].error), ("sun in Paris", None))
                self.assertEqual(made.output_text, "It is sunny in Paris.")
                made = self.ask("several", label)
                self.assertEqual(made.output[-2].name, "get_time")
                self.assertIn("12", made.output[-2].output)

    def test_an_error_of_the_tool(self):
        for label in ("program", "events", "json"):
            call = self.ask("letter", label).output[1]
            self.assertEqual((call.status, call.output), ("failed", None))
            self.assertEqual(call.error, "Error executing tool send_letter")

    def test_streamed(self):
        events = list(self.ask("weather", "program", stream=True))
        for kind in ("mcp_list_tools.completed", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done",
                     "mcp_call.completed", "completed"):
            self.assertIn(f"response.{kind}", [event.type for event in events])
        with self.client.responses.stream(model=self.server.model, input="weather", tools=[
                {"type": "mcp", "server_label": "events", "require_approval": "never"}]) as stream:
            self.assertEqual(stream.get_final_response().output_text, "It is sunny in Paris.")

    def test_approval(self):
        asked = self.ask("weather", "program", "always")
        self.assertEqual(asked.output[-1].type, "mcp_approval_request")
        made = self.ask([{"type": "mcp_approval_response", "approval_request_id": asked.output[-1].id, "approve": True}], "program", "always",
                        previous_response_id=asked.id)
        self.assertEqual((made.output[0].output, made.output_text), ("sun in Paris", "It is sunny in Paris."))

    def test_what_nobody_configured(self):
        with self.assertRaisesRegex(openai.BadRequestError, "expected a configured MCP server"):
            self.ask("weather", "other")
        with self.assertRaisesRegex(openai.BadRequestError, "server_url"):
            self.client.responses.create(model=self.server.model, input="weather", tools=[
                {"type": "mcp", "server_label": "program", "server_url": "http://127.0.0.1:1/mcp"}])
