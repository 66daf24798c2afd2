"""Real API clients against the running server. Started by tests/e2e/server_clients_e2e.py."""
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import script_model
from serving import SOURCE, Server

HERE = pathlib.Path(__file__).resolve().parent
KEY = "sk-test-key"
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": WEATHER}}
PROMPT = "Once upon a time"


def setUpModule():
    global story, script, directory
    directory = tempfile.TemporaryDirectory()
    story = Server().__enter__()
    script = Server(script_model.write(pathlib.Path(directory.name) / "script"), "--api-key", KEY,
                    "--data-dir", pathlib.Path(directory.name) / "data").__enter__()


def tearDownModule():
    try:
        story.__exit__()
    finally:
        script.__exit__()
        directory.cleanup()


def user(text):
    return [{"role": "user", "content": text}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import openai
        cls.openai = openai
        cls.client = openai.OpenAI(base_url=script.url + "/v1", api_key=KEY, max_retries=0)
        cls.story = openai.OpenAI(base_url=story.url + "/v1", api_key="none", max_retries=0)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [script.model])
        self.assertEqual(self.client.models.retrieve(script.model).object, "model")

    def test_files(self):
        content = b'{"custom_id": "1"}\n' * 100
        file = self.client.files.create(file=("in.jsonl", content), purpose="batch")
        self.assertEqual((file.filename, file.bytes, file.purpose, file.status), ("in.jsonl", len(content), "batch", "processed"))
        self.assertEqual(self.client.files.retrieve(file.id), file)
        self.assertEqual(self.client.files.content(file.id).read(), content)
        other = self.client.files.create(file=("two.jsonl", content), purpose="batch")
        self.assertEqual([one.id for one in self.client.files.list(limit=1)][:2], [other.id, file.id])  # page by page
        self.assertTrue(self.client.files.delete(file.id).deleted)
        with self.assertRaises(self.openai.NotFoundError):
            self.client.files.retrieve(file.id)
        with self.assertRaisesRegex(self.openai.BadRequestError, "purpose"):
            self.client.files.create(file=("in.jsonl", content), purpose="vision")

    def test_chat(self):
        reply = self.client.chat.completions.create(model=script.model, messages=user("plain"), n=2, logprobs=True, top_logprobs=2)
        self.assertEqual([choice.message.content for choice in reply.choices], ["Hello there!"] * 2)
        self.assertEqual(reply.choices[0].finish_reason, "stop")
        self.assertEqual(reply.choices[0].logprobs.content[0].token, "Hello")
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)

    def test_chat_stream(self):
        stream = self.client.chat.completions.create(model=script.model, messages=user("plain"), stream=True,
                                                     stream_options={"include_usage": True})
        chunks = list(stream)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), "Hello there!")
        self.assertEqual(chunks[-1].usage.completion_tokens, 4)

    def test_chat_stream_helper(self):
        with self.client.chat.completions.stream(model=script.model, messages=user("several"), tools=[TOOL]) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(message.content, "I will look.")
        self.assertEqual([call.function.name for call in message.tool_calls], ["get_weather", "get_time"])

    def test_tools(self):
        messages = user("weather")
        reply = self.client.chat.completions.create(model=script.model, messages=messages, tools=[TOOL], tool_choice="auto")
        self.assertEqual(reply.choices[0].finish_reason, "tool_calls")
        call = reply.choices[0].message.tool_calls[0]
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
        messages += [reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        reply = self.client.chat.completions.create(model=script.model, messages=messages, tools=[TOOL])
        self.assertEqual(reply.choices[0].message.content, "It is sunny in Paris.")

    def test_completions(self):
        reply = self.story.completions.create(model=story.model, prompt=[PROMPT, "The cat"], max_tokens=6, n=2, logprobs=2,
                                              seed=1, echo=True)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1, 2, 3])
        self.assertTrue(reply.choices[3].text.startswith("The cat"))
        self.assertEqual(len(reply.choices[0].logprobs.tokens), len(reply.choices[0].logprobs.token_logprobs))
        plain = self.story.completions.create(model=story.model, prompt=PROMPT, max_tokens=20, seed=5, stop=["."])
        stream = self.story.completions.create(model=story.model, prompt=PROMPT, max_tokens=20, seed=5, stop=["."], stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), plain.choices[0].text)
        extra = self.story.completions.create(model=story.model, prompt=PROMPT, max_tokens=5, temperature=0,
                                              extra_body={"top_k": 1, "min_p": 0.1, "ignore_eos": True})
        self.assertEqual(extra.usage.completion_tokens, 5)

    def test_errors(self):
        create = self.client.chat.completions.create
        with self.assertRaises(self.openai.BadRequestError) as caught:
            create(model=script.model, messages=user("x"), temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(self.openai.NotFoundError):
            create(model="another", messages=user("x"))
        with self.assertRaises(self.openai.BadRequestError):
            create(model=script.model, messages=user("x"), response_format={"type": "xml"})
        with self.assertRaises(self.openai.BadRequestError) as caught:
            create(model=script.model, messages=user("x" * 3000))
        self.assertEqual((caught.exception.code, caught.exception.param), ("context_length_exceeded", "messages"))
        with self.assertRaises(self.openai.AuthenticationError):
            self.openai.OpenAI(base_url=script.url + "/v1", api_key="wrong", max_retries=0).models.list()
        with self.assertRaises(self.openai.NotFoundError):
            self.client.fine_tuning.jobs.list()

    def test_batches(self):
        lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                             "body": {"model": script.model, "messages": user("say plain words")}}) for i in range(3)]
        file = self.client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
        batch = self.client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h",
                                           metadata={"of": "clients"})
        for _ in range(1000):
            if batch.status == "completed":
                break
            time.sleep(0.05)
            batch = self.client.batches.retrieve(batch.id)
        self.assertEqual((batch.status, batch.request_counts.completed, batch.metadata), ("completed", 3, {"of": "clients"}))
        results = [json.loads(one) for one in self.client.files.content(batch.output_file_id).text.splitlines()]
        self.assertEqual({one["custom_id"] for one in results}, {"0", "1", "2"})
        self.assertIn(batch.id, [one.id for one in self.client.batches.list(limit=1)])
        with self.assertRaises(self.openai.BadRequestError):
            self.client.batches.cancel(batch.id)

    def test_responses(self):
        reply = self.client.responses.create(model=script.model, input="think", instructions="be brief")
        self.assertEqual((reply.output_text, reply.status), ("The answer is 42.", "completed"))
        self.assertEqual([item.type for item in reply.output], ["reasoning", "message"])
        tool = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}
        kinds = []
        with self.client.responses.stream(model=script.model, input="several", tools=[tool]) as stream:
            for event in stream:
                kinds.append(event.type)
            final = stream.get_final_response()
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))
        self.assertEqual(final.output_text, "I will look.")
        self.assertEqual([item.name for item in final.output if item.type == "function_call"], ["get_weather", "get_time"])
        with self.assertRaises(self.openai.BadRequestError):
            self.client.responses.create(model=script.model, input="x", previous_response_id="resp_1")

    def test_stored_responses(self):
        responses = self.client.responses
        first = responses.create(model=script.model, input="plain")
        second = responses.create(model=script.model, input="think", previous_response_id=first.id)
        self.assertEqual((second.output_text, second.previous_response_id), ("The answer is 42.", first.id))
        self.assertEqual(responses.retrieve(second.id).output_text, second.output_text)
        roles = [item.role for item in responses.input_items.list(second.id, order="asc", limit=2)]
        self.assertEqual(roles, ["user", "assistant", "user"])
        responses.delete(first.id)
        with self.assertRaises(self.openai.NotFoundError):
            responses.retrieve(first.id)
        stream = responses.create(model=script.model, input="think", background=True, stream=True)
        begun = next(iter(stream))
        stream.close()
        rest = list(responses.retrieve(begun.response.id, stream=True, starting_after=begun.sequence_number))
        self.assertEqual((rest[-1].type, rest[-1].response.output_text), ("response.completed", "The answer is 42."))
        waiting = responses.create(model=script.model, input="think", background=True)
        self.assertEqual(waiting.status, "queued")
        self.assertIn(responses.cancel(waiting.id).status, ("cancelled", "completed"))

    def test_many_at_once(self):
        async def run():
            client = self.openai.AsyncOpenAI(base_url=script.url + "/v1", api_key=KEY)

            async def one(name):
                stream = await client.chat.completions.create(model=script.model, messages=user(name), stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])
            names = ["plain", "think", "sunny"] * 10
            replies = await asyncio.gather(*(one(name) for name in names))
            await client.close()
            return dict(zip(names, replies)), len(set(zip(names, replies)))
        self.assertEqual(asyncio.run(run()), ({"plain": "Hello there!", "think": "The answer is 42.",
                                               "sunny": "It is sunny in Paris."}, 3))


class Vectors(unittest.TestCase):
    """OpenAI's and LangChain's embeddings of a model that sentence-transformers made."""

    @classmethod
    def setUpClass(cls):
        folder = SOURCE / "tests" / "golden" / "sentences" / "mean_normalized"
        cls.cases = [case for case in json.loads((folder / "golden.json").read_text()) if case["prompt_name"] is None][:3]
        cls.server = Server(folder).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def check(self, vectors):
        for vector, case in zip(vectors, self.cases):
            self.assertLess(max(abs(a - b) for a, b in zip(vector, case["embedding"])), 1e-5)

    def test_openai(self):
        import openai
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        texts = [case["text"] for case in self.cases]
        for form in (openai.omit, "float", "base64"):  # without one the client asks for base64
            reply = client.embeddings.create(model=self.server.model, input=texts, encoding_format=form)
            if form == "base64":
                continue  # which the client gives on as it is
            self.check([item.embedding for item in reply.data])
        self.assertEqual(len(client.embeddings.create(model=self.server.model, input="a", dimensions=4).data[0].embedding), 4)

    def test_langchain(self):
        from langchain_openai import OpenAIEmbeddings
        embeddings = OpenAIEmbeddings(base_url=self.server.url + "/v1", api_key="none", model=self.server.model,
                                      check_embedding_ctx_length=False, max_retries=0)
        self.check(embeddings.embed_documents([case["text"] for case in self.cases]))
        self.check([embeddings.embed_query(self.cases[0]["text"])])


class Ranks(unittest.TestCase):
    """Cohere's own client, and LiteLLM as a client of Cohere's, Jina's and vLLM's API, on a cross-encoder."""
    TEXTS = ["A cat sleeps in the sun.", "the price of copper", "Dogs bark at night."]

    @classmethod
    def setUpClass(cls):
        cls.server = Server(SOURCE / "tests" / "golden" / "cross_encoders" / "bert").__enter__()
        scores = cls.server.post("/v1/score", {"text_1": "animals", "text_2": cls.TEXTS})["data"]
        cls.expected = sorted(((one["score"], i) for i, one in enumerate(scores)), reverse=True)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def check(self, ranks, n=3):
        self.assertEqual([i for i, _ in ranks], [i for _, i in self.expected[:n]])
        for (_, got), (score, _) in zip(ranks, self.expected):
            self.assertAlmostEqual(got, score, places=5)

    def test_cohere(self):
        import cohere
        client = cohere.ClientV2(api_key="none", base_url=self.server.url)
        for n in (1, 3):
            reply = client.rerank(model=self.server.model, query="animals", documents=self.TEXTS, top_n=n)
            self.check([(one.index, one.relevance_score) for one in reply.results], n)
        with self.assertRaises(cohere.NotFoundError):
            client.rerank(model="other", query="animals", documents=self.TEXTS)

    def test_litellm(self):
        import litellm
        for prefix, base in (("cohere", "/v2/rerank"), ("jina_ai", "/v1/rerank"), ("hosted_vllm", "")):
            reply = litellm.rerank(model=f"{prefix}/{self.server.model}", query="animals", documents=self.TEXTS, api_key="none", api_base=self.server.url + base)
            self.check([(one["index"], one["relevance_score"]) for one in reply.results])


class Traces(unittest.TestCase):
    """OpenTelemetry's own definition of what a receiver reads."""

    def test_spans_are_otlps(self):
        import base64
        from google.protobuf import json_format
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        from traces_e2e import PARENT, Receiver, traced
        trace = "0af7651916cd43dd8448eb211c80319c"

        def with_bytes(value):
            """OTLP writes ids in hexadecimal where the JSON of protocol buffers has base64."""
            if isinstance(value, list):
                return [with_bytes(one) for one in value]
            if not isinstance(value, dict):
                return value
            return {name: base64.b64encode(bytes.fromhex(inner)).decode() if name in ("traceId", "spanId", "parentSpanId") else with_bytes(inner)
                    for name, inner in value.items()}
        with Receiver() as receiver:
            with traced("--otlp-endpoint", receiver.url) as server:
                server.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 5, "n": 2}),
                               {"traceparent": f"00-{trace}-{PARENT}-01", "tracestate": "a=b"})
            spans = []
            for _, _, body in receiver.requests:
                read = json_format.ParseDict(with_bytes(json.loads(body)), ExportTraceServiceRequest())  # unknown fields are errors
                self.assertEqual([one.key for one in read.resource_spans[0].resource.attributes], ["service.name", "service.version"])
                spans += read.resource_spans[0].scope_spans[0].spans
        request = next(span for span in spans if span.name == "POST /v1/completions")
        text = next(span for span in spans if span.name == f"text_completion {server.model}")
        self.assertEqual((request.trace_id.hex(), request.parent_span_id.hex(), request.trace_state, request.kind), (trace, PARENT, "a=b", 2))
        self.assertEqual(text.parent_span_id, request.span_id)
        self.assertEqual({span.trace_id.hex() for span in spans}, {trace})
        about = {one.key: one.value for one in text.attributes}
        self.assertEqual((about["gen_ai.usage.output_tokens"].int_value, about["gen_ai.request.temperature"].double_value), (10, 1))
        self.assertEqual([one.string_value for one in about["gen_ai.response.finish_reasons"].array_value.values], ["length", "length"])
        self.assertLessEqual(request.start_time_unix_nano, text.start_time_unix_nano)


class Anthropic(unittest.TestCase):
    tool = {"name": "get_weather", "description": "The weather", "input_schema": WEATHER}

    @classmethod
    def setUpClass(cls):
        import anthropic
        cls.anthropic = anthropic
        cls.client = anthropic.Anthropic(base_url=script.url, api_key=KEY, max_retries=0)

    def create(self, text, **fields):
        return self.client.messages.create(model=script.model, max_tokens=50, messages=user(text), **fields)

    def test_messages(self):
        reply = self.create("think", system="be brief")
        self.assertEqual([block.type for block in reply.content], ["thinking", "text"])
        self.assertEqual((reply.content[1].text, reply.stop_reason), ("The answer is 42.", "end_turn"))

    def test_both_kinds_of_key(self):
        bearer = self.anthropic.Anthropic(base_url=script.url, auth_token=KEY, api_key=None, max_retries=0)
        self.assertEqual(bearer.messages.create(model=script.model, max_tokens=9, messages=user("plain")).content[0].text,
                         "Hello there!")
        wrong = self.anthropic.Anthropic(base_url=script.url, api_key="wrong", max_retries=0)
        with self.assertRaises(self.anthropic.AuthenticationError):
            wrong.messages.create(model=script.model, max_tokens=9, messages=user("plain"))

    def test_stream_and_tools(self):
        with self.client.messages.stream(model=script.model, max_tokens=50, messages=user("several"), tools=[self.tool]) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual((text, final.stop_reason), ("I will look.", "tool_use"))
        calls = [block for block in final.content if block.type == "tool_use"]
        self.assertEqual([(call.name, call.input) for call in calls], [("get_weather", {"city": "Rome"}), ("get_time", {})])
        messages = [*user("weather"), {"role": "assistant", "content": final.content},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": calls[0].id, "content": "sunny"}]}]
        reply = self.client.messages.create(model=script.model, max_tokens=50, messages=messages, tools=[self.tool])
        self.assertEqual(reply.content[0].text, "It is sunny in Paris.")

    def test_count_and_errors(self):
        counted = self.client.messages.count_tokens(model=script.model, messages=user("plain")).input_tokens
        usage = self.create("plain").usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)
        with self.assertRaises(self.anthropic.BadRequestError):
            self.create("plain", extra_body={"temperature": -1})


class LangChain(unittest.TestCase):
    def chat(self, **fields):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model=script.model, base_url=script.url + "/v1", api_key=KEY, max_retries=0, **fields)

    def test_chat(self):
        self.assertEqual(self.chat().invoke("plain").content, "Hello there!")
        self.assertEqual("".join(chunk.content for chunk in self.chat().stream("plain")), "Hello there!")
        self.assertEqual([one.content for one in self.chat().batch(["plain", "sunny"])], ["Hello there!", "It is sunny in Paris."])

    def test_tools(self):
        reply = self.chat().bind_tools([TOOL], parallel_tool_calls=False).invoke("several")
        self.assertEqual([(call["name"], call["args"]) for call in reply.tool_calls], [("get_weather", {"city": "Rome"})])

    def test_responses(self):
        reply = self.chat(use_responses_api=True).invoke("plain")
        self.assertEqual(reply.text if isinstance(reply.text, str) else reply.text(), "Hello there!")

    def test_completions(self):
        from langchain_openai import OpenAI
        llm = OpenAI(model=story.model, base_url=story.url + "/v1", api_key="none", max_tokens=6, temperature=0, max_retries=0)
        texts = llm.generate([PROMPT, PROMPT]).generations
        self.assertEqual(texts[0][0].text, texts[1][0].text)
        self.assertEqual("".join(llm.stream(PROMPT)), texts[0][0].text)


class LiteLLM(unittest.TestCase):
    def test_chat(self):
        import litellm
        for prefix in ("openai", "hosted_vllm"):
            fields = {"model": f"{prefix}/{script.model}", "api_base": script.url + "/v1", "api_key": KEY, "num_retries": 0}
            reply = litellm.completion(messages=user("think"), **fields)
            self.assertEqual(reply.choices[0].message.content, "The answer is 42.")
            self.assertEqual(reply.choices[0].message.reasoning_content, "Let me think.")
            stream = litellm.completion(messages=user("plain"), stream=True, **fields)
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), "Hello there!")
            reply = litellm.completion(messages=user("weather"), tools=[TOOL], **fields)
            self.assertEqual(reply.choices[0].message.tool_calls[0].function.name, "get_weather")

    def test_a_prompt_that_is_too_long(self):
        import litellm
        for prefix in ("openai", "hosted_vllm"):
            for stream in (False, True):
                with self.assertRaises(litellm.ContextWindowExceededError):
                    litellm.completion(model=f"{prefix}/{script.model}", messages=user("x" * 3000), stream=stream, num_retries=0,
                                       api_base=script.url + "/v1", api_key=KEY)
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(model=f"anthropic/{script.model}", messages=user("x" * 3000), num_retries=0, api_base=script.url, api_key=KEY)
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.text_completion(model=f"text-completion-openai/{story.model}", prompt="word " * 2000, max_tokens=5,
                                    api_base=story.url + "/v1", api_key="none")

    def test_completions(self):
        import litellm
        reply = litellm.text_completion(model=f"text-completion-openai/{story.model}", prompt=PROMPT, max_tokens=5,
                                        api_base=story.url + "/v1", api_key="none")
        self.assertEqual(reply.usage.completion_tokens, 5)


class Ollama(unittest.TestCase):
    """The python client of Ollama's API, streaming and not, sync and async."""

    def setUp(self):
        import ollama
        self.ollama = ollama
        self.options = {"host": script.url, "headers": {"Authorization": f"Bearer {KEY}"}}
        self.client = ollama.Client(**self.options)

    def test_chat(self):
        reply = self.client.chat(model=script.model, messages=user("plain"), keep_alive="5m", options={"temperature": 0})
        self.assertEqual((reply.message.content, reply.done, reply.done_reason), ("Hello there!", True, "stop"))
        self.assertGreater(reply.total_duration, 0)
        parts = list(self.client.chat(model=script.model, messages=user("plain"), stream=True))
        self.assertEqual("".join(part.message.content for part in parts), "Hello there!")
        self.assertEqual((parts[-1].done, parts[-1].eval_count), (True, reply.eval_count))

    def test_thinking_and_tools(self):
        reply = self.client.chat(model=script.model, messages=user("think"), think=True)
        self.assertEqual((reply.message.thinking, reply.message.content), ("Let me think.", "The answer is 42."))

        def get_weather(city: str) -> str:
            """The weather

            Args:
              city: where
            """
            return f"in {city}"
        first = self.client.chat(model=script.model, messages=user("weather"), tools=[get_weather])
        [call] = first.message.tool_calls
        self.assertEqual((call.function.name, call.function.arguments), ("get_weather", {"city": "Paris"}))
        messages = [*user("weather"), first.message,
                    {"role": "tool", "content": get_weather(**call.function.arguments), "tool_name": "get_weather"}]
        self.assertEqual(self.client.chat(model=script.model, messages=messages, tools=[get_weather]).message.content,
                         "It is sunny in Paris.")

    def test_generate(self):
        client = self.ollama.Client(host=story.url)
        options = self.ollama.Options(temperature=0, num_predict=8, stop=["zzz"], seed=1)
        reply = client.generate(model=story.model, prompt=PROMPT, options=options)
        parts = list(client.generate(model=story.model, prompt=PROMPT, options=options, stream=True))
        self.assertEqual("".join(part.response for part in parts), reply.response)
        self.assertEqual((reply.eval_count, list(parts[-1].context)), (8, list(reply.context)))
        longer = client.generate(model=story.model, prompt=" and", context=reply.context, options=options)
        self.assertGreater(longer.prompt_eval_count, reply.prompt_eval_count)

    def test_async(self):
        async def run():
            client = self.ollama.AsyncClient(**self.options)
            whole = await asyncio.gather(*(client.chat(model=script.model, messages=user(word)) for word in ("plain", "sunny") * 4))
            parts = [part async for part in await client.chat(model=script.model, messages=user("plain"), stream=True)]
            return {reply.message.content for reply in whole}, "".join(part.message.content for part in parts)
        self.assertEqual(asyncio.run(run()), ({"Hello there!", "It is sunny in Paris."}, "Hello there!"))

    def test_models(self):
        self.assertEqual([model.model for model in self.client.list().models], [script.model])
        self.assertEqual([model.model for model in self.client.ps().models], [script.model])
        self.assertIn("tools", self.client.show(script.model).capabilities)

    def test_embed(self):
        with Server(SOURCE / "tests" / "golden" / "sentences" / "mean_normalized") as server:
            client = self.ollama.Client(host=server.url)
            [first, second] = client.embed(model=server.model, input=["the cat", "a dog"]).embeddings
            self.assertEqual(list(client.embeddings(model=server.model, prompt="the cat").embedding), list(first))
            self.assertNotEqual(list(first), list(second))

    def test_errors(self):
        for call in (lambda: self.client.chat(model="gpt-9", messages=user("x")),
                     lambda: list(self.client.chat(model="gpt-9", messages=user("x"), stream=True))):
            with self.assertRaises(self.ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, 404)
            self.assertIn("gpt-9", caught.exception.error)
        with self.assertRaises(self.ollama.ResponseError) as caught:
            self.client.pull("llama")
        self.assertIn("chosen when it starts", caught.exception.error)


class Fuzzing(unittest.TestCase):
    CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
              "negative_data_rejection", "unsupported_method", "ignored_auth")

    def test_the_document_is_valid(self):
        from openapi_spec_validator import OpenAPIV31SpecValidator
        document = story.get("/openapi.json")
        OpenAPIV31SpecValidator(document).validate()
        self.assertEqual(document["openapi"][:3], "3.1")

    def test_schemathesis(self):
        # A short context bounds what a reply can cost.
        # Bodies that the document does not allow are to be refused: those with other fields are only where they must.
        with Server(pathlib.Path(directory.name) / "script", "--max-model-len", "96", "--api-key", KEY, "--strict-fields") as server:
            command = [pathlib.Path(sys.executable).parent / "st", "run", server.url + "/openapi.json",
                       "--checks", ",".join(self.CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "8",
                       "--generation-deterministic",
                       "--request-timeout", "30", "--header", f"Authorization: Bearer {KEY}", "--no-color",
                       "--max-failures", "20"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=directory.name)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        print(done.stdout[-400:])


class Evaluation(unittest.TestCase):
    def test_scores_are_those_of_transformers(self):
        golden = json.loads((HERE / "golden.json").read_text())
        with Server(SOURCE / "models" / "penstock-stories-1m-bf16", "--served-model-name", "stories") as server, \
                tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args",
                       f"base_url={server.url}/v1/completions,model=stories,tokenizer_backend=remote,num_concurrent=4,max_retries=1",
                       "--tasks", ",".join(golden), "--include_path", HERE / "tasks", "--output_path", out]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HERE / "tasks",
                                  env={**os.environ, "HF_HOME": out, "OPENAI_API_KEY": "none"})
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-5000:])
            file = next(pathlib.Path(out).rglob("results_*.json"))
            results = json.loads(file.read_text())["results"]
        for task, scores in golden.items():
            for name, score in scores.items():
                if name.startswith(("acc", "exact_match")):
                    self.assertEqual((task, name, results[task][name]), (task, name, score))
                else:  # a perplexity; bfloat16 weights, other rounding
                    self.assertAlmostEqual(results[task][name] / score, 1, delta=0.01, msg=f"{task} {name}")


if __name__ == "__main__":
    unittest.main()
