#!/usr/bin/env bash
# optax 0.2.8: `optax.inject_hyperparams(optax.adam)` stores every number in the dtype of the parameters. With bfloat16
# parameters b2=0.999 becomes exactly 1.0, Adam's bias correction divides by 1 - 1 = 0, and the first update is NaN.
# Plain `optax.adam` on the same parameters is finite. `hyperparam_dtype=jnp.float32` is the way out.
#
# Seen with optax 0.2.8, jax 0.10.2, Python 3.11:
#   injected: b2=1.0 first update nan; plain: finite True; hyperparam_dtype=float32: finite True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'optax==0.2.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax.numpy as jnp
import optax

params = jnp.ones(3, jnp.bfloat16)
gradient = jnp.ones(3, jnp.bfloat16)


def first(transform):
    state = transform.init(params)
    updates, state = transform.update(gradient, state, params)
    return state, updates


state, injected = first(optax.inject_hyperparams(optax.adam)(learning_rate=1e-3))
_, plain = first(optax.adam(1e-3))
_, wide = first(
    optax.inject_hyperparams(optax.adam, hyperparam_dtype=jnp.float32)(learning_rate=1e-3)
)
print(
    f"injected: b2={float(state.hyperparams['b2'])} first update {float(injected[0])}; "
    f"plain: finite {bool(jnp.isfinite(plain).all())}; "
    f"hyperparam_dtype=float32: finite {bool(jnp.isfinite(wide).all())}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == "injected: b2=1.0 first update nan; plain: finite True; hyperparam_dtype=float32: finite True" ]]
