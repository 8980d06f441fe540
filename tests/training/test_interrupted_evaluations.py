"""A signal where an evaluation is due: it is made after the resume, once, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import Config, resolve
from jaxrl.reporting.writers import CsvWriter, JsonlWriter, MultiWriter, Writer
from jaxrl.runs.folder import RunFolder
from jaxrl.runs.signals import Interruption
from jaxrl.training.assembly import Assembly
from jaxrl.training.trainer import Trainer
from tests.programs.test_make_train import tiny_config

STEPS = 64  # of an iteration
ITERATIONS = 3


class StopsAtEvaluation(Writer):
    """Sends a signal when an evaluation begins, unless the run owed it from before."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._trained = False

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._trained |= "time/steps_per_second" in scalars

    def status(self, phase: str) -> None:
        if phase == "evaluating" and self._trained:
            self._interruption.adopt(15)


def config(**overrides: Any) -> Config:
    settings = {
        "stop.steps": ITERATIONS * STEPS,
        "log.every_steps": STEPS,
        "evaluate.every_steps": STEPS,
        "evaluate.episodes": 400,  # long enough for the signal to come first
        "checkpoint.every_steps": 2 * STEPS,
        "checkpoint.every_seconds": 0,
        "ppo.schedule": "constant",
    }
    return resolve(tiny_config(**settings | overrides), 1)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of training and of evaluations, without times."""
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "host", "device", "checkpoint")
    kept = [{name: x for name, x in row.items() if not name.startswith(timed)} for row in read]
    return [row for row in kept if row.keys() != {"step"}]


def train(folder: Path, stops: bool) -> dict[str, Any]:
    run = RunFolder(str(folder), keep=1)
    run.create()
    interruption = Interruption()
    files = [JsonlWriter(folder / "metrics.jsonl"), CsvWriter(folder / "metrics.csv")]
    writer = MultiWriter([*files, *([StopsAtEvaluation(interruption)] if stops else [])])
    resolved = config()
    trainer = Trainer(resolved, run, writer, Assembly.build(resolved, interruption=interruption))
    try:
        return trainer.fit()
    finally:
        writer.close()
        run.checkpoints.close()


def owes(folder: Path) -> bool:
    checkpoints = RunFolder(str(folder)).checkpoints
    return bool(checkpoints.meta(checkpoints.latest_step() or 0)["owes_evaluation"])


def best(folder: Path, summary: Mapping[str, Any]) -> tuple[Any, ...]:
    return (summary["best_return"], summary["best_step"], RunFolder(str(folder)).checkpoints.best_step())


@pytest.mark.slow
def test_a_run_stopped_wherever_an_evaluation_is_due_makes_them_all(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    expected = train(whole, stops=False)
    postponed = []
    for iteration in range(1, ITERATIONS + 1):
        summary = train(stopped, stops=True)
        # An evaluation may end before the signal is seen; then the last one ends the run.
        assert summary["stop_reason"] == "SIGTERM" or iteration == ITERATIONS
        assert summary["steps"] == iteration * STEPS
        postponed.append(owes(stopped))
    assert any(postponed)
    found = train(stopped, stops=False)
    assert rows(stopped) == rows(whole)
    assert sum("eval/return" in row for row in rows(stopped)) == ITERATIONS
    assert len((stopped / "metrics.csv").read_text().splitlines()) >= 2 * ITERATIONS + 1
    assert best(stopped, found) == best(whole, expected)
    # Once more: the last one is there now, and is written once.
    train(stopped, stops=False)
    assert rows(stopped) == rows(whole)


def test_an_evaluation_that_is_made_again_replaces_its_row(tmp_path: Path) -> None:
    for writer_of, name in ((JsonlWriter, "rows.jsonl"), (CsvWriter, "rows.csv")):
        path = tmp_path / name
        for value in (1.0, 2.0):
            writer = writer_of(path)
            if value == 2.0:
                writer.resume_from(64)
            else:
                writer.write(64, {"loss": 3.0})
            writer.write(64, {"eval/return": value})
            writer.close()
        text = path.read_text()
        assert sum(line.startswith(('{"step": 64,', "64,")) for line in text.splitlines()) == 2, text
        assert "2.0" in text
        assert "3.0" in text
