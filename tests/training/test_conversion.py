"""`jaxrl convert`: parameters of a file become a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.commands.convert import main
from jaxrl.inference import PolicyFunction, formats
from jaxrl.training import conversion
from tests.compiled_programs import SMALL
from tests.inference.runs import observations, policy_of

BIAS = "params.value.bias"
FIELDS: dict[str, Any] = {"env__name": "gymnax:CartPole-v1", "normalize__observations": True}


def flags(**fields: Any) -> list[str]:
    named = SMALL | {"env.wrappers": ()} | {name.replace("__", "."): value for name, value in fields.items()}
    return [f"--config.{name}={value}" for name, value in named.items()]


def convert(*arguments: object) -> int:
    return main(["jaxrl convert", *map(str, arguments)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The arrays of a policy as `jaxrl export` writes them."""
    folder = tmp_path_factory.mktemp("exported")
    function = PolicyFunction.of(policy_of(**FIELDS))
    for kind in ("numpy", "safetensors"):
        formats.write_arrays(function, folder, kind)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["policy.npz", "policy.safetensors"])
def test_a_file_becomes_a_run_that_acts_the_same(
    name: str, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run = policy_of(**FIELDS), tmp_path / "run"
    assert convert(f"--input={exported / name}", f"--workdir={run}", "ppo", *flags(**FIELDS)) == 0
    assert "checkpoints/0" in capsys.readouterr().out
    agent = jaxrl.load(run)
    assert agent.step == 0
    obs = observations(agent.spec.observation_space, 64, np.random.default_rng(0))
    function = PolicyFunction.of(source)
    _, carry, reset = function.example(64)
    out = jax.jit(function)(obs, carry, reset)
    action, after = agent.act(obs)
    np.testing.assert_array_equal(action, out["action"])
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), after, out["carry"])


def test_moments_of_several_tasks_have_a_count_each() -> None:
    """With one count for all of them a warm start from the run would leave its moments out."""
    place = "learner/policy/obs_stats"
    given = {f"normalizer.obs.{what}": np.ones((2, 3)) for what in ("mean", "std")}
    own = {f"{place}/{name}/0": np.zeros((2, 3), np.float32) for name in ("mean", "m2")}
    own[f"{place}/count"] = np.zeros(2, np.float32)
    conversion._take_moments(given, ["obs"], own)
    assert own[f"{place}/count"].tolist() == [1e6, 1e6]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({BIAS: np.zeros(2, np.float32)}, "has the shape [2], not [1]"),
        ({"params.valeu.bias": np.zeros(1, np.float32)}, "which this network lacks; did you mean"),
        ({BIAS: None}, f"lacks the array '{BIAS}'"),
        ({BIAS: np.array([np.nan])}, "must hold finite floats"),
        ({"normalizer.obs.mean": None}, "lacks the array 'normalizer.obs.mean'"),
    ],
)
def test_names_and_shapes_are_checked(
    change: dict[str, Any], said: str, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(exported / "policy.npz") as stored:
        changed = dict(stored) | change
    file = tmp_path / "changed.npz"
    np.savez(file, allow_pickle=False, **{name: x for name, x in changed.items() if x is not None})
    assert convert(f"--input={file}", f"--workdir={tmp_path / 'run'}", "ppo", *flags(**FIELDS)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "`--input` is missing"),
        (["--input=x.npz"], "`--workdir` is missing"),
        (["--input=x.npz", "--workdir={tmp}/a", "ppo"], "cannot be read"),
        (["--input={tmp}/text.npz", "--workdir={tmp}/a", "ppo"], "cannot be read"),
        (["--input={tmp}/text.safetensors", "--workdir={tmp}/a", "ppo"], "is damaged"),
        (["--input={tmp}/text.txt", "--workdir={tmp}/a", "ppo"], "must be a .npz or .safetensors file"),
        (["--input={tmp}", "--workdir={tmp}/a", "ppo"], "must be a .npz or .safetensors file"),
    ],
)
def test_bad_input(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("npz", "safetensors", "txt"):
        (tmp_path / f"text.{kind}").write_text("no arrays")
        os.mkfifo(tmp_path / f"pipe.{kind}")
    assert convert(*(argument.format(tmp=tmp_path) for argument in arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said.format(tmp=tmp_path) in line
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_an_auxiliary_loss_starts_fresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = FIELDS | {"ppo__auxiliary_loss": "tests.inference.test_export_networks:NOTHING_TO_ACT_BY"}
    formats.write_arrays(PolicyFunction.of(policy_of(**fields)), tmp_path, "numpy")
    arguments = (f"--input={tmp_path / 'policy.npz'}", f"--workdir={tmp_path / 'run'}", "ppo")
    assert convert(*arguments, *flags(**fields)) == 0, capsys.readouterr().err
