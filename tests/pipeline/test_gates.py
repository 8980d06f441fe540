"""Gates: thresholds, and the one-sided test against what is deployed, beside numbers by hand."""

from __future__ import annotations

import pytest

from jaxrl.config.errors import RunError
from jaxrl.pipeline.gates import GateClosed, StageGate

RATE = StageGate.read("evaluate.success_rate not worse than deployed")
MEAN = StageGate.read("evaluate.mean not worse than deployed")


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
    ],
)
def test_thresholds(line: str, value: float, is_open: bool) -> None:
    gate = StageGate.read(f"evaluate.mean {line}")
    if is_open:
        assert "is open" in gate.check({"mean": value}, None)
    else:
        with pytest.raises(GateClosed, match="is closed") as caught:
            gate.check({"mean": value}, None)
        assert caught.value.exit_code == 3
        assert isinstance(caught.value, RunError)


def test_an_unknown_result_closes_it() -> None:
    with pytest.raises(GateClosed, match="did you mean `success_rate`"):
        StageGate.read("evaluate.sucess_rate >= 0").check({"success_rate": 1.0, "mean": 3.0}, None)


def test_success_against_the_deployed_model() -> None:
    """85 and 92 of 100: z = -0.07 / sqrt(0.885 * 0.115 * 0.02) = -1.551, p 0.060; with 84 -1.741, p 0.041."""
    deployed = {"success_rate": 0.92, "episodes": 100.0, "mean": 1.0, "std": 1.0}
    assert "p 0.060" in RATE.check({"success_rate": 0.85, "episodes": 100.0}, deployed)
    with pytest.raises(GateClosed, match=r"p 0\.041"):
        RATE.check({"success_rate": 0.84, "episodes": 100.0}, deployed)
    assert "nothing is deployed" in RATE.check({"success_rate": 0.1, "episodes": 100.0}, None)
    perfect = {"success_rate": 1.0, "episodes": 50.0}
    assert "is open" in RATE.check(perfect, perfect)


def test_the_pooled_rate_is_over_all_episodes() -> None:
    """86 of 100 and 376 of 400: z = -0.08 / sqrt(0.924 * 0.076 * 0.0125) = -2.700, p 0.0035."""
    deployed = {"success_rate": 0.94, "episodes": 400.0}
    with pytest.raises(GateClosed, match=r"p 0\.003"):
        RATE.check({"success_rate": 0.86, "episodes": 100.0}, deployed)


def test_returns_against_the_deployed_model() -> None:
    """Means 10 and 11 with deviations 3 and 4, 100 and 64 episodes: z = -1 / sqrt(0.09 + 0.25) = -1.715."""
    deployed = {"mean": 11.0, "std": 4.0, "episodes": 64.0}
    with pytest.raises(GateClosed, match=r"p 0\.043"):
        MEAN.check({"mean": 10.0, "std": 3.0, "episodes": 100.0}, deployed)
    assert "p 0.123" in MEAN.check({"mean": 10.324, "std": 3.0, "episodes": 100.0}, deployed)
    constant = {"mean": 500.0, "std": 0.0, "episodes": 10.0}
    with pytest.raises(GateClosed, match=r"p 0\.000"):
        MEAN.check({"mean": 499.0, "std": 0.0, "episodes": 10.0}, constant)
