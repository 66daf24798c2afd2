"""Starts `penstock serve` for a test and talks to it. PENSTOCK is the program's path, PENSTOCK_SOURCE the source tree."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import threading

PROGRAM = os.environ["PENSTOCK"]
SOURCE = pathlib.Path(os.environ["PENSTOCK_SOURCE"])
SMALL_MODEL = SOURCE / "models" / "penstock-stories-1m-q8_0.gguf"


class Server:
    """with Server(model, "--flag", "value") as server: server.post("/v1/completions", {...})"""

    def __init__(self, model=SMALL_MODEL, *flags, before=()):
        self.process = subprocess.Popen([PROGRAM, *map(str, before), "serve", "-m", str(model), "--port", "0", *map(str, flags)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace")
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            found = re.search(r"serving (\S+) at http://([\d.]+):(\d+)", line)
            if found:
                self.model, self.host, self.port = found[1], found[2], int(found[3])
                break
        else:
            self.process.wait()
            self.process.stdout.close()
            raise AssertionError(f"the server did not start: {''.join(self.log)}")
        # Somebody has to read the log, or the server would block on a full pipe.
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True)
        self.reader.start()

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None):
        """(status, headers with lower-case names, body bytes)"""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def post(self, path, body, status=200):
        got, _, reply = self.request("POST", path, json.dumps(body))
        assert got == status, f"POST {path} {json.dumps(body)[:500]}: expected {status}, got {got}: {reply[:1000]}"
        return json.loads(reply)

    def get(self, path, status=200):
        got, _, reply = self.request("GET", path)
        assert got == status, f"GET {path}: expected {status}, got {got}: {reply[:1000]}"
        return json.loads(reply)

    def events(self, path, body):
        """The events of a stream: (name or None, parsed data, or the text when it is not JSON)."""
        status, headers, reply = self.request("POST", path, json.dumps({**body, "stream": True}))
        assert status == 200, f"POST {path}: expected 200, got {status}: {reply[:1000]}"
        assert headers["content-type"].startswith("text/event-stream"), headers
        events = []
        for block in reply.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
            if fields:
                data = fields["data"]
                events.append((fields.get("event"), data if data == "[DONE]" else json.loads(data)))
        return events

    def chunks(self, path, body):
        """The objects of an OpenAI stream, which must end with [DONE]."""
        events = [data for _, data in self.events(path, body)]
        assert events[-1] == "[DONE]", events[-1]
        return events[:-1]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.reader.join(10)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        code = self.stop()
        assert code == 0, f"the server ended with {code}: {''.join(self.log[-20:])}"
