"""rejax: its PPO, with evaluation left out of the measured program."""

from __future__ import annotations

import outcome  # isort: skip

import time
from typing import Any

import jax
import jax.numpy as jnp
from rejax import PPO

IMPORTED = outcome.since_start()
VERSIONS = outcome.versions("rejax", "gymnax", "jax", "jaxlib", "flax", "optax", "distrax", "numpy")
# configs/gymnax/cartpole.yaml of rejax, section `ppo`, but for the evaluations inside the program.
SOLVE = {
    "num_envs": 5,
    "num_steps": 100,
    "num_epochs": 5,
    "num_minibatches": 5,
    "learning_rate": 0.00075,
    "max_grad_norm": 0.5,
    "total_timesteps": 100_000,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
}


def _build(env: str, hidden_sizes: list[int], activation: str, steps: int, **settings: Any) -> PPO:
    """A PPO whose `train` runs `steps` steps and evaluates nothing."""
    agent = {"hidden_layer_sizes": tuple(hidden_sizes), "activation": activation}
    settings |= {"total_timesteps": steps, "eval_freq": steps, "skip_initial_evaluation": True}
    ppo = PPO.create(env=env, agent_kwargs=agent, **settings)
    return ppo.replace(eval_callback=lambda algorithm, state, key: jnp.zeros(()))


def measure(task: dict[str, Any]) -> None:
    work, steps = task["work"], outcome.rollout_steps(task)
    ppo = _build(
        work["env"],
        work["hidden_sizes"],
        work["activation"],
        steps,
        num_envs=task["num_envs"],
        num_steps=task["rollout_length"],
        num_epochs=task["epochs"],
        num_minibatches=work["num_minibatches"],
        learning_rate=2.5e-4,
        max_grad_norm=0.5,
    )
    members = task["members"]
    # Many seeds as its README trains them.
    over = jax.vmap if members else lambda fn: fn
    key = jax.random.PRNGKey(0)
    state = jax.jit(over(ppo.init_state))(jax.random.split(key, members) if members else key)
    start = time.perf_counter()
    train = jax.jit(over(lambda state: ppo.train(train_state=state)[0])).lower(state).compile()
    compiled = time.perf_counter() - start
    state = jax.block_until_ready(train(state))
    start = time.perf_counter()
    state = jax.block_until_ready(train(state))
    seconds = time.perf_counter() - start
    parameters = sum(x.size for x in jax.tree.leaves((state.actor_ts.params, state.critic_ts.params)))
    members = max(1, members)
    outcome.report(
        import_seconds=IMPORTED,
        compile_seconds=compiled,
        steps=steps * members,
        seconds=seconds,
        parameters=parameters // members,
        versions=VERSIONS,
    )


def solve(task: dict[str, Any]) -> None:
    from gymnax_greedy import greedy_return

    settings = dict(SOLVE)
    budget = settings.pop("total_timesteps")
    chunk = task["evaluate_every"]
    ppo = _build("CartPole-v1", [64, 64], "tanh", chunk, **settings)

    def greedy(params: Any, obs: Any) -> Any:
        return jnp.argmax(ppo.actor.apply(params, obs, method="_action_dist").logits, axis=-1)

    def advance(state: Any) -> tuple[Any, Any]:
        state, _ = ppo.train(train_state=state)
        key = jax.random.fold_in(state.rng, 1)
        return state, greedy_return(ppo.env, ppo.env_params, greedy, state.actor_ts.params, key)

    state = jax.jit(ppo.init_state)(jax.random.PRNGKey(task["seed"]))
    advance = jax.jit(advance)
    steps, mean = 0, 0.0
    while steps < budget and mean < task["target"]:
        state, mean = advance(state)
        steps += chunk
    outcome.report(steps=steps, eval_return=float(mean), versions=VERSIONS)


if __name__ == "__main__":
    given = outcome.task()
    {"measure": measure, "population": measure, "solve": solve}[given["job"]](given)
