"""The networks that suit the observations of an environment, and an LSTM's recurrence that suits devices."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import jax

from jaxrl import networks
from jaxrl.config import Config, ConfigError, NetworkConfig
from jaxrl.envs.base import Dict, EnvSpec, Space
from jaxrl.types import Axis

log = logging.getLogger(__name__)


def require_suitable(network: NetworkConfig, spec: EnvSpec) -> None:
    """Raises ConfigError if there is no such architecture, or it does not suit the observations."""
    networks.build_architecture(network, networks.policy_space(network, spec.observation_space))


def suitable_architectures(
    network: NetworkConfig, spec: EnvSpec
) -> tuple[list[NetworkConfig], dict[str, str]]:
    """(`network` with each architecture that the observations suit, why the others do not)."""
    found = []
    others = {}
    for name in networks.ARCHITECTURES:
        named = dataclasses.replace(network, architecture=name)
        try:
            require_suitable(named, spec)
        except ConfigError as error:
            others[name] = str(error)
        else:
            found.append(named)
    return found, others


def suitable_networks(network: NetworkConfig, spec: EnvSpec) -> Iterator[NetworkConfig]:
    """`network` with every built-in encoder and architecture that takes the observation, times every core."""
    space = spec.observation_space
    # A dict has one per key: as configured.
    names = [network.encoder] if isinstance(space, Dict) else networks.ENCODERS.names()
    changes: list[dict[str, Any]] = [{"encoder": name, "architecture": ""} for name in names]
    changes += [{"architecture": name} for name in networks.ARCHITECTURES]
    for change in changes:
        encoded = dataclasses.replace(network, **change)
        if _takes(encoded, space):
            for core in networks.CORES.names():
                yield dataclasses.replace(encoded, core=core)


def seen_parts(network: NetworkConfig) -> tuple[str, ...]:
    """The parts of an observation that an architecture sees; () of a user."""
    return networks.resolve_architecture(network).sees


def _takes(network: NetworkConfig, space: Space) -> bool:
    build = networks.build_architecture if network.architecture else networks.build_encoder
    try:
        build(network, space)
    except ConfigError:
        return False
    return True


def network_on(config: Config, axis: Axis, device: jax.Device | None) -> Config:
    """The configuration, its network with ways to compute for these devices in the place of `auto`.

    A kernel is compared with the plain form on the device before it is chosen; on devices that are only
    described it cannot be.

    Args:
      device: one of them, of this process; None if they are only described.
    """
    network = config.network
    recurrence = networks.chosen_recurrence(network, axis)
    dense = networks.chosen_dense(network, axis)
    if device is not None:
        with jax.default_device(device):
            if network.recurrence == "auto" and recurrence == "pallas":
                recurrence = _unless_faulty("recurrence", "scan", networks.kernel_fault(network))
            if network.dense == "auto" and dense == "pallas":
                dense = _unless_faulty("dense", "layers", networks.dense_fault(network))
    return dataclasses.replace(
        config, network=dataclasses.replace(network, recurrence=recurrence, dense=dense)
    )


def _unless_faulty(name: str, plain: str, reason: str | None) -> str:
    if reason is None:
        return "pallas"
    log.warning("network.%s=auto: %s, as the kernel %s", name, plain, reason)
    return plain
