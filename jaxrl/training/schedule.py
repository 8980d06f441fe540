"""When something is due in a run, and when the run ends."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.config import Config
from jaxrl.parallel.coordination import Agreement
from jaxrl.training.progress import Progress


@dataclass(frozen=True)
class Due:
    """What the host does at the end of an iteration."""

    row: bool
    evaluation: bool
    checkpoint: bool


@dataclass(frozen=True)
class Schedule:
    """The intervals and budgets of a configuration, and what the processes of the run agreed on."""

    config: Config
    agreement: Agreement

    def due(self, iteration: int) -> Due:
        """What is due at the end of `iteration`."""
        config = self.config
        final = iteration >= config.num_iterations
        return Due(
            row=iteration % config.log_iterations == 0,
            evaluation=_is_multiple(iteration, config.evaluate_iterations),
            # The checkpoint of the final state comes after its evaluation, whenever that is due.
            checkpoint=_is_multiple(iteration, config.checkpoint_iterations) and not final,
        )

    def stop_reason(self, progress: Progress) -> str | None:
        """Why the run ends here: the name of a signal, "return", "steps" or "seconds"; None to train on."""
        stop, finished = self.config.stop, progress.iteration >= self.config.num_iterations
        if self.agreement.signum is not None and not finished:
            return self.agreement.interruption.name
        evaluation = progress.evaluation
        if stop.target_return is not None and evaluation and evaluation.mean >= stop.target_return:
            return "return"
        if finished:
            return "steps"
        if stop.seconds is not None and self.agreement.seconds >= stop.seconds:
            return "seconds"
        return None


def _is_multiple(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0
