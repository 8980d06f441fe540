"""The end of learning by validation, inside the compiled program."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.types import Array, PyTree


@flax.struct.dataclass
class EarlyStop:
    """The end of learning by validation (Prechelt 1998, "Early stopping - but when?").

    The policy has the parameters of the validation with the best likelihood, whatever ends the run and when;
    learning continues from the latest validation's.

    Attributes:
      params: parameters of the latest validation.
      loss: float32[], of the best validation.
      waited: int32[], validations since then.
      stopped: bool[], True if learning has ended.
    """

    params: PyTree
    loss: Array
    waited: Array
    stopped: Array

    def after(self, best: PyTree, params: PyTree, loss: Array, patience: int) -> tuple[PyTree, EarlyStop]:
        """(best parameters, the state) with one more validation, of `params` with `loss`.

        A NaN, such as of no episodes, is as good as another, not as a number.
        """
        better = ~self.stopped & ((loss < self.loss) | (jnp.isnan(loss) & jnp.isinf(self.loss)))
        waited = jnp.where(better, 0, self.waited + 1)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), params, best)
        return best, EarlyStop(
            params=params,
            loss=jnp.where(better & ~jnp.isnan(loss), loss, self.loss),
            waited=waited,
            stopped=self.stopped | (waited >= patience),
        )
