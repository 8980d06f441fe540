"""What the section of an algorithm tells everything that is not this algorithm."""

from __future__ import annotations

import abc


class AlgorithmConfig(abc.ABC):
    """A frozen dataclass with the fields of one algorithm.

    Code outside that algorithm asks for these properties, through `Config`, and for no field.
    """

    @property
    @abc.abstractmethod
    def rollout_length(self) -> int:
        """Time steps of one rollout."""

    @property
    @abc.abstractmethod
    def carry_interval(self) -> int:
        """Time steps from one stored carry to the next, through which gradients flow; divides the rollout."""

    @property
    @abc.abstractmethod
    def updates_per_iteration(self) -> int:
        """Planned optimiser steps on one rollout."""

    @property
    @abc.abstractmethod
    def envs_multiple(self) -> int:
        """Each device must hold a multiple of this many environments."""

    @property
    @abc.abstractmethod
    def accumulation_field(self) -> str:
        """Dotted name of the field that says in how many parts a minibatch is computed; 0 and 1: in one."""

    @property
    @abc.abstractmethod
    def memory_remedies(self) -> tuple[tuple[str, str, int], ...]:
        """(what it is, field, value) of changes that take less memory; not all need be valid."""

    @abc.abstractmethod
    def steps_per_update(self, num_envs: int) -> int:
        """Environment steps that one optimiser step learns from, with `num_envs` environments."""

    @abc.abstractmethod
    def check_counts(self, num_envs: int, device_count: int) -> None:
        """Raises ConfigError where counts do not divide; `device_count` divides `num_envs`."""
