"""The memory of devices: programs too large are refused before compilation, and errors say what took it."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import psutil

from jaxrl.algorithms import Agent
from jaxrl.config import Config, ConfigError, ReplayConfig, text
from jaxrl.config.construction import memory_remedies
from jaxrl.config.curriculum import SelfPlayConfig
from jaxrl.config.errors import RunError
from jaxrl.envs.base import Box, Dict, EnvSpec, Mixed, zeros
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.jaxpr import largest_arrays
from jaxrl.programs.runtime import Runtime

# Parameters, gradients, and the two moments of Adam.
_COPIES = 4
# float32 numbers that a rollout keeps of each step besides observation, action and mask.
_NUMBERS_PER_STEP = 6
_SHOWN = 3  # arrays that an error names
_WANTED = re.compile(r"allocat\w* ([\d.]+) ?([KMGT]i?B|bytes)")


class OutOfMemory(RunError):
    """A program needs more memory than there is; the message names its largest arrays and the remedies."""


def is_out_of_memory(error: Exception) -> bool:
    """True if a program of XLA could not allocate its arrays, when it was compiled or when it ran."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def explain(error: Exception, config: Config, runtime: Runtime) -> OutOfMemory:
    """The error to raise instead of `error`, which `is_out_of_memory`."""
    platform = runtime.learning.topology.axis.platform
    found = largest_arrays(runtime.trace().jaxpr, platform, _SHOWN)
    return OutOfMemory(
        f"out of memory{_describe_request(str(error))}; largest arrays on each device: "
        f"{', '.join(map(str, found))}; it takes less with {memory_remedies(config)}"
    )


def _describe_request(complaint: str) -> str:
    """The size that XLA asked for, if it says so: `... allocating 123 bytes`, `allocate 1.5GiB`."""
    found = _WANTED.search(complaint)
    if found is None:
        return ""
    amount = text.size(float(found[1])) if found[2] == "bytes" else f"{found[1]} {found[2]}"
    return f", {amount} could not be allocated"


def memory_of(topology: Topology) -> int:
    """Bytes that programs may take on a device: JAX's share of a GPU, an equal share of a CPU's memory."""
    device = topology.local_devices[0]
    statistics = device.memory_stats() if device.platform != "cpu" else None
    if statistics and "bytes_limit" in statistics:
        return int(statistics["bytes_limit"])
    return int(psutil.virtual_memory().total) // len(topology.local_devices)


def replay_bytes(runtime: Runtime) -> int:
    """Bytes on each device of the steps that a replay memory keeps, with their priorities; 0 without one."""
    if not isinstance(runtime.learning.per_device.config.learner, ReplayConfig):
        return 0
    leaves = jax.tree.leaves(runtime.learning.abstract_state().memory)
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in leaves)


def require_memory(config: Config, topology: Topology, spec: EnvSpec, agent: Agent, replay: int = 0) -> None:
    """Checks what training takes at least; what the compiler adds, `jaxrl preflight` knows.

    `replay` are `replay_bytes`.

    Raises:
      ConfigError: a device does not have that much.
    """
    available = memory_of(topology)
    _require_replay(config, available, replay)
    num_envs = config.rows_per_device if config.collects else 0
    policy = _bytes(jax.eval_shape(agent.init, jax.random.key(0)))
    network = _COPIES * policy
    if config.selfplay.enabled:
        _require_pool(config.selfplay, available - network, policy)
    rollout = num_envs * config.rollout_length * _step_bytes(spec)
    # One time step of all environments: carries before and after it, and a number for each choice.
    step = num_envs * (2 * _bytes(jax.eval_shape(lambda: agent.initial_carry(1))) + 4 * _choices(spec))
    if network + rollout + step <= available:
        return
    sizes = f"{text.size(network + rollout + step)} at least, a device has {text.size(available)}"
    if network > rollout + step:
        net = config.network
        raise ConfigError(
            f"`network.hidden_sizes` (={net.hidden_sizes}) and `network.core_size` (={net.core_size}) with "
            f"{spec.name} need {sizes}: parameters, gradients and optimiser take {text.size(network)}; "
            "choose smaller layers, or observations and actions of fewer parts"
        )
    raise ConfigError(
        f"`env.num_envs` (={config.env.num_envs}) with rollouts of {config.rollout_length} steps needs "
        f"{sizes}: use fewer environments, shorter rollouts (`{config.section}`) or more devices"
    )


def _require_replay(config: Config, available: int, kept: int) -> None:
    """Raises ConfigError unless a device holds the steps that a replay memory keeps."""
    section = config.learner
    if kept <= available or not isinstance(section, ReplayConfig):
        return
    steps = section.rows(config.env.num_envs) * config.envs_per_device
    raise ConfigError(
        f"`{config.section}.capacity` (={section.capacity}) needs {text.size(kept)} on each device, "
        f"{text.size(kept / steps)} for a step; a device has {text.size(available)}: keep fewer steps, or "
        "use more devices"
    )


def _require_pool(section: SelfPlayConfig, available: int, policy: int) -> None:
    """Raises ConfigError unless a device holds the snapshots, each of `policy` bytes, beside the network."""
    # One slot is free, and each group has a copy of the parameters of its opponent.
    pool = (section.pool_size + 1 + section.pool_groups) * policy
    if pool > available:
        raise ConfigError(
            f"`selfplay.pool_size` (={section.pool_size}) with snapshots of {text.size(policy)} needs "
            f"{text.size(pool)}, a device has {text.size(max(available, 0))} for them"
        )


def _step_bytes(spec: EnvSpec) -> int:
    """The bytes of one environment's step, as a rollout stores it."""
    assert not isinstance(spec.action_space, Dict)
    mask = spec.mask_size if spec.has_action_mask else 0
    numbers = math.prod(spec.action_space.shape) + _NUMBERS_PER_STEP
    return _bytes(jax.eval_shape(lambda: zeros(spec.observation_space))) + mask + 4 * numbers


def _choices(spec: EnvSpec) -> int:
    """Outputs of the policy's head."""
    space = spec.action_space
    parts: Any = [part for _, part in space.spaces] if isinstance(space, Mixed) else [space]
    return sum(math.prod(x.shape) if isinstance(x, Box) else x.num_choices for x in parts)


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))
