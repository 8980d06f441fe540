#!/usr/bin/env bash
# memorax 1.0.1: the output of `mLSTMCell` does not depend on the bias of its exponential input gate, so the bias never
# learns and a write can only be larger or smaller than other writes. In xLSTM (Beck et al. 2024, equations 19 to 27) the
# output is C q / max(|n . q|, 1). The cell stores C and n divided by exp(m), with m the running maximum of the input
# gates, and still reads with a minimum of 1, where the paper's appendix A and the authors' mlstm_kernels have exp(-m):
# the m that every gate adds to itself never comes back. Queries are divided by sqrt(head_dim), as the keys already are.
# A port of trained xLSTM weights, or of its published hyperparameters, gives other outputs without an error.
#
# Seen with memorax 1.0.1, jax 0.10.2, Python 3.11:
#   input gates times exp(5): output changes by less than 1e-5 of it: True, by the paper by more than half: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'memorax==1.0.1' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from memorax.networks.sequence_models import Memoroid, mLSTMCell

STEPS, SIZE = 8, 4
model = Memoroid(mLSTMCell(features=SIZE, hidden_dim=SIZE, num_heads=1))
x = jax.random.normal(jax.random.key(0), (1, STEPS, SIZE))
starts = jnp.zeros((1, STEPS))
params = model.init(jax.random.key(1), x, starts)["params"]["cell"]


def theirs(bias):
    changed = params | {"wi": params["wi"] | {"bias": jnp.full(1, bias)}}
    return np.asarray(model.apply({"params": {"cell": changed}}, x, starts)[1])


def paper(bias):
    """Equations 19 to 27, step by step."""
    kernels = {name: np.asarray(part["kernel"], np.float64) for name, part in params.items()}
    hidden = np.asarray(x[0], np.float64) @ kernels["in_proj"]
    c, n, found = np.zeros((SIZE, SIZE)), np.zeros(SIZE), []
    for u in hidden:
        q, k, v = u @ kernels["q"], u @ kernels["k"] / np.sqrt(SIZE), u @ kernels["v"]
        # The kernels of the gates are zeros at first.
        f, i = 1 / (1 + np.exp(-4.0)), np.exp(bias)
        c, n = f * c + i * np.outer(v, k), f * n + i * k
        found.append(c @ q / max(abs(n @ q), 1.0))
    return np.array(found) @ kernels["out_proj"]


def change(output):
    before, after = output(-5.0), output(0.0)
    return np.abs(after - before).max() / np.abs(after).max()


print(
    f"input gates times exp(5): output changes by less than 1e-5 of it: {change(theirs) < 1e-5}, "
    f"by the paper by more than half: {change(paper) > 0.5}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == "input gates times exp(5): output changes by less than 1e-5 of it: True, by the paper by more than half: True" ]]
