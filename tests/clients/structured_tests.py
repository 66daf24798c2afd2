"""Clients that ask for data of a form, against a model that only tells stories: what it says fits because it must.

Every reply is drawn with a temperature above 0 and read by pydantic. Started by tests/e2e/server_clients_e2e.py.
"""
import asyncio
import json
import unittest
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving import SMALL_MODEL, Server

# Calls are Hermes', as in many models; the prompt only names the tools, the context of the model is short.
TEMPLATE = ("{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}"
            "{{ m.content if m.content is string else (m.content or [{}])[0].text or '' }} {% endfor %}")
DRAWN = {"temperature": 1.3, "top_p": 1.0}
ASKED = [{"role": "user", "content": "Tell me about the pet."}]


class Owner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    first: Literal["Ann", "Bob"]
    old: bool


class Pet(BaseModel):
    """A pet; no bounds, which some clients take out of a schema before they send it."""
    model_config = ConfigDict(extra="forbid")
    kind: Literal["cat", "dog"]
    legs: Literal[3, 4]
    owner: Owner | None


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=6)]
    years: Annotated[int, Field(ge=1, le=99)]
    toys: Annotated[list[Literal["ball", "bone"]], Field(max_length=3)]


def setUpModule():
    global server
    server = Server(SMALL_MODEL, "--chat-template", TEMPLATE, "--tool-call-parser", "hermes",
                    "--max-model-len", 2000).__enter__()


def tearDownModule():
    server.__exit__()


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import openai
        cls.openai = openai
        cls.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)

    def test_chat_parse(self):
        for seed in range(3):
            for form in (Pet, Person):
                reply = self.client.chat.completions.parse(model=server.model, messages=ASKED, response_format=form, seed=seed, **DRAWN)
                self.assertIsInstance(reply.choices[0].message.parsed, form)

    def test_strict_tools(self):
        tools = [self.openai.pydantic_function_tool(Pet, name="keep_pet"), self.openai.pydantic_function_tool(Person, name="find_owner")]
        for choice, names, finish in (("required", ("keep_pet", "find_owner"), "tool_calls"),
                                      ({"type": "function", "function": {"name": "find_owner"}}, ("find_owner",), "stop")):
            reply = self.client.chat.completions.parse(model=server.model, messages=ASKED, tools=tools, tool_choice=choice,
                                                       parallel_tool_calls=False, seed=1, **DRAWN)
            calls = reply.choices[0].message.tool_calls
            self.assertEqual((len(calls), reply.choices[0].finish_reason), (1, finish))
            self.assertIn(calls[0].function.name, names)
            self.assertIsInstance(calls[0].function.parsed_arguments, (Pet, Person))

    def test_streams(self):
        tools = [self.openai.pydantic_function_tool(Pet, name="keep_pet")]
        with self.client.chat.completions.stream(model=server.model, messages=ASKED, tools=tools, tool_choice="required",
                                                 parallel_tool_calls=False, seed=2, **DRAWN) as stream:
            for _ in stream:
                pass
            self.assertIsInstance(stream.get_final_completion().choices[0].message.tool_calls[0].function.parsed_arguments, Pet)
        with self.client.chat.completions.stream(model=server.model, messages=ASKED, response_format=Pet, seed=2, **DRAWN) as stream:
            for _ in stream:
                pass
            self.assertIsInstance(stream.get_final_completion().choices[0].message.parsed, Pet)

    def test_responses(self):
        reply = self.client.responses.parse(model=server.model, input="The pet", text_format=Pet, **DRAWN)
        self.assertIsInstance(reply.output_parsed, Pet)
        # Tools of responses are strict unless they say otherwise.
        tool = {"type": "function", "name": "keep_pet", "parameters": Pet.model_json_schema()}
        for choice in ("required", {"type": "function", "name": "keep_pet"}, {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "keep_pet"}]}):
            reply = self.client.responses.create(model=server.model, input="The pet", tools=[tool], tool_choice=choice,
                                                 parallel_tool_calls=False, **DRAWN)
            calls = [item for item in reply.output if item.type == "function_call"]
            self.assertEqual([call.name for call in calls], ["keep_pet"])
            Pet.model_validate_json(calls[0].arguments)

    def test_refusals(self):
        with self.assertRaises(self.openai.BadRequestError) as caught:
            self.client.chat.completions.create(model=server.model, messages=ASKED, response_format={
                "type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "strin"}}})
        self.assertEqual(caught.exception.param, "response_format.json_schema.schema")


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import anthropic
        cls.client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)

    def test_output(self):
        form = {"type": "json_schema", "schema": Pet.model_json_schema()}
        for fields in ({"output_config": {"format": form}}, {"extra_body": {"output_format": form}}):
            reply = self.client.messages.create(model=server.model, max_tokens=400, messages=ASKED, **fields)
            Pet.model_validate_json(reply.content[0].text)

    def test_strict_tools(self):
        tool = {"name": "keep_pet", "input_schema": Pet.model_json_schema(), "strict": True}
        for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "keep_pet"}):
            reply = self.client.messages.create(model=server.model, max_tokens=400, messages=ASKED, tools=[tool], tool_choice=choice)
            self.assertEqual([block.type for block in reply.content], ["tool_use"])
            self.assertEqual(reply.stop_reason, "tool_use")
            Pet.model_validate(reply.content[0].input)
            with self.client.messages.stream(model=server.model, max_tokens=400, messages=ASKED, tools=[tool], tool_choice=choice) as stream:
                Pet.model_validate(stream.get_final_message().content[0].input)


class Instructor(unittest.TestCase):
    def test_modes(self):
        import instructor
        import openai
        # A call that is asked for by name keeps to its schema without strict too.
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
            client = instructor.from_openai(openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0), mode=mode)
            pet = client.chat.completions.create(model=server.model, messages=ASKED, response_model=Pet, max_retries=0, **DRAWN)
            self.assertIsInstance(pet, Pet)


class PydanticAI(unittest.TestCase):
    def agent(self, output):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        model = OpenAIChatModel(server.model, provider=OpenAIProvider(base_url=server.url + "/v1", api_key="none"))
        return Agent(model, output_type=output, retries=0)

    def test_native_and_tool_output(self):
        from pydantic_ai import NativeOutput, ToolOutput
        for output in (NativeOutput(Pet, strict=True), ToolOutput(Pet, strict=True)):
            result = asyncio.run(self.agent(output).run("The pet", model_settings=DRAWN))
            self.assertIsInstance(result.output, Pet)


class LangChain(unittest.TestCase):
    def test_openai(self):
        from langchain_openai import ChatOpenAI
        chat = ChatOpenAI(model=server.model, base_url=server.url + "/v1", api_key="none", max_retries=0, temperature=1.3)
        for method in ("json_schema", "function_calling"):
            self.assertIsInstance(chat.with_structured_output(Pet, method=method, strict=True).invoke("The pet"), Pet)
        self.assertIsInstance(json.loads(chat.with_structured_output(Pet, method="json_schema", strict=True, include_raw=True)
                                         .invoke("The pet")["raw"].content), dict)

    def test_anthropic(self):
        from langchain_anthropic import ChatAnthropic
        chat = ChatAnthropic(model=server.model, base_url=server.url, api_key="none", max_retries=0, max_tokens=400)
        self.assertIsInstance(chat.with_structured_output(Pet, method="json_schema").invoke("The pet"), Pet)
