#!/usr/bin/env python3
"""An MCP server that does what a test wants, over standard input and output or, with --http, over HTTP at a port it prints.

Only the standard library. Environment: FAKE_MCP_PAGE (tools of one page), FAKE_MCP_VERSION, FAKE_MCP_START (seconds before it
answers), FAKE_MCP_DIES (it ends at once), FAKE_MCP_CHANGES (its tools change while they are listed), FAKE_MCP_NOTES (a file that gets a line for what happens to it),
FAKE_MCP_WEATHER (the weather everywhere), FAKE_MCP_DEEP (how deep the schema of get_weather nests).
"""
import http.server
import json
import os
import queue
import sys
import threading
import time

PAGE = int(os.environ.get("FAKE_MCP_PAGE", "100"))
VERSION = os.environ.get("FAKE_MCP_VERSION", "2025-06-18")


def schema(**fields):
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in fields.items()}}


TOOLS = [
    {"name": "get_weather", "description": "The weather of a city.", "inputSchema": schema(city="string"),
     "annotations": {"readOnlyHint": True}},
    {"name": "get_time", "description": "The time.", "inputSchema": schema()},
    {"name": "echo", "description": "What it is given.", "inputSchema": schema(text="string")},
    {"name": "wait", "description": "Waits.", "inputSchema": schema(seconds="number")},
    {"name": "fail", "description": "Fails.", "inputSchema": schema()},
    {"name": "die", "description": "Ends the server.", "inputSchema": schema()},
    {"name": "large", "description": "So many bytes.", "inputSchema": schema(bytes="integer")},
    {"name": "endless", "description": "A line without an end.", "inputSchema": schema()},
    {"name": "asks", "description": "Pings the client first.", "inputSchema": schema()},
    {"name": "look", "description": "Its environment and descriptors.", "inputSchema": schema()},
    {"name": "picture", "description": "A picture.", "inputSchema": schema()},
    {"name": "grow", "description": "Adds a tool.", "inputSchema": schema()},
    {"name": "noise", "description": "Lines that are no messages.", "inputSchema": schema()},
    {"name": "forget", "description": "Ends the session (HTTP).", "inputSchema": schema()},
    {"name": "deaf", "description": "Reads nothing for a while (standard input).", "inputSchema": schema(seconds="number")},
    {"name": "mutter", "description": "Many bytes of standard error without a line's end.", "inputSchema": schema()},
    {"name": "flood", "description": "Lines of messages without an end.", "inputSchema": schema()},
    {"name": "pester", "description": "Pings the client often.", "inputSchema": schema()},
    {"name": "garble", "description": "Answers with what is hard to read.", "inputSchema": schema(how="string")},
]


if "FAKE_MCP_DEEP" in os.environ:
    TOOLS[0]["inputSchema"]["examples"] = json.loads("[" * int(os.environ["FAKE_MCP_DEEP"]) + "]" * int(os.environ["FAKE_MCP_DEEP"]))


def note(text):
    if path := os.environ.get("FAKE_MCP_NOTES"):
        with open(path, "a") as file:
            file.write(text + "\n")


def text(value, error=False):
    return {"content": [{"type": "text", "text": value}], "isError": error}


def open_files():
    """Numbers of the open files, without the notes, which another thread may be writing."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") != os.environ.get("FAKE_MCP_NOTES"):
                found.append(int(fd))
        except OSError:  # the listing's own
            pass
    return sorted(found)


class Garbled(Exception):
    """Its text is written as it is, in the place of an answer."""


class Server:
    """send: writes a message to the client; answers: what the client says to requests of this side."""

    def __init__(self, send):
        self.send, self.answers, self.cancelled = send, queue.Queue(), set()

    def handle(self, message):
        """The response to a message, or None."""
        if "method" not in message:
            self.answers.put(message)
            return None
        if message["method"] == "notifications/cancelled":
            self.cancelled.add(message["params"]["requestId"])
            note(f"cancelled {message['params']['requestId']}")
        if "id" not in message:
            note(message["method"])
            return None
        try:
            return {"jsonrpc": "2.0", "id": message["id"], "result": self.result(message)}
        except KeyError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": f"unknown: {error}"}}

    def result(self, message):
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            time.sleep(float(os.environ.get("FAKE_MCP_START", "0")))
            note(f"initialize {params['protocolVersion']}")
            return {"protocolVersion": VERSION, "capabilities": {"tools": {"listChanged": True}},
                    "serverInfo": {"name": "fake", "version": "1"}}
        if method == "tools/list":
            note("tools/list")
            first = int(params.get("cursor") or 0)
            page = {"tools": TOOLS[first:first + PAGE]}
            if "FAKE_MCP_CHANGES" in os.environ:
                self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            if first + PAGE < len(TOOLS):
                page["nextCursor"] = str(first + PAGE)
            return page
        if method == "tools/call":
            note(f"call {params['name']} {json.dumps(params.get('arguments'))}")
            return getattr(self, {tool["name"]: tool["name"] for tool in TOOLS}[params["name"]])(message, **params["arguments"])
        raise KeyError(method)

    def get_weather(self, _, city):
        return text(os.environ.get("FAKE_MCP_WEATHER", f"sun in {city}"))

    def get_time(self, _):
        return text("noon")

    def echo(self, _, **arguments):
        return text(json.dumps(arguments, ensure_ascii=False))

    def wait(self, message, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and message["id"] not in self.cancelled:
            time.sleep(0.02)
        return text("waited")

    def fail(self, _):
        return text("it went wrong", error=True)

    def die(self, _):
        os._exit(3)

    def large(self, _, bytes):
        return text("é" * (bytes // 2))

    def endless(self, _):
        for _ in range(64):
            sys.stdout.write("x" * (1 << 20))
        sys.stdout.flush()

    def asks(self, _):
        self.send({"jsonrpc": "2.0", "id": "p1", "method": "ping"})
        self.send({"jsonrpc": "2.0", "id": "p2", "method": "roots/list"})
        said = [self.answers.get(timeout=10) for _ in range(2)]
        return text(json.dumps(sorted(said, key=lambda one: one["id"])))

    def deaf(self, _, seconds):
        return text(f"deaf for {seconds} s")

    def mutter(self, _):
        for _ in range(80):
            sys.stderr.write("x" * (1 << 16))
        sys.stderr.flush()
        return text("quiet")

    def flood(self, _):
        while True:
            sys.stdout.write('{"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}\n' * 1000)

    def pester(self, _):
        for i in range(40):
            self.send({"jsonrpc": "2.0", "id": i, "method": "ping"})
        end = time.monotonic() + 1
        while time.monotonic() < end and self.answers.qsize() < 40:
            time.sleep(0.02)
        return text(f"{self.answers.qsize()} answers")

    def garble(self, message, how):
        right = {"jsonrpc": "2.0", "id": message["id"], "result": text("a text that is cut somewhere")}
        whole = json.dumps(right)
        raise Garbled({
            "cut": whole[:-5], "cut before its id": whole[:20], "python": str({**right, "isError": False}), "no id": '{"jsonrpc": "2.0", oops}',
            "deep": whole[:-1] + ', "x": ' + "[" * 5000 + "]" * 5000 + "}", "many": whole[:-1] + ', "x": [' + "0," * 300000 + "0]}",
            "null": json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}),
            "text id": json.dumps({**right, "id": str(message["id"]), "result": text("an id of text")}),
            "batch": json.dumps([{"jsonrpc": "2.0", "method": "notifications/progress"}, {**right, "result": text("in a batch")}]),
            "empty": json.dumps({"jsonrpc": "2.0", "id": message["id"]})}[how])

    def look(self, _):
        return text(json.dumps({"environment": sorted(os.environ), "files": open_files(),
                                "group": os.getpgrp() == os.getpid()}))

    def picture(self, _):
        return {"content": [{"type": "text", "text": "here:"}, {"type": "image", "mimeType": "image/png", "data": "AAAA"},
                            {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}]}

    def grow(self, _):
        TOOLS.append({"name": f"grown{len(TOOLS)}", "inputSchema": schema()})
        self.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("grown")

    def noise(self, _):
        print("hello, I am no message", flush=True)
        print("[1, 2", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": 999999, "result": {}}), flush=True)
        time.sleep(0.5)  # the two outputs are read independently
        for i in range(200):
            print(f"line {i}", file=sys.stderr, flush=True)
        return text("quiet")

    def forget(self, _):
        Handler.sessions.clear()
        return text("forgotten")


def serve_stdio():
    lock = threading.Lock()

    def send(message):
        with lock:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()

    server = Server(send)

    def answer(message):
        try:
            if (reply := server.handle(message)) is not None:
                send(reply)
        except Garbled as garbled:
            with lock:
                print(garbled, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=answer, args=(message,), daemon=True).start()
        else:  # at once: notes of notifications keep the order in which they came
            server.handle(message)
        if message.get("params", {}).get("name") == "deaf":
            time.sleep(message["params"]["arguments"]["seconds"])
    note("end of input")


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with JSON, or a stream of events where FAKE_MCP_EVENTS is set."""
    protocol_version = "HTTP/1.1"
    sessions = {}

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization", "Bearer right") != "Bearer right":
            return self.empty(401)
        if message.get("method") == "initialize":
            session = f"s{time.monotonic_ns()}"
            Handler.sessions[session] = Server(None)
        else:
            session = self.headers.get("Mcp-Session-Id")
            if session not in Handler.sessions:
                return self.empty(404)
            if self.headers.get("MCP-Protocol-Version") != VERSION:
                return self.empty(400)
        server = Handler.sessions[session]
        if "id" not in message or "method" not in message:
            server.handle(message)
            return self.empty(202)
        streams = os.environ.get("FAKE_MCP_EVENTS")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
        if message["method"] == "initialize":
            self.send_header("Mcp-Session-Id", session)
        self.send_header("Connection", "close")
        self.end_headers()
        server.send = lambda one: self.event(one) if streams else None
        if streams:
            self.wfile.write(b": a comment\r\nid: 1\r\ndata:\r\n\r\n")
        try:
            reply = json.dumps(server.handle(message), indent=1 if streams else None)
        except Garbled as garbled:
            reply = str(garbled)
        if streams:
            self.event(reply)
            time.sleep(0.2 if "oops" not in reply else 20)
        else:
            self.wfile.write(reply.encode())
        self.close_connection = True

    def do_DELETE(self):
        note("delete")
        Handler.sessions.pop(self.headers.get("Mcp-Session-Id"), None)
        self.empty(200)

    def event(self, message):
        half = (message if isinstance(message, str) else json.dumps(message, indent=1)).split("\n")
        self.wfile.write(b"event: message\r\n" + b"".join(b"data: " + line.encode() + b"\r\n" for line in half) + b"\r\n")
        self.wfile.flush()

    def empty(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    note("start")
    if "FAKE_MCP_DIES" in os.environ:
        print("I cannot", file=sys.stderr)
        sys.exit(7)
    if "--http" in sys.argv:
        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(service.server_address[1], flush=True)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        sys.stdin.read()  # ends with whoever started it
        sys.exit(0)
    serve_stdio()
