"""What tests of `penstock serve` share: starting and ending it, and plain HTTP without a client library."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import tempfile
import urllib.error
import urllib.request

PROGRAM = os.environ.get("PENSTOCK", "penstock")
SOURCE = pathlib.Path(os.environ.get("PENSTOCK_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", SOURCE / "build" / "release"))
STORY_MODEL = SOURCE / "models" / "penstock-stories-15m-q8_0.gguf"
CHAT_TEMPLATE = ("{% for m in messages %}{{ '\\n' if not loop.first }}{{ m.content }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ ' ' }}{% endif %}")


def blocks(document):
    """[(line number, language, text)] of the fenced blocks of a page."""
    text = document.read_text()
    return [(text.count("\n", 0, match.start()) + 1, match[1], match[2])
            for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)]


class Serving:
    """A running server; `with Serving("--api-key", "k") as server: server.get("/health")`."""

    def __init__(self, *flags, env=None, model=None, before=()):
        """before: flags in front of `serve`."""
        self.flags, self.env, self.model, self.before = flags, env or {}, model, before
        self.key = None

    def __enter__(self):
        self.errors = tempfile.TemporaryFile("w+")
        model = [] if self.model is None else ["--model", str(self.model)]
        self.process = subprocess.Popen([PROGRAM, *map(str, self.before), "serve", "--port", "0", *model, *map(str, self.flags)],
                                        stderr=subprocess.PIPE, stdout=self.errors, text=True,
                                        env={**os.environ, **self.env})
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            match = re.search(r"\b(https?)://([^\s/]+):(\d+)", line)
            if match:
                self.port, self.url = int(match.group(3)), f"{match.group(1)}://127.0.0.1:{match.group(3)}"
                break
        else:
            raise RuntimeError(f"the server did not start: {''.join(seen)}")
        self.drain = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.code = self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stderr.close()
            self.drain.wait(10)
            self.errors.close()

    def request(self, path, body=None, headers=None, method=None):
        """(status, headers, bytes); an error status is an answer too."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {}),
                   **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            with urllib.request.urlopen(call, timeout=300) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def get(self, path, **kwargs):
        return self.request(path, **kwargs)


def with_chat_template(source, target, template=CHAT_TEMPLATE):
    """Writes a copy of a GGUF file that has a chat template, so that a model without one can be chatted with."""
    data = source.read_bytes()
    magic, version, n_tensors, n_entries = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version == 3
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def string(at):
        (n,) = struct.unpack_from("<Q", data, at)
        return data[at + 8:at + 8 + n], at + 8 + n

    def skip(kind, at):
        if kind == 8:
            return string(at)[1]
        if kind == 9:
            inner, n = struct.unpack_from("<IQ", data, at)
            at += 12
            if inner in sizes:
                return at + n * sizes[inner]
            for _ in range(n):
                at = skip(inner, at)
            return at
        return at + sizes[kind]

    alignment, at = 32, 24
    for _ in range(n_entries):
        key, at = string(at)
        (kind,) = struct.unpack_from("<I", data, at)
        if key == b"general.alignment":
            (alignment,) = struct.unpack_from("<I", data, at + 4)
        at = skip(kind, at + 4)
    metadata_end = at
    for _ in range(n_tensors):
        _, at = string(at)
        (n_dims,) = struct.unpack_from("<I", data, at)
        at += 4 + 8 * n_dims + 4 + 8
    infos_end = at
    key, value = b"tokenizer.chat_template", template.encode()
    entry = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    head = data[:16] + struct.pack("<Q", n_entries + 1) + data[24:metadata_end] + entry + data[metadata_end:infos_end]
    round_up = lambda n: -(-n // alignment) * alignment
    target.write_bytes(head.ljust(round_up(len(head)), b"\0") + data[round_up(infos_end):])
