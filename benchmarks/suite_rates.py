"""Steps per second of suites in JAX: the bare suite, with its own automatic reset, and the adapter of it.

  taskset -c 1 python benchmarks/suite_rates.py
  taskset -c 1 python benchmarks/suite_rates.py craftax:Craftax-Classic-Symbolic-v1 --rounds=3
  taskset -c 1 python benchmarks/suite_rates.py navix:Navix-DoorKey-5x5-v0 --ratios=1,4,16,64

Arguments in a name, such as brax:reacher(backend="spring"), are those of the suite.

Both step `--envs` environments under jit, vmap and scan with the same random actions, in one process. Rounds
of both are timed in turn; printed are the median rates, and the median and range of the ratios of the rounds.
What differs by design: the adapter also hands out the true last observation of an episode, draws a new first
state for each episode (Brax's own wrapper starts every episode of an environment in the same state), and
resets some environments at a time (`EnvSpec.reset_ratio`).

With `--ratios` the adapter is timed with these reset ratios instead, 1 being all environments at once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl import envs
from jaxrl.envs.adapters.suite import load, raw_key, suite_rules
from jaxrl.envs.behaviour import random_action
from jaxrl.envs.names import parse_call
from jaxrl.envs.vector import VectorEnv

# (keys[B]) -> state; (keys[B], state, actions[B]) -> (state, whatever a learner reads).
Reset = Callable[[jax.Array], Any]
Step = Callable[[jax.Array, Any, jax.Array], tuple[Any, Any]]

NAMES = (
    "gymnax:CartPole-v1",
    'brax:reacher(backend="spring")',
    "craftax:Craftax-Classic-Symbolic-v1",
    "jumanji:Snake-v1",
    "navix:Navix-DoorKey-5x5-v0",
    "pgx:minatar-breakout",
    "playground:CartpoleBalance",
    "popgym_arcade:CountRecallEasy(partial_obs=True)",
    "xminigrid:MiniGrid-DoorKey-5x5",
)
_DISTINCT_ACTIONS = 16


def _gymnax(name: str) -> tuple[Reset, Step]:
    env, params = load("gymnax", "gymnax").make(name)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Any]:
        obs, state, reward, terminated, truncated, _ = env.step(key, state, action, params)
        return state, (obs, reward, terminated, truncated)

    return jax.vmap(lambda key: env.reset(key, params)[1]), jax.vmap(step)


def _brax(name: str, **kwargs: Any) -> tuple[Reset, Step]:
    package, wrappers = load("brax.envs", "brax"), load("brax.envs.wrappers.training", "brax")
    return _in_brax_form(wrappers.wrap(package.get_environment(name, **kwargs), episode_length=1000))


def _playground(name: str, **kwargs: Any) -> tuple[Reset, Step]:
    registry = load("mujoco_playground", "playground").registry
    env = registry.load(name, config_overrides={"impl": "jax"} | kwargs)
    length = int(registry.get_default_config(name).episode_length)
    wrapper = load("mujoco_playground", "playground").wrapper
    return _in_brax_form(wrapper.wrap_for_brax_training(env, episode_length=length))


def _in_brax_form(env: Any) -> tuple[Reset, Step]:
    def step(keys: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Any]:
        state = env.step(state, actions)
        return state, (state.obs, state.reward, state.done)

    return env.reset, step


def _craftax(name: str) -> tuple[Reset, Step]:
    env = load("craftax.craftax_env", "craftax").make_craftax_env_from_name(name, auto_reset=True)
    params = env.default_params

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Any]:
        obs, state, reward, done, _ = env.step(key, state, action, params)
        return state, (obs, reward, done)

    return jax.vmap(lambda key: env.reset(key, params)[1]), jax.vmap(step)


def _jumanji(name: str) -> tuple[Reset, Step]:
    package = load("jumanji", "jumanji")
    env = load("jumanji.wrappers", "jumanji").VmapAutoResetWrapper(package.make(name))

    def step(keys: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Any]:
        state, timestep = env.step(state, actions)
        return state, (timestep.observation, timestep.reward, timestep.discount, timestep.step_type)

    return lambda keys: env.reset(keys)[0], step


def _navix(name: str) -> tuple[Reset, Step]:
    navix = load("navix", "navix")
    env = navix.make(name, max_steps=100, observation_fn=navix.observations.symbolic)

    def step(key: jax.Array, timestep: Any, action: jax.Array) -> tuple[Any, Any]:
        timestep = env.step(timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.step_type)

    return jax.vmap(env.reset), jax.vmap(step)


def _pgx(name: str) -> tuple[Reset, Step]:
    env = load("pgx", "pgx").make(name)
    move = load("pgx.experimental.wrappers", "pgx").auto_reset(env.step, env.init)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Any]:
        state = move(state, action, key)
        return state, (state.observation, state.rewards, state.terminated, state.truncated)

    return jax.vmap(env.init), jax.vmap(step)


def _popgym_arcade(name: str, **kwargs: Any) -> tuple[Reset, Step]:
    """With the automatic reset of the gymnax that it was written for."""
    env, params = load("popgym_arcade", "popgym_arcade").make(name, **kwargs)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Any]:
        now, again = jax.random.split(key)
        obs, after, reward, done, _ = env.step_env(now, state, action, params)
        first_obs, first = env.reset_env(again, params)
        obs, state = jax.tree.map(lambda x, y: jnp.where(done, x, y), (first_obs, first), (obs, after))
        return state, (obs, reward, done)

    return jax.vmap(lambda key: env.reset_env(key, params)[1]), jax.vmap(step)


def _xminigrid(name: str) -> tuple[Reset, Step]:
    env, params = load("xminigrid", "xminigrid").make(name)
    env = load("xminigrid.wrappers", "xminigrid").GymAutoResetWrapper(env)

    def step(key: jax.Array, timestep: Any, action: jax.Array) -> tuple[Any, Any]:
        timestep = env.step(params, timestep, action)
        return timestep, (timestep.observation, timestep.reward, timestep.discount, timestep.step_type)

    return jax.vmap(lambda key: env.reset(params, key)), jax.vmap(step)


_BARE: dict[str, Callable[..., tuple[Reset, Step]]] = {
    "gymnax": _gymnax,
    "brax": _brax,
    "craftax": _craftax,
    "jumanji": _jumanji,
    "navix": _navix,
    "pgx": _pgx,
    "playground": _playground,
    "popgym_arcade": _popgym_arcade,
    "xminigrid": _xminigrid,
}


def adapted(name: str, ratio: int | None = None) -> tuple[Reset, Step]:
    """The adapter; with a reset ratio, first episodes are cut off at random, so that ends spread."""
    wrappers = () if ratio is None else (f"optimistic_resets(ratio={ratio})",)
    env = VectorEnv(envs.make(name, wrappers), stagger=ratio is not None)

    def step(keys: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Any]:
        state, found = env.step(keys, state, actions)
        return state, (found.obs, found.reward, found.terminated, found.truncated)

    return lambda keys: env.reset(keys)[0], step


def looped(reset: Reset, step: Step, keys: jax.Array, actions: jax.Array, steps: int) -> Callable[[], float]:
    """Compiles `steps` steps and makes those before the first measurement; the result times as many."""

    def one(loop: tuple[Any, jax.Array], t: jax.Array) -> tuple[tuple[Any, jax.Array], None]:
        state, total = loop
        now = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, t)
        state, read = step(now, state, actions[t % _DISTINCT_ACTIONS])
        # Everything that a policy and a learner would read has to be computed.
        return (state, total + sum(x.astype("float32").sum() for x in jax.tree.leaves(read))), None

    @jax.jit
    def run(state: Any, total: jax.Array, first: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(one, (state, total), first + jnp.arange(steps))[0]

    at: list[Any] = [run(jax.jit(reset)(keys), jnp.zeros(()), jnp.int32(0)), steps]

    def seconds() -> float:
        begun = time.perf_counter()
        at[0] = jax.block_until_ready(run(*at[0], jnp.int32(at[1])))
        at[1] += steps
        return time.perf_counter() - begun

    jax.block_until_ready(at[0])
    return seconds


def some_actions(name: str, keys: jax.Array) -> jax.Array:
    """Random actions of a few steps [T, B]."""
    env = envs.make(name)
    state, _ = jax.jit(VectorEnv(env).reset)(keys)
    choose = jax.vmap(random_action, in_axes=(None, 0, 0))
    draws = jax.random.split(jax.random.key(1), _DISTINCT_ACTIONS * len(keys))
    return jax.jit(jax.vmap(lambda keys: choose(env, keys, state.env)))(
        draws.reshape(_DISTINCT_ACTIONS, len(keys))
    )


def steps_in(seconds: float, probe: Callable[[], float], steps: int) -> int:
    """The number of steps that take about so long, by one more call of `probe`, which makes `steps`."""
    return max(5, int(steps * seconds / probe()))


def compare_with_bare(name: str, arguments: argparse.Namespace) -> str:
    """A row of the table of suites."""
    label, kwargs = parse_call(name)
    suite, _, short_name = label.partition(":")
    keys = jax.random.split(jax.random.key(0), arguments.envs)
    actions = some_actions(name, keys)
    steps = steps_in(arguments.seconds, looped(*adapted(name), keys, actions, 5), 5)
    with suite_rules():
        bare = looped(*_BARE[suite](short_name, **kwargs), jax.vmap(raw_key)(keys), actions, steps)
    ours = looped(*adapted(name), keys, actions, steps)
    pairs = [(bare(), ours()) for _ in range(arguments.rounds)]
    rate = [arguments.envs * steps / statistics.median(x) for x in zip(*pairs, strict=True)]
    ratios = sorted(b / o for b, o in pairs)
    return (
        f"| `{name}` | {rate[0]:,.0f} | {rate[1]:,.0f} | {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
    )


def compare_ratios(name: str, ratios: list[int], arguments: argparse.Namespace) -> str:
    """A row of milliseconds per step of all environments, by reset ratio."""
    keys = jax.random.split(jax.random.key(0), arguments.envs)
    actions = some_actions(name, keys)
    steps = steps_in(arguments.seconds, looped(*adapted(name, max(ratios)), keys, actions, 5), 5)
    programs = [looped(*adapted(name, ratio), keys, actions, steps) for ratio in ratios]
    rounds = [[program() for program in programs] for _ in range(arguments.rounds)]
    cost = [1000 * statistics.median(x) / steps for x in zip(*rounds, strict=True)]
    return f"| `{name}` | " + " | ".join(f"{x:.2f}" for x in cost) + " |"


def main() -> None:
    """Prints a row for each environment whose suite is installed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    parser.add_argument("--envs", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a round, about")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ratios", default="", help="such as 1,16: compare these reset ratios")
    arguments = parser.parse_args()
    ratios = [int(x) for x in arguments.ratios.split(",") if x]
    columns = [f"ratio {x}, ms" for x in ratios] or [
        "bare suite, steps/s",
        "adapter, steps/s",
        "adapter / bare",
    ]
    print(f"| environment | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name in arguments.names:
        try:
            row = compare_ratios(name, ratios, arguments) if ratios else compare_with_bare(name, arguments)
            print(row, flush=True)
        except ImportError as error:
            print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
