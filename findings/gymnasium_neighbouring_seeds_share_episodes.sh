#!/usr/bin/env bash
# gymnasium 1.3.0: `reset(seed=s)` of a vector environment gives environment i the seed s + i. Neighbouring seeds therefore
# share all streams but one, for the whole run: with 8 environments, environment i + 1 of seed 0 starts every episode
# exactly as environment i of seed 1. Five runs with seeds 0 to 4 have 12 streams, not 40, so their spread is that of
# related samples; and an evaluation with seed 1 plays the starts (in an environment that makes its level at a reset, the
# levels) that seed 0 trained on. `make_vec(..., vectorization_mode="async")` counts in the same way, and so does the
# `seed` of envpool 1.2.5 and of every loop with `env.reset(seed=seed + i)`. Both take a list: pass
# `np.random.SeedSequence(seed).generate_state(num_envs).tolist()`, or keep the seeds of runs far apart.
#
# Seen with gymnasium 1.3.0, numpy 2.4.6, Python 3.11, CartPole-v1 with 8 environments and other actions for each seed:
#   an integer: 12 different first states of 40; episodes 1 to 5 of seed 1 that start as in seed 0: 35 of 40
#   a list: 40 different first states of 40; episodes 1 to 5 of seed 1 that start as in seed 0: 0 of 40
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'gymnasium==1.3.0' 'numpy==2.4.6'
cat >"$folder/seen.py" <<'PYTHON'
import gymnasium
import numpy as np

ENVS, EPISODES = 8, 5


def starts(seed, spread):
    """The first observations of the first episodes of each environment, (ENVS, EPISODES, 4)."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    env.action_space.seed(seed)
    seeds = np.random.SeedSequence(seed).generate_state(ENVS).tolist() if spread else seed
    obs, _ = env.reset(seed=seeds)
    found, ended = [[first] for first in obs], np.zeros(ENVS, bool)
    while min(map(len, found)) < EPISODES:
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        for i in np.flatnonzero(ended):  # this step was its reset
            found[i].append(obs[i])
        ended = terminated | truncated
    return np.array([episodes[:EPISODES] for episodes in found])


for name, spread in (("an integer", False), ("a list", True)):
    seeds = [starts(seed, spread) for seed in range(5)]
    first = {start.tobytes() for found in seeds for start in found[:, 0]}
    trained = {start.tobytes() for start in seeds[0].reshape(-1, 4)}
    again = sum(start.tobytes() in trained for start in seeds[1].reshape(-1, 4))
    print(
        f"{name}: {len(first)} different first states of {5 * ENVS}; "
        f"episodes 1 to {EPISODES} of seed 1 that start as in seed 0: {again} of {ENVS * EPISODES}"
    )
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
an integer: 12 different first states of 40; episodes 1 to 5 of seed 1 that start as in seed 0: 35 of 40
a list: 40 different first states of 40; episodes 1 to 5 of seed 1 that start as in seed 0: 0 of 40
SEEN
