#!/usr/bin/env bash
# gymnasium 1.3.0: `AtariPreprocessing(env, terminal_on_life_loss=True)` ends the episode when a life is lost, as DQN and PPO
# are trained, and the `reset()` that follows starts a new game with all lives. The wrapper of OpenAI Baselines that papers
# and stable-baselines3 use (`EpisodicLifeEnv`) continues the game until the last life is lost. Under gymnasium's
# the agent plays first lives alone: it never sees the board that its first life has left behind, late stages of
# a game are trained only if one life reaches them, and a training return summed over "five lives" is five first lives.
# A policy trained so is then scored on whole games. To continue the game, reset the inner environment only once
# `info["lives"]` is 0, and else take a no-op step.
#
# Seen with gymnasium 1.3.0, ale-py 0.12.1, Python 3.11, Breakout, random actions with seed 0 until a life is lost, ten times:
#   lives at the ends: 4 4 4 4 4 4 4 4 4 4
#   lives after the resets: 5 5 5 5 5 5 5 5 5 5
#   bricks hit in an episode: 0 0 0 1 0 1 1 0 0 0; on the screen after the next reset, as in a new game: 10 of 10
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'gymnasium==1.3.0' 'ale-py==0.12.1' 'numpy==2.4.6' 'opencv-python-headless==5.0.0.93'
cat >"$folder/seen.py" <<'PYTHON'
import ale_py
import gymnasium
import numpy as np

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
gymnasium.register_envs(ale_py)
game = gymnasium.make("ALE/Breakout-v5", frameskip=1, repeat_action_probability=0.0)
env = gymnasium.wrappers.AtariPreprocessing(game, noop_max=0, terminal_on_life_loss=True)
random = np.random.default_rng(0)
first, _ = env.reset(seed=0)
wall = slice(24, 40)  # rows of the bricks
ends, starts, bricks, whole = [], [], [], 0
for _ in range(10):
    is_over, hit = False, 0
    while not is_over:
        _, reward, is_over, _, info = env.step(random.integers(4))
        hit += int(reward > 0)
    ends.append(info["lives"])
    bricks.append(hit)
    obs, info = env.reset()
    starts.append(info["lives"])
    whole += np.array_equal(obs[wall], first[wall])
print("lives at the ends:", *ends)
print("lives after the resets:", *starts)
print("bricks hit in an episode:", *bricks, end="; ")
print(f"on the screen after the next reset, as in a new game: {whole} of 10")
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
lives at the ends: 4 4 4 4 4 4 4 4 4 4
lives after the resets: 5 5 5 5 5 5 5 5 5 5
bricks hit in an episode: 0 0 0 1 0 1 1 0 0 0; on the screen after the next reset, as in a new game: 10 of 10
SEEN
