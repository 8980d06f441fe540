"""Names, arguments, and what a user is told when one of them is wrong."""

from __future__ import annotations

import textwrap

import jax
import pytest

from jaxrl import envs
from jaxrl.envs import registry, wrappers
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.names import format_call, parse_call
from jaxrl.envs.native.probe import ProbeValue


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", ("a", {})),
        ("gymnax:CartPole-v1", ("gymnax:CartPole-v1", {})),
        ("a()", ("a", {})),
        (" a( x = -1, y='q)', z=(0, 2) ) ", ("a", {"x": -1, "y": "q)", "z": (0, 2)})),
        ("a(x=[1.5, None], y={'k': True})", ("a", {"x": [1.5, None], "y": {"k": True}})),
    ],
)
def test_parse_call(text, expected):
    assert parse_call(text) == expected
    assert parse_call(format_call(*expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(x=1)",
        "a(1)",
        "a(x=1",
        "a(x=y)",
        "a(**{'x': 1})",
        "a(x=1, x=2)",
        "a(x=1)(y=2)",
        "a(x=1)+b()",
        "a b",
    ],
)
def test_parse_call_refuses(text):
    with pytest.raises(ValueError, match=r"\S"):
        parse_call(text)


def test_arguments_are_never_evaluated(tmp_path):
    # A config may come from a stranger: reading it must not run code.
    victim = tmp_path / "victim"
    with pytest.raises(ValueError, match="literal"):
        parse_call(f"a(x=open({str(victim)!r}, 'w'))")
    assert not victim.exists()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("CartPole-v1", ["gymnax:CartPole-v1"]),
        ("gymnax:CartPole-v0", ["unknown environment", "did you mean gymnax:CartPole-v1"]),
        ("gymnax:XXXXXXXXXX", ["gymnax:Acrobot-v1", "gymnax:UmbrellaChain-bsuite"]),
        ("gymnx:CartPole-v1", ["unknown suite 'gymnx'", "did you mean gymnax or gymnasium"]),
        ("jaxrl:ProbeMemry", ["did you mean jaxrl:ProbeMemory or jaxrl:Probe"]),
        ("jaxrl:ProbeMemory(dealy=3)", ["argument of jaxrl:ProbeMemory", "did you mean delay?"]),
        ("jaxrl:ProbeMemory(delay=0)", ["delay (=0)", "at least 1"]),
        ("jaxrl:ProbeMemory(delay=True)", ["delay (=True)", "integer"]),
        ("gymnax:Pendulum-v1(gg=9.0)", ["argument of gymnax:Pendulum-v1", "did you mean g?"]),
        ("gymnax:Pendulum-v1(max_steps_in_episode=2.5)", ["max_steps_in_episode (=2.5)", "type int"]),
        ("gymnax:MetaMaze-misc(maze_size=4)", ["maze_size", "invalid value"]),
        ("envpool:Pong-v5", ["envpool", "on the host", "gymnax, jaxmarl, jaxrl"]),
        ("gymnasium:CartPole-v1", ["gymnasium", "on the host", "gymnax, jaxmarl, jaxrl"]),
        ("", ["not of the form"]),
    ],
)
def test_wrong_name(name, parts):
    with pytest.raises(ValueError, match=r"\S") as caught:
        envs.make(name)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("wrapper", "parts"),
    [
        (
            "time_limt(steps=3)",
            ["unknown wrapper 'time_limt'", "did you mean time_limit"],
        ),
        ("time_limit(step=3)", ["argument of wrapper time_limit", "did you mean steps?"]),
        ("time_limit", ["wrapper time_limit needs the argument 'steps'"]),
    ],
)
def test_wrong_wrapper(wrapper, parts):
    with pytest.raises(ValueError, match=r"\S") as caught:
        envs.make("gymnax:CartPole-v1", [wrapper])
    for part in parts:
        assert part in str(caught.value)


def test_one_string_is_no_sequence_of_wrappers():
    with pytest.raises(ValueError, match="sequence of names"):
        envs.make("gymnax:CartPole-v1", "time_limit(steps=3)")


def test_wrappers_apply_from_the_innermost_out():
    env = envs.make("gymnax:FrozenLake-misc", ["one_hot_observation", "select_observation(indices=(0, 5))"])
    assert env.spec.observation_space.shape == (2,)
    with pytest.raises(ValueError, match="needs a Box observation"):
        envs.make("gymnax:FrozenLake-misc", ["select_observation(indices=(0, 5))", "one_hot_observation"])


def test_register(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    envs.register("mine:Value", ProbeValue)
    assert isinstance(envs.make("mine:Value"), ProbeValue)
    with pytest.raises(ValueError, match="already registered"):
        envs.register("mine:Value", ProbeValue)
    with pytest.raises(ValueError, match="already registered"):
        envs.register("jaxrl:ProbeValue", ProbeValue)
    with pytest.raises(ValueError, match="did you mean mine:Value"):
        envs.make("mine:Valu")
    with pytest.raises(ValueError, match="suite:Name"):
        envs.register("Value", ProbeValue)
    with pytest.raises(ValueError, match="host environments"):
        envs.register("envpool:Value", ProbeValue)


def test_register_wrapper(monkeypatch):
    monkeypatch.setattr(wrappers, "_WRAPPERS", dict(wrappers._WRAPPERS))
    wrappers.register("same", lambda env: env)
    assert isinstance(envs.make("jaxrl:ProbeValue", ["same"]), ProbeValue)
    with pytest.raises(ValueError, match="already registered"):
        wrappers.register("same", lambda env: env)


def test_environment_in_a_users_own_file(tmp_path, monkeypatch):
    (tmp_path / "my_corridor.py").write_text(
        textwrap.dedent("""
            from jaxrl.envs.native.probe_policy import ProbeMemory

            class Corridor(ProbeMemory):
                pass

            class Nothing:
                pass
        """)
    )
    (tmp_path / "my_broken.py").write_text("import a_module_that_nobody_has\n")
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    monkeypatch.chdir(tmp_path)
    env: JaxEnv = envs.make("my_corridor:Corridor(delay=7)")
    assert env.spec.max_episode_steps == 8
    assert env.reset(jax.random.key(0))[1].shape == (2,)
    with pytest.raises(ValueError, match="did you mean Corridor"):
        envs.make("my_corridor:Coridor")
    with pytest.raises(ValueError, match="did you mean delay"):
        envs.make("my_corridor:Corridor(delya=7)")
    with pytest.raises(ValueError, match="lacks reset, step"):
        envs.make("my_corridor:Nothing")
    # The missing module is the user's import, not a misspelt suite.
    with pytest.raises(ValueError, match=r"importing my_broken .*a_module_that_nobody_has"):
        envs.make("my_broken:Corridor")
