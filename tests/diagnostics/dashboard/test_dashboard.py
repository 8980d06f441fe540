"""The dashboard as a process of its own, asked over HTTP, and its page in Chromium where that is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jaxrl.reporting.pages.page import episode_page
from tests.commands.refusals import refused
from tests.comparison.run_folders import write_run

ROOT = Path(__file__).parents[3]
HOSTILE = "<img src=x onerror=alert(1)>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True)
class Dashboard:
    address: str
    folder: Path

    def get(self, path: str, *values: tuple[str, str], **headers: str) -> tuple[int, bytes, Any]:
        """(status, body, headers) of a request."""
        url = f"{self.address}{path}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers

    def json(self, path: str, *values: tuple[str, str]) -> Any:
        status, body, _ = self.get(path, *values)
        assert status == 200, body
        return json.loads(body)


def runs_of(folder: Path) -> None:
    for seed in range(3):
        write_run(folder / f"slow/{seed}", [1.0 + seed, 2.0 + seed, 3.0 + seed], seed)
    fast = write_run(folder / "fast/0", [5.0, 7.0], rate=1e-2)
    rows = [json.loads(line) for line in (fast / "metrics.jsonl").read_text().splitlines()]
    staged = [row | {"stage": row["step"] // 1000} for row in rows]
    (fast / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in staged))
    stopped = write_run(folder / "stopped", [1.0], finished=False)
    (stopped / "train.log").write_text("2026-01-01 INFO x: stopped at step 1000: SIGTERM\n")
    failed = write_run(folder / "failed", [1.0], finished=False)
    log = ["<script>alert(2)</script>", *(f'started as {{"command": "jaxrl train {x}"}}' for x in "ab")]
    (failed / "train.log").write_text("".join(f"2026-01-01 INFO x: {line}\n" for line in log))
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    for lost in (stopped, failed):
        (lost / ".lock").write_text(f"process {gone.stdout.strip()} on {socket.gethostname()}")
    alive = write_run(folder / "running", [1.0], finished=False)
    (alive / ".lock").write_text(f"process {os.getpid()} on {socket.gethostname()}")
    model = write_run(folder / "registry/cart/versions/1", [1.0])
    saved = write_run(folder / "saved", [1.0], finished=False)
    for left in (model, saved):
        (left / "metrics.jsonl").unlink()
    (model / "model.json").write_text("{}")
    (saved / "checkpoints/512").mkdir(parents=True)
    hostile = write_run(folder / HOSTILE, [1.0])
    (hostile / "evaluations").mkdir()
    rows = {"episodes": 4, "success_rate": 0.5, "return_mean": 1.5}
    suite = {"suite": HOSTILE, "step": 3, "modes": {"greedy": {"all": rows, "categories": {HOSTILE: rows}}}}
    (hostile / "evaluations/suite-x.json").write_text(json.dumps(suite))
    (hostile / "film.gif").write_bytes(b"GIF89a")
    step = {
        "picture": "",
        "action": [1],
        "value": 0.5,
        "choice": {"probability": [0.1, 0.9]},
        "reward": 1,
        "reports": {},
    }
    page = episode_page({"run": HOSTILE}, [{**step, "carry": [0.5]}, {**step, "carry": [-0.5]}])
    injected = page.replace("</body>", "<script>document.title = 'injected'</script></body>")
    (hostile / "evaluations/episode.html").write_text(injected)
    study = folder / "study"
    write_run(study / "trials/0000", [1.0])
    lines = [
        {"number": 0, "values": {"ppo.gamma": 0.9}, "state": state, "score": 1.0}
        for state in ("running", "done")
    ]
    (study / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    copy = {"step": 500, "member": "0001", "source": "0000", "score": 1.0, "source_score": 9.0, "values": {}}
    (study / "lineage.jsonl").write_text(json.dumps(copy) + "\n")


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder = tmp_path_factory.mktemp("runs")
    runs_of(folder)
    with subprocess.Popen(
        [sys.executable, "-m", "jaxrl", "dashboard", str(folder), "--port=0", "--interval=0.2"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            address = re.findall(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            yield Dashboard(address[0], folder)
        finally:
            process.terminate()
        assert process.wait(timeout=20) in (0, -signal.SIGTERM)


def test_the_table_has_all_runs_with_their_states(dashboard: Dashboard) -> None:
    found = dashboard.json("/api/runs")
    states = {row["name"]: row["state"] for row in found["runs"]}
    assert found["total"] == len(states) == 10
    assert states["saved"] == "saved"
    assert states["slow/0"] == "finished"
    assert states["stopped"] == "stopped"
    assert states["failed"] == "failed"
    assert states["running"] == "running"
    (row,) = dashboard.json("/api/runs", ("q", "learning_rate=0.01"))["runs"]
    assert (row["name"], row["eval"], row["return"], row["step"]) == ("fast/0", 7.0, 3.5, 2000)
    (saved,) = dashboard.json("/api/runs", ("q", "state=saved"))["runs"]
    assert (saved["step"], saved["share"]) == (512, None)


def test_seeds_are_one_curve_and_other_settings_another(dashboard: Dashboard) -> None:
    names = [("run", f"slow/{seed}") for seed in range(3)] + [("run", "fast/0"), ("run", "nowhere")]
    slow, fast = dashboard.json("/api/curves", ("metric", "eval/return"), *names)
    assert slow["runs"] == ["slow/0", "slow/1", "slow/2"]
    assert slow["label"] == "slow (3 seeds): ppo.learning_rate=0.001, stop.steps=3000"
    assert fast["label"] == "fast/0: ppo.learning_rate=0.01, stop.steps=2000"
    assert (slow["mean"][0], slow["low"][0], slow["high"][0]) == (2.0, 1.0, 3.0)
    assert (slow["mean"][-1], slow["low"][-1], slow["high"][-1]) == (4.0, 3.0, 5.0)
    assert (fast["steps"], fast["mean"]) == ([1000.0, 2000.0], [5.0, 7.0])
    assert (slow["stage_ends"], fast["stage_ends"]) == ([], [1000.0])
    difference = dashboard.json("/api/difference", ("run", "slow/0"), ("run", "fast/0"))
    values = {row["field"]: row["values"] for row in difference["rows"]}
    assert values["ppo.learning_rate"] == [0.001, 0.01]
    assert "eval/return" in dashboard.json("/api/metrics", names[0])


def test_runs_are_seen_as_they_are_written(dashboard: Dashboard) -> None:
    file = dashboard.folder / "running/metrics.jsonl"
    with file.open("a") as stream:
        stream.write(json.dumps({"step": 9000, "time": time.time(), "eval/return": 77.0}) + "\n")
    deadline = time.monotonic() + 20
    while dashboard.json("/api/runs", ("q", "state=running"))["runs"][0]["eval"] != 77.0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (curve,) = dashboard.json("/api/curves", ("metric", "eval/return"), ("run", "running"))
    assert curve["mean"] == [1.0, 77.0]


def test_the_parts_of_a_run(dashboard: Dashboard) -> None:
    found = dashboard.json("/api/run", ("name", HOSTILE))
    assert [row["category"] for row in found["suites"][0]["rows"]] == [HOSTILE, "all"]
    assert found["films"] == ["film.gif"]
    assert found["config"]["ppo.learning_rate"] == 0.001
    failed = dashboard.json("/api/run", ("name", "failed"))
    assert failed["log"][0] == "2026-01-01 INFO x: <script>alert(2)</script>"
    assert failed["command"] == "jaxrl train b"  # that of the last resume
    assert dashboard.json("/api/searches") == ["study"]
    search = dashboard.json("/api/search", ("name", "study"))
    assert search["trials"][0]["state"] == "done"
    assert (search["copies"][0]["member"], search["copies"][0]["source"]) == ("0001", "0000")
    status, body, headers = dashboard.get("/film", ("run", HOSTILE), ("name", "film.gif"))
    assert (status, body, headers["Content-Type"]) == (200, b"GIF89a", "image/gif")
    assert found["episodes"] == ["episode.html"]
    status, body, headers = dashboard.get("/episode", ("run", HOSTILE), ("name", "episode.html"))
    assert (status, b"injected" in body) == (200, True)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; script-src 'sha256-")


@pytest.mark.parametrize(
    ("path", "values", "status"),
    [
        ("/film", [("run", HOSTILE), ("name", "../failed/train.log")], 404),
        ("/film", [("run", "../.."), ("name", "film.gif")], 404),
        ("/episode", [("run", HOSTILE), ("name", "film.gif")], 404),
        ("/api/run", [("name", "../../etc")], 404),
        ("/api/run", [("name", "x" * 20_001)], 400),
        ("/api/search", [("name", "../study")], 200),
        ("/app.js/../server.py", [], 404),
        ("/style.css%00", [], 404),
    ],
)
def test_requests_lead_nowhere_else(
    dashboard: Dashboard, path: str, values: list[tuple[str, str]], status: int
) -> None:
    found, body, _ = dashboard.get(path, *values)
    assert found == status
    answer = json.loads(body)
    assert answer["trials"] == [] if status == 200 else set(answer) == {"error"}


def test_it_only_reads_and_answers_this_machine_alone(dashboard: Dashboard) -> None:
    status, _, headers = dashboard.get("/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert dashboard.get("/api/runs", Host="evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE"):
        request = urllib.request.Request(f"{dashboard.address}/api/runs", method=method, data=b"{}")
        with pytest.raises(urllib.error.HTTPError, match="405"):
            urllib.request.urlopen(request, timeout=30)
    port = int(dashboard.address.rpartition(":")[2])
    other = next(
        (a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None) if not a[4][0].startswith("127.")),
        None,
    )
    if other is not None:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((other, port), timeout=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "`DIR` (='nowhere') is no folder"),
        (["a", "b"], "one `DIR` is to be named"),
        ([".", "--port=70000"], "port"),
        ([".", "--host=203.0.113.7"], "`--host` (=203.0.113.7), `--port` (=8050):"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "dashboard", *arguments)


FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=400,800 --virtual-time-budget=8000 --dump-dom"
)


def dom(address: str, profile: Path) -> str:
    """The page as it is once its scripts have run, in Chromium."""
    command = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={profile}", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.parametrize(
    ("tab", "expected"),
    [
        ("curves", ["eval/return", "stroke-dasharray: 9px, 9px"]),
        ("difference", ["ppo.learning_rate"]),
        ("run", ["train.log", "<iframe", "<figure", "ppo.learning_rate", "configuration"]),
        ("searches", ["ppo.gamma", "step 500: 0001 (1) goes on from 0000 (9)"]),
    ],
)
def test_the_page_shows_names_as_text(
    dashboard: Dashboard, tab: str, expected: list[str], tmp_path: Path
) -> None:
    """A hostile name stays text, in the table and in each view, and scripts nothing."""
    chosen = [("run", HOSTILE), ("run", "fast/0"), ("open", HOSTILE), ("tab", tab)]
    page = dom(f"{dashboard.address}/?{urllib.parse.urlencode(chosen)}", tmp_path)
    assert 'data-ready="yes"' in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert '<img src="x"' not in page
    assert "10 of 10 runs" in page
    for words in expected:
        assert words in page


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_an_episode_is_played_and_runs_no_script_of_others(dashboard: Dashboard, tmp_path: Path) -> None:
    values = urllib.parse.urlencode([("run", HOSTILE), ("name", "episode.html")])
    page = dom(f"{dashboard.address}/episode?{values}", tmp_path)
    assert "step 0 of 1, reward 1" in page
    assert "<title>Episode</title>" in page
