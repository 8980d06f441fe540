"""Python processes that tests start, look at and end; they cost no imports (`tests/fork_server.py`)."""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
# As tests.fork_server has it, which imports jax: the length of a request.
SIZE = struct.Struct("!I")
# What jax and Python read when they are imported, so that there is a server for each of their values. Not the
# number of devices, which a process may choose until its backend starts.
_READ_ONCE = ("JAX", "PYTHON")
_CHOSEN_LATER = ("JAX_NUM_CPU_DEVICES",)


class Process:
    """A process, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: list[str], report: socket.socket) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._report = report.detach()
        self.pid = self._number()

    def poll(self) -> int | None:
        """The code with which it ended, -N by signal N; None while it runs."""
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.returncode = self._number()
            os.close(self._report)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._report], [], [], timeout)[0]:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        """The next line of the server's."""
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._report, 1)
            assert part, f"the server of {self.args} has ended"
            line += part
        return int(line)


@functools.cache
def _server(read_once: frozenset[tuple[str, str]]) -> socket.socket:
    ours, theirs = socket.socketpair()
    rest = {name: value for name, value in os.environ.items() if not name.startswith(_READ_ONCE)}
    # Threads do not survive a fork.
    env = {**rest, **dict(read_once), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
    )
    theirs.close()
    atexit.register(_end, process, ours)
    return ours


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.wait()


def start(
    *arguments: str,
    stdout: IO[Any],
    stderr: IO[Any],
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Starts `python *arguments`, which are `-m MODULE ...` or `-c CODE ...`, perhaps after `-P`; no input.

    `env` stands in for the whole environment, as it does for `subprocess`; modules of the checkout are found.
    """
    given = {"PYTHONPATH": str(ROOT), **(os.environ if env is None else env)}
    read_once = (name for name in given if name.startswith(_READ_ONCE) and name not in _CHOSEN_LATER)
    control = _server(frozenset((name, given[name]) for name in read_once))
    ours, theirs = socket.socketpair()
    request = {"arguments": arguments, "cwd": str(cwd), "env": given}
    with theirs, open(os.devnull) as nothing:
        files = [theirs, nothing, stdout, stderr]
        rights = array.array("i", [file.fileno() for file in files])
        text = json.dumps(request).encode()
        control.sendmsg([SIZE.pack(len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        control.sendall(text)
    return Process([sys.executable, *arguments], ours)


def run(
    *arguments: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    devices: int | None = None,
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Runs `python *arguments` to its end, on so many virtual devices; what it prints is in the result."""
    if devices is not None:
        env = {**(os.environ if env is None else env), "JAX_NUM_CPU_DEVICES": str(devices)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(*arguments, stdout=out, stderr=err, cwd=cwd, env=env)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(process.args, code, out.read(), err.read())


def succeed(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `run`, of a process that must end well."""
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
