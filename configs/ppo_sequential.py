"""PPO with Nature's CNN on procgen's CoinRun, environments stepped by one thread, alternating with learning.

Command:  jaxrl train ppo_sequential
Short:    jaxrl train ppo_sequential --quick         # 500,000 steps with 16 environments
Timed:    jaxrl train ppo_sequential --duration=1    # an hour; writes benchmark_metrics.json
Beside:   ppo_parallel, which has the same fields except threads and minibatches (docs/how_to/modes.md)
Needs:    Qt 5, as there
Hardware: 2 CPU cores
Expected: in ten minutes (--duration=0.167) 475,136 steps at 780 a second, 1.9 GB, return 7.1 in training at
          375,000 to 475,000 steps (1 seed; docs/how_to/modes.md); not measured to the end
"""

from ml_collections import ConfigDict

import jaxrl


def get_config(quick: bool = False) -> ConfigDict:
    """`quick`: with half of the environments, and a fiftieth of the steps."""
    c = jaxrl.load_config("ppo_parallel", quick=quick)
    c.host.update(num_workers=1, num_groups=1, overlap=False)
    c.ppo.num_minibatches = c.env.num_envs * 128 // 1024
    return c
