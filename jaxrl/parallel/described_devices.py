"""Devices to compile for that need not exist: what preflight knows of all of them."""

from __future__ import annotations

import abc
from typing import Any


class DescribedDevices(abc.ABC):
    """Devices of one kind, by description."""

    @abc.abstractmethod
    def devices(self) -> list[Any]:
        """Descriptions for which programs compile, but on which they do not run.

        Raises:
          ConfigError: the compiler for them is not installed.
        """

    @property
    @abc.abstractmethod
    def memory_bytes(self) -> int:
        """What programs may take on each device."""

    @property
    @abc.abstractmethod
    def enforces_memory(self) -> bool:
        """Whether the compiler refuses programs that need more."""

    @property
    @abc.abstractmethod
    def compiler(self) -> str:
        """Name and version of what compiles for them besides JAX."""
