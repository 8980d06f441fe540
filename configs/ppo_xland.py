"""RL² on XLand-MiniGrid: which of three objects is rewarded must be found out, and remembered."""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = 'xminigrid:XLand-MiniGrid-R1-9x9(ruleset="objects:hold-6", height=6, width=6, view_size=5, max_steps=10)'
    c.env.wrappers = (
        "one_hot_observation(values=15)",
        "flatten_observation",
        "trials(count=4)",
        "previous_action",
    )
    c.env.num_envs = 512
    c.network.core = "gru"
    c.network.hidden_sizes = (64,)
    c.network.core_size = 64
    c.normalize.observations = False
    c.ppo.rollout_length = 40
    c.ppo.num_epochs = 2
    c.ppo.num_minibatches = 8
    c.ppo.learning_rate = 1e-3
    c.ppo.gamma = 0.99
    c.ppo.gae_lambda = 0.95
    c.ppo.entropy_coef = 0.01
    c.stop.steps = 2_000_000
    return c
