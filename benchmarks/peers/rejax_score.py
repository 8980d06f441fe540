"""rejax until a score: an algorithm of its with given settings, evaluated at the end of each part."""

from __future__ import annotations

import outcome  # isort: skip

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import rejax
from gymnax_greedy import greedy_return

VERSIONS = outcome.versions("rejax", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy")


def _greedy(algorithm: Any, name: str) -> Callable[[Any, Any], Any]:
    """`act(state, obs [B, ...])`: the most likely actions of a state of training."""

    def act(state: Any, obs: Any) -> Any:
        if algorithm.normalize_observations:
            obs = algorithm.normalize_obs(state.obs_rms_state, obs)
        if name == "dqn":
            return jnp.argmax(algorithm.agent.apply(state.q_ts.params, obs), axis=-1)
        actor = algorithm.actor
        distribution = actor.apply(state.actor_ts.params, obs, method="_action_dist")
        if algorithm.discrete:
            return jnp.argmax(distribution.logits, axis=-1)
        if name == "sac":
            return actor.action_loc + jnp.tanh(distribution.loc) * actor.action_scale
        return jnp.clip(distribution.loc, *actor.action_range)

    return act


def score(task: dict[str, Any]) -> None:
    name, settings = task["algorithm"], dict(task["settings"])
    algorithm = getattr(rejax, name.upper()).create(env=task["env"], **settings)
    steps_per_iteration = algorithm.num_envs * getattr(algorithm, "num_steps", 1)
    iterations = math.ceil(task["evaluate_every"] / steps_per_iteration)
    act = _greedy(algorithm, name)

    @jax.jit
    def advance(state: Any) -> tuple[Any, Any]:
        state = jax.lax.fori_loop(0, iterations, lambda _, at: algorithm.train_iteration(at), state)
        key = jax.random.fold_in(state.rng, 1)
        return state, greedy_return(algorithm.env, algorithm.env_params, act, state, key)

    # As many iterations as its `train` makes: at least one for each of its evaluations.
    evaluations = math.ceil(settings["total_timesteps"] / algorithm.eval_freq)
    budget = evaluations * math.ceil(algorithm.eval_freq / steps_per_iteration) * steps_per_iteration
    state = jax.jit(algorithm.init_state)(jax.random.PRNGKey(task["seed"]))
    steps, mean = 0, -math.inf
    while steps < budget and mean < task["score"]:
        state, found = advance(state)
        steps, mean = steps + iterations * steps_per_iteration, float(found)
    outcome.report(steps=steps, eval_return=mean, versions=VERSIONS)


if __name__ == "__main__":
    score(outcome.task())
