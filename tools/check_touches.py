#!/usr/bin/env python3
"""Checks the table "a new ... touches" of docs/design.md section 3 by the examples of docs/add-a-thing.md.

Every example is applied to a copy of the sources: blocks behind <!-- new: FILE --> are new files, blocks behind
<!-- row: FILE, after: LINE --> (or before: LINE) go beside the one line of the file that begins so. Then the files that it
touches must be those that its row of the table names, and compile without a warning. With --build DIR, a build of the same
tree, the additions must also work: a drafter drafts, an endpoint answers, and so on.
Usage: check_touches.py [--build DIR] [EXAMPLE...]      Exit code 1 and the violations.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DESIGN, EXAMPLES = ROOT / "docs/design.md", ROOT / "docs/add-a-thing.md"
COMPILE = ["c++", "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-fopenmp-simd",
           "-Werror"]
LIBRARIES = ["-lspdlog", "-lfmt", "-lcrypto", "-lpthread"]


class Violation(Exception):
    pass


def examples():
    """Returns {name: [(kind, file, where, line, code)]} in the order of the page."""
    found = {}
    for section in re.split(r"^## ", EXAMPLES.read_text(), flags=re.M)[1:]:
        name = section.split("\n", 1)[0].strip().lower()
        blocks = re.findall(r"^<!-- (new|row): ([^,\s]+)(?:, (after|before): (.*?))? -->\n```\w+\n(.*?)^```$", section, re.M | re.S)
        if len(blocks) != section.count("\n```") // 2:
            raise Violation(f"{EXAMPLES.name}, {name}: a code block that does not say where it goes")
        found[name] = blocks
    return found


def table():
    """Returns {name: ([patterns of new files or folders], [files that get a row])} for the table's rows with an example."""
    rows = {}
    for name, anchor, written, listed in re.findall(
            r"^\| \[([\w -]+)\]\(add-a-thing\.md#([\w-]+)\) \|([^|]*)\|([^|]*)\|", DESIGN.read_text(), re.M):
        if anchor != name.replace(" ", "-"):
            raise Violation(f"{DESIGN.name}, {name}: its link goes to #{anchor}")
        places = re.findall(r"`([\w/]*/<\w+>[\w./]*)`", written)
        files = [file if file.startswith(("include/", "python/")) else f"src/{file}" for file in re.findall(r"`([^`]+)`", listed)]
        rows[name] = ([re.sub(r"<\w+>", r"\\w+", f"src/{place}") for place in places], files)
    return rows


def with_row(text, where, line, code, file):
    lines = text.splitlines(keepends=True)
    at = [i for i, candidate in enumerate(lines) if candidate.strip().startswith(line)]
    if len(at) != 1:
        raise Violation(f"{file}: {len(at)} lines begin with '{line}', expected one")
    place = at[0] + (where == "after")
    return "".join(lines[:place] + [code] + lines[place:])


def apply(blocks, tree):
    """Returns (new files, changed files)."""
    new, changed = [], []
    for kind, file, where, line, code in blocks:
        path = tree / file
        if kind == "row":
            path.write_text(with_row(path.read_text(), where, line, code, file))
            changed += [file] if file not in changed else []
            continue
        if path.exists():
            raise Violation(f"{file}: exists already")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        new.append(file)
    return new, changed


def check_row(row, new, changed):
    places, listed = row
    if sorted(changed) != sorted(listed):
        raise Violation(f"the example changes {', '.join(changed)}; the table names {', '.join(listed)}")
    def of(place):
        return [file for file in new if re.match(place, file)]
    if new and not places:
        raise Violation(f"the example writes {', '.join(new)}; the table names no new file")
    one_each = all(len(of(place)) == 1 or (of(place) and place.endswith("/")) for place in places)
    if not one_each or sum(len(of(place)) for place in places) != len(new):
        raise Violation(f"the example writes {', '.join(new)}; the table says {', '.join(places)}")


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Violation(f"{shlex.join(map(str, command))[:300]}\n{done.stdout[-1000:]}{done.stderr[:3000]}")
    return done.stdout


def headers_of(tree):
    return ["-I", str(tree / "src"), "-I", str(tree / "include")]


def compile_all(tree, files, flags):
    """Compiles the .cc files and returns their objects."""
    objects = []
    for file in files:
        if file.endswith(".h"):
            run(COMPILE + [*headers_of(tree), "-fsyntax-only", "-x", "c++", "-include", str(tree / file), "/dev/null"])
        elif file.endswith(".cc"):
            objects.append(str(tree / (file.replace("/", "_") + ".o")))
            run(COMPILE + [*flags.get(file, []), *headers_of(tree), "-c", str(tree / file), "-o", objects[-1]])
    return objects


def flags_of_new_files(tree, new):
    """Returns {file: its compile options} for new files of kernels and backends, which CMake finds by globbing."""
    for part in ("CMakeLists.txt", "cmake"):
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tree / part)
    run(["cmake", "-S", tree, "-B", tree / "build", "-DPENSTOCK_KERNELS_ONLY=ON", "-DPENSTOCK_TESTS=OFF", "-DPENSTOCK_UNITY=OFF"])
    commands = {command["file"]: command["command"].split() for command in json.loads((tree / "build/compile_commands.json").read_text())}
    for file in new:
        if file.endswith(".cc") and str(tree / file) not in commands:
            raise Violation(f"{file}: CMake does not compile it")
    return {file: [flag for flag in commands[str(tree / file)] if flag.startswith("-m")] for file in new if file.endswith(".cc")}


# --- Tests of the additions. Objects are linked before the build's libraries, so that their symbols take precedence. ---


def layers(build, *names):
    return [str(build / f"src/libpenstock_{name}.a") for name in names]


def run_main(tree, code, folder, links):
    """Runs a main() linked with a whole layer, whose structs the example changes."""
    main = tree / "main.cc"
    sources = sorted((tree / folder).glob("*.cc"))
    main.write_text("".join(f'#include "{file}"\n' for file in sources) + code)
    run(COMPILE + [*headers_of(tree), str(main), "-o", str(tree / "main"), *links, *LIBRARIES])
    run([str(tree / "main")])


def prove_quantized_type(tree, objects, build):
    compile_all(tree, ["src/kernels/scalar/gemm.cc", "src/kernels/pack/panel_pack.cc"], {})
    run_main(tree, r"""
#include <cmath>
int main() {
  using namespace penstock;
  const QuantTypeInfo* type = find_quant_type("Q3_0");
  float in[64], out[64], error = 0, norm = 0;
  std::byte bytes[2 * 14];
  for (int i = 0; i < 64; ++i) in[i] = std::sin(static_cast<float>(i));
  if (type == nullptr || quant_bytes(type->type, 64) != sizeof bytes || !can_quantize(type->type)) return 1;
  quantize_row(type->type, in, bytes, 64);
  dequantize_row(type->type, bytes, out, 64);
  for (int i = 0; i < 64; ++i) error += (in[i] - out[i]) * (in[i] - out[i]), norm += in[i] * in[i];
  return error > 0 && error < 0.04f * norm ? 0 : 2;
}
""", "src/quant", layers(build, "base"))


def prove_sampler_step(tree, objects, build):
    run_main(tree, r"""
int main() {
  using namespace penstock;
  SamplingParams params;
  params.epsilon_cutoff = 2;
  if (validate(params, 4)) return 1;  // out of its range
  params.epsilon_cutoff = 0.1f;
  if (!validate(params, 4)) return 2;
  Sampler sampler;
  std::vector<TokenLogprob> none;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const auto spec = SamplingSpec::make(params, {}, seed, 4);
    SamplerState state(spec, 0, {}, 1);
    float logits[] = {3, 2.9f, 0.7f, 0};  // 0.48, 0.44, 0.05, 0.02
    if (sampler.sample({state, {}, 0}, logits, none).token > 1) return 3;
  }
  return 0;
}
""", "src/sampling", layers(build, "kernels", "quant", "base"))


def prove_instruction_set(tree, objects, build):
    tests = (build / "tests/CMakeFiles/tests_kernels.dir").rglob("*.o")
    links = layers(build, "kernels", "quant", "base") + ["-lgmock", "-lgtest", "-lgtest_main", *LIBRARIES]
    run(["c++", *objects, *map(str, tests), "-Wl,--allow-multiple-definition", *links, "-o", str(tree / "tests")])
    said = run([str(tree / "tests"), "--gtest_filter=*sse41*"])
    if "[  PASSED  ]" not in said or "[       OK ]" not in said:
        raise Violation(f"no test has run\n{said}")


def prove_in_program(objects, build):
    """Links the program with the objects and checks what they add."""
    links = re.search(r"^build penstock(?: |:).*?^  LINK_LIBRARIES = (.*?)$", (build / "build.ninja").read_text(), re.M | re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        penstock = str(pathlib.Path(folder, "penstock"))
        run(["c++", "-Wl,--allow-multiple-definition,-s", *objects, str(build / "src/CMakeFiles/penstock.dir/cli/main.cc.o"),
             *links.split(), "-o", penstock], cwd=build)
        model = str(ROOT / "models/penstock-stories-1m-q8_0.gguf")
        generate = [penstock, "generate", "-m", model, "-p", "Once upon a time", "-n", "40", "--temperature", "0", "--batch-invariant",
                    "--no-echo", "--quiet"]
        plain = run(generate)
        for flags in (["--spec", "repeat", "--spec-length", "3"], ["--backend", "single"], ["--policy", "shortest"]):
            if run([*generate, *flags]) != plain or not plain.strip():
                raise Violation(f"{shlex.join(flags)} generates another text than without")
        if run([penstock, "hello", "you"]) != "hello, you\n":
            raise Violation("penstock hello does not greet")
        prove_endpoint(penstock, model)


def prove_endpoint(penstock, model):
    os.environ["PENSTOCK"] = penstock
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    from live_server import Server
    with Server(model=model) as server:
        reply = server.post("/count", {"text": "Once upon a time"})
        refused = server.post("/count", {"text": "Once upon a time", "Text": 1})
        if reply.status != 200 or not reply.json()["count"] > 0 or refused.status != 400:
            raise Violation(f"/count: {reply.status} {reply.body}, {refused.status}")


PROOFS = {"quantized type": prove_quantized_type, "instruction set": prove_instruction_set, "sampler step": prove_sampler_step}
IN_PROGRAM = ("backend", "drafter", "scheduling policy", "endpoint", "command")


def check(name, blocks, row, build, tree):
    """Checks one example and returns the objects of the touched files."""
    for part in ("src", "include", "python"):
        shutil.copytree(ROOT / part, tree / part)
    new, changed = apply(blocks, tree)
    check_row(row, new, changed)
    flags = flags_of_new_files(tree, new) if name in ("instruction set", "backend") else {}
    objects = compile_all(tree, new + changed, flags)
    if build is not None and name in PROOFS:
        PROOFS[name](tree, objects, build)
    return objects


def check_all(names, build):
    """Yields the violations of all examples."""
    rows, pages = table(), examples()
    if sorted(rows) != sorted(pages):
        raise Violation(f"{DESIGN.name} links to {sorted(rows)}; {EXAMPLES.name} has {sorted(pages)}")
    names, objects = names or list(pages), []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = {name: pool.submit(check, name, pages[name], rows[name], build, pathlib.Path(folder, name.replace(" ", "_"))) for name in names}
        for name, done in checks.items():
            try:
                objects += done.result() if name in IN_PROGRAM else []
                done.result()
            except Violation as violation:
                yield f"{name}: {violation}"
                build = None
        if build is not None and set(IN_PROGRAM) <= set(names):
            prove_in_program(objects, build)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("examples", nargs="*")
    args = parser.parse_args()
    violations = []
    try:
        violations += check_all(args.examples, args.build and args.build.resolve())
    except Violation as violation:
        violations.append(str(violation))
    print("\n".join(violations) if violations else "touches: ok")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
