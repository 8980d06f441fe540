"""Return and latency of an ensemble beside each of its members.

    python benchmarks/ensembles.py RUN RUN RUN --episodes=500
    python benchmarks/ensembles.py RUN RUN --environment="jaxrl:Platformer(levels='test', category='simple')"

All play the same episodes with their best actions, in an environment on the device. The latency is that of
`act` with one observation and the carry of the last call, of all policies in turns.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrl
from jaxrl.envs import registry
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.evaluation.policy_function import ActingFunction
from jaxrl.inference.ensemble import EnsembleFunction

_WARM_UP = 50  # calls


def play(function: ActingFunction, env: Any, episodes: int, seed: int) -> dict[str, np.ndarray]:
    """`return` and `success` [episodes] of one episode of each environment; NaN where success is not told."""
    keys = jax.random.split(jax.random.key(seed), episodes)

    def program() -> dict[str, jax.Array]:
        state, obs = env.reset(keys)
        carry = function.example(episodes)[1]
        nothing = jnp.zeros(episodes)
        start = (state, obs, carry, jnp.ones(episodes, bool), jnp.zeros(episodes, bool), nothing, nothing)

        def step(loop: tuple[Any, ...], t: jax.Array) -> tuple[tuple[Any, ...], None]:
            state, obs, carry, reset, ended, total, success = loop
            mask = env.action_mask(state)
            out = function(obs, carry, reset, *([] if mask is None else [mask]))
            step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
            state, found = env.step(step_keys, state, out["action"])
            total += jnp.where(ended, 0.0, found.reported_reward)
            success = jnp.where(ended, success, found.info.get("success", jnp.full(episodes, jnp.nan)))
            loop = (state, found.obs, out["carry"], found.done, ended | found.done, total, success)
            return loop, None

        *_, ended, total, success = jax.lax.scan(step, start, jnp.arange(env.spec.max_episode_steps))[0]
        return {"return": total, "success": success, "ended": ended}

    found: dict[str, np.ndarray] = jax.device_get(jax.jit(program)())
    assert found.pop("ended").all(), "an episode has not ended within the environment's limit"
    return found


def latencies(policies: dict[str, Any], obs: Any, calls: int) -> dict[str, np.ndarray]:
    """Milliseconds of each call of `act`, by policy; one call of each in turn."""
    took: dict[str, list[float]] = {name: [] for name in policies}
    carries: dict[str, Any] = dict.fromkeys(policies)
    for _ in range(calls + _WARM_UP):
        for name, policy in policies.items():
            started = time.perf_counter()
            _, carries[name] = policy.act(obs, carries[name])
            took[name].append(1e3 * (time.perf_counter() - started))
    return {name: np.array(x[_WARM_UP:]) for name, x in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--environment", default="", help="default: that of the first run")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    members = {run: jaxrl.load(run, "latest") for run in given.runs}
    first = members[given.runs[0]]
    together = jaxrl.load(given.runs, "latest")
    functions = {run: member.function for run, member in members.items()}
    functions["ensemble"] = EnsembleFunction.of(list(functions.values()))
    env = vector_env(registry.make(given.environment or first.config.env.name, first.config.env.wrappers))
    obs = jax.tree.map(lambda x: np.asarray(x)[0], functions[given.runs[0]].random_observations(1))
    took = latencies({**members, "ensemble": together}, obs, given.calls)
    print(f"{env.spec.name}: {given.episodes} episodes; milliseconds of {given.calls} calls")
    for name, function in functions.items():
        found = play(function, env, given.episodes, given.seed)
        score, p50, p99 = found["return"], *np.percentile(took[name], (50, 99))
        error = score.std(ddof=1) / np.sqrt(len(score))
        success = found["success"].mean()
        told = "" if np.isnan(success) else f"success {success:.1%}  "
        print(f"{name:24} return {score.mean():8.2f} ± {error:.2f}  {told}p50 {p50:.3f}  p99 {p99:.3f}")


if __name__ == "__main__":
    main()
