"""Ports and addresses for scripts that start processes."""
from __future__ import annotations

import socket


def get_open_port() -> int:
    """Returns a free TCP port of this host."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def get_ip() -> str:
    """Returns this host's address in its network; 127.0.0.1 without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


__all__ = ["get_ip", "get_open_port"]
