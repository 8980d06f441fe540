"""rejax's DQN and SBX's SAC for `replay_peers.py`: trains once for each line on stdin and prints the seconds.

PYTHON benchmarks/peers/replay_runner.py dqn STEPS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Train = Callable[[], None]


def dqn(steps: int) -> Train:
    """CartPole, 8 environments, a step of each, then an update on 128 rows; double, single-step returns."""
    import jax
    import jax.numpy as jnp
    from rejax import DQN

    peer = DQN.create(
        env="CartPole-v1",
        num_envs=8,
        num_epochs=1,
        agent_kwargs={"activation": "relu"},
        buffer_size=10_000,
        fill_buffer=1_000,
        batch_size=128,
        learning_rate=2.5e-4,
        target_update_freq=400,
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, key: jnp.zeros(()))
    train = jax.jit(lambda state: peer.train(train_state=state)[0])
    held = [jax.jit(peer.init_state)(jax.random.PRNGKey(0))]

    def run() -> None:
        held[0] = jax.block_until_ready(train(held[0]))

    return run


def sac(steps: int) -> Train:
    """Pendulum, 4 environments, 4 steps of each and then 16 updates on 256 rows, two layers of 256."""
    from sbx import SAC
    from stable_baselines3.common.env_util import make_vec_env

    peer = SAC(
        "MlpPolicy",
        make_vec_env("Pendulum-v1", n_envs=4),
        batch_size=256,
        buffer_size=100_000,
        learning_starts=1_000,
        train_freq=4,
        gradient_steps=16,
        policy_kwargs={"net_arch": [256, 256]},
    )
    return lambda: peer.learn(steps, reset_num_timesteps=False) and None


def main() -> None:
    train = {"dqn": dqn, "sac": sac}[sys.argv[1]](int(sys.argv[2]))
    for _ in sys.stdin:
        started = time.perf_counter()
        train()
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
