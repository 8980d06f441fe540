"""The environments that worker processes step, whatever package they are of: their arrays and their steps."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.envs.base import EnvSpec, InfoMetric
from jaxrl.envs.host import workers
from jaxrl.envs.host.shared import SharedArrays
from jaxrl.envs.host.spaces import observation_tree
from jaxrl.envs.host.worker import Leaf
from jaxrl.envs.host_env import HostFactory, HostOptions, HostStep, StartedEnv, group_environments, group_rows

Forms = dict[str, tuple[tuple[int, ...], Any]]  # shape and dtype of arrays, by name


def declared_reports(label: str, declared: Any) -> tuple[InfoMetric, ...]:
    """The reports that the environment's class declares in `metadata["reports"]`; ValueError if wrong."""
    if not isinstance(declared, dict):
        raise ValueError(f"{label} has metadata['reports'] (={declared!r}), which must be a dict")
    try:
        return tuple(InfoMetric(*item) for item in declared.items())
    except ValueError as error:
        raise ValueError(f"{label} has metadata['reports'] that is wrong: {error}") from error


class WorkerFactory(HostFactory):
    """A kind of environment that worker processes make and step, checked but not started."""

    spec: EnvSpec
    slot: str  # the module beside `worker` that makes and steps it, by its `make_env`
    target: str
    kwargs: dict[str, Any]
    obs_leaves: list[Leaf]  # as they are stored, as the action is
    action_leaf: Leaf
    # Arrays beside each stored observation, "mask" or "central"; with any it is `{"obs": ..., NAME: ...}`.
    beside: tuple[str, ...]

    @abstractmethod
    def instructions(self, options: HostOptions) -> dict[str, Any]:
        """The instructions for workers that only this kind has; the others are in `setup`."""

    @abstractmethod
    def own_arrays(self, options: HostOptions) -> Forms:
        """The arrays that only this kind has; the others are in `arrays`."""

    def decode(self, obs: Any) -> Any:
        return obs["obs"] if self.beside else obs

    def action_mask(self, obs: Any) -> Any:
        return obs["mask"] if "mask" in self.beside else None

    def require_info(self, key: str) -> None:
        """Accepts every key: the info of an environment is known only when it comes."""

    def start(self, options: HostOptions) -> WorkerEnv:
        return WorkerEnv(self, options)

    def setup(self, options: HostOptions) -> dict[str, Any]:
        """All instructions for workers, see `workers.setup_of`."""
        return workers.setup_of(
            self.slot,
            self.target,
            self.kwargs,
            seeds=options.seeds,
            first_episode_steps=options.first_episode_steps,
            info_keys=options.info_keys,
            **self.instructions(options),
        )

    def arrays(self, options: HostOptions) -> Forms:
        """The arrays through which workers answer, of N environments and their rows."""
        n = len(options.seeds)
        rows = n * self.spec.num_agents
        leaves = {f"obs{i}": leaf for i, leaf in enumerate(self.obs_leaves)} | {"action": self.action_leaf}
        return {
            **{name: ((rows, *leaf["shape"]), leaf["stored"]) for name, leaf in leaves.items()},
            "reward": ((rows,), np.float32),
            "outcome": ((rows, 3), bool),  # terminated, truncated, first
            "mask": ((rows, self.spec.mask_size if "mask" in self.beside else 0), bool),
            "info": ((n, len(options.info_keys)), np.float32),
            **self.own_arrays(options),
        }

    def answer(
        self, arrays: Mapping[str, np.ndarray], rows: slice, environments: slice, info_keys: Sequence[str]
    ) -> HostStep:
        """The step in these rows and environments of the arrays; in place."""
        stored = [arrays[f"obs{i}"][rows] for i in range(len(self.obs_leaves))]
        obs = observation_tree(self.obs_leaves, stored)
        if self.beside:
            obs = {"obs": obs} | {name: arrays[name][rows] for name in self.beside}
        reward = arrays["reward"][rows]
        outcome = arrays["outcome"][rows]
        info = dict(zip(info_keys, arrays["info"][environments].T, strict=True))
        if not self.spec.agents:
            return _step_of(obs, reward, outcome, info)
        team_reward = reward.reshape(-1, self.spec.num_agents).sum(axis=1)
        team = _step_of(None, team_reward, arrays["team"][environments], info)
        return dataclasses.replace(_step_of(obs, reward, outcome, {}), team=team)


def _step_of(obs: Any, reward: np.ndarray, outcome: np.ndarray, info: dict[str, np.ndarray]) -> HostStep:
    terminated, truncated, first = outcome.T
    return HostStep(
        obs=obs,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        first=first,
        score=reward,
        game_over=terminated | truncated,
        info=info,
    )


class WorkerEnv(StartedEnv):
    """B environments in worker processes, see `HostEnv`.

    The score of a step is its reward: what a wrapper of the environment clips or scales is reported so.
    """

    def __init__(self, factory: WorkerFactory, options: HostOptions):
        self.spec = factory.spec
        self.factory: WorkerFactory = factory
        self.num_envs = len(options.seeds)
        self.num_groups = options.num_groups
        self.timeout = None
        split = workers.rows_of_workers(self.num_envs, self.num_groups, options.num_workers)
        progress = {"progress": ((sum(map(len, split)), 2), np.int64)}
        self._arrays = SharedArrays({**factory.arrays(options), **progress})
        if "task" in self._arrays:
            self._arrays["task"][:] = np.nan  # First episodes begin before any task is dealt.
        self._info_keys = options.info_keys
        setup = factory.setup(options)
        self._workers = workers.Workers(self.spec.name, setup, self._arrays, split, options.timeout)

    @property
    def process_ids(self) -> list[int]:
        return self._workers.process_ids

    def send(self, group: int, action: np.ndarray) -> None:
        self._arrays["action"][group_rows(self, group)] = action
        self._workers.send(group)

    def deal(self, group: int, task: np.ndarray) -> None:
        if "task" not in self._arrays:
            super().deal(group, task)
        self._arrays["task"][group_environments(self, group)] = task

    def recv(self, group: int) -> HostStep:
        self._workers.recv(group)
        rows = group_rows(self, group)
        environments = group_environments(self, group)
        return self.factory.answer(self._arrays, rows, environments, self._info_keys)

    def interrupt(self) -> None:
        self._workers.interrupt()

    def close(self) -> None:
        self._workers.close()
