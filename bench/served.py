"""Penstock's server, started by a benchmark on a port of its own."""
import re
import subprocess
import sys
import threading


def start(command):
    """Returns (process, port) of `penstock serve … --port 0` when it serves. Its log goes on being read, and is dropped."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"serving \S+ at \w+://[\d.]+:(\d+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(found[1])
    sys.exit("penstock did not start: " + "".join(said[-20:]))


def stop(process):
    process.terminate()
    process.wait(120)
