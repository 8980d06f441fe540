"""Stable-Baselines3, sb3-contrib and SBX on the same envpool batch as everyone else."""

from __future__ import annotations

import outcome  # isort: skip

import time
from typing import Any

import envpool_work
import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

TASK = outcome.task()
WORK = TASK["work"]
if TASK["peer"] == "sbx":
    from sbx import PPO
elif WORK["network"] == "impala-lstm":
    from sb3_contrib import RecurrentPPO as PPO
else:
    from stable_baselines3 import PPO

IMPORTED = outcome.since_start()


class Batch(VecEnv):
    """An envpool batch; the step after an end counts as any other."""

    def __init__(self, work: dict[str, Any], seed: int) -> None:
        self.envs = envpool_work.make(work, seed)
        space = self.envs.observation_space
        super().__init__(
            work["num_envs"],
            gym.spaces.Box(space.low, space.high, space.shape, space.dtype.type),
            gym.spaces.Discrete(int(self.envs.action_space.n)),
        )

    def reset(self) -> np.ndarray:
        return np.array(self.envs.reset()[0])

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions, np.int32)

    def step_wait(self) -> Any:
        obs, reward, terminated, truncated, _ = self.envs.step(self._actions)
        obs = np.array(obs)
        done = terminated | truncated
        infos = [
            {"terminal_observation": obs[i], "TimeLimit.truncated": bool(truncated[i])} if done[i] else {}
            for i in range(self.num_envs)
        ]
        return obs, np.array(reward, np.float32), done, infos

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        pass

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **options: Any) -> list[Any]:
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def _network() -> tuple[str, dict[str, Any]]:
    """The policy's class and arguments that make it the network of the work."""
    if WORK["network"] == "mlp":
        return "MlpPolicy", {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    from host_networks import trunk
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Trunk(BaseFeaturesExtractor):
        def __init__(self, space: gym.Space) -> None:
            layers, width = trunk(WORK["network"], space.shape)
            super().__init__(space, width)
            self.layers = layers

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    arguments: dict[str, Any] = {"features_extractor_class": Trunk, "net_arch": [], "normalize_images": False}
    if WORK["network"] == "nature":
        return "CnnPolicy", arguments
    return "CnnLstmPolicy", arguments | {
        "lstm_hidden_size": 256,
        "shared_lstm": True,
        "enable_critic_lstm": False,
    }


def main() -> None:
    per_iteration = WORK["num_envs"] * WORK["rollout_length"]
    policy, arguments = _network()
    model = PPO(
        policy,
        Batch(WORK, TASK["seed"]),
        n_steps=WORK["rollout_length"],
        batch_size=per_iteration // WORK["num_minibatches"],
        n_epochs=WORK["epochs"],
        learning_rate=2.5e-4,
        ent_coef=0.01,
        policy_kwargs=arguments,
        device="cpu",
        seed=TASK["seed"],
    )
    model.learn(per_iteration)
    steps = WORK["iterations"] * per_iteration
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    seconds = time.perf_counter() - start
    packages = ("stable-baselines3", "sb3-contrib", "sbx-rl", "torch", "jax", "envpool", "numpy")
    outcome.report(
        import_seconds=IMPORTED, steps=steps, seconds=seconds, versions=outcome.versions(*packages)
    )


if __name__ == "__main__":
    main()
