#!/usr/bin/env bash
# brax 0.14.2: the automatic reset of `brax.envs.create` and of brax's training wrapper does not reset. It puts back the
# state that the environment had after `reset`, so every episode of one environment starts from the same state, although
# `reset` randomises it: 4 environments have 4 starts, however long they run. Few environments (a quick try, an evaluation
# of 100 episodes in 4 of them) see hardly any of the start distribution, goals included: reacher has one target for each.
# MuJoCo Playground 0.2.0 wraps its environments in the same way. Use many environments, count environments rather than
# episodes in an error bar, and reset now and then: brax's PPO has `num_resets_per_eval`, by default 0. Or make the
# environment with `auto_reset=False` and select fresh states where `done` is set, as below.
#
# Seen with brax 0.14.2, jax 0.10.2, Python 3.11, reacher with 4 environments, 10 episodes of 5 steps in each:
#   automatic reset: 4 different targets in 40 episodes; reset by hand: 40; num_resets_per_eval of PPO: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'brax==0.14.2' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import inspect

import jax
import jax.numpy as jnp
import numpy as np
from brax import envs
from brax.training.agents.ppo import train as ppo

ENVS, LENGTH, EPISODES = 4, 5, 10


def targets(auto_reset):
    """How many different targets, at observation[4:6], the episodes have."""
    env = envs.create(
        "reacher", episode_length=LENGTH, backend="spring", batch_size=ENVS, auto_reset=auto_reset
    )
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state = reset(jax.random.PRNGKey(0))
    found = []
    for t in range(LENGTH * EPISODES):
        if t % LENGTH == 0:
            found.append(np.asarray(state.obs)[:, 4:6])
        state = step(state, jnp.zeros((ENVS, env.action_size)))
        if not auto_reset and state.done.all():  # all end together here
            state = reset(jax.random.PRNGKey(t))
    return len(np.unique(np.concatenate(found), axis=0))


print(
    f"automatic reset: {targets(True)} different targets in {ENVS * EPISODES} episodes; "
    f"reset by hand: {targets(False)}; "
    f"num_resets_per_eval of PPO: {inspect.signature(ppo.train).parameters['num_resets_per_eval'].default}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" 2>/dev/null | tail -n 1)
echo "$seen"
[[ $seen == "automatic reset: 4 different targets in 40 episodes; reset by hand: 40; num_resets_per_eval of PPO: 0" ]]
