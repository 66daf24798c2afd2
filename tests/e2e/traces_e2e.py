#!/usr/bin/env python3
"""Traces: the W3C's headers through log and replies, and spans at a receiver of this test's own."""
import http.server
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import script_model
from serving import SOURCE, Server

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAID = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=a,other=b"}
GENERATE = json.dumps({"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0})


class Receiver:
    """Takes what is sent to it, answers with `statuses`, the last one again and again."""

    def __init__(self, statuses=(200,), reply=b"{}"):
        self.requests, self.statuses, self.reply = [], list(statuses), reply
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0])
                self.send_header("Content-Length", str(len(outer.reply)))
                self.end_headers()
                self.wfile.write(outer.reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def spans(self):
        return [span for _, _, body in self.requests for resource in json.loads(body)["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]


def value_of(value):
    (kind, inner), = value.items()
    if kind == "arrayValue":
        return [value_of(one) for one in inner["values"]]
    return int(inner) if kind == "intValue" else inner


def attributes(span):
    return {one["key"]: value_of(one["value"]) for one in span["attributes"]}


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


class traced:
    """A server with the environment of OpenTelemetry, and its flag."""

    def __init__(self, *flags, model=None, **environment):
        self.environment = {"OTEL_BSP_SCHEDULE_DELAY": "50", **environment}
        self.flags, self.model = flags, model

    def __enter__(self):
        before = dict(os.environ)
        os.environ.update(self.environment)
        try:
            self.server = Server(self.model, *self.flags) if self.model else Server(SOURCE / "models" / "penstock-stories-1m-q8_0.gguf", *self.flags)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return self.server.__enter__()

    def __exit__(self, *exc):
        self.server.__exit__(*exc)


def spans_total(server, result):
    _, _, text = server.request("GET", "/metrics")
    found = re.search(rf'penstock:otlp_spans_total{{result="{result}"}} (\S+)', text.decode())
    return float(found[1]) if found else None


class Spans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.receiver = Receiver().__enter__()
        cls.folder = tempfile.TemporaryDirectory()
        model = script_model.write(pathlib.Path(cls.folder.name) / "script")
        cls.context = traced("--otlp-endpoint", cls.receiver.url, model=model, OTEL_SERVICE_NAME="team", OTEL_RESOURCE_ATTRIBUTES="a=b%20c,d=e",
                             OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20x,x-scope = 7", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
        cls.server = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)
        cls.receiver.__exit__()
        cls.folder.cleanup()

    def spans_of(self, trace, n):
        found = lambda: [span for span in self.receiver.spans() if span["traceId"] == trace]
        self.assertTrue(wait_for(lambda: len(found()) >= n), [span["name"] for span in self.receiver.spans()])
        return found()

    def ask(self, path, body, headers=SAID):
        status, got, reply = self.server.request("POST", path, body, headers)
        return status, got, reply

    def test_a_request_below_its_callers_span(self):
        trace = "1" * 32
        status, headers, _ = self.ask("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "say plain words"}],
                                                                          "temperature": 0, "max_tokens": 9}),
                                      {**SAID, "traceparent": f"00-{trace}-{PARENT}-01", "User-Agent": "tester", "x-request-id": "r1"})
        self.assertEqual(status, 200)
        spans = self.spans_of(trace, 4)
        by_name = {span["name"]: span for span in spans}
        request, chat = by_name["POST /v1/chat/completions"], by_name[f"chat {self.server.model}"]
        self.assertEqual((request["parentSpanId"], request["traceState"], request["kind"]), (PARENT, SAID["tracestate"], 2))
        self.assertEqual(headers["traceresponse"], f"00-{trace}-{request['spanId']}-01")
        self.assertEqual(chat["parentSpanId"], request["spanId"])
        self.assertEqual({by_name[name]["parentSpanId"] for name in ("prefill", "decode")}, {chat["spanId"]})
        self.assertEqual(len({span["spanId"] for span in spans}), len(spans))
        for span in spans:
            self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
            self.assertLess(abs(int(span["startTimeUnixNano"]) / 1e9 - time.time()), 120)
        self.assertLessEqual(int(request["startTimeUnixNano"]), int(chat["startTimeUnixNano"]))
        about = attributes(request)
        self.assertEqual((about["http.request.method"], about["http.route"], about["http.response.status_code"], about["user_agent.original"],
                          about["penstock.request.id"]), ("POST", "/v1/chat/completions", 200, "tester", "r1"))
        about = attributes(chat)
        self.assertEqual((about["gen_ai.operation.name"], about["gen_ai.request.model"], about["gen_ai.usage.output_tokens"],
                          about["gen_ai.response.finish_reasons"], about["gen_ai.request.max_tokens"], about["gen_ai.request.temperature"]),
                         ("chat", self.server.model, 4, ["stop"], 9, 0))
        self.assertGreater(about["gen_ai.usage.input_tokens"], 3)

    def test_what_it_is_sent_as(self):
        self.ask("/v1/generate", GENERATE)
        self.spans_of(TRACE, 1)
        path, headers, body = self.receiver.requests[0]
        self.assertEqual((path, headers["content-type"], headers["authorization"], headers["x-scope"]),
                         ("/v1/traces", "application/json", "Bearer x", "7"))
        resource = json.loads(body)["resourceSpans"][0]["resource"]
        about = attributes(resource)
        self.assertEqual((about["service.name"], about["a"], about["d"]), ("team", "b c", "e"))

    def test_a_trace_of_its_own(self):
        _, headers, _ = self.ask("/v1/generate", GENERATE, {})
        trace = re.fullmatch(r"00-([0-9a-f]{32})-[0-9a-f]{16}-01", headers["traceresponse"])[1]
        spans = self.spans_of(trace, 3)
        request = next(span for span in spans if span["kind"] == 2)
        self.assertNotIn("parentSpanId", request)

    def test_prompts_are_spans_each_and_refused_requests_are_one(self):
        trace = "2" * 32
        self.ask("/v1/completions", json.dumps({"prompt": ["a", "b"], "max_tokens": 2}), {"traceparent": f"00-{trace}-{PARENT}-01"})
        self.assertEqual(len([span for span in self.spans_of(trace, 7) if span["name"].startswith("text_completion")]), 2)
        trace = "3" * 32
        self.assertEqual(self.ask("/v1/completions", "{}", {"traceparent": f"00-{trace}-{PARENT}-01"})[0], 400)
        (span,) = self.spans_of(trace, 1)
        self.assertEqual((attributes(span)["http.response.status_code"], span["status"]), (400, {}))

    def test_what_is_not_recorded(self):
        off = "4" * 32
        _, headers, _ = self.ask("/v1/generate", GENERATE, {"traceparent": f"00-{off}-{PARENT}-00"})
        self.assertTrue(headers["traceresponse"].startswith(f"00-{off}-") and headers["traceresponse"].endswith("-00"))
        self.server.request("GET", "/health", None, {"traceparent": f"00-{'5' * 32}-{PARENT}-01"})
        self.ask("/v1/generate", GENERATE, {"traceparent": f"00-{'6' * 32}-{PARENT}-01"})
        self.spans_of("6" * 32, 1)
        self.assertFalse({off, "5" * 32} & {span["traceId"] for span in self.receiver.spans()})

    def test_headers_that_say_nothing(self):
        for header in ("", "x", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-1", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
                       f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more", f"00_{TRACE}_{PARENT}_01", "00-" * 3000):
            status, headers, _ = self.ask("/v1/generate", GENERATE, {"traceparent": header, "tracestate": "a=b"})
            self.assertEqual(status, 200)
            self.assertNotIn(TRACE, headers["traceresponse"], header[:80])
        for header in (f"01-{TRACE}-{PARENT}-01-more", f"cc-{TRACE}-{PARENT}-03"):
            self.assertIn(TRACE, self.ask("/v1/generate", GENERATE, {"traceparent": header})[1]["traceresponse"])


class Failures(unittest.TestCase):
    def test_a_receiver_that_is_busy_gets_them_again(self):
        with Receiver([503, 200]) as receiver, traced("--otlp-endpoint", receiver.url + "/") as server:
            server.post("/v1/generate", json.loads(GENERATE))
            self.assertTrue(wait_for(lambda: spans_total(server, "exported")))
            self.assertEqual(receiver.requests[0][2], receiver.requests[1][2])
            self.assertEqual(spans_total(server, "dropped"), 0)

    def test_what_a_receiver_rejects_is_counted(self):
        with Receiver(reply=b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no"}}') as receiver:
            with traced("--otlp-endpoint", receiver.url) as server:
                server.post("/v1/generate", json.loads(GENERATE))
                self.assertTrue(wait_for(lambda: spans_total(server, "dropped") == 1))
        with Receiver([400]) as receiver, traced(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=receiver.url + "/exactly/here") as server:
            server.post("/v1/generate", json.loads(GENERATE))
            self.assertTrue(wait_for(lambda: spans_total(server, "dropped")))
            self.assertEqual((spans_total(server, "exported"), receiver.requests[0][0]), (0, "/exactly/here"))

    def test_nobody_waits_for_a_receiver_that_is_not_there(self):
        # A port that takes connections and says nothing, and a queue that is full at once.
        import socket
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
            with traced("--otlp-endpoint", endpoint, OTEL_BSP_MAX_QUEUE_SIZE="8", OTEL_EXPORTER_OTLP_TIMEOUT="2000") as server:
                for _ in range(20):
                    server.post("/v1/generate", json.loads(GENERATE))
                self.assertGreater(spans_total(server, "dropped"), 0)
                start = time.monotonic()
            self.assertLess(time.monotonic() - start, 30)

    def test_what_waits_is_sent_at_the_end(self):
        with Receiver() as receiver:
            with traced("--otlp-endpoint", receiver.url, OTEL_BSP_SCHEDULE_DELAY="600000") as server:
                server.post("/v1/generate", json.loads(GENERATE))
                self.assertEqual(receiver.requests, [])
            self.assertGreaterEqual(len(receiver.spans()), 3)

    def test_samplers(self):
        with Receiver() as receiver, traced("--otlp-endpoint", receiver.url, OTEL_TRACES_SAMPLER="parentbased_always_off") as server:
            self.assertTrue(server.request("POST", "/v1/generate", GENERATE)[1]["traceresponse"].endswith("-00"))
            server.request("POST", "/v1/generate", GENERATE, SAID)
            self.assertTrue(wait_for(lambda: receiver.spans()))
            self.assertEqual({span["traceId"] for span in receiver.spans()}, {TRACE})

    def test_settings_that_are_not_understood(self):
        for flags, environment, word in (((), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
                                         ((), {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}, "COMPRESSION"),
                                         ((), {"OTEL_EXPORTER_OTLP_HEADERS": "nothing"}, "name=value"),
                                         ((), {"OTEL_TRACES_SAMPLER": "best"}, "OTEL_TRACES_SAMPLER"),
                                         ((), {"OTEL_BSP_MAX_QUEUE_SIZE": "many"}, "OTEL_BSP_MAX_QUEUE_SIZE"),
                                         (("--otlp-endpoint", "localhost:4317"), {}, "OTLP endpoint")):
            with self.assertRaises(AssertionError) as failed:
                traced(*flags, **{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", **environment}).__enter__()
            self.assertIn(word, str(failed.exception))


class Logs(unittest.TestCase):
    def test_without_a_receiver(self):
        with Server(SOURCE / "models" / "penstock-stories-1m-q8_0.gguf", "--log-format", "json") as server:
            _, headers, _ = server.request("POST", "/v1/generate", GENERATE, SAID)
            span = re.fullmatch(rf"00-{TRACE}-([0-9a-f]{{16}})-01", headers["traceresponse"])[1]
            self.assertNotIn("traceresponse", server.request("POST", "/v1/generate", GENERATE)[1])
            self.assertIsNone(spans_total(server, "exported"))
            self.assertTrue(wait_for(lambda: sum('"event":"request"' in line for line in server.log) >= 3))
            lines = [json.loads(line) for line in server.log if '"event":"request"' in line]
        self.assertEqual((lines[0]["trace_id"], lines[0]["span_id"], lines[0]["trace_sampled"]), (TRACE, span, True))
        self.assertNotIn("trace_id", lines[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
