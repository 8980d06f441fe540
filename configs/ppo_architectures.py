"""PPO on the platform game with all its observations, for named networks (docs/architectures.md).

Command:  jaxrl train ppo_architectures
Others:   --config.network.architecture=gat, and full_hgt, simplified_hgt, gcn, vision_free, local_only,
          impala, nature
Hardware: 2 CPU cores
Minutes:  5 to 60, depending on the architecture
Expected: mlp_baseline, gat and simplified_hgt in docs/architectures.md; the others not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxrl:Platformer(category='simple', observation=('state', 'local', 'global', 'graph'))"
    c.env.num_envs = 64
    c.network.update(architecture="mlp_baseline", core="none", activation="relu")
    c.ppo.rollout_length = 128
    # What the levels' nodes hold is computed anew in each update: few large ones are faster than many small.
    c.ppo.update(num_epochs=3, num_minibatches=2, learning_rate=1e-3, gamma=0.99, entropy_coef=0.01)
    c.stop.steps = 1_000_000
    c.evaluate.every_steps = 250_000
    return c
