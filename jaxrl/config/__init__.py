"""The configuration: one declaration of each field, its check, and the frozen result."""

from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.configuration import Config
from jaxrl.config.construction import (
    from_json,
    planned_after,
    read_section,
    to_json,
    versions,
    with_planned_updates,
)
from jaxrl.config.curriculum import CurriculumConfig, LevelsConfig, SelfPlayConfig
from jaxrl.config.declarations import declared_fields, default_config, flatten
from jaxrl.config.environment import check_same_spaces, environment_spec, task_environment
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import field
from jaxrl.config.minibatches import A2CConfig, BehaviorCloningConfig, MinibatchConfig, PPOConfig, PQNConfig
from jaxrl.config.network import NetworkConfig
from jaxrl.config.off_policy import DQNConfig, R2D2Config, SACConfig
from jaxrl.config.replay import DAggerConfig, MemoryConfig, ReplayConfig
from jaxrl.config.resolution import changed_fields, check_config, fixed_fields, largest_device_count, resolve
from jaxrl.config.sections import (
    CheckpointConfig,
    EnvConfig,
    EvaluateConfig,
    HostConfig,
    LogConfig,
    NormalizeConfig,
    ProfileConfig,
    StopConfig,
    StorageConfig,
)

__all__ = [
    "A2CConfig",
    "AlgorithmConfig",
    "BehaviorCloningConfig",
    "CheckpointConfig",
    "Config",
    "ConfigError",
    "CurriculumConfig",
    "DAggerConfig",
    "DQNConfig",
    "EnvConfig",
    "EvaluateConfig",
    "HostConfig",
    "LevelsConfig",
    "LogConfig",
    "MemoryConfig",
    "MinibatchConfig",
    "NetworkConfig",
    "NormalizeConfig",
    "PPOConfig",
    "PQNConfig",
    "ProfileConfig",
    "R2D2Config",
    "ReplayConfig",
    "SACConfig",
    "SelfPlayConfig",
    "StopConfig",
    "StorageConfig",
    "changed_fields",
    "check_config",
    "check_same_spaces",
    "declared_fields",
    "default_config",
    "environment_spec",
    "field",
    "fixed_fields",
    "flatten",
    "from_json",
    "largest_device_count",
    "planned_after",
    "read_section",
    "resolve",
    "task_environment",
    "to_json",
    "versions",
    "with_planned_updates",
]
