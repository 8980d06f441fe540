"""SBX until a score: `learn` with a callback that plays greedy episodes, all in Gymnasium's environments."""

from __future__ import annotations

import outcome  # isort: skip

import contextlib
import math
from typing import Any

import gymnasium as gym
import numpy as np
import sbx
from shipped import zoo_arguments
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

_PACKAGES = ("sbx-rl", "stable-baselines3", "jax", "jaxlib", "flax", "gymnasium", "numpy", "torch")


class _Reached(Exception):
    """Ends `learn` from a callback that cannot return False."""


class _Evaluations(BaseCallback):
    """Plays greedy episodes side by side every so many steps; raises `_Reached` at the score."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__()
        self.score, self.every = task["score"], task["evaluate_every"]
        self.next, self.mean = self.every, -math.inf
        self._episodes = task["episodes"]
        self._env = DummyVecEnv([lambda: gym.make(task["env"])] * self._episodes)

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.evaluate()
        return True

    def evaluate(self) -> None:
        """Sets `mean` to the mean return of the first episode of each environment."""
        statistics = self.model.get_vec_normalize_env()
        obs = self._env.reset()
        running, total = np.ones(self._episodes, bool), np.zeros(self._episodes)
        while running.any():
            seen = obs if statistics is None else statistics.normalize_obs(obs)
            action, _ = self.model.predict(seen, deterministic=True)
            obs, reward, done, _ = self._env.step(action)
            total += reward * running
            running &= ~done
        self.mean = float(total.mean())
        if self.mean >= self.score:
            raise _Reached


def score(task: dict[str, Any]) -> None:
    arguments, others = zoo_arguments(task["settings"])
    env: Any = DummyVecEnv([lambda: gym.make(task["env"])] * others["envs"])
    if others.get("normalize"):
        env = VecNormalize(env, gamma=arguments.get("gamma", 0.99))
    algorithm = getattr(sbx, task["algorithm"])
    model = algorithm("MlpPolicy", env, device="cpu", seed=task["seed"], **arguments)
    evaluations = _Evaluations(task)
    with contextlib.suppress(_Reached):
        model.learn(others["steps"], callback=evaluations)
    outcome.report(
        steps=model.num_timesteps, eval_return=evaluations.mean, versions=outcome.versions(*_PACKAGES)
    )


if __name__ == "__main__":
    score(outcome.task())
