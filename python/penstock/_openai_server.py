"""Starts the OpenAI-compatible server from a script or a notebook."""
from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import IO, Any, Iterator, List

from .errors import EngineError

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # this machine is reached without a proxy


@dataclass
class RunningServer:
    """A running server; clients need its `base_url` and `api_key`."""

    base_url: str  # "http://127.0.0.1:PORT/v1"
    api_key: str
    model: str  # name of the model in requests
    process: "subprocess.Popen[bytes]"


@contextlib.contextmanager
def openai_server(model: str = "", *, port: int = 0, start_timeout: float = 600.0, drain_seconds: float = 30.0,
                  **options: Any) -> Iterator[RunningServer]:
    """Runs a server in a separate process until the block ends.

        with penstock.openai_server("model.gguf", max_num_seqs=8) as server:
            client = openai.OpenAI(base_url=server.base_url, api_key=server.api_key)

    Args:
        model: as LLM takes it.
        port: TCP port; 0: any free one.
        start_timeout: maximum seconds until the server is ready.
        drain_seconds: maximum seconds for running requests to finish when the block or this process ends.
        options: flags of `penstock serve`, with underscores; True: a flag without a value. Without api_key the server wants none,
            whatever PENSTOCK_API_KEY is.

    Raises:
        EngineError: the server ended, or was not ready in time; with its last output.
    """
    command = [sys.executable, "-m", "penstock._serve_with_parent", str(drain_seconds), "--host", "127.0.0.1", "--port",
               str(port or _free_port())]
    if model:
        command += ["-m", model]
    # A key that is meant for another server would close this one to its user. Its own key does not stand among the processes' arguments.
    environment = {name: value for name, value in os.environ.items() if name != "PENSTOCK_API_KEY"}
    key = str(options.pop("api_key", None) or "")
    if key:
        environment["PENSTOCK_API_KEY"] = key
    for name, value in options.items():
        command += _option(name, value)
    said = tempfile.TemporaryFile()
    # A session of its own: Ctrl-C in the terminal is for this process, which ends the server when it ends itself.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=environment, start_new_session=True)
    try:
        base = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
        _wait(process, base, start_timeout, said)
        request = urllib.request.Request(base + "/v1/models", headers={"Authorization": f"Bearer {key or 'none'}"})
        with _open(request, timeout=10) as reply:
            name = json.load(reply)["data"][0]["id"]
        yield RunningServer(base + "/v1", key or "none", name, process)
    finally:
        process.terminate()
        try:
            process.wait(drain_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
        said.close()


def _option(name: str, value: Any) -> List[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False or value is None:
        return []
    return [flag, str(value)]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait(process: "subprocess.Popen[bytes]", base: str, seconds: float, said: IO[bytes]) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            said.seek(0)
            last = said.read().decode(errors="replace")[-2000:].strip()
            raise EngineError(f"the server ended with exit code {process.returncode}: {last}")
        try:
            with _open(base + "/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise EngineError(f"the server was not ready after {seconds:.0f} s")
