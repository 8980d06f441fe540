"""Replays played again by the environment's own rules, on the device."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs import registry
from jaxrl.envs.base import EnvSpec
from jaxrl.envs.native.platformer.platformer import Platformer
from jaxrl.envs.native.platformer.solver import solve
from jaxrl.envs.numbering import counted_from_zero
from jaxrl.envs.spaces import bounds
from jaxrl.envs.tasks import default_task
from jaxrl.envs.trees import strong_types
from jaxrl.experience.demonstrations.dataset import Dataset, DatasetFault
from jaxrl.experience.demonstrations.episode import (
    Episode,
    EpisodeFault,
    in_own_numbers,
    named_observations,
    observations_of,
)
from jaxrl.experience.demonstrations.replays import ActionReplay
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.types import Array, PyTree

_LEAST_PADDED = 64  # lengths are padded to powers of two from here on, so that few programs are compiled
_TOLERANCE = 1e-5


class Simulator:
    """Plays actions in one environment.

    An episode begins with `reset(key)`, or with the level that the replay names, if any; its key is
    `jax.random.key(seed)`, and step t's is `fold_in(key, t)`.

    Attributes:
      levels: those that are played; none in most environments.
    """

    def __init__(self, env: str, success: str = "") -> None:
        """Of an environment on the device; `success` is `env.success`, or "" for the environment's own."""
        self._env = registry.make(env)
        self.spec: EnvSpec = self._env.spec
        self._reports = EpisodeReports.of(self.spec, success)
        self.levels = self._env.levels if isinstance(self._env, Platformer) else ()
        self._number_of = {level.digest: i for i, level in enumerate(self.levels)}
        self._play = jax.jit(self._steps)

    def category_of(self, episode: Episode) -> str:
        """The category of its level; "" without levels."""
        return self.levels[self._number_of[episode.level]].category if episode.level else ""

    def solutions(self, count: int) -> list[ActionReplay]:
        """The shortest solutions of `count` levels, evenly from all, or of fewer if there are not so many."""
        total = len(self.levels)
        chosen = [i * total // count for i in range(count)] if count < total else range(total)
        found = []
        for i in chosen:
            level = self.levels[i]
            digits = level.solution or solve(level)
            if digits is None:
                raise EpisodeFault(f"level {i} (of seed {level.seed}) has no solution")
            actions = np.array([int(digit) for digit in digits], np.int32)
            found.append(ActionReplay(f"level {i}", actions, level.digest, success=True, player="solver"))
        return found

    def simulate(self, replay: ActionReplay) -> Episode:
        """The episode of a replay.

        Raises:
          EpisodeFault: it does not end as it says, or was not played in this environment; says how.
        """
        level = self._level(replay)
        actions = self._actions(replay.actions)
        found = self._simulate(actions, level, max(replay.seed, 0))
        ends = np.flatnonzero(found["terminated"] | found["truncated"])
        steps = len(actions)
        if len(ends) and ends[0] < steps - 1:
            raise EpisodeFault(f"its episode ends after step {ends[0] + 1} of its {steps}")
        success = self._reports.success_of(found["info"], found["reward"])
        if replay.success is not None and success is not None and success != replay.success:
            said, is_so = ("with", "without") if replay.success else ("without", "with")
            raise EpisodeFault(f"it claims to end {said} success, its actions end {is_so}")
        played = Episode(
            observations=found["obs"],
            actions=actions,
            rewards=found["reward"],
            terminations=found["terminated"],
            truncations=found["truncated"],
            action_masks=found["mask"],
            infos={key: found["info"][key] for key in self._reports.info_keys},
            seed=replay.seed,
            success=success,
            player=replay.player,
            level=self.levels[level].digest if self.levels else "",
        )
        episode = in_own_numbers(played, self.spec)
        shown = dict(named_observations(episode.observations))
        held = dict(replay.observations)
        if not held.keys() <= shown.keys():  # It may have been recorded with more than is shown here.
            held = dict(named_observations(observations_of(held, self.spec.observation_space)))
        _compare(held, shown)
        return episode

    def verify(self, episode: Episode) -> None:
        """Raises EpisodeFault unless the actions of an episode lead to what it holds."""
        again = self.simulate(
            ActionReplay("", episode.actions, episode.level, episode.seed, episode.success, episode.player)
        )
        held = dict(named_observations(episode.observations)) | {"rewards": episode.rewards}
        _compare(held, dict(named_observations(again.observations)) | {"rewards": again.rewards})
        for name in ("terminations", "truncations"):
            if not np.array_equal(getattr(episode, name), getattr(again, name)):
                raise EpisodeFault(f"simulated again its {name} are others")

    def _level(self, replay: ActionReplay) -> int:
        """The number of its level; 0 without levels."""
        if not self.levels:
            if replay.seed < 0:
                raise EpisodeFault("has no seed, which its episode follows from")
            return 0
        given = replay.level
        if given in self._number_of:
            return self._number_of[given]
        if given.isdecimal() and len(given) < 9 and int(given) < len(self.levels):
            return int(given)
        raise EpisodeFault(f"its level_id (={given!r:.80}) is none of the {len(self.levels)} levels")

    def _actions(self, given: np.ndarray) -> np.ndarray:
        space: Any = self.spec.action_space
        if given.shape[1:] != space.shape:
            raise EpisodeFault(f"actions (of shape {given.shape}) must have rows of the shape {space.shape}")
        actions = given.astype(space.dtype)
        low, high = bounds(space)
        is_whole = np.issubdtype(space.dtype, np.integer)
        if (is_whole and not (actions == given).all()) or not ((actions >= low) & (actions <= high)).all():
            raise EpisodeFault(f"actions must lie in the space {type(space).__name__}")
        return np.asarray(counted_from_zero(space, actions))

    def _simulate(self, actions: np.ndarray, level: int, seed: int) -> dict[str, Any]:
        steps = len(actions)
        padded = max(_LEAST_PADDED, 1 << (steps - 1).bit_length())
        padding = np.zeros((padded - steps, *actions.shape[1:]), actions.dtype)
        task = {"level": jnp.int32(level)} if self.levels else None
        first, rows = jax.device_get(
            self._play(jax.random.key(seed), task, np.concatenate([actions, padding]))
        )
        rows = jax.tree.map(lambda x: x[:steps], rows)
        obs = jax.tree.map(lambda x, y: np.concatenate([x[None], y]), first, rows.pop("obs"))
        return {"obs": obs, **rows}

    def _steps(self, key: Array, task: PyTree, actions: Array) -> tuple[PyTree, dict[str, Any]]:
        env = self._env
        spec = self.spec
        if spec.task_space is None:
            start = env.reset(key)
        else:
            start = env.reset(key, default_task(env) if task is None else task)  # type: ignore[call-arg]
        state, obs = strong_types(start)

        def step(state: PyTree, xs: tuple[Array, Array]) -> tuple[PyTree, dict[str, Any]]:
            t, action = xs
            mask = env.action_mask(state) if spec.has_action_mask else None
            state, found = strong_types(env.step(jax.random.fold_in(key, t), state, action))
            return state, {
                "obs": found.obs,
                "reward": found.reported_reward.astype(jnp.float32),
                "terminated": found.terminated,
                "truncated": found.truncated,
                "info": self._reports.select(found.info),
                "mask": mask,
            }

        _, rows = jax.lax.scan(step, state, (jnp.arange(len(actions)), actions))
        return obs, rows


@dataclasses.dataclass
class Sifted:
    """The replays of a folder that were simulated.

    Attributes:
      successful: leave out replays that are known to have ended without success.
      episodes: of replays that end as they say, without duplicates.
      dropped: the reason by source.
      duplicates: replays left out since another has the same actions in the same level or from the same seed.
      categories: how many episodes of each category of levels there are.
      versions: named by the replays.
    """

    successful: bool = False
    episodes: list[Episode] = dataclasses.field(default_factory=list)
    dropped: dict[str, str] = dataclasses.field(default_factory=dict)
    duplicates: list[str] = dataclasses.field(default_factory=list)
    categories: dict[str, int] = dataclasses.field(default_factory=dict)
    versions: list[str] = dataclasses.field(default_factory=list)
    _seen: set[tuple[str, int, bytes]] = dataclasses.field(default_factory=set, init=False, repr=False)

    def add(self, simulator: Simulator, replay: ActionReplay) -> None:
        """Simulates one more."""
        try:
            episode = simulator.simulate(replay)
        except EpisodeFault as error:
            self.dropped[replay.source] = str(error)
            return
        if self.successful and episode.success is False:
            self.dropped[replay.source] = f"ends without success, after {len(episode)} steps"
            return
        same = (episode.level, -1 if episode.level else episode.seed, episode.actions.tobytes())
        if same in self._seen:
            self.duplicates.append(replay.source)
            return
        self._seen.add(same)
        self.episodes.append(episode)
        category = simulator.category_of(episode)
        if category:
            self.categories[category] = self.categories.get(category, 0) + 1
        if replay.version and replay.version not in self.versions:
            self.versions.append(replay.version)


def require_same_levels(dataset: Dataset, environment: str) -> None:
    """Raises DatasetFault if graphs in observations, which are numbers of levels, are of other levels."""
    env = None if registry.is_host(environment) else registry.make(environment)
    if not isinstance(env, Platformer):
        return
    numbers = {level.digest: i for i, level in enumerate(env.levels)}
    for i, episode in enumerate(dataset.episodes):
        seen = episode.observations
        if not episode.level or not isinstance(seen, dict) or "graph" not in seen:
            continue
        if (seen["graph"]["level"] != numbers.get(episode.level)).any():
            file = dataset.files[i] if dataset.files else f"episode {i}"
            raise DatasetFault(f"{dataset.folder}: {file}: was played in other levels than {environment} has")


def _compare(held: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> None:
    """Raises EpisodeFault if arrays [T or T + 1, ...] of a file differ from the simulated ones."""
    for name, x in held.items():
        y = found.get(name)
        if y is None or x.shape[1:] != y.shape[1:] or not 0 <= len(y) - len(x) <= 1:
            raise EpisodeFault(f"its {name} (of shape {x.shape}) differ from the environment's")
        apart = ~np.isclose(x, y[: len(x)], _TOLERANCE, _TOLERANCE).reshape(len(x), -1).all(axis=1)
        if apart.any():
            raise EpisodeFault(f"simulated again its {name} are others, first in row {np.argmax(apart)}")
