"""A study in optuna, with its samplers, its pruners, and a storage that several hosts may share."""

from __future__ import annotations

import datetime
import json
import os
import random
import socket
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.config import ConfigError, check_config, installation
from jaxrl.search.dimension import Dimension
from jaxrl.search.search_folder import SearchFolder, study_name
from jaxrl.search.search_options import SearchOptions
from jaxrl.search.study import Study, draw, generator
from jaxrl.search.trials import DONE, FAILED, PRUNED, RUNNING, StudyTrial, Task, TrialRecords

if TYPE_CHECKING:
    import optuna

# Parts of databases' errors when two processes create the same tables.
_RACES = ("already exists", "UNIQUE constraint", "duplicate key", "is locked")
_MOST_ASKS = 20  # in a row without a valid point; then a random one is sampled
_ABANDONED = datetime.timedelta(minutes=10)  # after this long a trial without an owner counts as abandoned
_INVALID = "jaxrl_invalid"
_OWNER = "jaxrl_owner"
_SECONDS = "jaxrl_seconds"
_REASON = "jaxrl_reason"


class OptunaStudy(Study):
    """Trials numbered by optuna; this folder's are also in `trials.jsonl`."""

    def __init__(self, task: Task, folder: SearchFolder) -> None:
        """Opens or creates the study, which has the same name in all processes that take part.

        Raises:
          ConfigError: optuna or a package of the sampler is missing, or the storage cannot be opened.
        """
        self._task = task
        self._options = task.options
        self._folder = folder.path
        self._owner = f"{socket.gethostname()}:{self._folder.resolve()}"
        self._records = TrialRecords(self._folder)
        self._optuna = _import_optuna(self._options)
        self._study = self._open()
        self._reported: dict[int, set[int]] = {}
        with self._records.lock():
            self._recover()

    def _open(self) -> optuna.Study:
        """Opens the study; tries again if another process creates the same database at this moment."""
        attempts = 5
        while True:
            attempts -= 1
            try:
                return self._create()
            except ConfigError as error:
                if not attempts or not any(sign in str(error) for sign in _RACES):
                    raise
            time.sleep(random.uniform(0.2, 1.0))

    def _create(self) -> optuna.Study:
        options = self._options
        name = study_name(check_config(self._task.config), self._task.space, options)
        try:
            return self._optuna.create_study(
                study_name=name,
                storage=_storage(self._optuna, options.storage, self._folder),
                direction=options.direction,
                pruner=self._pruner(),
                load_if_exists=True,
            )
        except (OSError, ImportError, ValueError, self._optuna.exceptions.OptunaError) as error:
            raise ConfigError(_unusable(options.storage, error)) from error
        except Exception as error:  # sqlalchemy's, an optional package
            if not type(error).__module__.startswith("sqlalchemy"):
                raise
            raise ConfigError(_unusable(options.storage, error)) from error

    def _pruner(self) -> optuna.pruners.BasePruner:
        made = self._optuna.pruners
        steps = self._task.config.stop.steps
        grace = max(1, steps // 20)  # Steps before which no trial is stopped.
        match self._options.pruner:
            case "median":
                return made.MedianPruner(n_warmup_steps=grace)
            case "asha":
                return made.SuccessiveHalvingPruner(min_resource=grace, reduction_factor=3)
            case "hyperband":
                return made.HyperbandPruner(min_resource=grace, max_resource=steps, reduction_factor=3)
            case _:
                return made.NopPruner()

    def _sampler(self, count: int) -> optuna.samplers.BaseSampler:
        """A new sampler for each trial: one that keeps its generator would repeat itself in every process."""
        options = self._options
        made = self._optuna.samplers
        # Hosts that share a storage must not sample the same points at the same time.
        place = self._owner if options.storage else ""
        seed = int(generator(options.seed, count, place).integers(2**31))
        match options.sampler:
            case "gp":
                return made.GPSampler(seed=seed, warn_independent_sampling=False)
            case "cmaes":
                return made.CmaEsSampler(seed=seed, warn_independent_sampling=False)
            case _:
                return made.TPESampler(seed=seed)

    def trials(self) -> list[StudyTrial]:
        own = {trial.number: trial for trial in self._records.read()}
        for frozen in self._study.get_trials(deepcopy=False):
            if frozen.number not in own and (trial := self._foreign(frozen)) is not None:
                own[frozen.number] = trial
        return [own[number] for number in sorted(own)]

    def propose(self) -> StudyTrial | None:
        budget = self._options.budget
        with self._records.lock():
            trials = self.trials()
            if len(trials) >= budget:
                return None
            trial, values = self._ask()
            before = sum(other.number < trial.number for other in self.trials())
            if before >= budget:  # Another host was faster.
                self._withdraw(trial)
                return None
            trial.set_user_attr(_OWNER, self._owner)
            proposed = StudyTrial(trial.number, values)
            self._records.append(proposed)
            return proposed

    def _ask(self) -> tuple[optuna.Trial, dict[str, Any]]:
        """The next trial and its values, which are valid together."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            for attempt in range(_MOST_ASKS + 1):
                count = len(self._study.get_trials(deepcopy=False))
                self._study.sampler = self._sampler(count)
                if attempt == _MOST_ASKS:
                    point = draw(self._task, generator(self._options.seed, count))
                    self._study.enqueue_trial({name: _plain(value) for name, value in point.items()})
                trial = self._study.ask()
                values = {d.name: _suggest(trial, d) for d in self._task.space.dimensions}
                if not self._task.problem(values):
                    break
                self._withdraw(trial)
        return trial, values

    def _withdraw(self, trial: optuna.Trial) -> None:
        """Withdraws a trial that is not to be run."""
        trial.set_user_attr(_INVALID, True)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def should_prune(self, trial: StudyTrial, step: int, score: float) -> bool:
        running = self._trial(trial.number)
        if trial.number not in self._reported:  # A trial that another process began has reported before.
            known = self._study.get_trials(deepcopy=False)[trial.number].intermediate_values
            self._reported[trial.number] = set(known)
        if step not in self._reported[trial.number]:
            self._reported[trial.number].add(step)
            running.report(score, step)
        return running.should_prune()

    def finish(self, trial: StudyTrial) -> None:
        running = self._trial(trial.number)
        states = self._optuna.trial.TrialState
        if not self._study.get_trials(deepcopy=False)[trial.number].state.is_finished():
            for name, value in ((_SECONDS, trial.seconds), (_REASON, trial.reason)):
                running.set_user_attr(name, value)
            if trial.state == DONE:
                self._study.tell(trial.number, trial.score)
            elif trial.state == PRUNED:
                self._study.tell(trial.number, state=states.PRUNED)
            else:
                self._study.tell(trial.number, state=states.FAIL)
        with self._records.lock():
            self._records.append(trial)

    def _trial(self, number: int) -> optuna.Trial:
        frozen = self._study.get_trials(deepcopy=False)[number]
        return self._optuna.trial.Trial(self._study, frozen._trial_id)

    def _recover(self) -> None:
        """Records trials of this folder that a kill kept out of its records; withdraws abandoned ones."""
        own = {trial.number for trial in self._records.read()}
        running = [self._optuna.trial.TrialState.RUNNING]
        for frozen in self._study.get_trials(deepcopy=False, states=running):
            owner = frozen.user_attrs.get(_OWNER)
            if frozen.number in own:
                continue
            if owner == self._owner and (trial := self._foreign(frozen)) is not None:
                self._records.append(StudyTrial(trial.number, trial.values))
                continue
            began = frozen.datetime_start or datetime.datetime.min
            if owner is None and (not self._options.storage or datetime.datetime.now() - began > _ABANDONED):
                self._withdraw(self._trial(frozen.number))

    def _foreign(self, frozen: optuna.trial.FrozenTrial) -> StudyTrial | None:
        """A trial as stored in optuna; None for one that was withdrawn, or has no values yet."""
        names = {dimension.name for dimension in self._task.space.dimensions}
        if frozen.user_attrs.get(_INVALID) or not names <= frozen.params.keys():
            return None
        states = self._optuna.trial.TrialState
        state = {states.COMPLETE: DONE, states.PRUNED: PRUNED, states.FAIL: FAILED}.get(frozen.state, RUNNING)
        return StudyTrial(
            number=frozen.number,
            values={d.name: _value(d, frozen.params[d.name]) for d in self._task.space.dimensions},
            state=state,
            score=frozen.value if state in (DONE, PRUNED) else None,
            seconds=frozen.user_attrs.get(_SECONDS),
            reason=str(frozen.user_attrs.get(_REASON, "")),
            here=False,
        )


def _import_optuna(options: SearchOptions) -> Any:
    installation.require("`--method` (='optuna')", "optuna", "optuna")
    import optuna

    for sampler, module, install in (
        ("gp", "torch", "pip install torch"),
        ("cmaes", "cmaes", installation.command("optuna")),
    ):
        if options.sampler == sampler:
            try:
                __import__(module)
            except ImportError as error:
                raise ConfigError(f"`--sampler` (={sampler!r}) needs {module}: {install}") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _storage(optuna: Any, given: str, folder: Path) -> Any:
    """A database by its URL, or a journal in a file that processes append to."""
    if "://" in given:
        return optuna.storages.RDBStorage(given)
    from optuna.storages.journal import JournalFileBackend

    file = os.path.abspath(given or folder / "optuna.journal")
    os.makedirs(os.path.dirname(file), exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(file))


def _unusable(storage: str, error: Exception) -> str:
    return f"`--storage` (={storage!r}) cannot be used: {' '.join(str(error).split())}"


def _plain(value: Any) -> Any:
    """A choice in a form that optuna accepts: lists as JSON."""
    return json.dumps(value) if isinstance(value, tuple) else value


def _suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    if dimension.form == "choice":
        chosen = trial.suggest_categorical(dimension.name, [_plain(x) for x in dimension.choices])
        return _value(dimension, chosen)
    log = dimension.form == "log"
    if dimension.is_integer:
        return trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=log)
    return trial.suggest_float(dimension.name, dimension.low, dimension.high, log=log)


def _value(dimension: Dimension, stored: Any) -> Any:
    if dimension.form != "choice":
        return stored
    by_plain: Mapping[Any, Any] = {_plain(x): x for x in dimension.choices}
    return by_plain[stored]
