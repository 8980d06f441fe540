"""JaxMARL: `baselines/IPPO/ippo_ff_overcooked.py` of a checkout, unmodified.

Its log is left out: a stand-in takes the place of wandb, and the program calls the host nowhere.
"""

from __future__ import annotations

import outcome  # isort: skip

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import jax
import whole_program

TASK = outcome.task()
sys.path.insert(0, str(Path(TASK["path"]) / "baselines" / "IPPO"))
sys.modules["wandb"] = types.ModuleType("wandb")
jax.debug.callback = lambda *args, **kwargs: None
module = importlib.import_module("ippo_ff_overcooked")

IMPORTED = outcome.since_start()
# Of its ippo_ff_overcooked.yaml, except for counts, which are those of the work.
SETTINGS = {
    "LR": 2.5e-4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "REW_SHAPING_HORIZON": 2.5e6,
    "ENV_NAME": "overcooked",
    "ANNEAL_LR": True,
}


def measure(task: dict[str, Any]) -> None:
    work, num_envs = task["work"], task["num_envs"]
    per_iteration = num_envs * task["rollout_length"]
    steps = per_iteration * outcome.iterations(task["steps"], per_iteration)
    settings = SETTINGS | {
        "NUM_ENVS": num_envs,
        "NUM_STEPS": task["rollout_length"],
        "TOTAL_TIMESTEPS": steps,
        "UPDATE_EPOCHS": task["epochs"],
        "NUM_MINIBATCHES": work["num_minibatches"],
        "ACTIVATION": work["activation"],
        "ENV_KWARGS": {"layout": module.overcooked_layouts["cramped_room"]},
    }
    first, second = jax.random.split(jax.random.PRNGKey(0))
    whole_program.measure(
        module.make_train(settings),
        first,
        second,
        steps=steps,
        imported=IMPORTED,
        versions={
            "JaxMARL": outcome.commit(TASK["path"]),
            **outcome.versions("jaxmarl", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy"),
        },
    )


if __name__ == "__main__":
    measure(TASK)
