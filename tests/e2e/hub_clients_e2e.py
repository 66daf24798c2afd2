#!/usr/bin/env python3
"""huggingface_hub against the same caches as Penstock (tests/clients/hub_tests.py), in the environment of the client tests."""
import os
import sys

from server_clients_e2e import CLIENTS, environment

if __name__ == "__main__":
    python = environment()
    os.execve(python, [str(python), "-m", "unittest", "-v", *(sys.argv[1:] or ["hub_tests"])],
              {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{CLIENTS}:{CLIENTS.parent / 'e2e'}"})
