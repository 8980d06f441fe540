"""What the devices do where environments run on the host: learn from trajectories that come from there."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from envs.base import EnvSpec, zeros
from jaxrl.networks.distributions import draw_noise
from jaxrl.rollout.device import EpisodeTotals
from jaxrl.training.iteration import Learning
from jaxrl.types import Array, EpisodeStats, PyTree, TrainState, Trajectory

# Keeps the seeds of environments apart from all that is split off or folded into the same key.
_SEEDS = 0x53454544


@dataclass(frozen=True)
class HostProgram(Learning):
    """The training program of one device for host environments, which have no state in `TrainState`.

    What the runtime holds of them is lost with the process: observations, carries and the statistics of
    episodes in progress belong to episodes that cannot be continued.
    """

    spec: EnvSpec

    def first_rows(self, key: Array) -> dict[str, PyTree]:
        """Nothing."""
        del key
        names = ("env_state", "obs", "reset", "carry")
        return dict.fromkeys(names) | {"episode": EpisodeStats(*[None] * 3)}  # type: ignore[arg-type]

    def example(self, start: dict[str, PyTree]) -> PyTree:
        del start
        return zeros(self.spec.observation_space)

    def learn(
        self, state: TrainState, sums: dict[str, Array], trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, dict[str, Array], Array]:
        """What `Program.repeat` does in one iteration, with a rollout from elsewhere.

        Args:
          state: donated by callers.
          sums: `no_metrics()`, or what an earlier call returned, to go on adding.
          trajectory: of this device's environments.
          totals: over the episodes that ended; [1].

        Returns:
          (state, sums, failed); the arguments where the iteration was not finite, unless that is skipped.
        """
        return self._sum_up(state, sums, *self.update(state, trajectory, totals))

    def update(
        self, state: TrainState, trajectory: Trajectory, totals: EpisodeTotals
    ) -> tuple[TrainState, dict[str, Array]]:
        """As with device environments, but the totals are of this device."""
        return super().update(state, trajectory, self.axis.psum(jax.tree.map(jnp.sum, totals)))

    def example_rollout(self, num_envs: int) -> tuple[Trajectory, EpisodeTotals]:
        """What `learn` takes, filled with zeros; for shapes and dtypes."""
        length, head = self.config.ppo.rollout_length, self.policy.head
        carry = self.policy.initial_carry(num_envs)
        flags = jnp.zeros((length, num_envs), bool)
        rows = lambda x: jnp.broadcast_to(x, (length, num_envs, *x.shape))  # noqa: E731
        obs = jax.tree.map(rows, zeros(self.spec.observation_space))
        params = self.policy.init(jax.random.key(0))
        out = self.policy.step(params, jax.tree.map(lambda x: x[0], obs), carry, flags[0], None)
        noise = draw_noise(head.noise_kind, jax.random.key(0), (num_envs, *head.noise_shape))
        action = out.distribution.sample(noise)
        number = jnp.zeros((length, num_envs))
        chunks = self.config.num_chunks
        trajectory = Trajectory(
            obs=obs,
            reset=flags,
            action=jnp.broadcast_to(action, (length, *action.shape)),
            action_mask=None,
            log_prob=number,
            value=number,
            reward=number,
            terminated=flags,
            truncated=flags,
            bootstrap_value=number,
            carry=jax.tree.map(lambda x: jnp.broadcast_to(x, (chunks, *x.shape)), carry),
            last_value=number[0],
            valid=flags,
        )
        return trajectory, EpisodeTotals(*jnp.zeros((3, self.axis.size)))

    def action_keys(self, key: Array, iteration: Array, index: Array) -> Array:
        """One key per environment for the actions of an iteration: those of the device runtime."""
        rollout_key, _ = jax.random.split(jax.random.fold_in(key, iteration))
        return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(rollout_key, index)

    def start_numbers(self, key: Array, iteration: Array, index: Array) -> tuple[Array, Array]:
        """What environments that start at an iteration draw: (seeds, lengths of staggered first episodes).

        Args:
          key: the base key of the state.
          iteration: that of the state; environments that start later in a run get other numbers.
          index: global indices.
        """
        key = jax.random.fold_in(jax.random.fold_in(key, _SEEDS), iteration)
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        seed_keys, stagger_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
        limit = self.spec.max_episode_steps or 1
        seeds = jax.vmap(lambda k: jax.random.randint(k, (), 0, 2**31 - 1))(seed_keys)
        return seeds, jax.vmap(lambda k: jax.random.randint(k, (), 1, limit + 1))(stagger_keys)

    @property
    def staggered(self) -> bool:
        """Whether first episodes are cut off."""
        return self.config.env.stagger and (self.spec.max_episode_steps or 0) > 1
