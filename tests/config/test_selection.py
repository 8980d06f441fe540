"""An environment alone: the shipped config for its spaces."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from jaxrl.config import check_config, selection
from jaxrl.config.files import load_config
from jaxrl.config.overrides import move
from jaxrl.config.selection import (
    KnownEnvironment,
    choose,
    known_environment,
    known_environments,
    suitable_config,
)
from jaxrl.envs import registry
from jaxrl.envs.base import Box, Dict, Discrete, EnvSpec, Space

VECTOR = Box.of(-1, 1, (4,))
MOVES = Discrete(3)


def image(*shape: int) -> Box:
    return Box.of(0, 255, shape, np.uint8)


@pytest.mark.parametrize(
    ("observation", "action", "on_host", "name"),
    [
        (VECTOR, MOVES, False, "ppo_mlp"),
        (VECTOR, MOVES, True, "ppo_mlp"),
        (Discrete(16), MOVES, False, "ppo_mlp"),
        (VECTOR, Box.of(-1, 1, (2,)), False, "ppo_continuous"),
        (VECTOR, Box.of(-1, 1, (2,)), True, "ppo_mujoco"),
        (image(10, 10, 4), MOVES, False, "ppo_minatar"),
        (image(84, 84, 4), MOVES, True, "ppo_atari"),
        (image(4, 84, 84), MOVES, True, "ppo_atari"),
        (image(4, 84, 84, 3), MOVES, True, "ppo_atari"),
        (image(3, 64, 64), MOVES, True, "ppo_coinrun"),
        (image(4, 10, 10), MOVES, True, "ppo_minatar"),
        (image(64, 64, 3), MOVES, True, "ppo_coinrun"),
        (image(34, 34, 4), MOVES, True, "ppo_coinrun"),  # too small for the Nature CNN
        (Dict((("image", image(64, 64, 3)), ("speed", VECTOR))), MOVES, True, "ppo_mlp"),
    ],
)
def test_config_goes_by_the_spaces(observation: Space, action: Space, on_host: bool, name: str) -> None:
    assert choose(EnvSpec("suite:Name", observation, action, None), on_host)[0] == name


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("gymnax:MemoryChain-bsuite(memory_length=20)", "ppo_memory"),
        ("jaxrl:Maze(max_walls=25)", "ppo_maze"),
        ("jaxrl:Navigation(control='discrete')", "ppo_navigation"),
        ("jaxrl:Platformer", "ppo_platformer"),
        ("jaxrl:memory/RepeatFirstEasy", "ppo_memory"),
    ],
)
def test_an_environment_with_a_config_of_its_own_takes_that(environment: str, name: str) -> None:
    assert choose(EnvSpec(environment, VECTOR, MOVES, None), False)[0] == name


@pytest.mark.parametrize("environment", ["gymnax:Asterix-MinAtar", "jaxrl:TicTacToe"])
def test_a_known_environment_of_every_installation_is_not_made_to_choose_a_config(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process that makes it takes a second at the start of a run, and would say the same.
    said = " ".join(choose(registry.spec_of(environment, ()), False)).split(" ", 1)
    monkeypatch.setattr(selection, "ask", lambda *_: pytest.fail("asked"))
    found = suitable_config(environment)
    assert [found.name, found.reason] == [said[0], f"the config is {said[0]}, since {said[1]}"]


@pytest.mark.parametrize("known", known_environments(), ids=lambda known: known.names[0])
def test_what_is_known_of_an_environment_can_be_trained(known: KnownEnvironment) -> None:
    fields = load_config(known.config)
    fields.update_from_flattened_dict(dict(known.settings))  # An unknown field would raise.


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("{names: [a:B], config: ppo, setings: {}}", "setings"),
        ("{names: [a:B]}", "config"),
        ("{names: [a:B], config: ppo, published: [{score: 28, source: who}]}", r"score \(=28\)"),
        ("{names: [a:B], config: ppo, measured: {score: '28', steps: '1', seeds: 1}}", r"steps \(='1'\)"),
    ],
)
def test_a_damaged_table_names_the_entry(
    entry: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "known_environments.yaml"
    table.write_text(f"environments:\n  - {entry}\n")
    monkeypatch.setattr("jaxrl.config.selection.TABLE", table)
    with pytest.raises(ValueError, match=rf"^known_environments.yaml: the entry .*a:B.*{what}"):
        known_environments.__wrapped__()


def test_an_environment_goes_before_its_family(monkeypatch: pytest.MonkeyPatch) -> None:
    family = KnownEnvironment(("suite:Walker*",), "ppo_mujoco")
    own = KnownEnvironment(("suite:Walker2d-v4",), "ppo_mujoco", {"ppo.gamma": 0.98})
    monkeypatch.setattr("jaxrl.config.selection.known_environments", lambda: (family, own))
    assert known_environment("suite:Walker2d-v4(frame_skip=4)") == own
    assert known_environment("suite:Walker-v1") == family
    assert known_environment("suite:Hopper-v4") is None
    spec = EnvSpec("suite:Walker2d-v4", VECTOR, MOVES, None)
    assert choose(spec, True) == (
        "ppo_mujoco",
        "it suits environments of this kind, with other values of ppo.gamma",
    )


def test_wrappers_of_another_observation_are_left_out() -> None:
    # Of pictures the one-hot vectors would be zeros nearly everywhere, without a word.
    name = "navix:Navix-DoorKey-8x8-v0"
    whole_grid = known_environment(f"{name}(max_steps=640)")
    assert whole_grid is not None
    assert "env.wrappers" in whole_grid.settings
    assert known_environment(f"{name}(observation='rgb')") is None
    assert known_environment("craftax:Craftax-Symbolic-v1(observation='parts')") is not None
    family = known_environment("navix:Navix-Empty-8x8-v0")
    assert family is not None
    assert family.measured is None


@pytest.mark.slow
def test_what_belongs_to_the_own_environment_of_a_config_is_left_out() -> None:
    found = suitable_config("gymnax:PointRobot-misc")
    assert found.name == "ppo_continuous"
    assert found.config.env.name == "gymnax:PointRobot-misc"
    checked = check_config(found.config)
    assert checked.env.wrappers == ()
    assert checked.stop.target_return is None


@pytest.mark.slow
def test_wrappers_of_the_own_environment_are_kept() -> None:
    found = suitable_config("jaxrl:Navigation(moving=0)")
    assert found.name == "ppo_navigation"
    assert check_config(found.config).env.wrappers == load_config("ppo_navigation").env.wrappers != ()


@pytest.mark.parametrize(
    ("config", "environment", "left_out"),
    [
        ("ppo", "gymnax:Acrobot-v1", ["env.wrappers=('select_observation(", "stop.return=475.0"]),
        ("pqn", "gymnax:Acrobot-v1", ["env.wrappers=('reward_scale("]),
        ("ppo_navigation", "my_module:Navigation", ["env.wrappers=('frame_stack("]),
        ("ppo_coinrun", "envpool:MazeEasy-v0", ["evaluate.unseen='envpool:Coinrun"]),
    ],
)
def test_what_a_config_says_of_its_own_environment_does_not_travel(
    config: str, environment: str, left_out: list[str]
) -> None:
    moved = load_config(config)
    said = move(moved, environment)
    own = load_config(config).env.name
    assert said.startswith(f"left out fields of {own}: {left_out[0]}")
    assert all(part in said for part in left_out)
    assert (moved.env.name, moved.env.wrappers, moved.env.success) == (environment, (), "")
    assert moved.stop["return"] is None
    assert moved.evaluate.unseen == moved.evaluate.suite == ""
    assert moved.network == load_config(config).network


def test_scales_that_are_kept_are_named() -> None:
    said = move(load_config("ppo"), "gymnax:Acrobot-v1")
    assert said.endswith("; kept normalize.observations=True, normalize.rewards=True")


@pytest.mark.parametrize(
    ("config", "environment"),
    [
        ("ppo", "gymnax:CartPole-v1"),
        ("ppo", "envpool:CartPole-v1"),
        ("ppo", "gymnasium:CartPole-v1(max_episode_steps=200)"),
        ("ppo_coinrun", "envpool:CoinrunEasy-v0(num_levels=500, start_level=0)"),
    ],
)
def test_the_same_environment_keeps_all(config: str, environment: str) -> None:
    moved, expected = load_config(config), load_config(config)
    assert move(moved, environment) == ""
    expected.env.name = environment
    assert moved == expected


def test_fields_that_the_user_gives_are_not_called_left_out() -> None:
    given = ["env.wrappers", "normalize.observations", "normalize.rewards"]
    said = move(load_config("ppo"), "gymnax:Acrobot-v1", given)
    assert "stop.return" in said
    assert "env.wrappers" not in said
    assert "normalize" not in said


def test_unknown_environment_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    # The process that `suitable_config` asks calls this; tests/commands/test_command_line.py starts one.
    assert selection.tell("gymnax:CartPol-v1") == 2
    assert re.fullmatch(r".*did you mean gymnax:.*\n", capsys.readouterr().out)
