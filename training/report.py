"""Measures every shipped file and writes models/eval.json, the model cards and the held-out text as ids.

    python report.py --models ../models --text ../tests/golden/heldout_tinystories.txt [--only FILE] [--baseline GGUF]

Everything is measured on the files as shipped. Cards are made of the parts in cards/ and the numbers of eval.json.
"""

import argparse
import json
import pathlib

import gguf
import torch

import check_export
import data
import eagle
import embed
import evaluate
import medusa
import tokenizer

CARDS = pathlib.Path(__file__).parent / "cards"
TARGET, DRAFT = "penstock-stories-15m-q8_0.gguf", "penstock-stories-1m-q8_0.gguf"
MEDUSA, EAGLE = "penstock-stories-15m-medusa", "penstock-stories-15m-eagle3"
SAMPLES = 5


def write_ids(sp, stories, path, context=512):
    """One story a line, <s> first: what the C++ test scores without a tokenizer."""
    rows, _ = evaluate.encode_stories(sp, stories, context)
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))


def measure_file(models, name, stories):
    """The record of one file in eval.json."""
    path = str(models / name)
    model, sp = check_export.load_gguf(path), check_export.sentencepiece_of(path)
    card = name.removesuffix(".gguf").rsplit("-", 1)[0] + ".md"
    steps = check_export.read_fields(gguf.GGUFReader(path)).get("penstock.training_steps", 0)
    if "embed" in name:
        return {"card": card, "training_steps": steps, **embed.retrieval(model, sp, stories)}
    record = {"card": card, "training_steps": steps, **evaluate.measure(model, sp, stories)}
    if model.cfg.exit_layer:
        record["exit_layer"] = model.cfg.exit_layer
    if name != TARGET and (models / TARGET).exists():
        record.update(evaluate.acceptance(check_export.load_gguf(str(models / TARGET)), model, sp, stories))
    record["samples"] = evaluate.samples(model, sp, "Once upon a time", range(1, SAMPLES + 1))
    return record


def measure_medusa(models, stories):
    target, sp = check_export.load_gguf(str(models / TARGET)), check_export.sentencepiece_of(str(models / TARGET))
    heads = medusa.load(models / MEDUSA, target.cfg.dim)
    return {"card": f"{MEDUSA}.md", "top1_accuracy": medusa.accuracy(target, heads, sp, stories)}


def measure_eagle(models, stories):
    target, sp = check_export.load_gguf(str(models / TARGET)), check_export.sentencepiece_of(str(models / TARGET))
    right = eagle.measure(target.state_dict(), vars(target.cfg), models / EAGLE, evaluate.encode_stories(sp, stories, target.cfg.context)[0])
    return {"card": f"{EAGLE}.md", "top1_accuracy": {f"next+{k}": x for k, x in enumerate(right, 1)}}


def rounded(x):
    if isinstance(x, float):
        return round(x, 5)
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return x


def write_cards(models, files):
    """cards/<name>.md with its numbers filled in; {samples} and {numbers} stand for blocks."""
    for name, record in files.items():
        if name.startswith("mmproj"):  # its model's card is its own
            continue
        source = CARDS / record["card"]
        numbers = "\n".join(f"| {k.replace('_', ' ')} | {json.dumps(v)} |" for k, v in record.items()
                            if k not in ("samples", "card"))
        numbers = f"| measured on the held-out text | |\n|---|---|\n{numbers}"
        samples = "\n\n".join(f"**Seed {i + 1}**\n\n> " + s.strip().replace("\n\n", "\n").replace("\n", "\n>\n> ")
                              for i, s in enumerate(record.get("samples", [])))
        text = source.read_text().replace("{numbers}", numbers).replace("{samples}", samples)
        common = (CARDS / "common.md").read_text()
        (models / record["card"]).write_text(text.replace("{common}", common))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--only", action="append", help="measure these files, keep what eval.json says of the others")
    p.add_argument("--baseline", help="a GGUF file to measure beside ours, for instance stories260K")
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    models, stories = pathlib.Path(args.models), data.load_stories(args.text)
    eval_path = models / "eval.json"
    result = json.loads(eval_path.read_text()) if eval_path.exists() else {}
    files, baselines = result.get("files", {}), result.get("baselines", {})
    present = sorted(f.name for f in models.glob("*.gguf")) + [n for n in (MEDUSA, EAGLE) if (models / n).exists()]
    measures = {MEDUSA: measure_medusa, EAGLE: measure_eagle}
    for name in present:
        if "scenes" in name:  # check_seeing.py records what a server answered
            continue
        if not args.only or name in args.only:
            files[name] = rounded(measures[name](models, stories) if name in measures else measure_file(models, name, stories))
            print(name, {k: v for k, v in files[name].items() if k != "samples"}, flush=True)
    if args.baseline:
        sp = check_export.sentencepiece_of(args.baseline)
        stem = pathlib.Path(args.baseline).stem
        baselines[stem] = rounded(evaluate.measure(check_export.load_gguf(args.baseline), sp, stories))
        print(stem, baselines[stem])
    files = {n: files[n] for n in present if n in files}
    eval_path.write_text(json.dumps({"text": "tests/golden/heldout_tinystories.txt", "protocol": "training/README.md",
                                     "files": files, "baselines": baselines}, indent=1, ensure_ascii=False) + "\n")
    write_ids(check_export.sentencepiece_of(str(models / TARGET)), stories, pathlib.Path(args.text).with_suffix(".ids"))
    write_cards(models, files)


if __name__ == "__main__":
    main()
