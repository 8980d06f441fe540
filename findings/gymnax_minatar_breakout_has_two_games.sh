#!/usr/bin/env bash
# gymnax 1.0.1: Breakout-MinAtar has two first states and no chance after them. The original (Young and Tian 2019,
# MinAtar) repeats the previous action with a probability of 0.1; gymnax does not. A policy that is nearly
# deterministic plays two games for ever: of 64 evaluation episodes 62 repeat another one's steps, so a standard
# error over them says nothing, and a seed can lose the ball in the same place in every episode of a whole run.
# Make actions sticky in training and in evaluation, or compare seeds instead of episodes.
#
# Seen with jax 0.10.2 on Python 3.11: 1,000 keys give 2 first observations, 64 keys and the same 12 actions give 2
# sequences of observations.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'gymnax==1.0.1' 'six==1.17.0' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import gymnax
import jax
import numpy as np

env, params = gymnax.make("Breakout-MinAtar")
first = np.asarray(jax.vmap(lambda key: env.reset(key, params)[0])(jax.random.split(jax.random.key(0), 1000)))
print("first observations:", len(np.unique(first.reshape(1000, -1), axis=0)))


def play(key):
    key, start = jax.random.split(key)
    actions = jax.numpy.array([0, 1, 2, 2, 1, 0, 0, 2, 1, 1, 0, 2])

    def step(state, now):
        obs, state, reward, *_ = env.step_env(now[0], state, now[1], params)  # without its automatic reset
        return state, (obs, reward)

    _, (obs, reward) = jax.lax.scan(step, env.reset(start, params)[1], (jax.random.split(key, 12), actions))
    return obs, reward.sum()


obs, _ = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(1), 64))
print("sequences of 12 observations:", len(np.unique(np.asarray(obs).reshape(64, -1), axis=0)))
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
first observations: 2
sequences of 12 observations: 2
SEEN
