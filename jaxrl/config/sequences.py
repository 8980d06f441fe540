"""The rules of sections whose algorithms learn from replayed sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxrl.config.errors import ConfigError

if TYPE_CHECKING:
    from jaxrl.config.r2d2 import R2D2Config
    from jaxrl.config.sac import SACConfig

MOST_ROWS = 100_000  # of one sequence


def check_sequences(section: R2D2Config | SACConfig, name: str, num_envs: int, unseen: int) -> None:
    """Raises ConfigError if sequences begin where no carry is stored, or the memory holds no batch of them.

    Args:
      section: the fields.
      name: of the section.
      num_envs: of all devices.
      unseen: see `ReplayConfig.check_sizes`.
    """
    if section.interval < 1:
        raise ConfigError(
            f"`{name}.overlap` (={section.overlap}) must be below "
            f"`{name}.trace_length` (={section.trace_length})"
        )
    if section.rollout_length % section.interval:
        raise ConfigError(
            f"`{name}.trace_length` (={section.trace_length}) less `{name}.overlap` (={section.overlap}) "
            f"must divide `{name}.rollout_length` (={section.rollout_length}): sequences begin at stored "
            "carries"
        )
    window = section.burn_in + section.trace_length + section.n_step
    skipped = -(-unseen // section.interval)
    kept = max((section.rows(num_envs) - window) // section.interval + 1 - skipped, 0) * num_envs
    if kept < section.batch_size:
        raise ConfigError(
            f"`{name}.capacity` (={section.capacity}) is below a batch: {num_envs} environments keep {kept} "
            f"whole sequences of {window} steps, `{name}.batch_size` (={section.batch_size}) are drawn"
        )
