"""memorax: its PPO with one of its cores, actor and critic apart, as its README puts them together."""

from __future__ import annotations

import outcome  # isort: skip

import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from memorax.algorithms import PPO, PPOConfig
from memorax.environments import environment
from memorax.networks import (
    FFN,
    MLP,
    RNN,
    ALiBi,
    FeatureExtractor,
    FFMCell,
    GatedResidual,
    LinearAttentionCell,
    LRUCell,
    MambaCell,
    Memoroid,
    MinGRUCell,
    Network,
    PreNorm,
    S5Cell,
    SelfAttention,
    Stack,
    heads,
    mLSTMCell,
    sLSTMCell,
)

IMPORTED = outcome.since_start()
_INIT = {"kernel_init": nn.initializers.lecun_normal(), "bias_init": nn.initializers.zeros_init()}
_TYPES = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def _attention(size: int, num_heads: int, window: int) -> nn.Module:
    attention = SelfAttention(
        size, num_heads, window, **_TYPES, **_INIT, positional_embedding=ALiBi(num_heads)
    )
    return Stack((GatedResidual(PreNorm(attention)), GatedResidual(PreNorm(FFN(size)))))


# By jaxrl's names; the functions take the units of the core, its heads and the steps of a rollout.
_CORES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "lstm": lambda size, heads, length: RNN(nn.OptimizedLSTMCell(size)),
    "gru": lambda size, heads, length: RNN(nn.GRUCell(size)),
    "slstm": lambda size, heads, length: RNN(sLSTMCell(size, size, heads)),
    "mingru": lambda size, heads, length: Memoroid(MinGRUCell(size)),
    "lru": lambda size, heads, length: Memoroid(LRUCell(size, size)),
    "s5": lambda size, heads, length: Memoroid(S5Cell(size, size)),
    "ffm": lambda size, heads, length: Memoroid(FFMCell(size, size, heads)),
    "mlstm": lambda size, heads, length: Memoroid(mLSTMCell(size, size, heads)),
    "mamba2": lambda size, heads, length: Memoroid(MambaCell(size, heads, size // heads)),
    "linear_attention": lambda size, heads, length: Memoroid(
        LinearAttentionCell(size // heads, heads, param_dtype=jnp.float32, **_INIT)
    ),
    "gtrxl": _attention,
}


def _network(work: dict[str, Any], head: nn.Module, num_heads: int = 4) -> Network:
    size = work["hidden_sizes"][-1]
    encoder = MLP(tuple(work["hidden_sizes"]), activation=getattr(nn, work["activation"]))
    core = _CORES[work["network"].removeprefix("core:")](size, num_heads, work["rollout_length"])
    return Network(FeatureExtractor(observation_extractor=encoder), core, head)


def measure(task: dict[str, Any]) -> None:
    work, num_envs = task["work"], task["num_envs"]
    env, env_params = environment.make(f"gymnax::{work['env']}")
    cfg = PPOConfig(
        name="PPO",
        num_envs=num_envs,
        num_eval_envs=8,
        num_steps=task["rollout_length"],
        gamma=0.99,
        gae_lambda=0.95,
        num_minibatches=work["num_minibatches"],
        update_epochs=task["epochs"],
        normalize_advantage=True,
        clip_coef=0.2,
        clip_vloss=True,
        ent_coef=0.01,
        vf_coef=0.5,
    )
    actor = _network(work, heads.Categorical(work["num_actions"]))
    critic = _network(work, heads.VNetwork())
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4))
    agent = PPO(cfg, env, env_params, actor, critic, optimizer, optimizer)
    key, state = agent.init(jax.random.key(task["seed"]))
    steps = outcome.iterations(task["steps"], cfg.batch_size) * cfg.batch_size
    start = time.perf_counter()
    train = PPO.train.lower(agent, key, state, steps).compile()
    compiled = time.perf_counter() - start
    key, state, _ = jax.block_until_ready(train(key, state))
    start = time.perf_counter()
    jax.block_until_ready(train(key, state)[1])
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=compiled,
        steps=steps,
        seconds=time.perf_counter() - start,
        parameters=sum(x.size for x in jax.tree.leaves((state.actor_params, state.critic_params))),
        versions=outcome.versions("memorax", "gymnax", "jax", "jaxlib", "flax", "optax", "numpy"),
    )


if __name__ == "__main__":
    measure(outcome.task())
