# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Training on Kaggle
#
# Settings, Accelerator, GPU; Settings, Internet on. *Save version* runs all cells without you.

# %% [markdown]
# ## 1. The accelerator

# %%
# !nvidia-smi --query-gpu=name,memory.total --format=csv,noheader || echo no NVIDIA GPU: this trains on the CPU

# %% [markdown]
# ## 2. Install
#
# Upload the wheel (`make dist` in a checkout) and name it here. `cuda12` is for NVIDIA GPUs; leave it out on a CPU.

# %% tags=["install"]
# %pip install -q "jaxrl_recurrent-0.1.0-py3-none-any.whl[cuda12,compare,video]"

# %% tags=["install"]
# !jaxrl doctor || echo some of it is not ready: see above

# %% [markdown]
# ## 3. Storage
#
# `/kaggle/working` is kept with the version. To continue in a later version, add the output of this one as input and copy it back.

# %% tags=["storage"]
import glob
import os
import shutil

STORAGE = "/kaggle/working" if os.path.isdir("/kaggle/working") else os.getcwd()
for earlier in glob.glob("/kaggle/input/*/runs"):
    shutil.copytree(earlier, f"{STORAGE}/runs", dirs_exist_ok=True)

# %% [markdown]
# ## 4. What to train
#
# `SECONDS` is a limit on the whole process, 8.5 hours of Kaggle's 9. `jaxrl train --help=all` lists every field.

# %%
CONFIG = "ppo"
STEPS = 2_000_000
SECONDS = 8 * 3600 + 1800
# On an accelerator as many environments as its memory holds, and networks in bfloat16.
ACCELERATOR = any(map(glob.glob, ("/dev/nvidia[0-9]*", "/dev/accel[0-9]*", "/dev/vfio/[0-9]*")))
FAST = "--config.hardware_profile=auto --config.network.compute_dtype=bfloat16" if ACCELERATOR else ""
RUN = f"{STORAGE}/runs/{CONFIG}"

# %% [markdown]
# ## 5. Train, or resume
#
# A checkpoint every 10 minutes, and one before the hours are over. After a disconnection run all cells again: the same command resumes from the newest checkpoint. The interrupt button saves and ends.

# %%
# !jaxrl train $CONFIG $FAST --workdir=$RUN --config.stop.steps=$STEPS --config.stop.wall_seconds=$SECONDS --config.checkpoint.every_seconds=600

# %% [markdown]
# ## 6. Curves

# %%
# !jaxrl compare $RUN --metric=episode/return --output=$RUN/curves.png

# %%
from IPython.display import Image

Image(f"{RUN}/curves.png")

# %% [markdown]
# ## 7. Evaluate, with a video

# %%
# !jaxrl evaluate --workdir=$RUN --episodes=64 --video=$RUN/episode.gif

# %%
Image(f"{RUN}/episode.gif")

# %% [markdown]
# ## 8. Take it away
#
# The policy as StableHLO. Everything in `/kaggle/working` is the output of this version.

# %%
# !jaxrl export --workdir=$RUN --format=stablehlo
