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
from shipped import PUREJAXRL

TASK = outcome.task()
sys.path.insert(0, str(Path(TASK["path"]) / "baselines" / "IPPO"))
sys.modules["wandb"] = types.ModuleType("wandb")
jax.debug.callback = lambda *args, **kwargs: None
module = importlib.import_module("ippo_ff_overcooked")

IMPORTED = outcome.since_start()
# Of its ippo_ff_overcooked.yaml, which has PureJaxRL's numbers; the counts are those of the work.
SETTINGS = PUREJAXRL | {"REW_SHAPING_HORIZON": 2.5e6, "ENV_NAME": "overcooked"}


def measure(task: dict[str, Any]) -> None:
    work = task["work"]
    settings = {
        **SETTINGS,
        **whole_program.counts(task),
        "UPDATE_EPOCHS": task["epochs"],
        "ACTIVATION": work["activation"],
        "ENV_KWARGS": {"layout": module.overcooked_layouts["cramped_room"]},
    }
    first, second = jax.random.split(jax.random.PRNGKey(0))
    whole_program.measure(
        module.make_train(settings),
        first,
        second,
        steps=settings["TOTAL_TIMESTEPS"],
        imported=IMPORTED,
        versions={
            "JaxMARL": outcome.commit(TASK["path"]),
            **outcome.versions("jaxmarl", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy"),
        },
    )


if __name__ == "__main__":
    measure(TASK)
