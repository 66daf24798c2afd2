"""`penstock serve` that ends with the process that started it: standard input is a pipe that nobody writes to.

A parent that is killed cannot end its children; its end of the pipe closes by itself. Then requests that run are finished, as by
SIGTERM, for at most the number of seconds that is the first argument.
"""
import os
import signal
import sys
import threading

import penstock  # noqa: F401  (tells where the models are)
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
    sys.exit(_core.run(["penstock", "serve", *sys.argv[2:]]))
