"""The models of the plugin for `llm`: what they ask a server, and what they make of its replies."""
from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import json
import threading
import urllib.parse
from typing import Any, AsyncGenerator, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import llm
from llm.parts import AttachmentPart, Message, ReasoningPart, StreamEvent, TextPart, ToolCallPart, ToolResultPart
from pydantic import Field

from ._llm_entries import Entry, key_of
from ._llm_server import Exchange, Server, ServerError
from .errors import EngineError
from .llm import LLM

_PLAIN_TOKENS = 200  # of a text by a model without a chat template, unless max_tokens says otherwise
_BATCH = 256  # texts whose vectors are computed at once
# Threads that read replies for event loops: a loop's own are few, and others need them.
_threads = concurrent.futures.ThreadPoolExecutor(512, "penstock-llm")

# Requests.


def _parts(message: Message) -> Union[str, List[Dict[str, Any]]]:
    """Returns the content of a message: its text, or parts where it has attachments."""
    parts: List[Dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            parts.append({"type": "text", "text": part.text})
        elif isinstance(part, AttachmentPart) and part.attachment is not None:
            parts.append(_attachment(part.attachment))
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _attachment(attachment: Any) -> Dict[str, Any]:
    kind, data = attachment.resolve_type(), attachment.base64_content()
    if kind.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": data, "format": kind.split("/")[1].replace("mpeg", "mp3").replace("x-", "")}}
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def _messages(prompt: Any) -> List[Dict[str, Any]]:
    """Returns the conversation as the server reads it."""
    messages: List[Dict[str, Any]] = []
    for message in prompt.messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResultPart):
                    content: Any = part.output
                    if part.attachments:
                        content = [{"type": "text", "text": part.output}, *map(_attachment, part.attachments)]
                    messages.append({"role": "tool", "tool_call_id": part.tool_call_id, "name": part.name, "content": content})
            continue
        entry: Dict[str, Any] = {"role": message.role, "content": _parts(message)}
        thoughts = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
        calls = [{"type": "function", "id": part.tool_call_id, "function": {"name": part.name, "arguments": json.dumps(part.arguments)}}
                 for part in message.parts if isinstance(part, ToolCallPart)]
        if thoughts:
            entry["reasoning_content"] = thoughts
        if calls:
            entry["tool_calls"] = calls
        if message.role == "assistant" or entry["content"]:
            messages.append(entry)
    return messages


def _plain_prompt(prompt: Any) -> str:
    """Returns the conversation as one text, for a model without a chat template."""
    text = ""
    for message in prompt.messages:
        piece = _parts(message)
        if not isinstance(piece, str) or message.role == "tool":
            raise llm.ModelError("this model has no chat template: it continues a text, without attachments and tools")
        text += (" " if text and piece and not text[-1].isspace() and not piece[0].isspace() else "") + piece
    return text


class Options(llm.Options):  # type: ignore[misc,unused-ignore]
    """Options of a prompt; what is not given is as the server has it."""

    temperature: Optional[float] = Field(None, ge=0, description="0 takes the likeliest token")
    top_p: Optional[float] = Field(None, ge=0, le=1, description="likeliest tokens with this probability together")
    top_k: Optional[int] = Field(None, ge=-1, description="number of likeliest tokens; 0: all")
    min_p: Optional[float] = Field(None, ge=0, le=1, description="tokens of at least this share of the likeliest one's probability")
    max_tokens: Optional[int] = Field(None, ge=1, description="most tokens of the reply")
    seed: Optional[int] = Field(None, description="of the draws; equal seeds give equal replies")
    stop: Optional[str] = Field(None, description="a text that ends the reply")
    repetition_penalty: Optional[float] = Field(None, gt=0, description="divides (multiplies) positive (negative) logits of seen tokens")
    presence_penalty: Optional[float] = Field(None, ge=-2, le=2, description="subtracted once from the logit of a generated token")
    frequency_penalty: Optional[float] = Field(None, ge=-2, le=2, description="subtracted for every time a token was generated")
    regex: Optional[str] = Field(None, description="regular expression that the reply matches")
    grammar: Optional[str] = Field(None, description="grammar (Lark or GBNF) of the reply")
    thinking: Optional[bool] = Field(None, description="whether a model thinks that can do without")
    thinking_token_budget: Optional[int] = Field(None, ge=0, description="most tokens of thinking")


def _held(prompt: Any) -> Dict[str, Any]:
    """Returns what the reply is held to. Errors: ModelError."""
    options = prompt.options
    held = [("json", prompt.schema), ("regex", options.regex), ("grammar", options.grammar)]
    given = [(name, value) for name, value in held if value]
    if len(given) > 1:
        raise llm.ModelError(f"expected one of a schema, regex and grammar, got {len(given)}")
    return dict(given)


def _request(prompt: Any, server: Server, key: Optional[str], stream: bool) -> Tuple[str, Dict[str, Any]]:
    """Returns path and body of a request. Errors: ModelError, ServerError."""
    body = {name: value for name, value in prompt.options if value is not None and name not in ("regex", "grammar", "thinking")}
    body.update(model=server.model, stream=stream)
    if stream:
        body["stream_options"] = {"include_usage": True}
    held = _held(prompt)
    if held:
        body["structured_outputs"] = held
    if not _has_chat_template(server, key):
        if prompt.tools:
            raise llm.ModelError("this model has no chat template: it calls no tools")
        if held:
            held["complete_within_max_tokens"] = True
        return "/v1/completions", {"max_tokens": _PLAIN_TOKENS, **body, "prompt": _plain_prompt(prompt)}
    if prompt.tools:
        body["tools"] = [{"type": "function", "function": {"name": tool.name, "description": tool.description or "",
                                                           "parameters": tool.input_schema}} for tool in prompt.tools]
    if prompt.options.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": prompt.options.thinking}
    return "/v1/chat/completions", {**body, "messages": _messages(prompt)}


@functools.lru_cache(maxsize=64)
def _has_chat_template(server: Server, key: Optional[str]) -> bool:
    # Without a deadline: a server that loads its models when they are asked for opens the model now.
    query = urllib.parse.urlencode({"model": server.model})
    return bool(server.get(f"/props?{query}", key, None).get("chat_template"))


class _Reply:
    """A reply on its way: events for llm, then what it keeps of the reply."""

    def __init__(self, entry: Entry, prompt: Any, stream: bool, key: Optional[str]) -> None:
        server = entry.server()
        key = key if entry.url else None
        path, body = _request(prompt, server, key, stream)
        self._stream = stream
        self._exchange = Exchange(server, "POST", path, body, key)
        self._calls: Dict[int, Dict[str, str]] = {}
        self._kept: Dict[str, Any] = {}

    def close(self) -> None:
        """Ends the request, if it still runs; by any thread."""
        self._exchange.close()

    def events(self) -> Iterator[StreamEvent]:
        """Returns the events of the reply. Errors: ServerError."""
        for chunk in self._exchange.events() if self._stream else [self._exchange.json()]:
            self._kept.update({name: chunk[name] for name in ("id", "model", "created", "usage") if chunk.get(name)})
            for choice in chunk.get("choices", ()):
                self._kept["finish_reason"] = choice.get("finish_reason") or self._kept.get("finish_reason")
                yield from self._events_of(choice)

    def _events_of(self, choice: Dict[str, Any]) -> Iterator[StreamEvent]:
        message = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        if message.get("reasoning_content"):
            yield StreamEvent(type="reasoning", chunk=message["reasoning_content"])
        if message.get("content"):
            yield StreamEvent(type="text", chunk=message["content"])
        for i, piece in enumerate(message.get("tool_calls") or ()):
            index = piece.get("index", i)
            if index not in self._calls:
                self._calls[index] = {"id": piece["id"], "name": piece["function"]["name"], "arguments": ""}
                yield StreamEvent(type="tool_call_name", chunk=piece["function"]["name"], tool_call_id=piece["id"])
            arguments = piece["function"].get("arguments") or ""
            self._calls[index]["arguments"] += arguments
            if arguments:
                yield StreamEvent(type="tool_call_args", chunk=arguments, tool_call_id=self._calls[index]["id"])

    def tell(self, response: Any) -> None:
        """Tells llm of the calls, the tokens and what else is kept. Errors: ModelError, if a call has no arguments that can be read."""
        for call in self._calls.values():
            try:
                arguments = json.loads(call["arguments"] or "{}")
            except ValueError as error:
                raise llm.ModelError(f"the reply ended within a call of {call['name']}: {call['arguments'][:200]!r}") from error
            response.add_tool_call(llm.ToolCall(name=call["name"], arguments=arguments, tool_call_id=call["id"]))
        usage = dict(self._kept.get("usage") or {})
        if usage:
            details = {name: value for name, value in usage.items() if name.endswith("_details") and value and any(value.values())}
            response.set_usage(input=usage.get("prompt_tokens"), output=usage.get("completion_tokens"), details=details or None)
        if self._kept.get("model"):
            response.set_resolved_model(self._kept["model"])
        response.response_json = self._kept


class _Shared:
    """What models of both kinds have."""

    needs_key = None
    can_stream = True
    supports_schema = True
    supports_tools = True
    attachment_types = {"image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp", "audio/wav", "audio/x-wav", "audio/mpeg",
                        "audio/flac", "audio/x-flac", "audio/ogg"}
    Options = Options

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.model_id = entry.model_id

    def get_key(self, explicit_key: Optional[str] = None) -> Optional[str]:
        """Returns the key of a server that wants one, else None."""
        return key_of(explicit_key, self.entry.key)

    def __str__(self) -> str:
        return f"Penstock: {self.model_id}"


class PenstockModel(_Shared, llm.KeyModel):  # type: ignore[misc,unused-ignore]
    """A model that gives text."""

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any, key: Optional[str] = None) -> Iterator[StreamEvent]:
        """Returns the events of a reply. Errors: ModelError."""
        try:
            reply = _Reply(self.entry, prompt, stream, key)
            try:
                yield from reply.events()
            finally:
                reply.close()
            reply.tell(response)
        except (ServerError, OSError, RuntimeError) as error:
            raise llm.ModelError(str(error)) from error


class AsyncPenstockModel(_Shared, llm.AsyncKeyModel):  # type: ignore[misc,unused-ignore]
    """A model that gives text, for an event loop: the reply is read by other threads."""

    async def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any,
                      key: Optional[str] = None) -> AsyncGenerator[StreamEvent, None]:
        """Returns the events of a reply. Errors: ModelError."""
        try:
            reply = await _begun(self.entry, prompt, stream, key)
            try:
                events = reply.events()
                while True:
                    event = await asyncio.get_running_loop().run_in_executor(_threads, next, events, None)
                    if event is None:
                        break
                    yield event
            finally:
                reply.close()
            reply.tell(response)
        except (ServerError, OSError, RuntimeError) as error:
            raise llm.ModelError(str(error)) from error


async def _begun(entry: Entry, prompt: Any, stream: bool, key: Optional[str]) -> _Reply:
    """Returns a reply that another thread has begun. A task that is cancelled meanwhile ends the request when it is there."""
    begun = asyncio.get_running_loop().run_in_executor(_threads, _Reply, entry, prompt, stream, key)
    try:
        return await asyncio.shield(begun)
    except asyncio.CancelledError:
        begun.add_done_callback(lambda done: None if done.cancelled() or done.exception() else done.result().close())
        raise


_embedders: Dict[str, LLM] = {}
_embedders_lock = threading.Lock()


def _opened(entry: Entry) -> LLM:
    """Returns the model of an entry, which is opened once in this process. Errors: as LLM's."""
    key = json.dumps([entry.model, entry.options], sort_keys=True, default=str)
    with _embedders_lock:
        if key not in _embedders:
            _embedders[key] = LLM(entry.model, runner="pooling", **entry.options)
        return _embedders[key]


class PenstockEmbeddingModel(llm.EmbeddingModel):  # type: ignore[misc,unused-ignore]
    """A model that gives vectors, in this process or of a server elsewhere."""

    needs_key = None
    batch_size = _BATCH

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.model_id = entry.model_id

    def get_key(self, explicit_key: Optional[str] = None) -> Optional[str]:
        """Returns the key of a server that wants one, else None."""
        return key_of(explicit_key, self.entry.key)

    def embed_batch(self, items: Iterable[Union[str, bytes]], *, key: Optional[str] = None) -> Iterator[List[float]]:
        """Returns a vector for each text. Errors: ModelError."""
        texts = [str(item) for item in items]
        try:
            if self.entry.url:
                found = Server(self.entry.url, self.entry.model).post("/v1/embeddings", {"model": self.entry.model, "input": texts}, key)
                return iter([one["embedding"] for one in found["data"]])
            return iter([output.outputs.embedding for output in _opened(self.entry).embed(texts, use_tqdm=False)])
        except (ServerError, EngineError, OSError, ValueError, TypeError, LookupError, MemoryError) as error:
            raise llm.ModelError(str(error)) from error

    def __str__(self) -> str:
        return f"Penstock: {self.model_id}"
