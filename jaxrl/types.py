"""The data that flows through the trainer, and the dimension key for shape suffixes.

Dimension key, used as suffixes of array names (`obs_TBO`, `value_TB`):
  T  time steps of one rollout             B  environments of this device
  L  time steps of one sequence (chunk)    N  sequences, `T / L * B`
  O  the observation's own dimensions      A  action components or categories
  F  features                              H  units of the recurrent core
  K  iterations in one dispatch            M  minibatches of one epoch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flax.struct
import jax

Array = jax.Array
PyTree = Any


@dataclass(frozen=True)
class Axis:
    """The device axis as seen from inside the program; `size` 1 without a name needs no mesh.

    `platform`, such as "cpu", decides between ways to compute the same.
    """

    name: str | None = None
    size: int = 1
    platform: str = "cpu"

    def psum(self, tree: PyTree) -> PyTree:
        """Sums over devices."""
        return tree if self.name is None else jax.lax.psum(tree, self.name)

    def index(self) -> Array | int:
        """This device's position."""
        return 0 if self.name is None else jax.lax.axis_index(self.name)


@flax.struct.dataclass
class Trajectory:
    """One rollout, time-major. Device and host runtimes both produce exactly this.

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
    """

    obs: PyTree
    reset: Array
    action: Array
    action_mask: Array | None
    log_prob: Array
    value: Array
    reward: Array
    terminated: Array
    truncated: Array
    bootstrap_value: Array
    carry: PyTree
    last_value: Array
    valid: Array | None = None


@flax.struct.dataclass
class Hyperparams:
    """Numeric hyperparameters: float32 scalars and pytree leaves, so that a sweep can vmap over them.

    `target_kl` is read only where the configuration sets `ppo.target_kl`: otherwise no stop is compiled in.
    """

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip_range: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array


@flax.struct.dataclass
class EpisodeStats:
    """Running statistics of the episodes in progress; float32/int32/bool of [B].

    `skip` marks a first episode that is cut off early (`env.stagger`); it is not reported.
    """

    episode_return: Array
    episode_length: Array
    skip: Array


@flax.struct.dataclass
class TrainState:
    """Everything that must survive a resume. Leaves with a leading `B` are sharded over `data`.

    Attributes:
      params: network parameters, float32, replicated.
      opt_state: optax state over the flattened parameter vector, replicated.
      env_state: state of the B environments.
      obs: [B, *O], the observation to act on next.
      reset: bool[B]; True where `obs` is the first of its episode.
      carry: tree of [B, ...], the policy's recurrent carry before `obs`.
      episode: statistics of the episodes in progress.
      obs_stats: running moments of the observations, or None; replicated.
      reward_stats: running moments of the discounted return, or None; replicated.
      discounted_return: float32[B], accumulator for reward scaling.
      hyperparams: numeric hyperparameters, replicated.
      key: the typed base key; every other key is derived from it and the counters.
      iteration: int32[], rollouts finished.
      updates: int32[], gradient steps made (fewer than planned where a KL stop cut epochs short).
    """

    params: PyTree
    opt_state: PyTree
    env_state: PyTree
    obs: PyTree
    reset: Array
    carry: PyTree
    episode: EpisodeStats
    obs_stats: PyTree
    reward_stats: PyTree
    discounted_return: Array
    hyperparams: Hyperparams
    key: Array
    iteration: Array
    updates: Array
