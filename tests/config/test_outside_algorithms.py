"""An algorithm from outside has a section like a built-in one: fields, flags, files, JSON and trust."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrl.algorithms import hyperparameters
from jaxrl.config import (
    Config,
    ConfigError,
    changed_fields,
    check_config,
    declared_fields,
    default_config,
    fixed_fields,
    from_json,
    to_json,
)
from jaxrl.config.construction import admit, needs_trust, require_trusted
from jaxrl.config.files import load_config
from jaxrl.config.listing import config_file, field_list
from jaxrl.config.overrides import override
from jaxrl.main import main
from jaxrl.search.space import Space

MODULE = """
import dataclasses
from pathlib import Path

from jaxrl.config import AlgorithmConfig, PPOConfig, field
from jaxrl.config.fields import at_least, between

Path({marker!r}).touch()

@dataclasses.dataclass(frozen=True)
class ReinforceConfig(AlgorithmConfig):
    '''REINFORCE (Williams 1992).'''

    rollout_length: int = field(32, at_least(1), help="time steps of one rollout", fixed=True)
    learning_rate: float = field(1e-3, at_least(0), help="learning rate of Adam")
    gamma: float = field(0.99, between(0, 1), help="discount factor")
    shaping: str = field("", help="a function of one's own", names_module=True)

class Reinforce:
    name, config_section = "reinforce", ReinforceConfig
"""

Write = Callable[[str], str]


def section_of(base: str, field: str) -> str:
    """An algorithm `A` with one more field than `base`."""
    section = f"@dataclasses.dataclass(frozen=True)\nclass B({base}):\n    {field}\n"
    return f"{section}class A(Reinforce): config_section = B\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module with `Reinforce` and more, which can be imported, and returns its name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))

    def file(more: str) -> str:
        name = f"outside_{abs(hash((tmp_path, more))):x}"
        (folder / f"{name}.py").write_text(MODULE.format(marker=str(tmp_path / "marker")) + more)
        return name

    return file


@pytest.fixture
def reinforce(write: Write) -> str:
    return f"{write('')}:Reinforce"


def changed(algorithm: str, **fields: Any) -> Config:
    config = default_config(algorithm)
    config.reinforce.update(fields)
    return check_config(config)


def test_section_has_defaults_and_is_checked_like_a_built_in_one(reinforce: str) -> None:
    config = changed(reinforce, learning_rate=0.5)
    assert config.section == "reinforce"
    assert config.learner is config.reinforce  # type: ignore[attr-defined]
    assert (config.rollout_length, config.sequence_length, config.updates_per_iteration) == (32, 32, 1)
    assert config.steps_per_update == config.steps_per_iteration == 32 * config.env.num_envs
    assert not hasattr(config, "ppo")
    with pytest.raises(ConfigError, match=r"^`reinforce.gamma` \(=2.0\) must lie between 0 and 1$"):
        changed(reinforce, gamma=2.0)
    given = default_config(reinforce)
    given.reinforce.gama = 0.5
    with pytest.raises(ConfigError, match=r"`reinforce.gama` is no field.*did you mean `reinforce.gamma`\?"):
        check_config(given)


def test_other_algorithms_know_no_such_section(reinforce: str) -> None:
    given = default_config(reinforce)
    assert "reinforce.gamma" in declared_fields(reinforce).keys() - declared_fields().keys()
    given.algorithm = "ppo"
    with pytest.raises(ConfigError, match=r"`reinforce\.\w+` is no field"):
        check_config(given)
    override(given, "algorithm", reinforce)
    override(given, "algorithm", "ppo")  # A command line takes the section away with its algorithm.
    assert check_config(given) == check_config(default_config())


def test_json_round_trip(reinforce: str) -> None:
    config = changed(reinforce, learning_rate=0.5)
    stored = json.loads(json.dumps(to_json(config)))
    assert stored["reinforce"]["learning_rate"] == 0.5
    assert "ppo" not in stored
    assert from_json(stored) == config


def test_printed_config_and_list_of_fields(reinforce: str, tmp_path: Path) -> None:
    config = changed(reinforce, learning_rate=0.5)
    for changed_only in (False, True):
        file = tmp_path / f"printed_{changed_only}.py"
        file.write_text(config_file(config, changed_only=changed_only))
        assert "c.ppo" not in file.read_text()
        assert check_config(load_config(str(file))) == config
    assert "reinforce: REINFORCE (Williams 1992)." in field_list(reinforce)
    assert "reinforce" not in field_list()


def test_resumed_run_keeps_what_the_section_says(reinforce: str) -> None:
    config = changed(reinforce, rollout_length=64, gamma=0.5)
    other = changed(reinforce)
    assert "reinforce.rollout_length" in {name for name, *_ in fixed_fields(config, other)}
    assert changed_fields(config, other) == ["`reinforce.rollout_length` (=64 there, 32 now)"]
    ours = check_config(default_config())
    assert changed_fields(config, ours) == [f"`algorithm` (={reinforce!r} there, 'ppo' now)"]


def test_space_of_a_search(reinforce: str) -> None:
    given = {"reinforce.learning_rate": {"log": [1e-4, 1e-2]}}
    space = Space.parse(given, reinforce)
    found = space.apply(default_config(reinforce), {"reinforce.learning_rate": 2e-3})
    assert check_config(found).learner.learning_rate == 2e-3  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"`reinforce.learning_rate` of the space is no field"):
        Space.parse(given)


def test_flags_in_any_order_on_any_config(
    reinforce: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--config.reinforce.learning_rate=0.25", f"--config.algorithm={reinforce}"]
    printed = []
    for arguments in (flags, flags[::-1], [flags[0], "--config.algorithm", reinforce]):
        assert main(["jaxrl", "ppo_memory", *arguments, "--print-config"]) == 0
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1
    assert "c.reinforce.learning_rate = 0.25" in printed[0]
    file = tmp_path / "mine.py"
    file.write_text(printed[0])
    assert main(["jaxrl", f"--config={file}", "--print-config"]) == 0
    assert capsys.readouterr().out == printed[0]
    assert main(["jaxrl", f"--config={file}", "--config.algorithm=ppo", "--print-config"]) == 0
    assert "reinforce" not in capsys.readouterr().out


def test_help_lists_the_fields_of_the_algorithm_on_the_line(
    reinforce: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in ([f"--config.algorithm={reinforce}"], ["--config.algorithm", reinforce]):
        assert main(["jaxrl", "--help=reinforce", *flags]) == 0
        assert "reinforce.learning_rate" in capsys.readouterr().out
    assert main(["jaxrl", "--help=all"]) == 0
    assert "reinforce" not in capsys.readouterr().out
    assert main(["jaxrl", "--help", "--config.algorithm=no_such_module:A"]) == 2
    assert capsys.readouterr().err.startswith("error: `algorithm` (='no_such_module:A'): No module named")


@pytest.mark.parametrize(
    ("more", "name", "message"),
    [
        ("", "Nothing", "the module .* has no Nothing"),
        ("", "ReinforceConfig", "`config_section` must be a frozen dataclass"),
        ("def make(): pass", "make", "must be a class that derives from jaxrl.algorithms.Algorithm"),
        ("raise RuntimeError('no such luck')", "Reinforce", "raised RuntimeError: no such luck"),
        ("class A(Reinforce): name = 'Mine'", "A", r"`name` \(='Mine'\) must be a lower-case identifier"),
        ("class A(Reinforce): name = 'class'", "A", "must be a lower-case identifier"),
        ("class A(Reinforce): name = 'ppo'", "A", r"`name` \(='ppo'\) is taken"),
        ("class A(Reinforce): name = 'env'", "A", "is taken"),
        ("class A(Reinforce): name = 'seed'", "A", "is taken"),
        ("class A(Reinforce): name = 'rollout_length'", "A", "is taken"),
        ("class A(Reinforce): name = 'update'", "A", "is taken"),  # a method of ConfigDict
        ("class A(Reinforce): config_section = dict", "A", "`config_section` must be a frozen dataclass"),
        (
            "class B(ReinforceConfig): pass\nclass A(Reinforce): config_section = B",
            "A",
            "`config_section` must be a frozen dataclass",
        ),
        (
            section_of("AlgorithmConfig", "x: int = field(1, help='x')"),
            "A",
            "must declare the field `rollout_length`",
        ),
        (
            section_of("ReinforceConfig", "x: int = 1"),
            "A",
            "must declare `x` with jaxrl.config.field",
        ),
        (
            section_of("ReinforceConfig", "x: int = field('1', help='x')"),
            "A",
            r"`reinforce.x` \(='1'\) must be an integer",
        ),
        (
            section_of("ReinforceConfig", "x: set = field(1, help='x')"),
            "A",
            "its section B cannot be read",
        ),
    ],
)
def test_what_is_wrong_with_a_class_is_one_line(more: str, name: str, message: str, write: Write) -> None:
    algorithm = f"{write(more)}:{name}"
    with pytest.raises(ConfigError, match=message) as caught:
        default_config(algorithm)
    assert str(caught.value).startswith(f"`algorithm` (={algorithm!r})")
    assert "\n" not in str(caught.value)


def test_variant_of_a_built_in_algorithm_shares_its_section(write: Write) -> None:
    algorithm = (
        write(
            "@dataclasses.dataclass(frozen=True)\nclass B(PPOConfig):\n    x: int = field(3, help='x')\n"
            "class A:\n    name, config_section = 'ppo', B\n"
        )
        + ":A"
    )
    config = default_config(algorithm)
    config.ppo.gamma = 0.5
    checked = check_config(config)
    assert (checked.ppo.gamma, checked.ppo.x) == (0.5, 3)  # type: ignore[attr-defined]


def test_stored_module_is_not_imported_without_trust(write: Write, tmp_path: Path) -> None:
    algorithm = f"{write('# not named by anything but the data')}:Reinforce"
    stored = to_json(check_config(default_config())) | {"algorithm": algorithm}
    del stored["ppo"], stored["derived"]  # The latter holds the updates that PPO plans.
    stored["reinforce"] = {"learning_rate": 0.5, "shaping": "other:function"}
    config = from_json(stored)
    assert needs_trust(config)
    module = algorithm.partition(":")[0]
    for refused in (require_trusted, lambda config, workdir: admit(config, workdir, trust=False)):
        with pytest.raises(ConfigError, match=rf"^`algorithm` .* names the module {module}.* --trust: "):
            refused(config, "runs/foreign")
    reads: tuple[Callable[[Config], Any], ...] = (
        lambda c: c.rollout_length, lambda c: c.total_updates, to_json, hyperparameters
    )  # fmt: skip
    for read in reads:
        with pytest.raises(ConfigError, match="only imported with --trust$"):
            read(config)
    assert changed_fields(config, check_config(default_config()))[0].startswith("`algorithm`")
    assert not (tmp_path / "marker").exists()
    found = admit(config, "runs/foreign", trust=True)
    assert (tmp_path / "marker").exists()
    assert found.learner.learning_rate == 0.5  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"`algorithm`"):
        require_trusted(found, "runs/foreign")
    assert from_json(stored) == found


def test_stored_module_that_is_not_here_is_one_line() -> None:
    stored = to_json(check_config(default_config())) | {"algorithm": "no_such_module:Reinforce"}
    with pytest.raises(ConfigError, match=r"^`algorithm` \(='no_such_module:Reinforce'\): No module named"):
        admit(from_json(stored), "runs/foreign", trust=True)


def test_fields_say_themselves_that_they_name_modules(reinforce: str) -> None:
    names = {name for name, field in declared_fields(reinforce).items() if field.names_module}
    network = {"network.architecture", "network.encoder", "network.core", "network.head"}
    goals = {f"{name}.hindsight_goals" for name in ("dqn", "r2d2", "sac")}
    assert (
        names == {"algorithm", "curriculum.name", "ppo.auxiliary_loss", "reinforce.shaping"} | network | goals
    )
    config = default_config()
    config.network.encoder = "image=nature,speed=evil.module:encoder"
    with pytest.raises(ConfigError, match=r"`network.encoder` .* names the module evil.module,"):
        require_trusted(check_config(config), "runs/foreign")


def test_an_algorithm_without_jax_is_checked_without_it(reinforce: str) -> None:
    code = (
        "import sys; from jaxrl.config import check_config, default_config;"
        f"check_config(default_config({reinforce!r})); sys.exit('jax' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
