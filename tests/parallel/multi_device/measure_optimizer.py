"""Trains with the optimiser's state divided among virtual CPU devices; see `measure.py`.

`python -m tests.parallel.multi_device.measure_optimizer FOLDER` leaves `measured.json` and one `NAME.npz` per
tree of arrays.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.config import Config, resolve
from jaxrl.training.trainer import Trainer
from tests.parallel.multi_device.measure import count_by_loop_depth, tiny_config, training_program
from tests.parallel.multi_device.measure_host import save

ITERATIONS = 3
# All else that an update may do: parts of minibatches, clipping, norms by layer; and frozen parameters, a
# stop by divergence, updates that are left out.
CASES: dict[str, dict[str, Any]] = {
    "clipped": {"ppo.max_grad_norm": 0.02, "ppo.gradient_accumulation": 2, "log.layers": True},
    "frozen": {"network.frozen": ("params/MLP_0/*",), "ppo.target_kl": 3e-4, "nonfinite": "skip"},
}


def config_of(case: str, devices: int, shard: str = "on") -> Config:
    config = tiny_config(ITERATIONS)
    config.env.num_envs = 24
    config.network.update(hidden_sizes=(32,), core_size=32)  # parameters for three devices, in whole tiles
    config.ppo.shard_optimizer = shard
    config.update_from_flattened_dict(CASES[case])
    return resolve(config, devices)


def main(folder: Path) -> None:
    measured: dict[str, Any] = {}
    for case in CASES:
        for devices in (1, 3):
            trainer = Trainer(config_of(case, devices))
            found = _train(trainer, ITERATIONS - 1)
            if devices == 3:
                found |= _layout(trainer)
                trainer.save(folder / case)
                save(folder / f"{case}_saved.npz", _learned(trainer))
                if case == "frozen":  # What is exchanged is read in the program of one case.
                    found["collectives"] = _collectives(trainer)
            found["metrics"] += _train(trainer, 1)["metrics"]
            save(folder / f"{case}_{devices}.npz", _learned(trainer))
            if case == "frozen":
                found["skips"] = _train_on_nan(trainer)
                save(folder / f"nan_{devices}.npz", _learned(trainer))
            measured[f"{case}_{devices}"] = found
    for devices, shard in ((1, "on"), (2, "on"), (6, "on"), (3, "off")):
        trainer = Trainer(config_of("clipped", devices, shard))
        trainer.load(folder / "clipped")
        if shard == "on":
            _train(trainer, 1)
        save(folder / f"restored_{devices}.npz", _learned(trainer))
    (folder / "measured.json").write_text(json.dumps(measured))


def _train(trainer: Trainer, iterations: int) -> dict[str, Any]:
    return {"metrics": [trainer.update(trainer.rollout()) for _ in range(iterations)]}


def _train_on_nan(trainer: Trainer) -> dict[str, float]:
    """One reward is not finite: it is on one device, and all of them must leave the update out."""
    rollout = trainer.rollout()
    return trainer.update(dataclasses.replace(rollout, reward=rollout.reward.at[-1, 0].set(jnp.nan)))


def _layout(trainer: Trainer) -> dict[str, Any]:
    learner: Any = trainer.state.learner
    params = jax.tree.leaves(learner.policy.params)
    moments = learner.opt_state[1].mu
    return {
        "parameters": sum(x.size for x in params),
        "moments": [x.data.size for x in moments.addressable_shards],
        "replicas_equal": all(
            np.array_equal(x.addressable_data(0), x.addressable_data(i)) for x in params for i in (1, 2)
        ),
    }


def _collectives(trainer: Trainer) -> dict[str, dict[str, int]]:
    """By kind, how many run at each depth of loops."""
    hlo = training_program(trainer)
    return {
        kind: count_by_loop_depth(hlo, lambda line, kind=kind: bool(re.search(rf" {kind}(-start)?\(", line)))
        for kind in ("all-reduce", "reduce-scatter", "all-gather")
    }


def _learned(trainer: Trainer) -> Any:
    state = trainer._runtime.learning.whole(trainer.state)
    return state.learner.policy.params, state.learner.opt_state


if __name__ == "__main__":
    main(Path(sys.argv[1]))
