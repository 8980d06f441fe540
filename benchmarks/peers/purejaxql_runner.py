"""purejaxql: `pqn_gymnax.py` or `pqn_minatar.py` of a checkout, unmodified."""

from __future__ import annotations

import outcome  # isort: skip

import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import whole_program

TASK = outcome.task()
sys.path.insert(0, str(Path(TASK["path"]) / "purejaxql"))
module = importlib.import_module("pqn_minatar" if TASK["work"]["network"] == "cnn" else "pqn_gymnax")

IMPORTED = outcome.since_start()
# Of its pqn_cartpole.yaml and pqn_minatar.yaml, except for counts, which are those of the work.
SETTINGS = {
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "NORM_TYPE": "layer_norm",
    "LR": 5e-4,
    "MAX_GRAD_NORM": 10,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.99,
    "LAMBDA": 0.65,
    "NUM_LAYERS": 2,
    "TEST_DURING_TRAINING": False,
    "WANDB_MODE": "disabled",
}


def _versions() -> dict[str, str]:
    found = outcome.versions("gymnax", "jax", "jaxlib", "flax", "optax", "numpy")
    return {"purejaxql": outcome.commit(TASK["path"]), **found}


def measure(task: dict[str, Any]) -> None:
    work = task["work"]
    settings = {
        **SETTINGS,
        **whole_program.counts(task),
        "TOTAL_TIMESTEPS_DECAY": outcome.rollout_steps(task),
        "NUM_EPOCHS": task["epochs"],
        "HIDDEN_SIZE": work["hidden_sizes"][0],
        "ENV_NAME": work["env"],
    }
    first, second = jax.random.split(jax.random.PRNGKey(0), (2, 1))
    # As its `single_run`: `vmap` over seeds, here one.
    train = jax.vmap(module.make_train(settings))
    whole_program.measure(
        train, first, second, steps=settings["TOTAL_TIMESTEPS"], imported=IMPORTED, versions=_versions()
    )


if __name__ == "__main__":
    measure(TASK)
