#!/usr/bin/env bash
# jax 0.10.2: parameters kept as one flat vector have a slow gradient on CPUs if leaves are cut out of it by slices, `flat[a:b]`. The
# gradient of each slice is a vector of the full length, padded with zeros, and the gradient is the sum of all of these: with 16 leaves
# each element is computed from 16 paddings, and XLA takes the sums of the biases' gradients into the same fusion. `jnp.split` at the
# same places, as `jax.flatten_util.ravel_pytree` has it, has a concatenation as its gradient. Of 2 million parameters and a batch of 32,
# a forward and a backward pass take two to five times as long; in training with a batch of 512 it was a quarter of all time.
#
# Seen with jax 0.10.2, Python 3.13, two cores of an Intel Xeon: slices 12.9 ms, split 5.4 ms (one core: 25.2 and 5.6)
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax[cpu]==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import time
import jax
import jax.numpy as jnp

SIZES = [256, *[512] * 8]
SHAPES = [shape for pair in zip(SIZES, SIZES[1:]) for shape in (pair, pair[1:])]  # a kernel and a bias for each layer
ENDS = []
for shape in SHAPES:
    ENDS.append((ENDS[-1] if ENDS else 0) + shape[0] * (shape[1] if len(shape) == 2 else 1))


def by_slices(flat):
    return [flat[begin:end] for begin, end in zip([0, *ENDS], ENDS)]


def by_split(flat):
    return jnp.split(flat, ENDS[:-1])


def milliseconds(cut):
    def loss(flat, x):
        leaves = [leaf.reshape(shape) for leaf, shape in zip(cut(flat), SHAPES)]
        for kernel, bias in zip(leaves[::2], leaves[1::2]):
            x = jnp.tanh(x @ kernel + bias)
        return jnp.square(x).sum()

    arguments = jnp.ones(ENDS[-1]) * 1e-3, jnp.ones((32, SIZES[0]))
    program = jax.jit(jax.grad(loss)).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))

    def once():
        begun = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        return 1e3 * (time.perf_counter() - begun)

    return min(once() for _ in range(7))


slices, split = milliseconds(by_slices), milliseconds(by_split)
print(f"slices {slices:.1f} ms, split {split:.1f} ms")
assert slices > 1.5 * split
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py"
