"""When something is due in a run, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from jaxrl.config import Config
from jaxrl.training.progress import Progress


@dataclass(frozen=True)
class Due:
    """What the host does at the end of an iteration."""

    row: bool
    evaluation: bool
    checkpoint: bool


@dataclass(frozen=True)
class Schedule:
    """The intervals and budgets of a configuration."""

    config: Config

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

    def stop_reason(self, progress: Progress, seconds: float, signal: str | None) -> str | None:
        """Why the run ends here: the name of a signal, "return", "steps" or "seconds"; None to train on.

        Args:
          progress: of the run.
          seconds: since the start of the run.
          signal: the name of the one that asks to stop, or None.
        """
        stop, finished = self.config.stop, progress.iteration >= self.config.num_iterations
        if signal is not None and not finished:
            return signal
        evaluation = progress.evaluation
        if stop.target_return is not None and evaluation and evaluation.mean >= stop.target_return:
            return "return"
        if finished:
            return "steps"
        if stop.seconds is not None and seconds >= stop.seconds:
            return "seconds"
        return None


def _is_multiple(iteration: int, every: int) -> bool:
    return every > 0 and iteration % every == 0
