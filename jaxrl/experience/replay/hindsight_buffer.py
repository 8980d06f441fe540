"""A replay buffer with hindsight for a custom training loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.config.replay import STRATEGIES
from jaxrl.envs.goals import ACHIEVED, DESIRED, KEYS, Goals, NearGoals
from jaxrl.experience.replay import hindsight
from jaxrl.experience.replay.prioritized_buffer import (
    PrioritizedBufferState,
    PrioritizedReplayBuffer,
    require_count,
)
from jaxrl.types import Array, PyTree

_FIELDS = ("obs", "next_obs", "reward", "terminated", "done")
_STREAM = 0x474F414C  # of a draw's key, for goals
_NEAR = NearGoals()


@flax.struct.dataclass
class HindsightBufferState:
    """The content of a `HindsightReplayBuffer`; a pytree.

    Attributes:
      buffer: the steps, with their priorities.
      episode: int32[capacity], the number of each step's episode, which rises.
      begins: bool[capacity], True if a step is the first of its episode.
      at_start: bool[], True if the next step begins an episode.
      number: int32[], of the last episode.
    """

    buffer: PrioritizedBufferState
    episode: Array
    begins: Array
    at_start: Array
    number: Array

    @property
    def count(self) -> Array:
        """int32[], steps in the buffer."""
        return self.buffer.count


@dataclass(frozen=True)
class HindsightReplayBuffer:
    """Hindsight experience replay (Andrychowicz et al. 2017) of single steps, prioritised or not.

    Of the steps sampled, k of k + 1 on average get a goal that was achieved after a step of the buffer, with
    the reward and the termination of that goal. A step for which there is none keeps its own. Methods are
    pure and can be jitted. Without `update_priorities` sampling is uniform.

    Attributes:
      capacity: steps; the oldest are overwritten.
      k: steps with another goal for each that keeps its own.
      strategy: "future", the goal of this step or of a later one of the episode; "final", of its last;
        "episode", of any of its steps; "random", of any step in the buffer. "final" and "episode" only of
        episodes that have ended and lie whole in the buffer.
      goals: rewards and terminations by the goal.
      alpha, beta_start, beta_frames: of `PrioritizedReplayBuffer`.
    """

    capacity: int
    k: int = 4
    strategy: str = "future"
    goals: Goals = _NEAR
    alpha: float = 0.6
    beta_start: float = 0.4
    beta_frames: int = 100_000

    def __post_init__(self) -> None:
        require_count("k", self.k)
        if self.strategy not in STRATEGIES:
            raise ValueError(f"`strategy` (={self.strategy!r}) must be one of {', '.join(STRATEGIES)}")
        _ = self._draws

    @property
    def _draws(self) -> PrioritizedReplayBuffer:
        return PrioritizedReplayBuffer(self.capacity, self.alpha, self.beta_start, self.beta_frames)

    def init(self, example: dict[str, PyTree]) -> HindsightBufferState:
        """An empty buffer for steps like `example`.

        Args:
          example: a step as a dict of `obs` and `next_obs`, each a dict of `observation`, `achieved_goal` and
            `desired_goal`, `reward`, `terminated`, `done` (the episode ends with it, in either way), and
            whatever else is to be kept, such as the action.

        Raises:
          ValueError: one of them is missing, or has another shape or dtype.
        """
        _require_step(example)
        return HindsightBufferState(
            buffer=self._draws.init(example),
            episode=jnp.zeros(self.capacity, jnp.int32),
            begins=jnp.zeros(self.capacity, bool),
            at_start=jnp.ones((), bool),
            number=jnp.zeros((), jnp.int32),
        )

    def add(self, state: HindsightBufferState, batch: dict[str, PyTree]) -> HindsightBufferState:
        """With N steps, one after the other, a tree of [N, ...]; N is at most the capacity.

        An episode may continue in the next call. With several environments, add whole episodes one after the
        other.

        Raises:
          ValueError: they have other parts, shapes or dtypes than the example, or do not fit.
        """
        buffer = self._draws.add(state.buffer, batch)
        done = jnp.asarray(batch["done"])
        begins = jnp.concatenate([state.at_start[None], done[:-1]])
        episode = state.number + jnp.cumsum(begins, dtype=jnp.int32)
        index = (state.buffer.cursor + jnp.arange(len(done))) % self.capacity
        return HindsightBufferState(
            buffer=buffer,
            episode=state.episode.at[index].set(episode),
            begins=state.begins.at[index].set(begins),
            at_start=done[-1],
            number=episode[-1],
        )

    def sample(
        self, state: HindsightBufferState, key: Array, batch_size: int
    ) -> tuple[HindsightBufferState, dict[str, PyTree], Array, Array]:
        """Samples a batch; as `PrioritizedReplayBuffer.sample`, with the goals exchanged."""
        buffer, items, index, weight = self._draws.sample(state.buffer, key, batch_size)
        exchange_key, goal_key = jax.random.split(jax.random.fold_in(key, _STREAM))
        goal, found = self._goals_for(state, goal_key, index % self.capacity)
        exchanged = hindsight.exchanges(exchange_key, self.k, batch_size) & found
        old = items["reward"], items["terminated"]
        achieved = items["next_obs"][ACHIEVED]
        reward, terminated = hindsight.recompute_rewards(self.goals, achieved, goal, exchanged, old)
        asked = {name: hindsight.with_goal(items[name], goal, exchanged) for name in ("obs", "next_obs")}
        items = items | asked | {"reward": reward, "terminated": terminated}
        return dataclasses.replace(state, buffer=buffer), items, index, weight

    def update_priorities(
        self, state: HindsightBufferState, indices: Array, errors: Array
    ) -> HindsightBufferState:
        """As `PrioritizedReplayBuffer.update_priorities`."""
        buffer = self._draws.update_priorities(state.buffer, indices, errors)
        return dataclasses.replace(state, buffer=buffer)

    def _goals_for(self, state: HindsightBufferState, key: Array, index: Array) -> tuple[Array, Array]:
        """(goal [N, G], bool[N], True if there is one) for steps by their index int32[N]."""
        count = state.count
        oldest = jnp.where(count == self.capacity, state.buffer.cursor, 0)
        at = lambda x, age: x[(oldest + age) % self.capacity]  # noqa: E731
        if self.strategy == "random":
            step = jax.random.randint(key, index.shape, 0, jnp.maximum(count, 1))
            found = jnp.ones(index.shape, bool)
        else:
            age = (index - oldest) % self.capacity
            numbers = functools.partial(at, state.episode)
            first, after = hindsight.episode_ages(numbers, age, count, self.capacity)
            whole = at(state.begins, first) & at(state.buffer.items["done"], after - 1)
            noise = jax.random.uniform(key, index.shape, jnp.float32)
            step, found = hindsight.chosen_step(self.strategy, noise, age, first, after - 1, whole)
        return at(state.buffer.items["next_obs"][ACHIEVED], step), found


def _require_step(example: Any) -> None:
    if not isinstance(example, Mapping):
        raise ValueError(f"a step must be a dict of {', '.join(_FIELDS)}, not a {type(example).__name__}")
    missing = [name for name in _FIELDS if name not in example]
    for name in ("obs", "next_obs"):
        obs = example.get(name, {})
        if not isinstance(obs, Mapping):
            wanted = ", ".join(KEYS)
            raise ValueError(f"`{name}` must be a dict of {wanted}, not a {type(obs).__name__}")
        missing += [f"{name}[{key!r}]" for key in KEYS if key not in obs]
    if missing:
        raise ValueError(f"a step must have {', '.join(missing)}")
    goals = {f"{x}[{key!r}]": example[x][key] for x in ("obs", "next_obs") for key in (ACHIEVED, DESIRED)}
    shapes = {name: jnp.shape(x) for name, x in goals.items()}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{list(shape)} of {name}" for name, shape in shapes.items())
        raise ValueError(f"goals must have one shape, not {found}")
    for name, dtype in (("reward", jnp.float32), ("terminated", jnp.bool), ("done", jnp.bool)):
        x = jnp.asarray(example[name])
        if x.shape or x.dtype != dtype:
            raise ValueError(f"`{name}` must be a {jnp.dtype(dtype)}, not {x.dtype}{list(x.shape)}")
