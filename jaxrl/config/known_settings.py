"""Settings of known environments: the fields in which each differs from its shipped config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Settings = Mapping[str, Any]

# POPGym's tasks of cards: an answer changes its own reward and nothing that follows, hence the discount.
CARDS: Settings = {
    "env.num_envs": 64,
    "ppo.rollout_length": 64,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 4e-3,
    "ppo.gamma": 0.0,
    "ppo.entropy_coef": 0.0,
    "normalize.rewards": True,
}
BANDIT: Settings = {
    "env.wrappers": ("one_hot_observation", "previous_action(reward=False)"),
    "env.num_envs": 64,
    "ppo.rollout_length": 128,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 2e-3,
    "ppo.gamma": 0.99,
    "ppo.gae_lambda": 0.6,
    "ppo.entropy_coef": 1e-3,
    "normalize.rewards": True,
}
# Of MinAtar's other games; those of Breakout are configs/ppo_minatar.py's own.
MINATAR: Settings = {"ppo.entropy_coef": 0.01, "ppo.gae_lambda": 0.95, "stop.steps": 10_000_000}
# Those of rl-zoo's PPO, but for the rate and the epochs: landing is many steps after what it depends on.
LANDER: Settings = {
    "env.num_envs": 16,
    "ppo.rollout_length": 1024,
    "ppo.num_minibatches": 16,
    "ppo.num_epochs": 10,
    "ppo.sequence_length": 1,  # without memory, single steps may be shuffled
    "ppo.gamma": 0.999,
    "ppo.gae_lambda": 0.98,
    "ppo.entropy_coef": 0.01,
    "ppo.learning_rate": 1e-3,
}
# Found by configs/searches/hopper.yaml; with a higher discount it learns to stand still.
HOPPER: Settings = {
    "network.activation": "relu",
    "network.policy_std": 0.4,
    "ppo.num_epochs": 10,
    "ppo.learning_rate": 2.6e-4,
    "ppo.gamma": 0.99,
    "ppo.gae_lambda": 0.99,
    "ppo.clip_range": 0.2,
}
# Found by configs/searches/halfcheetah.yaml.
HALF_CHEETAH: Settings = {
    "network.activation": "relu",
    "network.policy_std": 0.135,
    "ppo.num_epochs": 10,
    "ppo.learning_rate": 3.7e-4,
    "ppo.gamma": 0.98,
    "ppo.gae_lambda": 0.95,
    "ppo.clip_range": 0.2,
}
# Found by configs/searches/bipedalwalker.yaml.
BIPEDAL_WALKER: Settings = {
    "network.activation": "relu",
    "ppo.num_epochs": 10,
    "ppo.learning_rate": 4.3e-4,
    "ppo.gamma": 0.99,
    "stop.steps": 5_000_000,
}
# Tiles of the whole grid: found on DoorKey 8x8 by configs/searches/doorkey.yaml and trials after it.
TILES: Settings = {
    "env.wrappers": ("one_hot_observation(values=12)",),
    "env.num_envs": 64,
    "network.encoder": "minatar",
    "network.layer_norm": True,
    "normalize.observations": False,
    "ppo.rollout_length": 128,
    "ppo.sequence_length": 1,  # without memory, single steps may be shuffled
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 9e-4,
    "ppo.gae_lambda": 0.9,
    "ppo.entropy_coef": 0.03,
    "ppo.entropy_schedule": "linear",
    "stop.steps": 1_000_000,
}
# A value that weighs more than the policy learns first to compare what is remembered with what is seen.
MEMORY_S8: Settings = {
    "env.wrappers": ("one_hot_observation(values=15)",),
    "network.encoder": "mlp",
    "network.core_layers": 2,
    "ppo.rollout_length": 64,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 2e-3,
    "ppo.gamma": 0.999,
    "ppo.value_coef": 5.0,
    "ppo.entropy_coef": 0.03,  # with 0.02 one of three seeds stopped looking, and guessed to the end
    "ppo.entropy_schedule": "linear",
    "stop.steps": 8_000_000,
}
# Discount, lambda and batches are those of the recurrent baseline of Dedieu et al. 2025; rate, epochs and the
# schedule are found by configs/searches/craftax_classic.yaml, and serve both Craftax-Classic and Craftax.
CRAFTAX: Settings = {
    "env.num_envs": 48,
    "network.core": "gru",
    "network.hidden_sizes": (256,),
    "network.core_size": 256,
    "network.activation": "relu",
    "network.layer_norm": True,
    "normalize.observations": True,
    "normalize.rewards": True,
    "ppo.rollout_length": 96,
    "ppo.num_epochs": 3,
    "ppo.num_minibatches": 8,
    "ppo.learning_rate": 1.1e-3,
    "ppo.gamma": 0.925,
    "ppo.gae_lambda": 0.625,
    "ppo.value_coef": 1.0,
    "ppo.entropy_schedule": "linear",
    "stop.steps": 1_000_000,
}
