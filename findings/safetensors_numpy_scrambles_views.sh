#!/usr/bin/env bash
# safetensors 0.8.0: `safetensors.numpy.save_file` stores a NumPy view that is not contiguous with the right shape and wrong
# numbers, without a word: it writes the memory as it lies. Weights of flax, (in, out),
# are transposed in just this way for PyTorch, (out, in): the file loads there, all shapes fit, and the network computes
# nonsense. Slices such as `table[:, :2]` and arrays in Fortran's order are stored wrongly too. The docstring asks for
# contiguous arrays and nothing checks them, while `safetensors.torch` refuses such tensors with an error and a transposed
# jax array in `safetensors.flax` is stored correctly. Pass `np.ascontiguousarray(view)`.
#
# Seen with safetensors 0.8.0, numpy 2.4.6, Python 3.11:
#   saved [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], loaded [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
#   right: transposed False, slice False, ascontiguousarray True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'safetensors==0.8.0' 'numpy==2.4.6'
cat >"$folder/seen.py" <<'PYTHON'
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

kernel = np.arange(6, dtype=np.float32).reshape(2, 3)


def again(array):
    save_file({"kernel": array}, sys.argv[1])
    return load_file(sys.argv[1])["kernel"]


print(f"saved {kernel.T.tolist()}, loaded {again(kernel.T).tolist()}")
cases = {
    "transposed": kernel.T,
    "slice": kernel[:, :2],
    "ascontiguousarray": np.ascontiguousarray(kernel.T),
}
print("right:", ", ".join(f"{name} {np.array_equal(again(case), case)}" for name, case in cases.items()))
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" "$folder/weights.safetensors" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
saved [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]], loaded [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
right: transposed False, slice False, ascontiguousarray True
SEEN
