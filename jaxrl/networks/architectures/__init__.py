"""Architectures by name: what each sees, of what sizes, and how the parts become one."""

from jaxrl.networks.architectures.build import build_architecture, describe_architecture, resolve_architecture
from jaxrl.networks.architectures.records import ARCHITECTURES, Architecture

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "build_architecture",
    "describe_architecture",
    "resolve_architecture",
]
