"""Seeds and learning rates as one program: a whole training run is a pure function, to be vmapped.

Command:  python seeds.py
"""

import jax
import numpy as np

import jaxrl

RATES = (3e-4, 3e-3)


def main(num_seeds=3, steps=100_000):
    config = jaxrl.default_config()
    config.env.name = "gymnax:CartPole-v1"
    config.network.core = "none"
    config.ppo.rollout_length = 32
    config.stop.steps = steps
    train = jaxrl.make_train(config)
    rates = jaxrl.hyperparameters(config, learning_rate=list(RATES))
    keys = jax.random.split(jax.random.key(0), num_seeds)
    over_seeds = jax.vmap(train, in_axes=(0, None))
    over_both = jax.vmap(over_seeds, in_axes=(None, 0))
    _, metrics = jax.jit(over_both)(keys, rates)
    returns = np.asarray(metrics["episode/return"])  # [rates, seeds, iterations]
    for rate, last in zip(RATES, returns[:, :, -1], strict=True):
        print(f"learning rate {rate:.0e}: {last.mean():.0f} (seeds {last.min():.0f} to {last.max():.0f})")


if __name__ == "__main__":
    main()
