"""Learning to learn (RL²) with a GRU on XLand-MiniGrid: find the rewarded object, and remember it.

An episode is four trials of one task in a room of 3 x 3 cells. A trial ends when the agent picks up the one
of three objects that is rewarded; its six steps rarely suffice for a second object. The agent sees its last
action and reward, and its carry is reset between tasks alone. It learns from 1 for a success: the suite's own
reward, 1 - 0.9 t / 6, which is reported, favours the nearest object over the right one.

Command:  jaxrl train ppo_xland
Hardware: 2 CPU cores
Minutes:  19 for five seeds on a busy core
Expected: returns by trial of 0.24, 0.33, 0.35 and 0.35, successes 46%, 66%, 69% and 69%, means of five fresh
          seeds (docs/memory.md); greedy return 1.25 to 1.45
"""

from ml_collections import ConfigDict

from jaxrl.config import default_config


def get_config() -> ConfigDict:
    c = default_config()
    c.env.name = (
        "xminigrid:XLand-MiniGrid-R1-9x9("
        "ruleset='objects:hold-3-ranked', height=5, width=5, view_size=5, max_steps=6)"
    )
    c.env.wrappers = (
        "one_hot_observation(values=13)",
        "flatten_observation",
        # A success is worth at least 0.1.
        "reward_clip(low=0.0, high=0.1)",
        "reward_scale(factor=10.0)",
        "trials(count=4)",
        "previous_action",
    )
    c.env.num_envs = 512
    c.network.update(core="gru", hidden_sizes=(64,), core_size=64, core_layers=2)
    c.ppo.rollout_length = 48  # two episodes, so that gradients reach the first trial
    c.ppo.update(num_epochs=4, num_minibatches=8, learning_rate=2e-3, gamma=0.99)
    c.stop.steps = 2_000_000
    return c
