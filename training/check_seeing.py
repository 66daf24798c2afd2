"""Asks a served penstock-scenes about held-out scenes and counts the right answers, or checks an exported directory against transformers.

    penstock serve -m penstock-scenes-3m-q8_0 --port 8000 &
    python check_seeing.py --url http://127.0.0.1:8000 [--seed 7] [--scenes 500] [--side 288] [--record ../models/eval.json]
    python check_seeing.py --hf DIR --checkpoint weights.pt

Greedy answers; one is right if it is the expected text, letter by letter. --side: pixels of the PNG files, which the server makes smaller.
--record writes the shares of right answers into eval.json, from which report.py makes the card.
"""

import argparse
import base64
import collections
import concurrent.futures
import json
import pathlib
import urllib.request

import numpy as np
import torch

import export_seeing
import scenes
import seeing
import train_seeing


def ask(url, model, picture, question):
    content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + picture}}, {"type": "text", "text": question}]
    body = {"model": model, "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 96}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def measure_served(args):
    """Right answers and questions by kind."""
    with urllib.request.urlopen(args.url + "/v1/models", timeout=120) as reply:
        model = json.load(reply)["data"][0]["id"]
    right, asked, wrong = collections.Counter(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        waiting = []
        for scene, pairs in scenes.held_out_set(args.seed, args.scenes):
            picture = base64.b64encode(scenes.png(scenes.draw(scene, args.side))).decode()
            waiting += [(kind, question, answer, pool.submit(ask, args.url, model, picture, question)) for kind, question, answer in pairs]
        for kind, question, answer, reply in waiting:
            asked[kind] += 1
            right[kind] += reply.result() == answer
            if reply.result() != answer:
                wrong.append((question, answer, reply.result()))
    for line in wrong[:args.show]:
        print(*line, sep=" | ")
    for kind in scenes.KINDS:
        print(f"| {kind} | {asked[kind]} | {right[kind]} | {100 * right[kind] / max(1, asked[kind]):.1f} % |")
    if args.record:
        record(args, asked, right)


def record(args, asked, right):
    path = pathlib.Path(args.record)
    result = json.loads(path.read_text())
    steps = export_seeing.gguf.GGUFReader(path.parent / f"{export_seeing.NAME}-q8_0.gguf").fields["penstock.training_steps"].contents()
    card = {"card": f"{export_seeing.NAME}.md"}
    shares = {f"right_{kind}": round(right[kind] / asked[kind], 4) for kind in scenes.KINDS}
    counts = {"training_steps": steps, "scenes": args.scenes, "questions": asked.total()}
    result["files"][f"{export_seeing.NAME}-q8_0.gguf"] = {**card, **counts, **shares}
    result["files"][f"mmproj-{export_seeing.NAME}-f16.gguf"] = card
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def check_directory(folder, checkpoint, pieces, seed=7, count=4):
    """Of held-out scenes: (whether transformers' prompts are ours, largest difference of pixels, of probabilities) of a BF16 directory."""
    import transformers
    from PIL import Image

    model, _ = export_seeing.load(checkpoint)
    for p in model.parameters():
        p.data = p.data.bfloat16().float()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    sp = train_seeing.tokenizer.load(pieces)
    same, of_pixels, difference = True, 0.0, 0.0
    for scene, pairs in scenes.held_out_set(seed, count):
        for _, question, answer in pairs:
            picture = Image.fromarray(scenes.draw(scene))
            talk = [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": question}]},
                    {"role": "assistant", "content": [{"type": "text", "text": answer}]}]
            given = processor.apply_chat_template(talk, tokenize=True, return_dict=True, return_tensors="pt")
            batch = train_seeing.collate(sp, [scene], [[("", question, answer)]], model.tower_cfg.row, len(sp.encode(question + "\n" + answer)) + 1)
            wanted = [1] + [train_seeing.IMAGE] * model.tower_cfg.patches + batch["ids"][0].tolist()
            same = same and given["input_ids"][0].tolist() == wanted
            pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 127.5 - 1
            of_pixels = max(of_pixels, (given["pixel_values"][0] - pixels).abs().max().item())
            with torch.no_grad():
                where = seeing.positions_and_mask(batch["turns"], model.tower_cfg.patches, torch.zeros(1, dtype=torch.bool))
                where = where[0], where[1].float()
                ours = model.logits(model.read(model.project(model.tower(batch["pixels"])), batch["ids"], *where))[0]
                logits = theirs(**given).logits[0, -ours.shape[0]:]
            difference = max(difference, (ours.softmax(-1) - logits.softmax(-1)).abs().max().item())
    return same, of_pixels, difference


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--hf")
    parser.add_argument("--checkpoint")
    parser.add_argument("--pieces", default="../models/penstock-stories-1m-bf16/tokenizer.model")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--scenes", type=int, default=500)
    parser.add_argument("--side", type=int, default=scenes.SIDE)
    parser.add_argument("--record", help="models/eval.json")
    parser.add_argument("--show", type=int, default=5, help="wrong answers to print")
    arguments = parser.parse_args()
    if arguments.url:
        measure_served(arguments)
    if arguments.hf:
        equal, *differences = check_directory(arguments.hf, arguments.checkpoint, arguments.pieces, arguments.seed)
        print(f"prompts {'are equal' if equal else 'DIFFER'}; pixels and probabilities differ by at most {max(differences):.1e}")
