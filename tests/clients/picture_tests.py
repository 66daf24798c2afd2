"""Real API clients that send pictures to a tiny model that sees. Started by tests/e2e/server_clients_e2e.py."""
import base64
import json
import unittest

from serving import SMALL_MODEL, SOURCE, Server

MODEL = SOURCE / "tests" / "golden" / "seeing" / "qwen3_vl"
GOLDEN = json.loads((MODEL / "golden.json").read_text())
LENGTH = 6


def setUpModule():
    global server, story
    server = unittest.enterModuleContext(Server(MODEL, "--max-model-len", "512", "--kv-cache-dtype", "f32", "--batch-invariant"))
    story = unittest.enterModuleContext(Server(SMALL_MODEL, "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}"))


def parts_of(talk):
    return GOLDEN[talk]["messages"][-1]["content"]


def files_of(talk):
    """The files of a conversation's last message, in base64."""
    return [part["image_url"]["url"].split(",", 1)[1] for part in parts_of(talk) if part["type"] == "image_url"]


def text_of(talk):
    return server.post("/detokenize", {"tokens": GOLDEN[talk]["reply"]})["prompt"]


class Pictures(unittest.TestCase):
    def test_openai_chat(self):
        import openai
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        for talk in range(len(GOLDEN)):
            asked = dict(model=server.model, messages=GOLDEN[talk]["messages"], max_tokens=LENGTH, temperature=0,
                         extra_body={"ignore_eos": True})
            for _ in range(2):
                reply = client.chat.completions.create(**asked)
                self.assertEqual(reply.choices[0].message.content, text_of(talk))
                self.assertEqual(reply.usage.prompt_tokens, len(GOLDEN[talk]["prompt"]))
            self.assertGreater(reply.usage.prompt_tokens_details.cached_tokens, 0)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in client.chat.completions.create(**asked, stream=True)
                               if chunk.choices)
            self.assertEqual(streamed, text_of(talk))

    def test_videos(self):
        import openai
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        for talk in json.loads((MODEL / "videos.json").read_text()):
            reply = client.chat.completions.create(model=server.model, messages=talk["messages"], max_tokens=LENGTH, temperature=0,
                                                   extra_body={"ignore_eos": True})
            self.assertEqual(reply.choices[0].message.content, server.post("/detokenize", {"tokens": talk["reply"]})["prompt"])
            self.assertEqual(reply.usage.prompt_tokens, len(talk["prompt"]))
            self.assertEqual(server.post("/tokenize", {"messages": talk["messages"]})["tokens"], talk["prompt"])
        self.assertIn("video", client.models.list().data[0].input_modalities)
        for url, words in [("data:video/mp4;base64,AAAA", "video/mp4: containers are not taken apart here"),
                           ("https://127.0.0.1/a.mp4", "which this server does not fetch"),
                           ("data:video/jpeg;base64," + 3000 * ",", "more than 2048")]:
            with self.assertRaises(openai.BadRequestError) as refused:
                client.chat.completions.create(model=server.model, messages=[{"role": "user", "content": [
                    {"type": "video_url", "video_url": {"url": url}}]}])
            self.assertIn(words, str(refused.exception))

    def test_llamacpp(self):
        text = "".join("<|vision_start|><__media__><|vision_end|>" if part["type"] == "image_url" else part["text"] for part in parts_of(1))
        def ask(marks, files):
            return {"prompt": {"prompt_string": f"user: {marks}<eos>\nassistant:", "multimodal_data": files}, "n_predict": LENGTH,
                    "temperature": 0, "ignore_eos": True}
        reply = server.post("/completion", ask(text, files_of(1)))
        self.assertEqual(reply["content"], text_of(1))
        for marks, files, words in [(text, files_of(1)[:1], "<__media__> 1 times"), ("<__media__>", ["????"], "expected base64"),
                                    ("<__media__>", ["AAAA"], "prompt.multimodal_data[0]: "), ("<__media__>" * 99, ["AAAA"] * 99, "at most 64")]:
            status, _, body = server.request("POST", "/completion", json.dumps(ask(marks, files)).encode(), {"Content-Type": "application/json"})
            self.assertEqual(status, 400, body[:300])
            self.assertIn(words, body.decode())

    def test_openai_responses(self):
        import openai
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        content = [{"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"} if part["type"] == "image_url" else
                   {"type": "input_text", "text": part["text"]} for part in parts_of(1)]
        reply = client.responses.create(model=server.model, input=[{"role": "user", "content": content}], max_output_tokens=LENGTH,
                                        temperature=0, extra_body={"ignore_eos": True})
        self.assertEqual(reply.output_text, text_of(1))

    def test_anthropic(self):
        import anthropic
        client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
        content = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": part["image_url"]["url"].split(",", 1)[1]}}
                   if part["type"] == "image_url" else {"type": "text", "text": part["text"]} for part in parts_of(0)]
        messages = [{"role": "user", "content": content}]
        reply = client.messages.create(model=server.model, messages=messages, max_tokens=LENGTH,
                                       extra_body={"temperature": 0, "ignore_eos": True})
        self.assertEqual(reply.content[0].text, text_of(0))
        self.assertEqual(client.models.list().data[0].input_modalities, ["text", "image", "video"])
        self.assertEqual(client.messages.count_tokens(model=server.model, messages=messages).input_tokens, len(GOLDEN[0]["prompt"]))

    def test_ollama(self):
        import ollama
        client = ollama.Client(host=server.url)
        options = {"temperature": 0, "num_predict": LENGTH}
        picture = base64.b64decode(files_of(0)[0])
        chat = client.chat(model=server.model, options=options,
                           messages=[{"role": "user", "content": parts_of(0)[1]["text"], "images": [picture]}])
        made = client.generate(model=server.model, options=options, prompt=parts_of(0)[1]["text"], images=[picture])
        self.assertEqual(chat.prompt_eval_count, len(GOLDEN[0]["prompt"]))
        self.assertEqual(made.response, chat.message.content)
        self.assertTrue(text_of(0).startswith(chat.message.content))

    def test_what_is_refused(self):
        def error(body, where=server):
            return where.post("/v1/chat/completions", {"messages": [{"role": "user", "content": body}]}, 400)["error"]["message"]
        url = parts_of(0)[0]["image_url"]["url"]
        head, file = url.split(",")
        image = {"type": "image_url", "image_url": {"url": url}}
        self.assertIn("messages[0].content[0]: this model has no eyes", error([image], story))
        for address in ["https://example.com/a.png", "http://169.254.169.254/", "file:///etc/passwd"]:
            self.assertIn("does not fetch", error([{"type": "image_url", "image_url": {"url": address}}]))
        self.assertIn("at most 64 pictures", error([image] * 65))
        with Server(MODEL, "--max-model-len", "512", "--allow-image-urls") as fetching:
            for address in ["https://localhost/a.png", "https://127.0.0.1:1/", "https://169.254.169.254/latest", "https://[::1]/a",
                            "https://2130706433/"]:
                self.assertRegex(error([{"type": "image_url", "image_url": {"url": address}}], fetching),
                                 r"messages\[0\].content\[0\]: the URL (leads to an address that is not public|cannot be read)")
            self.assertIn("scheme https", error([{"type": "image_url", "image_url": {"url": "http://example.com/a.png"}}], fetching))
            source = {"type": "image", "source": {"type": "url", "url": "https://127.0.0.1/a.png"}}
            asked = {"max_tokens": 1, "messages": [{"role": "user", "content": [source]}]}
            self.assertIn("not public", fetching.post("/v1/messages", asked, 400)["error"]["message"])
            self.assertEqual(fetching.post("/v1/chat/completions", {"messages": GOLDEN[0]["messages"], "max_tokens": 1})["object"],
                             "chat.completion")
        for bad in [file[:200], file[:-400], base64.b64encode(b"not a picture").decode()]:
            self.assertIn("messages[0].content[0]: ", error([{"type": "image_url", "image_url": {"url": head + "," + bad}}]))
        self.assertEqual(server.post("/v1/chat/completions", {"messages": GOLDEN[0]["messages"], "max_tokens": 1})["object"], "chat.completion")


if __name__ == "__main__":
    unittest.main()
