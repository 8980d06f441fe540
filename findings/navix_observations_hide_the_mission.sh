#!/usr/bin/env bash
# navix 4.0.0 (and, of its GoToDoor, 0.7.4): GoToDoor, GoToObject, Fetch and PutNear sample what is to be reached, picked up or
# moved in each episode and keep it in `state.mission`. No function of `navix.observations` shows it: whatever the mission, a
# state looks the same, in symbols, categories and pictures, from above and from the agent. A policy can try one door or
# object after the other, but not know which one is asked for, and returns say nothing about following a mission. MiniGrid,
# after which these environments are made, has the mission in its observation. A custom function shows it:
# `navix.make(NAME, observation_fn=...)`.
#
# Seen with navix 4.0.0, jax 0.11.2, Python 3.13, in each of four environments, for every mission that names another colour
# and another place than the state's own:
#   functions of navix.observations that show the mission: 0 of 6, 0 of 6, 0 of 6, 0 of 6
set -euo pipefail
python=$(command -v python3.14 || command -v python3.13 || command -v python3.12 || true)
[[ -n $python ]] || { echo "needs Python 3.12 or later" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'navix==4.0.0' 'jax==0.11.2' 'jaxlib==0.11.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import navix
import numpy as np

KINDS = ("symbolic", "symbolic_first_person", "categorical", "categorical_first_person", "rgb", "rgb_first_person")
found = []
for name in ("GoToDoor-6x6-v0", "GoToObject-6x6-N2-v0", "Fetch-5x5-N2-v0", "PutNear-6x6-N2-v0"):
    state = navix.make(f"Navix-{name}").reset(jax.random.PRNGKey(0)).state
    others = [state.replace(mission=jax.tree.map(lambda x: x * 0 + i, state.mission)) for i in range(1, 5)]
    shown = 0
    for kind in KINDS:
        show = getattr(navix.observations, kind)
        shown += any(not np.array_equal(show(state), show(other)) for other in others)
    found.append(f"{shown} of {len(KINDS)}")
print("functions of navix.observations that show the mission:", ", ".join(found))
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == *": 0 of 6, 0 of 6, 0 of 6, 0 of 6" ]]
