"""Gates: thresholds, and the one-sided test against what is deployed, beside numbers by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config.text import number
from jaxrl.pipeline.gates import GateOutcome, StageGate, results_of

RATE = StageGate.read("evaluate.success_rate not worse than deployed")
MEAN = StageGate.read("evaluate.mean not worse than deployed")


def passed(found: GateOutcome, value: str) -> bool:
    return found.passed and value in found.value


def failed(found: GateOutcome, value: str) -> bool:
    return not found.passed and value in found.value


def test_a_gate_is_read() -> None:
    gate = StageGate.read("  evaluate.navigation.full room.success_rate   >=  9e-1 ")
    assert (gate.stage, gate.metric) == ("evaluate", "navigation.full room.success_rate")
    assert (gate.comparison, gate.threshold) == (">=", 0.9)


@pytest.mark.parametrize(
    ("line", "value", "is_open"),
    [
        (">= 0.5", 0.5, True),
        ("> 0.5", 0.5, False),
        ("<= -1", -1.0, True),
        ("< 3", 3.0, False),
        ("<4", 3.0, True),
        (">= 0.5", float("inf"), False),
    ],
)
def test_thresholds(line: str, value: float, is_open: bool) -> None:
    gate = StageGate.read(f"evaluate.mean {line}")
    found = gate.check({"mean": value}, None)
    assert (found.passed, found.outcome) == (is_open, "passed" if is_open else "failed")
    assert str(found) == f"gate `{gate.text}` {found.outcome}: {number(value)}"


def test_an_unknown_result_closes_it() -> None:
    gate = StageGate.read("evaluate.sucess_rate >= 0")
    found = gate.check({"success_rate": 1.0, "mean": 3.0}, None)
    assert not found.passed
    assert "did you mean `success_rate`" in found.value


@pytest.mark.parametrize(("mode", "rate"), [("greedy", 0.25), ("sampled", 0.75), ("other", 0.25)])
def test_suites_are_judged_in_the_mode_of_the_episodes(tmp_path: Path, mode: str, rate: float) -> None:
    """In which the model will act, whichever a suite has first."""
    folder = tmp_path / "evaluate"
    folder.mkdir()
    rates = {"greedy": 0.25, "sampled": 0.75}
    rows = {name: {"categories": {}, "all": {"success_rate": x}} for name, x in rates.items()}
    (folder / "episodes.json").write_text(json.dumps({"mode": mode, "mean": 3.0}))
    (folder / "suite-1.json").write_text(json.dumps({"suite": "maze", "modes": rows}))
    assert results_of("evaluate", str(tmp_path)) == {"mean": 3.0, "maze.success_rate": rate}


def test_success_against_the_deployed_model() -> None:
    """85 and 92 of 100: z = -0.07 / sqrt(0.885 * 0.115 * 0.02) = -1.551, p 0.060; with 84 -1.741, p 0.041."""
    deployed = {"success_rate": 0.92, "episodes": 100.0, "mean": 1.0, "std": 1.0}
    assert passed(RATE.check({"success_rate": 0.85, "episodes": 100.0}, deployed), "p 0.060")
    assert failed(RATE.check({"success_rate": 0.84, "episodes": 100.0}, deployed), "p 0.041")
    assert passed(RATE.check({"success_rate": 0.1, "episodes": 100.0}, None), "nothing is deployed")
    perfect = {"success_rate": 1.0, "episodes": 50.0}
    assert passed(RATE.check(perfect, perfect), "1.000 against 1.000")


def test_the_pooled_rate_is_over_all_episodes() -> None:
    """86 of 100 and 376 of 400: z = -0.08 / sqrt(0.924 * 0.076 * 0.0125) = -2.700, p 0.0035."""
    deployed = {"success_rate": 0.94, "episodes": 400.0}
    assert failed(RATE.check({"success_rate": 0.86, "episodes": 100.0}, deployed), "p 0.003")


def test_returns_against_the_deployed_model() -> None:
    """Means 10 and 11 with deviations 3 and 4, 100 and 64 episodes: z = -1 / sqrt(0.09 + 0.25) = -1.715."""
    deployed = {"mean": 11.0, "std": 4.0, "episodes": 64.0}
    assert failed(MEAN.check({"mean": 10.0, "std": 3.0, "episodes": 100.0}, deployed), "p 0.043")
    assert passed(MEAN.check({"mean": 10.324, "std": 3.0, "episodes": 100.0}, deployed), "p 0.123")
    constant = {"mean": 500.0, "std": 0.0, "episodes": 10.0}
    assert failed(MEAN.check({"mean": 499.0, "std": 0.0, "episodes": 10.0}, constant), "p 0.000")
