"""Starts Python processes by forking one that has imported jax and jaxrl; `tests/processes.py` asks it to.

Imports are half of what a process that trains a tiny run costs. What is forked has started no backend and has
one thread; the processes are real ones, with files, signals and an end of their own.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import types
from typing import Any

import jax

# Not gymnax, which starts jax's backend when it is imported.
PRELOADED = (
    "jaxrl.commands.evaluate",
    "jaxrl.commands.train",
    "jaxrl.training.run",
    "jaxrl.training.trainer",
    "orbax.checkpoint",
    "tensorboardX",
)
SIZE = struct.Struct("!I")  # comes before a request, and with it the files


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Forks for each request; returns the request in the new process, and None where nobody asks any more."""
    reports: dict[int, socket.socket] = {}
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the tests end, and then this does
    while True:
        ready, _, _ = select.select([control, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                ended.recv(4096)
            _report(reports)
        if control not in ready:
            continue
        request, (report, *streams) = _receive(control)
        if not request:
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for end in (control, ended, wake, *reports.values()):
                end.close()
            # From here on it takes signals as any process does.
            os.write(report, b"%d\n" % os.getpid())
            os.close(report)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        for stream in streams:
            os.close(stream)
        reports[pid] = socket.socket(fileno=report)


def _receive(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next request and the files that come with it; nothing, and one that is none, at the end."""
    files = array.array("i")
    size, ancillary, _, _ = control.recvmsg(SIZE.size, socket.CMSG_SPACE(4 * files.itemsize))
    if not size:
        return {}, [-1]
    for _, _, data in ancillary:
        files.frombytes(data)
    (left,) = SIZE.unpack(size)
    parts = []
    while left:
        parts.append(control.recv(left))
        left -= len(parts[-1])
    return json.loads(b"".join(parts)), files.tolist()


def _report(reports: dict[int, socket.socket]) -> None:
    """Tells how processes have ended."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            report = reports.pop(pid)
            with contextlib.suppress(OSError):  # nobody waits for it any more
                report.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            report.close()


def take_on(request: dict[str, Any]) -> None:
    """Runs what `python *arguments` runs, in this process, which is a new one."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if count := os.environ.get("JAX_NUM_CPU_DEVICES"):
        jax.config.update("jax_num_cpu_devices", int(count))
    # What Python has put first at its own start: the working folder, unless it is told `-P`.
    if request["arguments"][0] == "-P":
        del sys.path[0], request["arguments"][0]
    else:
        sys.path[0] = request["cwd"]
    kind, what, *arguments = request["arguments"]
    sys.argv = [what if kind == "-m" else kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(sys.modules["__main__"]))


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # A search for cycles would copy all pages.
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        take_on(request)


if __name__ == "__main__":
    main()
