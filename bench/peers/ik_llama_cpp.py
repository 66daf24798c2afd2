"""Commands of ik_llama.cpp's own benchmarks for compare.py's tests, and their rates.

    CC=clang-19 CXX=clang++-19 cmake -G Ninja -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF
    cmake --build build --target llama-bench llama-batched-bench llama-server      # the folder is then build/bin

Attention is its flash attention, without which it is slower everywhere on a CPU.
"""
import json


def version(folder, model, run):
    """Revision of the build as llama-bench tells it; run(command) gives its output, seconds and memory."""
    text, _, _ = run([folder / "llama-bench", "-m", model, "-p", 1, "-n", 0, "-r", 1, "-o", "json"])
    return json.loads(text)[0]["build_commit"]


def joined(numbers):
    return ",".join(map(str, numbers))


def single(args):
    """Arguments of llama-bench for prompts and for one sequence's decoding, or none where nothing of these is wanted."""
    deep = [part for depth in args.depths if depth > 0 for part in ("-gp", f"{depth},{args.decode}")]
    prefill = [n for n in args.prefill if n > 0]
    decode = [args.decode] if 0 in args.depths else []
    if 1 not in args.batches:
        deep, decode = [], []
    if not (prefill or deep or decode):
        return []
    return ["-p", joined(prefill or [0]), "-n", joined(decode or [0]), *deep]


def single_rates(text):
    """Tokens per second by test, named as ours: pp512, tg48 and tg48@pp4096 are its names."""
    rates = {}
    for row in json.loads(text[text.index("[\n"):text.rindex("]") + 1]):  # log lines stand around it
        prompt, generated = row["n_prompt"], row["n_gen"]
        name = f"prefill {prompt}" if generated == 0 else f"decode {generated}" + (f" @ {prompt}" if prompt else "")
        rates[name] = row["avg_ts"]
    return rates


def several_rates(depth):
    """Reader of llama-batched-bench's table: | PP | TG | B | N_KV | T_PP | S_PP | T_TG | S_TG | T | S |"""
    def read(text):
        rates = {}
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if len(cells) == 10 and cells[0].isdigit():
                rates[f"decode {cells[1]}" + (f" @ {depth}" if depth else "") + f" x {cells[2]}"] = float(cells[7])
        return rates
    return read


def tests(args, model, repack):
    """(command, reader of its output) for each program that the wanted tests need; repack: 1 = weights repacked at the start."""
    common = ["-m", model, "-t", args.threads, "-fa", 1]
    if options := single(args):
        yield [args.ik_folder / "llama-bench", *common, "-rtr", repack, "-r", 1, "-o", "json", *options], single_rates
    several = [n for n in args.batches if n > 1]
    for depth in args.depths if several else []:
        prompt = max(depth, 1)
        room = max(several) * (prompt + args.decode)
        yield ([args.ik_folder / "llama-batched-bench", *common, *(["-rtr"] if repack else []), "-c", room, "-b", 2048, "-ub", 512,
                "-npp", prompt, "-ntg", args.decode, "-npl", joined(several)], several_rates(depth))
