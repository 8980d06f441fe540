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


def marks(cls: type[Any], kind: type[_T]) -> dict[str, _T]:
    """The marks of one kind on the fields of a dataclass, by field."""
    hints = get_type_hints(cls, include_extras=True)
    found = {name: [m for m in get_args(hint)[1:] if isinstance(m, kind)] for name, hint in hints.items()}
    return {name: first for name, (first, *_) in ((n, m) for n, m in found.items() if m)}


@dataclass(frozen=True)
class Axis:
    """The device axis as seen from inside the program; `size` 1 without a name needs no mesh.

    `platform`, such as "cpu", decides between ways to compute the same, and so does `runs_triton`: whether
    kernels written in Triton run on the devices.
    """

    name: str | None = None
    size: int = 1
    platform: str = "cpu"
    runs_triton: bool = False

    @property
    def pays_for_launches(self) -> bool:
        """Whether few large kernels beat many small ones: a GPU is told of each by the host, TPU and CPU not.

        Who asks chooses between ways to compute the same, as `docs/design/0018-fewer-kernels.md` lists them.
        """
        return self.platform == "gpu"

    @property
    def unroll(self) -> int:
        """Steps in each turn of a loop over time that does little in each of them."""
        return 16 if self.pays_for_launches else 1

    def psum(self, tree: PyTree) -> PyTree:
        """Sums over devices."""
        return tree if self.name is None else jax.lax.psum(tree, self.name)

    def gather(self, x: Array) -> Array:
        """[size, ...], the values of all devices in their order, on each of them."""
        if self.name is None:
            return x[None]
        # A sum, as every other exchange between devices is one: XLA makes them together.
        gathered: Array = self.psum(jnp.zeros((self.size, *x.shape), x.dtype).at[self.index()].set(x))
        return gathered

    def index(self) -> Array | int:
        """This device's position."""
        return 0 if self.name is None else jax.lax.axis_index(self.name)


@flax.struct.dataclass
class BehaviourPolicy:
    """What learning must know of an older policy that collected a trajectory; replicated.

    Attributes:
      obs_stats: the statistics by which it normalised observations, or None without normalisation.
    """

    obs_stats: PyTree


@flax.struct.dataclass
class Trajectory:
    """One rollout, time-major. Device and host collectors both produce exactly this.

    Attributes:
      obs: [T, B, *O], a tree, in the observation's own dtype.
      reset: bool[T, B]; True where `obs` is the first of its episode: the carry is zeroed before it.
      action: [T, B, *A].
      action_mask: bool[T, B, A] or None; the actions allowed at `obs`.
      log_prob: float32[T, B], log-probability of `action` when it was taken.
      value: float32[T, B], V(obs_t, carry_t).
      reward: float32[T, B], raw.
      terminated: bool[T, B].
      truncated: bool[T, B].
      bootstrap_value: float32[T, B]; V(final observation, carry after step t) where truncated, else 0.
      carry: tree of [T / L, B, ...]; the carry *before* the first step of each chunk.
      last_value: float32[B], V of the observation that follows the rollout.
      valid: bool[T, B] or None (all valid); False on rows that are no transition (dummy rows of
        NEXT_STEP autoreset) and carry no loss.
      behaviour: the policy that acted, where it may be older than the one that learns; None where both are
        the same.
    """

    obs: Annotated[PyTree, Sharded(1)]
    reset: Annotated[Array, Sharded(1)]
    action: Annotated[Array, Sharded(1)]
    action_mask: Annotated[Array | None, Sharded(1)]
    log_prob: Annotated[Array, Sharded(1)]
    value: Annotated[Array, Sharded(1)]
    reward: Annotated[Array, Sharded(1)]
    terminated: Annotated[Array, Sharded(1)]
    truncated: Annotated[Array, Sharded(1)]
    bootstrap_value: Annotated[Array, Sharded(1)]
    carry: Annotated[PyTree, Sharded(1)]
    last_value: Annotated[Array, Sharded(0)]
    valid: Annotated[Array | None, Sharded(1)] = None
    behaviour: BehaviourPolicy | None = None


@flax.struct.dataclass
class Tally:
    """What an entry of the environment's info has come to so far in an episode; float32.

    Attributes:
      value: the last, the sum or the largest of what it said.
      count: how often it said something.
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

    [devices] where they wait for learning. Where no episode ended only the count, 0, means something.

    Attributes:
      count: how many.
      episode_return, length: sums.
      squares: sum of the squared differences of their returns from the mean of these.
      lowest, highest: the extreme returns.
      tallies: by label, the sum over those episodes that an entry was reported of, and their number.
    """

    count: Array
    episode_return: Array
    length: Array
    squares: Array
    lowest: Array
    highest: Array
    tallies: dict[str, Tally] = flax.struct.field(default_factory=dict)


@flax.struct.dataclass
class PolicyState:
    """What a policy needs to act; see `jaxrl.networks.Policy.act`.

    Attributes:
      params: network parameters, float32.
      obs_stats: running moments of the observations, or None without normalisation.
    """

    params: PyTree
    obs_stats: PyTree


@flax.struct.dataclass
class LearnerState:
    """What every algorithm keeps from one update to the next; each adds fields of its own.

    Replicated, except for fields marked `Sharded`.

    Attributes:
      policy: what acts.
      hyperparams: the algorithm's numeric hyperparameters, float32 scalars. They are part of the state so
        that each member of a population keeps its own, also when it is resumed.
      updates: int32[], gradient steps made.
    """

    policy: Annotated[PolicyState, Transferable()]
    hyperparams: PyTree
    updates: Array


@flax.struct.dataclass
class CollectorState:
    """Where the environments of a device collector are; leaves [B, ...].

    Attributes:
      env_state: state of the environments.
      obs: [B, *O], the observation to act on next.
      reset: bool[B]; True where `obs` is the first of its episode.
      carry: tree of [B, ...], the policy's recurrent carry before `obs`.
      episode: statistics of the episodes in progress.
    """

    env_state: PyTree
    obs: PyTree
    reset: Array
    carry: PyTree
    episode: EpisodeStats


@flax.struct.dataclass
class TrainState:
    """Everything that must survive a resume.

    Attributes:
      learner: the algorithm's state.
      collector: where the environments are; None with environments on the host, whose episodes end with
        the process.
      key: the typed base key; every other key is derived from it and the counters.
      iteration: int32[], rollouts finished.
    """

    learner: LearnerState
    collector: Annotated[CollectorState | None, Sharded(0)]
    key: Array
    iteration: Array
