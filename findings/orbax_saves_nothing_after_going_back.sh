#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: a `CheckpointManager` that restored an older step saves nothing until training passes the
# newest step in its folder. `save` returns False there and no more: no error, no warning, and not the ValueError that
# its docstring has for a step that exists. A run that goes back from a diverged step 500 to step 200 and trains up to
# 500 again loses the second attempt, and its next start restores `latest_step()`, the diverged one. `force=True` writes
# steps in between and raises at those that exist. Delete the newer steps before training on (or take another folder),
# and check what `save` returns.
#
# Seen with orbax-checkpoint 0.12.8, jax 0.10.2, Python 3.11, second attempt from step 200 on, its weights step + 0.5:
#   as it is: save returned 300 False, 400 False, 500 False; latest step 500 has weights 500.0
#   newer steps deleted: save returned 300 True, 400 True, 500 True; latest step 500 has weights 500.5
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'orbax-checkpoint==0.12.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp


def restore(manager, step):
    template = {"weights": np.zeros(3, np.float32)}
    return manager.restore(step, args=ocp.args.StandardRestore(template))["weights"]


def save(manager, step, weights):
    tree = {"weights": np.full(3, weights, np.float32)}
    return manager.save(step, args=ocp.args.StandardSave(tree))


def go_back(folder, delete):
    with ocp.CheckpointManager(folder) as manager:
        for step in range(100, 600, 100):
            save(manager, step, step)
    with ocp.CheckpointManager(folder) as manager:
        restore(manager, 200)
        if delete:
            for step in manager.all_steps():
                if step > 200:
                    manager.delete(step)
        saved = ", ".join(f"{step} {save(manager, step, step + 0.5)}" for step in range(300, 600, 100))
    with ocp.CheckpointManager(folder) as manager:
        latest = manager.latest_step()
        return f"save returned {saved}; latest step {latest} has weights {restore(manager, latest)[0]}"


root = Path(sys.argv[1])
print("as it is:", go_back(root / "kept", delete=False))
print("newer steps deleted:", go_back(root / "deleted", delete=True))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" "$folder/runs" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
as it is: save returned 300 False, 400 False, 500 False; latest step 500 has weights 500.0
newer steps deleted: save returned 300 True, 400 True, 500 True; latest step 500 has weights 500.5
SEEN
