"""The hyperparameter files of rl-baselines3-zoo: a section for each environment, of one algorithm of SB3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from jaxrl.config.errors import ConfigError, did_you_mean

# What Stable-Baselines3 2 and sb3-contrib take where a section says nothing (the arguments of each class).
_ON_POLICY = {"gamma": 0.99, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "schedule": "constant"}
_PPO = {**_ON_POLICY, "n_epochs": 10, "learning_rate": 3e-4, "gae_lambda": 0.95, "clip_range": 0.2}
_TRAINING: dict[str, dict[str, Any]] = {
    "ppo": {**_PPO, "n_steps": 2048, "batch_size": 64},
    "ppo_lstm": {**_PPO, "n_steps": 128, "batch_size": 128},
    "a2c": {**_ON_POLICY, "n_steps": 5, "learning_rate": 7e-4, "gae_lambda": 1.0},
    "dqn": {
        "gamma": 0.99,
        "learning_rate": 1e-4,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "batch_size": 32,
        "tau": 1.0,
        "train_freq": 4,
        "gradient_steps": 1,
        "target_update_interval": 10_000,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
        "max_grad_norm": 10.0,
        "n_step": 1,
        "double": False,
    },
    "sac": {
        "gamma": 0.99,
        "learning_rate": 3e-4,
        "critic_rate": 3e-4,
        "temperature_rate": 3e-4,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "batch_size": 256,
        "tau": 0.005,
        "train_freq": 1,
        "gradient_steps": 1,
    },
}
_OFF_POLICY = {"type": "mlp", "activation": "relu"}
_ACTOR_CRITIC = {"hidden_sizes": [64, 64], "activation": "tanh", "separate_value": True}
_NETWORKS: dict[str, dict[str, Any]] = {
    "ppo": {**_ACTOR_CRITIC, "type": "mlp"},
    "ppo_lstm": {**_ACTOR_CRITIC, "type": "lstm", "core_size": 256},
    "a2c": {**_ACTOR_CRITIC, "type": "mlp"},
    "dqn": {**_OFF_POLICY, "hidden_sizes": [64, 64]},
    "sac": {**_OFF_POLICY, "hidden_sizes": [256, 256]},
}


def is_zoo(data: Mapping[Any, Any]) -> bool:
    """True if sections are environments, as the files of rl-baselines3-zoo have them."""
    return any(
        isinstance(section, Mapping) and {"n_timesteps", "policy"} <= section.keys()
        for section in data.values()
    )


def read_section(data: Mapping[Any, Any], path: str, environment: str) -> dict[str, Any]:
    """The section of one environment, in the sections of `other_layouts`.

    Args:
      data: of the file.
      path: whose name says the algorithm, such as `ppo.yml`.
      environment: its name here or there, `CartPole-v1` or `gymnax:CartPole-v1`.

    Raises:
      ConfigError: the environment is not named or has no section, or there is no such algorithm here.
    """
    name = environment.partition("(")[0].rpartition(":")[2]
    known = [key for key in data if isinstance(key, str) and isinstance(data[key], Mapping)]
    if name not in known:
        hint = did_you_mean(name, known) if name else f", of {len(known)} such as {known[-1]}"
        raise ConfigError(f"it has a section for each environment of rl-zoo: choose one by --env=NAME{hint}")
    algorithm = os.path.splitext(os.path.basename(path))[0]
    if algorithm not in _TRAINING:
        raise ConfigError(f"its name must be an algorithm, one of {', '.join(_TRAINING)}, not {algorithm!r}")
    section = {key: value for key, value in data[name].items() if value is not None}
    left_out = {}
    training = dict(_TRAINING[algorithm])
    environments = section.pop("n_envs", 1)
    normalize = section.pop("normalize", False)
    section.pop("policy", None)
    for key, value in section.items():
        falls = isinstance(value, str) and value.startswith("lin_")
        training[key] = value.removeprefix("lin_") if falls else value
        if falls and key == "learning_rate":
            training["schedule"] = "linear"
        elif falls:
            left_out[f"{key} falling to 0"] = value
    if training.get("gradient_steps") == -1:  # as many as there were steps
        training["gradient_steps"] = int(training["train_freq"]) * int(environments)
    place: dict[str, Any] = {"name": environment, "num_envs": environments}
    if isinstance(normalize, bool):
        place |= {"normalize_obs": normalize, "normalize_reward": normalize}
    else:
        left_out["normalize"] = normalize
    return {
        "algorithm": algorithm.removesuffix("_lstm"),
        "model": _NETWORKS[algorithm],
        "environment": place,
        "training": training | left_out,
    }
