"""Children of a process that is killed, and children that do not end when asked to."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from jaxrl.runs import child_process
from jaxrl.runs.child_process import ChildProcess
from jaxrl.runs.signals import Interruption

CHILD = """
    import signal, time

    received = []
    signal.signal(signal.SIGTERM, lambda *_: received.append(time.monotonic()))
    print("ready", flush=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < (received[0] + 1 if received else deadline):
        time.sleep(0.01)
    print("signals:", len(received), flush=True)
"""
PARENT = """
    import subprocess, threading, time
    from jaxrl.runs import child_process

    for _ in range(8):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    with open("output", "wb") as output:
        subprocess.Popen(child_process.command("child"), stdout=output, start_new_session=True)
    time.sleep(600)
"""


def wait_for(file: Path, text: str) -> str:
    deadline = time.monotonic() + 60
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return file.read_text()


@pytest.mark.slow
def test_child_gets_one_signal_when_a_parent_with_threads_is_killed(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(textwrap.dedent(CHILD))
    (tmp_path / "parent.py").write_text(textwrap.dedent(PARENT))
    parent = subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path)
    try:
        wait_for(tmp_path / "output", "ready")
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    # A second one would end a run that is still saving.
    assert wait_for(tmp_path / "output", "signals: ").splitlines() == ["ready", "signals: 1"]


# It ignores the signal, and so does what it has started.
DEAF = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
signal.pause()
"""


def deaf(log: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ChildProcess, int]:
    """(such a child, the process that it has started)."""
    monkeypatch.setattr(child_process, "command", lambda *given: [sys.executable, "-c", DEAF])
    child = ChildProcess("it", "deaf", log=log)
    return child, int(wait_for(log, "\n"))


def is_running(pid: int) -> bool:
    """False of a process that has ended, also of one that nobody has waited for."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks at processes as Linux lists them")
def test_a_child_is_killed_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, grandchild = deaf(tmp_path / "log", monkeypatch)
    child.stop(patience=0.1)
    child.stop(patience=600)  # It was asked before.
    assert child.wait(Interruption()) == "killed by SIGKILL, as the system does where memory is short"
    deadline = time.monotonic() + 10
    while is_running(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_has_ended_when_an_error_leaves_the_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, _ = deaf(tmp_path / "log", monkeypatch)
    monkeypatch.setattr(child_process, "KILL_AFTER", 0.1)

    def follow() -> None:
        raise OSError("the terminal is gone")

    with pytest.raises(OSError, match="the terminal is gone"):
        child.wait(Interruption(), follow)
    assert child.code == -signal.SIGKILL


def test_the_command_that_a_child_records_runs_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrapper ends without its parent, whose process id it takes."""
    (tmp_path / "recording.py").write_text("import json, sys\nprint(json.dumps(sys.orig_argv))")
    monkeypatch.syspath_prepend(tmp_path)
    child = ChildProcess("it", "recording", "--seed=1", log=tmp_path / "log")
    assert child.wait(Interruption()) == ""
    assert json.loads((tmp_path / "log").read_text()) == [sys.executable, "-m", "recording", "--seed=1"]
