"""`jaxrl evaluate RUN --levels=N`: solve rates over many levels, on average and in the worst of them."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import Agent
from jaxrl.config import ConfigError, check_same_spaces, installation, versions
from jaxrl.envs import registry
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.tasks import level_pool, method_of_tasks, named_tasks
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation.evaluator import MAX_ENVIRONMENTS, STREAM, await_episodes
from jaxrl.evaluation.result import mode_name
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.experience.episodes import EpisodePlayer, Episodes
from jaxrl.experience.statistics import SUCCESS, EpisodeReports
from jaxrl.parallel.sharding import REPLICATED, SHARDED, Topology
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder
from jaxrl.types import Acting, Array, PyTree

# Between the seeds of the rollouts that choose the worst levels and of the rollouts that score them.
_SECOND_SEED = 1_000_003
# Shares of the worst levels (CVaR, as Rutherford et al. 2024 measure it).
_PERCENTAGES = (1, 2, 5, 10, 20, 50, 100)
# Keeps the keys of levels apart from the keys of episodes and of training.
_STREAM = 0x4C455645
_AT_ONCE = 4096
# At least one of so many samples for each level must be solvable.
_MOST_DRAWS = 100


def run(
    policy: TrainedPolicy,
    levels: int,
    episodes: int,
    sample: bool,
    seed: int,
    environment: str = "",
    cvar: bool = False,
) -> None:
    """Plays the levels, prints the rates and writes the record.

    Args:
      episodes: in each level.
      seed: decides the levels and the episodes.
      environment: another one with the same spaces; "": the run's.
      cvar: also play again, and report the success on the worst levels.

    Raises:
      ConfigError: there are no such levels, no rule for when one is solved, or a package is missing.
    """
    if cvar:
        installation.require("`--cvar`", "plot", "matplotlib")
    config = policy.config.env
    if environment:
        check_same_spaces("--environment", environment, config)
    name = environment or config.name
    if registry.is_host(name):
        raise ConfigError(f"`--levels` (={levels}) needs an environment with levels: {name} has none")
    env = registry.make(name, config.wrappers)
    reports = EpisodeReports.of(env.spec, config.success)
    if not reports.knows_success:
        raise ConfigError(
            f"`--levels` (={levels}) needs `env.success`, for {env.spec.name} does not say when a "
            "level is solved"
        )
    tasks = choose(env, levels, seed)
    names, named = with_names(env)
    solve_rates = player(policy.agent, VectorEnv(env), policy.topology, reports, episodes, sample)
    first = solve_rates(policy.state, tasks, seed)
    record: dict[str, Any] = {
        "step": policy.step,
        "environment": env.spec.name,
        "mode": mode_name(sample),
        "levels": levels,
        "episodes": episodes,
        "seed": seed,
        "solve_rate": float(first.mean()),
    }
    if cvar:
        second = solve_rates(policy.state, tasks, seed + _SECOND_SEED)
        record["worst"] = worst_means(first, second)
        record["rates"] = {"chosen_by": first.tolist(), "scored": second.tolist()}
    if names:
        record["named"] = dict(zip(names, solve_rates(policy.state, named, seed).tolist(), strict=True))
    _show(record)
    record |= {"versions": versions(), "commits": commits(), **origin()}
    file = "levels-step-{step}-{mode}-{levels}-seed-{seed}".format(**record)
    plot = _plot(record) if cvar else None
    print("\n".join(RunFolder(policy.folder).record_evaluation(file, record, plot)))


def _show(record: Mapping[str, Any]) -> None:
    print(f"levels      {record['levels']:,}, {record['episodes']} episodes in each ({record['mode']})")
    print(f"solve rate  {record['solve_rate']:.3f}")
    for percent, rate in record.get("worst", {}).items():
        if float(percent) < 100:
            print(f"worst {percent + '%':<5} {rate:.3f}")
    for name, rate in record.get("named", {}).items():
        print(f"{name:<15} {rate:.2f}")


def _plot(record: Mapping[str, Any]) -> bytes:
    """A PNG: the mean solve rate over the worst share of the levels, for every share."""
    from matplotlib.figure import Figure

    chosen_by, scored = (np.array(record["rates"][name]) for name in ("chosen_by", "scored"))
    shares = range(1, 101)
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(shares, [worst_mean(chosen_by, scored, share) for share in shares])
    axes.set(xlabel="worst share of the levels, percent", ylabel="solve rate", ylim=(0, 1), xlim=(0, 100))
    axes.set_title(f"{record['environment']}, step {record['step']:,}", fontsize="medium")
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=120)
    return written.getvalue()


def worst_mean(chosen_by: np.ndarray, rates: np.ndarray, percent: float) -> float:
    """The mean of `rates` over the `percent` of the levels, at least one, that `chosen_by` has lowest.

    Both are float64[N], from rollouts of different seeds: rates of levels that are chosen by the same
    rollouts would be too low. Equal ones are chosen in the order of the levels, which are random themselves.
    """
    if chosen_by.shape != rates.shape:
        raise ValueError(f"rates of {chosen_by.shape} and {rates.shape} levels cannot be compared")
    count = max(1, math.ceil(len(rates) * percent / 100))
    return float(rates[np.argsort(chosen_by, kind="stable")[:count]].mean())


def worst_means(chosen_by: np.ndarray, rates: np.ndarray) -> dict[str, float]:
    """`worst_mean` by percentage, such as "10"."""
    return {f"{percent:g}": worst_mean(chosen_by, rates, percent) for percent in _PERCENTAGES}


def choose(env: JaxEnv, count: int, seed: int) -> Any:
    """Levels [count, ...] on the host.

    If the environment samples levels, the first solvable ones, if it can tell; of a pool, random different
    ones.

    Raises:
      ConfigError: it has no levels, or not so many.
    """
    pool = level_pool(env)
    draw = method_of_tasks(env, "draw_task")
    if pool is not None:
        pool = jax.tree.map(np.asarray, pool)
        there = len(jax.tree.leaves(pool)[0])
        if count > there:
            raise ConfigError(f"`--levels` (={count}) must be at most {there}, all that {env.spec.name} has")
        chosen = np.sort(np.random.default_rng([_STREAM, seed]).permutation(there)[:count])
        return jax.tree.map(lambda x: x[chosen], pool)
    if draw is None:
        raise ConfigError(f"`--levels` (={count}) needs an environment with levels: {env.spec.name} has none")
    return _draw_solvable(draw, method_of_tasks(env, "is_solvable"), count, seed, env.spec.name)


def with_names(env: JaxEnv) -> tuple[tuple[str, ...], Any]:
    """The names of the environment's own levels, and these [names, ...]; None if it has none."""
    named: Mapping[str, Any] = named_tasks(env)
    if not named:
        return (), None
    return tuple(named), jax.tree.map(lambda *xs: np.stack(xs), *named.values())


def _draw_solvable(draw: Any, is_solvable: Any, count: int, seed: int, name: str) -> Any:
    base = jax.random.fold_in(jax.random.key(seed), _STREAM)

    @jax.jit
    def some(first: jax.Array) -> tuple[Any, jax.Array]:
        index = first + jnp.arange(_AT_ONCE)
        task = jax.vmap(draw)(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(base, index))
        return task, jnp.ones(_AT_ONCE, bool) if is_solvable is None else jax.vmap(is_solvable)(task)

    found: list[Any] = []
    have = 0
    for first in range(0, _MOST_DRAWS * count + _AT_ONCE, _AT_ONCE):
        task, solvable = jax.device_get(some(first))
        found.append(jax.tree.map(lambda x: x[solvable], task))  # noqa: B023
        have += int(solvable.sum())
        if have >= count:
            return jax.tree.map(lambda *xs: np.concatenate(xs)[:count], *found)
    raise ConfigError(f"`--levels` (={count}): too few random levels of {name} can be solved")


def player(
    agent: Agent, env: VectorEnv, topology: Topology, reports: EpisodeReports, episodes: int, sample: bool
) -> Callable[[Acting, PyTree, int], np.ndarray]:
    """Returns a function of a state, levels [N, ...] and a seed, which plays some episodes in each level.

    It returns float64[N], the share of successful ones, which depends on the seed and a level's index alone;
    `MAX_ENVIRONMENTS` levels are played at a time. `env` has tasks and is not staggered.
    """
    if sample:
        agent.require_samples()
    axis = topology.axis
    plays = EpisodePlayer(agent, env, reports)

    def part(state: Acting, key: Array, first: Array, count: Array, task: PyTree) -> Episodes:
        here = len(jax.tree.leaves(task)[0])
        index = first + axis.index() * here + jnp.arange(here)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        return plays.play(state, keys, jnp.where(index < count, episodes, 0), episodes, sample, task)

    program = topology.shard(part, (REPLICATED,) * 4 + (SHARDED,), SHARDED)

    def solve_rates(state: Acting, task: PyTree, seed: int) -> np.ndarray:
        count = len(jax.tree.leaves(task)[0])
        at_once = -(-min(count, MAX_ENVIRONMENTS) // axis.size) * axis.size
        key = topology.replicate(jax.random.fold_in(jax.random.key(seed), STREAM))
        found = []
        for first in range(0, count, at_once):
            rows = np.minimum(np.arange(first, first + at_once), count - 1)
            here = jax.tree.map(lambda x: x[rows], task)  # noqa: B023
            played = program(state, key, np.int32(first), np.int32(count), here)
            played = await_episodes(played, lambda: False)
            ended: dict[str, Any] = reports.final_values(
                played.tallies, played.episode_return, played.length, played.finished & played.played, np
            )
            found.append(ended[SUCCESS].value.astype(np.float64).mean(1)[: count - first])
        return np.concatenate(found)

    return solve_rates
