"""Compares an exported policy with the original over steps played in its environment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.host_env import HostOptions
from jaxrl.envs.numbering import counted_from_zero, own_numbers
from jaxrl.envs.vector_mixture import vector_env
from jaxrl.evaluation.policy_function import ActingFunction, flat

# Allows for other orders of summation over hundreds of recurrent steps; relative to 1 + magnitude.
TOLERANCE = 1e-3
# Share of rows with a reset that the environment did not ask for: an episode may outlast the comparison.
_EXTRA_RESETS = 0.02

Runner = Callable[..., dict[str, Any]]
# Yields (obs, first, action_mask or None) of all environments and is sent their actions.
Played = Generator[tuple[Any, np.ndarray, np.ndarray | None], np.ndarray, None]


@dataclasses.dataclass(frozen=True)
class EquivalenceCheck:
    """The result of a comparison.

    Attributes:
      steps, environments: how many steps were played in each of how many environments.
      resets: how many rows had `reset` set after the first step.
      different_actions: rows whose actions differ; real-valued ones by more than `TOLERANCE`.
      largest_difference: in `value`, `distribution` and `carry`, relative to 1 + magnitude.
    """

    steps: int
    environments: int
    resets: int
    different_actions: int
    largest_difference: dict[str, float]

    @property
    def same(self) -> bool:
        """True if all actions agree, and everything else up to rounding."""
        # Not `max() <=`: max() may skip a NaN, which must fail.
        close = all(x <= TOLERANCE for x in self.largest_difference.values())
        return self.different_actions == 0 and close


def compare(
    function: ActingFunction,
    runners: Mapping[str, Runner],
    env_name: str,
    wrappers: Sequence[str] = (),
    steps: int = 200,
    environments: int = 8,
    seed: int = 0,
) -> dict[str, EquivalenceCheck]:
    """Lets `function` act in its environment and shows all runners the same observations.

    Each keeps its own carry throughout, so that errors in it accumulate.

    Args:
      runners: by name; each has the arguments and results of `function`, as numpy arrays.
      steps: how many to play in each environment.
      environments: how many to play in parallel.
      seed: for resets and sampled actions.

    Raises:
      HostEnvError: an environment failed.
    """
    act = jax.jit(function)
    # Agents of one environment are rows of their own.
    spec = registry.spec_of(env_name, wrappers)
    rows = environments * spec.num_agents
    carry = function.example(rows)[1]
    theirs = dict.fromkeys(runners, carry)
    rng = np.random.default_rng(seed)
    play = _host if registry.is_host(env_name) else _device
    played = play(env_name, wrappers, rows, seed)
    resets = 0
    different = dict.fromkeys(runners, 0)
    largest = {name: {"value": 0.0, "distribution": 0.0, "carry": 0.0} for name in runners}
    obs, first, mask = next(played)
    try:
        for t in range(steps):
            reset = first | (rng.random(rows) < _EXTRA_RESETS)
            resets += int(reset.sum()) if t else 0
            rest = [] if mask is None else [mask]
            rest += [np.array([seed, t], np.uint32)] if function.sample else []
            obs = own_numbers(spec.observation_space, obs)
            out = jax.device_get(act(obs, carry, reset, *rest))
            for runner, run in runners.items():
                found = run(obs, jax.device_get(theirs[runner]), reset, *rest)
                different[runner] += int(_differ(out["action"], found["action"]).sum())
                for name, x in largest[runner].items():
                    largest[runner][name] = float(np.maximum(x, _distance(out[name], found[name])))
                theirs[runner] = found["carry"]
            carry = out["carry"]
            obs, first, mask = played.send(counted_from_zero(spec.action_space, out["action"]))
    finally:
        played.close()
    return {
        name: EquivalenceCheck(steps, environments, resets, different[name], largest[name])
        for name in runners
    }


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """bool[B], True where the rows differ."""
    if a.shape != np.shape(b):
        return np.ones(len(a), bool)
    same = a == b if a.dtype.kind in "iu" else np.abs(a - b) <= TOLERANCE * (1 + np.abs(a))
    return ~same.reshape(len(a), -1).all(axis=1)


def _distance(a: Any, b: Any) -> float:
    """Largest relative difference of two trees; infinite if names or shapes differ."""
    ours = dict(flat(a))
    theirs = dict(flat(b))
    if ours.keys() != theirs.keys() or any(ours[k].shape != np.shape(theirs[k]) for k in ours):
        return float("inf")
    found = [np.max(np.abs(ours[k] - theirs[k]) / (1 + np.abs(ours[k]))) for k in ours]
    return float(np.max(found)) if found else 0.0


def _device(name: str, wrappers: Sequence[str], count: int, seed: int) -> Played:
    env = vector_env(registry.make(name, wrappers))
    keys = jax.random.split(jax.random.key(seed), count)
    state, obs = jax.jit(env.reset)(keys)
    first = np.ones(count, bool)

    @jax.jit
    def step(state: Any, action: Any, t: Any) -> tuple[Any, ...]:
        step_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
        state, timestep = env.step(step_keys, state, action)
        return state, timestep.obs, timestep.done

    masks = jax.jit(env.action_mask)
    t = 0
    while True:
        action = yield (*jax.device_get((obs, first)), jax.device_get(masks(state)))
        state, obs, first = step(state, jnp.asarray(action), t)
        t += 1


def _host(name: str, wrappers: Sequence[str], count: int, seed: int) -> Played:
    factory = registry.make_host(name, wrappers)
    decode = jax.jit(lambda obs: (factory.decode(obs), factory.action_mask(obs)))
    env = factory.start(HostOptions(seeds=tuple(range(seed, seed + count // factory.spec.num_agents))))
    try:
        while True:
            step = env.recv(0)
            obs, mask = jax.device_get(decode(jax.tree.map(np.array, step.obs)))
            action = yield obs, np.array(step.first), mask
            env.send(0, action)
    finally:
        env.close()
