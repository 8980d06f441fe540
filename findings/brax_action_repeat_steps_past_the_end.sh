#!/usr/bin/env bash
# brax 0.14.2: with `action_repeat` > 1 an environment is stepped on after its end. `EpisodeWrapper`, which
# `brax.envs.create` and brax's PPO and SAC put around it, repeats the action to the last time, adds up all the rewards
# and reports the `done` of the last repetition alone. What a fallen robot earns counts for the return, more than a
# third of the reward of final steps in the example; and an end that is over by then, such as a lean past the limit that
# swings back, is not reported at all: the episode continues where the task has ended. Frame skip of Atari stops at the
# end (Gymnasium's `AtariPreprocessing`), so returns with `action_repeat` are too high beside those of other suites.
# Repeat actions in a wrapper that keeps the first state with `done` set and multiplies later rewards by 0.
#
# Seen with brax 0.14.2, jax 0.10.2, Python 3.11, hopper, random actions, action_repeat=4, 128 episodes (3 ends of 128 were not
# reported, 37% of the reward came after the end; physics may round differently on other machines):
#   final steps: some ends not reported: True; more than a fifth of the reward came after the end: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'brax==0.14.2' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys

import jax
import jax.numpy as jnp
from brax import envs

REPEAT, STEPS, EPISODES = 4, 40, 128
OPTIONS = {"backend": "spring", "auto_reset": False}
single = envs.create("hopper", **OPTIONS)
repeated = envs.create("hopper", action_repeat=REPEAT, **OPTIONS)


def play(key):
    """The same actions once by hand and once by `action_repeat`."""

    def step(carry, key):
        state, state_repeated, over = carry
        action = jax.random.uniform(key, (single.action_size,), minval=-1, maxval=1)

        def once(state, _):
            state = single.step(state, action)
            return state, (state.done, state.reward)

        state, (done, reward) = jax.lax.scan(once, state, None, REPEAT)
        state_repeated = repeated.step(state_repeated, action)
        ended_before = jnp.cumsum(done) - done > 0
        final = ~over & done.any()
        seen = {
            "ends": final,
            "not reported": final & (state_repeated.done == 0),
            "reward": jnp.where(final, state_repeated.reward, 0),
            "after the end": jnp.where(final, jnp.sum(reward * ended_before), 0),
        }
        return (state, state_repeated, over | final), seen

    start = (single.reset(key), repeated.reset(key), False)
    return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]


played = jax.jit(jax.vmap(play))(jax.random.split(jax.random.PRNGKey(0), EPISODES))
seen = {name: float(values.sum()) for name, values in played.items()}
print(seen, file=sys.stderr)
print(
    f"final steps: some ends not reported: {seen['not reported'] > 0}; "
    f"more than a fifth of the reward came after the end: {seen['after the end'] > 0.2 * seen['reward']}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == "final steps: some ends not reported: True; more than a fifth of the reward came after the end: True" ]]
