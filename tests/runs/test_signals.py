"""Signals: noted or raised, the second one at once, with the exit codes of a shell."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl.runs.signals import Interruption, catch_signals, handled_by

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("signum", "name", "code"), [(15, "SIGTERM", 143), (2, "SIGINT", 130), (1, "SIGHUP", 129)]
)
def test_a_deferred_signal_is_noted_and_stops_nothing(signum: int, name: str, code: int) -> None:
    with catch_signals() as interruption, interruption.defer():
        assert (interruption.signum, interruption.name, interruption.exit_code) == (None, None, 0)
        signal.raise_signal(signum)
        assert (interruption.signum, interruption.name, interruption.exit_code) == (signum, name, code)


def test_handlers_are_what_they_were_before() -> None:
    def mine(signum: int, frame: object) -> None:
        received.append(signum)

    received: list[int] = []
    with handled_by(mine, signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError), catch_signals():
            assert signal.getsignal(signal.SIGTERM) is not mine
            raise ValueError("of the block")
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGTERM, signal.SIGINT]
        assert signal.set_wakeup_fd(-1) == -1
        assert "signals" not in {thread.name for thread in threading.enumerate()}


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    # As under nohup, or in the background of a script.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with catch_signals() as interruption:
            for _ in range(3):
                signal.raise_signal(signal.SIGINT)
            assert interruption.signum is None
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


_BUSY = """
import hashlib, sys, time
from jaxrl.runs.signals import catch_signals
with catch_signals() as interruption, interruption.defer():
    print("ready", flush=True)
    # Like a program of XLA, this runs no line of Python for minutes, so no handler either.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""


def test_the_second_signal_ends_the_process_whatever_it_is_doing() -> None:
    with _started(_BUSY) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT


@contextlib.contextmanager
def _started(program: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


_WAITING = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from jaxrl.commands import command_line
from jaxrl.runs.signals import catch_signals

def job():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 60)  # such as a compilation, which nothing can stop
        print("ready", flush=True)
        time.sleep(60)

with catch_signals() as interruption:
    with interruption.defer():
        pass
    sys.exit(command_line.exit_code(job, debug=False))
"""
_DEAF = """
import time
from jaxrl.runs.signals import catch_signals

class Deaf:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(60)  # as in callbacks of the garbage collector, exceptions of handlers are ignored

with catch_signals():
    Deaf()
    time.sleep(60)
"""


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_has_nothing_to_save_ends_at_once_and_without_a_traceback(signum: int, code: int) -> None:
    with _started(_WAITING) as process:
        process.send_signal(signum)
        output, errors = process.communicate(timeout=10)
    assert (process.returncode, output, errors) == (code, "", "")


@pytest.mark.parametrize("program", [_DEAF, _BUSY.replace(", interruption.defer()", "")])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_also_ends_where_no_exception_gets_through(program: str, signum: int, code: int) -> None:
    with _started(program) as process:
        process.send_signal(signum)
        assert process.wait(10) == code


_TALKING = """
import sys
from jaxrl.runs.signals import catch_signals
with catch_signals() as interruption, interruption.defer():
    print("ready", file=sys.stderr, flush=True)
    while True:
        print("x" * 4000, flush=True)  # blocks once the terminal is full
"""


def test_a_terminal_that_nobody_reads_does_not_hold_up_the_second_signal() -> None:
    terminal, side = os.openpty()
    command = [sys.executable, "-c", _TALKING]
    with subprocess.Popen(command, cwd=ROOT, stdout=side, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "ready\n"
            time.sleep(0.2)
            for _ in range(2):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.1)
            assert process.wait(10) == 143
        finally:
            process.kill()
            os.close(side)
            os.close(terminal)


def test_what_does_not_move_is_given_up_sooner_after_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    interruption = Interruption()
    assert not interruption.cannot_wait(20.0)
    assert interruption.cannot_wait(1000.0)
    interruption.adopt(signal.SIGTERM)
    assert not interruption.cannot_wait(5.0)  # a slow disk has a few seconds
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 8.0)
    assert interruption.cannot_wait(5.0)
    assert not interruption.cannot_wait(0.5)  # what moves is waited for


_SHOWN = """
from jaxrl.parallel.process_exit import before_leaving, leave
from jaxrl.reporting.display import live_panel
from jaxrl.reporting.display.console import Console
before_leaving(live_panel.restore_before_exit)
Console("title", "subtitle", None)
leave(143)
"""


def test_leaving_gives_the_terminal_its_cursor_and_its_modes_back() -> None:
    terminal, side = os.openpty()
    before = termios.tcgetattr(side)
    environment = os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-c", _SHOWN]
    process = subprocess.run(command, cwd=ROOT, env=environment, stdout=side, timeout=60)
    assert process.returncode == 143
    assert termios.tcgetattr(side) == before
    os.close(side)
    shown = os.read(terminal, 1 << 16)
    os.close(terminal)
    # As a command of the terminal, not as text in the display, and the shell's prompt on a line of its own.
    assert shown.endswith(b"\x1b[?25h\r\n")
    assert shown.count(b"[?25h") == shown.count(b"\x1b[?25h")


def test_nothing_is_asked_for_at_first() -> None:
    # A trainer that is used as a library has an interruption that no signal ever reaches.
    interruption = Interruption()
    assert (interruption.signum, interruption.name, interruption.exit_code) == (None, None, 0)


def test_a_signal_that_wakes_another_thread_is_noted() -> None:
    # As after SIGSTOP and SIGCONT: the main thread, the only one to run Python's handlers, waits on. It
    # blocks the signal here; the thread of `catch_signals`, which began before, takes it.
    script = """
import os, signal, threading, time
from jaxrl.runs.signals import catch_signals
def work():
    os.kill(os.getpid(), signal.SIGTERM)
    deadline = time.monotonic() + 5
    while interruption.signum is None and time.monotonic() < deadline:
        time.sleep(0.01)
    print(interruption.name, flush=True)
    os._exit(0)
with catch_signals() as interruption, interruption.defer():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=work).start()
    threading.Event().wait()
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n"), done.stderr
