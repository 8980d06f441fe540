"""Recordings of whole episodes of any environment, on device or host, by an agent or at random."""

from __future__ import annotations

import abc
import contextlib
import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

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
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
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

    @abc.abstractmethod
    def initial_carry(self, n: int) -> PyTree:
        """The memory before the first observation, [n, ...]."""

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

    def initial_carry(self, n: int) -> PyTree:
        return {}

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

    def initial_carry(self, n: int) -> PyTree:
        return {}

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
        sheets = [_Sheet(reports, player.name, seed) for _ in range(count)]
        left = quotas(count, episodes)
        steps = (_host_steps if registry.is_host(env) else _device_steps)(
            env, wrappers, player, keys, reports
        )
        with contextlib.closing(steps):
            while (left > 0).any():
                row = next(steps)
                for b in np.flatnonzero(left > 0).tolist():
                    if not sheets[b].add(row, b, limit):
                        continue
                    yield in_own_numbers(sheets[b].episode(), spec)
                    sheets[b] = _Sheet(reports, player.name, seed)
                    episodes -= 1
                    # Nothing resets an environment on the host: another one plays what is left of its share.
                    left[b] = left[b] - 1 if row.terminated[b] | row.truncated[b] else 0


@dataclass(frozen=True)
class _Row:
    """One step of all environments; arrays of numpy [B, ...].

    Attributes:
      obs: acted on.
      mask: at `obs`, or None.
      action: that was taken; as `obs` it counts from 0.
      reward, terminated, truncated, info: of the step.
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


@dataclass
class _Sheet:
    """The episode in progress of one environment."""

    reports: EpisodeReports
    player: str
    seed: int
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    last: Any = None

    def __post_init__(self) -> None:
        self._tallies = self.reports.begin(1, np)

    def add(self, row: _Row, b: int, limit: int) -> bool:
        """Adds the row of environment `b`; True if its episode is complete."""
        if not row.counts[b]:
            return False
        one = lambda tree: jax.tree.map(lambda x: np.array(x[b]), tree)  # noqa: E731
        ended = bool(row.terminated[b] | row.truncated[b])
        cut = not ended and len(self.rows) + 1 >= limit
        flags = (bool(row.terminated[b]), bool(row.truncated[b]) or cut)
        mask = None if row.mask is None else one(row.mask)
        info = {key: np.asarray(x[b : b + 1], np.float32) for key, x in row.info.items()}
        told = {key: info[key][0] for key in self.reports.info_keys}
        self.rows.append((one(row.obs), mask, one(row.action), float(row.reward[b]), *flags, told))
        self.last = one(row.after)
        self._tallies = self.reports.add(self._tallies, info, np)
        return ended or cut

    def episode(self) -> Episode:
        obs, masks, actions, rewards, terminated, truncated, told = zip(*self.rows, strict=True)
        rewards_T = np.array(rewards, np.float32)
        return Episode(
            observations=jax.tree.map(lambda *x: np.stack(x), *obs, self.last),
            actions=np.stack(actions),
            rewards=rewards_T,
            terminations=np.array(terminated),
            truncations=np.array(truncated),
            action_masks=None if masks[0] is None else np.stack(masks),
            infos={key: np.array([row[key] for row in told]) for key in self.reports.info_keys},
            seed=self.seed,
            success=self._success(float(rewards_T.sum()), len(rewards)),
            player=self.player,
        )

    def _success(self, score: float, length: int) -> bool | None:
        one = np.ones(1, bool)
        ended = self.reports.final_values(self._tallies, np.array([score]), np.array([length]), one, np)
        known = SUCCESS in ended and ended[SUCCESS].count[0] > 0
        return bool(ended[SUCCESS].value[0] > 0) if known else None


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
        facts = (done.reported_reward, done.terminated, done.truncated, reports.select(done.info))
        return (state, done.obs, carry, done.done), (mask, action, *facts, done.final_obs)

    state, obs = jax.jit(env.reset)(reset_keys)
    loop = (state, obs, player.initial_carry(len(keys_B)), jnp.ones(len(keys_B), bool))
    for t in itertools.count():
        before = jax.device_get(loop[1])
        loop, facts = step(*loop, jnp.int32(t))
        mask, action, reward, terminated, truncated, info, after = jax.device_get(facts)
        yield _Row(
            obs=before,
            mask=mask,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info=info,
            after=after,
            counts=np.ones(len(reward), bool),
        )


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
