"""PPO with another clipping: the ratio may rise further than it may fall (Yu et al. 2025, "DAPO").

Command:  jaxrl train ppo --config.algorithm=clip_higher:ClipHigher
"""

import jax.numpy as jnp

from jaxrl.algorithms.ppo.ppo import PPO


class ClipHigher(PPO):
    def policy_loss(self, learner, log_prob, old_log_prob, advantage):
        ratio = jnp.exp(log_prob - old_log_prob)
        clipped = jnp.clip(ratio, 1 - learner.hyperparams.clip_range, 1.28)
        return -jnp.minimum(ratio * advantage, clipped * advantage)
