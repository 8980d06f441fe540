#!/usr/bin/env bash
# jax 0.10.2 on a CPU: sorting a few hundred numbers inside a compiled program takes longer than comparing all pairs of
# them. To leave repeated indices out of a batch, as sampling without replacement does, the textbook sorts and compares
# neighbours, n log n; XLA's sort calls its comparison once per pair through a function, while an n x n comparison that
# is reduced over rows runs in vector instructions. For 320 indices the sort takes 50 us of a step that may have
# 100, all pairs take a third of that or less; they meet near 700. `jnp.unique(x, size=n)` sorts as well, and takes
# longer still. A table of the items, `jnp.full(items, n).at[x].min(order)`, is fastest of all while there are no more
# than some ten thousand.
#
# Seen with jax 0.10.2, Python 3.11, 320 indices below 10,000, the best of 12 interleaved loops of 200 turns:
#   all pairs, sorted and by table agree: True
#   sorting takes more than 1.7 times as long as all pairs: True
#   jnp.unique takes more than 1.7 times as long as all pairs: True
#   of 2,000 indices sorting takes less time: True
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

ITEMS, TURNS = 10_000, 200


def by_pairs(x):
    order = jnp.arange(len(x))
    return jnp.where(x[:, None] == x[None, :], order[:, None], len(x)).min(axis=0) == order


def by_sorting(x):
    order = jnp.argsort(x, stable=True)
    ordered = x[order]
    first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    return jnp.zeros(len(x), bool).at[order].set(first, unique_indices=True)


def by_table(x):
    order = jnp.arange(len(x))
    return jnp.full(ITEMS, len(x), jnp.int32).at[x].min(order)[x] == order


def by_unique(x):
    _, first = jnp.unique(x, return_index=True, size=len(x), fill_value=ITEMS)
    return jnp.zeros(len(x), bool).at[first].set(True)


def loop(is_first):
    def turn(_, carry):
        x, total = carry
        kept = is_first(x)
        return (x * 1_103_515 + 12_345 + kept[0]) % ITEMS, total + kept.sum()

    return jax.jit(lambda x: jax.lax.fori_loop(0, TURNS, turn, (x, jnp.int32(0))))


def best_times(x, *forms):
    programs = [loop(form) for form in forms]
    best = [float("inf")] * len(forms)
    for round in range(13):
        for i, program in enumerate(programs):
            began = time.perf_counter()
            jax.block_until_ready(program(x))
            if round:  # the first compiles
                best[i] = min(best[i], time.perf_counter() - began)
    print(f"{len(x)} indices:", *(f"{1e6 * t / TURNS:.1f} us" for t in best), file=sys.stderr)
    return best


few, many = (jax.random.randint(jax.random.key(0), (n,), 0, ITEMS) for n in (320, 2_000))
same = (by_pairs(few) == by_sorting(few)).all() & (by_pairs(few) == by_table(few)).all()
print(f"all pairs, sorted and by table agree: {bool(same)}")
pairs, sorting, unique, _ = best_times(few, by_pairs, by_sorting, by_unique, by_table)
print(f"sorting takes more than 1.7 times as long as all pairs: {sorting > 1.7 * pairs}")
print(f"jnp.unique takes more than 1.7 times as long as all pairs: {unique > 1.7 * pairs}")
pairs, sorting = best_times(many, by_pairs, by_sorting)
print(f"of 2,000 indices sorting takes less time: {sorting < pairs}")
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
all pairs, sorted and by table agree: True
sorting takes more than 1.7 times as long as all pairs: True
jnp.unique takes more than 1.7 times as long as all pairs: True
of 2,000 indices sorting takes less time: True
SEEN
