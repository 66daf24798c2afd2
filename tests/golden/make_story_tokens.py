"""Writes story_tokens.json: a few held-out stories as token ids of each vocabulary that tests score.

python make_story_tokens.py PENSTOCK DATA   (DATA: the data folder with models/)
"""
import json
import pathlib
import subprocess
import sys

here = pathlib.Path(__file__).parent
penstock, data = sys.argv[1], pathlib.Path(sys.argv[2])
stories = [story.strip() for story in (here / "heldout_tinystories.txt").read_text().split("<|endoftext|>")][:4]
models = {"penstock-4096": here.parent.parent / "models" / "penstock-stories-1m-bf16",
          "tok512": data / "models" / "stories260K-f32.gguf", "tok4096": data / "models" / "stories3M-q8_0.gguf"}
tokens = {}
for name, model in models.items():
    tokens[name] = []
    for story in stories:
        command = [penstock, "tokenize", "-m", model, "--json", "-p", story]
        tokens[name].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["tokens"])
lines = [f' "{name}": {json.dumps(lists, separators=(",", ":"))}' for name, lists in tokens.items()]
(here / "story_tokens.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
print({name: [len(story) for story in lists] for name, lists in tokens.items()})
