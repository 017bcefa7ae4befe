"""Ports for the servers that are started here and gone again."""

import secrets
import socket
from contextlib import suppress

LOOPBACK = "127.0.0.1"

# Below the ports that the kernel gives to outgoing connections: none of them takes the port before its server
# does, nor while that is stopped.
_PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Free now; whoever starts a server on it must see that it is the one who answers there."""
    while True:
        port = secrets.choice(_PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            return port
