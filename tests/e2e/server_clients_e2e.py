#!/usr/bin/env python3
"""Runs the tests of tests/clients in an environment of their own, made here from PyPI and kept under the build folder.

Packages: tests/clients/requirements-clients.txt. Arguments go to unittest, for example: client_tests.OpenAI.test_chat
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

CLIENTS = pathlib.Path(__file__).resolve().parent.parent / "clients"
REQUIREMENTS = CLIENTS / "requirements-clients.txt"


def place_of(requirements):
    """The folder of an environment, by what is in it: the folder `clients` or another, named after the file."""
    key = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return pathlib.Path(os.environ["PENSTOCK_BUILD"]).resolve() / requirements.stem.removeprefix("requirements-") / key


def environment(requirements=REQUIREMENTS):
    """The environment's python, after installing what is not there yet."""
    place = place_of(requirements)
    if not (place / "complete").exists():
        top = place.parent
        shutil.rmtree(top, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        command = [place / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps",
                   "--only-binary", ":all:", "-r", requirements]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\n"
                     "The client tests install real API clients with pip and that failed (above): is PyPI reachable?")
        (place / "complete").touch()
    return place / "bin" / "python"


if __name__ == "__main__":
    python = environment()
    # What is in the caller's environment must not steer the clients.
    keep = {key: value for key, value in os.environ.items()
            if not key.startswith(("OPENAI_", "ANTHROPIC_", "LITELLM_", "LANGCHAIN_", "LANGSMITH_", "HF_"))}
    keep.update(PYTHONDONTWRITEBYTECODE="1", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True",
                NO_PROXY="127.0.0.1", no_proxy="127.0.0.1", LANGSMITH_TRACING="false")
    os.execve(python, [str(python), "-m", "unittest", "-v", *(sys.argv[1:] or ["client_tests", "structured_tests", "call_format_tests", "mcp_tests", "picture_tests", "sound_tests",
                                                                            "transcription_tests"])],
              {**keep, "PYTHONPATH": f"{CLIENTS}:{CLIENTS.parent / 'e2e'}"})
