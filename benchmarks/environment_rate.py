"""Steps per second of device environments alone: random actions, automatic resets, no policy, no pictures.

  python benchmarks/environment_rate.py jaxrl:Navigation jaxrl:Platformer
  python benchmarks/environment_rate.py gymnax:CartPole-v1 --envs=256 --seconds=10

Each is compiled as one loop over `--steps` steps of all environments and repeated until `--seconds` are over.
Printed are the fastest and the median repetition, in environment steps per second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import jax

from jaxrl import envs
from jaxrl.envs.behaviour import random_action
from jaxrl.envs.vector import VectorEnv


def measure(name: str, num_envs: int, steps: int, seconds: float) -> list[float]:
    """Environment steps per second of each repetition."""
    bare = envs.make(name)
    env = VectorEnv(bare)
    # Drawn before the loop, which is to hold nothing but the environments.
    keys = jax.random.split(jax.random.key(0), 64 * num_envs).reshape(64, num_envs)
    state, _ = jax.jit(env.reset)(keys[0])
    choose = jax.vmap(random_action, in_axes=(None, 0, 0))
    actions = jax.jit(jax.vmap(lambda keys: choose(bare, keys, state.env)))(keys)

    def step(loop: tuple[Any, jax.Array], t: jax.Array) -> tuple[tuple[Any, jax.Array], None]:
        state, total = loop
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys[0], t)
        state, found = env.step(step_keys, state, actions[t % 64])
        # Everything that a policy and a learner would read has to be computed.
        used = sum(x.astype("float32").sum() for x in jax.tree.leaves((found.obs, found.final_obs)))
        return (state, total + used + found.reward.sum() + found.done.sum()), None

    @jax.jit
    def run(state: Any, total: jax.Array, first: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(step, (state, total), first + jax.numpy.arange(steps))[0]

    loop = run(state, jax.numpy.zeros(()), jax.numpy.int32(0))
    rates, began, repetition = [], time.perf_counter(), 1
    while time.perf_counter() - began < seconds or not rates:
        start = time.perf_counter()
        loop = jax.block_until_ready(run(*loop, jax.numpy.int32(repetition * steps)))
        rates.append(num_envs * steps / (time.perf_counter() - start))
        repetition += 1
    return rates


def main() -> None:
    """Measures each environment that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    for name in arguments.names:
        rates = measure(name, arguments.envs, arguments.steps, arguments.seconds)
        print(
            f"{name}: fastest {max(rates):,.0f}, median {statistics.median(rates):,.0f} steps/s", flush=True
        )


if __name__ == "__main__":
    main()
