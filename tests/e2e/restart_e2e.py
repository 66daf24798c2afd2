#!/usr/bin/env python3
"""The server is stopped at random moments under load and while it starts: it always ends by itself, with exit code 0.

RESTARTS (default 12) says how often; PENSTOCK_BINARY and PENSTOCK_SLOWNESS are as in abuse_e2e.py.
"""
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import MODEL, PROGRAM, SLOW, Server, read_all  # noqa: E402

RESTARTS = int(os.environ.get("RESTARTS", "12"))
BODIES = [{"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "stream": True, "n": 2},
          {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True},
          {"prompt": "A dog", "max_tokens": 5, "stream": True, "logprobs": 2},
          {"prompt": ["One", "Two", "Three"], "max_tokens": 50, "best_of": 3, "n": 1}]


class Clients:
    """Threads that send requests until the server is gone; some leave in the middle of a reply."""

    def __init__(self, server, seed):
        self.server, self.statuses = server, set()
        self.threads = [threading.Thread(target=self.run, args=(random.Random(seed * 100 + i),)) for i in range(6)]
        for thread in self.threads:
            thread.start()

    def run(self, rng):
        while True:
            try:
                sock = self.server.stream(rng.choice(BODIES), timeout=30)
                if rng.random() < 0.3:
                    sock.recv(100)
                    sock.close()
                    continue
                reply = read_all(sock)
                self.statuses.add(reply[9:12])
                if not reply:
                    return
            except OSError:
                return

    def join(self):
        for thread in self.threads:
            thread.join()


class Restart(unittest.TestCase):
    def test_under_load(self):
        for round_ in range(RESTARTS):
            rng = random.Random(round_)
            arguments = ["--shutdown-timeout", rng.choice(["0", "0.05", "0.5"]), "--max-num-seqs", "4",
                         "--io-threads", rng.choice([1, 2])]
            with Server(*arguments) as server:
                clients = Clients(server, round_)
                time.sleep(rng.random() * 0.1)
                server.terminate()
                code = server.process.wait(60 * SLOW)
                clients.join()
                self.assertEqual(code, 0, (round_, arguments, server.log()[-3000:]))
                self.assertNotIn("Sanitizer", server.log())
                self.assertLessEqual(clients.statuses, {b"200", b"400", b"429", b"503", b""})

    def test_while_it_starts(self):
        for round_ in range(RESTARTS):
            process = subprocess.Popen([PROGRAM, "serve", "-m", str(MODEL), "--port", "0", "--kv-cache-memory", "64M"],
                                       stderr=subprocess.PIPE, text=True)
            time.sleep(random.Random(round_).random() * 0.1)
            process.terminate()
            log = process.communicate(timeout=60 * SLOW)[1]
            # Before it has taken the signals over the default ends it.
            self.assertIn(process.returncode, (0, -signal.SIGTERM), log)
            self.assertNotIn("Sanitizer", log)


if __name__ == "__main__":
    unittest.main(verbosity=2)
