"""Runs `penstock serve` until the parent process ends, which closes the pipe that is standard input.

A killed parent cannot end its children, but its end of the pipe is closed. The server then finishes running requests, as after
SIGTERM, for at most the number of seconds that is the first argument.
"""
import os
import signal
import sys
import threading

import penstock  # noqa: F401  (registers the models folder)
from penstock import _core


def _watch(seconds: float) -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(seconds)
    os._exit(1)


if __name__ == "__main__":
    # The server waits for its signals by sigwait: no other thread may take them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_watch, args=(float(sys.argv[1]),), daemon=True).start()
    code = _core.run(["penstock", "serve", *sys.argv[2:]])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the interpreter's own end would wait a second for the thread that reads
