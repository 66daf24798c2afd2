#!/usr/bin/env python3
"""The shipped model that sees answers questions about held-out drawn scenes (tests/golden/scenes, training/scenes.py) by every API."""
import base64
import json
import unittest

from serving import SOURCE, Server

MODEL = SOURCE / "models" / "penstock-scenes-3m-q8_0.gguf"
SCENES = SOURCE / "tests" / "golden" / "scenes"
ASKED = [json.loads(line) for line in (SCENES / "questions.jsonl").read_text().splitlines()]


def setUpModule():
    global server
    server = unittest.enterModuleContext(Server(MODEL, "--threads", "1"))


def data_of(one):
    return base64.b64encode((SCENES / one["file"]).read_bytes()).decode()


def message_of(one):
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + data_of(one)}},
                                        {"type": "text", "text": one["question"]}]}


def chat(messages, **more):
    said = server.post("/v1/chat/completions", {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": 96, **more})
    return said["choices"][0]


class Scenes(unittest.TestCase):
    def test_sees_by_its_files(self):
        self.assertEqual(server.get("/v1/models")["data"][0]["input_modalities"], ["text", "image"])

    def test_answers_of_every_kind_are_right(self):
        self.assertEqual({one["kind"] for one in ASKED}, {"shape", "color", "count", "where", "what", "is", "sign", "describe"})
        for one in ASKED:
            with self.subTest(**one):
                choice = chat([message_of(one)])
                self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (one["answer"], "stop"))

    def test_another_picture_gets_another_answer(self):
        """The same question and prompt length: only the picture tells them apart, also when prefixes are cached."""
        question = "Describe the picture."
        said = {}
        for one in ASKED:
            for _ in range(2):
                text = chat([message_of({**one, "question": question})])["message"]["content"]
                self.assertEqual(said.setdefault(one["file"], text), text)
        self.assertEqual(len(set(said.values())), len(said))

    def test_questions_one_after_the_other(self):
        one = next(one for one in ASKED if one["kind"] == "describe")
        messages = [message_of(one)]
        for asked in [one] + [other for other in ASKED if other["file"] == one["file"] and other["kind"] in ("what", "where")]:
            messages = messages if asked is one else messages + [{"role": "user", "content": asked["question"]}]
            reply = chat(messages)["message"]["content"]
            self.assertEqual(reply, asked["answer"])
            messages = messages + [{"role": "assistant", "content": reply}]

    def test_other_apis(self):
        one = next(one for one in ASKED if one["kind"] == "describe")
        said = server.post("/v1/messages", {"model": server.model, "max_tokens": 96, "temperature": 0, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data_of(one)}},
            {"type": "text", "text": one["question"]}]}]})
        self.assertEqual(said["content"][0]["text"], one["answer"])
        said = server.post("/api/chat", {"model": server.model, "stream": False, "options": {"temperature": 0}, "messages": [
            {"role": "user", "content": one["question"], "images": [data_of(one)]}]})
        self.assertEqual(said["message"]["content"], one["answer"])


if __name__ == "__main__":
    unittest.main()
