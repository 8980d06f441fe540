"""Entry points of installed packages: named like what is built in, and imported when they are asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, default_config, from_json, to_json
from jaxrl.config.construction import needs_trust
from jaxrl.envs import entry_points, registry
from jaxrl.networks import CORES, ENCODERS
from tests.config.packages import install

MODULE = """
import dataclasses
from jaxrl.config import AlgorithmConfig, field
from jaxrl.config.fields import at_least

@dataclasses.dataclass(frozen=True)
class Section(AlgorithmConfig):
    '''From a package.'''

    rollout_length: int = field(16, at_least(1), help="time steps of one rollout", fixed=True)

class First:
    name, config_section = "packaged", Section

class Second:
    name, config_section = "other_name", Section

def encoder(network, space):
    raise RuntimeError("no such luck")

number = 3
"""
ENVIRONMENT = "tests.e2e.environments:ShortOrLong"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, with the module `packaged_parts`."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "packaged_parts.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "packaged_parts", raising=False)
    entry_points._of_group.cache_clear()
    return folder


def test_algorithm_of_a_package_goes_by_its_name(site: Path) -> None:
    install(site, "mine", {"jaxrl.algorithms": {"packaged": "packaged_parts:First"}})
    config = default_config("packaged")
    config.packaged.rollout_length = 8
    checked = check_config(config)
    assert (checked.section, checked.rollout_length) == ("packaged", 8)
    assert not needs_trust(checked)  # It is installed.
    assert from_json(to_json(checked)) == checked


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("different", "packaged_parts:First", "its class has the `name` 'packaged', which must be the same"),
        ("missing", "packaged_parts:Third", "the entry point missing of mine cannot be loaded: .* 'Third'"),
        ("absent", "no_such_module:A", "the entry point absent of mine cannot be loaded: No module named"),
        (
            "ppo",
            "packaged_parts:First",
            "the name is taken, and mine registers it as well: uninstall",
        ),
    ],
)
def test_algorithm_that_cannot_be_had_is_one_line_where_it_is_asked_for(
    name: str, value: str, message: str, site: Path
) -> None:
    check_config(default_config())
    install(site, "mine", {"jaxrl.algorithms": {name: value, "fine": "packaged_parts:First"}})
    entry_points._of_group.cache_clear()
    if name != "ppo":
        check_config(default_config())
    with pytest.raises(ConfigError, match=message) as caught:
        check_config(ConfigDict({"algorithm": name}))
    assert str(caught.value).startswith(f"`algorithm` (={name!r}): ")
    assert "\n" not in str(caught.value)


def test_unknown_algorithm_names_the_nearest_installed_one(site: Path) -> None:
    install(site, "mine", {"jaxrl.algorithms": {"reinforcement": "packaged_parts:First"}})
    with pytest.raises(ConfigError, match=r"module:Class; did you mean `reinforcement`\?$"):
        default_config("reinforcemnt")


def test_name_of_two_packages_is_refused(site: Path) -> None:
    for package in ("mine", "yours"):
        install(site, package, {"jaxrl.algorithms": {"both": "packaged_parts:First"}})
    with pytest.raises(ConfigError, match="both is registered by several packages: mine, yours;"):
        default_config("both")


def test_what_lies_in_the_working_folder_is_not_installed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "mine", {"jaxrl.algorithms": {"lying": "packaged_parts:First"}})
    monkeypatch.chdir(site)
    with pytest.raises(ConfigError, match="must be an algorithm's name, or module:Class"):
        default_config("lying")


def test_parts_of_networks(site: Path) -> None:
    points = {
        "encoder.special": "packaged_parts:encoder",
        "encoder.number": "packaged_parts:number",
        "core.absent": "no_such_module:core",
        "core.lstm": "packaged_parts:encoder",
    }
    install(site, "mine", {"jaxrl.networks": points})
    with pytest.raises(ConfigError, match=r"`network.encoder` \(='special'\) raised RuntimeError"):
        ENCODERS.get("special")(None, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"`network.encoder` \(='number'\) must be a function of"):
        ENCODERS.get("number")
    with pytest.raises(ConfigError, match=r"`network.core` \(='absent'\): the entry point core.absent"):
        CORES.get("absent")
    with pytest.raises(ConfigError, match=r"`network.core` \(='lstm'\): the name is taken, and mine"):
        CORES.get("lstm")
    CORES.get("gru")
    with pytest.raises(ConfigError, match=r"did you mean `special`\?"):
        ENCODERS.get("specal")


def test_environments(site: Path) -> None:
    points = {
        "mysuite:Maze": ENVIRONMENT,
        "mysuite:Absent": "no_such_module:Maze",
        "mysuite:Number": "packaged_parts:number",
        "gymnax:CartPole-v1": ENVIRONMENT,
        "gymnasium:CartPole-v1": ENVIRONMENT,
    }
    install(site, "mine", {"jaxrl.environments": points})
    name = "mysuite:Maze(long=2)"
    assert registry.make(name).spec == registry.make(f"{ENVIRONMENT}(long=2)").spec
    assert registry.is_custom(name)
    assert registry.module_of(name) is None  # It is installed.
    assert "mysuite" in registry.suites()
    assert "mysuite:Maze" in registry.names("mysuite")
    registry.make("gymnax:Acrobot-v1")
    for asked, message in (
        ("mysuite:Absent", "the entry point mysuite:Absent of mine cannot be loaded: No module named"),
        ("mysuite:Number", "packaged_parts:number must be a class or a function"),
        ("mysuite:Mase", "did you mean mysuite:Maze"),
        ("gymnax:CartPole-v1", "the name is taken, and mine registers it as well"),
        ("gymnasium:CartPole-v1", "the name is taken, and mine registers it as well"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            registry.spec_of(asked)
        assert "\n" not in str(caught.value)
