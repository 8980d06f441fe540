"""The hyperparameter files of rl-baselines3-zoo: a section for each environment, of one algorithm of SB3."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl.config import words
from jaxrl.config.errors import ConfigError, did_you_mean

# Of `CnnPolicy`, behind the convolutions that pictures get by themselves.
_CNN = {"hidden_sizes": [512], "activation": "relu", "separate_value": False}


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
      path: its name gives the algorithm, such as `ppo.yml`.
      environment: its name here or there, `CartPole-v1` or `gymnax:CartPole-v1`.

    Raises:
      ConfigError: the environment is not named or has no section, or there is no such algorithm here.
    """
    name = environment.partition("(")[0].rpartition(":")[2]
    known = [key for key in data if isinstance(key, str) and isinstance(data[key], Mapping)]
    if name not in known and "atari" in known and _is_game(environment, name, known):
        name = "atari"
    if name not in known:
        hint = did_you_mean(name, known) if name else f", of {len(known)} such as {known[-1]}"
        raise ConfigError(f"it has a section for each environment of rl-zoo: choose one by --env=NAME{hint}")
    algorithm = os.path.splitext(os.path.basename(path))[0]
    algorithms = words.table().zoo
    if algorithm not in algorithms:
        raise ConfigError(f"its name must be an algorithm, one of {', '.join(algorithms)}, not {algorithm!r}")
    section = {key: value for key, value in data[name].items() if value is not None}
    left_out = {}
    training = dict(algorithms[algorithm]["training"])
    environments = section.pop("n_envs", 1)
    normalize = section.pop("normalize", False)
    is_cnn = str(section.pop("policy", "")).startswith("Cnn")
    for key, value in section.items():
        falls = isinstance(value, str) and value.startswith("lin_")
        training[key] = value.removeprefix("lin_") if falls else value
        if falls and key == "learning_rate":
            training["schedule"] = "linear"
        elif falls:
            left_out[f"{key} falling to 0"] = value
    if not isinstance(training.get("train_freq", 1), int):  # [1, "episode"]
        left_out["train_freq in episodes"] = training["train_freq"]
        training["train_freq"] = algorithms[algorithm]["training"]["train_freq"]
    if training.get("gradient_steps") == -1:  # as many as there were steps
        training["gradient_steps"] = int(training["train_freq"]) * int(environments)
    _convert(training, algorithm)
    place: dict[str, Any] = {"name": environment, "num_envs": environments}
    if isinstance(normalize, bool):
        place |= {"normalize_obs": normalize, "normalize_reward": normalize}
    else:
        left_out["normalize"] = normalize
    return {
        "algorithm": algorithm.removesuffix("_lstm"),
        "model": {**algorithms[algorithm]["network"], **(_CNN if is_cnn else {})},
        "environment": place,
        "training": training | left_out,
    }


def _convert(training: dict[str, Any], algorithm: str) -> None:
    """Changes the numbers that mean something else in Stable-Baselines3."""
    # There the value loss is the squared error, not half of it, and updates end beyond 1.5 times the target.
    for key, factor in (("vf_coef", 2.0), ("target_kl", 1.5)):
        if isinstance(value := training.get(key), int | float):
            training[key] = factor * value
    if algorithm != "sac":
        return
    # One rate is for all three optimisers.
    training |= dict.fromkeys(("critic_rate", "temperature_rate"), training["learning_rate"])
    # "auto", "auto_0.1", or a number that stays.
    coefficient = training.pop("ent_coef", "auto")
    learns = str(coefficient).startswith("auto")
    training["learn_temperature"] = learns
    training["temperature"] = (coefficient.partition("_")[2] or 1.0) if learns else coefficient
    if training.get("target_entropy") == "auto":
        del training["target_entropy"]


def _is_game(environment: str, name: str, known: Sequence[str]) -> bool:
    """True of games of Atari, which have one section together."""
    others = any(key.rpartition("-v")[0] == name.rpartition("-v")[0] for key in known)
    is_named = "ALE/" in environment or "NoFrameskip" in name
    return is_named or (environment.startswith("envpool:") and name.endswith("-v5") and not others)
