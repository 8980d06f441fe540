"""The options of a search, each declared once: flags have the same names."""

from __future__ import annotations

import dataclasses

from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.fields import above, bounds, declarations, field, matches, one_of

# Methods, with their default numbers of trials.
_METHODS = {"grid": 20, "random": 20, "optuna": 50, "pareto": 100, "pbt": 16, "ray": 50}
_MEMBERS = 16  # of population based training on Ray
_MOST_JOBS = 4096
_OF_METHOD = {
    "optuna": ("sampler", "pruner", "storage"),
    "ray": ("scheduler", "searcher", "address", "cpus_per_trial", "gpus_per_trial"),
}
_LARGEST_PROGRAM = 32  # trials
_INDEPENDENT = ("random", "grid")  # No trial waits for the scores of others, nor are their seconds compared.


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """The options of a search, as the help of its flags has them; `workdir` "" is runs/search-METHOD.

    None as `population` makes one program if only numbers vary and neither `jobs` nor `trial_timeout` is
    given; as `trial_timeout` it never ends a trial.

    Raises:
      ConfigError: one of them is wrong.
    """

    method: str = field(
        "random",
        one_of(*_METHODS),
        help="random (default) or grid; optuna (needs that extra); pareto, by score and "
        "seconds (needs the search extra); pbt: one population whose members copy "
        "parameters; ray: Ray Tune (needs that extra)",
    )
    trials: int | None = field(
        None,
        *bounds(1, 100_000),
        help="how many (default: 20; a grid ends with its points; optuna and ray 50, pareto 100, the members "
        "of pbt 16)",
    )
    sampler: str = field(
        "tpe", one_of("tpe", "gp", "cmaes"), help="of optuna: tpe (default), gp (needs torch) or cmaes"
    )
    pruner: str = field(
        "median",
        one_of("median", "asha", "hyperband", "none"),
        help="of optuna, which stops hopeless trials: median (default), asha, hyperband or none",
    )
    storage: str = field(
        "",
        help="of optuna: a journal file, or the URL of a database such as sqlite:///study.db, for processes "
        "and hosts that share one study (default: a journal in DIR)",
    )
    scheduler: str = field(
        "asha",
        one_of("asha", "pbt", "none"),
        help="of ray: asha (default) stops hopeless trials, pbt lets them take over what the best have "
        "learnt; none",
    )
    searcher: str = field(
        "random",
        one_of("random", "bayesopt", "hyperopt"),
        help="of ray: random (default), bayesopt or hyperopt",
    )
    address: str = field(
        "",
        help="of ray: a running cluster, HOST:PORT, ray://HOST:PORT or auto (default: Ray is started on this "
        "machine)",
    )
    cpus_per_trial: int = field(
        1, *bounds(1, _MOST_JOBS), help="of ray: cores that each trial gets (default: 1)"
    )
    gpus_per_trial: float | None = field(
        None,
        *bounds(0, _MOST_JOBS),
        help="of ray: GPUs, or a part of one (default: 1 if the cluster has any)",
    )
    metric: str = field(
        "eval/return",
        matches(r"\S+", "be a key of metrics.jsonl"),
        help="what counts, of metrics.jsonl (default: eval/return)",
    )
    score: str = field(
        "final",
        one_of("final", "mean"),
        help="its final value (default), or the mean of all, which rewards learning early",
    )
    direction: str = field("maximize", one_of("maximize", "minimize"), help="maximize (default) or minimize")
    jobs: int | None = field(
        None, *bounds(1, _MOST_JOBS), help="trials at the same time, a process each (default: 1)"
    )
    population: int | None = field(
        None,
        *bounds(1, _MOST_JOBS),
        help="N trials as one program on all devices, if they differ in numbers alone (default, without "
        "--jobs: all of a random search or grid, up to 32); 1: none",
    )
    trial_timeout: float | None = field(
        None,
        above(0),
        help="seconds after which a trial is stopped and counts as failed; each is then a process",
    )
    verify: int = field(
        3,
        *bounds(0, 1000),
        help="fresh seeds with which the winner is trained again before it is called the best (default: 3; "
        "0: none)",
    )
    seed: int = field(
        0,
        *bounds(0, 2**32 - 1),
        help="decides the points that are tried (default: 0); what trials train with is --config.seed",
    )
    workdir: str = field(
        "",
        help="the folder of the search (default: runs/CONFIG/search-METHOD); the same command continues the "
        "search in it, also after a kill",
    )

    def __post_init__(self) -> None:
        for declared in declarations(SearchOptions):
            name, given = declared.name, getattr(self, declared.name)
            for rule in declared.rules:
                if rule.choices and given not in rule.choices:
                    raise ConfigError(
                        f"`{name}` (={given!r}) is none{did_you_mean(str(given), rule.choices)}"
                    )
        for method, names in _OF_METHOD.items():
            for name in names:
                if self.method != method and getattr(self, name) != getattr(type(self), name):
                    raise ConfigError(f"`{name}` (={getattr(self, name)!r}) is for the method {method}")
        for declared in filter(lambda declared: declared.rules, declarations(SearchOptions)):
            declared.check(getattr(self, declared.name))
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
        return _MEMBERS if self.exchanges else _METHODS[self.method]

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
