"""`check_env`: a custom environment checked before training; `play`: a few random steps of any."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import modules, registry
from jaxrl.envs.adapters import gymnasium
from jaxrl.envs.agents import MultiAgentEnv, WholeEnv
from jaxrl.envs.base import Box, JaxEnv, Mixed, MultiDiscrete, Space
from jaxrl.envs.behaviour import check_behaviour, random_action
from jaxrl.envs.checks import check_types
from jaxrl.envs.conversion import with_numbers_from_zero
from jaxrl.envs.foreign import api_of
from jaxrl.envs.host import gymnasium_slot
from jaxrl.envs.host.worker import Problem
from jaxrl.envs.host_env import HostEnvError, HostOptions
from jaxrl.envs.spaces import drawn_bounds
from jaxrl.envs.vector import VectorEnv

_STEPS = 100  # of an environment on the host


@dataclasses.dataclass(frozen=True)
class Trial:
    """Rewards and ends of some steps of one environment."""

    rewards: Sequence[float]  # of each step that was one
    returns: Sequence[float]  # of the episodes that ended
    terminated: int  # how many ended so; an end may be both
    truncated: int


def play(name: str, wrappers: Sequence[str], steps: int, seed: int = 0) -> Trial:
    """Plays random actions, allowed ones if there is a mask.

    HostEnvError: the environment failed; ValueError, ImportError: it cannot be made.
    """
    run = _on_host if registry.is_host(name) else _on_device
    reward, terminated, truncated, first = run(name, wrappers, steps, seed)
    counts = ~first
    ends = np.flatnonzero((terminated | truncated) & counts)
    begins = [0, *(ends + 1)]
    returns = [float(reward[a : z + 1].sum()) for a, z in zip(begins, ends, strict=False)]
    return Trial(reward[counts].tolist(), returns, int(terminated.sum()), int(truncated.sum()))


def _on_device(name: str, wrappers: Sequence[str], steps: int, seed: int) -> tuple[np.ndarray, ...]:
    bare = registry.make(name, wrappers)
    # Of several agents an episode is the environment's.
    env = VectorEnv(WholeEnv(cast(MultiAgentEnv, bare)) if bare.spec.agents else bare)

    def step(state: Any, key: jax.Array) -> Any:
        action_key, step_key = jax.random.split(key)
        choose = jax.vmap(lambda state: random_action(bare, action_key, state))
        state, found = env.step(step_key[None], state, choose(state.env))
        return state, (found.reported_reward[0].sum(), found.terminated[0], found.truncated[0])

    def trial(key: jax.Array) -> Any:
        state, _ = env.reset(jax.random.fold_in(key, 1)[None])
        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    reward, terminated, truncated = map(np.asarray, jax.jit(trial)(jax.random.key(seed)))
    return reward, terminated, truncated, np.zeros(steps, bool)


def _on_host(name: str, wrappers: Sequence[str], steps: int, seed: int) -> tuple[np.ndarray, ...]:
    factory = registry.make_host(name, wrappers)
    space = factory.spec.action_space
    rng = np.random.default_rng(seed)
    rows = []
    env = factory.start(HostOptions(seeds=(seed,)))
    try:
        found = env.recv(0)
        for _ in range(steps):
            mask = factory.action_mask(jax.tree.map(jnp.asarray, found.obs))
            allowed = [None] * factory.spec.num_agents if mask is None else np.asarray(mask)
            env.send(0, np.stack([random_host_action(space, x, rng) for x in allowed]))
            found = env.recv(0)
            whole = found.of_environments
            row = whole.score, whole.terminated, whole.truncated, whole.first
            rows.append([np.copy(x)[0] for x in row])
    finally:
        env.close()
    reward, terminated, truncated, first = map(np.array, zip(*rows, strict=True))
    return reward, terminated, truncated, first


def random_host_action(space: Space, allowed: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """An action sampled uniformly from the ones that a mask allows; None allows all."""
    if isinstance(space, Box):
        low, high = drawn_bounds(space)
        if np.issubdtype(space.dtype, np.integer):
            return np.asarray(rng.integers(low.astype(int), high.astype(int), endpoint=True), space.dtype)
        return np.asarray(rng.uniform(low, high), space.dtype)
    if isinstance(space, Mixed):
        parts = [random_host_action(part, None, rng) for _, part in space.spaces]
        return np.concatenate([np.ravel(part).astype(space.dtype) for part in parts])
    sizes = space.nvec if isinstance(space, MultiDiscrete) else (space.num_choices,)  # type: ignore[union-attr]
    parts = np.split(np.ones(sum(sizes), bool) if allowed is None else allowed, np.cumsum(sizes)[:-1])
    chosen = np.array([rng.choice(np.flatnonzero(part)) for part in parts], np.int32)
    return chosen if isinstance(space, MultiDiscrete) else chosen[0]


def check_env(env: JaxEnv | str | Any) -> None:
    """Checks a device environment, one of Gymnasium, or the environment of any name.

    Of one of the device: declarations, types, purity, the length of episodes, and values in episodes of
    random actions. Of one on the host: its spaces, and that resets and a hundred random steps conform to
    them.

    Raises:
      ValueError: one line that names the environment, the method and the remedy.
    """
    if isinstance(env, str) and registry.is_host(env):
        try:
            play(env, (), _STEPS)
        except HostEnvError as error:
            raise ValueError(str(error)) from error
        return
    if isinstance(env, type):
        raise ValueError(f"{env.__name__} is a class: check an environment of it, {env.__name__}(...)")
    label = env if isinstance(env, str) else type(env).__name__
    api = None if isinstance(env, str) else api_of(type(env))
    if api is not None and api.suite == "gymnasium":
        _check_gymnasium(label, env)
        return
    if api is not None:
        name = f"{type(env).__module__}:{type(env).__name__}"
        raise ValueError(f"{label} is not a JaxEnv; {api.advice(name)}")
    try:
        made = registry.make(env) if isinstance(env, str) else env
    except (ValueError, ImportError):
        raise
    except Exception as error:  # of the environment's own code
        raise ValueError(f"{env}: making it raised {modules.one_line(error)}") from error
    registry.require(label, made, "spec", "reset", "step")
    check_types(label, made)
    check_behaviour(label, made if isinstance(env, str) else with_numbers_from_zero(made), finite=True)


def _check_gymnasium(label: str, env: Any) -> None:
    """Resets and steps it here as its worker process would."""
    options = HostOptions(seeds=(0,))
    rng = np.random.default_rng(0)
    with _named(label):
        found = gymnasium_slot.description(env)
    factory = gymnasium.factory_of(label, "", {}, (), found)
    arrays = {name: np.zeros(*form) for name, form in factory.arrays(options).items()}
    with _named(label):
        slot = gymnasium_slot.make_slot(env, 0, factory.setup(options), arrays)
        for _ in range(_STEPS):
            slot.step()
            allowed = arrays["mask"][0] if factory.spec.has_action_mask else None
            arrays["action"][0] = random_host_action(factory.spec.action_space, allowed, rng)


@contextlib.contextmanager
def _named(label: str) -> Iterator[None]:
    try:
        yield
    except Problem as error:
        raise ValueError(f"{label} {error}") from error
    except Exception as error:
        raise ValueError(f"{label} raised {modules.one_line(error)}") from error
