"""PPO with a network of 15 million parameters, four layers of minGRU with 1,024 units, on random mazes.

Command:  jaxrl train ppo_large
Others:   gtrxl with 14 million: --config.network.core=gtrxl --config.network.core_size=384
          --config.network.hidden_sizes=1024,1024
          Craftax (extra craftax): --env=craftax:Craftax-Symbolic-v1 --config.network.hidden_sizes=1024,
Hardware: one GPU with 8 GB or more, several, or a TPU slice; docs/scaling.md has what it takes
Minutes:  not measured
Expected: not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Maze"
    c.env.num_envs = 4096
    c.network.update(hidden_sizes=(2048, 2048), activation="relu", layer_norm=True, core="mingru")
    c.network.update(core_size=1024, core_layers=4, compute_dtype="bfloat16", remat=True)
    c.ppo.update(rollout_length=128, num_epochs=1, num_minibatches=4)
    c.ppo.gradient_accumulation = 4  # 32,768 steps at once: large products, little memory
    c.ppo.update(learning_rate=3e-4, warmup_updates=100, gamma=0.995, gae_lambda=0.98)
    c.ppo.entropy_coef = 1e-3
    c.stop.steps = 1_000_000_000
    c.evaluate.every_steps = 50_000_000
    c.evaluate.modes = ("sampled",)  # the most likely actions may turn on the spot for ever
    return c
