"""Descriptions of devices to compile for, which need not exist; preflight uses them."""

from __future__ import annotations

import abc
from typing import Any


class DescribedDevices(abc.ABC):
    """Devices of one kind, by description."""

    @abc.abstractmethod
    def devices(self) -> list[Any]:
        """Device descriptions for which programs compile, but on which they do not run.

        Raises:
          ConfigError: the compiler for them is not installed.
        """

    @property
    @abc.abstractmethod
    def memory_bytes(self) -> int:
        """Bytes that programs may take on each device."""

    @property
    @abc.abstractmethod
    def enforces_memory(self) -> bool:
        """True if the compiler refuses programs that need more."""

    @property
    @abc.abstractmethod
    def compiler(self) -> str:
        """Name and version of the package that compiles for them, besides JAX."""
