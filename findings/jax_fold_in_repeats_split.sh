#!/usr/bin/env bash
# jax 0.10.2 (since 0.5.0): `fold_in(key, i)` is the same key as `split(key, n)[i]`. Code that treats them as two ways to
# get unrelated keys gets the same numbers twice: here the weights of a network, from the first half of a split, are the
# exploration noise of worker 0, whose key is folded from the same key. Splitting a key again into more parts repeats the
# earlier parts as well. Nothing reports it. Before 0.5.0, and still with `jax_threefry_partitionable=False`, all of these
# keys differ, so the same code trained with independent numbers then.
# Split a key once, for all its uses, and never split a key that numbers are folded into; or fold only numbers that no
# split reaches, such as (1 << 30) + worker.
#
# Seen with jax 0.10.2, Python 3.11:
#   fold_in(key, i) is split(key, 4)[i]: True; split(key, 2) begins split(key, 4): True; weights are the noise: True
#   without jax_threefry_partitionable: False False False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import numpy as np


def same(a, b):
    return np.array_equal(jax.random.key_data(a), jax.random.key_data(b))


def seen():
    key = jax.random.key(0)
    four = jax.random.split(key, 4)
    folded = all(same(jax.random.fold_in(key, i), four[i]) for i in range(4))
    begins = same(jax.random.split(key, 2), four[:2])

    # A training script: a key for the network, one for other things, and one for each worker.
    network_key, _ = jax.random.split(key)
    weights = jax.random.normal(network_key, (64, 64))
    worker_keys = [jax.random.fold_in(key, worker) for worker in range(8)]
    noise = jax.random.normal(worker_keys[0], (64, 64))
    return folded, begins, np.array_equal(weights, noise)


folded, begins, equal = seen()
print(
    f"fold_in(key, i) is split(key, 4)[i]: {folded}; split(key, 2) begins split(key, 4): {begins}; "
    f"weights are the noise: {equal}"
)
with jax.threefry_partitionable(False):
    print("without jax_threefry_partitionable:", *seen())
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
fold_in(key, i) is split(key, 4)[i]: True; split(key, 2) begins split(key, 4): True; weights are the noise: True
without jax_threefry_partitionable: False False False
SEEN
