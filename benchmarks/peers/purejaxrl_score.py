"""PureJaxRL until a score: `ppo.py` of a checkout, unmodified: one program over all steps, then evaluated."""

from __future__ import annotations

import outcome  # isort: skip

import importlib
import sys
from pathlib import Path
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax_greedy import greedy_return


def score(task: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(task["path"]) / "purejaxrl"))
    module: Any = importlib.import_module("ppo")
    settings = task["settings"]
    train = module.make_train(dict(settings))
    env, env_params = gymnax.make(settings["ENV_NAME"])
    network = module.ActorCritic(env.action_space(env_params).n, activation=settings["ACTIVATION"])

    def greedy(params: Any, obs: Any) -> Any:
        return jnp.argmax(network.apply(params, obs.reshape(len(obs), -1))[0].logits, axis=-1)

    @jax.jit
    def run(key: Any) -> Any:
        params = train(key)["runner_state"][0].params
        return greedy_return(env, env_params, greedy, params, jax.random.fold_in(key, 1))

    mean = float(run(jax.random.PRNGKey(task["seed"])))
    versions = outcome.versions("gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy")
    versions["purejaxrl"] = outcome.commit(task["path"])
    outcome.report(steps=settings["TOTAL_TIMESTEPS"], eval_return=mean, versions=versions)


if __name__ == "__main__":
    score(outcome.task())
