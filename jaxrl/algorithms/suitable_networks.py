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
    """The configuration, its network with a recurrence for these devices in the place of `auto`.

    The kernel is compared with the scan on the device before it is chosen; on devices that are only described
    it cannot be.

    Args:
      config: of the run.
      axis: the devices.
      device: one of them, of this process; None if they are only described.
    """
    network = config.network
    chosen = networks.chosen_recurrence(network, axis)
    if network.recurrence == "auto" and chosen == "pallas" and device is not None:
        with jax.default_device(device):
            reason = networks.kernel_fault(network)
        if reason:
            log.warning("network.recurrence=auto: the scan, as the kernel %s", reason)
            chosen = "scan"
    return dataclasses.replace(config, network=dataclasses.replace(network, recurrence=chosen))
