"""The options of a search, checked."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import Rule, above, bounds, check, matches

# Methods, with their default numbers of trials.
METHODS = {"grid": 20, "random": 20, "optuna": 50, "pareto": 100, "pbt": 16, "ray": 50}
_MEMBERS = 16  # of population based training on Ray
SCORES = ("final", "mean")
DIRECTIONS = ("maximize", "minimize")
SAMPLERS = ("tpe", "gp", "cmaes")
PRUNERS = ("median", "asha", "hyperband", "none")
SCHEDULERS = ("asha", "pbt", "none")
SEARCHERS = ("random", "bayesopt", "hyperopt")
_MOST_TRIALS = 100_000
_MOST_JOBS = 4096
_MOST_SEEDS = 1000
_RULES: dict[str, tuple[Rule, ...]] = {
    "trials": bounds(1, _MOST_TRIALS),
    "jobs": bounds(1, _MOST_JOBS),
    "population": bounds(1, _MOST_JOBS),
    "seed": bounds(0, 2**32 - 1),
    "verify": bounds(0, _MOST_SEEDS),
    "cpus_per_trial": bounds(1, _MOST_JOBS),
    "gpus_per_trial": bounds(0, _MOST_JOBS),
    "trial_timeout": (above(0),),
    "metric": (matches(r"\S+", "be a key of metrics.jsonl"),),
}
_NAMES = {
    "method": tuple(METHODS),
    "score": SCORES,
    "direction": DIRECTIONS,
    "sampler": SAMPLERS,
    "pruner": PRUNERS,
    "scheduler": SCHEDULERS,
    "searcher": SEARCHERS,
}
_OF_METHOD = {
    "optuna": ("sampler", "pruner", "storage"),
    "ray": ("scheduler", "searcher", "address", "cpus_per_trial", "gpus_per_trial"),
}
_KINDS: dict[str, Any] = {
    "trial_timeout": float | None,
    **dict.fromkeys(("trials", "jobs", "population"), int | None),
    "metric": str,
    "gpus_per_trial": float | None,
}
_LARGEST_PROGRAM = 32  # trials
_INDEPENDENT = ("random", "grid")  # No trial waits for the scores of others, nor are their seconds compared.


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options of a search.

    Attributes:
      method: grid, random, optuna, pareto, pbt, ray.
      trials: the number of trials; None for the method's default.
      workdir: the folder of the search; "" is runs/search-METHOD.
      metric, score, direction: see `Objective`.
      seed: of the proposals; all trials train with the configuration's own.
      jobs: trials at the same time, a process each; None: 1, or as in `population`.
      population: trials that are trained as one program, if they differ only in numbers; 1 for none. None:
        as many as there are, up to 32, if the space varies only numbers, and `jobs` and `trial_timeout`
        are None.
      trial_timeout: seconds after which a trial is stopped and counts as failed; None: never. Each trial is
        then a process.
      verify: the number of fresh seeds with which the winner is trained again; 0 for none.
      sampler: of optuna: tpe, gp, cmaes.
      pruner: of optuna, which stops trials early: median, asha, hyperband, none.
      storage: of optuna: a journal file or the URL of a database, for several hosts; "" is in the folder.
      scheduler: of ray: asha stops trials early, pbt lets them exchange what they learn, none.
      searcher: of ray, which chooses the points: random, bayesopt, hyperopt.
      address: of a running Ray cluster, HOST:PORT, ray://HOST:PORT or auto; "" starts Ray on this machine.
      cpus_per_trial: cores that Ray keeps for each trial.
      gpus_per_trial: GPUs, or a part of one; None for one if the cluster has any.

    Raises:
      ConfigError: one of them is wrong.
    """

    method: str = "random"
    trials: int | None = None
    workdir: str = ""
    metric: str = "eval/return"
    score: str = "final"
    direction: str = "maximize"
    seed: int = 0
    jobs: int | None = None
    population: int | None = None
    trial_timeout: float | None = None
    verify: int = 3
    sampler: str = "tpe"
    pruner: str = "median"
    storage: str = ""
    scheduler: str = "asha"
    searcher: str = "random"
    address: str = ""
    cpus_per_trial: int = 1
    gpus_per_trial: float | None = None

    def __post_init__(self) -> None:
        for name, valid in _NAMES.items():
            if (given := getattr(self, name)) not in valid:
                raise ConfigError(f"`{name}` (={given!r}) is none{did_you_mean(str(given), valid)}")
        for method, names in _OF_METHOD.items():
            for name in names:
                if self.method != method and getattr(self, name) != getattr(type(self), name):
                    raise ConfigError(f"`{name}` (={getattr(self, name)!r}) is for the method {method}")
        for name, rules in _RULES.items():
            check(name, getattr(self, name), _KINDS.get(name, int), *rules)
        together = self.population is not None and self.population > 1
        if together and self.jobs is not None and self.jobs > 1:
            raise ConfigError(
                f"`population` (={self.population}) trains trials as one program on all devices, so `jobs` "
                f"(={self.jobs}) must be 1"
            )
        if self.trial_timeout is not None and (together or self.exchanges or self.method == "ray"):
            raise ConfigError(
                f"`trial_timeout` (={self.trial_timeout:g}) stops the process of a trial; here trials share "
                "one, or belong to Ray"
            )
        if self.method == "ray":
            self._check_ray()
        if self.exchanges:
            self._check_pbt()
        if together and self.prunes:
            raise ConfigError(
                f"`population` (={self.population}) trains trials as one program, where none can be stopped "
                f"early: `pruner` (={self.pruner!r}) must be 'none'"
            )

    def _check_ray(self) -> None:
        for name in ("jobs", "population"):
            if (given := getattr(self, name)) not in (None, 1):
                raise ConfigError(
                    f"`{name}` (={given}) must be 1 for the method ray, which starts as many trials as its "
                    "cluster has room for: --cpus_per_trial, --gpus_per_trial"
                )
        if self.scheduler == "pbt" and self.searcher != "random":
            raise ConfigError(
                f"`searcher` (={self.searcher!r}) must be 'random' with the scheduler pbt, which varies "
                "values itself"
            )

    def _check_pbt(self) -> None:
        """Members are compared by the evaluation that every run has, and all train at once."""
        fixed = {"metric": "eval/return", "direction": "maximize", "jobs": 1, "population": 1}
        said = "method" if self.method == "pbt" else "scheduler"
        for name, value in fixed.items():
            if (given := getattr(self, name)) not in (None, value):
                raise ConfigError(f"`{name}` (={given!r}) must be {value!r} for the {said} pbt")
        if self.budget < 2:
            raise ConfigError(f"`trials` (={self.budget}) must be at least 2 for the {said} pbt")

    @property
    def budget(self) -> int:
        """The number of trials."""
        if self.trials is not None:
            return self.trials
        return _MEMBERS if self.exchanges else METHODS[self.method]

    def program_size(self, alike: bool) -> int:
        """The number of trials in one program; `alike`: they differ only in numbers."""
        if self.population is not None:
            return self.population
        free = self.jobs is None and self.trial_timeout is None
        default = alike and free and self.method in _INDEPENDENT
        return min(self.budget, _LARGEST_PROGRAM) if default else 1

    @property
    def prunes(self) -> bool:
        """True if trials may be stopped early."""
        return (self.method == "optuna" and self.pruner != "none") or (
            self.method == "ray" and self.scheduler == "asha"
        )

    @property
    def exchanges(self) -> bool:
        """True if trials take over the learnt state of others."""
        return self.method == "pbt" or (self.method == "ray" and self.scheduler == "pbt")

    @property
    def folder(self) -> str:
        return self.workdir or f"runs/search-{self.method}"

    @property
    def defining(self) -> dict[str, object]:
        """The options that must not change when a search is continued."""
        free = {"trials", "workdir", "jobs", "population", "trial_timeout", "verify"}
        # The place of trials has no influence on results; nor have Ray's options without Ray.
        free |= {"address", "cpus_per_trial", "gpus_per_trial"}
        free |= set() if self.method == "ray" else {"scheduler", "searcher"}
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in free}
        # Members that come later have nobody to exchange with, and their process forgets the others' copies.
        return found | ({"trials": self.budget} if self.method == "pbt" else {})
