"""The replay memory: transitions of several steps from a ring, uniform or by priority."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayFeedback, ReplayPlan, Transitions
from jaxrl.experience.memory.base import Memory
from jaxrl.experience.replay import priorities, relabelling, ring, sampling, windows
from jaxrl.experience.replay.ring import Ring
from jaxrl.types import Array, Trajectory


@dataclass(frozen=True)
class Replay(Memory):
    """Draws the same number of rows from each group of neighbouring environments, by the group's own key.

    A row is drawn once all steps that its return may need are in the ring, so no return crosses the seam. No
    row is twice in a batch. Uniform draws may hit the final row of an episode, which is not usable.

    Attributes:
      plan: what the algorithm asked for.
    """

    plan: ReplayPlan

    state_type: Any = Ring

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.checkpointed

    def init(self, example: Trajectory | None) -> Ring:
        assert example is not None
        return ring.empty(
            example, self.plan.rows, self.plan.priorities is not None, self.plan.hindsight is not None
        )

    def add(self, state: Ring, trajectory: Trajectory) -> Ring:
        length = len(trajectory.reward)
        return dataclasses.replace(
            state,
            rows=ring.written(state.rows, trajectory, state.cursor),
            leaf=None if state.leaf is None else self._with_new(state, trajectory),
            cursor=(state.cursor + length) % state.size,
            count=jnp.minimum(state.count + length, state.size),
        )

    def draw(self, state: Ring, latest: Trajectory | None, key: Array) -> Transitions:
        assert latest is not None
        env, row, probability = self._drawn(state, key)
        window = row[None] + jnp.arange(self.plan.n_step + 1)[:, None]
        facts = {name: state.rows[name] for name in ("reward", "terminated", "reset", "valid")}
        facts = ring.taken(facts, window, env)
        new = None
        if self.plan.hindsight is not None:
            # Before steps are counted: another goal ends a return elsewhere.
            new = relabelling.new_goals(self.plan, state, self._keys(key), env, row)
            facts = relabelling.with_new_facts(self.plan.hindsight, state, window, env, facts, new)
        counts = windows.counted_steps(facts["terminated"], facts["reset"], facts["valid"])
        seen = {name: state.rows[name] for name in ("obs", "action_mask")}
        first, after = (ring.taken(seen, at, env) for at in (row, row + counts.sum(axis=0, dtype=jnp.int32)))
        if new is not None:
            first, after = ({**x, "obs": new.asked_in(x["obs"])} for x in (first, after))
        ready = state.count >= self.plan.learning_starts
        return Transitions(
            obs=first["obs"],
            action=ring.taken(state.rows["action"], row, env),
            action_mask=first["action_mask"],
            reward=facts["reward"][:-1],
            counts=counts,
            terminated=(counts & facts["terminated"][:-1]).any(axis=0),
            next_obs=after["obs"],
            next_mask=after["action_mask"],
            usable=(probability > 0) & counts[0] & ready,
            weight=self._weights(state, probability),
            row=row % state.size,
            env=env,
            ready=ready,
            latest_reward=latest.reward.mean(),
            latest_noted=sum(x.mean() for x in jax.tree.leaves(latest.extras)),
        )

    def feedback(self, state: Ring, feedback: ReplayFeedback) -> Ring:
        state = dataclasses.replace(state, draws=state.draws + feedback.ready.astype(jnp.int32))
        if self.plan.priorities is None:
            return state
        assert state.leaf is not None
        new = priorities.leaf_of(feedback.error, self.plan.priorities.alpha)
        leaf = priorities.updated(state.leaf, (feedback.env, feedback.row), new, feedback.usable)
        return dataclasses.replace(state, leaf=leaf)

    def _with_new(self, state: Ring, trajectory: Trajectory) -> Array:
        """The leaves with those of a rollout, at the largest of all devices."""
        leaf = state.leaf
        assert leaf is not None
        new = priorities.leaf_of_new(self.plan.axis.gather(leaf.max()).max())
        # What follows the last row is known with the next rollout.
        after = jnp.concatenate([trajectory.reset[1:], jnp.zeros_like(trajectory.reset[:1])])
        begins = windows.follows(trajectory.terminated, after)
        begins = begins if trajectory.valid is None else begins & trajectory.valid
        before = (state.cursor - 1) % state.size
        kept = windows.follows(state.rows["terminated"][before], trajectory.reset[0])
        leaf = leaf.at[:, before].multiply(kept.astype(jnp.float32))
        put = jax.lax.dynamic_update_slice_in_dim
        return put(leaf, jnp.where(begins, new, 0.0).T, state.cursor, axis=1)

    def _drawn(self, state: Ring, key: Array) -> tuple[Array, Array, Array]:
        """(env, row, probability) [N] of the rows drawn; the probability is 0 where there was none."""
        plan, envs = self.plan, state.rows["reward"].shape[1]
        groups = plan.groups // plan.axis.size
        members, each = envs // groups, plan.batch_size // plan.groups
        keys = self._keys(key)
        # The newest rows have no successors yet.
        complete = jnp.maximum(state.count - plan.n_step, 0)
        first = jnp.arange(groups)[:, None] * members
        if state.leaf is None:
            size = members * complete
            at, found = jax.vmap(lambda k: sampling.draw_uniform(k, size, each))(keys)
            span = jnp.maximum(complete, 1)
            env, row = first + at // span, state.oldest + at % span
            probability = found.astype(jnp.float32) / (jnp.maximum(size, 1).astype(jnp.float32) * plan.groups)
        else:
            leaf = self._leaves(state, complete).reshape(groups, -1)
            few = plan.axis.pays_for_launches
            at, found = jax.vmap(lambda k, w: sampling.draw_weighted(k, w, each, few))(keys, leaf)
            env, row = first + at // state.size, at % state.size
            total = jnp.maximum(leaf.sum(axis=1, keepdims=True), jnp.finfo(jnp.float32).tiny)
            probability = jnp.where(found, jnp.take_along_axis(leaf, at, axis=1) / total, 0.0) / plan.groups
        return env.reshape(-1), row.reshape(-1), probability.reshape(-1)

    def _keys(self, key: Array) -> Array:
        """[groups] keys of this device's groups, the same however many devices there are."""
        groups = self.plan.groups // self.plan.axis.size
        index = self.plan.axis.index() * groups + jnp.arange(groups)
        keys: Array = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, index)
        return keys

    def _leaves(self, state: Ring, complete: Array) -> Array:
        """float32[B, rows], 0 where a row may not be drawn."""
        age = (jnp.arange(state.size) - state.oldest) % state.size
        assert state.leaf is not None
        return jnp.where((age < complete)[None], state.leaf, 0.0)

    def _weights(self, state: Ring, probability: Array) -> Array:
        """float32[N], importance weights over the largest of the batch on all devices."""
        plan = self.plan.priorities
        if plan is None:
            return jnp.ones_like(probability)
        complete = jnp.maximum(state.count - self.plan.n_step, 0)
        may_be_drawn = (self._leaves(state, complete) > 0).sum(dtype=jnp.float32)
        count = self.plan.axis.psum(may_be_drawn)
        beta = priorities.beta_at(state.draws, plan.beta_start, plan.beta_draws)
        weight = priorities.importance(probability, count, beta)
        largest = self.plan.axis.gather(weight.max()).max()
        return weight / jnp.maximum(largest, jnp.finfo(jnp.float32).tiny)
