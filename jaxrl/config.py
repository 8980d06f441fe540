"""The configuration: its defaults (`default_config`) and its one check (`resolve`).

Everything downstream sees only the frozen dataclasses below; nothing re-derives a count.
"""

from __future__ import annotations

from ml_collections import ConfigDict, config_dict


def default_config() -> ConfigDict:
    """Returns every field with its default; `configs/*.py` start from this and change what they need."""
    c = ConfigDict()
    c.seed = 0
    # Devices to train on; 0 takes all accelerators, or on CPU as many virtual devices as pay off.
    c.num_devices = 0

    c.env = ConfigDict()
    c.env.name = "gymnax:CartPole-v1"  # suite:Name or suite:Name(argument=value)
    c.env.num_envs = 64
    c.env.wrappers = ()  # names from envs.wrappers, each "name" or "name(argument=value)"
    c.env.stagger = True  # start environments with a time limit at different points of their first episode

    c.network = ConfigDict()
    c.network.encoder = "auto"  # by observation: mlp, minatar, nature, impala, identity; "key=name,key=name" for dicts
    c.network.core = "lstm"  # lstm, gru, none
    c.network.hidden_sizes = (128,)
    c.network.core_size = 128
    c.network.activation = "tanh"
    c.network.separate_value = False
    c.network.squash_actions = False  # tanh-Gaussian instead of a Gaussian clipped to the space
    c.network.compute_dtype = "float32"

    c.normalize = ConfigDict()
    c.normalize.observations = False
    c.normalize.rewards = False
    c.normalize.clip_observations = 10.0
    c.normalize.clip_rewards = 0.0  # 0: no clipping

    c.ppo = ConfigDict()
    c.ppo.rollout_length = 128
    c.ppo.num_epochs = 4
    c.ppo.num_minibatches = 4
    c.ppo.sequence_length = 0  # 0: the whole rollout
    c.ppo.gradient_accumulation = 1
    c.ppo.learning_rate = 2.5e-4
    c.ppo.schedule = "linear"  # constant, linear, cosine
    c.ppo.warmup_updates = 0
    c.ppo.gamma = 0.99
    c.ppo.gae_lambda = 0.95
    c.ppo.clip_range = 0.2
    c.ppo.clip_value = False
    c.ppo.normalize_advantages = True
    c.ppo.entropy_coef = 0.01
    c.ppo.value_coef = 0.5
    c.ppo.max_grad_norm = 0.5
    c.ppo.target_kl = config_dict.placeholder(float)  # None: no stop

    c.stop = ConfigDict()
    c.stop.steps = 1_000_000
    c.stop.seconds = config_dict.placeholder(float)
    c.stop["return"] = config_dict.placeholder(float)  # greedy evaluation return

    c.log = ConfigDict()
    c.log.every_steps = 50_000
    c.log.tensorboard = True

    c.evaluate = ConfigDict()
    c.evaluate.every_steps = 250_000  # 0: only at the end
    c.evaluate.episodes = 64

    c.checkpoint = ConfigDict()
    c.checkpoint.every_steps = 250_000  # 0: only at the end
    c.checkpoint.keep = 3

    c.profile = ConfigDict()
    c.profile.start_iteration = 0
    c.profile.num_iterations = 0  # 0: no trace
    return c
