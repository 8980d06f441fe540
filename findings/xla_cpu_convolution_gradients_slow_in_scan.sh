#!/usr/bin/env bash
# jax 0.10.2 (and 0.11.2): on CPUs the gradient of a convolution with respect to its kernel takes some 30 times as long
# in the body of `lax.scan` or `lax.map` as outside. The compiled program shows why: outside, XLA reorders the axes to
# those of its fast convolution (b01f_01io->b01f); in a loop it leaves them as differentiation wrote them
# (f01b_i01o->01bf). The forward convolution is not affected, nor are products of matrices; the gradient with respect to
# the inputs is, by 2 times in 0.10.2 and 20 in 0.11.2. A PPO whose minibatches are a `lax.scan` in one compiled
# program, as is usual in JAX, therefore learns from images far more slowly than one that calls a compiled update from
# Python. `unroll=True` takes the body out of the loop, at the price of a longer compilation; or write the convolution
# as patches times a matrix.
#
# Seen with jax 0.10.2, Python 3.11, gradient for 32 images of 20x20x32 and 64 kernels of 4x4, 4 steps (one core of a busy
# machine; milliseconds vary: 61, 2668, 105 and 135, with more load 168, 3413, 166 and 203):
#   a scan takes more than 5 times as long: True, less than 4 times as long with unroll=True: True, with patches: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys
import time

import jax
import jax.numpy as jnp

images = jax.random.normal(jax.random.key(0), (4, 32, 20, 20, 32))
kernels = 0.05 * jax.random.normal(jax.random.key(1), (4, 4, 32, 64))


def convolution(kernels, x):
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernels, (2, 2), "VALID", dimension_numbers=layout)


def patches_times_matrix(kernels, x):
    parts = [x[:, i : i + 17 : 2, j : j + 17 : 2] for i in range(4) for j in range(4)]
    return jnp.concatenate(parts, axis=-1) @ kernels.reshape(-1, kernels.shape[-1])


def programs(layer, **options):
    """Four updates: by a compiled function called from Python, and in a scan."""

    @jax.jit
    def update(kernels, x):
        return kernels - 1e-9 * jax.grad(lambda kernels: (layer(kernels, x) ** 2).sum())(kernels)

    def called(kernels, images):
        for x in images:
            kernels = update(kernels, x)
        return kernels

    def scanned(kernels, images):
        return jax.lax.scan(lambda kernels, x: (update(kernels, x), None), kernels, images, **options)[0]

    return called, jax.jit(scanned)


called, scanned = programs(convolution)
_, unrolled = programs(convolution, unroll=True)
_, patches = programs(patches_times_matrix)
every = (called, scanned, unrolled, patches)
best = dict.fromkeys(every, float("inf"))
for turn in range(6):
    for program in every:
        began = time.perf_counter()
        program(kernels, images).block_until_ready()
        if turn:  # the first compiles
            best[program] = min(best[program], time.perf_counter() - began)
print(*(f"{1e3 * best[program]:.0f} ms" for program in every), file=sys.stderr)
print(
    f"a scan takes more than 5 times as long: {best[scanned] > 5 * best[called]}, "
    f"less than 4 times as long with unroll=True: {best[unrolled] < 4 * best[called]}, "
    f"with patches: {best[patches] < 4 * best[called]}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py")
echo "$seen"
[[ $seen == "a scan takes more than 5 times as long: True, less than 4 times as long with unroll=True: True, with patches: True" ]]
