"""The interface of environments of several agents on the host, beside that of `HostFactory`."""

from __future__ import annotations

from typing import Any, Protocol

from jaxrl.envs.host_env import HostFactory


class CentralHostFactory(HostFactory, Protocol):
    """A host environment of several agents with a state of the whole: it has `spec.central_observation`."""

    def with_central(self) -> CentralHostFactory:
        """The same, with the global state in stored observations; `decode` leaves it out."""
        ...

    def central(self, obs: Any) -> Any:
        """An element of `spec.central_observation` for every row; only of `with_central`."""
        ...
