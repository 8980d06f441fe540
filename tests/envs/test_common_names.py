"""Environments by the names that they have elsewhere, in suites that are installed and that are not."""

from __future__ import annotations

import pytest

from jaxrl.commands import run_arguments
from jaxrl.config import ConfigError, default_config
from jaxrl.config.environment import full_name
from jaxrl.config.resolution import resolve
from jaxrl.envs import catalogue, suites


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CartPole-v1", ["gymnax:CartPole-v1", "envpool:CartPole-v1", "gymnasium:CartPole-v1"]),
        ("cartpole-v1", ["gymnax:CartPole-v1", "envpool:CartPole-v1", "gymnasium:CartPole-v1"]),
        ("procgen-coinrun-v0", ["envpool:CoinrunHard-v0"]),
        ("procgen:procgen-starpilot-v0", ["envpool:StarpilotHard-v0"]),
        ("procgen-coinrun-v0(num_levels=200)", ["envpool:CoinrunHard-v0(num_levels=200)"]),
        ("ALE/Pong-v5", ["envpool:Pong-v5"]),
        ("HalfCheetah-v4", ["envpool:HalfCheetah-v4", "gymnasium:HalfCheetah-v4"]),
        ("Breakout-MinAtar", ["gymnax:Breakout-MinAtar"]),
        ("Nowhere-v0", []),
        ("popgym-RepeatFirstEasy-v0", ["jaxrl:memory/RepeatFirstEasy"]),
        ("popgym-VelocityOnlyCartpoleHard-v0", ["jaxrl:memory/VelocityOnlyCartPoleHard"]),
        ("popgym-NoisyStatelessCartPoleEasy-v0", ["jaxrl:memory/NoisyPositionOnlyCartPoleEasy"]),
    ],
)
def test_name_is_found_in_every_suite_that_has_it(name: str, expected: list[str]) -> None:
    found = [
        x for x in catalogue.find(name) if x.partition(":")[0] in ("jaxrl", "gymnax", "envpool", "gymnasium")
    ]
    if name.startswith("ALE"):  # which Gymnasium has too, where ale-py is installed
        found = [x for x in found if not x.startswith("gymnasium")]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "suite"),
    [
        ("halfcheetah", "brax"),
        ("Craftax-Symbolic-v1", "craftax"),
        ("LunarLander-v3", "gymnasium"),
        ("Snake-v1", "jumanji"),
        ("Navix-Empty-5x5-v0", "navix"),
        ("go_9x9", "pgx"),
        ("CartpoleBalance", "playground"),
        ("simple_spread_v3", "pettingzoo"),
        ("CountRecallEasy(partial_obs=True)", "popgym_arcade"),
        ("MiniGrid-MemoryS8", "xminigrid"),
    ],
)
def test_suite_that_is_not_installed_is_named_with_its_extra(
    name: str, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = ("jaxrl", "gymnax", "envpool")
    installed = property(lambda self: self.name in core)
    monkeypatch.setattr(suites.Collection, "is_installed", installed)
    error = str(catalogue.not_found(name))
    assert f"{suite}, which is not installed: " in error
    assert f"[{suite.replace('_', '-')}]" in error
    assert "\n" not in error


def test_name_that_no_suite_has_is_answered_with_the_nearest() -> None:
    assert "did you mean CartPole-v1" in str(catalogue.not_found("CartPol-v1"))


@pytest.mark.slow
def test_config_takes_the_first_suite_and_says_so() -> None:
    found = run_arguments.parse_training(["jaxrl train", "ppo", "--config.env.name=CartPole-v1"])
    assert found.config.env.name == "gymnax:CartPole-v1"
    assert found.config.env.wrappers != ()  # It is the environment that the config was made for.
    (note,) = found.notes
    assert note.startswith("CartPole-v1 is gymnax:CartPole-v1; also envpool:CartPole-v1")


# tests/envs/test_catalogue.py has the config that suits a name.
@pytest.mark.long
def test_name_alone_takes_the_config_that_suits_it() -> None:
    found = run_arguments.parse_training(["jaxrl train", "--env=HalfCheetah-v4"])
    assert found.config.env.name == "envpool:HalfCheetah-v4"
    first, second = found.notes
    assert first.startswith("HalfCheetah-v4 is envpool:HalfCheetah-v4")
    assert "the config is ppo_mujoco" in second


@pytest.mark.slow
def test_names_with_a_suite_stay_and_unknown_ones_are_one_line() -> None:
    assert full_name("env.name", "my_module:Nowhere") == ("my_module:Nowhere", "")
    assert full_name("env.name", "x" * 200_000) == ("x" * 200_000, "")
    with pytest.raises(ConfigError, match=r"^`env.name` \(='Nowhere-v0'\): unknown environment 'Nowhere-v0'"):
        full_name("env.name", "Nowhere-v0")


def test_configurations_in_python_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a process was started"))
    config = default_config()
    config.env.name = "Acrobot-v1"
    config.evaluate.unseen = "Acrobot-v1(torque_noise_max=1.0)"
    resolved = resolve(config, device_count=1)
    assert resolved.env.name == "gymnax:Acrobot-v1"
    assert resolved.evaluate.unseen == "gymnax:Acrobot-v1(torque_noise_max=1.0)"
    config.env.name = "Nowhere-v0"
    with pytest.raises(ConfigError, match=r"^`env.name` \(='Nowhere-v0'\): unknown environment 'Nowhere-v0'"):
        resolve(config, device_count=1)
