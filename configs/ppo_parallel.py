"""PPO with Nature's CNN on procgen's CoinRun, environments stepped by several threads.

Command:  jaxrl train ppo_parallel
Short:    jaxrl train ppo_parallel --quick         # 500,000 steps with 16 environments
Timed:    jaxrl train ppo_parallel --duration=1    # an hour; writes benchmark_metrics.json
Beside:   ppo_sequential, with the same number of environments and one thread (docs/how_to/modes.md)
Needs:    Qt 5: pip install PyQt5-Qt5, or on Debian and Ubuntu apt install libqt5gui5 (docs/host.md)
Hardware: 2 CPU cores
Expected: in ten minutes (--duration=0.167) 536,576 steps at 883 a second, 2.3 GB, return 7.1 in training at
          375,000 to 475,000 steps (1 seed; docs/how_to/modes.md); not measured to the end
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config(quick: bool = False) -> ConfigDict:
    """`quick`: with half of the environments, and a fiftieth of the steps."""
    c = default_config()
    c.env.name = "envpool:CoinrunEasy-v0(num_levels=200, start_level=0)"
    c.env.num_envs = 16 if quick else 32
    c.env.stagger = False  # episodes end at different times: with the coin or a fall
    c.host.num_workers = 2 if quick else 4  # of 8 environments each
    c.network.update(encoder="nature", core="none", hidden_sizes=(512,))
    c.ppo.rollout_length = 128
    c.ppo.sequence_length = 1  # without memory, single steps may be shuffled
    c.ppo.update(num_epochs=4, num_minibatches=c.env.num_envs * 128 // 2048, learning_rate=3e-4)
    c.ppo.update(schedule="constant", gamma=0.99)
    c.stop.steps = 500_000 if quick else 25_000_000
    c.evaluate.every_steps = 0  # once, at the end
    c.evaluate.episodes = 64
    c.evaluate.modes = ("sampled",)  # a greedy policy gets stuck early in training
    c.checkpoint.every_steps = 200_000
    return c
