#!/usr/bin/env bash
# rlax 0.1.9: the inverse of R2D2's value rescaling, `signed_parabolic` (in SIGNED_HYPERBOLIC_PAIR, which
# `transformed_n_step_q_learning` takes), is a staircase around zero in float32: its values are 0, 0.00006, 0.00012,
# 0.00024, and on in steps of 0.00012. It is written as sqrt(1 + 4 eps (eps + 1 + |x|)) / (2 eps) - 1 / (2 eps), with
# eps = 0.001: two numbers near 500 are subtracted, and 500 has a spacing of 0.00003. A bootstrap value of 0.001 comes
# back as 0.00098, one of 0.0001 as 0.00006, and a tiny positive one may come back negative. So values of thousandths
# are learnt with errors of several per cent. The same function without that difference: with y = eps + 1 + |x|, r =
# sqrt(1 + 4 eps y) and v = (2 (eps + |x|) - 4 eps y / (1 + r)) / (1 + r) it is sign(x) v (v + 2), exact to 5e-9 in
# the example.
#
# Seen with rlax 0.1.9, jax 0.10.2, Python 3.11, x of 10,001 values from 0 to 0.01 (others of one unit in the last place on
# other machines):
#   signed_parabolic: at most 200 different results: True, largest error above 0.00003: True, a negative result: True
#   in another form: at most 200 different results: False, largest error above 0.00003: False, a negative result: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'rlax==0.1.9' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys

import jax.numpy as jnp
import numpy as np
import rlax

EPS = 1e-3
x = jnp.linspace(0, 0.01, 10_001, dtype=jnp.float32)
exact = np.asarray(x, np.float64)
exact = ((np.sqrt(1 + 4 * EPS * (EPS + 1 + exact)) - 1) / (2 * EPS)) ** 2 - 1


def other_form(x):
    y = EPS + 1 + jnp.abs(x)
    root = jnp.sqrt(1 + 4 * EPS * y)
    v = (2 * (EPS + jnp.abs(x)) - 4 * EPS * y / (1 + root)) / (1 + root)
    return jnp.sign(x) * v * (v + 2)


def show(name, values):
    values = np.asarray(values)
    error = np.abs(values - exact).max()
    print(name, len(np.unique(values)), "values, largest error", error, "least", values.min(), file=sys.stderr)
    print(
        f"{name}: at most 200 different results: {len(np.unique(values)) <= 200}, largest error above 0.00003: "
        f"{bool(error > 0.00003)}, a negative result: {bool(values.min() < 0)}"
    )


show("signed_parabolic", rlax.signed_parabolic(x, EPS))
show("in another form", other_form(x))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
signed_parabolic: at most 200 different results: True, largest error above 0.00003: True, a negative result: True
in another form: at most 200 different results: False, largest error above 0.00003: False, a negative result: False
SEEN
