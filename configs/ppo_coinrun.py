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
    c.network.update(encoder="impala", core="lstm", hidden_sizes=(256,), core_size=256)
    c.normalize.rewards = True
    c.ppo.update(rollout_length=128, sequence_length=32, num_epochs=3, num_minibatches=8)
    c.ppo.update(learning_rate=5e-4, gamma=0.999, gae_lambda=0.95, clip_value=True)
    c.stop.steps = 25_000_000
    c.evaluate.update(every_steps=1_000_000, episodes=64)
    c.evaluate.modes = ("sampled",)  # a greedy policy gets stuck early in training
    c.checkpoint.every_steps = 200_000
    return c
