"""Parallel environments for tests, written as for PettingZoo without it, imported as a user's own module."""

from __future__ import annotations

import sys

import numpy as np
from gymnasium import spaces

# Of each agent of `Coming`: the step that is its first, and the one before which it has gone.
ENTERS = {"first": 0, "second": 0, "third": 0, "late": 1}
LEAVES = {"first": 1, "second": 2, "third": 4, "late": 4}


class Coming:
    """`ProbeAgents` with agents in dicts: each gets 1 for the bit that it sees, plus a tenth of its action.

    The second goes without a flag; the last is cut off, observes less than the others and has two actions.
    These have three, of which the last is never allowed. With `noise` much is said of agents not there.
    """

    possible_agents = list(ENTERS)  # noqa: RUF012
    metadata = {"render_modes": ["rgb_array"], "reports": {"hits": "sum"}}  # noqa: RUF012

    def __init__(self, noise=False, masks="info", render_mode=None, bonus=0.1):
        self.noise, self.masks, self.render_mode, self.bonus = noise, masks, render_mode, bonus
        self.agents = []
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent):
        space = spaces.Box(-1, 1, (5 if agent == "late" else 9,), np.float32)
        if self.masks != "obs":
            return space
        return spaces.Dict({"action_mask": spaces.MultiBinary(len(self.mask(agent))), "observation": space})

    def action_space(self, agent):
        return spaces.Discrete(2, start=5) if agent == "late" else spaces.Discrete(3)

    def mask(self, agent):
        return np.array([True, True] if agent == "late" else [True, True, False])

    def reset(self, seed=None, options=None):
        in_worker = getattr(sys.modules["__main__"], "__file__", "").endswith("worker.py")
        assert not (in_worker and "jax" in sys.modules), "workers must not load JAX"
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.time = 0
        self._ask()
        self.agents = self._present()
        return self._told(self.agents), self._infos({})

    def step(self, actions):
        assert list(actions) == self.agents
        assert all(self.action_space(agent).contains(x) for agent, x in actions.items())
        acted = self.agents
        chosen = {agent: actions[agent] - (5 if agent == "late" else 0) for agent in acted}
        hits = {agent: chosen[agent] == self.bits[agent] for agent in acted}
        rewards = {agent: float(hits[agent]) + self.bonus * int(chosen[agent]) for agent in acted}
        self.time += 1
        self._ask()
        ended = [agent for agent in acted if self.time >= LEAVES[agent]]
        self.agents = self._present()
        terminations = {agent: agent in ended and agent in ("first", "third") for agent in acted}
        truncations = {agent: agent in ended and agent == "late" for agent in acted}
        # The second has gone, and nothing is said of it.
        seen = {*self.agents, *(agent for agent in ended if agent != "second")}
        told = self._told(seen)
        if self.noise:
            for agent in set(self.possible_agents) - set(acted) - set(self.agents):
                rewards[agent], terminations[agent], truncations[agent] = np.nan, True, True
        return told, rewards, terminations, truncations, self._infos(hits)

    def render(self):
        return np.full((8, 8, 3), 10 * self.time, np.uint8)

    def close(self):
        self.agents = []

    def _present(self):
        return [agent for agent in ENTERS if ENTERS[agent] <= self.time < LEAVES[agent]]

    def _ask(self):
        self.bits = {agent: int(self.rng.integers(2)) for agent in self.possible_agents}

    def _told(self, agents):
        told = {agent: self._observe(agent) for agent in agents}
        if self.noise:
            told = {agent: np.full(3, np.nan) for agent in self.possible_agents} | told
        return told

    def _observe(self, agent):
        who = [float(agent == x) for x in self.possible_agents]
        left = [float(LEAVES[agent] - self.time - 1 == i) for i in range(4)] if agent != "late" else []
        obs = np.array([*who, 2.0 * self.bits[agent] - 1, *left], np.float32)
        if self.masks != "obs":
            return obs
        return {"action_mask": self.mask(agent).astype(np.int8), "observation": obs}

    def _infos(self, hits):
        infos = {agent: {"hits": float(hit)} for agent, hit in hits.items()}
        if self.masks == "info":
            for agent in {*self.agents, *infos}:
                infos.setdefault(agent, {})["action_mask"] = self.mask(agent)
        return infos


class Pushing:
    """Two agents push a point; it never ends, and `max_cycles` says how long an episode may be."""

    possible_agents = ["left", "right"]  # noqa: RUF012
    state_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self, max_cycles=3, fault=""):
        self.max_cycles, self.fault, self.resets = max_cycles, fault, 0

    def observation_space(self, agent):
        if self.fault == "shapes" and agent == "left":
            return spaces.Box(0, 255, (2, 2), np.uint8)
        return spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2) if self.fault == "kinds" and agent == "left" else spaces.Box(-1, 1, (1,))

    def reset(self, seed=None, options=None):
        self.place, self.time, self.agents = 0.0, 0, list(self.possible_agents)
        self.resets += 1
        if self.fault == "list" and self.resets > 2:
            self.possible_agents = [*self.possible_agents, "third"]
        return self._told(), None if self.fault == "no infos" else {agent: {} for agent in self.agents}

    def step(self, actions):
        self.place += sum(float(x[0]) for x in actions.values())
        self.time += 1
        if self.fault == "stranger":
            self.agents.append("stranger")
        told = self._told()
        if self.fault == "shape":
            told["right"] = np.zeros(3, np.float32)
        no = dict.fromkeys(self.agents, False)
        reward = np.nan if self.fault == "reward" else -abs(self.place)
        if self.fault == "no dict":
            return told, reward, no, dict(no), {}
        if self.fault == "all":  # as RLlib's environments have it
            no["__all__"] = True
        rewarded = self.agents[:1] if self.fault == "unrewarded" else self.agents
        return told, dict.fromkeys(rewarded, reward), no, dict(no), {}

    def state(self):
        return np.array([self.place, self.time, 7.0])

    def close(self):
        """Nothing to close."""

    def _told(self):
        return {agent: np.array([self.place, sign], np.float32) for agent, sign in self._signs()}

    def _signs(self):
        return [("left", -1.0), ("right", 1.0)]


class Staying(Pushing):
    """The left one dies at the first step and the right one at the third; both stay among the agents."""

    def step(self, actions):
        told, rewards, _, no, infos = super().step(actions)
        return told, rewards, {"left": self.time >= 1, "right": self.time >= 3}, no, infos


class Turns(Coming):
    """Turn-based, by what such environments have in PettingZoo."""

    def agent_iter(self):
        return iter(())


class Nobody(Coming):
    """Says too late who there may be."""

    possible_agents = None


def small_parallel_env(**arguments):
    """By the name that PettingZoo gives such functions."""
    return Pushing(**arguments)


def anything():
    """A name must not be able to call this."""
    raise AssertionError("called")
