"""A whole search: check, run the trials, verify the winner, write the results."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, text
from jaxrl.config.declarations import algorithm_of
from jaxrl.config.environment import is_on_host
from jaxrl.config.errors import RunError
from jaxrl.config.files import load_config
from jaxrl.reporting.pages.page import require_packages
from jaxrl.runs.executor import Executor, ProcessExecutor, visible_gpus
from jaxrl.runs.signals import Interruption
from jaxrl.search import population, ray_search, search_report
from jaxrl.search.optuna_study import OptunaStudy
from jaxrl.search.pareto import ParetoSampler, pareto_front
from jaxrl.search.population import PopulationExecutor
from jaxrl.search.runner import SearchDisplay, TrialRunner, describe
from jaxrl.search.search_folder import SearchFolder
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.space import Space, require_trainable
from jaxrl.search.study import GridSampler, LocalStudy, RandomSampler, Sampler, Study
from jaxrl.search.trials import FAILED, StudyTrial, Task, TrialRecords
from jaxrl.search.winner import Verified, best_config, summary_of, verify


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
      trials: all trials, by number.
      best: the winner; None if the search was interrupted, or other processes still search.
      verified: its results with fresh seeds; None without verification.
      candidates: all trials that were verified, the winner first.
      config: the winner's configuration, to be trained; None without a winner.
    """

    folder: str
    trials: list[StudyTrial]
    best: StudyTrial | None = None
    verified: Verified | None = None
    candidates: tuple[Verified, ...] = ()
    config: ConfigDict | None = None


def optimize(
    config: ConfigDict | str, space: Mapping[str, Any] | Space, trials: int | None = None, **options: Any
) -> SearchResult:
    """Searches values of a configuration's fields, each trial being a run in a process of its own.

    A folder that holds the same search is continued.

    Args:
      config: the configuration that trials change; a ConfigDict, a config file or a shipped config's
        name.
      space: `{"ppo.learning_rate": {"log": [1e-5, 1e-2]}, ...}`, see `Space.parse`.
      trials: the number of trials; None for the method's default.
      options: of `SearchOptions`, such as `method="grid"`, `workdir="runs/mine"`, `jobs=2`.

    Raises:
      ConfigError: the configuration, the space or an option is wrong.
      RunError: no trial reached its end.
    """
    chosen = SearchOptions(trials=trials, **options)
    given = load_config(config) if isinstance(config, str) else config
    checked = space if isinstance(space, Space) else Space.parse(space, algorithm_of(given))
    return search(given, checked, chosen, Interruption())


def search(
    config: ConfigDict, space: Space, options: SearchOptions, interruption: Interruption
) -> SearchResult:
    """Searches as `optimize` does; a signal in `interruption` ends it, and it can be continued."""
    if options.method == "ray":
        ray_search.require_installed(options)
    on_host = is_on_host(config.env.name)
    if (options.program_size(alike=False) > 1 or options.method == "pbt") and on_host:
        raise ConfigError(
            f"`env.name` (={config.env.name!r}) runs on the host, "
            "where each trial needs a process: no population of them can be one program"
        )
    if config.stop.steps is None and (options.prunes or options.exchanges):
        raise ConfigError("`stop.steps` (=None) must be a number: this search compares trials by their steps")
    if ((options.population or 1) > 1 or options.method == "pbt") and (timed := _budgets_of_time(config)):
        given = config.stop[timed[0]]
        raise ConfigError(
            f"`stop.{timed[0]}` (={given:g}) must be None with `--population` or `--method=pbt`: trials of "
            "one program share the seconds; give them `stop.steps`"
        )
    if config.population.seeds > 1:
        raise ConfigError(
            f"`population.seeds` (={config.population.seeds}): a trial is a single run; --population=N "
            "trains N of them as one program"
        )
    numbers = require_trainable(space.probes(config), options.metric).numbers
    if options.exchanges:
        population.require_exchangeable(space, numbers)
    folder = SearchFolder(options.folder)
    with _one_line_if_full(folder), folder.claim(check_config(config), space, options):
        together = options.program_size(alike=not on_host and _are_alike(config, numbers, space))
        return _search(Task(config, space, options), together, folder, interruption)


@contextlib.contextmanager
def _one_line_if_full(folder: SearchFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(
            f"{error.filename or folder.path}: {error.strerror}; with free space the same command continues "
            "the search"
        ) from error


def _are_alike(config: ConfigDict, numbers: Collection[str], space: Space) -> bool:
    """True if trials are the same as one program, which has no stages and shares the time among them."""
    varies_numbers = all(dimension.name in numbers for dimension in space.dimensions)
    return varies_numbers and not config.stages and not _budgets_of_time(config)


def _budgets_of_time(config: ConfigDict) -> list[str]:
    """The fields of `stop` with a budget in seconds."""
    return [name for name in ("seconds", "wall_seconds") if config.stop[name] is not None]


def _search(task: Task, together: int, folder: SearchFolder, interruption: Interruption) -> SearchResult:
    options = task.options
    study, total, note = _study(task, folder)
    if together > 1 and options.population is None:
        note += "; trained as one program (--jobs=N: as N processes)"
    title = f"{options.method} search on {task.config.env.name}, {total} trials in {folder.path}{note}"
    jobs = None if options.method == "ray" else (options.jobs or 1) * together
    exchange = None
    if options.method == "pbt":
        exchange = population.exchange_of(task.config, task.space, options.seed, folder.path)
    one_program = together > 1 or exchange is not None
    with (
        contextlib.closing(SearchDisplay(title, total, jobs, task.objective)) as display,
        interruption.defer(),
    ):
        # Trials take hours: the packages of the report can be installed first.
        try:
            require_packages("search")
        except ConfigError as error:
            display.message(f"there will be no report: {error}")
        if options.method == "ray":
            alone = ray_search.run_trials(ray_search.RayPlan(task, folder), display, interruption)
        else:
            size = options.budget if exchange else together
            executor = _executor(options, size if one_program else None, display.message, exchange)
            with contextlib.closing(executor):
                alone = TrialRunner(task, study, executor, folder, display, interruption).run()
        found = study.trials()
        if options.exchanges:
            found = population.with_last_values(found, task.config, folder.path)
        display.message(display.line(found))
        unfinished = SearchResult(str(folder.path), found)
        if interruption.signum is not None:
            return unfinished
        if not alone:
            display.message("others still run: the last of them, or this command again, names the best")
            return unfinished
        with folder.claim_verification() as mine:
            if not mine:
                display.message("another process verifies the best")
                return unfinished
            size = max(together, options.verify)
            with contextlib.closing(
                _executor(options, size if one_program else None, display.message)
            ) as verifier:
                return _conclude(found, task, folder, verifier, interruption, display)


def _executor(
    options: SearchOptions,
    size: int | None,
    say: Callable[[str], object],
    exchange: Mapping[str, Any] | None = None,
) -> Executor:
    """Trains `size` runs as one program; None: each in a process."""
    if size is not None:
        return PopulationExecutor(size, exchange, say)
    return ProcessExecutor(options.jobs or 1, visible_gpus(), options.trial_timeout, say)


def _conclude(
    found: list[StudyTrial],
    task: Task,
    folder: SearchFolder,
    executor: Executor,
    interruption: Interruption,
    display: SearchDisplay,
) -> SearchResult:
    """Verifies the best and writes the results."""
    ranked = task.objective.rank(found)
    if not ranked:
        last = next((trial for trial in reversed(found) if trial.state == FAILED), None)
        why = f"; trial {last.number} failed: {last.reason}" if last else ""
        raise RunError(f"no trial of {folder.path} reached its end{why}")
    candidates: list[Verified] = []
    if task.options.verify:
        candidates = verify(ranked, task, folder, executor, interruption, display.message)
        if interruption.signum is not None:
            return SearchResult(str(folder.path), found)
    verified = candidates[0] if candidates else None
    best = verified.trial if verified else ranked[0]
    folder.write("best_config.py", best_config(best, verified, task))
    config = task.space.apply(task.config, best.values)
    result = SearchResult(str(folder.path), found, best, verified, tuple(candidates), config)
    front = pareto_front(found, task.objective)
    folder.write("result.json", json.dumps(_record(best, candidates, front, task), indent=2) + "\n")
    if front and task.options.method == "pareto":
        display.message("no trial is better in less time than these:")
        for trial in front:
            display.message(f"  {describe(trial)}")
    for line in conclusion(best, verified, folder):
        display.message(line)
    try:
        display.message(f"report: {search_report.write(found, candidates, task, folder)}")
    except ConfigError as error:
        display.message(f"no report: {error}")
    return result


def conclusion(best: StudyTrial, verified: Verified | None, folder: SearchFolder) -> Iterator[str]:
    """The lines on the best trial, with its searched and its verified score."""
    assert best.score is not None
    if verified is None:
        yield f"best: trial {best.number} with {text.number(best.score)}, not verified with other seeds"
    else:
        searched = f"best: trial {best.number}, searched {text.number(best.score)}"
        change = "" if math.isnan(verified.score) else f": {verified.score - best.score:+.4g}"
        yield f"{searched}, verified {summary_of(verified)}{change}"
    yield f"config: {folder.path}/best_config.py"


def _record(
    best: StudyTrial, candidates: Sequence[Verified], front: Sequence[StudyTrial], task: Task
) -> dict[str, Any]:
    """The content of result.json."""
    return {
        **dataclasses.asdict(task.objective),
        "best": {"trial": best.number, "values": dict(best.values), "searched": best.score},
        "front": [
            {"trial": t.number, "score": t.score, "seconds": t.seconds, "values": dict(t.values)}
            for t in front
        ],
        "verified": [
            {
                "trial": v.trial.number,
                "searched": v.trial.score,
                "verified": None if math.isnan(v.score) else v.score,
                "seeds": list(v.seeds),
                "scores": list(v.scores),
            }
            for v in candidates
        ],
    }


def _study(task: Task, folder: SearchFolder) -> tuple[Study, int, str]:
    """The study, the number of its trials, and a note for the title."""
    options = task.options
    total = options.budget
    note = ""
    if options.method == "optuna":
        return OptunaStudy(task, folder), total, f"; {options.sampler}, pruner {options.pruner}"
    if options.method == "ray":
        note = f"; {options.searcher}, scheduler {options.scheduler}"
    sampler: Sampler
    if options.method == "grid":
        sampler = GridSampler(task)
        total = min(total, sampler.size)
        if sampler.size > total:
            note = f"; the grid has {sampler.size} points, and the trials are a random part (--trials)"
        if sampler.invalid:
            note += f"; {sampler.invalid} combinations are not valid and left out"
    else:
        sampler = ParetoSampler(task) if options.method == "pareto" else RandomSampler(task)
    return LocalStudy(TrialRecords(folder.path), sampler, options.budget), total, note
