"""The sections of the configuration, field by field: a frozen dataclass each.

Those of the network, the curriculum and the algorithms have their own modules.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any

from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import (
    LARGEST_COUNT,
    LARGEST_INT32,
    above,
    at_least,
    at_most,
    bounds,
    distinct,
    each,
    field,
    matches,
    not_empty,
    one_of,
    shorten,
)

# The modes of evaluations: the most likely actions, or sampled ones.
GREEDY = "greedy"
SAMPLED = "sampled"

# Far beyond what any machine has; more never starts, or never ends.
_MOST_WORKERS = 4_096
_MOST_EPISODES = 2**24
_MOST_MEMBERS = 4_096
_LONGEST_WAIT = 1_000_000.0  # seconds; the system's clocks count milliseconds in 32 bits


@dataclasses.dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    name: str = field("gymnax:CartPole-v1", help="suite:Name or suite:Name(argument=value)", fixed=True)
    num_envs: int = field(64, *bounds(1, LARGEST_INT32), help="environments over all devices", fixed=True)
    num_agents: int = field(
        0,
        *bounds(0, LARGEST_INT32),
        help="agents of each environment, each a row of the batch; 0: as the environment "
        "declares (docs/many_agents.md)",
        fixed=True,
    )
    wrappers: tuple[str, ...] = field(
        (), help='names from jaxrl.envs.wrappers, each "name" or "name(argument=value)"', fixed=True
    )
    stagger: bool = field(
        True,
        help="cut first episodes off at random, if there is a time limit, so that ends spread",
        fixed=True,
    )
    tasks: tuple[str, ...] = field(
        (),
        distinct(),
        help="several environments for one policy, instead of name: each environment of a "
        "batch keeps one of them (docs/tasks.md)",
        fixed=True,
    )
    task_shares: tuple[int, ...] = field(
        (),
        each(at_least(1)),
        each(at_most(1000)),
        help="number of environments with each of the tasks, out of every sum(task_shares); (): one each",
        fixed=True,
    )
    success: str = field(
        "",
        help="when an episode is a success: a comparison of return, length or info.KEY, such "
        'as "return >= 195"; empty: by info.success, if the environment reports that',
        fixed=True,
    )

    @property
    def rows(self) -> int:
        """Rows of a batch over all devices: one for each agent of each environment."""
        return self.num_envs * max(1, self.num_agents)

    @property
    def task_period(self) -> int:
        """Every so many environments have the same tasks again; 1 if there is one task."""
        return sum(self.task_shares) or max(1, len(self.tasks))


@dataclasses.dataclass(frozen=True)
class HostConfig:
    """Only for environments on the host: `envpool:`, `gymnasium:` and `pettingzoo:`."""

    overlap: bool | None = field(
        None,
        help="collect the next rollout while learning from this one, which is then one "
        "iteration old; none: if learning is on an accelerator",
    )
    fused: bool = field(
        True, help="on CPU a rollout is one program that steps the environments, if that is faster"
    )
    num_groups: int = field(
        2,
        *bounds(1, _MOST_WORKERS),
        help="one group steps while the policy chooses for another; 1: all step together",
    )
    num_workers: int = field(
        0,
        *bounds(0, _MOST_WORKERS),
        help="processes or threads that step environments, over all groups; 0: by the cores",
    )
    timeout: float = field(
        60.0,
        above(0),
        at_most(_LONGEST_WAIT),
        help="seconds after which an environment that does not answer ends the run",
    )


@dataclasses.dataclass(frozen=True)
class NormalizeConfig:
    """Scaling by running statistics."""

    observations: bool = field(
        False,
        help="scale observations to mean 0 and standard deviation 1, from the second iteration on; bytes and "
        "choices stay as they are",
        fixed=True,
    )
    rewards: bool = field(
        False, help="divide rewards by the standard deviation of the discounted return", fixed=True
    )
    clip_observations: float = field(10.0, above(0), help="largest magnitude of a normalised observation")
    clip_rewards: float = field(
        0.0, at_least(0), help="largest magnitude of a normalised reward; 0: no limit"
    )


@dataclasses.dataclass(frozen=True)
class StopConfig:
    """Training ends at the first of these."""

    steps: int | None = field(
        1_000_000,
        at_least(1),
        help="environment steps, rounded up to whole iterations; none: until a budget in "
        "seconds is used, and schedules follow stop.seconds",
    )
    seconds: float | None = field(
        None,
        above(0),
        help="seconds of training, after compilation and a first dispatch, without evaluations and "
        "checkpoints; none: no limit",
    )
    wall_seconds: float | None = field(
        None,
        above(0),
        help="seconds from the start of the process to its end, such as the time limit of a job: training "
        "ends early enough for an evaluation and a last checkpoint; none: no limit",
    )
    target_return: float | None = field(
        None, help="mean return of an evaluation, in the deciding mode; none: no limit", key="return"
    )
    every_mode: bool = field(
        False, help="stop.return must be reached in each of evaluate.modes, in the same evaluation"
    )

    @property
    def most_steps(self) -> int:
        """`steps`, or more than any run makes."""
        return LARGEST_COUNT if self.steps is None else self.steps


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """The destinations of metrics, and how often."""

    every_steps: int = field(
        0,
        at_least(0),
        help="environment steps between entries; 0: a fortieth of the budget, of steps or time, and at most "
        "50,000 steps",
    )
    writers: tuple[str, ...] = field(
        ("tensorboard", "jsonl"),
        each(one_of("tensorboard", "jsonl", "csv", "wandb", "mlflow", "neptune")),
        distinct(),
        help="destinations of metrics: tensorboard, jsonl, csv (files of the run's folder), "
        "wandb, mlflow, neptune (trackers; each needs its extra); () is none",
    )
    layers: bool = field(True, help="also log the gradient's norm by layer")
    project: str = field("jaxrl", help="project or experiment in a tracker")
    name: str = field("", help="the run's name in a tracker; empty: the end of the folder's path")


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation during training."""

    every_steps: int = field(
        250_000, at_least(0), help="environment steps between evaluations; 0: only at the end"
    )
    episodes: int = field(64, *bounds(1, _MOST_EPISODES), help="episodes per evaluation and mode")
    modes: tuple[str, ...] = field(
        (GREEDY, SAMPLED),
        each(one_of(GREEDY, SAMPLED)),
        distinct(),
        not_empty(),
        help="modes of episodes: greedy (the most likely actions), sampled, or both; then the "
        "mode with the higher return over the last three evaluations decides",
    )
    unseen: str = field(
        "", help="another environment with the same spaces, such as unseen levels; evaluated as well"
    )
    suite: str = field("", help="file or name of a suite that is also played, by category")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """The states that a run saves, for resuming."""

    every_steps: int = field(
        250_000, at_least(0), help="environment steps between checkpoints; 0: by time, and at the end"
    )
    every_seconds: float = field(
        60.0, at_least(0), help="seconds between checkpoints, whichever comes first; 0: only by steps"
    )
    keep: int = field(3, at_least(1), help="recent checkpoints to keep, besides the best")


@dataclasses.dataclass(frozen=True)
class PopulationConfig:
    """Several runs trained as one program (docs/populations.md)."""

    seeds: int = field(
        1,
        *bounds(1, _MOST_MEMBERS),
        help="train this many members, with `seed` and the following numbers, each in its own folder",
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class StorageConfig:
    """A copy of the run's folder elsewhere."""

    sync_to: str = field(
        "",
        matches(r"((s3|gs)://[^/]+/.*[^/].*)?", "be s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"),
        help="destination for a copy of the run's folder during training, such as "
        "s3://BUCKET/PREFIX (docs/storage.md); empty: none",
    )
    sync_every_steps: int = field(500_000, at_least(1), help="environment steps between copies")


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """Traces and profiles of the time spent."""

    start: int = field(0, at_least(0), help="the first step of a device trace")
    steps: int = field(
        0, at_least(0), help="steps of the trace, in whole iterations; 0: none, unless SIGUSR1 requests one"
    )
    host: bool = field(False, help="a profile of the host's Python over the whole run")


COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(r"(return|length|info\.(?P<key>[^\s<>=]+))\s*(?:(?P<sign>[<>]=?)\s*(?P<bound>\S+))?")


@dataclasses.dataclass(frozen=True)
class Success:
    """The rule of a success: `return >= 195`, `length <= 50`, `info.success`, `info.score > 3`.

    Attributes:
      text: as it was written.
      subject: "return", "length", or a key of the environment's info, whose largest value counts.
      is_info: which of the two.
      compare, bound: without a comparison, more than 0.
    """

    text: str
    subject: str
    is_info: bool
    compare: Callable[[Any, Any], Any]
    bound: float

    @classmethod
    def parse(cls, text: str, where: str) -> Success:
        """Reads a rule; ConfigError, beginning with the field `where`, if it is none."""
        found = _RULE.fullmatch(text.strip())
        bare = found is not None and found["sign"] is None
        if found is None or (bare and not found["key"]):
            form = "a comparison such as `return >= 195`, `length <= 50` or `info.KEY > 0`, or `info.KEY`"
            raise ConfigError(f"`{where}` (={shorten(text)}) must be {form}")
        try:
            bound = 0.0 if bare else float(found["bound"])
        except ValueError as error:
            raise ConfigError(f"`{where}` (={shorten(text)}) must compare with a number") from error
        compare = operator.gt if bare else COMPARISONS[found["sign"]]
        return cls(text.strip(), found["key"] or found[1], bool(found["key"]), compare, bound)
