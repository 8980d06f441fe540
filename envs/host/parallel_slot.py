"""PettingZoo's parallel environments in a worker process; imports only `worker` and `answers` of `host`.

Every agent has a row of the shared arrays, environment by environment, in the order of `possible_agents`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxrl.envs.host.answers import (
    MASK,
    MASKABLE,
    checked_flag,
    checked_mask,
    checked_reward,
    checked_tuple,
    choices_of,
    info_number,
    mask_in,
)
from jaxrl.envs.host.worker import Leaf, Problem, Reader, action_of, describe

_RESET = ("observations", "infos")  # what PettingZoo's methods return, each a dict by agent
_STEP = ("observations", "rewards", "terminations", "truncations", "infos")
_METHODS = ("reset", "step", "observation_space", "action_space", "close")


def make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """The environment of `module:attribute`: a class of parallel ones, or a function `...parallel_env`."""
    path, _, attribute = name.rpartition(":")
    module = importlib.import_module(path)
    found: Any = getattr(module, attribute, None)
    if found is None and attribute == "parallel_env" and hasattr(module, "env"):
        raise Problem("is turn-based, with `env` (AEC) alone: only parallel environments train here")
    # A name must not be able to call any function there is.
    is_class = isinstance(found, type) and all(hasattr(found, method) for method in _METHODS)
    if not is_class and not (callable(found) and attribute.endswith("parallel_env")):
        raise Problem(
            f"needs a class with {', '.join(_METHODS)}, or a function whose name ends in parallel_env; "
            f"{attribute} of {path} is neither"
        )
    env = found(**kwargs)
    if hasattr(env, "agent_iter"):
        raise Problem("is turn-based (AEC), with `agent_iter`: only parallel environments train here")
    if missing := [method for method in _METHODS if not callable(getattr(env, method, None))]:
        raise Problem(f"is no parallel environment: it lacks {', '.join(missing)}")
    return env


def description(env: Any) -> dict[str, Any]:
    """The agents, their spaces and what the environment declares. Resets the environment."""
    agents = possible_agents(env)
    _, infos = _by_agent("reset", env.reset(seed=0), _RESET)
    if possible_agents(env) != agents:
        raise Problem(f"changes its possible_agents: {agents}, after reset() {possible_agents(env)}")
    obs = {agent: describe(env.observation_space(agent)) for agent in agents}
    actions = {agent: describe(env.action_space(agent)) for agent in agents}
    return {
        "agents": agents,
        "obs": obs,
        "actions": actions,
        "masks": _masks(obs, actions, infos),
        "limit": _limit(env),
        "reports": (getattr(env, "metadata", None) or {}).get("reports", {}),
        "state": _state(env),
    }


def valid_names(error: BaseException) -> list[str] | None:
    """None: the parent knows them."""


def possible_agents(env: Any) -> tuple[Any, ...]:
    found = getattr(env, "possible_agents", None)
    if not isinstance(found, Sequence) or not found:
        raise Problem("has no possible_agents: agents that are not known beforehand have no rows")
    return tuple(found)


def _by_agent(method: str, result: Any, names: Sequence[str]) -> tuple[Any, ...]:
    for name, value in zip(names, checked_tuple(method, result, len(names), "PettingZoo"), strict=True):
        if not isinstance(value, Mapping):
            raise Problem(f"{method}() returned {type(value).__name__} as {name}: a dict by agent is needed")
    return result


def _limit(env: Any) -> Any:
    """The most steps of an episode, if the environment or one inside it has it as PettingZoo's do."""
    bare = getattr(env, "unwrapped", env)
    return getattr(bare, "max_cycles", getattr(getattr(bare, "env", None), "max_cycles", None))


def _masks(
    obs: Mapping[Any, list[Leaf]], actions: Mapping[Any, list[Leaf]], infos: Mapping[Any, Any]
) -> str | None:
    """The way an environment gives action masks: in observations, in infos, or None."""
    if any(map(mask_in, obs.values())):
        return "obs"
    if not any(isinstance(x, Mapping) and MASK in x for x in infos.values()):
        return None
    if not all(map(choices_of, actions.values())):
        raise Problem(f"gives {MASK!r} in the info of agents, but {MASKABLE} actions")
    return "info"


def _state(env: Any) -> Leaf | None:
    """The space of `state()`, one box; None if there is none."""
    try:
        leaves = describe(env.state_space)
        env.state()
    except Exception:  # environments without a state raise any error
        return None
    return leaves[0] if len(leaves) == 1 and leaves[0]["kind"] == "box" and not leaves[0]["path"] else None


class ParallelSlot:
    """One environment and the rows of its agents; resets on the step after the end of its episode.

    An agent takes part in a step if it was there before it. Other rows are `first`: so is the row
    with an agent's first observation, and rows in which it is absent, which hold zeros.
    """

    def __init__(self, env: Any, index: int, setup: dict[str, Any], arrays: dict[str, np.ndarray]):
        self.env = env
        self.index = index
        self.steps = 0
        self._over = True
        self._agents: tuple[Any, ...] = setup["agents"]
        self._seed: int | None = setup["seeds"][index]
        cuts = setup["first_episode_steps"]
        self._limit: float = setup["limit"] or math.inf
        self._left: float = cuts[index] if cuts else self._limit
        self._here: set[Any] = set()
        rows = range(index * len(self._agents), (index + 1) * len(self._agents))
        self._rows = {
            agent: _AgentRow(agent, row, setup, arrays) for agent, row in zip(self._agents, rows, strict=True)
        }
        self._masks = setup["masks"]
        self._team = arrays["team"][index]
        self._info_keys = setup["info_keys"]
        self._info = arrays["info"][index]
        self._state = _state_reader(setup, arrays, rows)

    def step(self) -> None:
        if self._over:
            obs, infos = _by_agent("reset", self.env.reset(seed=self._seed), _RESET)
            self._seed = None
            self._over = False
            self._begin(obs, infos)
        else:
            self.steps += 1
            self._go_on()
        if self._state is not None:
            self._state(self.env.state())

    def _begin(self, obs: Any, infos: Any) -> None:
        if (found := possible_agents(self.env)) != self._agents:
            raise Problem(f"changes its possible_agents: {self._agents}, now {found}")
        self._here = self._present()
        if not self._here:
            raise Problem("has no agents after reset()")
        for agent, row in self._rows.items():
            if agent in self._here:
                row.arrive(obs, self._mask(agent, obs, infos))
            else:
                row.leave()
        self._team[:] = False, False, True
        self._info[:] = math.nan

    def _go_on(self) -> None:
        actions = {agent: self._rows[agent].action() for agent in self.env.agents}
        obs, rewards, terminations, truncations, infos = _by_agent("step", self.env.step(actions), _STEP)
        present = self._present()
        if strangers := [x for x in (*rewards, *terminations, *truncations) if x not in self._rows]:
            what = f"a reward or an end of {strangers[0]!r}"
            raise Problem(f"has {what}, which is not among its possible_agents")
        flags = {
            agent: (
                checked_flag("a termination", terminations.get(agent, False)),
                checked_flag("a truncation", truncations.get(agent, False)),
            )
            for agent in self._here
        }
        # Of one that has gone without a flag, which has terminated, no observation counts.
        silent = {agent for agent in self._here - present if not any(flags[agent])}
        flags |= dict.fromkeys(silent, (True, False))
        # Some environments keep agents that have ended in their list, with flags: they have not come back.
        there = {a for a in present if not (terminations.get(a) or truncations.get(a))}
        self._left -= 1
        is_cut = bool(there) and self._left <= 0
        if is_cut:
            flags |= dict.fromkeys(there & self._here, (False, True))
        self._over = is_cut or not there
        for agent, row in self._rows.items():
            if agent in self._here:
                mask = self._mask(agent, obs, infos, any(flags[agent]))
                reward = rewards.get(agent, 0.0 if agent in silent else None)
                row.stay({} if agent in silent else obs, reward, *flags[agent], mask)
            elif agent in there:
                row.arrive(obs, self._mask(agent, obs, infos))
            else:
                row.leave()
        cut = any(truncated and not terminated for terminated, truncated in flags.values())
        self._team[:] = self._over and not cut, self._over and cut, False
        self._info[:] = [_mean(infos, key) for key in self._info_keys]
        self._here = there
        if self._over:
            self._left = self._limit

    def _present(self) -> set[Any]:
        found = set(self.env.agents)
        if more := found - set(self._agents):
            raise Problem(f"has the agent {more.pop()!r}, which is not among its possible_agents")
        return found

    def _mask(self, agent: Any, obs: Any, infos: Any, ended: bool = False) -> Any:
        """(The agent's mask as the environment gives it, `ended`); None without masks."""
        if self._masks is None:
            return None
        given = (obs if self._masks == "obs" else infos).get(agent)
        return (given.get(MASK) if isinstance(given, Mapping) else None), ended


class _AgentRow:
    """The row of one agent in the shared arrays."""

    def __init__(self, agent: Any, row: int, setup: dict[str, Any], arrays: dict[str, np.ndarray]):
        self._agent = agent
        self._action_leaf: Leaf = setup["action_leaves"][agent]
        leaves: list[Leaf] = setup["obs_leaves"][agent]
        self._obs = [arrays[f"obs{i}"][row : row + 1].squeeze(0) for i in range(len(leaves))]
        self._readers = [Reader(leaf, _part(x, leaf)) for leaf, x in zip(leaves, self._obs, strict=True)]
        self._choices = choices_of([self._action_leaf])
        self._mask = arrays["mask"][row, : sum(self._choices)]
        self._mask[:] = True
        self._outcome = arrays["outcome"][row]
        self._reward = arrays["reward"][row : row + 1]
        self._action = arrays["action"][row : row + 1].squeeze(0)

    def action(self) -> Any:
        return action_of(self._action_leaf, self._action)

    def arrive(self, obs: Mapping[Any, Any], mask: Any) -> None:
        self._read(obs, mask)
        self._reward[0], self._outcome[:] = 0.0, (False, False, True)

    def stay(self, obs: Mapping[Any, Any], reward: Any, terminated: bool, truncated: bool, mask: Any) -> None:
        """A step of the agent's; the last if it has a flag."""
        # After a termination the last observation is not used.
        if self._agent in obs or not terminated:
            self._read(obs, mask)
        with _mistakes_of(self._agent):
            if reward is None:
                raise Problem("has no reward")
            self._reward[0] = checked_reward(reward)
        self._outcome[:] = terminated, truncated, False

    def leave(self) -> None:
        """The agent is absent: zeros, and it may do anything, since a policy needs a choice."""
        for x in self._obs:
            x[...] = 0
        self._mask[:] = True
        self._reward[0], self._outcome[:] = 0.0, (False, False, True)

    def _read(self, obs: Mapping[Any, Any], mask: Any) -> None:
        with _mistakes_of(self._agent):
            if self._agent not in obs:
                raise Problem("has no observation")
            for reader in self._readers:
                reader.read(obs[self._agent])
            if mask is not None:
                given, ended = mask
                self._mask[:] = checked_mask(given, f"its {MASK}", self._choices, ended)


@contextmanager
def _mistakes_of(agent: Any) -> Iterator[None]:
    try:
        yield
    except Problem as problem:
        raise Problem(f"agent {agent} {problem}") from problem


def _part(array: np.ndarray, leaf: Leaf) -> np.ndarray:
    """The part of a row that holds an observation: of a longer vector the first numbers, the rest stay 0."""
    return array if array.shape == leaf["shape"] else array[: leaf["shape"][0]]


def _state_reader(setup: dict[str, Any], arrays: dict[str, np.ndarray], rows: range) -> Any:
    """A function that writes the global state to the rows of all agents; None if it is not requested."""
    if setup["state_leaf"] is None:
        return None
    held = arrays["central"][rows.start : rows.stop]
    first = Reader(setup["state_leaf"], held[:1].squeeze(0))

    def write(state: Any) -> None:
        with _mistakes_of("state"):
            first.read(state)
        held[1:] = held[:1]

    return write


def _mean(infos: Mapping[Any, Any], key: str) -> float:
    """The mean over the agents that report that key; NaN if none does."""
    said = [number for info in infos.values() if not math.isnan(number := info_number(info, key))]
    return float(np.mean(said)) if said else math.nan


make_slot = ParallelSlot
