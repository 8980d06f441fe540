"""The way an LSTM runs over time on the devices of a run, if `network.recurrence` leaves that open."""

from __future__ import annotations

import dataclasses
import logging

import jax

from jaxrl import networks
from jaxrl.config import Config
from jaxrl.types import Axis

log = logging.getLogger(__name__)


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
