"""A module run as a child process that does not outlive its parent.

The new process asks for that itself: a function between fork and exec would fork a process in which JAX's
threads run, which can hang.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Makes Linux send SIGTERM to this process when its parent dies; ends it where that has happened."""
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as a child of this process."""
    return [sys.executable, "-m", "jaxrl.parallel.child_process", str(os.getpid()), module, *arguments]


if __name__ == "__main__":
    _, given, name, *rest = sys.argv
    end_with_parent(int(given))
    sys.argv = [name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
