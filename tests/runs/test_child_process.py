"""Children of a process that is killed."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

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
