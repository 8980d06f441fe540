"""Gymnasium environments for tests of the worker processes, imported there as a user's own module."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Count(gymnasium.Env):
    """Observation (seed, episode, time); episodes of 3 steps terminate, every other one is cut off instead.

    The reward is the action plus a tenth of the time.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(4, start=10)

    def __init__(self, length: int = 3):
        self.length = length
        self.seed, self.episode, self.time = -1, -1, 0

    def reset(self, *, seed=None, options=None):
        assert "jax" not in sys.modules, "workers must not load JAX"
        self.seed = self.seed if seed is None else seed
        self.episode, self.time = self.episode + 1, 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        over = self.time == self.length
        cut = self.episode % 2 == 1
        return self._observe(), action + self.time / 10, over and not cut, over and cut, {}

    def _observe(self):
        return np.array([self.seed, self.episode, self.time], np.float32)


class Telling(Count):
    """`Count` that tells its time in every second step, and of a success at its end."""

    metadata = {"render_modes": [], "reports": {"time": "sum", "success": "last"}}  # noqa: RUF012

    def __init__(self, wrong: bool = False):
        super().__init__()
        self.wrong = wrong

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.time % 2:
            info["time"] = np.ones(2) if self.wrong else np.int64(self.time)
        if terminated or truncated:
            info["success"] = terminated
        info["more"] = {"nested": 1.0}
        return obs, reward, terminated, truncated, info


class Whole(gymnasium.Env):
    """`Whole` of `wrapped_environments`."""

    observation_space = spaces.Box(0, 3, (2,), np.int32)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": [], "reports": {"time": "max"}}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        self.time, self.last = 0, 0
        return np.array([0, 0], np.int32), {"time": 0}

    def step(self, action):
        self.time, self.last = self.time + 1, int(action)
        obs, reward = np.array([self.time, self.last], np.int32), np.float32(self.last - self.time / 2)
        over, cut = self.time == 3, self.last == 2
        return obs, reward, over and not cut, over and cut, {"time": self.time}


class Faulty(Count):
    """Does something wrong in the environment of seed 3, at its fifth step."""

    def __init__(self, fault: str):
        super().__init__(length=100)
        self.fault = fault

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.seed != 3 or self.time != 5:
            return obs, reward, terminated, truncated, info
        match self.fault:
            case "raise":
                raise RuntimeError("the motor\nis on fire")
            case "exit":
                sys.exit("bye")
            case "die":
                os._exit(7)
            case "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(1000)
            case "nan":
                obs[1] = np.nan
            case "shape":
                obs = obs[:2]
            case "dtype":
                obs = obs.astype(str)
            case "none":
                obs = None
            case "reward":
                reward = float("nan")
            case "reward_shape":
                reward = np.ones(1)
            case "large":
                reward = 1e300
            case "old":
                return obs, reward, terminated, info
        return obs, reward, terminated, truncated, info


class HangInC(Count):
    """Hangs inside C code that holds the interpreter: no Python thread of the worker runs again."""

    def step(self, action):
        ctypes.PyDLL(None).sleep(1000)


class Slow(Count):
    """Takes a second a step."""

    def step(self, action):
        time.sleep(1.0)
        return super().step(action)


class Rich(gymnasium.Env):
    """Every kind of observation, dicts within dicts, and a vector of integers as action, which it shows."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 255, (6, 5, 3), np.uint8)}),
            "pair": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiDiscrete([4, 5]))),
            "bits": spaces.MultiBinary(2),
            "double": spaces.Box(-1, 1, (2,), np.float64),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        return self._observe(np.zeros(2, np.int64)), {}

    def step(self, action):
        return self._observe(action), 0, False, False, {}

    def _observe(self, action):
        return {
            "camera": {"left": np.full((6, 5, 3), 7, np.uint8)},
            "pair": (int(action[0]) - 1, np.array([3, action[1]])),
            "bits": np.array([1, 0], np.int8),
            "double": np.array([0.5, -0.5]),
        }


class Pusher(gymnasium.Env):
    """A vector of bounded numbers as action, which it shows; it pays the first of them."""

    def __init__(self, low: float = -1, high: float = 1, dtype: str = "float64"):
        self.action_space = spaces.Box(low, high, (2,), np.dtype(dtype))
        self.observation_space = self.action_space

    def reset(self, *, seed=None, options=None):
        return self.action_space.low, {}

    def step(self, action):
        assert self.action_space.contains(action)
        return action, float(action[0]), False, False, {}


class HangInClose(Count):
    """Never ends."""

    def close(self):
        time.sleep(1000)


class Printing(Count):
    """Says something at every step, on both streams, and dies at the third with a last word."""

    def step(self, action):
        print(f"step {self.time}")
        print("a warning", file=sys.stderr)
        if self.time == 2:
            print("the motor is hot", flush=True)
            os._exit(9)
        return super().step(action)


class Large(gymnasium.Env):
    """Shows a number, in 64 bits."""

    action_space = spaces.Discrete(2)

    def __init__(self, number: float):
        self.number = np.array([number])
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), self.number.dtype)
        if self.number.dtype.kind == "i":
            self.observation_space = spaces.Box(-(2**62), 2**62, (1,), self.number.dtype)

    def reset(self, *, seed=None, options=None):
        return self.number, {}


class Spaces(Count):
    """Observes and takes what its arguments say."""

    def __init__(self, shape=(3,), actions: int = 4):
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(actions)


class Masked(Count):
    """Allows only the action that its time says; at the end of an episode none."""

    def __init__(self, given: str = "info", fault: str = ""):
        super().__init__()
        self.fault = fault
        if given == "method":
            self.action_masks = self._mask

    def reset(self, *, seed=None, options=None):
        obs, _ = super().reset(seed=seed)
        return obs, {"action_mask": self._mask()}

    def step(self, action):
        assert self._mask()[action - 10], "this action was not allowed"
        *answer, _ = super().step(action)
        return *answer, {} if self.time == 3 else {"action_mask": self._mask()}

    def _mask(self):
        match self.fault:
            case "nothing":
                return np.zeros(4, np.int8)
            case "shape":
                return np.ones(3, np.int8)
            case "text":
                return "all"
        mask = np.arange(4) == self.time
        return mask & False if self.time == 3 else mask.astype(np.int8)


class Parts(Count):
    """Actions of components (3, 2); allows of each the one that its time says, in any form of masks."""

    observation_space = spaces.Dict(
        {"action_mask": spaces.Box(0, 1, (5,)), "time": spaces.Box(0, 9, (1,)), "more": spaces.Discrete(2)}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, form: str = "list", given: str = "info", actions: str = ""):
        super().__init__()
        self.form, self.given = form, given
        if given == "method":
            self.action_masks = self._mask
        if given != "obs":
            self.observation_space = spaces.Box(0, 9, (1,))
        if actions == "box":
            self.action_space = spaces.Box(-1, 1, (5,))
        if actions == "dict":
            self.action_space = spaces.Dict({"a": spaces.Discrete(5)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), self._info(0)

    def step(self, action):
        self.time += 1
        return self._observe(), 0.0, self.time == 3, False, self._info(1)

    def _info(self, at):
        given = self.given == "info" or (self.given == "late" and at == 1)
        return {"action_mask": self._mask()} if given else {}

    def _observe(self):
        time = np.array([self.time], np.float32)
        return {"action_mask": self._mask(), "time": time, "more": 1} if self.given == "obs" else time

    def _mask(self):
        parts = [np.arange(3) == self.time % 3, np.arange(2) == self.time % 2]
        if self.form == "float":
            return np.concatenate(parts).astype(np.float32)
        return tuple(x.tolist() for x in parts) if self.form == "tuple" else parts


class Batch(gymnasium.vector.VectorEnv):
    """Several environments at once."""


class Texts(Count):
    observation_space = spaces.Text(5)


gymnasium.register("CountBatch-v0", vector_entry_point=Batch)
gymnasium.register("CountRegistered-v0", Count, max_episode_steps=2)


class Signs(gymnasium.Env):
    """Pays 1 for the action 1 at a positive observation and 0 at a negative one, else -1; 8 steps."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        right = action == (self.sign > 0)
        self.time += 1
        return self._observe(), 1.0 if right else -1.0, self.time == 8, False, {}

    def _observe(self):
        self.sign = self.np_random.choice([-1.0, 1.0])
        return np.array([self.sign], np.float32)
