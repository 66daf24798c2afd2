"""The penstock program: `penstock`, `python -m penstock`."""
from __future__ import annotations

import signal
import sys
from typing import NoReturn

import penstock
from penstock import _core


def main() -> NoReturn:
    """Runs the program with this process's arguments and ends with its exit code."""
    assert penstock  # its import registers the models folder
    if sys.stdout is not None:
        sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_core.run(["penstock", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
