"""Networks by name. A user's own encoder, core or head is `module:factory` in the config."""

from jaxrl.networks.core import Core
from jaxrl.networks.cores import CORES, check_platform, chosen_recurrence, kernel_fault
from jaxrl.networks.encoders import ENCODERS
from jaxrl.networks.heads import HEADS
from jaxrl.networks.policy import Policy, PolicyOutput, build, describe

__all__ = [
    "CORES",
    "ENCODERS",
    "HEADS",
    "Core",
    "Policy",
    "PolicyOutput",
    "build",
    "check_platform",
    "chosen_recurrence",
    "describe",
    "kernel_fault",
]
