"""Recurrent PPO on a page: rollouts, advantages and minibatches of sequences, as one compiled program.

It learns what `configs/ppo.py` learns: to balance CartPole's pole although both velocities are hidden.

Command:  python ppo_lstm.py

Dimensions of arrays: T steps of a rollout, B environments, L steps of a sequence, N sequences, O observation.
"""

from collections import namedtuple

import jax
import jax.numpy as jnp
import optax

from jaxrl import envs, networks
from jaxrl.config import NetworkConfig
from jaxrl.envs.vector import VectorEnv
from jaxrl.networks import HeadOnTrunk, distributions, normalizer

ITERATIONS, T, B, L = 75, 64, 64, 32  # L divides T; gradients flow through L steps
EPOCHS, MINIBATCHES, LEARNING_RATE, MAX_GRAD_NORM = 4, 8, 4e-3, 0.5
GAMMA, LAMBDA, CLIP, VALUE_COEF, ENTROPY_COEF = 0.99, 0.95, 0.2, 0.5, 0.0
REWARD_SCALE = 0.02  # values near 100 would drown the policy's gradient in the shared LSTM

env = VectorEnv(envs.make("gymnax:CartPole-v1", ("select_observation(indices=(0, 2))",)))
config = NetworkConfig(core="lstm", hidden_sizes=(64,), core_size=64)
head = networks.build_head(config, env.spec)
heads = {"policy": HeadOnTrunk(head.module, "trunk"), "value": HeadOnTrunk(networks.ValueHead(), "trunk")}
network = networks.build(config, env.spec, heads)
rate = optax.linear_schedule(LEARNING_RATE, 0.0, ITERATIONS * EPOCHS * MINIBATCHES)
optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adam(rate, eps=1e-5))

# Before a step: `reset_B` is True if `obs_BO` begins an episode, and `carry_B` is the LSTM's before `obs_BO`.
Position = namedtuple("Position", "env_state obs_BO reset_B carry_B return_B")


def forward(params, stats, obs_LNO, carry_N, reset_LN):
    """(action distributions [L, N], values [L, N], carry); resets zero the carry, also inside a sequence."""
    out = network.apply(params, normalizer.normalize(stats, obs_LNO, clip=10.0), carry_N, reset_LN, None)
    return out.heads["policy"], out.heads["value"], out.carry


def rollout(params, stats, position, key):
    """(position after T steps, records [T, B, ...] by name, values [B] of the observations after them)."""

    def forward_one(obs_BO, carry_B, reset_B):
        distribution, value, carry_B = forward(params, stats, obs_BO[None], carry_B, reset_B[None])
        return *jax.tree.map(lambda x: x[0], (distribution, value)), carry_B

    def step(at, key):
        noise_key, env_key = jax.random.split(key)
        distribution, value_B, carry_B = forward_one(at.obs_BO, at.carry_B, at.reset_B)
        action_B = distribution.sample(distributions.draw_noise(head.noise_kind, noise_key, (B,)))
        env_state, timestep = env.step(jax.random.split(env_key, B), at.env_state, action_B)
        # At a time limit the pole still stands, and the value of the last observation stands for the rest of
        # the episode. `timestep.obs` is already the first one of the next.
        _, final_value_B, _ = forward_one(timestep.final_obs, carry_B, jnp.zeros(B, bool))
        return_B = jnp.where(at.reset_B, 0.0, at.return_B) + timestep.reward
        record = {
            "obs": at.obs_BO,
            "carry": at.carry_B,
            "reset": at.reset_B,
            "action": action_B,
            "log_prob": distribution.log_prob(action_B),
            "value": value_B,
            "reward": REWARD_SCALE * timestep.reward,
            "terminated": timestep.terminated,
            "truncated": timestep.truncated,
            "final_value": final_value_B,
            "return": jnp.where(timestep.done, return_B, jnp.nan),
        }
        return Position(env_state, timestep.obs, timestep.done, carry_B, return_B), record

    position, record_TB = jax.lax.scan(step, position, jax.random.split(key, T))
    return position, record_TB, forward_one(position.obs_BO, position.carry_B, position.reset_B)[1]


def advantages(record_TB, last_value_B):
    """(advantages, value targets), [T, B]: generalised advantage estimation (Schulman et al. 2016)."""
    next_value_TB = jnp.concatenate([record_TB["value"][1:], last_value_B[None]])
    next_value_TB = jnp.where(record_TB["truncated"], record_TB["final_value"], next_value_TB)
    next_value_TB = jnp.where(record_TB["terminated"], 0.0, next_value_TB)
    delta_TB = record_TB["reward"] + GAMMA * next_value_TB - record_TB["value"]
    done_TB = record_TB["terminated"] | record_TB["truncated"]

    def step(advantage_B, row):
        delta_B, done_B = row
        advantage_B = delta_B + jnp.where(done_B, 0.0, GAMMA * LAMBDA * advantage_B)
        return advantage_B, advantage_B

    _, advantage_TB = jax.lax.scan(step, jnp.zeros_like(last_value_B), (delta_TB, done_TB), reverse=True)
    return advantage_TB, advantage_TB + record_TB["value"]


def loss(params, stats, batch_LN):
    """PPO's clipped objective (Schulman et al. 2017) on sequences that begin with their stored carries."""
    carry_N = jax.tree.map(lambda x: x[0], batch_LN["carry"])
    distribution, value_LN, _ = forward(params, stats, batch_LN["obs"], carry_N, batch_LN["reset"])
    ratio_LN = jnp.exp(distribution.log_prob(batch_LN["action"]) - batch_LN["log_prob"])
    clipped_LN = jnp.clip(ratio_LN, 1 - CLIP, 1 + CLIP)
    policy_loss = -jnp.minimum(ratio_LN * batch_LN["advantage"], clipped_LN * batch_LN["advantage"]).mean()
    value_loss = 0.5 * jnp.square(value_LN - batch_LN["target"]).mean()
    return policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * distribution.entropy().mean()


def update(params, opt_state, stats, record_TB, last_value_B, key):
    """(parameters, state of the optimiser) after epochs of minibatches of whole sequences."""
    advantage_TB, target_TB = advantages(record_TB, last_value_B)
    advantage_TB = (advantage_TB - advantage_TB.mean()) / (advantage_TB.std() + 1e-8)
    # [L, B * T / L, ...]: sequences of L steps in a row of one environment.
    sequences = jax.tree.map(
        lambda x: x.reshape(-1, L, *x.shape[1:]).swapaxes(0, 1).reshape(L, -1, *x.shape[2:]),
        record_TB | {"advantage": advantage_TB, "target": target_TB},
    )

    def minibatch(state, chosen_N):
        params, opt_state = state
        batch_LN = jax.tree.map(lambda x: x[:, chosen_N], sequences)
        step, opt_state = optimizer.update(jax.grad(loss)(params, stats, batch_LN), opt_state)
        return (optax.apply_updates(params, step), opt_state), None

    shuffle = jax.vmap(jax.random.permutation, in_axes=(0, None))
    order = shuffle(jax.random.split(key, EPOCHS), jnp.arange(B * T // L))
    return jax.lax.scan(minibatch, (params, opt_state), order.reshape(EPOCHS * MINIBATCHES, -1))[0]


def train(key):
    """The mean return of the episodes that ended in each iteration."""
    params_key, reset_key, key = jax.random.split(key, 3)
    params = network.init(params_key)
    env_state, obs_BO = env.reset(jax.random.split(reset_key, B))
    stats = normalizer.update(normalizer.init(obs_BO[0]), obs_BO)
    position = Position(env_state, obs_BO, jnp.ones(B, bool), network.initial_carry(B), jnp.zeros(B))

    def iteration(state, key):
        params, opt_state, stats, position = state
        rollout_key, update_key = jax.random.split(key)
        position, record_TB, last_value_B = rollout(params, stats, position, rollout_key)
        params, opt_state = update(params, opt_state, stats, record_TB, last_value_B, update_key)
        stats = normalizer.update(stats, record_TB["obs"])  # not before: the updates see what the rollout saw
        return (params, opt_state, stats, position), jnp.nanmean(record_TB["return"])

    state = (params, optimizer.init(params), stats, position)
    return jax.lax.scan(iteration, state, jax.random.split(key, ITERATIONS))[1]


if __name__ == "__main__":
    for i, x in enumerate(jax.jit(train)(jax.random.key(0)), 1):
        print(f"{i * T * B:8,} steps, return {x:.0f}")
