"""The whole recipe in a minute: prepare, train a few steps, resume, export, read back, evaluate.

    python test_recipe.py STORIES   (a text of stories separated by <|endoftext|>)

The model is far too small to write anything; what is checked is that the loss falls, that a resumed run equals an
uninterrupted one and stacked models single ones, that nothing held out is trained on, that the embedding model tells stories apart, and that exported
files measure as the checkpoints do.
"""

import argparse
import json
import pathlib
import sys
import tempfile

import torch

import check_export
import check_seeing
import data
import eagle
import embed
import evaluate
import export
import export_seeing
import family
import medusa
import optim
import scenes
import stacked
import tokenizer
import train
import train_seeing

TEXT = pathlib.Path(__file__).parent.parent / "models" / "penstock-stories-1m-bf16"
CONFIG = {
    "name": "smoke", "seed": 3, "steps": 24, "warmup": 4, "decay": 8, "batch_tokens": 1024, "lr": 0.02,
    "adam_lr": 0.004, "weight_decay": 0.1, "dropout": 0.1, "exit_weight": 0.3, "evaluate_every": 12, "compile": False,
    "model": {"vocab": 512, "dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 128, "exit_layer": 1},
    "mix": {"tinystories": 1.0},
}


def arguments(folder, out, **changes):
    args = argparse.Namespace(config=folder / "config.json", data=folder / "data", out=folder / out, resume=False,
                              steps=None, decay=None, teacher=None, finish=None, seconds=1e9, threads=2, device="cpu")
    vars(args).update(changes)
    return args


def check(condition, what):
    print(("ok: " if condition else "FAILED: ") + what, flush=True)
    if not condition:
        sys.exit(1)


def check_split(folder, stories):
    sp = tokenizer.load(folder / "data" / "tokenizer.model")
    trained = [sp.decode(item.tolist()) for item in data.load_items(folder / "data" / "tinystories.npz")]
    heldout = data.load_stories(folder / "data" / "heldout.txt") + data.load_stories(folder / "data" / "valid.txt")
    check(len(heldout) == 16, "16 stories are set aside")
    check(not any(h[:80] in t for h in heldout for t in trained), "no held-out story is trained on")
    check(all(sp.decode(sp.encode(s)) == s for s in stories), "decoding returns the text")


def check_training(folder):
    whole = train.Trainer(arguments(folder, "whole"))
    whole.run()
    losses = [json.loads(line) for line in (folder / "whole" / "log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in losses if "loss" in r]
    check(losses[-1] < losses[0] - 0.5, f"the loss falls ({losses[0]} to {losses[-1]})")
    first = train.Trainer(arguments(folder, "parts"))
    while first.step < 12:
        first.train_step()
    first.save()
    second = train.Trainer(arguments(folder, "parts", resume=True))
    check(second.step == 12, "a run resumes where it was saved")
    second.run()
    a, b = (torch.load(folder / o / "weights.pt", weights_only=True)["weights"] for o in ("whole", "parts"))
    check(all(torch.equal(a[k], b[k]) for k in a), "a resumed run equals an uninterrupted one")


def check_stacked(folder):
    """stacked.py against model.py, evaluate.py and optim.py."""
    net = train.load_model(folder / "whole" / "weights.pt")
    weights, cfg, device = {n: w[None] for n, w in net.state_dict().items()}, CONFIG["model"], torch.device("cpu")
    sources, size = family.load(folder / "data")
    corpus = stacked.Corpus(sources, device)
    validate = stacked.Validation(corpus, corpus.members("valid"), size, cfg, torch.float32)
    wanted = evaluate.measure(net, tokenizer.load(folder / "data" / "tokenizer.model"), data.load_stories(folder / "data" / "valid.txt"))
    (early,), (kept,) = validate.of_exit(weights)
    got = {"bits_per_byte": validate(weights)[0], "exit_bits_per_byte": early, "exit_acceptance": kept}
    difference = max(abs(wanted[n] - x) for n, x in got.items())
    check(difference < 1e-5, f"stories packed in rows measure as each alone (difference {difference:.1e})")
    stack = stacked.Optimizer(weights, [CONFIG["lr"]], [CONFIG["adam_lr"]], [CONFIG["weight_decay"]], device)
    alone, random = optim.make_optimizers(net, CONFIG), torch.Generator().manual_seed(1)
    for _ in range(3):
        for p in net.parameters():
            p.grad = torch.randn(p.shape, generator=random)
        stack.step({n: p.grad[None].clone() for n, p in net.named_parameters()})
        torch.nn.utils.clip_grad_norm_(alone[1].param_groups[0]["params"], 1.0)
        for optimizer in alone:
            optimizer.step()
    difference = max((stack.weights[n][0] - p).abs().max().item() for n, p in net.named_parameters())
    check(difference < 1e-5, f"members are optimized as a model alone (difference {difference:.1e})")


def check_family(folder):
    (folder / "configs").mkdir()
    for name, model in (("target", CONFIG["model"]), ("draft", {**CONFIG["model"], "exit_layer": 0, "dim": 32}),
                        ("sliding", {**CONFIG["model"], "exit_layer": 0, "window": 64})):
        (folder / "configs" / f"{name}.json").write_text(json.dumps({**CONFIG, "model": model}))
    args = argparse.Namespace(data=folder / "data", out=folder / "family", seconds=36, followers=12, rows=1, written=6,
                              rounds=1, own=8, items=None, configs=folder / "configs", device="cpu")
    family.TEACHERS = family.TEACHERS[:3]
    family.Family(args).run()
    records = [json.loads(line) for line in (folder / "family" / "log.jsonl").read_text().splitlines()]
    best = {n: min(r["valid"][0] for r in records if r.get("stage") == n) for n in ("student", "draft", "sliding")}
    best["target"] = min(best.pop("student"), *next(r["teachers"] for r in records if "teachers" in r))
    sp, texts = tokenizer.load(folder / "data" / "tokenizer.model"), data.load_stories(folder / "data" / "valid.txt")
    models = {n: train.load_model(folder / "family" / n / "weights.pt") for n in best}
    difference = max(abs(evaluate.measure(m, sp, texts)["bits_per_byte"] - best[n]) for n, m in models.items())
    check(difference < 1e-4, f"a target and its followers are the best of their stages (difference {difference:.1e})")
    right = medusa.accuracy(models["target"], medusa.load(folder / "family" / "medusa", 64), sp, texts)
    check(len(right) == 1 + medusa.HEADS, "and Medusa heads are written")
    rows, _ = evaluate.encode_stories(sp, texts, 512)
    right = eagle.measure(models["target"].state_dict(), CONFIG["model"], folder / "family" / "eagle", rows)
    check(len(right) == eagle.STEPS, "and an EAGLE-3 layer")
    check(not any("failed" in r for r in records), "no stage failed")


def check_eagle():
    """Guesses as they are trained against guesses one after the other."""
    torch.manual_seed(4)
    cfg, t = {"dim": 64, "layers": 6, "vocab": 512}, 9
    w = eagle.fresh({"norm.weight": torch.ones(1, 64), "embedding.weight": torch.randn(1, 512, 64)}, cfg, torch.arange(100))
    w = {n: x + 0.1 * torch.randn_like(x) for n, x in w.items()}
    streams, embedded, difference = torch.randn(2, t, 2 * 64), torch.randn(2, t, 64), 0.0
    trained = eagle.unrolled(w, streams, embedded)
    for begin in range(t):
        states = streams[:, :begin + 1] @ w["fc.weight"].T
        for m in range(min(eagle.STEPS, t - begin)):
            q, k, v = eagle.heads_of(w, embedded[:, :begin + 1 + m], states)
            x = eagle.layer(w, states, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))[:, -1]
            difference = max(difference, (x - trained[m][:, begin + m]).abs().max().item())
            states = torch.cat([states, x[:, None]], 1)
    check(difference < 1e-4, f"an EAGLE-3 layer is trained on the guesses that it will make (difference {difference:.1e})")


def check_export_agrees(folder):
    net = train.load_model(folder / "whole" / "weights.pt")
    sp = tokenizer.load(folder / "data" / "tokenizer.model")
    texts = data.load_stories(folder / "data" / "heldout.txt")
    wanted = evaluate.measure(net, sp, texts)["bits_per_byte"]
    for kind in ("f32", "q8_0"):
        path = str(folder / f"{kind}.gguf")
        export.write_gguf(net, sp, path, kind, "smoke")
        got = evaluate.measure(check_export.load_gguf(path), check_export.sentencepiece_of(path), texts)["bits_per_byte"]
        check(abs(got - wanted) < (1e-4 if kind == "f32" else 0.02), f"{kind} GGUF measures {got:.4f}, checkpoint {wanted:.4f}")
    export.write_hugging_face(net, folder / "data" / "tokenizer.model", folder / "hf")
    wrong, difference = check_export.check_hugging_face(str(folder / "hf"), net, sp, texts)
    check(not wrong, "tokenizer.json gives SentencePiece's ids")
    check(difference < 0.05, f"transformers gives the same logits (difference {difference:.4f}, weights rounded to BF16)")


def check_embedding(folder):
    sp, texts = tokenizer.load(folder / "data" / "tokenizer.model"), data.load_stories(folder / "data" / "heldout.txt")
    saved = []
    for out in ("embed", "again"):
        embed.main(["--data", str(folder / "data"), "--out", str(folder / out), "--steps", "3"])
        saved.append(torch.load(folder / out / "weights.pt", weights_only=True)["weights"])
    check(all(torch.equal(saved[0][k], saved[1][k]) for k in saved[0]), "the embedding model is deterministic by its seed")
    check(any(v.any() for k, v in saved[0].items() if "o_proj" in k), "its blocks are trained")
    net, path = train.load_model(folder / "embed" / "weights.pt"), str(folder / "embed.gguf")
    export.write_gguf(net, sp, path, "q8_0", "smoke", embedding=True)
    wanted, got = embed.retrieval(net, sp, texts), embed.retrieval(check_export.load_gguf(path), sp, texts)
    check(wanted["retrieval_top1"] >= 2 * wanted["chance"], f"halves find each other ({wanted['retrieval_top1']:.3f})")
    difference = max(abs(wanted[k] - got[k]) for k in ("similarity_same", "similarity_other"))
    check(difference < 0.01, f"similarities of the q8_0 GGUF differ by {difference:.4f}")


def check_scenes():
    """What is drawn and asked follows from the seed, and nothing held out is trained on."""
    held = [[scenes.held_out(t.shape, t.color, t.place) for t in s.things] for s, _ in scenes.held_out_set(7, 50)]
    check(all(any(h) for h in held), "every held-out scene has a triple that no training scene has")
    random = scenes.np.random.default_rng(1)
    trained = [scenes.make_scene(random, held=False) for _ in range(50)]
    check(not any(scenes.held_out(t.shape, t.color, t.place) for s in trained for t in s.things), "and no training scene has one")
    once, again = (scenes.png(scenes.draw(next(iter(scenes.held_out_set(7, 1)))[0])) for _ in range(2))
    check(once == again, "a scene is drawn byte by byte the same")


def check_seeing_model(folder):
    def trainer(out, *more):
        return train_seeing.Trainer(train_seeing.parse_arguments(["--text", str(TEXT), "--out", str(folder / out), "--batch", "8", "--hints", "4",
                                                                  "--steps", "8", "--decay", "2", "--warmup", "2", "--scenes", "4", *more]))
    whole = trainer("seeing")
    whole.run()
    log = (folder / "seeing" / "log.jsonl").read_text()
    check('"right"' in log, "held-out scenes are asked at the end of a run")
    first = trainer("seeing_parts")
    batches = train_seeing.Batches(first.vocabulary, 0, 8, first.model.tower_cfg.row)
    for step in range(5):
        first.train_step(batches[step])
    first.save()
    second = trainer("seeing_parts", "--resume")
    second.run()
    a, b = (torch.load(folder / o / "weights.pt", weights_only=True)["weights"] for o in ("seeing", "seeing_parts"))
    check(second.step == 8 and all(torch.equal(a[k], b[k]) for k in a), "a resumed run of the model that sees equals an uninterrupted one")
    batch, hints = batches[0], []
    second.args.hints, second.args.steps, second.args.decay = 30, 100, 1
    for _ in range(20):
        hints.append(second.train_step(batch)[0])
    check(hints[-1] < 0.5 * hints[0], f"the tower learns what it is shown ({hints[0]:.2f} to {hints[-1]:.2f})")
    net, _ = export_seeing.load(folder / "seeing" / "weights.pt")
    export_seeing.write_hugging_face(net, TEXT / "tokenizer.model", folder / "seeing_hf")
    same, *differences = check_seeing.check_directory(folder / "seeing_hf", folder / "seeing" / "weights.pt", TEXT / "tokenizer.model", count=1)
    check(same and max(differences) < 1e-4, f"transformers reads the directory as it was trained (difference {max(differences):.1e})")


def main(stories_file):
    torch.set_num_threads(2)
    stories = data.load_stories(stories_file)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "corpora").mkdir()
        (folder / "corpora" / "tinystories_real_merged.txt").write_text(f"\n{data.SEPARATOR}\n".join(stories))
        (folder / "config.json").write_text(json.dumps(CONFIG))
        data.prepare(folder / "corpora", folder / "data", vocab=512, reserve=8)
        check_split(folder, stories)
        check_training(folder)
        check_stacked(folder)
        check_eagle()
        check_family(folder)
        check_export_agrees(folder)
        check_embedding(folder)
        check_scenes()
        check_seeing_model(folder)


if __name__ == "__main__":
    main(sys.argv[1])
