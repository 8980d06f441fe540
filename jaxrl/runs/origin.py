"""The host and the command that a record comes from."""

from __future__ import annotations

import shlex
import socket
import sys

_LONGEST = 4_000  # characters of a command


def origin() -> dict[str, str]:
    """`{"host": ..., "command": ...}` of this process; a long command is cut off."""
    command = shlex.join(sys.orig_argv)
    return {"host": socket.gethostname(), "command": command[:_LONGEST]}
