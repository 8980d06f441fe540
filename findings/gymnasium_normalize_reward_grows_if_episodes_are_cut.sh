#!/usr/bin/env bash
# gymnasium 1.3.0: `NormalizeReward` divides rewards by the standard deviation of a running discounted return, and sets that
# return back at `terminated` only, not at `truncated` nor in `reset()`. Where episodes end by their time limit it runs on
# through all of them as one endless episode, settles at reward / (1 - gamma), and its variance falls towards 0: the
# normalised reward grows with the square root of the steps. On CartPole-v1, with a policy that never lets the pole fall,
# the same reward of 1 becomes 0.05 after a thousand steps and 0.45 after a hundred thousand; with the return set back at
# the limit it stays at 0.04. Values and advantages grow with it, so that a value network that was right is wrong again,
# just when the task is solved. `wrappers.vector.NormalizeReward` does the same. Rewards that vary hide it in part. Set
# `env.discounted_reward` back by hand at the limit, or use a normaliser that does (stable-baselines3's `VecNormalize`
# sets its returns back at either end).
#
# Seen with gymnasium 1.3.0, numpy 2.4.6, Python 3.11, gamma 0.99, all episodes end at the limit of 500 steps:
#   NormalizeReward: a reward of 1 is 0.050, 0.144, 0.451 after 1,000, 10,000, 100,000 steps
#   set back by hand: a reward of 1 is 0.041, 0.041, 0.041 after 1,000, 10,000, 100,000 steps
#   vector.NormalizeReward: a reward of 1 is 0.050, 0.144 after 1,000, 10,000 steps
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'gymnasium==1.3.0' 'numpy==2.4.6'
cat >"$folder/seen.py" <<'PYTHON'
import gymnasium
import numpy as np

POINTS = (1_000, 10_000, 100_000)


def balance(obs):
    """Keeps the pole up, and the cart near the middle."""
    x, velocity, angle, turning = np.moveaxis(obs, -1, 0)
    return (angle + 0.5 * turning + 0.05 * x + 0.1 * velocity > 0).astype(int)


def say(name, rewards):
    print(f"{name}: a reward of 1 is {', '.join(rewards)} after {', '.join(f'{n:,}' for n in POINTS[: len(rewards)])} steps")


def single(sets_back):
    env = gymnasium.wrappers.NormalizeReward(gymnasium.make("CartPole-v1"), gamma=0.99)
    obs, _ = env.reset(seed=0)
    rewards = []
    for step in range(1, POINTS[-1] + 1):
        obs, reward, terminated, truncated, _ = env.step(int(balance(obs)))
        assert not terminated
        if step in POINTS:
            rewards.append(f"{float(reward):.3f}")
        if truncated:
            obs, _ = env.reset()
            if sets_back:
                env.discounted_reward = np.array([0.0])
    return rewards


def vector():
    env = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
    env = gymnasium.wrappers.vector.NormalizeReward(env, gamma=0.99)
    obs, _ = env.reset(seed=0)
    rewards = []
    for step in range(1, POINTS[1] + 1):
        obs, reward, terminated, _, _ = env.step(balance(obs))
        assert not terminated.any()
        if step in POINTS:
            rewards.append(f"{reward[0]:.3f}")
    return rewards


say("NormalizeReward", single(sets_back=False))
say("set back by hand", single(sets_back=True))
say("vector.NormalizeReward", vector())
PYTHON
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
NormalizeReward: a reward of 1 is 0.050, 0.144, 0.451 after 1,000, 10,000, 100,000 steps
set back by hand: a reward of 1 is 0.041, 0.041, 0.041 after 1,000, 10,000, 100,000 steps
vector.NormalizeReward: a reward of 1 is 0.050, 0.144 after 1,000, 10,000 steps
SEEN
