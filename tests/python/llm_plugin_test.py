"""The plugin for `llm`, by the real package: its command line and its Python API, with a model whose replies are known to the letter.
Skipped where llm is not installed; scripts/test_python runs it in an environment that has it."""
import asyncio
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

llm = pytest.importorskip("llm")

from click.testing import CliRunner  # noqa: E402
from llm.cli import cli  # noqa: E402

import penstock  # noqa: E402
from conftest import ROOT, SMALL  # noqa: E402
from penstock import _llm_entries, _llm_models, _llm_server  # noqa: E402
from penstock._llm_server import Server, ServerError  # noqa: E402

EMBED = ROOT / "models/penstock-embed-2m-q8_0.gguf"


@pytest.fixture(scope="module")
def user(tmp_path_factory, script_folder):
    """llm's folder, whose penstock-models.yaml has the models of the tests."""
    folder = tmp_path_factory.mktemp("llm")
    (folder / "penstock-models.yaml").write_text(json.dumps([
        {"model_id": "script", "model": str(script_folder), "aliases": ["s"], "options": {"max_num_seqs": 4}},
        {"model_id": "small", "model": SMALL}, {"model_id": "vectors", "model": str(EMBED), "pooling": True}]))
    return folder


@pytest.fixture(autouse=True)
def _of_tests(user, monkeypatch):
    monkeypatch.setenv("LLM_USER_PATH", str(user))
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    monkeypatch.delenv("PENSTOCK_API_KEY", raising=False)
    _llm_entries.entries.cache_clear()
    _llm_models._has_chat_template.cache_clear()  # a port may be another server's by now


def called(*arguments, **env):
    """Runs llm's command line in this process."""
    _llm_entries.entries.cache_clear()
    done = CliRunner().invoke(cli, arguments, env=env)
    _llm_entries.entries.cache_clear()
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def run(*arguments, fails=False, **env):
    done = called(*arguments, **env)
    assert (done.exit_code != 0) == fails, done.output
    return done.stderr if fails else done.stdout


def weather(city: str) -> str:
    """Says the weather."""
    return f"sunny in {city}"


# The command line.


def test_the_program_finds_the_plugin():
    program = str(pathlib.Path(sys.executable).parent / "llm")
    done = subprocess.run([program, "-m", "s", "plain"], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Hello there!", "")


def test_the_models_of_this_machine_are_listed(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    listed = run("models")
    for name in ("penstock", "penstock/penstock-stories-1m-q8_0", "script (aliases: s)", "small"):
        assert f"Penstock: {name}\n" in listed, listed
    assert "embed" not in listed
    assert "Penstock: vectors\n" in run("embed-models")
    described = run("models", "--options", "-m", "script")
    for words in ("top_k: int", "regular expression that the reply matches", "image/png", "streaming", "schemas", "tools", "async"):
        assert words in described, words


def test_a_story_of_the_built_in_model():
    with penstock.LLM() as model:
        params = penstock.SamplingParams(temperature=0, max_tokens=12)
        [wanted] = model.generate(["Once upon a time"], params, use_tqdm=False)[0].outputs
    arguments = ("-m", "penstock", "-o", "temperature", "0", "-o", "max_tokens", "12", "Once upon a time")
    assert run(*arguments).strip() == wanted.text.strip()
    assert run(*arguments, "--no-stream").strip() == wanted.text.strip()
    logged = json.loads(run("logs", "-n", "1", "--json"))[0]
    assert (logged["input_tokens"], logged["output_tokens"], logged["resolved_model"]) == (5, 12, "penstock-stories-15m-q8_0.gguf")


def test_chats_tools_and_schemas():
    assert run("-m", "s", "plain").strip() == "Hello there!"
    assert run("-m", "script", "-R", "think").strip() == "The answer is 42."
    code = "def get_weather(city: str) -> str:\n    'Says the weather.'\n    return 'sunny in ' + city\n"
    done = run("-m", "script", "--functions", code, "--td", "weather")
    assert "It is sunny in Paris." in done
    name = json.loads(run("-m", "small", "A pet:", "--schema", "name, age int", "-o", "max_tokens", "50", "-o", "seed", "1"))["name"]
    assert isinstance(name, str)
    assert run("-m", "small", "Yes or no?", "-o", "regex", "yes|no").strip() in ("yes", "no")


def test_vectors(user):
    with penstock.LLM(str(EMBED)) as model:
        wanted = [output.outputs.embedding for output in model.embed(["a cat", "a dog"], use_tqdm=False)]
    assert json.loads(run("embed", "-m", "vectors", "-c", "a cat")) == pytest.approx(wanted[0])
    found = llm.get_embedding_model("vectors").embed_multi(["a cat", "a dog"])
    assert [list(one) for one in found] == [pytest.approx(one) for one in wanted]


@pytest.mark.parametrize("arguments, words", [
    (("-m", "small", "-o", "top_p", "3", "x"), "top_p"), (("-m", "small", "-o", "colour", "3", "x"), "colour"),
    (("-m", "small", "-o", "regex", "a", "-o", "grammar", "b", "x"), "expected one of"),
    (("-m", "small", "-o", "regex", "(", "x"), "regex"),
    (("-m", "small", "-T", "llm_version", "x"), "no chat template"),
    (("-m", "script", "-a", str(ROOT / "docs/images/story.png"), "plain"), "it reads text only")])
def test_what_cannot_be_done_is_said(arguments, words):
    said = run(*arguments, fails=True)
    assert words in said and "Traceback" not in said, said


def test_a_damaged_list_of_models_is_told_and_left_out(tmp_path):
    for text in ("- [", "- model_id: x\n", "colour: 1\n", "- {model_id: a, model: b, colour: c}\n", "- {model_id: a, model: b, url: 'ftp://x'}\n",
                 "- {model_id: a, model: b, url: 'http://x:port'}\n"):
        (tmp_path / "penstock-models.yaml").write_text(text)
        done = called("models", LLM_USER_PATH=str(tmp_path))
        assert done.exit_code == 0 and "Penstock: penstock\n" in done.stdout
        assert "penstock-models.yaml: " in done.stderr, text


@pytest.mark.parametrize("text, url", [
    ("http://x:1", "http://x:1"), ("http://x:1/", "http://x:1"), ("http://x:1/v1", "http://x:1"), ("http://x:1/v1/", "http://x:1"), ("x", "http://x"),
    ("x:8000/v1", "http://x:8000"), ("https://x/at/v1/", "https://x/at"), ("http://[::1]:8000", "http://[::1]:8000"), (" x ", "http://x")])
def test_addresses(text, url):
    assert _llm_entries._address(text) == url


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://:8000", "http://x:port", "http://x:70000", "http://x:0", "http://[::1", "x y",
                                  "http://x?a=b", "/v1"])
def test_a_wrong_address_is_told_and_breaks_nothing(text):
    with pytest.raises(ValueError, match="expected http://HOST:PORT, got"):
        _llm_entries._address(text)
    done = called("models", PENSTOCK_URL=text)
    assert done.exit_code == 0 and "no models of PENSTOCK_URL: address of a server: expected" in done.stderr, done.stderr
    assert "Penstock: script (aliases: s)\n" in done.stdout


@pytest.mark.parametrize("key", ["ключ", "a\nb: c"])
def test_a_key_that_cannot_be_sent_is_told_without_it(key):
    with pytest.raises(ServerError, match="expected http://HOST:PORT, and a key") as raised:
        Server("http://127.0.0.1:9", "x").get("/v1/models", key)
    assert key.split("\n")[0] not in str(raised.value).split("expected")[0] and raised.value.__suppress_context__


def test_every_server_has_a_key_of_its_own(user, monkeypatch):
    monkeypatch.setenv("PENSTOCK_API_KEY", "of-all")
    (user / "keys.json").write_text(json.dumps({"office": "of-the-office"}))
    try:
        row = {"model_id": "a", "model": "b", "url": "x:8000/v1"}
        for more, key in (({}, "of-all"), ({"key": "office"}, "of-the-office"), ({"key": "none"}, None)):
            entry = _llm_entries._entry_of({**row, **more})
            assert entry.url == "http://x:8000"
            assert [kind(entry).get_key() for kind in (_llm_models.PenstockModel, _llm_models.AsyncPenstockModel,
                                                       _llm_models.PenstockEmbeddingModel)] == [key] * 3
            assert _llm_models.PenstockModel(entry).get_key("given") == "given"
    finally:
        (user / "keys.json").unlink()


# The Python API.


def test_a_server_that_died_is_started_anew():
    children = _llm_server.Children()
    try:
        server = children.server_of("", {"max_num_seqs": 2})
        assert children.server_of("", {"max_num_seqs": 2}) == server
        [(running, _)] = children._running.values()
        running.process.kill()
        running.process.wait()
        server = children.server_of("", {"max_num_seqs": 2})
        assert server.get("/v1/models", None)["data"]
        [(again, _)] = children._running.values()
        assert again is not running and os.getsid(again.process.pid) == again.process.pid
    finally:
        children.close()
    assert again.process.poll() is not None


def test_a_model_of_vectors_is_opened_once(monkeypatch):
    opened = []
    monkeypatch.setattr(_llm_models, "LLM", lambda model, **options: opened.append(model) or penstock.LLM(model, **options))
    monkeypatch.setattr(_llm_models, "_embedders", {})
    first, second = (llm.get_embedding_model("vectors") for _ in range(2))
    assert first is not second and list(first.embed("a cat")) == list(second.embed("a cat")) and opened == [str(EMBED)]
    _llm_models._embedders.popitem()[1].close()
    wrong = _llm_entries.Entry("wrong", str(EMBED), pools=True, options={"colour": 1})
    with pytest.raises(llm.ModelError, match="colour"):
        _llm_models.PenstockEmbeddingModel(wrong).embed("a cat")


def test_the_key_of_a_server_is_not_among_its_arguments(script_folder, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with penstock.openai_server(str(script_folder), api_key="sesame, open") as server:
        assert b"sesame" not in pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        assert server.api_key == "sesame, open"
        url = server.base_url[:-len("/v1")]
        assert Server(url, "").get("/v1/models", "sesame, open")["data"]
        with pytest.raises(ServerError, match="key"):
            Server(url, "").get("/v1/models", "sesame")


def test_a_loop_keeps_its_own_threads():
    async def work():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        free = threading.Event()
        blocked = asyncio.ensure_future(asyncio.to_thread(free.wait, 60))
        try:
            return await asyncio.wait_for(llm.get_async_model("script").prompt("plain").text(), 50)
        finally:
            free.set()
            await blocked
    assert asyncio.run(work()) == "Hello there!"


def test_streams_come_in_pieces():
    response = llm.get_model("script").prompt("several", tools=[weather])
    events = list(response.stream_events())
    assert "".join(event.chunk for event in events if event.type == "reasoning").strip() == "Two cities."
    assert "".join(event.chunk for event in events if event.type == "text").strip() == "I will look."
    assert [event.chunk for event in events if event.type == "tool_call_name"] == ["get_weather", "get_time"]
    assert [(call.name, call.arguments) for call in response.tool_calls()] == [("get_weather", {"city": "Rome"}), ("get_time", {})]
    assert sum(event.type == "text" for event in events) > 1
    assert response.usage().output > 5


def test_a_chain_gives_results_back():
    def get_weather(city: str) -> str:
        "Says the weather."
        asked.append(city)
        return "sunny"
    for stream in (True, False):
        asked = []
        chain = llm.get_model("script").chain("weather", tools=[get_weather], stream=stream)
        assert chain.text().strip() == "It is sunny in Paris."
        assert asked == ["Paris"]


def test_conversations_and_async_models():
    conversation = llm.get_model("script").conversation()
    assert [conversation.prompt(words).text() for words in ("plain", "think", "sunny")] == \
        ["Hello there!", "The answer is 42.", "It is sunny in Paris."]

    async def get_weather(city: str) -> str:
        "Says the weather."
        return "sunny"

    async def all_at_once():
        model = llm.get_async_model("script")
        chunks = [chunk async for chunk in model.prompt("plain")]
        texts = await asyncio.gather(*(model.prompt(words).text() for words in ("plain", "sunny") * 8))
        chain = await model.chain("weather", tools=[get_weather]).text()
        return chunks, texts, chain
    chunks, texts, chain = asyncio.run(all_at_once())
    assert len(chunks) > 1 and "".join(chunks) == "Hello there!"
    assert texts == ["Hello there!", "It is sunny in Paris."] * 8
    assert chain.strip() == "It is sunny in Paris."


def test_pictures_and_sounds_are_sent_as_they_are():
    picture, sound = llm.Attachment(type="image/png", content=b"\x89PNG"), llm.Attachment(type="audio/mpeg", content=b"ID3")
    message = llm.user("What?", picture, sound)
    assert _llm_models._parts(message) == [
        {"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}}]


# A server elsewhere.


def test_models_of_a_running_server(script_folder, monkeypatch):
    monkeypatch.setenv("PENSTOCK_API_KEY", "of-another")  # the server of the test has its own
    with penstock.openai_server(str(script_folder), api_key="sesame") as server:
        url = server.base_url[:-len("/v1")]
        for address in (url, server.base_url + "/"):
            assert f"Penstock: penstock/{server.model} (aliases: penstock)" in run("models", PENSTOCK_URL=address, PENSTOCK_API_KEY="sesame")
        assert run("-m", "penstock", "plain", PENSTOCK_URL=url, PENSTOCK_API_KEY="sesame").strip() == "Hello there!"
        assert "key" in run("-m", "penstock", "plain", "--key", "wrong", PENSTOCK_URL=url, PENSTOCK_API_KEY="sesame", fails=True)
        done = called("models", PENSTOCK_URL=url, PENSTOCK_API_KEY="wrong")
        assert done.exit_code == 0 and "no models of PENSTOCK_URL" in done.stderr
    done = called("models", PENSTOCK_URL=url)
    assert done.exit_code == 0 and url in done.stderr


class Scripted:
    """A server of one reply after another: bytes, which it sends; held open until the client goes where they end with HELD."""

    HELD = b"held"

    def __init__(self, *replies):
        self._replies = replies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(30)
        self.held, self.left = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self):
        for reply in self._replies:
            connection, _ = self._listener.accept()
            connection.settimeout(30)
            with connection, connection.makefile("rb") as request:
                head = list(iter(request.readline, b"\r\n"))
                request.read(sum(int(line.split()[1]) for line in head if line.lower().startswith(b"content-length:")))
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + reply.removesuffix(self.HELD))
                if reply.endswith(self.HELD):
                    self.held.set()
                    assert request.read(1) == b""
                    self.left.set()

    def __enter__(self):
        self._thread.start()
        self.entry = _llm_entries.Entry("x", "x", f"http://127.0.0.1:{self._listener.getsockname()[1]}")
        return self

    def __exit__(self, *_):
        self._thread.join(40)
        self._listener.close()


PROPS, EVENT = b'{"chat_template": "x"}', b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\n'


def test_a_server_that_dies_within_a_stream_is_an_error():
    with Scripted(PROPS, EVENT) as server:
        text = ""
        with pytest.raises(llm.ModelError, match="the stream ended early"):
            for chunk in _llm_models.PenstockModel(server.entry).prompt("x"):
                text += chunk
    assert text == "Hel"


def test_a_request_that_is_left_ends():
    with Scripted(PROPS, EVENT + Scripted.HELD) as server:
        chunks = iter(_llm_models.PenstockModel(server.entry).prompt("x"))
        assert next(chunks) == "Hel"
        chunks.close()
        assert server.left.wait(20)


@pytest.mark.parametrize("stream", [True, False])
def test_a_task_that_is_cancelled_ends_its_request(stream):
    async def cancelled(server):
        async def read():
            async for _ in _llm_models.AsyncPenstockModel(server.entry).prompt("x", stream=stream):
                pass
        task = asyncio.ensure_future(read())
        await asyncio.to_thread(server.held.wait, 20)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with Scripted(PROPS, EVENT + Scripted.HELD) as server:
        asyncio.run(asyncio.wait_for(cancelled(server), 60))
        assert server.left.wait(20)
