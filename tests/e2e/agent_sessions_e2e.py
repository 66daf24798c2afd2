#!/usr/bin/env python3
"""Runs tests/clients/agent_sessions.py, claude_code_session.py and aider_session.py: agents of other people against the server.

Their packages are installed by scripts/install_agents; without them this test says so and is skipped. Arguments: `--install` does what
that script does; others go to unittest, for example: agent_sessions.Smolagents
"""
import concurrent.futures
import os
import subprocess
import sys

import server_clients_e2e
from server_clients_e2e import CLIENTS

LIMIT = 600  # seconds for the tests of one environment
SKIPPED = 77  # exit code that ctest shows as a skipped test
SUITES = {"requirements-agents.txt": ["agent_sessions", "claude_code_session"], "requirements-aider.txt": ["aider_session"]}


def run(requirements, tests):
    place = server_clients_e2e.place_of(requirements)
    if not (place / "complete").exists():
        print(f"SKIPPED: {' '.join(tests)}: its packages ({requirements.name}) are not installed, scripts/install_agents does", file=sys.stderr)
        return SKIPPED
    keep = {key: value for key, value in os.environ.items() if not key.startswith(
        ("OPENAI_", "ANTHROPIC_", "CLAUDE", "AIDER_", "LITELLM_", "LLM_", "HF_"))}
    keep.update(PYTHONPATH=f"{CLIENTS}:{CLIENTS.parent / 'e2e'}", PYTHONPYCACHEPREFIX=str(place / "pycache"), NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    process = subprocess.Popen([place / "bin" / "python", "-m", "unittest", "-v", *tests], env=keep, start_new_session=True)
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        print(f"{' '.join(tests)}: not over after {LIMIT} s", file=sys.stderr)
        return 1
    finally:  # whatever the agents left running
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["--install"]:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(server_clients_e2e.environment, [*(CLIENTS / name for name in SUITES), server_clients_e2e.REQUIREMENTS]))
        sys.exit(0)
    wanted = {name: [test for test in sys.argv[1:] if test.split(".")[0] in suites] if sys.argv[1:] else suites for name, suites in SUITES.items()}
    sys.exit(max(run(CLIENTS / name, tests) for name, tests in wanted.items() if tests))
