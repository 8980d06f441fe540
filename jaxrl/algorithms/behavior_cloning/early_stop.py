"""The end of learning by validation, inside the compiled program."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


@flax.struct.dataclass
class EarlyStop:
    """The end of learning by validation (Prechelt 1998, "Early stopping - but when?").

    Attributes:
      best: parameters of the validation with the best likelihood.
      loss: float32[], of that.
      waited: int32[], validations since then.
      stopped: bool[], True if learning has ended, with the best parameters.
    """

    best: PyTree
    loss: Array
    waited: Array
    stopped: Array

    def after(self, params: PyTree, loss: Array, patience: int) -> EarlyStop:
        """With one more validation; a NaN, such as of no episodes, is as good as another, not as a number."""
        better = ~self.stopped & ((loss < self.loss) | (jnp.isnan(loss) & jnp.isinf(self.loss)))
        waited = jnp.where(better, 0, self.waited + 1)
        return EarlyStop(
            best=jax.tree.map(lambda new, old: jnp.where(better, new, old), params, self.best),
            loss=jnp.where(better & ~jnp.isnan(loss), loss, self.loss),
            waited=waited,
            stopped=self.stopped | (waited >= patience),
        )
