"""The folder of a run is data: no module is imported because only that folder names it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jaxrl
from jaxrl.commands import evaluate, export, inference_benchmark
from jaxrl.config import ConfigError, construction
from jaxrl.envs import modules, registry, wrappers
from jaxrl.main import main as train
from tests.inference.runs import save_run

MODULE = """
from pathlib import Path
from tests.e2e.environments import ShortOrLong
Path({marker!r}).touch()

class Env(ShortOrLong):
    pass

def encoder(network, space):
    raise RuntimeError("no such luck")
"""
COMMANDS = {
    "evaluate": (evaluate.main, ["--episodes=1"]),
    "export": (export.main, ["--format=numpy", "--steps=1"]),
    "inference-benchmark": (inference_benchmark.main, ["--batch=1", "--seconds=0.01"]),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    sizes = {"network__hidden_sizes": (4,), "network__core_size": 4}
    save_run(folder, env__name="tests.e2e.environments:ShortOrLong(long=2)", **sizes)
    return folder


@pytest.fixture
def run(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run folder below the current one, from which everything can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    before = set(sys.modules)
    yield Path(shutil.copytree(saved, tmp_path / "runs" / "foreign"))
    for name in set(sys.modules) - before:
        if name.startswith(("runs", "evil", "mine")):
            del sys.modules[name]


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Exists once the module has been imported."""
    return tmp_path / "marker"


def change(run: Path, section: str, key: str, value: str | list[str]) -> None:
    content = json.loads((run / "config.json").read_text())
    (content[section] if section else content)[key] = value
    (run / "config.json").write_text(json.dumps(content))


def refused(command: str, run: Path, capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    job, always = COMMANDS[command]
    assert job([f"jaxrl {command}", f"--workdir={run}", *always, *arguments]) == 2
    output, error = capfd.readouterr()
    assert output == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("env", "name", "evil:Env"),
        ("env", "name", "gymnasium:evil:Env"),
        ("network", "encoder", "evil:encoder"),
        ("network", "core", "evil:encoder"),
        ("network", "head", "evil:encoder"),
        ("evaluate", "unseen", "evil:Env"),
        ("", "algorithm", "evil:Env"),
    ],
)
def test_modules_that_only_a_run_names_are_not_imported(
    command: str,
    section: str,
    key: str,
    value: str,
    run: Path,
    marker: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "evil.py").write_text(MODULE.format(marker=str(marker)))
    change(run, "env", "name", "gymnax:CartPole-v1")
    change(run, section, key, value)
    error = refused(command, run, capfd)
    assert f"`{f'{section}.{key}'.lstrip('.')}` (={value!r})" in error
    assert "--trust" in error
    assert not marker.exists()


@pytest.mark.parametrize(
    "line", ["categories: {a: ['evil:Env']}", "categories: {a: [{env: x, wrappers: ['evil:Wrap']}]}"]
)
def test_modules_of_a_suite_that_a_run_names_are_not_imported(
    line: str, run: Path, marker: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evil.py").write_text(MODULE.format(marker=str(marker)))
    (tmp_path / "suite.yaml").write_text(line)
    change(run, "env", "name", "gymnax:CartPole-v1")
    change(run, "evaluate", "suite", str(tmp_path / "suite.yaml"))
    assert train(["jaxrl", f"--resume={run}"]) == 2
    assert "names modules, which are only imported if the command line names them" in capfd.readouterr().err
    assert not marker.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_suite_that_a_run_names_is_not_read_where_it_is_not_played(
    command: str, run: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    change(run, "env", "name", "gymnax:CartPole-v1")
    change(run, "evaluate", "suite", "/dev/zero")
    monkeypatch.setattr(construction, "read_yaml", lambda file: pytest.fail(f"{file} was read"))
    job, always = COMMANDS[command]
    # The parameters of the saved run are of another environment.
    assert job([f"jaxrl {command}", f"--workdir={run}", *always]) == 2
    assert "evaluate.suite" not in capfd.readouterr().err


def test_python_names_its_own_argument(run: Path) -> None:
    with pytest.raises(ConfigError, match="only imported with trust=True: "):
        jaxrl.load(run)


def test_trusted_modules_are_imported(run: Path, marker: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODULE.format(marker=str(marker)))
    change(run, "env", "name", "mine:Env(long=2)")
    job, always = COMMANDS["evaluate"]
    assert job(["jaxrl evaluate", f"--workdir={run}", *always, "--trust"]) == 0
    assert marker.exists()


@pytest.mark.parametrize(
    "name", ["runs.foreign.evil:Env", "gymnasium:runs.foreign.evil:Env", "runs.foreign.package.evil:Env"]
)
def test_no_module_is_imported_from_inside_a_run(
    name: str, run: Path, marker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Packages without an `__init__` make them importable, and one with an `__init__` would run that.
    (run / "package").mkdir()
    (run / "package" / "__init__.py").write_text(MODULE.format(marker=str(marker)))
    for place in (run, run / "package"):
        (place / "evil.py").write_text(MODULE.format(marker=str(marker)))
    change(run, "env", "name", name)
    assert "no code is imported from there" in refused("evaluate", run, capfd, "--trust")
    # Nor where the command line names it.
    new = run.parent / "new"
    assert train(["jaxrl", "--config=ppo", f"--config.env.name={name}", f"--workdir={new}"]) == 2
    assert "no code is imported from there" in capfd.readouterr().err
    assert not marker.exists()


def test_nothing_is_imported_from_the_run_in_which_one_works(
    run: Path, marker: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "evil.py").write_text(MODULE.format(marker=str(marker)))
    change(run, "env", "name", "evil:Env")
    monkeypatch.chdir(run)
    assert "no code is imported from there" in refused("evaluate", run, capfd, "--trust")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("gymnax:CartPole-v1", None),
        ("jaxrl:ProbeMemory(delay=3)", None),
        ("envpool:Pong-v5", None),
        ("gymnasium:CartPole-v1(x='a:b')", None),
        ("gymnasium:ALE/Pong-v5", None),
        ("gymnasium:a.b:C-v0(x=1)", "a.b"),
        ("gymnasium:GymV21Environment-v0(env_id='a:b')", "GymV21Environment-v0"),
        ("pettingzoo:mpe2/simple_spread_v3(N=2)", None),
        ("pettingzoo:a.b:parallel_env(x='c:d')", "a.b"),
        (" a.b:C", "a.b"),
        ("jaxrl:TicTacToe(opponent='minimax')", None),
        ("jaxrl:TicTacToe(opponent='a.b:play')", "a.b"),
        ("pgx:hex", None),
        ("pgx:hex(opponent='random')", None),
        ("pgx:hex(opponent='a.b:play')", "a.b"),
    ],
)
def test_names_that_import_are_told_from_those_that_do_not(name: str, module: str | None) -> None:
    assert registry.module_of(name) == module


@pytest.mark.parametrize(
    ("wrapper", "module"),
    [
        ("time_limit(steps=3)", None),
        ("a.b:Wrapper(x=1)", "a.b"),
        ("reward_shaping(function='a.b:f')", "a.b"),
        ("reward_shaping(function=3)", None),
        ("potential_shaping(function='a.b:f', gamma=0.9)", "a.b"),
        ("reward_shaping(", None),
    ],
)
def test_wrappers_that_import_are_told_from_those_that_do_not(wrapper: str, module: str | None) -> None:
    assert wrappers.module_of(wrapper) == module


def test_a_wrapper_is_only_imported_with_trust(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    change(run, "env", "name", "gymnax:CartPole-v1")
    change(run, "env", "wrappers", ["no_such_module:Wrapper"])
    error = refused("evaluate", run, capfd)
    assert "`env.wrappers` (='no_such_module:Wrapper')" in error
    assert "--trust" in error


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("encoder", "os:system"),
        ("encoder", "shutil:rmtree"),
        ("core", "subprocess:Popen"),
        ("core", "os:system"),
        ("head", "builtins:print"),
        ("encoder", "math:pi"),
    ],
)
def test_only_factories_are_called(
    field: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    overrides = [f"--config.network.{field}={name}", "--config.num_devices=1"]
    assert train(["jaxrl", "--config=ppo", f"--workdir={tmp_path / 'new'}", *overrides]) == 2
    error = capfd.readouterr().err
    assert f"`network.{field}` (={name!r}) must be a function of (network" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_missing_package_is_told_from_a_run() -> None:
    modules.require_outside_runs("no_such_package.module")
    modules.require_outside_runs("os")
    modules.require_outside_runs("jaxrl.config.files")


@pytest.mark.parametrize("name", ["no_such_module:Env", "gymnasium:no_such_module:Env"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_that_is_not_here_is_one_line(
    command: str, name: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(run, "env", "name", name)
    error = refused(command, run, capfd, "--trust")
    assert f"`env.name` (={name!r})" in error
    assert "no_such_module" in error
    if not name.startswith("gymnasium"):
        assert "nor is it a module" in error
