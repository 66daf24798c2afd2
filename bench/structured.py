#!/usr/bin/env python3
"""Structured output held against its oracles: cases with known answers, random texts, other engines.

    bench/structured.py cases FOLDER -m TOKENIZER [--peer llguidance] [--peer xgrammar] [--every N] [--families A,B]
    bench/structured.py walks FOLDER -m TOKENIZER [-n 100000] [--member-order any|declared]
    bench/structured.py differ FOLDER -m TOKENIZER [-n 20]

FOLDER has *.jsonl or *.jsonl.gz: {id, family, schema | regex | grammar | structural_tag, valid: [text], invalid: [text]} a
line. TOKENIZER: model with the tokenizer, as for `penstock tokenize -m`; for peers Llama 3's tokenizer.model.
cases   how many compile, are judged right and how long masks and compilation take; peers answer the same cases, each in
        a process and thread of its own, one after the other
walks   draws texts at random from every schema (`penstock grammar sample`); each must be JSON that jsonschema with its
        format checker accepts, and no prefix may be a dead end
differ  draws texts from every schema and changes some of them by a few characters; what penstock, jsonschema and
        llguidance say must agree, but that penstock and llguidance may refuse what their notes say they narrow:
        text that penstock takes and jsonschema does not is a defect
Exit code 1: something was let through. Python packages: jsonschema[format], for peers llguidance, xgrammar, tiktoken, numpy.
"""
import argparse
import collections
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTATIONS = ("schema", "regex", "grammar", "structural_tag")
PEER = ROOT / "bench/peers/structured_peer.py"


def load(folder, families=None, every=1):
    cases = []
    for path in sorted(pathlib.Path(folder).glob("*.jsonl*")):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        lines = [json.loads(line) for line in raw.decode("utf-8", "surrogatepass").split("\n") if line]
        cases += [case for case in lines if not families or case["family"] in families]
    return cases[::every]


def run(command, tasks):
    """The answers by id, of a process that reads its tasks as lines."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8", errors="surrogatepass") as file:
        file.writelines(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)
        file.flush()
        done = subprocess.run([*command, file.name], capture_output=True, text=True, errors="replace")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode} behind {len(answers)} lines: {done.stderr[-500:]}")
    return answers


def notation(case):
    return next(name for name in NOTATIONS if name in case)


def task(number, case, texts):
    return {"id": number, notation(case): case[notation(case)], "texts": texts}


def quantiles(values):
    values = sorted(values)
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    return {"mean": sum(values) / len(values), "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": values[-1]}


def summary(cases, answers):
    n = collections.Counter(cases=len(cases))
    masks, compiles = [], []
    for answer in answers:
        case = cases[answer["id"]]
        if "error" in answer:
            n["refused"] += 1
            continue
        n["compiled"] += 1
        verdicts = [result["valid"] for result in answer["results"]]
        valid, invalid = verdicts[:len(case["valid"])], verdicts[len(case["valid"]):]
        n["all valid accepted"] += all(valid)
        n["let through"] += sum(invalid)
        n["right"] += all(valid) and not any(invalid)
        masks += answer["all_mask_us"]
        compiles.append(answer["compile_us"])
    return n, quantiles(masks), quantiles(compiles)


def print_rows(rows):
    print("| | right | refused | of compiled: accept all valid | let through | mask us: mean, p50, p99, p99.9, max | compile us: p50, p99, max |")
    print("|---|---|---|---|---|---|---|")
    for name, (n, masks, compiles) in rows.items():
        print(f"| {name} | {100 * n['right'] / n['cases']:.1f} % of {n['cases']} | {n['refused']} "
              f"| {100 * n['all valid accepted'] / max(n['compiled'], 1):.2f} % | {n['let through']} | "
              + ", ".join(f"{masks[key]:,.1f}" for key in ("mean", "p50", "p99", "p99.9", "max")) + " | "
              + ", ".join(f"{compiles[key]:,.0f}" for key in ("p50", "p99", "max")) + " |")


def cases_command(options):
    cases = load(options.folder, options.families, options.every)
    tasks = [task(i, case, case["valid"] + case["invalid"]) for i, case in enumerate(cases)]
    rows = {}
    for order in ("any", "declared"):
        command = [options.penstock, "grammar", "check", "--json", "-m", options.model, "--member-order", order, "--cases"]
        rows[f"penstock, members in {'any' if order == 'any' else 'the declared'} order"] = summary(cases, run(command, tasks))
    for peer in options.peer:
        rows[peer] = summary(cases, run([sys.executable, str(PEER), peer, options.model], tasks))
    print_rows(rows)
    return any(n["let through"] for name, (n, _, _) in rows.items() if name.startswith("penstock"))


class Judge:
    """jsonschema with formats, in the draft that the schema names."""

    def __init__(self):
        import jsonschema
        self.library = jsonschema
        self.validators = {}

    def __call__(self, number, schema, text):
        if number not in self.validators:
            kind = self.library.validators.validator_for(schema, default=self.library.Draft202012Validator)
            self.validators[number] = kind(schema, format_checker=kind.FORMAT_CHECKER)
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return self.validators[number].is_valid(value)


def schemas_of(options):
    return [case for case in load(options.folder, options.families, options.every) if "schema" in case]


def draw(options, cases, each):
    command = [options.penstock, "grammar", "sample", "-m", options.model, "-n", str(each), "--seed", str(options.seed),
               "--member-order", options.member_order, "--cases"]
    return run(command, [task(i, case, []) for i, case in enumerate(cases)])


def asserts_formats(case):
    return not case["family"].startswith("Suite_") or case["family"].endswith("_formats")


def walks_command(options):
    cases = [case for case in schemas_of(options) if asserts_formats(case)]
    drawn = draw(options, cases, max(1, -(-options.n // len(cases))))
    judge, wrong, unjudged = Judge(), [], 0
    whole = [walk for walk in drawn if walk["complete"]]
    for walk in whole:
        case = cases[walk["id"]]
        try:
            if not judge(walk["id"], case["schema"], walk["text"]):
                wrong.append((case["id"], walk["text"]))
        except Exception:  # a schema that the oracle itself cannot use: remote references, broken patterns
            unjudged += 1
    print(f"{len(drawn)} walks over {len({walk['id'] for walk in drawn})} schemas: {len(whole)} came to an end, "
          f"{len(whole) - unjudged} were judged, {len(wrong)} are wrong; no dead end")
    for name, text in wrong[:20]:
        print(f"  {name}: {text[:200]}")
    return bool(wrong)


def changed(text, random_):
    """A few characters left out, doubled or replaced by others of the text."""
    letters = list(text)
    for _ in range(random_.randint(1, 2)):
        if not letters:
            break
        at = random_.randrange(len(letters))
        letters[at] = random_.choice(["", letters[at] * 2, random_.choice(letters), random_.choice('{}[]",:0-.ae ')])
    return "".join(letters)


def differ_command(options):
    cases = [case for case in schemas_of(options) if asserts_formats(case)]
    random_ = random.Random(options.seed)
    texts = collections.defaultdict(list)
    for walk in draw(options, cases, options.n):
        texts[walk["id"]] += [walk["text"], changed(walk["text"], random_)] if walk["complete"] else []
    numbers = sorted(texts)
    tasks = [task(i, cases[i], texts[i]) for i in numbers]
    check = [options.penstock, "grammar", "check", "--json", "-m", options.model, "--member-order", options.member_order, "--cases"]
    ours = {answer["id"]: answer for answer in run(check, tasks)}
    peer = {answer["id"]: answer for answer in run([sys.executable, str(PEER), "llguidance", options.model], tasks)}
    judge, n, wrong = Judge(), collections.Counter(), []
    for i in numbers:
        others = [result["valid"] for result in peer[i].get("results", [])] or [None] * len(texts[i])
        for text, result, other in zip(texts[i], ours[i]["results"], others):
            try:
                truth = judge(i, cases[i]["schema"], text)
            except Exception:
                continue
            n[f"jsonschema {truth}, penstock {result['valid']}, llguidance {other}"] += 1
            if result["valid"] and not truth:
                wrong.append((cases[i]["id"], text))
    for key, count in sorted(n.items()):
        print(f"{count:8} {key}")
    for name, text in wrong[:20]:
        print(f"  let through: {name}: {text[:200]}")
    return bool(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, default_n in (("cases", None), ("walks", 100_000), ("differ", 20)):
        sub = commands.add_parser(name)
        sub.add_argument("folder")
        sub.add_argument("-m", "--model", required=True)
        sub.add_argument("--penstock", default=str(ROOT / "build/release/penstock"))
        sub.add_argument("--every", type=int, default=1)
        sub.add_argument("--families", type=lambda text: set(text.split(",")))
        if name == "cases":
            sub.add_argument("--peer", action="append", default=[], choices=["llguidance", "xgrammar"])
            continue
        sub.add_argument("-n", type=int, default=default_n)
        sub.add_argument("--seed", type=int, default=1)
        sub.add_argument("--member-order", default="any", choices=["any", "declared"])
    options = parser.parse_args()
    run_command = {"cases": cases_command, "walks": walks_command, "differ": differ_command}[options.command]
    sys.exit(1 if run_command(options) else 0)


if __name__ == "__main__":
    main()
