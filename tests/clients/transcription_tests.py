"""The official openai client sends sounds to a tiny Whisper, and hostile clients send what is none. Started by
tests/e2e/server_clients_e2e.py."""
import base64
import json
import socket
import unittest

from serving import SMALL_MODEL, SOURCE, Server

MODEL = SOURCE / "tests" / "golden" / "whisper" / "multilingual"
GOLDEN = json.loads((MODEL / "golden.json").read_text())
SOUNDS = [base64.b64decode(file) for file in GOLDEN["sounds"]]
NAMES = ["a.wav", "b.flac", "c.mp3"]
END = json.loads((MODEL / "generation_config.json").read_text())["eos_token_id"]
COLD = 0.0001  # as greedy as 0, without the other temperatures that 0 stands for


def setUpModule():
    global server, english, story
    flags = "--kv-cache-dtype", "f32", "--batch-invariant"
    server = unittest.enterModuleContext(Server(MODEL, *flags))
    english = unittest.enterModuleContext(Server(MODEL.parent / "english", *flags))
    story = unittest.enterModuleContext(Server(SMALL_MODEL))


def client_of(one):
    import openai
    return openai.OpenAI(base_url=one.url + "/v1", api_key="none", max_retries=0)


def case(sound, **asked):
    return next(one for one in GOLDEN["cases"] if one["sound"] == sound and one["asked"] == asked)


def text_of(tokens):
    return server.post("/detokenize", {"tokens": [token for token in tokens if token < END]})["prompt"]


def form(fields, boundary="xyz"):
    """The body of a form: fields are (name, filename or None, bytes)."""
    body = b""
    for name, filename, content in fields:
        more = f'; filename="{filename}"' if filename is not None else ""
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


class Transcriptions(unittest.TestCase):
    def ask(self, number, translate=False, **more):
        audio = client_of(server).audio
        create = audio.translations.create if translate else audio.transcriptions.create
        return create(file=(NAMES[number], SOUNDS[number]), model=server.model, **{"temperature": COLD} | more)

    def test_short_sounds(self):
        for number in (0, 1):
            for asked, golden in [({"language": "de"}, {"language": "de"}), ({}, {"task": "transcribe"})]:
                expected = text_of(case(number, **golden)["tokens"]).strip()
                self.assertEqual(self.ask(number, **asked).text, expected)
                self.assertEqual(self.ask(number, response_format="text", **asked), expected + "\n")

    def test_long_sounds_have_segments(self):
        for asked, golden in [({"language": "de"}, {"language": "de"}), ({}, {"task": "transcribe"})]:
            expected = case(2, **golden, return_timestamps=True, condition_on_prev_tokens=True)
            got = self.ask(2, response_format="verbose_json", timestamp_granularities=["segment"], **asked)
            self.assertEqual([segment.tokens for segment in got.segments], [one["tokens"] for one in expected["segments"]])
            for segment, one in zip(got.segments, expected["segments"]):
                self.assertAlmostEqual(segment.start, one["start"], delta=0.011)
                self.assertAlmostEqual(segment.end, one["end"], delta=0.011)
                self.assertEqual(segment.text, text_of(one["tokens"]))
            self.assertAlmostEqual(got.duration, 4.37, delta=0.1)
            self.assertEqual(got.text, text_of(expected["tokens"]).strip())
            self.assertIn(got.language, ["german", "english", "french"])

    def test_words_have_times(self):
        expected = case(2, language="de", return_timestamps=True, condition_on_prev_tokens=True)
        got = self.ask(2, language="de", response_format="verbose_json", timestamp_granularities=["word"])
        both = self.ask(2, language="de", response_format="verbose_json", timestamp_granularities=["word", "segment"])
        self.assertIsNone(got.segments)
        self.assertEqual([word.word for word in got.words], [word.word for word in both.words])
        self.assertEqual(len(both.segments), len(expected["segments"]))
        self.assertEqual("".join("".join(word.word for word in got.words).split()), "".join(text_of(expected["tokens"]).split()))
        for word in got.words:
            self.assertGreaterEqual(word.end, word.start)
            self.assertLess(word.end, got.duration + 0.05)

    def test_subtitles(self):
        n = len(case(2, language="de", return_timestamps=True, condition_on_prev_tokens=True)["segments"])
        srt, vtt = (self.ask(2, language="de", response_format=kind) for kind in ("srt", "vtt"))
        self.assertEqual(srt.count(" --> "), n)
        self.assertTrue(vtt.startswith("WEBVTT\n\n"))
        self.assertEqual(vtt.count(" --> "), n)

    def test_short_sounds_end_where_they_end(self):
        """Not with the silence that fills their window up."""
        got = self.ask(0, response_format="verbose_json")
        self.assertLess(got.duration, 1)
        for segment in got.segments:
            self.assertLess(segment.start, got.duration)

    def test_streams(self):
        whole = self.ask(2, language="de").text
        events = list(self.ask(2, language="de", stream=True))
        self.assertEqual(events[-1].type, "transcript.text.done")
        self.assertEqual(events[-1].text, whole)
        self.assertEqual("".join(event.delta for event in events[:-1]).rstrip(), whole)

    def test_translations(self):
        expected = text_of(case(0, language="fr", task="translate")["tokens"]).strip(" \n")
        self.assertEqual(self.ask(0, translate=True, extra_body={"language": "fr"}).text, expected)

    def test_prompts_and_temperatures(self):
        for more in ({"prompt": "How many red circles?"}, {"temperature": 0}, {"temperature": 1.0}):
            self.assertIsInstance(self.ask(1, **more).text, str)

    def test_seeds(self):
        def said(**fields):
            return self.ask(2, temperature=1.0, language="de", extra_body=fields).text
        texts = [said(seed=seed) for seed in (1, 2, -1, 1, 2, -1)]
        self.assertEqual(texts[:3], texts[3:])
        self.assertEqual(len(set(texts)), 3)

    def test_what_is_refused(self):
        import openai
        for more, wanted in [({"language": "klingon"}, "language: expected a code"), ({"language": "es"}, "language: expected a code"),
                             ({"timestamp_granularities": ["word"]}, "word: expected response_format verbose_json"),
                             ({"timestamp_granularities": ["letter"]}, "expected word or segment"),
                             ({"temperature": 1.5}, "temperature: expected 0 to 1"),
                             ({"extra_body": {"seed": "1.5"}}, "seed: expected an integer, got 1.5"),
                             ({"response_format": "diarized_json"}, "response_format: expected json, text"),
                             ({"stream": True, "response_format": "srt"}, "stream: expected response_format json or text")]:
            with self.assertRaises((openai.BadRequestError, openai.UnprocessableEntityError)) as refused:
                self.ask(0, **more)
            self.assertIn(wanted, str(refused.exception))

    def test_models_of_other_kinds(self):
        import openai
        for one, translate, wanted in [(story, False, "writes no transcripts"), (english, True, "English only")]:
            audio = client_of(one).audio
            with self.assertRaises(openai.BadRequestError) as refused:
                (audio.translations if translate else audio.transcriptions).create(file=(NAMES[0], SOUNDS[0]), model=one.model)
            self.assertIn(wanted, str(refused.exception))
        with self.assertRaises(openai.BadRequestError) as refused:
            client_of(server).completions.create(model=server.model, prompt="x", max_tokens=2)
        self.assertIn("it takes sounds, not text alone", str(refused.exception))
        self.assertIsInstance(client_of(english).audio.transcriptions.create(file=(NAMES[0], SOUNDS[0]), model=english.model).text, str)


class Abuse(unittest.TestCase):
    def refused(self, fields, wanted, status=400):
        body, headers = form(fields)
        got, _, reply = server.request("POST", "/v1/audio/transcriptions", body, headers)
        self.assertEqual(got, status, reply[:300])
        self.assertIn(wanted, reply.decode())

    def test_files(self):
        wav = SOUNDS[0]
        for file, wanted in [(b"", "got nothing"), (b"hello" * 100, "something else"), (wav[:30], "damaged WAV"),
                             (SOUNDS[1][:200], "sound:"), (wav[:24] + b"\xff\xff\xff\x7f" + wav[28:], "samples a second")]:
            self.refused([("file", "a.wav", file)], wanted)

    def test_forms(self):
        file = ("file", "a.wav", SOUNDS[0])
        self.refused([], "file: required")
        self.refused([file, file], "file: given twice")
        self.refused([file, ("language", None, b"de"), ("language", None, b"fr")], "language: given twice")
        self.refused([file, ("timestamp_granularities[]", None, b"segment")], "timestamp_granularities: expected response_format")
        body, headers = form([file, ("colour", None, b"red")])
        status, answered, reply = server.request("POST", "/v1/audio/transcriptions", body, headers)
        self.assertEqual(status, 200, reply[:300])
        self.assertIn("colour", answered["x-penstock-warning"])
        self.refused([file, ("prompt", None, b"x" * 100_000)], "prompt: expected at most")
        self.refused([file, ("stream", None, b"perhaps")], "stream: expected true or false")
        self.refused([file, ("model", None, b"another")], "model", 404)
        self.refused([file] + [("prompt", None, b"x")] * 40, "32 parts")
        # Fields are checked before the sound is decoded.
        self.refused([("file", "a.wav", b"hello" * 100), ("language", None, b"klingon")], "language: expected a code")

    def test_timeouts(self):
        body, headers = form([("file", "c.mp3", SOUNDS[2])])
        for timeout, wanted, message in [("0", 400, "x-request-timeout"), ("soon", 400, "x-request-timeout"), ("0.001", 504, "deadline"), ("0.001", 504, "deadline")]:
            got, _, reply = server.request("POST", "/v1/audio/transcriptions", body, headers | {"x-request-timeout": timeout})
            self.assertEqual(got, wanted, reply[:300])
            self.assertIn(message, reply.decode())

    def test_a_client_that_leaves(self):
        body, headers = form([("file", "c.mp3", SOUNDS[2])])
        for _ in range(3):
            connection = socket.create_connection((server.host, server.port))
            head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nContent-Type: {headers['Content-Type']}\r\n\r\n"
            connection.sendall(head.encode() + body)
            connection.close()
        self.assertEqual(server.request("GET", "/health")[0], 200)
        body, headers = form([("file", "a.wav", SOUNDS[0]), ("temperature", None, str(COLD).encode())])
        self.assertEqual(server.request("POST", "/v1/audio/transcriptions", body, headers)[0], 200)
