#!/usr/bin/env bash
# jumanji 1.1.2: most environments report their time limit as a termination, `discount` 0, as they report a death or a
# solution: 10 of the 12 with a `time_limit` that were tried, not Connector and LevelBasedForaging. A learner that
# multiplies the next value by `discount`, as dm_env's convention has it, learns that nothing is worth doing near the limit.
# Nothing in the last time step tells the two kinds of end apart. Compare `state.step_count` with `env.time_limit` below the
# automatic reset, and bootstrap at the limit from the observation of that very time step (`AutoResetWrapper` keeps it with
# `next_obs_in_extras=True`). Or leave the discount at 0 and give the network `observation.step_count`; a network that sees
# the grid alone cannot know when the end comes.
#
# Seen with jumanji 1.1.2, jax 0.10.2, Python 3.11, time_limit=3, legal actions:
#   Snake-v1 3 steps, discount 0.0
#   Maze-v0 3 steps, discount 0.0
#   RobotWarehouse-v0 3 steps, discount 0.0
#   LevelBasedForaging-v0 3 steps, discount 1.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'jumanji==1.1.2' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import jumanji
import numpy as np

for name in ("Snake-v1", "Maze-v0", "RobotWarehouse-v0", "LevelBasedForaging-v0"):
    env = jumanji.make(name, time_limit=3)
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    step, steps = jax.jit(env.step), 0
    while not timestep.last():
        # The first legal action, of each agent if there are several.
        action = np.argmax(timestep.observation.action_mask, axis=-1).astype(np.int32)
        state, timestep = step(state, action)
        steps += 1
    print(f"{name} {steps} steps, discount {np.mean(timestep.discount)}")
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
Snake-v1 3 steps, discount 0.0
Maze-v0 3 steps, discount 0.0
RobotWarehouse-v0 3 steps, discount 0.0
LevelBasedForaging-v0 3 steps, discount 1.0
SEEN
