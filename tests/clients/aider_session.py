"""aider, as its users start it: twenty turns in one run of the program, of edits, new files, questions and commands."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import session_model
from serving import Server

LIMIT = 400  # seconds for the session
FENCE = "```"


def edit(file, old, new):
    return f"{file}\n{FENCE}python\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n{FENCE}\n"


# (what the user says, the reply as the model writes it, the files that it changes)
TURNS = [
    ("Print eight.", "I change it.\n\n" + edit("number.py", 'print("seven")\n', 'print("eight – ä 🚀")\n'), {"number.py": 'print("eight – ä 🚀")\n'}),
    ("/ask What does it print?", "It prints the word *eight*.", {}),
    ("Print nine too.", edit("number.py", 'print("eight – ä 🚀")\n', 'print("eight")\nprint("nine \\"quoted\\" \\\\ <b>")\n'),
     {"number.py": 'print("eight")\nprint("nine \\"quoted\\" \\\\ <b>")\n'}),
    ("Add a file that imports it.", edit("other.py", "", "import number\n"), {"other.py": "import number\n"}),
    ("/ask Why?", "Because you asked for it: naïve – 日本語.", {}),
    ("Change both.", edit("number.py", 'print("eight")\n', "EIGHT = 8\n") + "\nand\n\n" + edit("other.py", "import number\n", "from number import EIGHT\n"),
     {"number.py": 'EIGHT = 8\nprint("nine \\"quoted\\" \\\\ <b>")\n', "other.py": "from number import EIGHT\n"}),
    ("Just answer.", "Nothing is to be changed.", {}),
    ("Think first.", "<think>\nThe file needs a function.\n</think>\n\n" + edit("other.py", "from number import EIGHT\n", "from number import EIGHT\n\n\ndef eight():\n\treturn EIGHT\n"),
     {"other.py": "from number import EIGHT\n\n\ndef eight():\n\treturn EIGHT\n"}),
    ("/ask What is in the second file?", "A function `eight`.", {}),
    ("Make a folder.", edit("deep/er/new.py", "", "# <tool_call>{\"name\": \"f\"}</tool_call>\n"), {"deep/er/new.py": "# <tool_call>{\"name\": \"f\"}</tool_call>\n"}),
] + [turn for i in range(10, 15) for turn in (
    (f"Write {i}.", edit("count.py", "".join(f"x{k} = {k}\n" for k in range(10, i)), "".join(f"x{k} = {k}\n" for k in range(10, i + 1))),
     {"count.py": "".join(f"x{k} = {k}\n" for k in range(10, i + 1))}),
    (f"/ask Is it {i}?", f"Yes, it is {i}.", {}))]


class Aider(unittest.TestCase):
    def test_twenty_turns(self):
        self.assertEqual(len(TURNS), 20)
        names = [f"turn{i}-" for i in range(len(TURNS))]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            repository = folder / "repository"
            for new in (repository, folder / "home"):
                new.mkdir()
            env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "HTTPS_PROXY": "http://127.0.0.1:9", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                   "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(folder / "pycache")),
                   **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "a"), ("EMAIL", "a@example.com"))}}

            def git(*arguments):
                return subprocess.run(["git", *arguments], cwd=repository, env=env, check=True, capture_output=True, text=True).stdout

            git("init", "-q")
            (repository / "number.py").write_text('print("seven")\n')
            git("add", ".")
            git("commit", "-qm", "first")
            with Server(session_model.write(folder / "model", dict(zip(names, (reply for _, reply, _ in TURNS))), context=65536)) as server:
                env.update(OPENAI_API_BASE=server.url + "/v1", OPENAI_API_KEY="none")
                said = "".join(f"{words} {session_model.then(name)}\n" for name, (words, _, _) in zip(names, TURNS))
                done = subprocess.run(
                    [sys.executable, "-m", "aider", "--model", "openai/" + server.model, "--edit-format", "diff", "--yes-always", "--no-fancy-input", "--no-pretty", "--no-analytics", "--no-check-update",
                     "--no-show-model-warnings", "--no-show-release-notes", "--no-suggest-shell-commands", "--max-chat-history-tokens", "32768", "--map-tokens", "0", "number.py"],
                    cwd=repository, env=env, input=said, capture_output=True, text=True, timeout=LIMIT)
                metrics = server.request("GET", "/metrics")[2].decode()
            transcript = done.stdout + done.stderr
            files = {}
            for _, reply, changed in TURNS:
                files.update(changed)
                for line in reply.split("</think>")[-1].split("\n")[0].strip().splitlines():
                    self.assertIn(line, transcript)
            self.assertNotIn(session_model.NOBODY, transcript)
            self.assertEqual({name: (repository / name).read_text() for name in files}, files, transcript)
            # Each turn that edits is a commit.
            self.assertEqual(len(git("log", "--oneline").splitlines()), 1 + sum(bool(changed) for _, _, changed in TURNS), transcript)
            queries, hits = (float(re.search(rf"^vllm:prefix_cache_{name}_total\S* (\S+)$", metrics, re.M)[1]) for name in ("queries", "hits"))
            self.assertGreater(hits / queries, 0.5, "a turn's prompt begins with the one in front of it")


if __name__ == "__main__":
    unittest.main()
