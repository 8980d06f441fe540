#!/usr/bin/env bash
# jax 0.10.2: `lax.cond` accepts branches that return DIFFERENT registered dataclasses with equally many fields. The
# result has the class of the first branch and, when the second ran, the second's numbers in the order of its fields:
# a `Bounds(low, high)` comes back as a `Moments(mean, variance)`. No error, no warning. `lax.scan` lets its carry
# change class in the same way, and `jax.tree.structure` calls the two trees equal. `jax.tree.map` over both raises,
# so mapping the two outputs over each other while tracing is a check that works.
#
# Seen with jax 0.10.2, jaxlib 0.10.2, Python 3.11:
#   cond: Moments mean=1.0 variance=2.0, structures equal: True, tree.map: ValueError
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import dataclasses

import jax


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Moments:
    mean: float
    variance: float


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Bounds:
    low: float
    high: float


def choose(first):
    return jax.lax.cond(first, lambda: Moments(0.0, 0.0), lambda: Bounds(1.0, 2.0))


found = jax.jit(choose)(False)
equal = jax.tree.structure(Moments(0.0, 0.0)) == jax.tree.structure(Bounds(0.0, 0.0))
try:
    jax.tree.map(lambda a, b: a, Moments(0.0, 0.0), Bounds(0.0, 0.0))
    mapped = "accepted"
except ValueError:
    mapped = "ValueError"
print(
    f"cond: {type(found).__name__} mean={found.mean} variance={found.variance}, "
    f"structures equal: {equal}, tree.map: {mapped}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py")
echo "$seen"
[[ $seen == "cond: Moments mean=1.0 variance=2.0, structures equal: True, tree.map: ValueError" ]]
