"""The data that flows through the trainer, and the dimension key for shape suffixes.

Dimension key, used as suffixes of array names (`obs_TBO`, `value_TB`):
  T  time steps of one rollout             B  environments of this device
  L  time steps of one sequence (chunk)    N  sequences, `T / L * B`
  O  the observation's own dimensions      A  action components or categories
  F  features                              H  units of the recurrent core
  K  iterations in one dispatch            M  minibatches of one epoch
  C  chunks of one rollout, `T / L`        G  groups of M environments, `B / M`
  E  environments of an evaluation         Q  episodes of one environment
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import flax.struct
import jax
import jax.numpy as jnp

Array = jax.Array
PyTree = Any
Carry = dict[str, Array]  # of a core, by the name of its part

_T = TypeVar("_T")


@dataclass(frozen=True)
class Sharded:
    """Marks a field whose dimension `axis` runs over environments, which devices share out.

    Fields without this mark are replicated. `jaxrl.parallel.sharding.specs` reads it.
    """

    axis: int


@dataclass(frozen=True)
class Transferable:
    """Marks a field that a warm start (`init_from`) may take from another run."""


@dataclass(frozen=True)
class Bulk:
    """Marks the rows of a large memory: after a failed iteration they are neither rolled back nor copied.

    Cursors and counts beside them are rolled back, so that rows of a failed iteration do not count.
    Checkpoints keep the rows as an item of their own (`jaxrl/runs/checkpoint/memory_item.py`). Random keys
    cannot be among them.
    """


def marks(cls: type[Any], kind: type[_T]) -> dict[str, _T]:
    """The marks of one kind on the fields of a dataclass, by field."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # of a class whose annotations only a type checker can read, such as a user's state
        return {}
    found = {name: [m for m in get_args(hint)[1:] if isinstance(m, kind)] for name, hint in hints.items()}
    return {name: first for name, (first, *_) in ((n, m) for n, m in found.items() if m)}


@dataclass(frozen=True)
class Axis:
    """The device axis as seen from inside the program; one of `size` 1 without a name needs no mesh.

    `platform`, such as "cpu", decides between ways to compute the same, and so does `runs_triton`: whether
    kernels written in Triton run on the devices.
    """

    name: str | None = None
    size: int = 1
    platform: str = "cpu"
    runs_triton: bool = False

    @property
    def pays_for_launches(self) -> bool:
        """True if few large kernels beat many small ones: the host launches each on a GPU, not on TPU or CPU.

        Callers choose between ways to compute the same, as `docs/design/0018-fewer-kernels.md` lists them.
        """
        return self.platform == "gpu"

    @property
    def unroll(self) -> int:
        """Steps in each turn of a loop over time that does little in each of them."""
        return 16 if self.pays_for_launches else 1

    def psum(self, tree: PyTree) -> PyTree:
        """Sums over devices."""
        # Of one device XLA for CPU would still make copies.
        return tree if self.name is None or self.size == 1 else jax.lax.psum(tree, self.name)

    def gather(self, x: Array) -> Array:
        """[size, ...], the values of all devices in their order, on each of them."""
        if self.name is None:
            return x[None]
        # A sum, as every other exchange between devices is one: XLA makes them together.
        return self.psum(jnp.zeros((self.size, *x.shape), x.dtype).at[self.index()].set(x))

    def scatter_sum(self, x: Array) -> Array:
        """[n / size], this device's part of the sum over devices of [n]."""
        if self.name is None:
            return x
        # Rows of 128 behind a first axis of devices: XLA for TPUs makes an all-reduce of other forms.
        part: Array = jax.lax.psum_scatter(x.reshape(self.size, -1, 128), self.name)
        return part.ravel()

    def all_gather(self, part: Array) -> Array:
        """[n], the parts [n / size] of all devices behind one another, on each of them."""
        if self.name is None:
            return part
        return jax.lax.all_gather(part, self.name, tiled=True)

    def index(self) -> Array | int:
        """This device's position."""
        return 0 if self.name is None else jax.lax.axis_index(self.name)


@flax.struct.dataclass
class BehaviourPolicy:
    """The facts that learning needs of an older policy that collected a trajectory; replicated.

    Attributes:
      obs_stats: the statistics by which it normalised observations, or None without normalisation.
    """

    obs_stats: PyTree


@flax.struct.dataclass
class EpisodeRows:
    """The episodes that ended in a rollout, one row for each step of each environment; [T, B].

    Attributes:
      ended: bool, True if an episode ended that counts: not a first one that was cut off early.
      done: bool, True if any ended.
      task: tree of [T, B, ...], the task that the episode began with.
      episode_return: float32, raw; where `ended`.
      length: int32, steps; where `ended`.
      success: float32, 1 or 0 where `ended`; None if nothing is known of it.
      reports: float32 by label, what the environment reported of it; 0 where that is nothing.
      valid: bool or None, as in a trajectory.
    """

    ended: Array
    done: Array
    task: PyTree
    episode_return: Array
    length: Array
    success: Array | None
    reports: dict[str, Array] = flax.struct.field(default_factory=dict)
    valid: Array | None = None


@flax.struct.dataclass
class Trajectory:
    """The facts of one rollout, time-major, and the agent's extras, alike from device and host collectors.

    Attributes:
      obs: [T, B, *O], a tree, in the observation's own dtype.
      reset: bool[T, B]; True if `obs` is the first of its episode: the carry is zeroed before it.
      action: [T, B, *A].
      action_mask: bool[T, B, A] or None; the actions allowed at `obs`.
      reward: float32[T, B], raw.
      terminated: bool[T, B].
      truncated: bool[T, B].
      carry: tree of [T / L, B, ...]; the carry *before* the first step of each chunk.
      next_obs: [B, *O], a tree; the observation that follows row T-1.
      extras: tree of [T, B, ...] that the agent adds: its outputs for `obs` and `action` when it acted.
      bootstrap: tree of [T, B, ...]; `Agent.bootstrap` of the final observation, with the carry after step t,
        where the episode was truncated, else 0. None if the agent needs no bootstrap.
      last: tree of [B, ...]; `Agent.bootstrap` of `next_obs`. None as `bootstrap`.
      valid: bool[T, B] or None (all valid); False on rows that are no transition (dummy rows of
        NEXT_STEP autoreset) and carry no loss.
      episodes: the episodes that ended, with their tasks; None without a task sampler.
      weight: float32[T, B], how much the loss of each step counts, relative to others; None: all alike.
      behaviour: the policy that acted, if it may be older than the one that learns; None if both are
        the same.
    """

    obs: Annotated[PyTree, Sharded(1)]
    reset: Annotated[Array, Sharded(1)]
    action: Annotated[Array, Sharded(1)]
    action_mask: Annotated[Array | None, Sharded(1)]
    reward: Annotated[Array, Sharded(1)]
    terminated: Annotated[Array, Sharded(1)]
    truncated: Annotated[Array, Sharded(1)]
    carry: Annotated[PyTree, Sharded(1)]
    next_obs: Annotated[PyTree, Sharded(0)]
    extras: Annotated[PyTree, Sharded(1)]
    bootstrap: Annotated[PyTree, Sharded(1)] = None
    last: Annotated[PyTree, Sharded(0)] = None
    valid: Annotated[Array | None, Sharded(1)] = None
    episodes: Annotated[EpisodeRows | None, Sharded(1)] = None
    weight: Annotated[Array | None, Sharded(1)] = None
    behaviour: BehaviourPolicy | None = None

    @property
    def steps(self) -> Array:
        """float32[]: rows that are transitions."""
        return jnp.asarray(self.reward.size if self.valid is None else self.valid.sum(), jnp.float32)


@flax.struct.dataclass
class Tally:
    """The value so far in an episode of an entry of the environment's info; float32.

    Attributes:
      value: the last, the sum or the largest of its values.
      count: how many values it had.
    """

    value: Array
    count: Array


@flax.struct.dataclass
class EpisodeStats:
    """Running statistics of the episodes in progress; float32/int32/bool of [B].

    `skip` marks a first episode that is cut off early (`env.stagger`); it is not reported. `tallies` has
    what the environment reports, by label.
    """

    episode_return: Array
    episode_length: Array
    skip: Array
    tallies: dict[str, Tally] = flax.struct.field(default_factory=dict)


@flax.struct.dataclass
class EpisodeTotals:
    """Sums over the episodes that ended in a rollout; float32 scalars.

    [devices] where they wait for learning. If no episode ended only the count, 0, has a meaning.

    Attributes:
      count: how many.
      episode_return, length: sums.
      squares: sum of the squared differences of their returns from the mean of these.
      lowest, highest: the extreme returns.
      tallies: by label, the sum over the episodes that reported an entry, and their number.
    """

    count: Array
    episode_return: Array
    length: Array
    squares: Array
    lowest: Array
    highest: Array
    tallies: dict[str, Tally] = flax.struct.field(default_factory=dict)


@flax.struct.dataclass
class Acting:
    """The part of a learner that an agent needs to act; replicated.

    Attributes:
      params: network parameters, float32.
      obs_stats: running moments of the observations, or None without normalisation.
      exploration: how much the agent explores, such as an epsilon; None if it does not explore: in
        evaluations, exports, videos, and in the state of a learner.
    """

    params: PyTree
    obs_stats: PyTree
    exploration: PyTree = None


@flax.struct.dataclass
class LearnerState:
    """The state that every algorithm keeps from one update to the next; each adds fields of its own.

    Replicated, except for fields marked `Sharded`.

    Attributes:
      policy: the parameters and statistics that `Algorithm.acting` starts from.
      hyperparams: the algorithm's numeric hyperparameters, float32 scalars. They are part of the state so
        that each member of a population keeps its own, also when it is resumed.
      updates: int32[], gradient steps made.
      elapsed: float32[], the share of `stop.seconds` that is used up, 0 to 1, where schedules follow that
        (`Config.follows_clock`); else None. The host sets it before iterations; checkpoints do not hold it.
      planned: float32[], the gradient steps that the run plans, which schedules follow without `elapsed`; by
        None those of the configuration. As an argument of the program it lets runs of any length share what
        was compiled; checkpoints do not hold it.
    """

    policy: Annotated[Acting, Transferable()]
    hyperparams: PyTree
    updates: Array
    elapsed: Array | None = flax.struct.field(default=None, kw_only=True)
    planned: Array | None = flax.struct.field(default=None, kw_only=True)


@flax.struct.dataclass
class CollectorState:
    """The state of a device collector: where its environments are; leaves [B, ...].

    Attributes:
      env_state: state of the environments.
      obs: [B, *O], the observation to act on next.
      reset: bool[B]; True if `obs` is the first of its episode.
      carry: tree of [B, ...], the policy's recurrent carry before `obs`.
      episode: statistics of the episodes in progress.
      task: tree of [B, ...], the tasks of the episodes in progress; None without a task sampler.
    """

    env_state: PyTree
    obs: PyTree
    reset: Array
    carry: PyTree
    episode: EpisodeStats
    task: PyTree = None


@flax.struct.dataclass
class TrainState:
    """Everything that must survive a resume.

    Attributes:
      learner: the algorithm's state.
      collector: where the environments are; None with environments on the host, whose episodes end with
        the process.
      memory: the contents of the memory between collecting and learning; None if there are none.
      tasks: the state of the task sampler; None without a task sampler.
      opponents: the pool of self-play and who plays whom; None without self-play.
      key: the typed base key; every other key is derived from it and the counters.
      iteration: int32[], rollouts finished.
    """

    learner: LearnerState
    collector: Annotated[CollectorState | None, Sharded(0)]
    key: Array
    iteration: Array
    memory: PyTree = None
    tasks: PyTree = None
    opponents: PyTree = None
