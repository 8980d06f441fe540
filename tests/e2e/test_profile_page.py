"""The profile page of TensorBoard shows a run's trace, looked at with a browser."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxrl.commands.profile_summary import main as summarise
from tests import processes

ROOT = Path(__file__).parents[2]
STEPS = 8 * 8
TINY = [
    f"--config={ROOT}/configs/ppo.py",
    "--config.env.num_envs=8",
    "--config.ppo.rollout_length=8",
    "--config.network.core_size=8",
    "--config.network.hidden_sizes=8",
    "--config.evaluate.episodes=2",
    "--config.num_devices=1",
]


# What a trace holds: tests/metrics/test_tracing.py and tests/commands/test_profile_summary.py.
@pytest.mark.long
def test_a_signal_takes_a_trace_of_a_running_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = [f"--workdir={tmp_path}", "--config.stop.steps=100_000_000", "--config.stop.seconds=100"]
    with _started("jaxrl.main", *TINY, *options) as run:
        _until(lambda: _rows(tmp_path) > 0, run)
        run.send_signal(signal.SIGUSR1)
        _until(lambda: bool(list(tmp_path.rglob("jit_repeat.hlo.txt"))), run)
        run.send_signal(signal.SIGTERM)
        output, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    assert "wrote a trace: jaxrl profile-summary" in output
    assert summarise(["profile_summary", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert min(summary["phases"][phase] for phase in ("rollout", "advantage", "update")) > 0
    assert summary["phases"]["other"] < 0.2 * sum(summary["phases"].values())


# As above; a browser looks at it.
@pytest.mark.long
def test_the_profile_page_shows_phases(tmp_path: Path) -> None:
    pytest.importorskip("xprof", reason="xprof is not installed: pip install -e '.[profile]'")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium to look at the page with")
    window = [f"--config.profile.start={STEPS}", f"--config.profile.steps={2 * STEPS}"]
    events = [f"--config.evaluate.every_steps={2 * STEPS}", f"--config.checkpoint.every_steps={2 * STEPS}"]
    options = [f"--workdir={tmp_path}", f"--config.stop.steps={5 * STEPS}", *window, *events]
    with _started("jaxrl.main", *TINY, *options) as run:
        output, _ = run.communicate(timeout=200)
    assert run.returncode == 0, output
    port = processes.free_port()
    with _started("tensorboard.main", f"--logdir={tmp_path}", f"--port={port}", "--host=127.0.0.1") as board:
        page = f"http://127.0.0.1:{port}/data/plugin/profile"
        _until(lambda: _get(f"{page}/runs") is not None, board)
        (name,) = json.loads(_get(f"{page}/runs") or "[]")
        trace = json.loads(
            _get(f"{page}/data?run={name}&tag=trace_viewer&host={socket.gethostname()}") or "{}"
        )
        assert {"evaluate", "checkpoint"} <= {event.get("name") for event in trace["traceEvents"]}
        tabs = _look(chromium, tmp_path, f"http://127.0.0.1:{port}/#profile")
        assert "profile" in tabs.lower()
        overview = _look(chromium, tmp_path, f"{page}/index.html?run={name}&tag=overview_page")
        assert name in overview
        assert re.search(r"Average Step Time .* [\d.]+ ms", overview)
        assert "Device type : CPU" in overview


def _look(chromium: str, folder: Path, url: str) -> str:
    """The words of a page once its scripts have run."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}"]
    command = [chromium, *flags, "--virtual-time-budget=30000", "--dump-dom", url]
    page = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    page = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@contextlib.contextmanager
def _started(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(condition: object, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    assert callable(condition)
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.1)


def _rows(folder: Path) -> int:
    file = folder / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            data: bytes = answer.read()
    except OSError:
        return None
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
