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
# # Training on Colab
#
# Runtime, Change runtime type, GPU. Then run the cells from the top; after a disconnection too.

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
# A Colab machine is thrown away. With Drive mounted, the run and its checkpoints stay.

# %% tags=["storage"]
import glob
import os
import sys

STORAGE = os.getcwd()
if "google.colab" in sys.modules:
    from google.colab import drive

    drive.mount("/content/drive")
    STORAGE = "/content/drive/MyDrive/jaxrl"
    os.makedirs(STORAGE, exist_ok=True)

# %% [markdown]
# ## 4. What to train
#
# `SECONDS` is a limit on the whole process, 11 hours of Colab's 12. `jaxrl train --help=all` lists every field.

# %%
CONFIG = "ppo"
STEPS = 2_000_000
SECONDS = 11 * 3600
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
# The policy as StableHLO, and the whole run as one file.

# %%
# !jaxrl export --workdir=$RUN --format=stablehlo
# !tar -czf $STORAGE/run.tar.gz -C $RUN .
