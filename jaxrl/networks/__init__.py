"""Networks by name. A user's own encoder, core or head is `module:factory`, a core also `module:Class`."""

from jaxrl.networks.architectures import ARCHITECTURES, Architecture, build_architecture, resolve_architecture
from jaxrl.networks.central import policy_space
from jaxrl.networks.core import Core
from jaxrl.networks.core_check import check_core
from jaxrl.networks.cores import CORES, check_platform, chosen_recurrence, kernel_fault
from jaxrl.networks.dense import chosen_dense, dense_fault
from jaxrl.networks.encoders import ENCODERS, build_encoder
from jaxrl.networks.heads import (
    HEADS,
    FeaturesHead,
    Head,
    QHead,
    SoftActorHead,
    ValueHead,
    build_head,
    head_name,
)
from jaxrl.networks.network import HeadOnTrunk, Network, NetworkOutput, build, describe_trunk

__all__ = [
    "ARCHITECTURES",
    "CORES",
    "ENCODERS",
    "HEADS",
    "Architecture",
    "Core",
    "FeaturesHead",
    "Head",
    "HeadOnTrunk",
    "Network",
    "NetworkOutput",
    "QHead",
    "SoftActorHead",
    "ValueHead",
    "build",
    "build_architecture",
    "build_encoder",
    "build_head",
    "check_core",
    "check_platform",
    "chosen_dense",
    "chosen_recurrence",
    "dense_fault",
    "describe_trunk",
    "head_name",
    "kernel_fault",
    "policy_space",
    "resolve_architecture",
]
