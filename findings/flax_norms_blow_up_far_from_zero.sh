#!/usr/bin/env bash
# flax 0.12.8: `LayerNorm`, `GroupNorm` and `BatchNorm`, in linen and in nnx, compute the variance as mean(x^2) - mean(x)^2
# by default. In float32 that difference is lost when the mean is some 3,000 times the deviation. Half of the rows below
# get a variance of 0, are divided by sqrt(epsilon) = 0.001 and come out up to thousands of times too large. Prices,
# coordinates on a map and a clock in seconds are such inputs, and a norm is what one adds to tame them. All numbers are
# finite, so no check stops the run; it looks like one whose learning rate is too high. `use_fast_variance=False` takes the
# variance from the differences to the mean. (epsilon is 1e-6, in PyTorch 1e-5.)
#
# Seen with flax 0.12.8, jax 0.10.2, Python 3.11, 64 rows of 64 numbers with deviation 1, deviation after the layer:
#   mean 0: LayerNorm 1.0, nnx.LayerNorm 1.0, GroupNorm 1.0, BatchNorm 1.0, use_fast_variance=False 1.0
#   mean 5000: LayerNorm > 100, nnx.LayerNorm > 100, GroupNorm > 100, BatchNorm > 100, use_fast_variance=False 1.0
#   (705, 705, 705 and 203)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'flax==0.12.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys

import flax.linen as nn
import jax
import numpy as np
from flax import nnx

noise = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


def linen(module):
    return lambda x: module.init_with_output(jax.random.key(0), x)[0]


layers = {
    "LayerNorm": linen(nn.LayerNorm()),
    "nnx.LayerNorm": nnx.LayerNorm(64, rngs=nnx.Rngs(0)),
    "GroupNorm": linen(nn.GroupNorm(num_groups=1)),
    "BatchNorm": linen(nn.BatchNorm(use_running_average=False)),
    "use_fast_variance=False": linen(nn.LayerNorm(use_fast_variance=False)),
}
for mean in (0, 5000):
    deviations = {name: float(np.std(layer(noise + np.float32(mean)))) for name, layer in layers.items()}
    print(*(round(deviation) for deviation in deviations.values()), file=sys.stderr)
    shown = (f"{name} {'> 100' if found > 100 else round(found, 1)}" for name, found in deviations.items())
    print(f"mean {mean}:", ", ".join(shown))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
mean 0: LayerNorm 1.0, nnx.LayerNorm 1.0, GroupNorm 1.0, BatchNorm 1.0, use_fast_variance=False 1.0
mean 5000: LayerNorm > 100, nnx.LayerNorm > 100, GroupNorm > 100, BatchNorm > 100, use_fast_variance=False 1.0
SEEN
