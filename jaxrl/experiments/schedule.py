"""The order of an experiment: its cells one after the other, or side by side on the devices there are."""

from __future__ import annotations

import contextvars
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

from jaxrl.experiments.cells import ExperimentCell, ExperimentPlan
from jaxrl.experiments.experiment_options import ExperimentOptions
from jaxrl.experiments.runner import CellRunner
from jaxrl.runs.device_share import DeviceShare, shares_of
from jaxrl.runs.executor import visible_gpus
from jaxrl.runs.signals import Interruption

Ended = Callable[[ExperimentCell, str], object]


def jobs_of(options: ExperimentOptions, gpus: int) -> int:
    """The number of cells that run at the same time, of as many as there may be.

    With --jobs that many; else, with --num-devices GPUs for each, as many as have their own GPUs;
    else one, which takes all.
    """
    if options.jobs is not None:
        return options.jobs
    return max(1, gpus // options.num_devices) if options.num_devices else 1


def run_cells(
    plan: ExperimentPlan, interruption: Interruption, say: Callable[[str], object], ended: Ended
) -> None:
    """Runs all cells; each has a thread here that waits for its processes.

    Args:
      plan: of the experiment.
      interruption: a signal, after which running cells save and no other is started.
      say: is called with each line of progress, from any thread.
      ended: is called in this thread with every ended cell and the reason why it failed, "" if it did not.
    """
    gpus = visible_gpus()
    cells = plan.cells
    jobs = min(jobs_of(plan.options, len(gpus)), len(cells))
    each = plan.options.num_devices or max(1, len(gpus) // jobs)
    free: queue.SimpleQueue[DeviceShare] = queue.SimpleQueue()
    for share in shares_of(jobs, gpus, each):
        free.put(share)

    def run(cell: ExperimentCell) -> str | None:
        if interruption.signum is not None:
            return None
        share = free.get()
        try:
            return CellRunner(plan, cell, share, interruption, say).run()
        finally:
            free.put(share)

    with ThreadPoolExecutor(jobs, thread_name_prefix="cell") as pool:
        # Threads do not inherit the level of the log.
        started = {pool.submit(contextvars.copy_context().run, run, cell): cell for cell in cells}
        try:
            for future in as_completed(started):
                if (why := future.result()) is not None:
                    ended(started[future], why)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
