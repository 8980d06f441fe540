#!/usr/bin/env bash
# envpool 1.2.5 (and 1.2.7): an episode that ends by itself in the very step of `max_episode_steps` is reported as truncated
# and not terminated; Gymnasium reports both. A learner that bootstraps at truncations then takes the value of a pole that
# has fallen. `max_episode_steps` alone decides on the flag: Catch-v0 does not end at a limit of 5 steps at all, and its
# natural end, in step 9, is a truncation too.
#
# Seen with envpool 1.2.5, gymnasium 1.3.0, Python 3.11: (steps, terminated, truncated) of CartPole-v1 under one action, without
# a limit that matters and with the limit in the step of the fall, and of Catch-v0 with a limit of 5:
#   envpool (10, True, False) (10, False, True), Catch-v0 (9, False, True)
#   gymnasium (8, True, False) (8, True, True)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'envpool==1.2.5' 'gymnasium==1.3.0'
cat >"$folder/seen.py" <<'PYTHON'
import itertools

import envpool
import gymnasium
import numpy as np


def of_envpool(name, **limit):
    env = envpool.make_gymnasium(name, num_envs=1, seed=0, **limit)
    env.reset()
    for step in itertools.count(1):
        _, _, terminated, truncated, _ = env.step(np.array([1]))
        if terminated[0] or truncated[0]:
            return step, bool(terminated[0]), bool(truncated[0])


def of_gymnasium(limit):
    env = gymnasium.make("CartPole-v1", max_episode_steps=limit)
    env.reset(seed=0)
    for step in itertools.count(1):
        _, _, terminated, truncated, _ = env.step(1)
        if terminated or truncated:
            return step, terminated, truncated


fall = of_envpool("CartPole-v1")
at_limit = of_envpool("CartPole-v1", max_episode_steps=fall[0])
print("envpool", fall, at_limit, end=", ")
print("Catch-v0", of_envpool("Catch-v0", max_episode_steps=5), end="; ")
fall = of_gymnasium(500)
print("gymnasium", fall, of_gymnasium(fall[0]))
PYTHON
seen=$("$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
cartpole='envpool (10, True, False) (10, False, True), Catch-v0 (9, False, True)'
[[ $seen == "$cartpole; gymnasium (8, True, False) (8, True, True)" ]]
