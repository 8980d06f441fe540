"""Remedies for a run that takes too much memory, as flags for the command line."""

from __future__ import annotations

from typing import Any

from jaxrl.config.configuration import Config
from jaxrl.config.construction import from_json, to_json
from jaxrl.config.errors import ConfigError


def memory_remedies(config: Config) -> str:
    """Changes that are valid beside the rest of the configuration, each with its flag; never empty.

    For example `fewer environments (--config.env.num_envs=32), bfloat16 (--config.network...)`.
    """
    wanted: list[tuple[str, str, Any]] = [
        ("fewer environments", "env.num_envs", config.env.num_envs // 2),
        *((what, f"{config.section}.{name}", x) for what, name, x in config.learner.memory_remedies),
        ("bfloat16", "network.compute_dtype", "bfloat16"),
    ]
    found = [f"{what} (--config.{name}={x})" for what, name, x in wanted if _may_become(config, name, x)]
    return ", ".join(found) or "a smaller network (--config.network.core_size, --config.network.hidden_sizes)"


def _may_become(config: Config, name: str, value: Any) -> bool:
    data = to_json(config)
    section, _, field = name.rpartition(".")
    before = data[section][field]
    data[section][field] = value
    try:
        from_json(data)
    except ConfigError:
        return False
    return bool(before != value)
