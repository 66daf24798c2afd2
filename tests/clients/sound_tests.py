"""Real API clients that send sounds to a tiny model that hears. Started by tests/e2e/server_clients_e2e.py."""
import json
import unittest

from serving import SMALL_MODEL, SOURCE, Server

MODEL = SOURCE / "tests" / "golden" / "hearing" / "voxtral"
BOTH = MODEL.parent / "qwen2_5_omni"  # sees, too
GOLDEN = json.loads((MODEL / "golden.json").read_text())
LENGTH = 6


def setUpModule():
    global server, both, story
    both = unittest.enterModuleContext(Server(BOTH, "--max-model-len", "512", "--kv-cache-dtype", "f32", "--batch-invariant"))
    server = unittest.enterModuleContext(Server(MODEL, "--max-model-len", "512", "--kv-cache-dtype", "f32", "--batch-invariant"))
    story = unittest.enterModuleContext(Server(SMALL_MODEL, "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}"))


def client_of(one):
    import openai
    return openai.OpenAI(base_url=one.url + "/v1", api_key="none", max_retries=0)


class Sounds(unittest.TestCase):
    def test_openai_chat(self):
        client = client_of(server)
        for talk in GOLDEN:
            text = server.post("/detokenize", {"tokens": talk["reply"]})["prompt"]
            asked = dict(model=server.model, messages=talk["messages"], max_tokens=LENGTH, temperature=0,
                         extra_body={"ignore_eos": True})
            for _ in range(2):
                reply = client.chat.completions.create(**asked)
                self.assertEqual(reply.choices[0].message.content, text)
                self.assertEqual(reply.usage.prompt_tokens, len(talk["prompt"]))
            self.assertGreater(reply.usage.prompt_tokens_details.cached_tokens, 0)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True)
                               if chunk.choices)
            self.assertEqual(streamed, text)
            counted = server.post("/tokenize", {"messages": talk["messages"]})
            self.assertEqual(counted["tokens"], talk["prompt"])

    def test_pictures_and_sounds(self):
        client = client_of(both)
        for talk in json.loads((BOTH / "golden.json").read_text()):
            text = both.post("/detokenize", {"tokens": talk["reply"]})["prompt"]
            reply = client.chat.completions.create(model=both.model, messages=talk["messages"], max_tokens=LENGTH, temperature=0,
                                                   extra_body={"ignore_eos": True})
            self.assertEqual(reply.choices[0].message.content, text)
            self.assertEqual(reply.usage.prompt_tokens, len(talk["prompt"]))
            self.assertEqual(both.post("/tokenize", {"messages": talk["messages"]})["tokens"], talk["prompt"])

    def test_what_the_server_says_that_models_take(self):
        for one, takes, sees, hears in [(server, ["text", "audio"], False, True), (story, ["text"], False, False),
                                        (both, ["text", "image", "video", "audio"], True, True)]:
            self.assertEqual(one.get("/v1/models")["data"][0]["input_modalities"], takes)
            self.assertEqual(one.get("/props")["modalities"], {"vision": sees, "audio": hears})

    def test_models_without_ears_say_so(self):
        import openai
        for one, messages, wanted in [
                (story, GOLDEN[0]["messages"], "messages[0].content[0]: this model has no ears"),
                (server, [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}],
                 "messages[0].content[0]: this model has no eyes, it reads text and hears sounds"),
                (server, [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}],
                 "messages[0].content[0]: sound: expected a WAV, FLAC, Ogg or MP3 file")]:
            with self.assertRaises(openai.BadRequestError) as refused:
                client_of(one).chat.completions.create(model=one.model, messages=messages, max_tokens=LENGTH)
            self.assertIn(wanted, str(refused.exception))
