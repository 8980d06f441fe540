"""A module run as a child process that does not outlive its parent.

The child watches its parent itself. Linux could send the signal (PR_SET_PDEATHSIG), but sends one for each
thread of the parent that dies, and the second signal ends a run that is still saving.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

_POLL_SECONDS = 0.5


def end_with_parent(parent: int) -> None:
    """Sends SIGTERM to this process, once, after its parent has ended."""
    threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module as a child of this process."""
    return [sys.executable, "-m", "jaxrl.runs.child_process", str(os.getpid()), module, *arguments]


if __name__ == "__main__":
    _, given, name, *rest = sys.argv
    end_with_parent(int(given))
    sys.argv = [name, *rest]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
