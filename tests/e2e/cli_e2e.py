#!/usr/bin/env python3
"""Drives the built program as a user would. PENSTOCK is its path, PENSTOCK_SOURCE the source tree."""
import base64
import json
import math
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = os.environ["PENSTOCK"]
MODELS = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "models"
SENTENCES = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "tests" / "golden" / "sentences"
GIB = 1 << 30


def penstock(*args, stdin=b"", env=None, timeout=120):
    """(exit code, stdout bytes, stderr text)"""
    done = subprocess.run([PROGRAM, *map(str, args)], input=stdin, capture_output=True, timeout=timeout,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def penstock_json(*args, **kwargs):
    code, out, err = penstock(*args, **kwargs)
    assert code == 0, f"{args}: exit {code}: {err}"
    return json.loads(out)


class Usage(unittest.TestCase):
    def test_version_needs_no_model(self):
        code, out, _ = penstock("--version", env={"PENSTOCK_MODELS": "/nonexistent"})
        self.assertEqual(code, 0)
        self.assertRegex(out.decode(), r"^penstock \d+\.\d+\.\d+\n$")

    def test_every_command_has_help(self):
        code, out, _ = penstock("--help")
        self.assertEqual(code, 0)
        commands = re.findall(r"^  ([a-z]+) {2,}\S", out.decode().split("Subcommands:")[1], re.M)
        self.assertGreaterEqual(set(commands), {"run", "generate", "tokenize", "render", "inspect", "plan", "score",
                                                "perplexity", "bench"})
        for command in commands:
            code, out, _ = penstock(command, "--help")
            self.assertEqual((command, code), (command, 0))
            self.assertIn("--help", out.decode())

    def test_doctor_says_what_is_there(self):
        said = penstock_json("doctor", "--json")
        topics = {found["topic"]: found["text"] for found in said["findings"]}
        allowed, there = map(int, re.search(r", (\d+) of (\d+) CPUs$", topics["processor"]).groups())
        self.assertEqual(there, os.cpu_count())
        self.assertLessEqual(allowed, len(os.sched_getaffinity(0)))  # a control group may grant less
        self.assertRegex(topics["kernels"], r"^cpu/\w+: [1-9]\d* GB/s read, ")
        self.assertGreater(said["read_bytes_per_second"], 1e8)
        self.assertLess(0, said["memory_bytes"] / GIB)
        self.assertLess(said["memory_bytes"], os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        modes = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
        if modes.exists():
            self.assertIn(re.search(r"\[(\w+)\]", modes.read_text()).group(1), topics["huge pages"])
        text = penstock("doctor", env={"HF_HUB_CACHE": "/proc/none"})[1].decode()
        self.assertIn("-> /proc cannot be written: HF_HUB_CACHE names another folder" if os.getuid() else "/proc/none", text)
        limited = subprocess.run(["bash", "-c", "ulimit -n 300; exec \"$0\" doctor", PROGRAM], capture_output=True, text=True)
        self.assertRegex(limited.stdout, r"open files +300, at most 300\n +-> .*ulimit -n 4096")

    def test_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(penstock("cache", "list", folder)[0], 3)
            self.assertEqual(penstock("generate", "-p", "Once upon a time " * 8, "-n", 40, "--kv-store", folder)[0], 0)
            files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
            [model] = [json.loads(line) for line in penstock("cache", "list", folder, "--json")[1].splitlines()]
            self.assertEqual(model["blocks"], len(files))
            self.assertGreater(model["blocks"], 0)
            self.assertIn(model["model"], penstock("cache", "list", folder)[1].decode())
            self.assertIn(b": 0 damaged", penstock("cache", "verify", folder)[1])
            files[0].write_bytes(files[0].read_bytes()[:-1])
            code, out, _ = penstock("cache", "verify", folder)
            self.assertEqual((code, out.count(str(files[0]).encode())), (4, 1), out)
            self.assertEqual(penstock("cache", "verify", folder, "--remove")[0], 0)
            self.assertFalse(files[0].exists())
            # Six descriptors: those of the program and of the folders, none is left for a block.
            few = subprocess.run(["bash", "-c", "ulimit -n 6; exec \"$@\"", "bash", PROGRAM, "cache", "verify", folder, "--remove"],
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual(few.returncode, 1, few)
            self.assertIn(f"{len(files) - 1} could not be read", few.stdout)
            self.assertTrue(all(path.exists() for path in files[1:]))
            self.assertEqual(penstock("cache", "prune", folder, "--size", "much")[0], 2)
            self.assertIn(b"0 B left", penstock("cache", "prune", folder, "--size", 0)[1])
            self.assertEqual(penstock("cache", "list", folder, "--json")[1], b"")

    def test_completion(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "penstock.bash"
            script.write_bytes(penstock("completion", "bash")[1])
            (pathlib.Path(folder) / "model.gguf").touch()

            def completed(*words):
                program = 'source penstock.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _penstock; printf "%s\\n" "${COMPREPLY[@]}"'
                return subprocess.run(["bash", "-c", program, "bash", "penstock", *words], cwd=folder, capture_output=True, text=True,
                                      check=True).stdout.split()

            self.assertEqual(completed("se"), ["serve"])
            self.assertEqual(completed("keys", "re"), ["revoke"])
            self.assertEqual(completed("keys", "add", "--na"), ["--name"])
            self.assertEqual(completed("plan", "--kv-cache-dtype", "f"), ["f32", "f16", "fp8"])
            self.assertEqual(completed("serve", "-m", "mo"), ["model.gguf"])
            self.assertEqual(completed("--config", "x.toml", "pla"), ["plan"])
            self.assertEqual(completed("ra"), [], "the command for child processes is no user's")
            fish = penstock("completion", "fish")[1].decode()
            self.assertRegex(fish, r"(?m)^complete -c penstock -n '__penstock_is /plan/' -l kv-cache-dtype -r -f -a 'f32 f16 ")
            zsh = penstock("completion", "zsh")[1].decode()
            self.assertNotIn("local path", zsh, "zsh ties path to PATH")
            self.assertIn("'/plan --kv-cache-dtype') compadd -- f32 f16", zsh)
        page = penstock("completion", "man")[1].decode()
        self.assertTrue(page.startswith(".TH PENSTOCK 1 "))
        self.assertIn('.SH "keys add"\nmake a key', page)
        self.assertIn("\n.TP\n.B \\-m, \\-\\-model", page)
        self.assertEqual(penstock("completion", "csh")[0], 2)
        api = json.loads(penstock("completion", "openapi")[1])
        self.assertEqual(api["openapi"], "3.1.0")
        self.assertIn("messages", api["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"])

    def test_pull_without_a_name_suggests_models_that_fit(self):
        fitting = penstock_json("doctor", "--json")["models"]
        names = re.findall(r"^  (\S+/\S+) +[\d.]+ [KMG]iB to download, +[\d.]+ [MG]iB in memory; ", penstock("pull")[1].decode(), re.M)
        self.assertLess(0, len(names))
        # Other processes may have taken or given back memory between the two.
        self.assertLessEqual(len(set(names) ^ set(fitting[::-1][:6])), 2)

    def test_the_story_says_what_comes_next(self):
        code, out, err = penstock()
        self.assertEqual(code, 0)
        self.assertTrue(out.startswith(b"Once upon a time"))
        for command in ("pull", "run", "serve", "doctor"):
            self.assertIn(f"\n  penstock {command} ", err)
        self.assertNotIn("penstock doctor", penstock("generate", "-n", 1)[2])

    def test_what_the_story_says_can_be_typed(self):
        _, _, err = penstock()
        lines = re.findall(r"^  penstock (\w+(?: \S+/\S+)?)  ", err, re.M)
        self.assertEqual([line.split()[0] for line in lines], ["pull", "run", "serve", "doctor"])
        self.assertIn("org/name:Q4_K_M", lines[1])
        for line in lines:
            if " " in line:
                code, _, said = penstock(*line.split(), env={"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"})
                self.assertEqual(code, 3, said)
                self.assertIn("org/name", said)
            else:
                self.assertEqual(penstock(line, "--help")[0], 0)

    def test_a_model_needs_no_flag(self):
        model = MODELS / "penstock-stories-1m-q8_0.gguf"
        arguments = ("-p", "Once upon a time", "-n", 5, "--temperature", 0)
        self.assertEqual(penstock("run", model, *arguments)[:2], penstock("run", "-m", model, *arguments)[:2])
        self.assertEqual(penstock("run", model, "-m", model)[0], 2)
        # A flag that may be repeated leaves the model behind its value alone.
        for flag in ("--api-key", "--cors-origin", "--allowed-host", "--lora-dir"):
            code, _, err = penstock("serve", flag, "k", "/no/model.gguf")
            self.assertEqual((code, "/no/model.gguf" in err), (3, True), err)

    def test_a_short_name_is_told_what_it_may_mean(self):
        for command in ("pull", "run"):
            code, _, err = penstock(command, "Qwen-3")
            self.assertNotEqual(code, 0)
            self.assertRegex(err, r"did you mean Qwen/Qwen3-\S+")
        self.assertNotIn("did you mean", penstock("pull", "no-such-model-9")[2])

    def terminal(self, *arguments, until):
        """What the program writes to a terminal, up to and with a text; then it is interrupted."""
        here, there = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=there, stdout=there, stderr=there, env={**os.environ, "NO_COLOR": "1"})
        os.close(there)
        written, end = "", time.monotonic() + 60
        try:
            while until not in written and time.monotonic() < end:
                if select.select([here], [], [], 1)[0]:
                    written += os.read(here, 65536).decode(errors="replace")
            self.assertIn(until, written)
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()
                os.close(here)
        return written

    def test_a_terminal_is_told_what_to_do(self):
        written = self.terminal("run", until="> ")
        self.assertIn("To chat: penstock run NAME", written)
        fitting = penstock("pull")[1].decode().splitlines()[1].split()[0]
        self.assertIn(fitting.split("/")[0], written)
        model = MODELS / "penstock-stories-1m-q8_0.gguf"
        self.assertNotIn("To chat", self.terminal("run", model, until="> "))
        self.assertIn("Open it in a browser", self.terminal("serve", "--port", 0, until="penstock serve NAME"))
        self.assertNotIn("penstock serve NAME", self.terminal("serve", "--port", 0, model, until="Ctrl-C ends it."))

    def test_sampling_flags_come_from_the_list(self):
        text = penstock("generate", "--help")[1].decode()
        for flag in ("--temperature", "--top-k", "--top-p", "--min-p", "--typical-p", "--repetition-penalty",
                     "--presence-penalty", "--frequency-penalty", "--dry-multiplier", "--xtc-probability", "--mirostat",
                     "--seed", "--stop", "--logit-bias", "--allowed-token-ids", "--banned-token-ids", "--bad-words",
                     "--min-tokens", "--ignore-eos", "--logprobs", "--prompt-logprobs"):
            self.assertIn(flag, text)
        self.assertIn("The built-in model writes with --temperature 1 and --min-p 0.1", text)
        self.assertIn("Exit codes", text)

    def test_choices_come_from_the_lists(self):
        text = " ".join(penstock("generate", "--help")[1].decode().split())
        for flag, choices in (("--backend", "(auto, cpu"), ("--policy", "(continuous, static, dynamic, priority"),
                              ("--spec", "(draft, ngram, early-exit, medusa, mtp, eagle3, grammar")):
            self.assertIn(choices, text, flag)
        for flag in ("--backend", "--policy", "--spec"):
            code, _, err = penstock("generate", "-p", "a", flag, "abacus")
            self.assertEqual((flag, code), (flag, 2))
            self.assertIn("abacus", err)

    def test_exit_codes(self):
        self.assertEqual(penstock("generate", "--no-such-flag")[0], 2)
        self.assertEqual(penstock("nonsense")[0], 2)
        code, out, err = penstock("generate", "-m", "/no/such/model.gguf")
        self.assertEqual((code, out), (3, b""))
        self.assertIn("/no/such/model.gguf", err)
        with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
            file.write(b"GGUF" + b"\xff" * 100)
            file.flush()
            code, _, err = penstock("generate", "-m", file.name)
            self.assertEqual(code, 4)
            self.assertIn(file.name, err)
        code, out, err = penstock("generate", "--top-p", "7", "-p", "x")
        self.assertEqual((code, out), (2, b""))
        self.assertIn("top_p", err)

    def test_lists_of_texts_do_not_take_the_model(self):
        model = MODELS / "penstock-stories-1m-q8_0.gguf"
        for args, taken in ((["--served-model-name", "a", model], f"--served-model-name has taken a and {model}"),
                            (["--port", 0, "--served-model-name=a", model, "--threads", 1], f"--served-model-name has taken a and {model}"),
                            (["--lora-modules", "a=b", f"c={model}"], f"--lora-modules has taken a=b and c={model}")):
            code, _, err = penstock("serve", *args)
            self.assertEqual(code, 2, args)
            self.assertIn(f"{taken}, and there is no MODEL", err)
        code, _, err = penstock("run", "--stop", "a", "--bad-words", "b", "/no/such/model.gguf")
        self.assertEqual(code, 3, err)
        self.assertIn("/no/such/model.gguf", err)
        code, _, err = penstock("generate", "--stop", "a", model)
        self.assertEqual(code, 2)
        self.assertIn(f"argument {model} was not expected", err)

    def test_types_are_listed_once(self):
        for args in (("generate", "-n", 1, "--quantize", "q9"), ("quantize", MODELS / "penstock-stories-1m-q8_0.gguf", "x", "--type", "q9"),
                     ("bench", "--shape", "tiny", "--type", "q9")):
            code, _, err = penstock(*args)
            self.assertEqual(code, 2, args)
            self.assertRegex(err, r"type: expected |quantize: expected ")
            self.assertTrue(err.endswith(", got 'q9'\n"), err)
            self.assertEqual(len(re.findall(r"\bq4_k,", err)), 1, err)

    def test_a_full_disk_has_a_code_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            for args in (("generate", "-n", 2, "--session", f"{folder}/session"),
                         ("keys", "add", "--name", "a", "--file", f"{folder}/keys.json"),
                         ("quantize", MODELS / "penstock-stories-1m-q8_0.gguf", f"{folder}/small.gguf", "--type", "q4_0")):
                done = subprocess.run(["bash", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "bash", PROGRAM, *map(str, args)],
                                      capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 5, f"{args}: {done.stderr}")
                self.assertIn(folder, done.stderr)

    def test_config_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[generate]  # a story of [3]\nmax-tokens = 3\ntemperature = 0.0\nprompt = "The"\njson = true\n')
            file.flush()
            self.assertEqual(penstock_json("--config", file.name, "generate")["completion_tokens"], 3)

    def test_what_is_wrong_is_named_with_what_may_have_been_meant(self):
        for args, said in ((["generat", "-p", "x"], "penstock: there is no command generat; the nearest is generate\n"),
                           (["keys", "lst"], "penstock keys: there is no command lst; the nearest is list\n"),
                           (["generate", "--temperatur", 1], "there is no option --temperatur; the nearest is --temperature\n"),
                           (["generate", "--regexp=a"], "there is no option --regexp; the nearest is --regex\n"),
                           (["generate", "--gpu-layers", 1], "penstock generate: there is no option --gpu-layers\n"),
                           (["--temperatur", 1, "generate"], "there is no option --temperatur; the nearest is --temperature\n"),
                           (["-m", "model.gguf", "generate"], "-m goes behind the command: penstock generate -m ...\n"),
                           (["tokenize", "hello"], "penstock tokenize: argument hello was not expected\nUsage: "),
                           (["quantize", "--type", "q8_0", "--", "a", "b", "-c"], "penstock quantize: argument -c was not expected\n"),
                           (["quantize"], "Usage: penstock quantize [OPTIONS] input output\n"),
                           (["generate", "-n", "many"], "--max-tokens: expected a whole number, got many\n"),
                           (["generate", "-n", 3000000000], "--max-tokens: 3000000000 is too large\n"),
                           (["generate", "-n", -3000000000], "--max-tokens: -3000000000 is too small\n"),
                           (["generate", "-n", 1, "-n", 2], "--max-tokens: given 2 times, expected once\n"),
                           (["serve", "--port", 99999], "99999 not in range 0 to 65535\n")):
            code, out, err = penstock(*args)
            self.assertEqual((code, out), (2, b""), args)
            self.assertIn(said, err)
            self.assertRegex(err, r"Run penstock.* --help for more information\.\n$")

    def test_a_config_file_that_says_nothing_is_refused(self):
        for text, said in (("[serve]\nprot = 1\n", "penstock serve has no option prot; the nearest is port\n"),
                           ("[srve]\nport = 1\n", "no command for the section [srve]; the nearest is serve\n"),
                           ("port = 1\n", "port stands in no section"),
                           ("[serve\nport = 1\n", "[serve: a section's line is [NAME], with nothing but a # comment behind it\n"),
                           ("[generate]\n[serve] port = 1\n", "--config: [serve] port: a section's line is [NAME]"),
                           ('[bench]\ndecode-tokens = "x"\n',
                            "penstock: --config: penstock bench: --decode-tokens: expected a whole number, got x\n"),
                           ("[serve]\nport = 99999\n", "penstock: --config: penstock serve: --port: Value 99999 not in range"),
                           ("[bench]\ndecode-tokens = [1, 2]\n", "penstock bench: --decode-tokens: given 2 times, expected once\n"),
                           ('[run]\nmax-tokens = "x"\n', "penstock run: --max-tokens: expected a whole number, got x\n"),
                           ('[generate]\ntemperature = "x"\n', "penstock generate: --temperature: expected a number, got x\n")):
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                code, _, err = penstock("--config", file.name, "generate", "-n", 1)
                self.assertEqual(code, 2, text)
                self.assertIn(said, err)


class Generate(unittest.TestCase):
    def test_json_object(self):
        reply = penstock_json("generate", "-p", "Once upon a time", "-n", 20, "--temperature", 0, "--json")
        self.assertLessEqual({"text", "tokens", "prompt_tokens", "completion_tokens", "finish_reason", "timings"},
                             set(reply))
        self.assertEqual(reply["completion_tokens"], 20)
        self.assertEqual(len(reply["tokens"]), 20)
        self.assertEqual(reply["finish_reason"], "length")
        self.assertFalse(reply["text"].startswith("Once upon a time"))
        self.assertRegex(reply["text"], r"^[\x20-\x7e\n]{20,}$")

    def test_stream_is_prompt_and_text(self):
        reply = penstock_json("generate", "-p", "Lily saw", "-n", 15, "--temperature", 0, "--json")
        code, out, err = penstock("generate", "-p", "Lily saw", "-n", 15, "--temperature", 0)
        self.assertEqual(code, 0)
        self.assertEqual(out.decode(), "Lily saw" + reply["text"] + "\n")
        self.assertRegex(err, r"prompt: \d+ tokens, [\d.]+ tokens/s; decode: 15 tokens, [\d.]+ tokens/s")
        self.assertNotIn("\x1b", err)

    def test_prompt_from_file_and_stdin(self):
        expected = penstock_json("generate", "-p", "A small dog", "-n", 8, "--temperature", 0, "--json")["text"]
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"A small dog")
            file.flush()
            from_file = penstock_json("generate", "-f", file.name, "-n", 8, "--temperature", 0, "--json")
        from_stdin = penstock_json("generate", "-f", "-", "-n", 8, "--temperature", 0, "--json", stdin=b"A small dog")
        self.assertEqual((from_file["text"], from_stdin["text"]), (expected, expected))

    def test_seed_repeats_and_differs(self):
        texts = [penstock_json("generate", "-p", "One day", "-n", 30, "--seed", seed, "--json")["text"]
                 for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_stop_string_is_cut(self):
        full = penstock_json("generate", "-p", "Once upon a time", "-n", 40, "--temperature", 0, "--json")["text"]
        word = full.split()[5]
        reply = penstock_json("generate", "-p", "Once upon a time", "-n", 40, "--temperature", 0, "--json", "--stop", word)
        self.assertEqual(reply["text"], full[:full.index(word)])
        self.assertEqual(reply["finish_reason"], "stop")

    def test_n_samples(self):
        reply = penstock_json("generate", "-p", "One day", "-n", 10, "--num-sequences", 3, "--seed", 5, "--json")
        self.assertEqual(len(reply["more"]), 2)

    def test_prompt_longer_than_context(self):
        code, _, err = penstock("generate", "-p", "word " * 3000, "-n", 5)
        self.assertEqual(code, 2)
        self.assertRegex(err, r"\d{4}")  # names both numbers


class PackedCache(unittest.TestCase):
    """Packed weights on disk: whatever lies in the folder, the text is the same."""

    def generate(self, *args, env=None):
        code, out, err = penstock("generate", "-p", "Once upon a time", "-n", 12, "--temp", 0, *args,
                                  env={"PENSTOCK_LOG": "info", **(env or {})})
        self.assertEqual(code, 0, err)
        return out, err

    def test_second_start_packs_nothing(self):
        plain, _ = self.generate("--packed-cache", "off")
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "not" / "yet"
            out, err = self.generate("--packed-cache", cache)
            self.assertEqual(out, plain)
            self.assertIn("packed weights are in", err)
            file, = cache.iterdir()
            made = file.stat()
            out, err = self.generate(env={"PENSTOCK_PACKED_CACHE": str(cache)})
            self.assertEqual(out, plain)
            self.assertIn("packed weights are mapped", err)
            self.assertEqual(file.stat().st_ino, made.st_ino)  # not made anew
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
            out, err = self.generate("--packed-cache", cache)
            self.assertEqual(out, plain)
            self.assertIn("a checksum does not hold", err)
            self.assertEqual(len(list(cache.iterdir())), 1)
            self.assertIn("packed weights are mapped", self.generate("--packed-cache", cache)[1])

    def test_starts_at_once_and_a_killed_one(self):
        plain, _ = self.generate()
        with tempfile.TemporaryDirectory() as folder:
            command = [PROGRAM, "generate", "-p", "Once upon a time", "-n", "12", "--temp", "0", "--packed-cache", folder]
            (pathlib.Path(folder) / "m.packed.aaaaaa.part").write_bytes(b"cut off")  # as of a writer that was killed
            starts = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
            for start in starts:
                out, err = start.communicate(timeout=120)
                self.assertEqual((start.returncode, out), (0, plain), err)
            file, = pathlib.Path(folder).iterdir()
            self.assertEqual(file.suffix, ".packed")
            self.assertIn("packed weights are mapped", self.generate("--packed-cache", folder)[1])

    def test_on_means_the_users_cache_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            self.generate("--packed-cache", "on", env={"XDG_CACHE_HOME": folder})
            self.assertEqual(len(list((pathlib.Path(folder) / "penstock").iterdir())), 1)

    def test_a_folder_that_cannot_be_written(self):
        with tempfile.NamedTemporaryFile() as file:
            out, err = self.generate("--packed-cache", pathlib.Path(file.name) / "cache")
            self.assertEqual(out, self.generate()[0])
            self.assertIn("packed weights are not kept", err)


class Tools(unittest.TestCase):
    def test_tokenize_round_trip(self):
        text = "Once upon a time, there was a café — naïve 🐦!\n\n  two spaces"
        reply = penstock_json("tokenize", "-p", text, "--no-bos", "--json")
        self.assertEqual(len(reply["tokens"]), len(reply["pieces"]))
        with_bos = penstock_json("tokenize", "-p", text, "--json")["tokens"]
        self.assertEqual(with_bos[1:], reply["tokens"])
        code, out, _ = penstock("tokenize", "--decode", "-p", " ".join(map(str, reply["tokens"])))
        self.assertEqual((code, out.decode().rstrip("\n")), (0, text))

    def test_tokenize_takes_bytes_as_they_are(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"a\r\n\tb\n")
            file.flush()
            reply = penstock_json("tokenize", "-f", file.name, "--no-bos", "--json")
        self.assertEqual(reply["tokens"], penstock_json("tokenize", "-p", "a\r\n\tb\n", "--no-bos", "--json")["tokens"])

    def test_a_tokenizer_that_was_not_fetched(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("tokenizer.json", "tokenizer.model"):
                path = pathlib.Path(folder) / name
                path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
                code, _, err = penstock("tokenize", "-m", path, "-p", "a")
                self.assertEqual(code, 4, err)
                self.assertIn(f"{path}: a pointer of Git LFS", err)
                path.write_text("{")
                self.assertIn(f"{path}: ", penstock("tokenize", "-m", path, "-p", "a")[2])

    def test_render(self):
        with tempfile.TemporaryDirectory() as folder:
            template = pathlib.Path(folder) / "t.jinja"
            context = pathlib.Path(folder) / "c.json"
            template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ strftime_now('%Y') }}")
            context.write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
            code, out, _ = penstock("render", "--template", template, "--context", context, "--now", "2026-01-02T03:04:05")
            self.assertEqual((code, out), (0, b"<user>hi2026"))
            template.write_text("{{ raise_exception('roles must alternate') }}")
            code, out, err = penstock("render", "--template", template, "--context", context)
            self.assertNotEqual(code, 0)
            self.assertEqual(out, b"")
            self.assertIn("roles must alternate", err)

    def test_embed(self):
        golden = SENTENCES / "cls_with_prompts"
        rows = [row for row in json.loads((golden / "golden.json").read_text()) if row["prompt_name"] == "document"][:2]
        flags = [flag for row in rows for flag in ("-p", row["text"])]
        vectors = penstock_json("embed", "-m", str(golden), "--prompt-name", "document", "--json", *flags)["embeddings"]
        for vector, row in zip(vectors, rows, strict=True):
            self.assertLess(max(abs(a - b) for a, b in zip(vector, row["embedding"], strict=True)), 1e-5)
        ids = penstock_json("tokenize", "-m", str(golden), "-p", "find: the cat", "--json")["tokens"]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(" ".join(map(str, ids)) + "\n" + json.dumps(ids[:2]) + "\n")
            file.flush()
            of_ids = penstock_json("embed", "-m", str(golden), "--ids", file.name, "--json")["embeddings"]
        self.assertEqual(len(of_ids), 2)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(json.dumps([ids, 3]))
            file.flush()
            code, _, err = penstock("embed", "-m", str(golden), "--ids", file.name)
            self.assertEqual(code, 2)
            self.assertIn("entry 1: expected a list", err)
        of_text = penstock_json("embed", "-m", str(golden), "-p", "the cat", "--json")["embeddings"][0]
        self.assertLess(max(abs(a - b) for a, b in zip(of_ids[0], of_text, strict=True)), 1e-6)
        code, out, _ = penstock("embed", "-m", str(golden), "-p", "the cat", "--dimensions", "3")
        self.assertEqual((code, len(out.split())), (0, 3))
        for bad, message in ((["-p", "the " * 60], "expected at most 32 tokens"), (["--ids", "/dev/null"], "at least one line"),
                             (["-p", "a", "--prompt-name", "x"], "document, query")):
            code, _, err = penstock("embed", "-m", str(golden), *bad)
            self.assertEqual(code, 2)
            self.assertIn(message, err)
        code, _, err = penstock("generate", "-m", str(golden), "-p", "a")
        self.assertEqual(code, 4)
        self.assertIn("penstock embed", err)

    def test_score(self):
        ids = penstock_json("tokenize", "-p", "Once upon a time there was a dog.", "--json")["tokens"]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("\n".join(map(str, ids)))
            file.flush()
            scores = penstock_json("score", "--ids", file.name, "--json")
        self.assertEqual(scores["tokens"], ids)
        self.assertIsNone(scores["logprobs"][0])
        values = scores["logprobs"][1:]
        self.assertTrue(all(value <= 0 for value in values))
        self.assertAlmostEqual(scores["perplexity"], math.exp(-sum(values) / len(values)), places=3)

    def test_perplexity_of_sense_and_nonsense(self):
        story = b"Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
        with tempfile.NamedTemporaryFile() as file:
            file.write(story * 6)
            file.flush()
            sense = penstock_json("perplexity", "-f", file.name, "--json", "--window", 64)
            overlapping = penstock_json("perplexity", "-f", file.name, "--json", "--window", 64, "--stride", 32)
        nonsense = penstock_json("perplexity", "-f", "-", "--json", "--window", 64,
                                 stdin=b"zx qv jjw kpt bnm xcv plo qaz wsx edc rfv tgb yhn ujm " * 6)
        self.assertLess(sense["perplexity"], 20)
        self.assertGreater(nonsense["perplexity"], 50)
        self.assertGreater(sense["perplexity_error"], 0)
        self.assertLess(overlapping["perplexity"], sense["perplexity"])
        self.assertEqual(overlapping["tokens"], sense["tokens"])

    def test_plan_reproduces_known_numbers(self):
        for shape, tokens, gib in (("llama-2-7b", 4096, 2.0), ("llama-3-8b", 128000, 15.625), ("llama-2-70b", 4096, 1.25)):
            plan = penstock_json("plan", "--shape", shape, "--tokens", tokens, "--kv-cache-dtype", "f16", "--json")
            self.assertAlmostEqual(plan["kv_bytes_per_sequence"] / GIB, gib, places=3, msg=shape)
        self.assertIn("2.00 GiB", penstock("plan", "--shape", "llama-2-7b", "-c", 4096)[1].decode())

    def test_plan_counts_states(self):
        f32, bf16 = (penstock_json("plan", "--shape", "granite-4-tiny", "--mamba-ssm-cache-dtype", type, "--tokens", 1024, "--json")
                     for type in ("float32", "bfloat16"))
        self.assertEqual(f32["state_bytes_per_sequence"], 2 * bf16["state_bytes_per_sequence"])
        self.assertEqual(f32["kv_bytes_per_sequence"] - bf16["kv_bytes_per_sequence"], bf16["state_bytes_per_sequence"])
        self.assertIn("(bfloat16)", penstock("plan", "--shape", "granite-4-tiny", "--mamba-ssm-cache-dtype", "bfloat16")[1].decode())
        code, out, err = penstock("plan", "--shape", "granite-4-tiny", "--mamba-ssm-cache-dtype", "float16")
        self.assertEqual((code, out), (2, b""), err)

    def test_plan_of_a_prompt(self):
        plan = penstock_json("plan", "--shape", "tiny", "--tokens", 1500, "--kv-cache-dtype", "int8", "--first-token", "--json")
        prompt = plan["prompt"]
        self.assertEqual((prompt["tokens"], prompt["chunk"], [step["depth"] for step in prompt["steps"]]), (1500, 512, [0, 512, 1024]))
        first, second, last = (step["chunk_seconds"] for step in prompt["steps"])
        self.assertAlmostEqual(prompt["seconds"], first + second + last * (1500 - 1024) / 512, places=9)
        bytes = [step["token_bytes"] for step in prompt["steps"]]
        self.assertEqual(bytes[2] - bytes[0], 1024 * plan["kv_bytes_per_token"])
        self.assertTrue(all(step["token_seconds"] > 0 for step in prompt["steps"]) and prompt["read_bytes_per_second"] > 0, prompt)
        windows = penstock_json("plan", "-m", "penstock-stories-sliding-4m-q8_0", "--tokens", 512, "--first-token", "--json")["prompt"]
        self.assertEqual([step["depth"] for step in windows["steps"]], [0])
        short = penstock_json("plan", "-m", "penstock-stories-1m-q8_0", "--tokens", 5, "--first-token", "--json")["prompt"]
        self.assertEqual((short["chunk"], [step["depth"] for step in short["steps"]]), (5, [0]))
        self.assertRegex(penstock("plan", "-m", "penstock-stories-1m-q8_0", "--tokens", 500, "--first-token")[1].decode(),
                         r"first token +\S+ s behind a prompt of 500 tokens")
        for wrong, told in (((1 << 40, "--shape", "llama-3-8b"), "at most the model's 8192 --tokens"),
                            ((64, "--shape", "deepseek-v3", "--type", "f32"), "of memory that are free"), ((64, "--spec", "--acceptance", 0.5), "expected no --spec")):
            code, out, err = penstock("plan", "--first-token", "--tokens", *wrong)
            self.assertNotEqual(code, 0)
            self.assertIn(told, err)

    def test_plan_of_speculation(self):
        plan = penstock_json("plan", "--spec", "--acceptance", 0.7, "--target-ms", 10, "--draft-ms", 1, "--max-spec-length", 8,
                             "--json")
        for row in plan["lengths"]:
            k = row["length"]
            tokens = (1 - 0.7 ** (k + 1)) / (1 - 0.7)
            self.assertAlmostEqual(row["tokens_per_round"], tokens, places=9)
            self.assertAlmostEqual(row["speedup"], tokens * 10 / (10 + k), places=9)
        self.assertEqual(plan["best"]["length"], 4)
        # 1, 2 and 3 drafted tokens cost more and more to verify; the chance falls with the depth.
        plan = penstock_json("plan", "--spec", "--acceptance", "0.8,0.5", "--target-ms", 10, "--verify-ms", "11,13,16",
                             "--spec-length", 2, "--json")
        self.assertEqual([row["length"] for row in plan["lengths"]], [2])
        self.assertAlmostEqual(plan["lengths"][0]["speedup"], (1 + 0.8 + 0.4) * 10 / 13, places=9)
        measured = penstock_json("plan", "--spec", "--acceptance", 0.7, "--draft-model", "penstock-stories-1m-q8_0",
                                 "--max-spec-length", 2, "--json")
        self.assertGreater(min(measured["target_ms"], measured["draft_ms"]), 0)
        self.assertEqual(len(measured["verify_ms"]), 2)
        self.assertIn("best", penstock("plan", "--spec", "--acceptance", 0.9, "--target-ms", 5)[1].decode())
        for wrong in ([], ["--acceptance", 1.5], ["--acceptance", "nan"], ["--acceptance", 0.5, "--target-ms", -1]):
            code, out, err = penstock("plan", "--spec", *wrong)
            self.assertEqual((code, out), (2, b""), wrong)
            self.assertIn("penstock: --", err)

    def test_inspect(self):
        for model in sorted(MODELS.glob("*.gguf")):
            reply = penstock_json("inspect", "-m", model, "--json")
            self.assertEqual(reply["format"], "gguf")
            self.assertEqual(sum(tensor["bytes"] for tensor in reply["tensors"]), reply["bytes"])
            if model.name.startswith("mmproj-"):
                self.assertIn("'clip' is no architecture", reply["config"]["error"])
                continue
            self.assertGreater(reply["config"]["n_layers"], 0, model)
            self.assertEqual(reply["config"]["n_active_experts"], 0, model)

    def test_bench_ladder(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "ladder.svg"
            for model in ([], ["--shape", "tiny"]):
                reply = penstock_json("bench", *model, "--ladder", "--ladder-tokens", 6, "--ladder-batch", 2, "-r", 1, "-t", 1,
                                      "--svg", svg, "--json")
                rungs = reply["rungs"]
                self.assertEqual([rung["requests"] for rung in rungs], [1, 1, 1, 2, 2, 1])
                for rung in rungs:
                    wanted = rung["requests"] * 6 / rung["request_seconds"]
                    self.assertAlmostEqual(rung["tokens_per_second"], wanted, delta=1e-6 * wanted)
                naive, cached, small = (rung["memory_bytes"] for rung in rungs[:3])
                self.assertGreater(cached, naive)  # K and V
                self.assertLess(small, naive)
                self.assertEqual(svg.read_text().count("<rect"), 1 + len(rungs))
        self.assertEqual(penstock("bench", "--ladder", "--ladder-tokens", 1)[0], 2)

    def test_bench(self):
        reply = penstock_json("bench", "-p", 32, "-n", 8, "-r", 1, "--no-roofline", "--json")
        self.assertEqual([row["test"] for row in reply["results"]], ["prefill 32", "decode 8"])
        self.assertTrue(all(row["tokens_per_second"] > 0 for row in reply["results"]))

    def test_bench_without_lengths_takes_what_the_model_takes(self):
        reply = penstock_json("bench", "-n", 2, "-r", 1, "--no-roofline", "--json")
        self.assertEqual([row["test"] for row in reply["results"]], ["prefill 511", "decode 2"])
        self.assertEqual(penstock("bench", "-p", 512, "-n", 2, "-r", 1, "--no-roofline")[0], 2)

    def test_bench_beside_plain_decoding(self):
        reply = penstock_json("bench", "--spec", "draft", "--draft-model", "penstock-stories-1m-q8_0", "-t", 1, "-p", 8, "-n", 8,
                              "--batch", 1, 2, "-r", 5, "--beside-plain", "--no-roofline", "--json")
        prefill, *decode = reply["results"]
        self.assertNotIn("to_plain", prefill)
        self.assertEqual(len(decode), 2)
        for row in decode:
            ratio = row["to_plain"]
            self.assertTrue(0 < ratio["min"] <= ratio["median"] <= ratio["max"], row)

    def test_nothing_is_faster_than_the_limits(self):
        # The limits are the best of samples between the repetitions, so that both have the same neighbours.
        for kind in ("q4_k_m", "q8_0", "bf16"):
            with self.subTest(kind):
                reply = penstock_json("bench", "--shape", "tiny", "--type", kind, "-t", 1, "-p", 64, "-n", 8, "--batch", 1, 16, "-r",
                                      3, "--json")
                self.assertEqual(len(reply["results"]), 3)
                for row in reply["results"]:
                    self.assertGreater(row["limit_share"], 0, row)
                    self.assertLessEqual(row["limit_share"], 1, row)
                threads = {limit["of"]: limit for limit in reply["limits"]["threads"]}
                for unit in ("read", reply["limits"]["compute_unit"], reply["limits"]["integer_unit"]):
                    self.assertGreater(threads[unit]["all"], 0, threads)
                    self.assertGreater(threads[unit]["one"], 0, threads)
                plans = [plan for plan in reply["products"] if plan["weights"] == "nibbles"]
                rows = [plan["rows"] for plan in plans]
                self.assertEqual((rows[0], rows), (1, sorted(set(rows))), plans)
                for plan in plans:
                    self.assertIn(plan["path"], ("int8", "int8-tiles", "bf16-tiles"), plan)
                    self.assertTrue(plan["strategy"] and plan["prefetch"] and plan["block"] > 0 and plan["panels"] > 0, plan)

    def test_bench_serve(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "load.svg"
            for policy in ("continuous", "static"):
                reply = penstock_json("bench", "--shape", "tiny", "-t", 1, "--serve", "--requests", 6, "--mean-prompt", 40,
                                      "--mean-output", 8, "--max-num-seqs", 2, "--policy", policy, "--serve-svg", svg,
                                      "--no-roofline", "--json")
                self.assertEqual((reply["requests"], reply["failed"]), (6, 0))
                for quantity in ("time_to_first_token", "inter_token_latency", "total"):
                    p50, p90, p99 = (reply[quantity][name] for name in ("p50", "p90", "p99"))
                    self.assertTrue(0 < p50 <= p90 <= p99, (quantity, reply[quantity]))
                plot = xml.etree.ElementTree.fromstring(svg.read_text())
                kinds = [element.tag.split("}")[1] for element in plot.iter()]
                self.assertEqual(kinds.count("polyline"), 6)
                self.assertEqual(kinds.count("rect"), 1 + 4 + 3 * 3)  # ground, panels, quantiles
                median = f"{reply['time_to_first_token']['p50'] * 1000:.1f}, "
                self.assertTrue(any((element.text or "").startswith(median) for element in plot.iter()), svg.read_text())

    def test_bench_of_a_shape_and_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tiny.gguf"
            self.assertEqual(penstock("bench", "--shape", "tiny", "--type", "q4_0", "--write-gguf", path)[0], 0)
            from_file = penstock_json("bench", "-m", path, "-p", 16, "-n", 4, "-r", 1, "--no-roofline", "--json")
            in_memory = penstock_json("bench", "--shape", "tiny", "--type", "q4_0", "-p", 16, "-n", 4, "-r", 1,
                                      "--no-roofline", "--json")
            self.assertEqual(from_file["weight_bytes"], in_memory["weight_bytes"])


class Chat(unittest.TestCase):
    """`penstock run` on a pseudo-terminal."""

    def setUp(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(PROGRAM, [PROGRAM, "run", "-n", "100", "--ignore-eos", "--seed", "1"])

    def tearDown(self):
        os.close(self.fd)
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def read_until(self, pattern, timeout=240):
        text, end = "", time.monotonic() + timeout
        while not re.search(pattern, text):
            self.assertLess(time.monotonic(), end, f"{pattern!r} not seen in {text!r}")
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    text += os.read(self.fd, 4096).decode(errors="replace")
                except OSError:
                    self.fail(f"program ended; output {text!r}")
        return text

    def wait_exit(self):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                if select.select([self.fd], [], [], 0.05)[0]:
                    os.read(self.fd, 4096)
            except OSError:  # the terminal is closed: the program is on its way out
                time.sleep(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        self.fail("program did not end")

    def test_reply_and_leave(self):
        self.read_until(r"> $")
        os.write(self.fd, b"Once upon a time\n")
        self.read_until(r"tokens/s[^\n]*\r?\n> $")
        os.write(self.fd, b"/bye\n")
        self.assertEqual(self.wait_exit(), 0)

    def test_interrupt_at_the_prompt_keeps_the_program(self):
        self.read_until(r"> $")
        for _ in range(200):  # each right behind the prompt, when the program may not have begun to read
            os.write(self.fd, b"\x03")
            self.read_until(r"> $", timeout=20)
        os.write(self.fd, b"Tom had\n")
        self.read_until(r"tokens/s[^\n]*\r?\n> $")
        os.write(self.fd, b"\x04")
        self.assertEqual(self.wait_exit(), 0)


class Pictures(unittest.TestCase):
    """Image files of a tiny model that sees; its replies are transformers'."""
    MODEL = pathlib.Path(os.environ["PENSTOCK_SOURCE"]) / "tests" / "golden" / "seeing" / "qwen3_vl"
    FLAGS = ["-m", MODEL, "--max-model-len", "512", "--kv-cache-dtype", "f32", "--temperature", "0", "--max-tokens", "6", "--ignore-eos"]

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.talks = json.loads((self.MODEL / "golden.json").read_text())
        self.files = []
        for talk in self.talks[:2]:
            for part in talk["messages"][0]["content"]:
                if part["type"] == "image_url":
                    self.files.append(self.folder / f"{len(self.files)}.png")
                    self.files[-1].write_bytes(base64.b64decode(part["image_url"]["url"].split(",")[1]))
        self.question = self.talks[0]["messages"][0]["content"][1]["text"]

    def test_generate(self):
        said = penstock_json("generate", *self.FLAGS, "--image", self.files[0], "-p", self.question, "--json")
        self.assertEqual((said["tokens"], said["prompt_tokens"]), (self.talks[0]["reply"], len(self.talks[0]["prompt"])))
        two = penstock_json("generate", *self.FLAGS, "--image", self.files[0], "--image", self.files[1], "-p", self.question, "--json")
        self.assertGreater(two["prompt_tokens"], said["prompt_tokens"])

    def test_run(self):
        text = penstock("generate", *self.FLAGS, "--image", self.files[0], "-p", self.question, "-q")[1]
        code, out, err = penstock("run", *self.FLAGS, "--image", self.files[0], "-p", self.question)
        self.assertEqual((code, out), (0, text), err)
        lines = f"/image {self.folder}/none.png\n/image {self.files[0]}\n{self.question}\n/history\n"
        code, out, err = penstock("run", *self.FLAGS, stdin=lines.encode())
        self.assertEqual(code, 0, err)
        self.assertTrue(out.startswith(text), out)
        self.assertIn(f"user: [image {self.files[0]}]\nuser: {self.question}".encode(), out)
        self.assertIn("none.png: No such file", err)

    def test_plan_and_inspect_count_the_tower(self):
        tower = penstock_json("inspect", "-m", self.MODEL, "--json")["tower"]
        self.assertEqual((tower["family"], tower["path"]), ("qwen3vl", str(self.MODEL)))
        self.assertGreater(tower["bytes"], 10_000)
        plan = penstock_json("plan", "-m", self.MODEL, "--json")
        self.assertEqual((plan["tower_bytes"], plan["picture_bytes"]), (tower["bytes"], 256 << 20))
        other = penstock_json("plan", "-m", self.MODEL, "--mmproj", self.MODEL / "mmproj.gguf", "--json")
        self.assertEqual(other["weight_bytes"], plan["weight_bytes"] + other["tower_bytes"])
        self.assertNotIn("tower", penstock_json("inspect", "--json"))

    def test_gguf_with_an_mmproj_file(self):
        for name in ("qwen3_vl", "gemma3"):
            model = self.MODEL.parent / name
            gguf = self.folder / f"{name}-F32.gguf"
            code, _, err = penstock("quantize", model, gguf, "--type", "f32")
            self.assertEqual(code, 0, err)
            flags = ["-m", gguf, "--max-model-len", "2048", *self.FLAGS[4:], "--image", self.files[0], "-p", self.question]
            code, _, err = penstock("generate", *flags)
            self.assertEqual(code, 2, err)
            self.assertIn("no eyes", err)
            (self.folder / f"mmproj-{name}-F32.gguf").write_bytes((model / "mmproj.gguf").read_bytes())
            talk = json.loads((model / "golden.json").read_text())[0]
            said = penstock_json("generate", *flags, "--json")
            if name == "gemma3":
                self.assertEqual((said["tokens"], said["prompt_tokens"]), (talk["reply"], len(talk["prompt"])))
            else:  # the file does not say how small pictures are: they are made as large as the published model's
                self.assertGreater(said["prompt_tokens"], 1000)
            inspected = penstock_json("inspect", "-m", gguf, "--json")["tower"]
            self.assertTrue(inspected["path"].endswith(f"mmproj-{name}-F32.gguf"))
            code, _, err = penstock("generate", *flags, "--mmproj", self.MODEL.parent / "smolvlm" / "mmproj.gguf")
            self.assertNotEqual(code, 0)
            self.assertRegex(err, "the tower of another model|has places for 0 of the 1 pictures")

    def test_what_is_refused(self):
        text = self.folder / "text.png"
        text.write_text("no picture")
        long = self.folder / "long.png"
        with long.open("wb") as file:
            file.truncate((32 << 20) + 1)
        cut = self.folder / "cut.png"
        cut.write_bytes(self.files[0].read_bytes()[:-400])
        for image, why in [(text, "text.png: "), (long, "long.png: "), (cut, "cut.png: "), (self.folder / "none.png", "No such file"),
                           (self.folder, "got a directory")]:
            for command in ("generate", "run"):
                code, out, err = penstock(command, *self.FLAGS, "--image", image, "-p", "What?")
                self.assertIn(why, err)
                self.assertEqual(out.strip(), b"")
                self.assertTrue(code != 0 or command == "run")
        code, _, err = penstock("generate", "--image", self.files[0], "-p", "What?")
        self.assertNotEqual(code, 0)
        self.assertRegex(err, "no eyes|chat template")


if __name__ == "__main__":
    unittest.main(verbosity=2)
