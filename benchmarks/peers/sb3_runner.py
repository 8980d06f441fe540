"""Stable-Baselines3 (PPO), sb3-contrib (RecurrentPPO) and SBX (PPO in JAX): one interface, three trainers.

All step Gymnasium's environments one after the other in a `DummyVecEnv`, their default.
"""

from __future__ import annotations

import outcome  # isort: skip

import contextlib
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from shipped import ZOO, zoo_arguments
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

TASK = outcome.task()
if TASK["peer"] == "sbx":
    from sbx import PPO
elif TASK["work"]["network"] == "lstm":
    from sb3_contrib import RecurrentPPO as PPO
else:
    from stable_baselines3 import PPO

IMPORTED = outcome.since_start()
_PACKAGES = ("stable-baselines3", "sb3-contrib", "sbx-rl", "torch", "jax", "jaxlib", "flax", "gymnasium")
VERSIONS = outcome.versions(*_PACKAGES, "minatar", "numpy")
# Per evaluation; fewer than the others play, because they are played by Python.
_EPISODES = 16


def _environment(work: dict[str, Any]) -> Callable[[], gym.Env]:
    if work["env"] == "CartPole-v1":
        return lambda: gym.make("CartPole-v1")
    import minatar.gym

    minatar.gym.register_envs()
    flat = work["network"] == "mlp"

    def make() -> gym.Env:
        env = gym.make("MinAtar/Breakout-v1", sticky_action_prob=0.0, disable_env_checker=True)
        return gym.wrappers.FlattenObservation(env) if flat else env

    return make


def _network(work: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the policy that make it the network of the work."""
    sizes = list(work["hidden_sizes"])
    if TASK["peer"] == "sbx":
        import flax.linen as nn

        return {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": getattr(nn, work["activation"])}
    from torch import nn
    from torch_encoders import Cnn, Dense

    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[work["activation"]]
    if work["network"] == "mlp":
        return {"net_arch": {"pi": sizes, "vf": sizes}, "activation_fn": activation}
    arguments: dict[str, Any] = {"net_arch": [], "activation_fn": activation}
    arguments["features_extractor_kwargs"] = {"features_dim": sizes[-1]}
    if work["network"] == "cnn":
        return arguments | {"features_extractor_class": Cnn}
    arguments |= {"features_extractor_class": Dense, "lstm_hidden_size": sizes[-1]}
    return arguments | {"shared_lstm": True, "enable_critic_lstm": False}


def _parameters(model: Any) -> int:
    if TASK["peer"] != "sbx":
        return sum(x.numel() for x in model.policy.parameters())
    import jax

    states = (model.policy.actor_state.params, model.policy.vf_state.params)
    return sum(x.size for x in jax.tree.leaves(states))


def measure(task: dict[str, Any]) -> None:
    work, num_envs, length = task["work"], task["num_envs"], task["rollout_length"]
    per_iteration = num_envs * length
    steps = per_iteration * outcome.iterations(task["steps"], per_iteration)
    model = PPO(
        "MlpLstmPolicy" if work["network"] == "lstm" else "MlpPolicy",
        DummyVecEnv([_environment(work)] * num_envs),
        n_steps=length,
        batch_size=per_iteration // work["num_minibatches"],
        n_epochs=task["epochs"],
        learning_rate=2.5e-4,
        ent_coef=0.01,
        policy_kwargs=_network(work),
        device="cpu",
        seed=0,
    )
    start = time.perf_counter()
    model.learn(per_iteration)
    warm = time.perf_counter() - start
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - start
    # With SBX the first iteration compiles; what it took beyond a later one.
    compiled = max(0.0, warm - seconds * per_iteration / steps) if task["peer"] == "sbx" else 0.0
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=compiled,
        steps=steps,
        seconds=seconds,
        parameters=_parameters(model),
        versions=VERSIONS,
    )


class _Solved(Exception):
    """Ends `learn` from a callback that cannot return False."""


class _StopWhenSolved(BaseCallback):
    """Plays greedy episodes every so many steps; raises `_Solved` at the target."""

    def __init__(self, target: float, every: int) -> None:
        super().__init__()
        self.target = target
        self.every = self.next = every
        self.mean = 0.0
        self._env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * _EPISODES)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self.evaluate()

    def evaluate(self) -> None:
        """Sets `mean` to the mean return of the first episode of each environment."""
        obs = self._env.reset()
        running, total = np.ones(_EPISODES, bool), np.zeros(_EPISODES)
        while running.any():
            action, _ = self.model.predict(obs, deterministic=True)
            obs, reward, done, _ = self._env.step(action)
            total += reward * running
            running &= ~done
        self.mean = float(total.mean())
        if self.mean >= self.target:
            raise _Solved


def solve(task: dict[str, Any]) -> None:
    arguments, others = zoo_arguments(ZOO["cartpole"])
    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * others["envs"])
    model = PPO("MlpPolicy", env, device="cpu", seed=task["seed"], **arguments)
    stop = _StopWhenSolved(task["target"], task["evaluate_every"])
    with contextlib.suppress(_Solved):
        model.learn(others["steps"], callback=stop)
        stop.evaluate()
    outcome.report(steps=model.num_timesteps, eval_return=stop.mean, versions=VERSIONS)


if __name__ == "__main__":
    {"measure": measure, "solve": solve}[TASK["job"]](TASK)
