#!/usr/bin/env bash
# memax 0.1.1: `GDN` and `DeltaNet` do not compute the delta rule. They store S = sum of v k^T and read S q, so a write
# must erase on the side of the keys, S (I - b k k^T) + b v k^T (Yang et al. 2024, arXiv 2412.06464, equation 10); their
# semigroup multiplies from the other side, (I - b k k^T) S + b v k^T, which removes the part of old VALUES that points
# along the key. What was written under a key is not replaced by the next write under that key. Both train, and look
# like weak memories rather than like a bug.
#
# Seen with memax 0.1.1, equinox 0.13.8, jax 0.10.2, Python 3.11:
#   one key, values (0, 1), then (0, 3); read: GDN [0.0, 4.0], DeltaNet [0.0, 4.0], the delta rule [0.0, 3.0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'memax[equinox]==0.1.1' 'equinox==0.13.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax.numpy as jnp
from memax.equinox.semigroups.delta import DeltaNetSemigroup
from memax.equinox.semigroups.gdn import GDNSemigroup

key = jnp.array([1.0, 0.0])
strength, decay = 1.0, 1.0


def write(value):
    """What `forward_map` of both gives to the semigroup for a step."""
    return decay * (jnp.eye(2) - strength * jnp.outer(key, key)), strength * jnp.outer(value, key)


def read(semigroup):
    state = semigroup.initialize_carry()
    for value in ([0.0, 1.0], [0.0, 3.0]):
        state = semigroup(state, write(jnp.array(value)))
    return (state[1] @ key).tolist()


rule = jnp.zeros((2, 2))
for value in ([0.0, 1.0], [0.0, 3.0]):
    factor, added = write(jnp.array(value))
    rule = rule @ factor + added
print(
    f"one key, values (0, 1), then (0, 3); read: GDN {read(GDNSemigroup(2))}, "
    f"DeltaNet {read(DeltaNetSemigroup(2))}, the delta rule {(rule @ key).tolist()}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == "one key, values (0, 1), then (0, 3); read: GDN [0.0, 4.0], DeltaNet [0.0, 4.0], the delta rule [0.0, 3.0]" ]]
