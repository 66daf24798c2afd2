"""Agent frameworks lead a session of twenty replies with two tools; the replies are those of tests/e2e/session_model.py."""
import asyncio
import os
import pathlib
import re
import tempfile
import unittest

import agents
import anthropic
import llm
import openai
import pydantic_ai
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai
import pydantic_ai.providers.anthropic
import pydantic_ai.providers.openai
import session_model
import smolagents
from serving import Server

SAID, REPLIES = session_model.session()
CALLS = [one for text in REPLIES.values() for one in session_model.calls_of(text)]
# smolagents ends each run by a call of `final_answer`.
FINAL = {f"final-{name}": text if session_model.calls_of(text) else session_model.call("final_answer", answer=text.split("</think>")[-1])
         for name, text in REPLIES.items()}
# It asks for `tool_choice: "required"`, which lets no text stand beside calls.
FINAL = {name: re.sub(r"^[^<]*(?=<tool_call>)", "", text.replace('"then": "', '"then": "final-')) for name, text in FINAL.items()}
SYSTEM = "You look at places and note what you see."


def setUpModule():
    global server, directory
    directory = tempfile.TemporaryDirectory()
    server = Server(session_model.write(pathlib.Path(directory.name) / "model", {**REPLIES, **FINAL})).__enter__()


def tearDownModule():
    try:
        server.__exit__()
    finally:
        directory.cleanup()


def prefix_tokens():
    """(tokens of prompts looked up in the prefix cache, those found) since the server's start"""
    text = server.request("GET", "/metrics")[2].decode()
    return [float(re.search(rf"^vllm:prefix_cache_{name}_total\S* (\S+)$", text, re.M)[1]) for name in ("queries", "hits")]


class Session(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.before = prefix_tokens()

    def look(self, place: str, then: str) -> str:
        """Looks at a place.

        Args:
            place: Where to look.
            then: What comes next.
        """
        self.calls.append(("look", {"place": place, "then": then}))
        if place == "nowhere":
            raise self.error(f"there is no such place {session_model.then(then)}")
        return f"Seen: {place} {session_model.then(then)}"

    def note(self, text: str, then: str, times: int) -> str:
        """Notes a text.

        Args:
            text: What to note.
            then: What comes next.
            times: How often.
        """
        self.calls.append(("note", {"text": text, "then": then, "times": times}))
        return f"Noted {session_model.then(then)}"

    error = ValueError

    def tools(self):
        """Functions, since some packages read a method's `self` as an argument."""
        def look(place: str, then: str) -> str:
            return self.look(place, then)

        def note(text: str, then: str, times: int) -> str:
            return self.note(text, then, times)

        look.__doc__, note.__doc__ = self.look.__doc__, self.note.__doc__
        return look, note

    def check(self, texts, calls=None):
        self.assertEqual(texts, [text for _, text in SAID])
        self.assertEqual(sorted(map(repr, self.calls)), sorted(map(repr, CALLS if calls is None else calls)))  # those of one reply run at once
        queries, hits = (after - before for after, before in zip(prefix_tokens(), self.before))
        self.assertGreater(hits / queries, 0.8, "a turn's prompt begins with the one in front of it")


class OpenAIAgents(Session):
    def client(self):
        agents.set_tracing_disabled(True)
        return openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

    def lead(self, model, run):
        tools = [agents.function_tool(tool, failure_error_function=lambda _, error: str(error)) for tool in self.tools()]
        agent = agents.Agent(name="Watch", instructions=SYSTEM, model=model, tools=tools)

        async def session():
            history = agents.SQLiteSession("watch")
            return [await run(agent, words, history) for words, _ in SAID]
        self.check(asyncio.run(session()))

    def test_chats(self):
        async def run(agent, words, history):
            return (await agents.Runner.run(agent, words, session=history)).final_output
        self.lead(agents.OpenAIChatCompletionsModel(server.model, self.client()), run)

    def test_responses_streamed(self):
        async def run(agent, words, history):
            result, deltas = agents.Runner.run_streamed(agent, words, session=history), []
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    deltas.append(event.data.delta)
            self.assertTrue("".join(deltas).endswith(result.final_output))
            return result.final_output
        self.lead(agents.OpenAIResponsesModel(server.model, self.client()), run)


class PydanticAI(Session):
    error = pydantic_ai.ModelRetry

    def lead(self, model):
        agent = pydantic_ai.Agent(model, instructions=SYSTEM, tools=self.tools())
        texts, history = [], []
        for words, _ in SAID:
            result = agent.run_sync(words, message_history=history)
            history = result.all_messages()
            texts.append(result.output)
        self.check(texts)

    def test_chats(self):
        self.lead(pydantic_ai.models.openai.OpenAIChatModel(
            server.model, provider=pydantic_ai.providers.openai.OpenAIProvider(base_url=server.url + "/v1", api_key="none")))

    def test_responses(self):
        self.lead(pydantic_ai.models.openai.OpenAIResponsesModel(
            server.model, provider=pydantic_ai.providers.openai.OpenAIProvider(base_url=server.url + "/v1", api_key="none")))

    def test_messages(self):
        self.lead(pydantic_ai.models.anthropic.AnthropicModel(
            server.model, provider=pydantic_ai.providers.anthropic.AnthropicProvider(base_url=server.url, api_key="none")))


class Smolagents(Session):
    def test_calls(self):
        model = smolagents.OpenAIModel(server.model, api_base=server.url + "/v1", api_key="none")
        agent = smolagents.ToolCallingAgent([smolagents.tool(tool) for tool in self.tools()], model, verbosity_level=0, max_tool_threads=1)
        texts = [agent.run(words.replace("(then ", "(then final-"), reset=False) for words, _ in SAID]
        self.check(texts, [one for text in FINAL.values() for one in session_model.calls_of(text) if one[0] != "final_answer"])


class Llm(Session):
    def test_conversation(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LLM_USER_PATH"] = folder
            pathlib.Path(folder, "extra-openai-models.yaml").write_text(
                f"- model_id: penstock\n  model_name: {server.model}\n  api_base: {server.url}/v1\n  supports_tools: true\n")
            conversation = llm.get_model("penstock").conversation(tools=list(self.tools()))
            texts = []
            for words, _ in SAID:
                texts.append([response.text() for response in conversation.chain(words, system=SYSTEM).responses()][-1])
            self.check(texts)


class ToolRunner(Session):
    def test_messages(self):
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        tools = [anthropic.beta_tool(tool) for tool in self.tools()]
        texts, history, cached = [], [], []
        for words, _ in SAID:
            history.append({"role": "user", "content": words})
            runner = client.beta.messages.tool_runner(model=server.model, max_tokens=500, system=SYSTEM, tools=tools, messages=list(history))
            for message in runner:
                history.append({"role": "assistant", "content": message.content})
                results = runner.generate_tool_call_response()
                if results:
                    history.append(results)
                cached.append(message.usage.cache_read_input_tokens)
            texts.append(message.content[-1].text)
        self.check(texts)
        self.assertEqual((len(cached), cached), (len(REPLIES), sorted(cached)))


if __name__ == "__main__":
    unittest.main()
