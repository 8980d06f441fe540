#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: a `CheckpointManager` with `best_fn` takes a NaN for the best metric there is, in either
# `best_mode`. One evaluation without a number (no episode ended, one loss of infinity minus infinity) becomes `best_step`,
# pushes a true best out of `max_to_keep`, which is deleted from the disk, and is restored by whoever asks for the best. A
# run with returns of 10, 90, NaN, 20, 30 keeps 20 and 30. Nothing warns. Let `best_fn` return the worst number
# for what is not finite, as below.
#
# Seen with orbax-checkpoint 0.12.8, jax 0.10.2, Python 3.11, max_to_keep=2, best_mode="max":
#   metric as it is: best after NaN nan, kept at the end [20.0, 30.0]
#   worst instead of NaN: best after NaN 90.0, kept at the end [30.0, 90.0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'orbax-checkpoint==0.12.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import math
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

RETURNS = [10.0, 90.0, math.nan, 20.0, 30.0]


def train(folder, best_fn):
    options = ocp.CheckpointManagerOptions(max_to_keep=2, best_fn=best_fn, best_mode="max")
    with ocp.CheckpointManager(folder, options=options) as manager:
        for step, episode_return in enumerate(RETURNS):
            tree = {"weights": np.full(3, step, np.float32)}
            manager.save(step, args=ocp.args.StandardSave(tree), metrics={"return": episode_return})
            manager.wait_until_finished()
            if math.isnan(episode_return):
                best = RETURNS[manager.best_step()]
        return best, sorted(RETURNS[step] for step in manager.all_steps())


def finite(metrics):
    return metrics["return"] if math.isfinite(metrics["return"]) else -math.inf


root = Path(sys.argv[1])
best, kept = train(root / "plain", lambda metrics: metrics["return"])
print(f"metric as it is: best after NaN {best}, kept at the end {kept}")
best, kept = train(root / "finite", finite)
print(f"worst instead of NaN: best after NaN {best}, kept at the end {kept}")
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" "$folder/runs" 2>/dev/null | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
metric as it is: best after NaN nan, kept at the end [20.0, 30.0]
worst instead of NaN: best after NaN 90.0, kept at the end [30.0, 90.0]
SEEN
