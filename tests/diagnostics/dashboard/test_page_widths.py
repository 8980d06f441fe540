"""The page on wide and narrow screens, which Chromium draws as told through its debugging protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.comparison.run_folders import write_run

ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --remote-debugging-port=0"
pytestmark = [
    pytest.mark.long,  # what the page holds: test_dashboard.py
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
# What is cut has content that is wider than itself.
MEASURE = """JSON.stringify({
  ready: document.documentElement.dataset.ready, drawn: document.querySelectorAll(".chart .main-svg").length,
  page: document.documentElement.scrollWidth - innerWidth,
  below: document.documentElement.scrollHeight - innerHeight,
  problem: document.querySelector("#problem").textContent,
  choice: !!document.querySelector("#view select"),
  cut: [...document.querySelectorAll(".wide, td, th, figure, .bar, h2")]
    .filter((x) => x.scrollWidth > x.clientWidth + 1)
    .map((x) => x.className + " " + x.textContent.slice(0, 40)),
  chart: document.querySelector(".chart")?.getBoundingClientRect().top })"""
# Opens a run and goes back to the curves before the run is there.
CLICKS = """new Promise((resolve) => {
  const answer = fetch, wait = (ms) => new Promise((done) => setTimeout(done, ms));
  window.fetch = async (path, ...rest) => {
    const found = await answer(path, ...rest);
    if (path.startsWith("api/run?")) await wait(400);
    return found;
  };
  document.querySelector("td.name button").click();
  document.querySelector("#tabs button").click();
  setTimeout(resolve, 4000);
})"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(12):
        env = "gymnax:MountainCarContinuous-v0" if seed % 2 else "gymnax:CartPole-v1"
        write_run(
            folder / f"{'a_rather_long_name_' * 9}/of_a_search/trials/{seed:04}",
            [-1234.5, 500.0],
            seed,
            env=env,
        )
    command = [sys.executable, "-m", "jaxrl", "dashboard", str(folder), "--port=0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield re.findall(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        finally:
            process.terminate()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """The port of a browser's debugging protocol."""
    pytest.importorskip("tornado", reason="tornado is not installed")
    command = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={tmp_path}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield re.findall(
                r":(\d+)/", next(line for line in process.stderr if "DevTools listening" in line)
            )[0]
        finally:
            process.terminate()


async def measured(port: str, address: str, width: int, height: int, clicks: str = "") -> Any:
    """What `MEASURE` finds once the page has drawn its pictures, and, with `clicks`, after that script."""
    from tornado.websocket import websocket_connect

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
        tabs = json.loads(answer.read())
    browser = await websocket_connect(next(x["webSocketDebuggerUrl"] for x in tabs if x["type"] == "page"))

    async def ask(method: str, **params: Any) -> Any:
        await browser.write_message(json.dumps({"id": 1, "method": method, "params": params}))
        while "id" not in (answer := json.loads(await browser.read_message() or "{}")):
            assert answer, "the browser has gone"
        return answer["result"]

    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    try:
        await ask("Emulation.setDeviceMetricsOverride", **screen)
        await ask("Page.navigate", url=address)
        for _ in range(100):
            found = await ask("Runtime.evaluate", expression=MEASURE, returnByValue=True)
            if (seen := json.loads(found["result"].get("value", "{}"))).get("ready") and (
                seen["drawn"] or "difference" in address
            ):
                if not clicks:
                    return seen
                await ask("Runtime.evaluate", expression=clicks, awaitPromise=True)
                clicks = ""
            await asyncio.sleep(0.2)
    finally:
        browser.close()
        await browser.read_message()
    raise AssertionError(found)


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
@pytest.mark.parametrize("view", ["", "?tab=run", "?tab=difference"])
def test_nothing_is_cut_and_curves_are_in_the_first_view(
    address: str, width: int, height: int, view: str, browser: str
) -> None:
    seen = asyncio.run(measured(browser, f"{address}/{view}", width, height))
    assert seen["page"] <= 0
    if "difference" not in view:
        assert seen["cut"] == []
    elif width > 900:
        assert seen["below"] <= 0
    if not view:
        assert seen["chart"] < height - 250


def test_an_answer_that_comes_late_leaves_the_view_that_was_chosen_meanwhile(
    address: str, browser: str
) -> None:
    seen = asyncio.run(measured(browser, address, 1280, 900, CLICKS))
    assert seen["problem"] == ""
    assert seen["choice"]
