#!/usr/bin/env bash
# distrax 0.1.8: `log_prob` of a normal distribution under `distrax.Tanh` is NaN, and its gradient not finite, for
# actions that the distribution itself sampled. In float32 tanh is exactly 1 from about 9 on; an action of 1 goes back
# through atanh to infinity, and the density and the correction of the volume are both infinite, of opposite signs.
# With a standard deviation of 5, as an exploring policy may have, that is one action in nine; with a mean of 5 and a
# deviation of 1 one in six hundred. The inverse has lost digits before: the log-probability of actions next to 1 is
# wrong by up to 0.7. `sample_and_log_prob` keeps the sample before tanh and is right, so SAC does not meet it. PPO
# does, as does any other use of stored actions: ratios of probabilities become NaN, or wrong by a factor of two.
# Store the sample before tanh beside the action, or clip actions to |a| <= 1 - 1e-6 before they are stored and used.
#
# Seen with distrax 0.1.8, jax 0.10.2, Python 3.11, 10,000 samples of a normal distribution with deviation 5, float32:
#   sample_and_log_prob: finite True; log_prob of the same actions: NaN for more than a tenth: True
#   gradient not finite for the same actions: True; other log-probabilities wrong by more than 0.3: True
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'distrax==0.1.8' 'jax==0.10.2' 'jaxlib==0.10.2'
cat >"$folder/seen.py" <<'PYTHON'
import sys

import distrax
import jax
import jax.numpy as jnp


def policy(mean):
    return distrax.Transformed(distrax.Normal(mean, 5.0), distrax.Tanh())


mean = jnp.float32(0)
actions, right = policy(mean).sample_and_log_prob(seed=jax.random.key(0), sample_shape=(10_000,))
again = policy(mean).log_prob(actions)
gradient = jax.vmap(jax.grad(lambda mean, action: policy(mean).log_prob(action)), (None, 0))(mean, actions)
nan = jnp.isnan(again)
error = jnp.nanmax(jnp.abs(again - right))
print(f"NaN {nan.mean():.1%}, exactly 1 {(abs(actions) == 1).mean():.1%}, error {error:.2f}", file=sys.stderr)
print(
    f"sample_and_log_prob: finite {bool(jnp.isfinite(right).all())}; "
    f"log_prob of the same actions: NaN for more than a tenth: {bool(nan.mean() > 0.1)}"
)
print(
    f"gradient not finite for the same actions: {bool((jnp.isfinite(gradient) != nan).all())}; "
    f"other log-probabilities wrong by more than 0.3: {bool(error > 0.3)}"
)
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" -W ignore "$folder/seen.py" | tee "$folder/seen"
diff - "$folder/seen" <<'SEEN'
sample_and_log_prob: finite True; log_prob of the same actions: NaN for more than a tenth: True
gradient not finite for the same actions: True; other log-probabilities wrong by more than 0.3: True
SEEN
