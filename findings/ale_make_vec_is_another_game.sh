#!/usr/bin/env bash
# ale-py 0.12.1 with gymnasium 1.3.0: `gymnasium.make_vec("ALE/SpaceInvaders-v5", n)` is not n times
# `gymnasium.make("ALE/SpaceInvaders-v5")`. Without `vectorization_mode` it takes ale-py's own `AtariVectorEnv`, whose
# defaults are those of a preprocessed game: grey 84 x 84 frames in stacks of 4, up to 30 no-ops at a reset, no sticky
# actions where `make` repeats an action with probability 0.25, and rewards clipped to -1, 0 and 1. The returns that
# it reports, `RecordEpisodeStatistics` around it included, are counts of rewards, and stand beside scores of papers
# without a word. `vectorization_mode="sync"` gives the game of `make`;
# `make_vec(..., reward_clipping=False, repeat_action_probability=0.25)` keeps the fast one with its scores.
#
# Seen with ale-py 0.12.1, gymnasium 1.3.0, Python 3.11, the actions of one seed for 1,000 steps of 4 environments:
#   make: frames (210, 160, 3), sticky actions 0.25
#   make_vec: frames (4, 84, 84), rewards 0 1
#   make_vec, sync: frames (210, 160, 3), rewards 0 5 10 15 20 25 30
#   make_vec, not clipped: frames (4, 84, 84), rewards 0 5 10 15 20 25 30
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'gymnasium==1.3.0' 'ale-py==0.12.1' 'numpy==2.4.6'
cat >"$folder/seen.py" <<'PYTHON'
import ale_py
import gymnasium
import numpy as np

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)
NAME = "ALE/SpaceInvaders-v5"


def say(name, **options):
    env = gymnasium.make_vec(NAME, num_envs=4, **options)
    env.reset(seed=0)
    env.action_space.seed(0)
    rewards = {float(reward) for _ in range(1_000) for reward in env.step(env.action_space.sample())[1]}
    print(f"{name}: frames {env.single_observation_space.shape}, rewards", *(f"{reward:g}" for reward in sorted(rewards)))


env = gymnasium.make(NAME)
print(f"make: frames {env.observation_space.shape}, sticky actions {env.spec.kwargs['repeat_action_probability']}")
say("make_vec")
say("make_vec, sync", vectorization_mode="sync")
say("make_vec, not clipped", reward_clipping=False)
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
make: frames (210, 160, 3), sticky actions 0.25
make_vec: frames (4, 84, 84), rewards 0 1
make_vec, sync: frames (210, 160, 3), rewards 0 5 10 15 20 25 30
make_vec, not clipped: frames (4, 84, 84), rewards 0 5 10 15 20 25 30
SEEN
