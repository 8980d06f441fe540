"""What a search is asked for, checked."""

from __future__ import annotations

import dataclasses

from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import Rule, at_least, at_most, check, matches

# And their default number of trials.
METHODS = {"grid": 20, "random": 20, "optuna": 50, "pareto": 100, "pbt": 16}
SCORES = ("final", "mean")
DIRECTIONS = ("maximize", "minimize")
SAMPLERS = ("tpe", "gp", "cmaes")
PRUNERS = ("median", "asha", "hyperband", "none")
_MOST_TRIALS, _MOST_JOBS, _MOST_SEEDS = 100_000, 4096, 1000
_RULES: dict[str, tuple[Rule, ...]] = {
    "trials": (at_least(1), at_most(_MOST_TRIALS)),
    "jobs": (at_least(1), at_most(_MOST_JOBS)),
    "population": (at_least(1), at_most(_MOST_JOBS)),
    "seed": (at_least(0), at_most(2**32 - 1)),
    "verify": (at_least(0), at_most(_MOST_SEEDS)),
    "metric": (matches(r"\S+", "be a key of metrics.jsonl"),),
}
_NAMES = {
    "method": tuple(METHODS),
    "score": SCORES,
    "direction": DIRECTIONS,
    "sampler": SAMPLERS,
    "pruner": PRUNERS,
}
_OF_OPTUNA = ("sampler", "pruner", "storage")


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """How to search.

    Attributes:
      method: grid, random, optuna, pareto, pbt.
      trials: how many; None takes the method's default.
      workdir: the folder of the search; "" is runs/search-METHOD.
      metric, score, direction: see `Objective`.
      seed: of the proposals; all trials train with the configuration's own.
      jobs: trials at the same time.
      population: trials that are trained as one program, where they differ in numbers alone; 1: none.
      verify: fresh seeds with which the winner is trained again; 0: none.
      sampler: of optuna: tpe, gp, cmaes.
      pruner: of optuna, which stops trials early: median, asha, hyperband, none.
      storage: of optuna: a journal file or the URL of a database, for several hosts; "" is in the folder.

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
    jobs: int = 1
    population: int = 1
    verify: int = 3
    sampler: str = "tpe"
    pruner: str = "median"
    storage: str = ""

    def __post_init__(self) -> None:
        for name, valid in _NAMES.items():
            if (given := getattr(self, name)) not in valid:
                raise ConfigError(f"`{name}` (={given!r}) is none{did_you_mean(str(given), valid)}")
        for name in _OF_OPTUNA:
            if self.method != "optuna" and getattr(self, name) != getattr(type(self), name):
                raise ConfigError(f"`{name}` (={getattr(self, name)!r}) is for the method optuna")
        for name, rules in _RULES.items():
            kind = {"trials": int | None, "metric": str}.get(name, int)
            check(name, getattr(self, name), kind, *rules)
        if self.population > 1 and self.jobs > 1:
            raise ConfigError(
                f"`population` (={self.population}) trains trials as one program on all devices, so `jobs` "
                f"(={self.jobs}) must be 1"
            )
        if self.method == "pbt":
            self._check_pbt()
        if self.population > 1 and self.prunes:
            raise ConfigError(
                f"`population` (={self.population}) trains trials as one program, where none can be stopped "
                f"early: `pruner` (={self.pruner!r}) must be 'none'"
            )

    def _check_pbt(self) -> None:
        """Members are compared by what every run evaluates, and all train at once."""
        fixed = {"metric": "eval/return", "direction": "maximize", "jobs": 1, "population": 1}
        for name, value in fixed.items():
            if (given := getattr(self, name)) != value:
                raise ConfigError(f"`{name}` (={given!r}) must be {value!r} for the method pbt")
        if self.budget < 2:
            raise ConfigError(f"`trials` (={self.budget}) must be at least 2 for the method pbt")

    @property
    def budget(self) -> int:
        """How many trials."""
        return METHODS[self.method] if self.trials is None else self.trials

    @property
    def prunes(self) -> bool:
        """Whether trials may be stopped early."""
        return self.method == "optuna" and self.pruner != "none"

    @property
    def folder(self) -> str:
        return self.workdir or f"runs/search-{self.method}"

    @property
    def defining(self) -> dict[str, object]:
        """What a search that continues must keep."""
        free = {"trials", "workdir", "jobs", "population", "verify"}
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in free}
