"""Custom losses beside an algorithm's own, by `module:function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxrl.algorithms.batch import Batch
from jaxrl.config.errors import ConfigError, errors_as
from jaxrl.envs import modules
from jaxrl.envs.base import EnvSpec
from jaxrl.types import Array, PyTree

# The key of its parameters among the network's.
PARAMS = "auxiliary"


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A loss on the features of a network.

    Attributes:
      function: (params, features, out, batch) -> (loss float32[L, N], metrics: float32[L, N] by name).
        `params` is its own tree (None without `init`), `features` float32[L, N, F] come from the policy's
        trunk, `out` is the agent's output and `batch` a minibatch. Both results are averaged over the steps
        that count; the loss is reported as `loss/auxiliary`.
      init: (key, num_features, spec) -> params, float32; `spec` are the spaces of the environment. None if it
        has none.
    """

    function: Callable[[PyTree, Array, Any, Batch], tuple[Array, dict[str, Array]]]
    metrics: tuple[str, ...] = ()
    init: Callable[[Array, int, EnvSpec], PyTree] | None = None

    @property
    def reported(self) -> tuple[str, ...]:
        """The names of all that it reports."""
        return ("loss/auxiliary", *self.metrics)

    def __call__(self, params: PyTree, out: Any, batch: Batch) -> tuple[Array, dict[str, Array]]:
        """(the loss, what it reports by name): sums over the steps of a minibatch that count.

        Raises:
          ConfigError: the function returns something else, or reports other metrics.
        """
        own = params[PARAMS] if self.init else None
        result = self.function(own, out.features, out, batch)
        where = f"the auxiliary loss {self.function.__module__}:{self.function.__qualname__} returned"
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise ConfigError(f"{where} {found}; return (loss, metrics), metrics by name in a dict")
        loss, metrics = result
        if set(metrics) != set(self.metrics):
            names = [", ".join(sorted(x)) or "none" for x in (metrics, self.metrics)]
            raise ConfigError(f"{where} the metrics {names[0]}, and declares {names[1]}")
        sums = {name: batch.total(x) for name, x in metrics.items()}
        total = batch.total(loss)
        return total, sums | {"loss/auxiliary": total}


def load(field: str, name: str) -> AuxiliaryLoss | None:
    """The loss that a field of the configuration names; None if it is empty.

    Raises:
      ConfigError: it cannot be imported, or it is neither an `AuxiliaryLoss` nor a function of
        (params, features, out, batch).
    """
    if not name:
        return None
    with errors_as(ConfigError, "", ValueError):
        found = modules.load_attribute(f"`{field}`", name)
    if isinstance(found, AuxiliaryLoss):
        return found
    wanted = ("params", "features", "out", "batch")
    if not inspect.isfunction(found) or tuple(inspect.signature(found).parameters) != wanted:
        raise ConfigError(
            f"`{field}` (={name!r}) must be a function of ({', '.join(wanted)}), or a "
            "jaxrl.algorithms.AuxiliaryLoss of one"
        )
    return AuxiliaryLoss(found)
