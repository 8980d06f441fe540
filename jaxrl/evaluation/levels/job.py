"""`jaxrl evaluate RUN --levels=N`: plays, prints, writes the record and the plot."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxrl.config import ConfigError, check_same_spaces, installation, versions
from jaxrl.envs import registry
from jaxrl.envs.base import JaxEnv
from jaxrl.envs.vector import VectorEnv
from jaxrl.evaluation.levels import level_set
from jaxrl.evaluation.levels.player import LevelPlayer
from jaxrl.evaluation.modes import mode_name
from jaxrl.evaluation.trained_policy import TrainedPolicy
from jaxrl.experience.statistics import EpisodeReports
from jaxrl.runs.commits import commits, origin
from jaxrl.runs.folder import RunFolder

# Between the seeds of the rollouts that choose the worst levels and of the rollouts that score them.
_SECOND_SEED = 1_000_003
# Shares of the worst levels (CVaR, as Rutherford et al. 2024 measure it).
_PERCENTAGES = (1, 2, 5, 10, 20, 50, 100)


@dataclasses.dataclass(frozen=True)
class LevelQuestion:
    """The levels to play, and how often.

    Attributes:
      levels: how many.
      episodes: in each.
      sample: sample actions instead of taking the most likely ones.
      seed: decides the levels and the episodes.
      environment: another one with the same spaces; "": the run's.
      cvar: also play again, and report the success on the worst levels.
    """

    levels: int
    episodes: int
    sample: bool
    seed: int
    environment: str
    cvar: bool


def run(policy: TrainedPolicy, asked: LevelQuestion) -> None:
    """Plays the levels, prints the rates and writes the record.

    Raises:
      ConfigError: there are no such levels, no rule for when one is solved, or a package is missing.
    """
    if asked.cvar:
        installation.require("`--cvar`", "plot", "matplotlib")
    env = _environment(policy, asked)
    reports = EpisodeReports.of(env.spec, policy.config.env.success)
    if not reports.knows_success:
        raise ConfigError(
            f"`--levels` (={asked.levels}) needs `env.success`, for {env.spec.name} does not say when a "
            "level is solved"
        )
    tasks = level_set.choose(env, asked.levels, asked.seed)
    names, named = level_set.with_names(env)
    player = LevelPlayer(policy.agent, VectorEnv(env), policy.topology, reports, asked.episodes, asked.sample)
    first = player.solve_rates(policy.state, tasks, asked.seed)
    record: dict[str, Any] = {
        "step": policy.step,
        "environment": env.spec.name,
        "mode": mode_name(asked.sample),
        **{name: getattr(asked, name) for name in ("levels", "episodes", "seed")},
        "solve_rate": float(first.mean()),
    }
    if asked.cvar:
        second = player.solve_rates(policy.state, tasks, asked.seed + _SECOND_SEED)
        record["worst"] = worst_means(first, second)
        record["rates"] = {"chosen_by": first.tolist(), "scored": second.tolist()}
    if names:
        rates = player.solve_rates(policy.state, named, asked.seed)
        record["named"] = dict(zip(names, rates.tolist(), strict=True))
    _show(record)
    record |= {"versions": versions(), "commits": commits(), **origin()}
    folder = RunFolder(policy.folder)
    name = _name(record)
    print(f"written to {folder.write_evaluation(name, record)}")
    if asked.cvar:
        print(f"plot: {folder.write_evaluation_plot(name, _plot(record))}")


def _environment(policy: TrainedPolicy, asked: LevelQuestion) -> JaxEnv:
    config = policy.config
    name = asked.environment or policy.config.env.name
    if asked.environment:
        check_same_spaces("--environment", name, config.env)
    if registry.is_host(name):
        raise ConfigError(f"`--levels` (={asked.levels}) needs an environment with levels: {name} has none")
    return registry.make(name, config.env.wrappers)


def _name(record: Mapping[str, Any]) -> str:
    return "levels-step-{step}-{mode}-{levels}-seed-{seed}".format(**record)


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


def worst_means(
    chosen_by: np.ndarray, rates: np.ndarray, percentages: Sequence[float] = _PERCENTAGES
) -> dict[str, float]:
    """`worst_mean` by percentage, such as "10"."""
    return {f"{percent:g}": worst_mean(chosen_by, rates, percent) for percent in percentages}
