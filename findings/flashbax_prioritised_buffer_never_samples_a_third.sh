#!/usr/bin/env bash
# flashbax 0.1.3: a prioritised buffer that was filled and then given small priorities may never sample a large part of
# its items. The sum tree is float32, and a new priority is added to the inner nodes as its difference to the old one.
# Items begin with priority 1, so the root of a million is exact to 1/16 only, and a fall from 1 to 0.015 is subtracted
# as 1. With TD errors of about 0.001 the root ends at 57% of the true sum. Samples are looked up in [0, root): the last
# third of the buffer is never found, the rest is sampled 1.7 times as often as its priorities say. If the root comes
# out too large, the excess falls to leaves behind the last item, indices beyond the buffer with probability 0: an
# infinite importance weight. A buffer whose items get their priorities while it fills hardly drifts; one filled from a
# data set or by a long warm-up does. JAX_ENABLE_X64=1 cures it, as below; else multiply the TD errors so that they are
# about 1.
#
# Seen with flashbax 0.1.3, jax 0.10.2, Python 3.11, 100,000 samples, root of the tree and sum of all priorities:
#   1000000 items, TD errors about 0.001: root 57% of the sum, no index above 700000: True, beyond the buffer: False
#   100000 items, TD errors all 0.0001: root 132% of the sum, no index above 70000: False, beyond the buffer: True
#   with x64:
#   1000000 items, TD errors about 0.001: root 100% of the sum, no index above 700000: False, beyond the buffer: False
#   100000 items, TD errors all 0.0001: root 100% of the sum, no index above 70000: False, beyond the buffer: False
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'flashbax==0.1.3' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import flashbax
import jax
import jax.numpy as jnp
import numpy as np

PART, BATCH = 4_000, 500


def show(items, about, td_errors):
    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=items, min_length=2, sample_batch_size=BATCH, add_sequences=True
    )
    add, set_priorities = (
        jax.jit(function, donate_argnums=0) for function in (buffer.add, buffer.set_priorities)
    )
    state = buffer.init({"reward": jnp.float32(0)})
    for _ in range(0, items, PART):
        state = add(state, {"reward": jnp.zeros(PART, jnp.float32)})
    for start in range(0, items, PART):
        errors = td_errors(PART)
        if start + PART == items:
            errors[-1] = 0  # its successor is still to come
        state = set_priorities(state, start + jnp.arange(PART), jnp.asarray(errors))
    tree = state.sum_tree_state
    true = np.asarray(tree.nodes[2**tree.tree_depth - 1 :], np.float64).sum()
    sample = jax.jit(buffer.sample)
    indices = np.array([sample(state, key).indices for key in jax.random.split(jax.random.key(0), 200)])
    print(
        f"{items} items, TD errors {about}: root {tree.nodes[0] / true:.0%} of the sum, no index above "
        f"{items * 7 // 10}: {bool(indices.max() <= items * 7 // 10)}, "
        f"beyond the buffer: {bool(indices.max() >= items)}"
    )


rng = np.random.default_rng(0)
show(1_000_000, "about 0.001", lambda n: rng.exponential(0.001, n).astype(np.float32))
show(100_000, "all 0.0001", lambda n: np.full(n, 0.0001, np.float32))
PYTHON
seen() { JAX_PLATFORMS=cpu JAX_ENABLE_X64=$1 "$folder/venv/bin/python" -W ignore "$folder/seen.py"; }
{ seen 0; echo "with x64:"; seen 1; } | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
1000000 items, TD errors about 0.001: root 57% of the sum, no index above 700000: True, beyond the buffer: False
100000 items, TD errors all 0.0001: root 132% of the sum, no index above 70000: False, beyond the buffer: True
with x64:
1000000 items, TD errors about 0.001: root 100% of the sum, no index above 700000: False, beyond the buffer: False
100000 items, TD errors all 0.0001: root 100% of the sum, no index above 70000: False, beyond the buffer: False
SEEN
