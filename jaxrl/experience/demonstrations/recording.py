"""Recordings of whole episodes of any environment, on device or host, by an agent or at random."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.envs import registry
from jaxrl.envs.base import Discrete, EnvSpec, MultiDiscrete
from jaxrl.envs.host_env import HostOptions, group_rows
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.envs.spaces import sample
from jaxrl.envs.vector import VectorEnv
from jaxrl.envs.wrappers.episodes import TimeLimit
from jaxrl.experience.demonstrations.episode import Episode, in_own_numbers
from jaxrl.experience.episodes import DEFAULT_MAX_EPISODE_STEPS
from jaxrl.experience.host.episodes import quotas
from jaxrl.experience.host.threads import Watch
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Acting, Array, PyTree

_MOST_ENVIRONMENTS = 64  # played side by side
# Keeps the keys of recordings apart from the keys of training and evaluation.
_STREAM = 0x52454344
_ACTION = 1 << 20


class Player(abc.ABC):
    """Chooses the actions of a recording; pure functions.

    Attributes:
      asks_solver: True if the environment's solver chooses them; then `act` is not called.
    """

    name: str
    asks_solver: bool = False

    def initial_carry(self, n: int) -> PyTree:
        """The memory before the first observation, [n, ...]; may be overridden."""
        return {}

    @abc.abstractmethod
    def act(
        self, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None, keys_B: Array
    ) -> tuple[Array, PyTree]:
        """(actions [B, *A] as `VectorEnv` and `HostEnv` take them, counted from 0, carry)."""


@dataclass(frozen=True, eq=False)
class AgentPlayer(Player):
    """A trained policy: greedy or, with `samples`, sampling actions."""

    agent: Agent
    acting: Acting
    name: str
    samples: bool = False

    def initial_carry(self, n: int) -> PyTree:
        return self.agent.initial_carry(n)

    def act(
        self, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None, keys_B: Array
    ) -> tuple[Array, PyTree]:
        out = self.agent.forward(self.acting, obs, carry, reset, mask)
        if not self.samples:
            return self.agent.to_env(self.agent.greedy(out)), out.carry
        noise = jax.vmap(lambda key: self.agent.draw_noise(key, ()))(keys_B)
        return self.agent.to_env(self.agent.choose(out, noise)[0]), out.carry


@dataclass(frozen=True)
class RandomPlayer(Player):
    """Samples actions uniformly from the space, or from the ones that the mask allows."""

    spec: EnvSpec
    name: str = "random"

    def act(
        self, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None, keys_B: Array
    ) -> tuple[Array, PyTree]:
        space = self.spec.action_space
        if mask is None:
            return jax.vmap(lambda key: counted_from_zero(space, sample(space, key)))(keys_B), carry
        assert isinstance(space, Discrete | MultiDiscrete)
        sizes = (space.n,) if isinstance(space, Discrete) else space.nvec
        logits = jnp.where(mask, 0.0, -jnp.inf)
        parts = [
            jax.vmap(jax.random.categorical)(jax.vmap(jax.random.fold_in, (0, None))(keys_B, i), part)
            for i, part in enumerate(jnp.split(logits, np.cumsum(sizes)[:-1], axis=-1))
        ]
        drawn = jnp.stack(parts, axis=-1).astype(space.dtype)
        return (drawn[:, 0] if isinstance(space, Discrete) else drawn), carry


@dataclass(frozen=True)
class SolverPlayer(Player):
    """The solver of an environment on the device (`EnvSpec.has_solver`)."""

    name: str = "solver"
    asks_solver: bool = True

    def act(
        self, obs: PyTree, carry: PyTree, reset: Array, mask: Array | None, keys_B: Array
    ) -> tuple[Array, PyTree]:
        raise NotImplementedError("the environment's solver acts")


def record_episodes(
    env: str, wrappers: tuple[str, ...], player: Player, episodes: int, seed: int, success: str = ""
) -> Iterator[Episode]:
    """Plays whole episodes, an equal share in each of several environments, and yields them as they end.

    An equal share, not the first that end: that would favour short ones. If an environment states no time
    limit, an episode is truncated after `DEFAULT_MAX_EPISODE_STEPS` steps.

    Args:
      success: the rule of `env.success`; "" takes the environment's own.

    Raises:
      HostEnvError: an environment on the host failed.
    """
    spec = registry.spec_of(env, wrappers)
    reports = EpisodeReports.of(spec, success)
    limit = spec.max_episode_steps or DEFAULT_MAX_EPISODE_STEPS
    stream = jax.random.fold_in(jax.random.key(seed), _STREAM)
    started = 0
    while episodes:
        count = min(episodes, _MOST_ENVIRONMENTS)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(stream, started + jnp.arange(count))
        started += count
        sheets: list[list[_Row]] = [[] for _ in range(count)]
        left = quotas(count, episodes)
        steps = (_host_steps if registry.is_host(env) else _device_steps)(
            env, wrappers, player, keys, reports
        )
        with contextlib.closing(steps):
            while (left > 0).any():
                row = next(steps)
                for b in np.flatnonzero((left > 0) & row.counts).tolist():
                    one = jax.tree.map(lambda x, b=b: np.array(x[b]), row)
                    sheets[b].append(one.replace(after=None))
                    is_over = bool(one.terminated | one.truncated)
                    if not is_over and len(sheets[b]) < limit:
                        continue
                    found = _episode(sheets[b], one.after, reports)
                    found = dataclasses.replace(found, seed=seed, player=player.name)
                    yield in_own_numbers(found, spec)
                    sheets[b] = []
                    episodes -= 1
                    # Nothing resets an environment on the host: another one plays what is left of its share.
                    left[b] = left[b] - 1 if is_over else 0


@flax.struct.dataclass
class _Row:
    """One step of all environments; arrays of numpy [B, ...].

    Attributes:
      obs: acted on.
      action: that was taken; as `obs` it counts from 0.
      after: the observation after it, also where the episode ended.
      counts: bool[B], False if a row is no transition.
    """

    obs: Any
    mask: np.ndarray | None
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, np.ndarray]
    after: Any
    counts: np.ndarray


def _episode(rows: list[_Row], last: Any, reports: EpisodeReports) -> Episode:
    """The episode of rows of one environment, which is cut off after them if it has not ended."""
    steps: _Row = jax.tree.map(lambda *x: np.stack(x), *rows)
    rewards = steps.reward.astype(np.float32)
    info = {key: x.astype(np.float32) for key, x in steps.info.items()}
    steps.truncated[-1] |= ~steps.terminated[-1]
    return Episode(
        observations=jax.tree.map(lambda x, y: np.concatenate([x, y[None]]), steps.obs, last),
        actions=steps.action,
        rewards=rewards,
        terminations=steps.terminated,
        truncations=steps.truncated,
        action_masks=steps.mask,
        infos={key: info[key] for key in reports.info_keys},
        success=reports.success_of(info, rewards),
    )


def _device_steps(
    name: str, wrappers: tuple[str, ...], player: Player, keys_B: Array, reports: EpisodeReports
) -> Generator[_Row, None, None]:
    made = registry.make(name, wrappers)
    if made.spec.max_episode_steps is None:
        made = TimeLimit(made, DEFAULT_MAX_EPISODE_STEPS)
    env = VectorEnv(made)
    reset_keys, step_keys = jax.vmap(jax.random.split, out_axes=1)(keys_B)

    @jax.jit
    def step(state: PyTree, obs: PyTree, carry: PyTree, reset: Array, t: Array) -> tuple[Any, ...]:
        keys = jax.vmap(jax.random.fold_in, (0, None))(step_keys, t)
        mask = env.action_mask(state)
        own = jax.vmap(jax.random.fold_in, (0, None))(keys, _ACTION)
        if player.asks_solver:
            action = env.solve(state)
        else:
            action, carry = player.act(obs, carry, reset, mask, own)
        state, done = env.step(keys, state, action)
        facts = {
            "mask": mask,
            "action": action,
            "reward": done.reported_reward,
            "terminated": done.terminated,
            "truncated": done.truncated,
            "info": reports.select(done.info),
            "after": done.final_obs,
        }
        return (state, done.obs, carry, done.done), facts

    state, obs = jax.jit(env.reset)(reset_keys)
    loop = (state, obs, player.initial_carry(len(keys_B)), jnp.ones(len(keys_B), bool))
    for t in itertools.count():
        before = jax.device_get(loop[1])
        loop, facts = step(*loop, jnp.int32(t))
        yield _Row(obs=before, **jax.device_get(facts), counts=np.ones(len(keys_B), bool))


def _host_steps(
    name: str, wrappers: tuple[str, ...], player: Player, keys_B: Array, reports: EpisodeReports
) -> Generator[_Row, None, None]:
    factory = registry.make_host(name, wrappers)
    seeds = jax.vmap(lambda key: jax.random.randint(key, (), 0, 2**31 - 1))(keys_B)
    env = factory.start(HostOptions(seeds=tuple(map(int, seeds)), info_keys=reports.info_keys))
    watch = Watch(env)
    rows = group_rows(env, 0)
    assert rows == slice(0, len(keys_B))

    @jax.jit
    def act(obs: PyTree, carry: PyTree, first: Array, t: Array) -> tuple[Any, ...]:
        seen = factory.decode(obs)
        mask = factory.action_mask(obs)
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys_B, t)
        return seen, mask, *player.act(seen, carry, first, mask, keys)

    carry = player.initial_carry(len(keys_B))
    before: dict[str, Any] | None = None
    try:
        for t in itertools.count():
            told = watch.recv(0)
            # Copies, for the environment may overwrite its arrays while they are still read.
            step = jax.tree.map(np.array, told)
            seen, mask, action, carry = act(step.obs, carry, step.first, jnp.int32(t))
            seen, mask, action = jax.device_get((seen, mask, action))
            if before is not None:
                yield _Row(
                    **before,
                    reward=step.score,
                    terminated=step.terminated,
                    truncated=step.truncated,
                    info={key: step.info[key] for key in reports.info_keys},
                    after=seen,
                    counts=~step.first,
                )
            before = {"obs": seen, "mask": mask, "action": action}
            env.send(0, action)
    finally:
        env.close()
