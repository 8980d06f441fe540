#!/usr/bin/env bash
# flax 0.12.8: `nnx.OptimizedLSTMCell` and `nnx.GRUCell` begin with smaller recurrent weights than the cells of the same
# name in linen and than `nnx.LSTMCell`, whose parameters the former calls compatible. All have `orthogonal()` as the
# default of `recurrent_kernel_init`. linen makes one square orthogonal matrix for each gate; nnx makes a single one for
# all gates side by side, (n, 4n) or (n, 3n), whose rows are orthonormal: each gate gets a block with weights 1/2 or
# 1/sqrt(3) as large that is not orthogonal. A network that moves from linen to nnx with the same hyperparameters starts
# with weaker recurrent connections, and results are not comparable. Pass a `recurrent_kernel_init` that joins square
# matrices, as below.
#
# Seen with flax 0.12.8, jax 0.10.2, Python 3.11, 64 units; size of a gate's weights (an orthogonal matrix: 1.0), and
# whether the gates' matrices are orthogonal:
#   linen.LSTMCell 1.0 True, linen.OptimizedLSTMCell 1.0 True, linen.GRUCell 1.0 True
#   nnx.LSTMCell 1.0 True, nnx.OptimizedLSTMCell 0.5 False, nnx.GRUCell 0.6 False
#   with matrices joined: nnx.OptimizedLSTMCell 1.0 True, nnx.GRUCell 1.0 True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'flax==0.12.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

INPUTS, UNITS = 8, 64


def linen_gates(cell):
    carry = cell.initialize_carry(jax.random.key(0), (INPUTS,))
    params = cell.init(jax.random.key(0), carry, jnp.zeros(INPUTS))["params"]
    return [layer["kernel"] for name, layer in params.items() if name.startswith("h")]


def nnx_gates(cell):
    joined = cell.dense_h.kernel[...]
    return jnp.split(joined, joined.shape[1] // UNITS, axis=1)


def described(gates):
    """The root of the mean squared singular value of the gates, and whether all of them are 1."""
    values = np.array([np.linalg.svd(gate, compute_uv=False) for gate in gates])
    return f"{np.sqrt((values**2).mean()):.1f} {bool(np.allclose(values, 1, atol=1e-4))}"


def square_matrices(key, shape, dtype=jnp.float32, **_):
    keys = jax.random.split(key, shape[1] // shape[0])
    square = jax.nn.initializers.orthogonal()
    return jnp.concatenate([square(key, (shape[0], shape[0]), dtype) for key in keys], axis=1)


linen = {cell.__name__: linen_gates(cell(UNITS)) for cell in (nn.LSTMCell, nn.OptimizedLSTMCell, nn.GRUCell)}
print(", ".join(f"linen.{name} {described(gates)}" for name, gates in linen.items()))
lstm = nnx.LSTMCell(INPUTS, UNITS, rngs=nnx.Rngs(0))
found = {"LSTMCell": [layer.kernel[...] for layer in (lstm.hi, lstm.hf, lstm.hg, lstm.ho)]}
joined = {}
for cell in (nnx.OptimizedLSTMCell, nnx.GRUCell):
    found[cell.__name__] = nnx_gates(cell(INPUTS, UNITS, rngs=nnx.Rngs(0)))
    joined[cell.__name__] = nnx_gates(
        cell(INPUTS, UNITS, recurrent_kernel_init=square_matrices, rngs=nnx.Rngs(0))
    )
print(", ".join(f"nnx.{name} {described(gates)}" for name, gates in found.items()))
print("with matrices joined:", ", ".join(f"nnx.{name} {described(gates)}" for name, gates in joined.items()))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
linen.LSTMCell 1.0 True, linen.OptimizedLSTMCell 1.0 True, linen.GRUCell 1.0 True
nnx.LSTMCell 1.0 True, nnx.OptimizedLSTMCell 0.5 False, nnx.GRUCell 0.6 False
with matrices joined: nnx.OptimizedLSTMCell 1.0 True, nnx.GRUCell 1.0 True
SEEN
