#!/usr/bin/env bash
# flashbax 0.1.3: new items of a prioritised buffer do not get the largest priority so far, as its documentation says
# and prioritised replay asks for (Schaul et al. 2016, algorithm 1), but the whole part of it:
# `_calculate_new_item_priorities` fills an array of the indices' dtype, integers, with it. The largest priority
# begins at 1. With TD errors up to 1.9 and an exponent of 1 new items get 1, half of what the most surprising item
# has, and come into batches half as often. After adding, call `set_priorities` for the new indices with the largest
# priority.
#
# Seen with flashbax 0.1.3, jax 0.10.2, Python 3.11, exponent 1:
#   largest priority given 0.95: recorded 1.0, new items get 1.0
#   largest priority given 1.9: recorded 1.9, new items get 1.0
#   largest priority given 2.95: recorded 2.95, new items get 2.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'flashbax==0.1.3' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import flashbax
import jax.numpy as jnp

for largest in (0.95, 1.9, 2.95):
    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=64, min_length=2, sample_batch_size=4, add_sequences=True, priority_exponent=1.0
    )
    state = buffer.init({"reward": jnp.float32(0)})
    state = buffer.add(state, {"reward": jnp.zeros(8)})
    state = buffer.set_priorities(state, jnp.arange(4), jnp.full(4, largest))
    state = buffer.add(state, {"reward": jnp.zeros(8)})
    tree = state.sum_tree_state
    new = tree.nodes[2**tree.tree_depth - 1 + 10]
    print(f"largest priority given {largest}: recorded {tree.max_recorded_priority:.4g}, new items get {new:.4g}")
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
largest priority given 0.95: recorded 1, new items get 1
largest priority given 1.9: recorded 1.9, new items get 1
largest priority given 2.95: recorded 2.95, new items get 2
SEEN
