#!/usr/bin/env python3
"""Writes docs/performance.md and its plots (docs/images/performance-*.svg), docs/measurements.md, and README's table of speed
from bench/results/*.json.

Usage: make_performance.py [--check]      --check: writes nothing; exit code 1 if one of them is not what the files give.

Names of files: KIND-MACHINE-…json. MACHINE is a key of MACHINES; kinds are
  cpu, ready   what bench/peers/compare.py and ready.py give: rows of a test, of Penstock and its peers
  load         bench/serving.py: rows of a load, a model and a way to batch
  table        any other measurement: topic (a key of TOPICS), title, columns, rows; for docs/measurements.md
  cuda         what scripts/visit_cuda gives of a GPU
All others are left alone. bench/results/README.md has the schema.
"""
import json
import re
import statistics
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINES = {  # in the page's order
    "zen5": "AMD EPYC, Zen 5", "zen4": "AMD EPYC, Zen 4", "zen3": "AMD EPYC, Zen 3", "amx": "Intel Xeon with AMX",
    "avx512": "Intel Xeon without AMX", "avxvnni": "AVX-VNNI, as laptops have it", "h200": "NVIDIA H200", "cpu": "On any processor",
}
TOPICS = {  # in the order of docs/measurements.md
    "speculation": "What does speculation bring?", "ranks": "What do several processes bring?",
    "offload": "How fast are experts that lie in a file?", "cache": "What do narrow caches cost, and what does a cache on disk bring?",
    "long": "How fast are long contexts?", "sparse": "What does sparse attention bring?", "quantization": "What does quantizing cost?", "adapters": "What do adapters cost?",
    "vectors": "How fast are vectors?", "pictures": "How fast are pictures?", "tokenizers": "How fast are tokenizers?", "python": "What does Python cost?",
}
PEERS = {"llama_cpp": "llama.cpp", "ik": "ik_llama.cpp", "openvino": "OpenVINO GenAI", "vllm": "vLLM"}
COLOURS = {"llama_cpp": "#3d85c6", "ik": "#c07f16", "openvino": "#8466c4", "vllm": "#3a9a68"}
GREY = "#7b828b"  # text that is read on white and on black
README_BEGIN, README_END = "<!-- speeds: tools/make_performance.py -->", "<!-- end of speeds -->"
TYPES = ["bf16", "q8_0", "q4_k_m", "q4_0", "w8a8", "mxfp4"]
COLUMNS = ["prefill 128", "prefill 512", "prefill 2048", "decode", "decode at 1024", "decode at 4096", "8 sequences", "16 sequences",
           "64 sequences", "first token, s", "memory, MiB"]
LOWER_IS_BETTER = ("load", "peak", "ready", "first token")
TOP = {"cpu", "threads", "date", "peers", "command", "rows"}
MAY = {"build", "note", "turns"}
OF_KIND = {"cpu": set(), "ready": set(), "load": set(), "table": {"topic", "title", "columns"}}
LOAD = {"model": str, "load": str, "program": str, "output_tokens_per_s": float, "ttft_p50_s": float, "ttft_p99_s": float,
        "between_p50_ms": float, "between_p99_ms": float}


class Bad(Exception):
    """A file that is not of the schema: which one, where, what was expected, what it has."""


def expect(holds, file, where, expected, got):
    if not holds:
        raise Bad(f"{file}: {where}: expected {expected}, got {json.dumps(got, ensure_ascii=False)[:80]}")


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def check_test_row(file, where, row, peers):
    known = {"shape", "type", "test", "pairs", "penstock", *PEERS, *(f"{peer}_ratio" for peer in PEERS)}
    expect(set(row) <= known, file, where, f"keys of {sorted(known)}", sorted(set(row) - known))
    for key in ("shape", "type", "test"):
        expect(isinstance(row.get(key), str) and row[key], file, f"{where}.{key}", "a string", row.get(key))
    expect(isinstance(row.get("pairs"), int) and row["pairs"] > 0, file, f"{where}.pairs", "a count", row.get("pairs"))
    expect("penstock" in row, file, where, "penstock", sorted(row))
    for key in ("penstock", *PEERS):
        values = row.get(key, 1)
        expect(all(map(number, values)) and values if isinstance(values, list) else number(values), file, f"{where}.{key}",
               "a number above 0 or a list of these", values)
        expect(key == "penstock" or key not in row or key in peers, file, f"{where}.{key}", "a peer whose version is in peers", sorted(peers))


def check(file, kind, data):
    """Refuses a file that is not of its kind's schema."""
    need = TOP | OF_KIND[kind]
    expect(isinstance(data, dict) and need <= set(data), file, "file", f"keys {sorted(need)}", sorted(data) if isinstance(data, dict) else data)
    expect(set(data) <= need | MAY, file, "file", f"no other keys than these and {sorted(MAY)}", sorted(set(data) - need - MAY))
    expect(data["date"] is None or re.match(r"20\d\d-\d\d-\d\d", str(data["date"])), file, "date", "YYYY-MM-DD or null", data["date"])
    expect(isinstance(data["command"], (str, list)) and data["command"], file, "command", "a command or a list of them", data["command"])
    expect(set(data["peers"]) <= set(PEERS), file, "peers", f"some of {sorted(PEERS)}", data["peers"])
    expect(isinstance(data["rows"], list) and data["rows"], file, "rows", "a list", data["rows"])
    expect(kind != "table" or data["topic"] in TOPICS, file, "topic", f"one of {list(TOPICS)}", data.get("topic"))
    for i, row in enumerate(data["rows"]):
        where = f"rows[{i}]"
        if kind == "load":
            expect(set(row) == set(LOAD), file, where, f"keys {sorted(LOAD)}", sorted(row))
            for key, of in LOAD.items():
                expect(isinstance(row[key], str) if of is str else number(row[key]), file, f"{where}.{key}", of.__name__, row[key])
        elif kind == "table":
            expect(isinstance(row, list) and len(row) == len(data["columns"]), file, where, f"{len(data['columns'])} cells", row)
        else:
            check_test_row(file, where, row, data["peers"])


def of_a_gpu(data):
    """The rows of a visit's file: those of `peers` in pairs, those of `models` of Penstock alone with early starts."""
    column = lambda test, depth: f"prefill {test.split()[1]}" if "prefill" in test else f"decode at {depth}" if depth else "decode"
    rows = []
    for model, programs in data.get("peers", {}).items():
        theirs = {(one["test"], one["depth"]): one["tokens_per_second"] for one in programs["llama.cpp"]}
        for one in programs["penstock"]:
            key = one["test"], one["depth"]
            rows.append({"model": model, "column": column(*key), "penstock": one["tokens_per_second"], "llama_cpp": theirs[key]})
    for model, result in data.get("models", {}).items():
        for one in result["model"]["decode"]:
            rate = one["tokens_per_s"]["graphs, early starts"]
            if one["sequences"] > 1:
                rows.append({"model": model, "column": f"{one['sequences']} sequences", "penstock": rate})
            elif one["depth"] == 2048:
                rows.append({"model": model, "column": "prefill 2048", "penstock": one["prefill_tokens_per_s"]})
            elif one["depth"] == 1024:
                rows.append({"model": model, "column": "decode at 1024", "penstock": rate})
    return rows


def of_a_test(row):
    """A row of compare.py or ready.py as one of the page, or None if the page has no column for it."""
    test = row["test"]
    decode = re.fullmatch(r"decode \d+(?: @ (\d+))?(?: x (\d+))?", test)
    column = (f"decode at {decode[1]}" if decode[1] else f"{decode[2]} sequences" if decode[2] else "decode") if decode else test
    column = column.replace("peak memory", "memory")
    median = lambda value: statistics.median(value) if isinstance(value, list) else value
    if column not in COLUMNS or column == "8 sequences":
        return None
    return {"model": f"{row['shape']} {row['type']}", "column": column,
            **{key: median(row[key]) for key in ("penstock", *PEERS) if key in row},
            **{f"{peer}_ratio": row[f"{peer}_ratio"] for peer in PEERS if f"{peer}_ratio" in row}}


def read(folder):
    """[(file name, kind, machine, data)] of all files of the page, the oldest first."""
    files = []
    for path in sorted(folder.glob("*.json")):
        kind, machine = (path.stem.split("-") + [""])[:2]
        try:
            data = json.loads(path.read_text())
        except ValueError as error:
            raise Bad(f"{path.name}: expected JSON, got {error}") from error
        if kind not in (*OF_KIND, "cuda"):
            continue
        expect(machine in MACHINES, path.name, "name", f"KIND-MACHINE-….json with a machine of {sorted(MACHINES)}", machine)
        if kind != "cuda":
            check(path.name, kind, data)
        files.append((path.name, kind, machine, data))
    return sorted(files, key=lambda file: (file[3].get("date") or "", file[0]))


class Machine:
    """What the files say of one machine: of every test the newest run of Penstock and, of each peer, the newest pair."""

    def __init__(self, files):
        self.files, self.ours, self.pairs = files, {}, {}
        for _, kind, _, data in files:
            rows = of_a_gpu(data) if kind == "cuda" else filter(None, map(of_a_test, data["rows"])) if kind in ("cpu", "ready") else ()
            for row in rows:
                key = row["model"], row["column"]
                self.ours[key] = row["penstock"]
                for peer in PEERS:
                    if peer in row:
                        better = row[peer] / row["penstock"] if row["column"].startswith(("first", "memory")) else row["penstock"] / row[peer]
                        self.pairs[(*key, peer)] = row["penstock"], row[peer], row.get(f"{peer}_ratio", better)

    def models(self):
        """Those of which a speed is known, the 1B shape first."""
        order = lambda model: (not model.startswith("llama-3.2-1b"), model.split()[0],
                               TYPES.index(model.split()[1]) if model.split()[1] in TYPES else len(TYPES))
        return sorted({model for model, column in self.ours if "prefill" in column or "decode" in column}, key=order)

    def columns(self):
        """Those that have a number. Of a GPU "decode at 1,024" stands for decoding, which more files have."""
        there = {column for _, column in self.ours}
        return [column for column in COLUMNS if column in there and not (column == "decode" and "decode at 1024" in there)]


def shown(value):
    """A number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spelled(column):
    return re.sub(r"\d{4,}", lambda m: f"{int(m[0]):,}", column)


def table(head, rows):
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def speeds(machine):
    columns, rows = machine.columns(), []
    for model in machine.models():
        cells = [shown(machine.ours[model, c]) if (model, c) in machine.ours else "" for c in columns]
        rows.append([f"**{model}**", "Penstock", *cells])
        for peer, name in PEERS.items():
            pairs = [machine.pairs.get((model, c, peer)) for c in columns]
            cells = []
            for column, pair in zip(columns, pairs):
                beside = f" beside {shown(pair[0])}" if pair and abs(pair[0] / machine.ours[model, column] - 1) > 0.02 else ""
                cells.append(f"{shown(pair[1])}{beside} ({pair[2]:.2f})" if pair else "")
            if any(pairs):
                rows.append(["", name, *cells])
    return table(["model", "program", *map(spelled, columns)], rows)


def bars(machine):
    """[(label, peer, ratio)] of the speeds that are plotted."""
    models = [model for model in machine.models() if model.startswith(("llama-3.2-1b", "llama-3.1-8b"))]
    return [(f"{model.split(' ')[1] if key != 'h200' else model}, {spelled(column)}", peer, machine.pairs[model, column, peer][2])
            for key in [machine.files[0][2]] for column in machine.columns() if column[0] in "pd1"
            for model in models for peer in PEERS if (model, column, peer) in machine.pairs]


def plot(title, rows):
    """Bars as multiples of each peer's speed. Colours and greys are those that stand on white and on black."""
    left, right, step, top = 230, 60, 19, 56
    width, height = 760, top + step * len(rows) + 14
    label_of = lambda i: "" if i and rows[i][0] == rows[i - 1][0] else rows[i][0]  # once for several peers
    scale = (width - left - right) / max([1.0, *(ratio for _, _, ratio in rows)])
    used = [peer for peer in PEERS if any(peer == row[1] for row in rows)]
    legend = " ".join(f'<tspan fill="{COLOURS[peer]}" font-weight="bold">{PEERS[peer]}</tspan>' for peer in used)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="sans-serif" font-size="12" fill="{GREY}"><title>{title}: speed of Penstock as a multiple of each peer\'s</title>',
             f'<text x="{left}" y="18" font-size="14">Penstock\'s speed as a multiple of that of</text><text x="{left}" y="37" font-size="13">{legend}</text>']
    for i, (_, peer, ratio) in enumerate(rows):
        y = top + i * step
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{label_of(i)}</text>'
                     f'<rect x="{left}" y="{y}" width="{ratio * scale:.1f}" height="14" rx="2" fill="{COLOURS[peer]}"/>'
                     f'<text x="{left + ratio * scale + 5:.1f}" y="{y + 12}">{ratio:.2f}</text>')
    one = left + scale
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top - 6}" y2="{height - 8}" stroke="{GREY}" stroke-dasharray="4 3"/>'
                 f'<text x="{one:.1f}" y="{top - 8}" text-anchor="middle">1</text></svg>')
    return "\n".join(parts) + "\n"


def wrapped(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def sources(files):
    """The files, and the versions of the peers in them."""
    names = [f"[{name.removesuffix('.json')}](../bench/results/{name})" for name, _, _, _ in files]
    versions = sorted({f"{PEERS[peer]} {version}" for _, _, _, data in files for peer, version in data.get("peers", {}).items()
                       if isinstance(version, str)})
    return "\n".join(["From", ",\n".join(names) + ".", *(["", wrapped(f"Peers: {'; '.join(versions)}.")] if versions else [])])


def loads(files):
    head = ["model", "load", "program", "output tokens/s", "first token p50, s", "p99, s", "between tokens p50, ms", "p99, ms"]
    peer = lambda program: program if program in (*PEERS.values(), "Penstock") else f"Penstock, {program}"
    rows = [[row["model"], row["load"], peer(row["program"]), *(shown(row[key]) for key in list(LOAD)[3:])]
            for _, kind, _, data in files if kind == "load" for row in data["rows"]]
    for _, _, _, data in files:  # what a visit to a GPU has of its server
        served = data.get("serve", {})
        rows += [[served["model"], f"{one['requests']} at once", peer(name), *(shown(one[key]) for key in (
            "output_tokens_per_s", "time_to_first_token_p50_s", "time_to_first_token_p99_s")), "", ""] for name, one in served.get("load", {}).items()]
    return table(head, rows) if rows else ""


METHOD = """<!-- generated by tools/make_performance.py -->
# How fast is it?

A table and a plot for each machine, beside other engines on the same files. `tools/make_performance.py` writes this
page from [bench/results](../bench/results/README.md), where machine, build, versions, command and date stand.

## Which machine is like mine?

- Ryzen 9000, EPYC 9005: [Zen 5](#amd-epyc-zen-5). Ryzen 7000 and 8000, EPYC 9004: [Zen 4](#amd-epyc-zen-4).
- Ryzen 5000, EPYC 7003, and any processor with AVX2 only: [Zen 3](#amd-epyc-zen-3).
- Xeon of the 4th generation and later: [AMX](#intel-xeon-with-amx); of the 3rd: [without AMX](#intel-xeon-without-amx).
- Core of the 12th generation and later, Core Ultra: [AVX-VNNI](#avx-vnni-as-laptops-have-it).
- NVIDIA Hopper: [H200](#nvidia-h200). No speed was ever taken on ARM or on another GPU.

Decoding goes by the speed of memory: tokens per second are at most its GB/s over the model's GB. A processor with twice
the memory channels decodes about twice as fast. Prompts go by cores. What speculation, ranks, narrow caches, quantizing
and other features cost and bring is in [measurements](measurements.md).

## How is it measured?

1. Weights are random, of the named shape and type; both programs read the same GGUF file.
2. Speeds are tokens per second. "Decode" is one sequence, "decode at N" the same behind N tokens, "16 sequences" all
   together.
3. The programs run in turn on the same processors, two threads on the CPUs here, with nothing else running.
4. A figure is the median of its runs; of llama.cpp the better of flash attention on and off, of ik_llama.cpp the better
   of repacked and plain weights.
5. "First token" is from the start of the process to the first token, with the file in memory. "Memory" is the peak.
6. In brackets stands how many times as good Penstock was in the same command. Where the row of Penstock is of a newer
   command, "beside" names Penstock's number of that pair.
7. A load is 48 requests of a trace of conversations with a quarter of their lengths, or 96 with an eighth, all at once.
   "Static, padded" pads each batch to its longest. The GPU's load is 128 requests of random lengths over HTTP.
8. The CPUs are virtual machines that others share. What memory gives changes from minute to minute (on the Zen 5 from
   44 to 87 GB/s), so a ratio is good to about 0.1.
9. `penstock bench -m FILE` measures your machine, and what it could do at most.
10. `bench/peers/compare.py` makes a file of `bench/results` that this page takes. How the numbers came about is in the
    notebooks of [bench/notes](../bench/notes).
"""


def section(key, files):
    """One machine's section, and its plot or None."""
    machine, heading = Machine(files), MACHINES[key]
    newest = next((file[3] for file in reversed(files) if file[1] in ("cpu", "cuda")), files[-1][3])
    parts, svg = [f"## {heading}", f"{newest.get('cpu') or newest.get('machine')}" + (f", {newest['threads']} threads." if newest.get("threads") else ".")], None
    if machine.ours:
        parts.append(speeds(machine))
    rows = bars(machine)
    if rows:
        svg = plot(heading, rows)
        parts.append(f"![{heading}: speed as a multiple of each peer's](images/performance-{key}.svg)")
    if served := loads(files):
        parts += ["Whole loads:", served]
    return "\n\n".join([*filter(None, parts), sources(files)]) + "\n", svg


MEASUREMENTS = """<!-- generated by tools/make_performance.py -->
# What do features cost and bring?

Measurements of one feature each, from [bench/results](../bench/results/README.md), where the commands stand. Speeds of
models on each machine are in [performance](performance.md).
"""


def measurements(files):
    """The page of the files of kind table, by topic."""
    cell = lambda value: "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
    parts = [MEASUREMENTS.strip()]
    for topic, question in TOPICS.items():
        own = [file for file in files if file[1] == "table" and file[3]["topic"] == topic]
        if own:
            parts.append(f"## {question}")
        for name, _, machine, data in own:
            threads = f", {data['threads']} thread{'s' if data['threads'] > 1 else ''}" if data["threads"] else ""
            said = "; ".join(filter(None, ["" if machine == "cpu" else f"{MACHINES[machine]}{threads}", data.get("note")]))
            parts += [wrapped(f"**{data['title']}**" + (f" ({said}):" if said else ":")),
                      table(data["columns"], [[cell(value) for value in row] for row in data["rows"]]), f"From [{name.removesuffix('.json')}](../bench/results/{name})."]
    return "\n\n".join(parts) + "\n"


def readme_with_speeds(text, files):
    """README with its table made anew: of five machines the newest pair with llama.cpp, in Q4_K_M."""
    rows = []
    for key, heading in MACHINES.items():
        pairs = Machine([file for file in files if file[2] == key]).pairs
        model = ("llama-3.1-8b" if key == "h200" else "llama-3.2-1b") + " q4_k_m"
        two = [pairs.get((model, column, "llama_cpp")) for column in ("prefill 512", "decode")]
        if all(two) and not key.startswith("avx"):
            rows.append([heading + (", 8B" if key == "h200" else ""), *(cell for pair in two for cell in (shown(pair[0]), f"{pair[2]:.1f} x"))])
    begin, end = text.index(README_BEGIN) + len(README_BEGIN), text.index(README_END)
    head = ["machine", "prefill of 512", "beside llama.cpp", "decode", "beside llama.cpp"]
    return f"{text[:begin]}\n\n{table(head, rows)}\n\n{text[end:]}"


def make(folder):
    """{path from the root: content} of everything that the files give."""
    files, made, text = read(folder), {}, [METHOD]
    made["README.md"] = readme_with_speeds((ROOT / "README.md").read_text(), files)
    for key in MACHINES:
        own = [file for file in files if file[2] == key and file[1] != "table"]
        if own:
            content, svg = section(key, own)
            text.append(content)
            if svg:
                made[f"docs/images/performance-{key}.svg"] = svg
    made["docs/performance.md"], made["docs/measurements.md"] = "\n".join(text), measurements(files)
    return made


def main():
    try:
        made = make(ROOT / "bench/results")
    except Bad as error:
        sys.exit(f"bench/results/{error}")
    for path, content in made.items():
        path = ROOT / path
        if "--check" not in sys.argv[1:]:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            sys.exit(f"{path.relative_to(ROOT)} is not what bench/results gives: run tools/make_performance.py")


if __name__ == "__main__":
    main()
