"""Two cooks share one policy: independent PPO on Overcooked's cramped room, with JaxMARL's hyperparameters.

Command:  jaxrl train ippo_overcooked
Others:   --env="jaxmarl:overcooked(layout='coord_ring', shaped_reward=1.0)" (docs/many_agents.md)
Needs:    pip install "jaxrl-recurrent[jaxmarl]"
Hardware: 2 CPU cores
Minutes:  13, on one core with two or three other jobs
Expected: return of both cooks 457 with sampled actions (1 seed; docs/many_agents.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxmarl:overcooked(layout='cramped_room', shaped_reward=1.0)"
    c.env.num_envs = 16  # 32 cooks
    c.network.update(encoder="mlp", core="none", hidden_sizes=(64, 64), activation="tanh")
    c.network.separate_value = True
    c.ppo.update(rollout_length=128, num_epochs=4, num_minibatches=4, learning_rate=2.5e-4)
    c.ppo.update(entropy_coef=0.01, clip_value=True)
    c.stop.steps = 5_000_000
    c.evaluate.update(every_steps=1_000_000, episodes=64)
    # Cooks who always take the most likely action may stand in each other's way for the whole episode.
    c.evaluate.modes = ("sampled",)
    return c
