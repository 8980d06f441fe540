"""Stages of a curriculum: files, and what is wrong with them in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxrl.config import (
    ConfigError,
    changed_fields,
    check_config,
    default_config,
    from_json,
    resolve,
    to_json,
    training_stages,
)
from jaxrl.config.files import shipped_names
from jaxrl.config.resolution import stage_configs
from jaxrl.config.stages import parse, read_file

EASY = {"task": {"obstacles": 0, "goal_distance": [1, 3], "category": "simple"}, "success": 0.8}


def test_a_file_says_what_all_of_its_stages_have(tmp_path: Path) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(json.dumps({"window": 50, "stages": [EASY, {"window": 60, "name": "all"}]}))
    first, second = parse(read_file(str(file)))
    assert first.task == {"obstacles": 0.0, "goal_distance": (1.0, 3.0), "category": ("simple",)}
    assert (first.window, first.success, first.name) == (50, 0.8, "stage 1")
    assert (second.window, second.success, second.name) == (60, None, "all")
    assert (first.least_steps, first.most_steps, first.earlier) == (200_000, None, 0.2)


@pytest.mark.parametrize("name", ["navigation", "platformer"])
def test_shipped_stages(name: str) -> None:
    assert name in shipped_names("curricula")
    stages = parse(read_file(name))
    assert [stage.success for stage in stages] == [0.80, 0.75, 0.70, None]
    assert [stage.collisions for stage in stages] == [None, None, 0.2, None]
    assert all((x.window, x.least_steps, x.earlier) == (200, 200_000, 0.2) for x in stages)


WRONG = [
    ({"success": 1.2}, "stage 2: `success` (=1.2) must lie between 0 and 1"),
    ({"sucess": 1}, "stage 2: `sucess` is no field of a stage; did you mean `success`?"),
    (7, "stage 2 (=7) must hold fields, such as `task` and `success`"),
    ({"task": 3}, "stage 2: `task` (=3) must hold fields of the environment's tasks"),
    ({"task": {"x": [3, 1]}}, "stage 2: `task.x` (=[3, 1]) must be a range whose low end comes first"),
    (
        {"task": {"x": [1, 2, 3]}},
        "stage 2: `task.x` (=[1, 2, 3]) must be a number, a range [low, high] or names",
    ),
    ({"task": {"x": True}}, "stage 2: `task.x` (=True) must be a number, a range [low, high] or names"),
    ({"collisions": 1}, "stage 2: `collisions` needs `cost`, the report of the environment that counts them"),
    ({"most_steps": 5}, "stage 2: `most_steps` (=5) must be at least `least_steps` (=200000)"),
    ({"window": 0}, "stage 2: `window` (=0) must be at least 1"),
    ({}, "stage 2: needs an end: `success`, `return`, `collisions` or `most_steps`"),
]


@pytest.mark.parametrize(("stage", "message"), WRONG)
def test_what_is_wrong_names_stage_and_field(stage: object, message: str, tmp_path: Path) -> None:
    stages = [EASY, stage, EASY]
    with pytest.raises(ConfigError) as error:
        parse([json.dumps(x) for x in stages])
    assert str(error.value) == f"`curriculum.stages`: {message}"
    file = tmp_path / "stages.yaml"
    file.write_text(json.dumps({"stages": stages}))
    config = default_config()
    config.curriculum.file = str(file)
    with pytest.raises(ConfigError) as error:
        check_config(config)
    assert str(error.value).startswith("`curriculum.file` (='")
    assert str(error.value).endswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: []", "must hold `stages`, a list of them"),
        ("[", "must be YAML or JSON"),
        ("name: x\nstages: [{}]", "`name` is no field of a stage"),
        ("window: 1.5\nstages: [{}]", "`window` (=1.5) must be an integer"),
        ("stages: [{cost: a}, {cost: b}]", "stage 1: needs an end: `success`, `return`"),
        ("success: 1\nstages: [{cost: a}, {cost: b}]", "`cost` must be the same in all stages, not a and b"),
    ],
)
def test_what_is_wrong_with_a_file(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_file(str(file))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_keeps_the_stages_that_its_file_held(tmp_path: Path) -> None:
    file = tmp_path / "stages.yaml"
    file.write_text(json.dumps({"stages": [EASY]}))
    config = default_config()
    config.env.name = "jaxrl:Navigation"
    config.curriculum.file = str(file)
    there = check_config(config)
    assert there.curriculum.file == ""
    assert there.curriculum.is_used
    file.write_text(json.dumps({"stages": [{**EASY, "success": 0.9}]}))
    (difference,) = changed_fields(there, check_config(config))
    assert difference.startswith("`curriculum.stages` (=")
    file.unlink()
    assert from_json(to_json(there)) == there


def test_a_plain_list_is_a_stage_for_each_difficulty() -> None:
    config = default_config()
    config.env.name = "jaxrl:Navigation"
    config.curriculum.difficulties = (0.1, 1.0)
    config.curriculum.iterations = 3
    found = resolve(config, 1)
    first, second = parse(found.curriculum.stages)
    steps = 3 * found.steps_per_iteration
    assert (first.name, first.task, first.earlier) == ("difficulty 0.1", {"difficulty": 0.1}, 0.0)
    assert (second.name, second.task) == ("difficulty 1", {"difficulty": 1.0})
    assert (first.least_steps, first.most_steps) == (steps, steps)
    # A run that is resumed has the stages alone.
    assert from_json(to_json(found)) == found
    assert not found.curriculum.difficulties


def test_an_environment_without_such_a_task_is_made_anew_for_each_difficulty() -> None:
    config = default_config()
    config.env.name = "gymnax:CartPole-v1(length=0.4)"
    config.stop.steps = 100_000_000
    config.curriculum.update(difficulties=(0.1, 1.0, 2.5), parameter="masspole", iterations=3, start_stage=2)
    found = resolve(config, 1)
    assert not found.curriculum.is_used
    one, other = stage_configs(found)
    assert one.env.name == "gymnax:CartPole-v1(length=0.4, masspole=1)"
    assert other.env.name == "gymnax:CartPole-v1(length=0.4, masspole=2.5)"
    first, second = training_stages.parse(found)
    assert (first.name, first.iterations) == ("masspole 1", 3)
    assert (second.name, second.is_open) == ("masspole 2.5", True)
    # A run that is resumed has the stages alone.
    assert from_json(to_json(found)) == found


def test_a_field_of_the_tasks_comes_before_an_argument() -> None:
    config = default_config()
    config.env.name = "jaxrl:Navigation(max_obstacles=10)"
    # An argument as well.
    config.curriculum.update(difficulties=(0.0, 4.0), parameter="obstacles")
    found = resolve(config, 1)
    assert [stage.task for stage in parse(found.curriculum.stages)] == [{"obstacles": 0}, {"obstacles": 4}]
    assert not found.stages
    config.curriculum.parameter = "obstacle"
    with pytest.raises(ConfigError, match=r"unknown argument .*; its tasks have .*obstacles, .*difficulty$"):
        resolve(config, 1)


def test_difficulties_end_within_an_int32() -> None:
    config = default_config()
    config.env.name = "jaxrl:Navigation"
    config.curriculum.update(difficulties=(0.5,), iterations=2**30)
    with pytest.raises(ConfigError, match=r"^`curriculum.iterations` \(=1073741824\) of "):
        resolve(config, 1)


def test_a_file_says_what_the_environment_needs(tmp_path: Path) -> None:
    config = default_config()
    config.env.name = "jaxrl:Navigation"
    config.curriculum.file = "auto"
    resolved = resolve(config, 1)
    assert resolved.env.name == "jaxrl:Navigation(max_obstacles=10,obstacles=10,sensor_noise=0.05)"
    assert len(resolved.curriculum.stages) == 4
    # Arguments of one's own stay, and so do other environments.
    config.env.name = "jaxrl:Navigation(max_obstacles=12)"
    assert resolve(config, 1).env.name == config.env.name
    file = tmp_path / "mine.yaml"
    file.write_text("environment: 3\nstages: [{}]\n")
    config.curriculum.file = str(file)
    with pytest.raises(ConfigError, match=r"`environment` \(=3\) must be a name$"):
        resolve(config, 1)


def test_only_the_first_stages() -> None:
    config = default_config()
    config.env.name = "jaxrl:Navigation(max_obstacles=10)"
    config.curriculum.update(file="auto", num_stages=2)
    assert [stage.name for stage in parse(resolve(config, 1).curriculum.stages)] == [
        "empty room",
        "few obstacles",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"file": "navigatio"}, "cannot be read: No such file or directory; did you mean `navigation`?"),
        ({"file": "navigation", "start_stage": 5}, "`curriculum.start_stage` (=5) must be at most 4"),
        ({"start_stage": 2}, "`curriculum.start_stage` (=2) must be at most 1"),
        ({"file": "navigation", "stages": ("{}",)}, "must be empty where `curriculum.stages` is given"),
        ({"file": "navigation", "name": "a:B"}, "must be empty where `curriculum.name` is given"),
        ({"file": "navigation", "difficulties": (0.5,)}, "must be empty where `curriculum.difficulties` is"),
        ({"difficulties": (0.5,), "name": "a:B"}, "must be empty where `curriculum.name` is given"),
        (
            {"difficulties": (0.5,), "parameter": "masspol"},
            "`curriculum.parameter` (='masspol'): unknown argument of gymnax:CartPole-v1 'masspol'; did you",
        ),
        (
            {"difficulties": (0.5,), "parameter": "masspole", "start_stage": 2},
            "`curriculum.start_stage` (=2) must be at most 1",
        ),
        ({"file": "auto"}, "no stages are shipped for gymnax:CartPole-v1; there are navigation, platformer"),
        ({"file": "navigation", "num_stages": 2, "start_stage": 3}, "(=3) must be at most 2"),
        (
            {"name": "stage"},
            "`curriculum.name` (='stage') must be stages, plr, ",
        ),
        ({"stages": ("{",)}, "`curriculum.stages`: stage 1 must be JSON"),
        ({"file": "navigation"}, "`env.name` (='gymnax:CartPole-v1') takes no tasks"),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, object], message: str) -> None:
    config = default_config()
    for name, value in fields.items():
        config.curriculum[name] = value
    with pytest.raises(ConfigError) as error:
        resolve(config, 1)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
