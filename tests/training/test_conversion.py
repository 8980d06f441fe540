"""`jaxrl convert`: parameters of a file and runs of an older layout become runs of today."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxrl
from jaxrl.commands.convert import main
from jaxrl.config import from_json, to_json
from jaxrl.inference import PolicyFunction, arrays
from jaxrl.runs.checkpoint import Checkpointer, state_arrays
from jaxrl.runs.folder import RunFolder
from jaxrl.training.assembly import Assembly
from jaxrl.training.trainer import Trainer
from tests.inference.runs import observations, policy_of
from tests.programs import SMALL, tiny_config

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
        arrays.write(function, folder, kind)
    return folder


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


def older(folder: Path, fields: dict[str, Any]) -> Any:
    """A run in the layout before the rooms, made of a state of today; returns that."""
    config = tiny_config(**fields)
    state = Assembly.build(config).runtime.learning.initial_state()
    state = dataclasses.replace(state, iteration=state.iteration + 3)
    learner, collector = state.learner, state.collector
    assert collector is not None
    flat = {name: getattr(collector, name) for name in ("env_state", "obs", "reset", "carry", "episode")}
    flat |= {name: getattr(learner, name) for name in ("opt_state", "reward_stats", "discounted_return")}
    flat |= {"hyperparams": learner.hyperparams, "updates": learner.updates, "key": state.key}
    flat |= {"params": learner.policy.params, "obs_stats": learner.policy.obs_stats}
    written = to_json(config)
    written["log"] |= {"tensorboard": True}
    checkpointer = Checkpointer(str(folder / "checkpoints"), keep=1)
    checkpointer.save(384, flat | {"iteration": state.iteration}, {"config": written, "seconds": 12.5})
    checkpointer.close()
    (folder / "config.json").write_text(json.dumps(written))
    return state


def test_an_older_run_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = older(tmp_path / "old", FIELDS)
    assert convert(f"--input={tmp_path / 'old'}", f"--workdir={tmp_path / 'new'}") == 0
    said = capsys.readouterr().out
    assert "left out of the configuration: log.tensorboard" in said
    assert "anew" not in said
    config = from_json(json.loads((tmp_path / "new" / "config.json").read_text()))
    trainer = Trainer(config, RunFolder(str(tmp_path / "new")))
    trainer.start()
    for name, found in state_arrays.flat(state_arrays.stored(trainer.state)).items():
        np.testing.assert_array_equal(found, state_arrays.flat(state_arrays.stored(state))[name])
    assert (trainer.steps, trainer.progress.seconds) == (384, 12.5)
    # A run of today is not converted, nor is a folder overwritten.
    assert convert(f"--input={tmp_path / 'new'}", f"--workdir={tmp_path / 'third'}") == 2
    assert "is a run of this version" in capsys.readouterr().err
    assert convert(f"--input={tmp_path / 'old'}", f"--workdir={tmp_path / 'new'}") == 2
    assert "holds a run already" in capsys.readouterr().err


def test_an_older_run_imports_only_what_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    older(tmp_path / "old", FIELDS)
    file = tmp_path / "old" / "config.json"
    file.write_text(file.read_text().replace("gymnax:CartPole-v1", "convert_evil:Env"))
    (tmp_path / "convert_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.syspath_prepend(str(tmp_path))
    command = [f"--input={tmp_path / 'old'}", f"--workdir={tmp_path / 'new'}"]
    assert convert(*command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "only imported with --trust" in line
    assert not (tmp_path / "ran").exists()
    assert convert(*command, "--trust") == 2  # it is imported, and holds no environment
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "`--input` is missing"),
        (["--input=x.npz"], "`--workdir` is missing"),
        (["--input=x.npz", "--workdir={tmp}/a", "ppo"], "cannot be read"),
        (["--input={tmp}/text.npz", "--workdir={tmp}/a", "ppo"], "cannot be read"),
        (["--input={tmp}/text.safetensors", "--workdir={tmp}/a", "ppo"], "is damaged"),
        (["--input={tmp}/text.txt", "--workdir={tmp}/a", "ppo"], "must be a .npz or .safetensors file"),
        (["--input={tmp}", "--workdir={tmp}/a"], "the checkpoints of {tmp} are none"),
        (["--input={tmp}", "--workdir={tmp}/a", "ppo"], "the config of an older run comes from its own"),
    ],
)
def test_bad_input(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("npz", "safetensors", "txt"):
        (tmp_path / f"text.{kind}").write_text("no arrays")
    assert convert(*(argument.format(tmp=tmp_path) for argument in arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said.format(tmp=tmp_path) in line
    assert not (tmp_path / "a").exists()
