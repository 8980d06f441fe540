"""The decision matrix, by hand: scaling, weights, moves, ties, and resamples over seeds."""

from __future__ import annotations

import math

import pytest

from jaxrl.experiments import matrix as matrices
from jaxrl.experiments.matrix import COLUMNS, Matrix, Seeds, moved_weights

WEIGHTS = {"success": 0.40, "steps": 0.20, "gap": 0.15, "latency": 0.15, "parameters": 0.10}


def seed(success: float, steps: float, gap: float, latency: float, parameters: float) -> dict[str, float]:
    return dict(zip(COLUMNS, (success, steps, gap, latency, parameters), strict=True))


def decide(results: Seeds, weights: dict[str, float], move: float, **errors: float) -> Matrix:
    """With such standard errors of each measurement, and none of the other columns."""
    own = dict.fromkeys(COLUMNS, 0.0) | errors
    return matrices.decide(results, {name: [own] * len(x) for name, x in results.items()}, weights, move)


def scale_values(values: list[float], more_is_better: bool) -> list[float]:
    return matrices.scale_values(values, [0.0] * len(values), more_is_better)


def test_what_the_measurement_cannot_tell_apart_is_a_tie() -> None:
    # 0.1 of error each: 0.14 of their difference.
    scaled = matrices.scale_values([0.9, 0.77, 0.75, 0.1], [0.1] * 4, True)
    assert scaled == pytest.approx([1, 1, (0.75 - 0.1) / 0.8, 0])
    assert matrices.scale_values([0.0213, 0.0214, math.inf], [0.0002] * 3, False) == [1, 1, 0]
    same = [seed(0.5, 10, 0.1, 0.0213, 100)], [seed(0.5, 10, 0.1, 0.0214, 100)]
    results = dict(zip("ab", same, strict=True))
    assert decide(results, WEIGHTS, 0.1, latency=0.0002).winner == ""
    assert decide(results, WEIGHTS, 0.1).winner == "a"
    # The spread of seeds counts if it is larger: 0.4 and 0.6, and 0.45 and 0.65.
    several = {
        x: [seed(low + i / 5, 10, 0.1, 1, 100) for i in range(2)] for x, low in (("a", 0.4), ("b", 0.45))
    }
    assert decide(several, WEIGHTS, 0.1).winner == ""


def test_columns_are_scaled_from_the_worst_to_the_best() -> None:
    assert scale_values([0.2, 0.8, 0.5], True) == pytest.approx([0, 1, 0.5])
    assert scale_values([0.2, 0.8, 0.5], False) == pytest.approx([1, 0, 0.5])
    assert scale_values([3.0, 3.0], True) == [1.0, 1.0]
    assert scale_values([100.0, math.inf, 300.0], False) == [1.0, 0.0, 0.0]
    assert scale_values([100.0, math.inf], False) == [1.0, 0.0]
    assert scale_values([math.inf, math.inf], False) == [1.0, 1.0]


def test_scores_by_hand() -> None:
    results = {
        "big": [seed(0.9, 100, 0.2, 4.0, 1000)],
        "small": [seed(0.5, math.inf, 0.1, 1.0, 100)],
        "middle": [seed(0.7, 200, 0.1, 2.5, 550)],
    }
    matrix = decide(results, WEIGHTS, 0.1)
    scores = {row.name: row.score for row in matrix.rows}
    assert scores["big"] == pytest.approx(0.40 + 0.20)
    assert scores["small"] == pytest.approx(0.15 + 0.15 + 0.10)
    # Success half way, steps the worst of those reached, gap the best, latency and parameters half way.
    assert scores["middle"] == pytest.approx(0.20 + 0.15 + 0.075 + 0.05)
    assert [row.name for row in matrix.rows] == ["big", "middle", "small"]
    assert matrix.winner == "big"
    assert matrix.bootstrap == {}
    assert matrix.to_json()["rows"][2]["values"]["steps"] is None


def test_the_weights_of_the_others_make_up_for_one_that_moves() -> None:
    moved = moved_weights(WEIGHTS, "success", 0.10)
    assert moved["success"] == pytest.approx(0.5)
    assert moved["steps"] == pytest.approx(0.2 * 0.5 / 0.6)
    assert sum(moved.values()) == pytest.approx(1)
    assert moved_weights(WEIGHTS, "parameters", -0.5)["parameters"] == 0
    alone = dict.fromkeys(COLUMNS, 0.0) | {"gap": 1.0}
    assert moved_weights(alone, "gap", -0.2)["steps"] == pytest.approx(0.05)


def test_a_winner_that_a_weight_decides() -> None:
    # 0.40 + 0.15 against 0.20 + 0.15 + 0.10: ahead by 0.10, which 0.10 of success less undoes.
    close = {"a": [seed(1.0, 2, 0.0, 2, 2)], "b": [seed(0.0, 1, 0.5, 1, 1)]}
    matrix = decide(close, WEIGHTS, 0.1)
    assert matrix.winner == "a"
    assert not matrix.is_stable
    assert matrix.moved["success -0.10"] == "b"
    assert matrix.moved["success +0.10"] == "a"
    clear = {"a": [seed(1.0, 1, 0.0, 1, 1)], "b": [seed(0.0, 2, 0.5, 2, 2)]}
    assert decide(clear, WEIGHTS, 0.1).is_stable


def test_equal_scores_have_no_winner() -> None:
    same = [seed(0.5, 10, 0.1, 1, 100)]
    matrix = decide({"a": same, "b": same}, WEIGHTS, 0.1)
    assert matrix.winner == ""
    assert matrix.is_stable


def test_resamples_say_how_sure_the_first_is() -> None:
    low, high = seed(0.0, 10, 0.1, 1, 100), seed(1.0, 10, 0.1, 1, 100)
    shares = decide({"a": [high, high], "b": [low, high]}, WEIGHTS, 0.1).bootstrap
    # Of b's four draws one has both seeds high, and then both are first.
    assert shares["a"] == pytest.approx(0.75 + 0.25 / 2, abs=0.03)
    assert shares["a"] + shares["b"] == pytest.approx(1)
