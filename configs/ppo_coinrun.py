"""PPO-LSTM with the IMPALA CNN on procgen's CoinRun: 200 levels, evaluated on these and on unseen ones.

Command:  jaxrl train ppo_coinrun
Unseen:   jaxrl evaluate --workdir=DIR \\
            --environment="envpool:CoinrunEasy-v0(num_levels=0, start_level=1000)"
Needs:    Qt 5: pip install PyQt5-Qt5, or on Debian and Ubuntu apt install libqt5gui5 (docs/host.md)
Hardware: 2 CPU cores
Minutes:  about 55 for 0.6 M steps
Expected: greedy return 7.2 on the training levels and 6.9 on unseen ones with `stop.steps=600000`
          (1 seed; docs/results_images.md); more was not measured
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    # Cobbe et al. 2020, "Leveraging Procedural Generation": easy mode with 200 levels.
    c.env.name = "envpool:CoinrunEasy-v0(num_levels=200, start_level=0)"
    c.evaluate.unseen = "envpool:CoinrunEasy-v0(num_levels=0, start_level=1000)"  # all levels from 1000 on
    c.env.num_envs = 32
    c.env.stagger = False  # episodes end at different times: with the coin or a fall
    c.network.encoder = "impala"
    c.network.core = "lstm"
    c.network.hidden_sizes = (256,)
    c.network.core_size = 256
    c.normalize.rewards = True
    c.ppo.rollout_length = 128
    c.ppo.sequence_length = 32
    c.ppo.num_epochs = 3
    c.ppo.num_minibatches = 8
    c.ppo.learning_rate = 5e-4
    c.ppo.gamma = 0.999
    c.ppo.gae_lambda = 0.95
    c.ppo.clip_value = True
    c.stop.steps = 25_000_000
    c.evaluate.every_steps = 1_000_000
    c.evaluate.episodes = 64
    c.evaluate.modes = ("sampled",)  # a greedy policy gets stuck early in training
    c.checkpoint.every_steps = 200_000
    return c
