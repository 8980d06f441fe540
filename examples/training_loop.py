"""A custom training loop: rollouts and updates by hand, with a learning rate that falls as returns rise.

Command:  python training_loop.py runs/loop
"""

import sys

import jaxrl


def main(run, steps=200_000):
    config = jaxrl.default_config()
    config.env.name = "gymnax:CartPole-v1"
    config.network.core = "none"
    config.ppo.rollout_length = 32
    config.ppo.schedule = "constant"
    config.stop.steps = steps
    trainer = jaxrl.Trainer(config)
    best, rate = 0.0, 0.0
    while trainer.steps < steps:
        rate = 3e-3 * (1 - best / 550)
        trainer.set(learning_rate=rate)
        metrics = trainer.update(trainer.rollout())
        best = max(best, metrics.get("episode/return", 0.0))  # absent if no episode ended
    print(f"{trainer.steps:,} steps, best return {best:.0f}, learning rate {rate:.1e}")
    result = trainer.evaluate(episodes=32)
    print(f"{result.mode} return {result.mean:.1f}")
    trainer.save(run, metadata={"rate": rate})


if __name__ == "__main__":
    main(sys.argv[1])
