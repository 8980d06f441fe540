"""A trial as Ray Tune sees it: an actor somewhere in the cluster whose child process trains one run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ray import tune

from jaxrl.config.data_files import read_object
from jaxrl.config.errors import RunError
from jaxrl.runs import ray_cluster
from jaxrl.runs.child_process import KILL_AFTER
from jaxrl.runs.executor import Ending, PlannedRun, ProcessExecutor
from jaxrl.runs.members import Lineage
from jaxrl.search.ray_search import PLAN, RayPlan, values_in
from jaxrl.search.trials import StudyTrial, TrialCurve, TrialRecords

# Keys of a result: the step of an evaluation, its score, and at the end the reason of a failure.
STEP = "step"
SCORE = "score"
REASON = "reason"
INTERRUPTED = "interrupted"
NODE = "node"  # of every result: the node that ran the trial
_POLL_SECONDS = 0.1
_ABOUT = "about.json"
_COPIED = ("metrics.jsonl", "config.json", ".run")  # a run resumes from these and a checkpoint


T = TypeVar("T")


class RayTrial(tune.Trainable):
    """Reports the evaluations of its run, which resumes from its folder; all nodes see that."""

    def setup(self, config: Mapping[str, Any]) -> None:
        """Prepares a trial; the run starts with the first step, when another's checkpoint may be loaded.

        Raises:
          RunError: this node does not see the folder of the search.
        """
        file = Path(config[PLAN])
        if not file.exists():
            raise RunError(
                f"{os.uname().nodename} does not see {file.parent}: all nodes must share --workdir"
            )
        self._plan = RayPlan.read(file)
        self._trial = StudyTrial(int(self.trial_name), values_in(config))
        self._folder = self._plan.folder.trial(self._trial.number).absolute()
        if (copy := _copy_for(self._folder)).exists() and not self._folder.exists():
            copy.rename(self._folder)  # A kill came between the two steps.
        self._node = ray_cluster.this_node()
        self._executor = ProcessExecutor(1)
        self._run: PlannedRun | None = None
        self._endings: list[Ending] = []
        self._reported = -1
        self._follow()

    def _follow(self) -> None:
        self._curve = TrialCurve(self._folder, self._plan.task.objective.metric)
        self._curve.poll()

    def step(self) -> dict[str, Any]:
        """Waits for the next evaluation, or for the end."""
        if self._run is None:
            self._run = self._start()
        while True:
            self._endings += self._executor.poll()
            self._curve.poll()
            if (result := self._evaluation(self._run)) is not None:
                return result
            if self._endings:
                return self._final_result() | {REASON: self._endings[0].reason}
            if self._plan.stop_file.exists():
                self._executor.close()
                return self._final_result() | {INTERRUPTED: True}
            time.sleep(_POLL_SECONDS)

    def _evaluation(self, run: PlannedRun) -> dict[str, Any] | None:
        """The next evaluation that Ray does not know, except the last, which is part of the final result."""
        for step, values in self._curve.history():
            if self._reported < step < run.config.stop.most_steps:
                self._reported = step
                if (score := self._plan.task.objective.of(values)) is not None:
                    return {STEP: step, SCORE: score, NODE: self._node}
        return None

    def _final_result(self) -> dict[str, Any]:
        score = self._score()
        result = {STEP: self._curve.step, NODE: self._node, "done": True}
        return result | ({} if score is None else {SCORE: score})

    def _start(self) -> PlannedRun:
        """Starts the run."""
        options = self._plan.task.options
        if options.scheduler == "pbt":  # Others were compared with its score from before.
            self._reported = self._curve.step
        if options.gpus_per_trial and options.gpus_per_trial < 1:
            # JAX takes three quarters of a GPU otherwise, so that a second run finds no memory.
            share = f"{0.9 * options.gpus_per_trial:.2f}"
            os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", share)
        run = self._plan_run()
        self._wait_until_free(run, lambda run: self._executor.start([run]))
        return run

    def _plan_run(self) -> PlannedRun:
        config = self._plan.task.config_of(self._trial)
        return PlannedRun(str(self._trial.number), config, self._folder)

    def _wait_until_free(self, run: PlannedRun, take: Callable[[PlannedRun], T]) -> T:
        """The result of `take` once the folder is free: a run that was stopped may still be saving.

        Raises:
          RunError: another process keeps the folder.
        """
        deadline = time.monotonic() + KILL_AFTER
        while not (taken := take(run)):
            if time.monotonic() > deadline:
                raise RunError(f"{run.folder} is in use by another process")
            time.sleep(_POLL_SECONDS)
        return taken

    def cleanup(self) -> None:
        """Lets the run save, and ends it."""
        self._executor.close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Copies the run up to its latest evaluation, for population based training.

        Raises:
          RunError: it has no checkpoint.
        """
        copy = Path(checkpoint_dir) / "run"
        deadline = time.monotonic() + KILL_AFTER
        while True:
            saved = self._saved_steps()
            if saved and saved[-1] >= min(self._reported, self._curve.step):
                # The run continues meanwhile, and may remove files that are being copied.
                with contextlib.suppress(OSError, shutil.Error):
                    source = self._folder / "checkpoints" / str(saved[-1])
                    shutil.copytree(source, copy / "checkpoints" / source.name)
                    break
            if time.monotonic() > deadline:
                raise RunError(f"{self._folder} has no checkpoint that another trial could take over")
            shutil.rmtree(copy, ignore_errors=True)
            time.sleep(_POLL_SECONDS)
        for name in _COPIED:
            shutil.copyfile(self._folder / name, copy / name)
        about = {"number": self._trial.number, "step": saved[-1], "score": self._score()}
        (copy.parent / _ABOUT).write_text(json.dumps(about))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Takes over the run of another trial, with the new values of this one."""
        place = Path(checkpoint_dir)
        about = read_object(place / _ABOUT)
        if about["number"] == self._trial.number:
            return
        line = {
            "step": about["step"],
            "member": str(self._trial.number),
            "source": str(about["number"]),
            "score": self._score(),
            "source_score": about["score"],
            "values": {name.rpartition(".")[2]: value for name, value in self._trial.values.items()},
        }
        search = self._plan.folder.path
        with TrialRecords(search).lock():
            Lineage.of(search).append([line])
        lock = self._wait_until_free(self._plan_run(), PlannedRun.take_lock)
        assert lock is not None
        with lock:
            copy = _copy_for(self._folder)
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(place / "run", copy)
            shutil.rmtree(self._folder, ignore_errors=True)
            copy.rename(self._folder)
        self._follow()

    def _score(self) -> float | None:
        return self._plan.task.objective.of(self._curve.curve)

    def _saved_steps(self) -> list[int]:
        """The steps of the run's complete checkpoints."""
        whole = (self._folder / "checkpoints").glob("[0-9]*/commit_success.txt")
        return sorted(int(file.parent.name) for file in whole if file.parent.name.isdigit())


def _copy_for(folder: Path) -> Path:
    return folder.with_suffix(".copy")
