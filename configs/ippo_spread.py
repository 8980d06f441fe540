"""Three agents share one policy: independent PPO on MPE's simple_spread, with JaxMARL's hyperparameters.

Command:  jaxrl train ippo_spread
Others:   --env="jaxmarl:HeuristicEnemySMAX(scenario='3m')",
          --env=pettingzoo:simple_spread_v3 (docs/many_agents.md)
Needs:    pip install "jaxrl-recurrent[jaxmarl]"
Hardware: 2 CPU cores
Minutes:  half a minute
Expected: greedy return -56 (3 seeds; docs/many_agents.md)
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = "jaxmarl:MPE_simple_spread_v3"
    c.env.num_envs = 16  # 48 agents
    c.network.update(encoder="mlp", core="none", hidden_sizes=(64, 64), activation="tanh")
    c.network.separate_value = True
    c.ppo.update(rollout_length=128, num_epochs=4, num_minibatches=4, learning_rate=2.5e-4)
    c.ppo.entropy_coef = 0.01
    c.stop.steps = 2_000_000
    c.evaluate.episodes = 512
    return c
