#!/usr/bin/env bash
# optax 0.2.8: with bfloat16 parameters, the second moment of `optax.adam` never falls. optax keeps it in the dtype of the
# parameters, and there the default b2=0.999 is 1.0: an average that should forget in some thousand updates becomes a sum.
# Large gradients early in training make every later update too small, below by a factor of 63, and the learning curve goes
# flat as if the learning rate were too low. The sum also stops growing once an addition is less than half a unit in the
# last place, below at 0.5 instead of 1. `optax.adamw`, `lamb` and `nadam` do the same. `mu_dtype=jnp.float32` does not
# help: it is about the first moment. Keep parameters in float32 and cast them inside the network (in flax: set `dtype`,
# not `param_dtype`).
#
# Seen with optax 0.2.8, jax 0.10.2, Python 3.11, 1,000 gradients of 1, then 10,000 of 0.01, learning rate 1e-3:
#   float32: second moment 0.63, then 0.00013; last update -0.00088
#   bfloat16: second moment 0.50, then 0.50000; last update -0.00001
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'optax==0.2.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import optax


def train(dtype):
    params = jnp.zeros(1, dtype)
    adam = optax.adam(1e-3)

    @jax.jit
    def updates(state, gradient, count):
        def body(_, carry):
            updates, state = adam.update(jnp.full(1, gradient, dtype), carry[1], params)
            return updates, state

        return jax.lax.fori_loop(0, count, body, (params, state))

    _, early = updates(adam.init(params), 1.0, 1_000)
    last, late = updates(early, 0.01, 10_000)
    return float(early[0].nu[0]), float(late[0].nu[0]), float(last[0])


for dtype in (jnp.float32, jnp.bfloat16):
    early, late, last = train(dtype)
    print(f"{dtype.__name__}: second moment {early:.2f}, then {late:.5f}; last update {last:.5f}")
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
float32: second moment 0.63, then 0.00013; last update -0.00088
bfloat16: second moment 0.50, then 0.50000; last update -0.00001
SEEN
