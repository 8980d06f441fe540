"""The facts that the section of an algorithm gives to all other code."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NoReturn

from jaxrl.config.errors import ConfigError


class AlgorithmConfig:
    """A frozen dataclass with the fields of one algorithm, each declared with `jaxrl.config.field`.

    Code outside that algorithm reads these properties, through `Config`, and no field. A section must
    declare the field `rollout_length`, unless it collects nothing. The other properties default to one update
    on the whole rollout of all environments; a section overrides what differs.

    Attributes:
      collects: True if training steps the environments. If not, the algorithm learns from its memory alone,
        and the clock of a run counts updates instead of environment steps.
      constants: names of class attributes that were fields in former versions, which stored runs have.
    """

    collects: ClassVar[bool] = True
    constants: ClassVar[tuple[str, ...]] = ()

    @property
    def rollout_length(self) -> int:
        """Time steps of one rollout; 1 if nothing is collected."""
        if self.collects:
            raise NotImplementedError(f"{type(self).__name__} declares no field `rollout_length`")
        return 1

    def carry_interval(self, num_envs: int) -> int:
        """Time steps from one stored carry to the next, through which gradients flow; divides the rollout."""
        return self.rollout_length

    @property
    def updates_per_iteration(self) -> int:
        """Planned optimiser steps on one rollout."""
        return 1

    def idle_iterations(self, num_envs: int) -> int:
        """First iterations of a run, without an update, of `num_envs` environments."""
        return 0

    def envs_multiple(self, num_envs: int) -> int:
        """Each device must hold a multiple of so many environments, of `num_envs` in all."""
        return 1

    @property
    def accumulation_field(self) -> str:
        """The field, without its section, with the parts of a minibatch (0: one); "": there is none."""
        return ""

    @property
    def memory_remedies(self) -> tuple[tuple[str, str, int], ...]:
        """(what it is, field without its section, value) of changes that take less memory, valid or not."""
        return ()

    def steps_per_update(self, num_envs: int) -> int:
        """Environment steps that one optimiser step learns from, with `num_envs` environments."""
        return num_envs * self.rollout_length

    def check_counts(self, name: str, num_envs: int, device_count: int) -> None:
        """Raises ConfigError if counts do not divide; `device_count` divides `num_envs`.

        `name` is the section's, for the error. Default: all counts do.
        """


@dataclasses.dataclass(frozen=True)
class UnreadSection(AlgorithmConfig):
    """The section of a stored algorithm whose module is not imported; see `jaxrl.config.construction`.

    `data` is the whole configuration as JSON. Every property raises ConfigError.
    """

    algorithm: str
    data: str

    def refuse(self) -> NoReturn:
        """Raises ConfigError: the module must not be imported."""
        module = self.algorithm.rpartition(":")[0]
        raise ConfigError(
            f"`algorithm` (={self.algorithm!r}) names the module {module}, which is only imported with "
            "--trust"
        )


for _name in {*vars(AlgorithmConfig)} - {"constants"}:
    if not _name.startswith("__"):
        setattr(UnreadSection, _name, property(UnreadSection.refuse))
