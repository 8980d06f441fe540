"""The common part of `jaxrl serve` and `jaxrl dashboard`: addresses, allowed hosts, errors."""

from __future__ import annotations

import json
import socket

from jaxrl.config.errors import ConfigError
from jaxrl.config.text import one_line

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def bind(host: str, port: int) -> socket.socket:
    """A socket of this address, which refuses connections until it listens.

    Raises:
      ConfigError: the address is taken, or not this machine's.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"`--host` (={host}), `--port` (={port}): {error.strerror or error}") from error
    return found


def url(host: str, bound: socket.socket) -> str:
    """The address of a server, with the port that it got."""
    return f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"


def names_loopback(header: str) -> bool:
    """True if a `Host` is the loopback address: a page in a browser may lead a name of its own here."""
    host = header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0]
    return host in LOOPBACK


def error(reason: object) -> bytes:
    """The answer to a refused or failed request: one line, as JSON."""
    return json.dumps({"error": one_line(reason)}).encode()
