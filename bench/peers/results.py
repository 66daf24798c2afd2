"""Files of bench/results: what each begins with, and how it is written. bench/results/README.md has the schema."""
import datetime
import json
import pathlib
import platform
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def cpu_name():
    match = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match.group(1) if match else platform.processor()


def build():
    """The commit of the tree, with a mark if it has changes; None outside of git."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


def command(hide=()):
    """The command line, with what it says of this machine replaced: pairs of words."""
    text = shlex.join([str(pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]])
    for here, there in hide:
        text = text.replace(str(here), there)
    return text


def report(threads, peers, rows, hide=()):
    return {"cpu": cpu_name(), "threads": threads, "date": datetime.date.today().isoformat(), "build": build(), "peers": peers,
            "command": command(hide), "rows": rows}


def write(path, data):
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def version(python, program):
    """What a program says in another interpreter, its last line."""
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip().splitlines()[-1]
