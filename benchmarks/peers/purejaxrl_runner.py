"""PureJaxRL: `ppo.py` or `ppo_rnn.py` of a checkout, unmodified.

Two things around the files: `ppo_rnn.py` calls the `GRUCell` of a flax from 2023, which is given back to it,
so that it runs on the same jax as everything else; for the CNN `ActorCritic` is replaced by the one below.
"""

from __future__ import annotations

import outcome  # isort: skip

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import whole_program
from shipped import PUREJAXRL

TASK = outcome.task()
if TASK["members"] > 1:
    # The threads that jaxlib takes: of two, both wait for ever for orthogonal weights under `vmap`.
    os.environ["NPROC"] = str(max(8, TASK["members"]))


def _restore_gru_cell() -> None:
    """The constructor without a size, and `initialize_carry` on the class: as before flax 0.7."""
    import flax.linen as nn
    import jax.numpy as jnp

    class GRUCell(nn.GRUCell):
        features: int = 128

        @staticmethod
        def initialize_carry(key: Any, batch_dims: tuple[int, ...], size: int) -> Any:
            return jnp.zeros((*batch_dims, size))

    nn.GRUCell = GRUCell


sys.path.insert(0, str(Path(TASK["path"]) / "purejaxrl"))
RECURRENT = TASK["work"]["network"] == "lstm"
if RECURRENT:
    _restore_gru_cell()
module = importlib.import_module("ppo_rnn" if RECURRENT else "ppo")

IMPORTED = outcome.since_start()


def _versions() -> dict[str, str]:
    found = outcome.versions("gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy")
    return {"purejaxrl": outcome.commit(TASK["path"]), **found}


def _use_cnn(obs_shape: list[int], hidden_sizes: list[int]) -> None:
    import distrax
    import flax.linen as nn

    class ActorCritic(nn.Module):
        """One 3x3 convolution of 16 channels, dense layers, two heads; observations come flattened."""

        action_dim: int
        activation: str

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x.reshape(*x.shape[:-1], *obs_shape).astype("float32")
            x = nn.relu(nn.Conv(16, (3, 3), padding="VALID")(x))
            x = x.reshape(*x.shape[:-3], -1)
            for size in hidden_sizes:
                x = nn.relu(nn.Dense(size)(x))
            logits = nn.Dense(self.action_dim)(x)
            return distrax.Categorical(logits=logits), nn.Dense(1)(x).squeeze(-1)

    module.ActorCritic = ActorCritic


def measure(task: dict[str, Any]) -> None:
    _measure(task, jax.random.PRNGKey(0), jax.random.PRNGKey(1), lambda train: train)


def population(task: dict[str, Any]) -> None:
    """As its README trains many seeds: `jax.vmap` over keys."""
    first, second = jax.random.split(jax.random.PRNGKey(0), (2, task["members"]))
    _measure(task, first, second, jax.vmap)


def _measure(task: dict[str, Any], key: Any, other_key: Any, over: Callable[..., Any]) -> None:
    work = task["work"]
    if work["network"] == "cnn":
        _use_cnn(work["obs_shape"], work["hidden_sizes"])
    settings = {
        **PUREJAXRL,
        **whole_program.counts(task),
        "UPDATE_EPOCHS": task["epochs"],
        "ACTIVATION": work["activation"],
        "ENV_NAME": work["env"],
    }
    train = over(module.make_train(settings))
    members = max(1, task["members"])
    whole_program.measure(
        train,
        key,
        other_key,
        steps=settings["TOTAL_TIMESTEPS"],
        imported=IMPORTED,
        versions=_versions(),
        members=members,
    )


def solve(task: dict[str, Any]) -> None:
    """Its `train` is one program over the whole budget: solved or not is known at the end."""
    import gymnax
    import jax.numpy as jnp
    from gymnax_greedy import greedy_return

    train = module.make_train(PUREJAXRL | {"ENV_NAME": "CartPole-v1"})
    env, env_params = gymnax.make("CartPole-v1")
    network = module.ActorCritic(2, activation="tanh")

    def greedy(params: Any, obs: Any) -> Any:
        return jnp.argmax(network.apply(params, obs)[0].logits, axis=-1)

    def run(key: Any) -> Any:
        params = train(key)["runner_state"][0].params
        return greedy_return(env, env_params, greedy, params, jax.random.fold_in(key, 1))

    mean = jax.jit(run)(jax.random.PRNGKey(task["seed"]))
    outcome.report(steps=PUREJAXRL["TOTAL_TIMESTEPS"], eval_return=float(mean), versions=_versions())


if __name__ == "__main__":
    {"measure": measure, "population": population, "solve": solve}[TASK["job"]](TASK)
