"""The sections that choose what training plays: tasks, levels and opponents."""

from __future__ import annotations

import dataclasses

from jaxrl.config.fields import (
    LARGEST_INT32,
    above,
    at_most,
    at_most_elements,
    between,
    bounds,
    field,
    matches,
    one_of,
    require_divides,
)

STAGES = "stages"
# Level replay, by learning potential.
PLR = "plr"
ROBUST_PLR = "robust_plr"
ACCEL = "accel"
LEARNABILITY = "learnability"
LEVEL_METHODS = (PLR, ROBUST_PLR, ACCEL, LEARNABILITY)
_NAMES = ", ".join((STAGES, *LEVEL_METHODS))
MOST_STAGES = 100
# Scores of levels, and how their probabilities follow.
POSITIVE_VALUE_LOSS = "positive_value_loss"
L1_VALUE_LOSS = "l1_value_loss"
MAX_MONTE_CARLO = "max_mc"
RANK = "rank"
_MOST_LEVELS = 1_000_000
# Sampling of opponents, and the one that a full pool drops.
PRIORITIZED = "prioritized"
OLDEST = "oldest"


@dataclasses.dataclass(frozen=True)
class CurriculumConfig:
    """The tasks that environments get in training (docs/curriculum.md)."""

    name: str = field(
        STAGES,
        matches("|".join((STAGES, *LEVEL_METHODS, ".+:.+")), f"be {_NAMES}, or module:Class"),
        help="the sampler of tasks: stages; level replay by plr, robust_plr, accel or "
        "learnability (the section levels); or module:Class, a custom task sampler. With "
        "stages, but none given, each episode has the default task",
        fixed=True,
        names_module=True,
    )
    file: str = field(
        "",
        help="file of stages, the name of shipped ones (navigation, platformer), or auto, the "
        "environment's; a run stores its contents in curriculum.stages",
    )
    stages: tuple[str, ...] = field(
        (), help="the stages themselves, each as JSON, instead of a file", fixed=True
    )
    difficulties: tuple[float, ...] = field(
        (),
        at_most_elements(MOST_STAGES),
        help="a plain list instead: the values of curriculum.parameter, one after the other",
    )
    parameter: str = field(
        "difficulty",
        matches(r"\w+", "be a name"),
        help="for difficulties: a field of the environment's tasks, or a scale that it names; "
        "otherwise an argument of the environment, which is recreated for each",
    )
    iterations: int = field(100, *bounds(1, LARGEST_INT32), help="for each of curriculum.difficulties")
    num_stages: int = field(
        0, *bounds(0, MOST_STAGES), help="number of stages to use, from the first; 0: all"
    )
    start_stage: int = field(
        1, *bounds(1, LARGEST_INT32), help="the first stage to play, counted from 1", fixed=True
    )

    @property
    def is_used(self) -> bool:
        """True if tasks are chosen."""
        return bool(self.name != STAGES or self.stages)

    @property
    def masks_rows(self) -> bool:
        """True if the rows of some tasks may carry no loss."""
        return self.name not in (STAGES, PLR, LEARNABILITY)


@dataclasses.dataclass(frozen=True)
class LevelsConfig:
    """Level replay: levels chosen by their learning potential (docs/levels.md)."""

    capacity: int = field(
        4000,
        *bounds(1, _MOST_LEVELS),
        help="levels in the buffer; with a pool of levels, the whole pool instead",
        fixed=True,
    )
    replay: float = field(
        0.8,
        between(0.0, 1.0),
        help="share of the episodes in levels of the buffer, once it is filled; the others are new levels",
    )
    fill: float = field(
        0.5,
        between(0.0, 1.0),
        help="share of the buffer to fill before any replay; or as many episodes, if levels come again",
    )
    score: str = field(
        MAX_MONTE_CARLO,
        one_of(POSITIVE_VALUE_LOSS, L1_VALUE_LOSS, MAX_MONTE_CARLO),
        help="score of a level, from its latest episodes: the mean over steps of the positive part of the "
        "advantage or of its magnitude, or the best return so far minus the mean value",
    )
    prioritization: str = field(
        RANK,
        one_of(RANK, "proportional"),
        help="the probability of a level follows the rank of its score, or the score",
    )
    temperature: float = field(
        0.3,
        above(0.0),
        help="1: probabilities proportional to 1 / rank, or to the score; near 0 only the best is replayed",
    )
    staleness: float = field(
        0.3,
        between(0.0, 1.0),
        help="share of the replays by staleness, the time since a level was last played, instead of by score",
    )
    refresh_iterations: int = field(
        50,
        *bounds(1, LARGEST_INT32),
        help="for learnability: iterations between choices of levels by separate rollouts",
    )
    candidates: int = field(
        1000, *bounds(1, _MOST_LEVELS), help="for learnability: random levels played for each choice"
    )
    kept: int = field(
        250,
        *bounds(1, _MOST_LEVELS),
        help="for learnability: number of these played in training until the next choice",
        fixed=True,
    )
    episodes: int = field(
        5, *bounds(2, 1000), help="for learnability: episodes in each, for its success rate"
    )


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
        one_of("uniform", PRIORITIZED),
        help="sampling of the pool's opponents: uniform, or prioritized fictitious self-play, "
        "by (1 - score)^2 of the policy against each",
    )
    drop: str = field(
        "weakest", one_of("weakest", OLDEST), help="the snapshot that a full pool drops for a new one"
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
        described = f"the {envs_per_device} environments of a device"
        require_divides("selfplay.groups", self.groups, envs_per_device, described)
