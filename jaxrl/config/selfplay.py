"""The section of self-play."""

from __future__ import annotations

import dataclasses

from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import LARGEST_INT32, above, at_most, between, bounds, field, one_of

UNIFORM = "uniform"
PRIORITIZED = "prioritized"
WEAKEST = "weakest"
OLDEST = "oldest"


@dataclasses.dataclass(frozen=True)
class SelfPlayConfig:
    """Two-player games against the policy and its past (docs/selfplay.md)."""

    enabled: bool = field(
        False, help="the policy itself and its past play the other seat of the game", fixed=True
    )
    pool_size: int = field(
        20, *bounds(1, 10_000), help="snapshots of the policy kept as opponents", fixed=True
    )
    every_steps: int = field(
        200_000, *bounds(1, LARGEST_INT32), help="environment steps until the next snapshot, at most"
    )
    win_rate: float = field(
        0.55,
        between(0.0, 1.0),
        help="a snapshot is taken earlier once the policy scores more than this against the "
        "last one, with a draw as half a win; 1: never",
    )
    games: int = field(400, *bounds(1, 1_000_000), help="games against a snapshot for that score")
    latest_share: float = field(
        0.8,
        between(0.0, 1.0),
        help="share of the environments whose opponent is the current policy; the others play "
        "against the pool",
    )
    random_moves: float = field(
        0.0,
        between(0.0, 1.0),
        help="largest probability of a random move of the current policy as opponent; it "
        "rises evenly from 0 over the environments",
    )
    groups: int = field(
        16,
        *bounds(1, 65_536),
        help="groups of environments, each with one opponent; divides the environments of a device",
        fixed=True,
    )
    swap_steps: int = field(
        50_000,
        *bounds(1, LARGEST_INT32),
        help="environment steps after which groups that play against the pool resample opponents",
    )
    opponents: str = field(
        PRIORITIZED,
        one_of(UNIFORM, PRIORITIZED),
        help="sampling of the pool's opponents: uniform, or prioritized fictitious self-play, "
        "by (1 - score)^2 of the policy against each",
    )
    drop: str = field(
        WEAKEST, one_of(WEAKEST, OLDEST), help="the snapshot that a full pool drops for a new one"
    )
    first_rating: float = field(
        0.0, above(-1e6), at_most(1e6), help="Elo rating of the untrained policy, the first of the pool"
    )

    @property
    def latest_groups(self) -> int:
        """The groups whose opponent is the policy as it is now."""
        return round(self.latest_share * self.groups)

    @property
    def pool_groups(self) -> int:
        """The groups whose opponents come from the pool."""
        return self.groups - self.latest_groups

    def check_counts(self, envs_per_device: int) -> None:
        """Raises ConfigError unless the groups share a device's environments evenly."""
        if envs_per_device % self.groups:
            raise ConfigError(
                f"`selfplay.groups` (={self.groups}) must divide the {envs_per_device} environments of a "
                "device"
            )
