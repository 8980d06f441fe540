"""The DQNs of rejax and PureJaxRL, SBX's SAC and memorax's R2D2 for `replay_peers.py`.

Trains once for each line on stdin and prints the seconds.

PYTHON benchmarks/peers/replay_runner.py dqn STEPS
PYTHON benchmarks/peers/replay_runner.py minatar STEPS CHECKOUT
"""

from __future__ import annotations

import sys
import time
import types
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


def minatar(steps: int) -> Train:
    """MinAtar's Breakout, 4 environments, a step of each, then an update on 32 rows; a network of ours.

    `dqn.py` of a checkout of PureJaxRL, unmodified, with the `tree_map` that jax has moved since; a stand-in
    takes the place of wandb, which it imports. Each training begins with an empty memory and learns from its
    first batch on, so that as many updates are measured as of jaxrl, whose memory is filled by then.
    """
    import flax.linen as nn
    import jax

    sys.modules["wandb"] = types.ModuleType("wandb")
    jax.tree_map = jax.tree.map
    sys.path.insert(0, f"{sys.argv[3]}/purejaxrl")
    import dqn as module

    class QNetwork(nn.Module):
        """One 3x3 convolution of 16 channels, a dense layer, a head; observations come flattened."""

        action_dim: int

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = x.reshape(*x.shape[:-1], 10, 10, 4).astype("float32")
            x = nn.relu(nn.Conv(16, (3, 3), padding="VALID")(x))
            x = nn.relu(nn.Dense(128)(x.reshape(*x.shape[:-3], -1)))
            return nn.Dense(self.action_dim)(x)

    module.QNetwork = QNetwork
    settings = {
        "NUM_ENVS": 4,
        "BUFFER_SIZE": 100_000,
        "BUFFER_BATCH_SIZE": 32,
        "TOTAL_TIMESTEPS": steps,
        "EPSILON_START": 1.0,
        "EPSILON_FINISH": 0.05,
        "EPSILON_ANNEAL_TIME": steps // 2,
        "TARGET_UPDATE_INTERVAL": 4_000,
        "LR": 2.5e-4,
        "LEARNING_STARTS": 0,
        "TRAINING_INTERVAL": 4,
        "GAMMA": 0.99,
        "TAU": 1.0,
        "ENV_NAME": "Breakout-MinAtar",
    }
    train = jax.jit(module.make_train(settings))
    return lambda: jax.block_until_ready(train(jax.random.PRNGKey(0))) and None


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


def r2d2(steps: int) -> Train:
    """CartPole, 16 environments, 4 steps of each, then an update on 32 sequences of 20 + 40 steps."""
    import flax.linen as nn
    import jax
    import optax
    from memorax.algorithms import R2D2, R2D2Config
    from memorax.buffers import make_prioritised_episode_buffer
    from memorax.buffers.episode_buffer import get_full_start_flags
    from memorax.environments import environment
    from memorax.networks import MLP, RNN, FeatureExtractor, Network, heads

    env, env_params = environment.make("gymnax::CartPole-v1")
    cfg = R2D2Config(
        name="R2D2",
        learning_rate=2.5e-4,
        num_envs=16,
        num_eval_envs=16,
        buffer_size=40_000,
        gamma=0.997,
        tau=1.0,
        target_network_frequency=1_600,
        batch_size=32,
        start_e=1.0,
        end_e=0.05,
        exploration_fraction=0.5,
        learning_starts=4_000,
        train_frequency=64,
        burn_in_length=20,
        sequence_length=64,
        n_step=5,
    )
    network = Network(
        FeatureExtractor(observation_extractor=MLP((128,))),
        RNN(nn.OptimizedLSTMCell(128)),
        heads.DiscreteQNetwork(env.action_space(env_params).n),
    )
    # 20 steps of burn-in, 40 with a 5-step return, and the 4 that the last of these also sum.
    buffer = make_prioritised_episode_buffer(
        max_length=cfg.buffer_size,
        min_length=cfg.learning_starts,
        sample_batch_size=cfg.batch_size,
        sample_sequence_length=cfg.sequence_length,
        add_batch_size=cfg.num_envs,
        get_start_flags=get_full_start_flags,
        add_sequences=True,
        device="cpu",
    )
    peer = R2D2(
        *(cfg, env, env_params, network, optax.chain(optax.clip_by_global_norm(10.0), optax.adam(2.5e-4))),
        buffer=buffer,
        epsilon_schedule=optax.linear_schedule(1.0, 0.05, steps // 2),
        beta_schedule=optax.constant_schedule(0.6),
    )
    key, state = peer.init(jax.random.key(0))
    held = [peer.warmup(key, state, cfg.learning_starts)]

    def run() -> None:
        held[0] = jax.block_until_ready(peer.train(*held[0], steps))[:2]

    return run


def main() -> None:
    train = {"dqn": dqn, "minatar": minatar, "sac": sac, "r2d2": r2d2}[sys.argv[1]](int(sys.argv[2]))
    for _ in sys.stdin:
        started = time.perf_counter()
        train()
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
