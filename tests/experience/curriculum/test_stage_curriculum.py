"""The curriculum for a loop of one's own."""

from __future__ import annotations

import json

import pytest

import jaxrl
from jaxrl.config.stages import parse


def test_the_window_of_episodes_alone_decides() -> None:
    stages = (
        {"task": {"obstacles": 0, "goal_distance": [1, 3]}, "success": 0.75, "window": 4},
        {"name": "harder", "success": 0.5, "collisions": 0.5, "cost": "c", "back": 0.3, "window": 2},
        {"epsilon": 0.05},
    )
    curriculum = jaxrl.StageCurriculum(parse([json.dumps(stage) for stage in stages]))
    assert curriculum.current_parameters() == {"obstacles": 0.0, "goal_distance": (1.0, 3.0)}
    assert curriculum.get_current_env_config() == curriculum.current_parameters()
    assert curriculum.current_epsilon() == curriculum.get_current_epsilon() == 0.5
    assert curriculum.progress()["success_rate"] is None
    # Of the last four three succeed only with the fifth.
    changed = [curriculum.update(i, 1.0, success) for i, success in enumerate([0, 0, 1, 1, 1])]
    assert changed == [False, False, False, False, True]
    assert (curriculum.stage, curriculum.current_epsilon()) == (2, 0.3)
    assert not curriculum.update(5, 2.0, True, 1.0)
    assert not curriculum.update(6, 4.0, True, 1.0)  # too many collisions
    assert curriculum.progress() == {
        "stage": 2,
        "num_stages": 3,
        "name": "harder",
        "episode": 6,
        "episodes": 2,
        "success_rate": 1.0,
        "return": 3.0,
        "collisions": 1.0,
    }
    assert [curriculum.update(i, 0.0, False, 1.0) for i in (7, 8)] == [False, True]
    assert curriculum.stage == 1  # it collapsed
    for i in range(6):
        curriculum.update(9 + i, 0.0, True)
    assert (curriculum.stage, curriculum.current_epsilon()) == (3, 0.05)
    assert not curriculum.update(15, 0.0, False)


def test_shipped_ones_by_name() -> None:
    assert jaxrl.StageCurriculum().stages == jaxrl.StageCurriculum.read("navigation").stages
    curriculum = jaxrl.StageCurriculum.read("navigation", start_stage=3)
    assert curriculum.current_parameters()["moving"] == 2
    with pytest.raises(
        jaxrl.ConfigError, match="`name` .='navigatio'. cannot be read.*did you mean `navigation`"
    ):
        jaxrl.StageCurriculum.read("navigatio")
    with pytest.raises(jaxrl.ConfigError, match="`start_stage` .=5. must lie between 1 and 4"):
        jaxrl.StageCurriculum.read("navigation", start_stage=5)
