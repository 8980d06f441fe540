#!/usr/bin/env bash
# jax 0.10.2 (and 0.11.2) on CPUs: the number of cores that a process may use changes the last bits of a product
# x.T @ y over many rows, the gradient of every dense layer. The compiled program is the same: the sum over rows is
# divided among the threads when it runs, and there are as many threads as cores in the process's affinity. So the same
# seed and versions in a container with fewer CPUs, or under taskset, train another network. Products without a sum
# over many rows stay the same.
#
# Seen with jax 0.10.2, Python 3.11, on two cores of an Intel Xeon (it needs Linux and at least two cores):
#   gradient of 8192 rows differs, product of 64 rows the same; twice on two cores: the same
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import os
import sys

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])

import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)
x, y, weights = (jnp.asarray(rng.normal(size=(n, 64)), jnp.float32) for n in (8192, 8192, 64))
gradient = jax.jit(lambda x, y: x.T @ y)(x, y)
product = jax.jit(lambda x, weights: x[:64] @ weights)(x, weights)
print(*(hash(np.asarray(z).tobytes()) for z in (gradient, product)))
PYTHON
run() { PYTHONHASHSEED=0 JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py" "$1"; }
read -r gradient_1 product_1 <<<"$(run 1)"
read -r gradient_2 product_2 <<<"$(run 2)"
read -r again _ <<<"$(run 2)"
says() { if [[ $1 == "$2" ]]; then echo the same; else echo differs; fi; }
seen="gradient of 8192 rows $(says "$gradient_1" "$gradient_2"), product of 64 rows $(says "$product_1" "$product_2")"
seen+="; twice on two cores: $(says "$gradient_2" "$again")"
echo "$seen"
[[ $seen == "gradient of 8192 rows differs, product of 64 rows the same; twice on two cores: the same" ]]
