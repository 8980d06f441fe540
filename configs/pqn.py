"""Feed-forward PQN on CartPole: Q-learning from rollouts, without replay and target network.

Command:  jaxrl train pqn
Others:   --env=gymnax:Acrobot-v1 --config.env.wrappers="reward_scale(factor=0.1)"
          --config.pqn.learning_rate=5e-4
Hardware: 2 CPU cores
Minutes:  0.5 on a shared machine
Expected: greedy return 500; Acrobot -84 to -77 (8 seeds; docs/results.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.algorithm = "pqn"
    c.env.name = "gymnax:CartPole-v1"
    c.env.wrappers = ("reward_scale(factor=0.1)",)  # Q-values of about 10, not 100
    c.env.num_envs = 32
    c.network.update(core="none", hidden_sizes=(128, 128), activation="relu")
    c.network.layer_norm = True  # keeps Q-learning stable (Gallici et al. 2024)
    c.pqn.rollout_length = 64
    c.pqn.sequence_length = 1  # without memory, single steps may be shuffled
    c.pqn.update(num_epochs=4, num_minibatches=16)
    # With 5e-4 single greedy evaluations fell below 400 until late in the run.
    c.pqn.update(learning_rate=2e-4, q_lambda=0.95, exploration_end=0.2, exploration_fraction=0.2)
    c.stop.steps = 1_000_000
    return c
