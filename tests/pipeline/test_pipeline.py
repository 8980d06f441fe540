"""A tiny pipeline as users run it: what it leaves, what is done again and why, gates, failures, kills."""

from __future__ import annotations

import html
import json
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import versions
from jaxrl.pipeline import digests
from tests import processes

pytestmark = pytest.mark.slow

TINY = """
name: tiny
train:
  config: ppo_mlp
  env: {num_envs: 8}
  network: {hidden_sizes: [8]}
  evaluate: {episodes: 4}
  log: {writers: [jsonl], layers: false}
  notes: "<script>alert(1)</script>"
  num_devices: 1
  steps: 2048
evaluate: {episodes: 8}
visualize: {enabled: false}
"""
DEPLOY = "deploy: {enabled: true, format: numpy, steps: 20}\n"
SEARCH = """
search:
  enabled: true
  space: {ppo.learning_rate: {log: [1.0e-3, 1.0e-2]}}
  trials: 1
  verify: 0
  steps: 512
"""


COMMAND = ("-m", "jaxrl", "pipeline", "tiny.yaml")


def pipeline(folder: Path, text: str, *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "tiny.yaml").write_text(text)
    return processes.run(*COMMAND, *more, cwd=folder)


def place(folder: Path) -> Path:
    (found,) = (folder / "pipelines").glob("tiny_*")
    return found


def rows(folder: Path, title: str) -> list[list[str]]:
    """The cells of a table of the report."""
    page = (place(folder) / "report.html").read_text()
    table = page.partition(f"<h2>{title}</h2>")[2].partition("</table>")[0]
    lines = [re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL) for line in table.split("<tr>")]
    return [[html.unescape(cell).strip() for cell in line] for line in lines if line]


def state(folder: Path) -> dict[str, Any]:
    return json.loads((place(folder) / "state.json").read_text())["stages"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny pipeline has run."""
    folder = tmp_path_factory.mktemp("pipeline")
    done = pipeline(folder, TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_it_leaves_what_its_stages_made(folder: Path) -> None:
    made = place(folder)
    assert (made / "pipeline.yaml").read_text() == TINY
    assert {name: found["state"] for name, found in state(folder).items()} == dict.fromkeys(
        ("train", "evaluate", "report"), "done"
    )
    assert json.loads((made / "train/run/summary.json").read_text())["steps"] == 2048
    assert json.loads((made / "evaluate/episodes.json").read_text())["episodes"] == 8
    log = (made / "tiny.log").read_text()
    assert log.count("train: starts, because it has not been run") == 1
    assert log.count("evaluate: done in") == 1
    assert "training" in (made / "train/train.log").read_text()


def test_the_report_has_results_machine_and_commands(folder: Path) -> None:
    page = (place(folder) / "report.html").read_text()
    assert (place(folder) / "report.pdf").read_bytes().startswith(b"%PDF")
    results = json.loads((place(folder) / "evaluate/episodes.json").read_text())
    assert f"{results['mean_length']:.0f}"[:2] in page
    assert "jaxrl evaluate" in page
    assert "ppo_mlp" in page
    assert versions()["jaxlib"] in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_what_is_done_is_not_done_again(folder: Path) -> None:
    before = state(folder)
    again = pipeline(folder, TINY)
    assert again.returncode == 0
    assert again.stdout.count("done before") == 3
    assert state(folder) == before


def test_an_edit_repeats_its_stage_and_what_depends_on_it(folder: Path) -> None:
    before = state(folder)
    edited = TINY.replace("episodes: 8", "episodes: 6")
    planned = pipeline(folder, edited, "--dry-run").stdout
    assert "evaluate.episodes is 6, was 8" in planned
    assert "report    to run, because evaluate is run again" in planned
    assert state(folder) == before
    done = pipeline(folder, edited)
    assert done.returncode == 0
    assert "train: done before" in done.stdout
    assert "evaluate: starts, because evaluate.episodes is 6, was 8" in done.stdout
    assert "report: starts, because evaluate.episodes.json has changed" in done.stdout
    after = state(folder)
    assert after["train"] == before["train"]
    assert after["evaluate"]["outputs"] != before["evaluate"]["outputs"]
    assert (place(folder) / "earlier/evaluate-1/episodes.json").exists()


def test_a_closed_gate_ends_with_3_and_a_failing_stage_names_its_log(folder: Path) -> None:
    edited = TINY.replace("episodes: 8", "episodes: 6")
    closed = pipeline(folder, f"{edited}{DEPLOY}gates: [evaluate.mean >= 1e6]\n")
    assert closed.returncode == 3
    assert "error: gate `evaluate.mean >= 1e6` failed: " in closed.stderr
    assert "deploy" not in state(folder)
    value = closed.stderr.strip().rpartition(": ")[2]
    assert (["evaluate.mean >= 1e6", value, "failed"], ["deploy", "not run", "-"]) == (
        rows(folder, "Gates")[-1],
        rows(folder, "Stages")[-1],
    )
    failed = pipeline(folder, edited + DEPLOY.replace("numpy", "nunpy"))
    assert failed.returncode == 1
    log = Path("pipelines", place(folder).name, "deploy/deploy.log")
    assert "deploy failed: `--format` (='nunpy') must be one of" in failed.stderr
    assert failed.stderr.rstrip().endswith(f"its log is {log}")
    assert failed.stderr.count("\n") == 1
    assert "must be one of" not in failed.stdout
    assert "must be one of" in (folder / log).read_text()
    assert rows(folder, "Stages")[-1][1] == "failed"
    page = html.unescape((place(folder) / "report.html").read_text())
    assert "<div class=\"problems\">failed:\n<ul><li>deploy: `--format` (='nunpy')" in page
    gated = f"{edited}{DEPLOY}gates: [evaluate.mean not worse than deployed]\n"
    deployed = pipeline(folder, gated)
    assert deployed.returncode == 0, deployed.stderr
    assert [row[:2] for row in rows(folder, "Stages")] == [[name, "done"] for name in state(folder)]
    ((condition, _, outcome),) = rows(folder, "Gates")
    assert (condition, outcome) == ("evaluate.mean not worse than deployed", "passed")
    # That the page was completed after deployment is no reason to write it again.
    assert pipeline(folder, gated).stdout.count("done before") == 4
    assert "nothing is deployed to compare with" in deployed.stdout
    model = folder / "results/models/tiny"
    assert (model / "numpy/policy.npz").exists()
    assert (model / "evaluation.json").read_text() == (place(folder) / "evaluate/episodes.json").read_text()
    again = pipeline(folder, gated, "--only=evaluate")
    assert "p 0.500" in again.stdout


def test_another_pipeline_may_not_use_the_folder(folder: Path) -> None:
    other = pipeline(folder, TINY.replace("name: tiny", "name: other"), f"--workdir={place(folder)}")
    assert other.returncode == 2
    assert "holds the pipeline 'tiny', not 'other'" in other.stderr


def made_by(folder: Path) -> dict[str, str]:
    """Digests of everything that a pipeline makes, but times."""
    found = place(folder)
    places = {
        "search": digests.StageOutput(digests.FILE, f"{found}/search/study/best_config.py"),
        "train": digests.StageOutput(digests.RUN, f"{found}/train/run"),
        "evaluate": digests.StageOutput(digests.RESULT, f"{found}/evaluate/episodes.json"),
        "deploy": digests.StageOutput(digests.FILE, f"{folder}/results/models/tiny/numpy/policy.npz"),
    }
    return {name: str(output.digest()) for name, output in places.items()}


def starts(folder: Path) -> int:
    """How often a stage has started, by the log."""
    return sum(log.read_text().count(": starts") for log in folder.glob("pipelines/*/tiny.log"))


def test_interrupted_it_names_the_flag_that_would_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    printed = tmp_path / "printed.txt"
    with printed.open("w") as output:
        process = processes.start(*COMMAND, "--new", cwd=tmp_path, stdout=output, stderr=output)
    while not starts(tmp_path) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 128 + signal.SIGTERM
    assert "SIGTERM: the same command without --new continues the pipeline" in printed.read_text()


@pytest.mark.long
def test_killed_at_many_moments_it_ends_with_the_same(tmp_path: Path) -> None:
    """The whole process group is not killed: commands notice that the pipeline has gone, and save."""
    text = TINY + SEARCH + DEPLOY
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    for each in (calm, killed):
        each.mkdir()
    assert pipeline(calm, text).returncode == 0
    (killed / "tiny.yaml").write_text(text)
    rng = random.Random(0)
    for _ in range(2):
        with (killed / "output.txt").open("ab") as output:
            process = processes.start(*COMMAND, cwd=killed, stdout=output, stderr=output)
            time.sleep(rng.uniform(2.0, 14.0))
            process.kill()
            process.wait()
    before = starts(killed)
    with (killed / "output.txt").open("ab") as output:
        asked = processes.start(*COMMAND, cwd=killed, stdout=output, stderr=output)
    # Before its first stage starts, imports may be under way, which SIGTERM ends at once (-15).
    while not (is_running := starts(killed) > before) and asked.poll() is None:
        time.sleep(0.05)
    asked.send_signal(signal.SIGTERM)
    assert asked.wait(120) == (128 + signal.SIGTERM if is_running else 0)
    done = pipeline(killed, text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert made_by(killed) == made_by(calm)


@pytest.mark.long
def test_the_shipped_pipeline_of_the_docs_runs_to_its_end(tmp_path: Path) -> None:
    done = processes.succeed("-m", "jaxrl", "pipeline", "cartpole", cwd=tmp_path, timeout=600)
    assert "gate `evaluate.mean >= 450` passed: " in done.stdout
    assert (tmp_path / "results/models/cartpole").is_dir()
