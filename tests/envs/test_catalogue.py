"""The list of environments, and a few random steps of one: `jaxrl environments`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from jaxrl.commands.environments import main
from jaxrl.envs import catalogue, env_check, installation, registry, suites
from jaxrl.envs.base import Box, Dict, Discrete, MultiDiscrete
from tests.commands.refusals import refused

OPTIONAL = [suite for suite in suites.SUITES if suite.extra]


def run(*arguments: str) -> int:
    return main(["jaxrl environments", *arguments])


def test_every_suite_is_in_the_catalogue() -> None:
    assert {suite.name for suite in suites.SUITES} == {*registry.suites()}


@pytest.mark.parametrize("suite", OPTIONAL, ids=lambda suite: suite.name)
def test_a_suite_that_is_not_installed_names_its_extra(suite, capsys) -> None:
    if importlib.util.find_spec(suite.package) is not None:
        pytest.skip(f"{suite.package} is installed")
    assert run() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[2] for row in rows if row[:1] == [suite.name]] == ["no"]
    for arguments in ([suite.name], [f"{suite.name}:Some"]):
        assert installation.command(suite.extra) in refused(capsys, "environments", *arguments)


def test_lists(capsys) -> None:
    assert run() == 0
    shown = capsys.readouterr().out
    assert "gymnax" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert run("jaxrl", "--match=probem") == 0
    assert capsys.readouterr().out.splitlines() == [
        "jaxrl:ProbeMask                   float32[1] in [1, 1] -> Discrete(3) with a",
        "                                  mask, 4 steps",
        "jaxrl:ProbeMemory                 float32[2] in [-1, 1] -> Discrete(2), 5 steps",
        "jaxrl:ProbeMixed                  float32[3] in [0, 1] -> choice: Discrete(3),",
        "                                  pair: MultiDiscrete[2, 3], push: float32[2] in",
        "                                  [-1, 1], 1 step",
        "jaxrl:ProbeMultiDiscrete          float32[3] in [0, 1] -> MultiDiscrete[2, 3], 1",
        "                                  step",
    ]
    assert run("envpool", "--match=pong", "--names") == 0
    assert "envpool:Pong-v5" in capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_shows_one_and_plays_it(capsys) -> None:
    assert run("jaxrl:ProbeMask", "--steps=20", "--wrappers=time_limit(steps=2)") == 0
    shown = capsys.readouterr().out
    for part in ("jaxrl:ProbeMask", "with a mask", "most steps    ", "20 random steps", "whole episodes"):
        assert part in shown


@pytest.mark.slow
def test_shows_one_by_its_common_name_and_the_config_that_suits_it(capsys) -> None:
    assert run("Acrobot-v1", "--steps=3") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(
        "Acrobot-v1 is gymnax:Acrobot-v1; also envpool:Acrobot-v1, gymnasium:Acrobot-v1\n"
    )
    assert (
        "config        ppo_mlp, since it was measured on this environment\nreaches       -81 to -73 after"
        in shown
    )


def test_plays_on_the_host() -> None:
    found = env_check.play("envpool:CartPole-v1(max_episode_steps=9)", (), 40)
    assert set(found.rewards) == {1.0}
    assert len(found.rewards) == 40 - len(found.returns)  # the first row of an episode is no step
    assert found.terminated + found.truncated == len(found.returns) >= 4
    assert max(found.returns) <= 9


@pytest.mark.slow
@pytest.mark.parametrize(("low", "high", "dtype"), [(2, 5, "float32"), (0, 255, "uint8")])
def test_plays_within_the_bounds_of_the_actions(low, high, dtype) -> None:
    name = f"gymnasium:tests.envs.host_environments:Pusher(low={low}, high={high}, dtype={dtype!r})"
    rewards = env_check.play(name, (), 200).rewards
    tenth = (high - low) / 10  # that none of 200 even draws lies within it has a chance of 1e-9
    assert low <= min(rewards) < low + tenth
    assert high - tenth < max(rewards) <= high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gymnx"], "unknown suite 'gymnx'; did you mean gymnax"),
        (["Acrobt-v1"], "unknown environment 'Acrobt-v1'; did you mean Acrobot-v1"),
        (["jaxrl:ProbeMemry"], "did you mean jaxrl:ProbeMemory"),
        (["jaxrl:ProbeMemory", "gymnax"], "one suite or environment at a time"),
        (["jaxrl:ProbeMemory", "--wrappers=(a"], "must be one wrapper or a tuple"),
        (["jaxrl:ProbeMemory", "--wrappers=(1)"], "(='(1)') must be one wrapper or a tuple"),
        (["jaxrl:ProbeMemory", "--wrappers=(('a',),)"], "must be one wrapper or a tuple"),
        (["jaxrl:ProbeMemory", "--wrappers=no_such"], "unknown wrapper 'no_such'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys) -> None:
    assert message in refused(capsys, "environments", *arguments)


def test_spaces_in_words() -> None:
    space = Dict((("a", Discrete(4)), ("b", Box.of(0, 1, (2, 3)))))
    assert catalogue.describe(space) == "a: Discrete(4), b: float32[2, 3] in [0, 1]"
    assert catalogue.describe(Box.of(-float("inf"), float("inf"), (2,))) == "float32[2]"
    assert catalogue.describe(MultiDiscrete((2, 3))) == "MultiDiscrete[2, 3]"
    assert catalogue.describe(MultiDiscrete((3,) * 52)) == "MultiDiscrete[3, ...], 52 times"


INSTALLED = [s for s in suites.SUITES if s.is_installed and s.name not in suites.WITHOUT_TABLE]


@pytest.mark.parametrize("suite", INSTALLED, ids=lambda suite: suite.name)
def test_the_table_is_what_the_installed_suites_say(suite) -> None:
    """Where this fails, `python .ci/suites.py` makes the table anew.

    The table is of one version of each suite. Others of its series have most of the environments, and nearly
    all of these are the same: of the 1,651 of envpool 1.2.5, six are others in 1.2.7.
    """
    known = suites.known(suite)
    if known is None:
        pytest.skip(f"the table is of another series than {suite.name} {suite.version}")
    names = set(catalogue.listed(suite)) - suites.registered(suite)
    if suites.known_version(suite) != suite.version:
        assert len(names & set(known)) > 0.9 * len(names | set(known))
        return
    assert names == set(known)
    described = sorted(name for name, entry in known.items() if entry)
    for name in described if suite.name == "jaxrl" else described[:: len(described) // 2 + 1]:
        assert catalogue.entry_of(f"{suite.name}:{name}") == known[name], name


@pytest.mark.slow
@pytest.mark.parametrize("suite", INSTALLED, ids=lambda suite: suite.name)
def test_every_entry_of_the_table(suite) -> None:
    if suites.known_version(suite) != suite.version:
        pytest.skip("the table is of another version")
    for name, entry in (suites.known(suite) or {}).items():
        if entry:
            assert catalogue.entry_of(f"{suite.name}:{name}") == entry, name


@pytest.mark.parametrize("suite", ["envpool", "gymnax", "jaxrl"])
def test_a_suite_is_listed_without_importing_it(suite) -> None:
    if suites.known_version(suites.suite_of(suite)) != suites.suite_of(suite).version:
        pytest.skip("the table is of another version, so that names come from the package")
    script = f"""
import sys
from jaxrl.commands.environments import main
assert main(["jaxrl environments", {suite!r}]) == 0
assert not {{"jax", "envpool", "gymnax"}} & set(sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count(f"{suite}:") == len(suites.known(suites.suite_of(suite)) or ())


def test_another_version_of_a_series_has_its_own_names_and_the_entries_of_the_table(
    capsys, monkeypatch
) -> None:
    entries = {"ProbeMask": ["from the table", "Discrete(3)", False, 4], "ProbeGone": ["gone", "", False, 0]}
    table = {"jaxrl": {"version": "1.2.5", "environments": entries}}
    monkeypatch.setattr(suites, "_table", lambda: table)
    of_the_table = "jaxrl:ProbeMask                   from the table -> Discrete(3), 4 steps"
    for version, served in (("1.2.7", True), ("1.2.7.post1", True), ("1.3.0", False), ("1.20.5", False)):
        monkeypatch.setattr(suites.Collection, "version", version)
        assert run("jaxrl", "--match=probem") == 0
        shown = capsys.readouterr().out
        assert (of_the_table in shown) == served, version
        assert (f"Spaces are for jaxrl 1.2.5; {version} is installed" in shown) == served
        assert "jaxrl:ProbeMemory                 float32[2] in [-1, 1] -> Discrete(2), 5 steps" in shown
        assert run("jaxrl", "--names", "--match=probe") == 0
        assert "Gone" not in capsys.readouterr().out


def test_a_version_that_the_table_does_not_know_is_made(capsys, monkeypatch) -> None:
    def fails(name: str) -> None:
        raise RuntimeError("no data\nat all " + "x" * 9)

    monkeypatch.setattr(suites, "_table", lambda: {"jaxrl": {"version": "0", "environments": {}}})
    monkeypatch.setattr(
        registry, "spec_of", lambda name: fails(name) if "Mask" in name else registry.make(name).spec
    )
    assert run("jaxrl", "--match=probem") == 0
    shown = capsys.readouterr().out
    assert "jaxrl:ProbeMemory                 float32[2] in [-1, 1] -> Discrete(2), 5 steps" in shown
    said = " ".join(shown[shown.index("Cannot be made:") :].split())
    assert said.startswith("Cannot be made: jaxrl:ProbeMask: RuntimeError: no data at all")
    assert said.count("cannot be made") + said.count("jaxrl:") == 1
