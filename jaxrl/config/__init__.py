"""The configuration: one declaration of each field, its check, and the frozen result."""

from jaxrl.config.a2c import A2CConfig
from jaxrl.config.algorithm import AlgorithmConfig
from jaxrl.config.behavior_cloning import BehaviorCloningConfig
from jaxrl.config.configuration import Config
from jaxrl.config.curriculum import CurriculumConfig
from jaxrl.config.dagger import DAggerConfig
from jaxrl.config.declarations import declared_fields, default_config, flatten
from jaxrl.config.dqn import DQNConfig
from jaxrl.config.environment import check_same_spaces, environment_spec, task_environment
from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import field
from jaxrl.config.levels import LevelsConfig
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.config.network import NetworkConfig
from jaxrl.config.ppo import PPOConfig
from jaxrl.config.pqn import PQNConfig
from jaxrl.config.r2d2 import R2D2Config
from jaxrl.config.replay import MemoryConfig, ReplayConfig
from jaxrl.config.resolution import (
    changed_fields,
    check_config,
    fixed_fields,
    from_json,
    largest_device_count,
    read_section,
    resolve,
    to_json,
    versions,
)
from jaxrl.config.sac import SACConfig
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
from jaxrl.config.selfplay import SelfPlayConfig

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
    "read_section",
    "resolve",
    "task_environment",
    "to_json",
    "versions",
]
