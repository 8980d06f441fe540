"""The configuration: one declaration of each field, its check, and the frozen result."""

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.errors import ConfigError
from jaxrl.config.ppo import PPOConfig
from jaxrl.config.resolution import (
    changed_fields,
    check_config,
    check_same_spaces,
    declared_fields,
    default_config,
    environment_spec,
    fixed_fields,
    flatten,
    from_json,
    largest_device_count,
    resolve,
    to_json,
    versions,
)
from jaxrl.config.sections import (
    CheckpointConfig,
    Config,
    EnvConfig,
    EvaluateConfig,
    HostConfig,
    LogConfig,
    NetworkConfig,
    NormalizeConfig,
    ProfileConfig,
    StopConfig,
    StorageConfig,
)

__all__ = [
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "ConfigError",
    "EnvConfig",
    "EvaluateConfig",
    "HostConfig",
    "LogConfig",
    "NetworkConfig",
    "NormalizeConfig",
    "PPOConfig",
    "ProfileConfig",
    "StopConfig",
    "StorageConfig",
    "changed_fields",
    "check_config",
    "check_same_spaces",
    "declared_fields",
    "default_config",
    "environment_spec",
    "fixed_fields",
    "flatten",
    "from_json",
    "largest_device_count",
    "resolve",
    "to_json",
    "versions",
]
