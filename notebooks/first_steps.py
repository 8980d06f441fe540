# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # First steps
#
# Train a policy with memory, look at it, and act with it from Python. It takes a minute on two CPU cores.
#
# Install with the extras `notebook`, `video` and `plot` (`docs/installation.md`).

# %%
import jaxrl

print(jaxrl.__version__)

# %% [markdown]
# ## Train
#
# CartPole with its velocities hidden: only a policy that remembers can balance the pole. The display of a command is one line per log interval. The same command again resumes where it stopped.

# %%
RUN = "runs/first"
STEPS = 2_000_000

# %%
# !jaxrl train ppo --workdir=$RUN --config.stop.steps=$STEPS

# %% [markdown]
# ## Curves

# %%
# What the run wrote: one row per log interval, one per evaluation.
import json

import matplotlib.pyplot as plt

with open(f"{RUN}/metrics.jsonl") as file:
    rows = [json.loads(line) for line in file]
figure, axes = plt.subplots(1, 2, figsize=(10, 3))
for axis, key in zip(axes, ("episode/return", "ppo/approx_kl")):
    shown = [(row["step"], row[key]) for row in rows if row.get(key) is not None]
    axis.plot(*zip(*shown))
    axis.set(xlabel="steps", title=key)
figure.tight_layout()
plt.show()

# %% [markdown]
# ## A video

# %%
# !jaxrl evaluate --workdir=$RUN --video=$RUN/episode.gif

# %%
from IPython.display import Image

Image(f"{RUN}/episode.gif")

# %% [markdown]
# ## Act
#
# A trained policy takes and gives numpy arrays. What it remembers of the episode is the carry.

# %%
import jax
import numpy as np

policy = jaxrl.load(RUN)
action, carry = policy.act(np.zeros(2, np.float32))
action, carry = policy.act(np.array([0.1, -0.05], np.float32), carry)
print(action, jax.tree.map(np.shape, carry))

# %% [markdown]
# ## Train from Python
#
# `fit` draws a panel below the cell: progress, curves, losses, and where the time goes. Here the velocities are in sight, so no memory is needed.

# %%
config = jaxrl.default_config()
config.network.core = "none"
config.log.every_steps = 10_000
config.stop.steps = STEPS // 10
summary = jaxrl.Trainer(config).fit()

# %% [markdown]
# ## Write the loop yourself
#
# `config` has every field; `jaxrl train --help=all` lists them.

# %%
config.env.num_envs = 16
config.ppo.rollout_length = 32
trainer = jaxrl.Trainer(config)
for _ in range(3):
    metrics = trainer.update(trainer.rollout())
    print(trainer.steps, {name: float(metrics[name]) for name in ("loss/policy", "loss/value")})

# %% [markdown]
# ## Many seeds at once
#
# `make_train` gives a pure function: `vmap` it over keys.

# %%
config.stop.steps = 2_048
states, metrics = jax.jit(jax.vmap(jaxrl.make_train(config)))(jax.random.split(jax.random.key(0), 4))
print(metrics["loss/value"].shape)
