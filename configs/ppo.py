"""PPO-LSTM on CartPole with its two velocities hidden, so only a policy with memory can balance the pole.

Command:  jaxrl train ppo
Hardware: 2 CPU cores
Minutes:  0.1 to 0.2, compilation included; stops when solved, after 57,000 to 143,000 steps
Expected: return 475 to 500, greedy and sampled (10 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "gymnax:CartPole-v1"
    c.env.wrappers = ("select_observation(indices=(0, 2))",)  # cart position and pole angle
    c.env.num_envs = 64
    c.network.update(core="lstm", hidden_sizes=(64,), core_size=64)
    # Velocities show only as small differences between observations: without scaling nothing is learned.
    c.normalize.update(observations=True, rewards=True)
    c.ppo.update(rollout_length=64, num_epochs=4, num_minibatches=8, learning_rate=4e-3)
    c.ppo.entropy_coef = 0.0  # with 0.02 sampled actions still drop the pole when greedy ones hold it
    c.stop.steps = 600_000
    c.stop["return"] = 475.0  # of 500; solved, so stop
    c.stop.every_mode = True  # a policy that is good with greedy and with sampled actions
    c.evaluate.every_steps = 25_000
    c.checkpoint.every_steps = 500_000
    return c
