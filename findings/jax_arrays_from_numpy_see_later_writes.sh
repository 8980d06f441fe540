#!/usr/bin/env bash
# jax 0.10.2 on CPUs: a jax array made from a NumPy array can change when the NumPy array is written to afterwards, as the
# buffers of environments and of replay are.
# - `jax.device_put(x)` shares the memory of x for good if it begins at a multiple of 64 bytes, and copies it otherwise.
#   Where NumPy puts an array is chance, so the same line is right for one array and wrong for the next. `may_alias=False`
#   does not prevent it. It is the same in 0.11.2.
# - `jnp.array(x)`, the documented copy, `jnp.asarray(x)` and a call of a compiled function with x may return before a large
#   array that is not so aligned was copied: what is written in the meantime arrives in it. 0.11.2 copies it at once.
# Small arrays do not show the second. Hand over `x.copy()` and keep no reference to the copy, or make it with
# `jnp.array(x).block_until_ready()`.
#
# Seen with jax 0.10.2, numpy 2.4.6, Python 3.11; an array of ones after x[-1] = 5, its last number:
#   aligned: device_put 5.0, may_alias=False 5.0, jnp.array 1.0
#   not aligned: device_put 1.0, may_alias=False 1.0, jnp.array 1.0
#   40 MB, not aligned: jnp.array 5.0, with block_until_ready 1.0, x.copy() 1.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2' 'numpy==2.4.6'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np


def ones(size, offset):
    """float32[size] of ones that begins so many bytes behind a multiple of 64."""
    memory = np.empty(4 * size + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + 4 * size].view(np.float32)
    array[:] = 1
    return array


def last(make, size, offset):
    x = ones(size, offset)
    made = make(x)
    x[-1] = 5
    return float(made[-1])


put = {
    "device_put": jax.device_put,
    "may_alias=False": lambda x: jax.device_put(x, may_alias=False),
    "jnp.array": jnp.array,
}
large = {
    "jnp.array": jnp.array,
    "with block_until_ready": lambda x: jnp.array(x).block_until_ready(),
    "x.copy()": lambda x: jnp.array(x.copy()),
}
for name, makers, size, offset in (
    ("aligned", put, 1_000, 0),
    ("not aligned", put, 1_000, 16),
    ("40 MB, not aligned", large, 10_000_000, 16),
):
    jnp.array(ones(size, offset)).block_until_ready()  # so that its programs are compiled
    print(f"{name}:", ", ".join(f"{maker} {last(make, size, offset)}" for maker, make in makers.items()))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
aligned: device_put 5.0, may_alias=False 5.0, jnp.array 1.0
not aligned: device_put 1.0, may_alias=False 1.0, jnp.array 1.0
40 MB, not aligned: jnp.array 5.0, with block_until_ready 1.0, x.copy() 1.0
SEEN
