"""Runs in a process of its own with 8 virtual CPU devices and writes what it measured to a folder.

`python tests/parallel/multi_device/measure.py FOLDER` leaves `measured.json` and one
`NAME.npz` per tree of arrays; the tests beside it compare them. One process, because every program
compiles for seconds.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

import jaxrl
from jaxrl.config import Config, resolve
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.runs.folder import RunFolder
from jaxrl.training.trainer import Trainer

ITERATIONS = 5
SAVED = 2 * 32 * 16  # steps of the first two


def tiny_config(iterations: int = ITERATIONS) -> ConfigDict:
    """An LSTM with both normalisers on chunked sequences: everything that crosses devices."""
    config = jaxrl.default_config()
    config.seed = 3
    # Episodes of some tens of steps under a random policy, so that resets fall into every rollout.
    config.env.update(name="gymnax:CartPole-v1", num_envs=32)
    config.network.update(core="lstm", hidden_sizes=(8,), core_size=8)
    config.normalize.update(observations=True, rewards=True)
    config.ppo.update(rollout_length=16, sequence_length=8, num_epochs=2, num_minibatches=2)
    # Constant, because the schedule depends on the budget, and one run here gets it in two parts.
    config.ppo.update(learning_rate=1e-2, schedule="constant")
    config.stop.steps = iterations * 32 * 16
    config.evaluate.episodes = 5
    config.checkpoint.every_steps = 0
    config.log.update(every_steps=2 * 32 * 16, layers=False)
    return config


def on(devices: int) -> Config:
    return resolve(tiny_config(), devices)


def main(folder: Path) -> None:
    measured: dict[str, Any] = {f"loop_{devices}": _loop(devices, folder) for devices in (1, 2)}
    trainer, run = _trainer_of_run(8, folder)
    measured["fit_8"] = _fit(trainer, folder)
    run.checkpoints.close()
    alone = _restored_onto_one(folder)
    _save(folder / "state_restored.npz", _learned(alone))
    measured["restored"] = {
        "iteration": int(alone.state.iteration),
        "devices": len(jax.tree.leaves(alone.state.collector.obs)[0].devices()),
    }
    measured["batch_copies"] = batch_copies_by_loop_depth(training_program(alone))
    measured["evaluations"] = _evaluations(trainer, alone, folder)
    (folder / "measured.json").write_text(json.dumps(measured))


def _trainer_of_run(devices: int, folder: Path) -> tuple[Trainer, RunFolder]:
    """Of a run that is saved after two iterations as well."""
    run = RunFolder(str(folder / "run"), keep=3)
    run.create()
    config = tiny_config()
    config.checkpoint.every_steps = SAVED
    return Trainer(resolve(config, devices), run), run


def _loop(devices: int, folder: Path) -> dict[str, Any]:
    """The user's own loop: the trajectory of iteration 1, and parameters and metrics of all."""
    trainer = Trainer(on(devices))
    _save(folder / f"initial_{devices}.npz", trainer.state.learner.policy.params)
    metrics = []
    for iteration in range(ITERATIONS):
        trajectory = trainer.rollout()
        if iteration == 0:
            _save(folder / f"trajectory_{devices}.npz", trajectory)
        metrics.append(trainer.update(trajectory))
    _save(folder / f"state_{devices}.npz", _learned(trainer))
    return {"metrics": metrics, "replicas_equal": _replicas_equal(_learned(trainer))}


def _fit(trainer: Trainer, folder: Path) -> dict[str, Any]:
    before = jax.tree.leaves(trainer.state)
    summary = trainer.fit()
    _save(folder / "state_fit.npz", _learned(trainer))
    hlo = training_program(trainer)
    return {
        "device": summary["device"],
        "donated": [x.is_deleted() for x in before],
        "replicas_equal": _replicas_equal(_learned(trainer)),
        "host_transfers": sorted(set(re.findall(r"infeed|outfeed|\bsend\(|\brecv\(|callback", hlo))),
        "all_reduces": all_reduces_by_loop_depth(hlo),
        "other_collectives": sorted(
            set(re.findall(r"all-gather|all-to-all|reduce-scatter|collective-permute", hlo))
        ),
    }


def _evaluations(trainer: Trainer, alone: Trainer, folder: Path) -> dict[str, list[float]]:
    """(episodes, mean return, mean length) of so many episodes on eight devices, and of five on one."""
    trainer.save(folder / "evaluated")
    alone.load(folder / "evaluated")
    results = {str(episodes): trainer.evaluate(episodes) for episodes in (5, 19)}
    results["5 on one device"] = alone.evaluate(5)
    return {name: [x.episodes, x.mean, x.mean_length] for name, x in results.items()}


def training_program(trainer: Trainer) -> str:
    """HLO of the compiled program."""
    runtime = trainer._runtime
    assert isinstance(runtime, DeviceRuntime)
    return (runtime.compiled or runtime.trace().lower().compile()).as_text()


def _restored_onto_one(folder: Path) -> Trainer:
    """The rest of the run of eight devices, on one, from the checkpoint after two iterations."""
    for checkpoint in (folder / "run/checkpoints").glob("[0-9]*"):
        if checkpoint.name != str(SAVED):
            shutil.rmtree(checkpoint)
    trainer, run = _trainer_of_run(1, folder)
    trainer.fit()
    run.checkpoints.close()
    return trainer


def _learned(trainer: Trainer) -> dict[str, Any]:
    """The arrays that every device must hold alike."""
    state = trainer.state
    return {
        "params": state.learner.policy.params,
        "opt_state": state.learner.opt_state,
        "obs_stats": state.learner.policy.obs_stats,
        "reward_stats": state.learner.reward_stats,
        "updates": state.learner.updates,
    }


def _replicas_equal(tree: Any) -> bool:
    def equal(x: jax.Array) -> bool:
        first, *others = (np.asarray(shard.data) for shard in x.addressable_shards)
        return all(np.array_equal(first, other) for other in others)

    return all(equal(x) for x in jax.tree.leaves(tree))


def all_reduces_by_loop_depth(hlo: str) -> dict[str, int]:
    """How many all-reduces run at each depth of nested while loops; keys are depths from the entry's 0."""
    return count_by_loop_depth(hlo, lambda line: bool(re.search(r" all-reduce(-start)?\(", line)))


def batch_copies_by_loop_depth(hlo: str) -> dict[str, int]:
    """How often all observations of a rollout on one device are written, at each depth of loops."""
    # In any shape but that of a minibatch's activations, of which some are as large.
    written = re.compile(
        r"= \(?f32\[(16,32,4|2,8,32,4|512,4|2048)\]\S* (copy|transpose|gather|concatenate|fusion)\("
    )
    # What the rollout writes step by step stays in place.
    in_place = "dynamic-update-slice"
    return count_by_loop_depth(hlo, lambda line: bool(written.search(line)) and in_place not in line)


def count_by_loop_depth(hlo: str, counted: Callable[[str], bool]) -> dict[str, int]:
    computations: dict[str, list[str]] = {}
    entry = name = ""
    for line in hlo.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line)
        if header and not line.startswith(" "):
            name = header.group(2)
            computations[name] = []
            entry = name if header.group(1) else entry
        elif name:
            computations[name].append(line)
    counts: dict[str, int] = {}

    def visit(name: str, depth: int) -> None:
        for line in computations[name]:
            if counted(line):
                counts[str(depth)] = counts.get(str(depth), 0) + 1
            inside = depth + (" while(" in line)
            called = re.findall(
                r"(?:body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)", line
            )
            for group in re.findall(r"branch_computations=\{([^}]*)\}", line):
                called += [part.strip().lstrip("%") for part in group.split(",")]
            for other in called:
                if " all-reduce" not in line and " fusion(" not in line:
                    visit(other, inside)

    visit(entry, 0)
    return counts


def _save(path: Path, tree: Any) -> None:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    np.savez(path, **{jax.tree_util.keystr(p, simple=True, separator="/"): np.asarray(x) for p, x in leaves})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
