#!/usr/bin/env bash
# xminigrid 0.9.3: `xminigrid.make("XLand-MiniGrid-R1-9x9")` and its siblings come with an EMPTY ruleset: no goal, no
# rules, no objects in it. The environment resets and steps without a word, and its reward is 0 whatever a policy does,
# so a training run on it looks like a hard exploration problem. A ruleset must be put into the parameters, for
# instance one sampled from a benchmark file: `params.replace(ruleset=benchmark.get_ruleset(0))`.
#
# Seen with xminigrid 0.9.3, jax 0.10.2, Python 3.11:
#   goal [0, 0, 0, 0, 0], rules all zero: True, init tiles all zero: True, reward of 2000 random steps: 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'xminigrid==0.9.3' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import jax
import xminigrid

env, params = xminigrid.make("XLand-MiniGrid-R1-9x9")
ruleset = params.ruleset


@jax.jit
def play(key):
    first, key = jax.random.split(key)
    timestep = env.reset(params, first)

    def step(timestep, key):
        action = jax.random.randint(key, (), 0, env.num_actions(params))
        timestep = env.step(params, timestep, action)
        return timestep, timestep.reward

    return jax.lax.scan(step, timestep, jax.random.split(key, 2000))[1].sum()


print(
    f"goal {ruleset.goal.tolist()}, rules all zero: {not ruleset.rules.any()}, "
    f"init tiles all zero: {not ruleset.init_tiles.any()}, "
    f"reward of 2000 random steps: {float(play(jax.random.key(0)))}"
)
PYTHON
seen=$(JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tail -n 1)
echo "$seen"
[[ $seen == "goal [0, 0, 0, 0, 0], rules all zero: True, init tiles all zero: True, reward of 2000 random steps: 0.0" ]]
