"""Replay memories: transitions of several steps from a ring, and sequences with the carries of acting."""

from __future__ import annotations

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import ReplayFeedback, ReplayPlan, SequenceBatch, SequencePlan, Transitions
from jaxrl.experience.memory import Memory
from jaxrl.experience.replay import draws, hindsight, priority_tree, ring
from jaxrl.experience.replay.ring import CARRY, Ring
from jaxrl.experience.replay.sampling import Groups, Places
from jaxrl.types import Array, Trajectory


@dataclass(frozen=True)
class RingMemory(Memory):
    """Keeps the last rows of every environment; subclasses decide how to sample them."""

    plan: ReplayPlan

    state_type: Any = Ring

    @property
    def checkpointed(self) -> bool:  # type: ignore[override]
        return self.plan.checkpointed

    @property
    @abc.abstractmethod
    def hidden(self) -> int:
        """The newest items of each environment that may not be sampled yet, at most."""

    @abc.abstractmethod
    def places(self, state: Ring) -> Places:
        """The items that may be sampled: neither the newest, `hidden`, nor the oldest `plan.unseen` rows."""

    @abc.abstractmethod
    def with_new(self, state: Ring, trajectory: Trajectory, leaf: Array, first: int, new: Array) -> Array:
        """The leaves of a rollout and of its neighbours.

        Args:
          state: with the rows of the rollout, and its cursor.
          leaf: float32[B, N], of neighbouring items before it.
          first: which of them is the rollout's first.
          new: float32[], for each new item that may be sampled.
        """

    def init(self, example: Trajectory | None) -> Ring:
        assert example is not None
        return ring.empty(example, self.plan)

    def add(self, state: Ring, trajectory: Trajectory) -> Ring:
        length = len(trajectory.reward)
        tree = state.tree
        after = dataclasses.replace(
            state,
            rows=ring.write_rows(state.rows, trajectory, state.cursor),
            cursor=(state.cursor + length) % state.size,
            count=jnp.minimum(state.count + length, state.size),
        )
        if tree is None:
            return after
        was = self.places(state)
        now = self.places(after)
        interval = state.size // now.size
        new = draws.leaf_of_new(self.plan.axis.gather(tree.largest.max()).max())
        unseen = -(-self.plan.unseen // interval)
        begin = state.cursor // interval
        items, first = priority_tree.window(now.size, begin, self.hidden, length // interval, unseen)
        leaf = self.with_new(after, trajectory, tree.leaf[:, items], first, new)
        return dataclasses.replace(after, tree=priority_tree.write(tree, items, leaf, was, now))

    def feedback(self, state: Ring, feedback: ReplayFeedback) -> Ring:
        where = (feedback.env, feedback.row)
        places = self.places(state)
        return dataclasses.replace(
            state,
            tree=draws.with_errors(self.plan, state.tree, places, where, feedback.error, feedback.usable),
            draws=state.draws + feedback.ready.astype(jnp.int32),
        )


def of_latest(latest: Trajectory) -> dict[str, Any]:
    """`latest_reward`, `latest_steps` and `latest_noted` of a batch, float32[]."""
    noted = sum(x.mean() for x in jax.tree.leaves(latest.extras))
    # Nothing is rewarded in a row that is no step.
    return {"latest_reward": latest.reward.sum(), "latest_steps": latest.steps, "latest_noted": noted}


def follows(terminated: Array, reset_after: Array) -> Array:
    """True if the row after a step, whose `reset` is `reset_after`, is its successor, or none is needed.

    If a restart of the environment was forced, the row after is the first of another episode, and the
    observation after the step is lost.
    """
    return terminated | ~reset_after


def counted_steps(terminated: Array, reset: Array, valid: Array) -> Array:
    """bool[K, N], the steps of n-step returns from the first row of each window; row m is what follows them.

    A window of consecutive rows, bool[K + 1, N], ends after a termination; after a truncation, whose final
    observation is the next row and not `valid`; and before a step without a successor.
    """
    known = valid[:-1] & follows(terminated[:-1], reset[1:])
    goes_on = jnp.concatenate([jnp.ones_like(known[:1]), ~terminated[:-2]])
    return jnp.cumprod((known & goes_on).astype(jnp.int32), axis=0).astype(bool)


@dataclass(frozen=True)
class Replay(RingMemory):
    """Samples the same number of rows from each group of neighbouring environments, by the group's own key.

    A row can be sampled once all steps that its return may need are in the ring, so no return crosses the
    seam. No row is twice in a batch. Uniform sampling may hit the final row of an episode, which is not
    usable.
    """

    def draw(self, state: Ring, latest: Trajectory | None, key: Array) -> Transitions:
        assert latest is not None
        places = self.places(state)
        env, row, probability = draws.draw(self.plan, places, state.tree, key)
        window = row[None] + jnp.arange(self.plan.n_step + 1)[:, None]
        facts = {name: state.rows[name] for name in ("reward", "terminated", "reset", "valid")}
        facts = ring.take_rows(facts, window, env)
        new = None
        if self.plan.hindsight is not None:
            # Before steps are counted: another goal ends a return elsewhere.
            new = hindsight.new_goals(self.plan, state, Groups.of(self.plan).keys(key), env, row)
            facts = hindsight.with_new_facts(self.plan.hindsight, state, window, env, facts, new)
        counts = counted_steps(facts["terminated"], facts["reset"], facts["valid"])
        ends = (row, row + counts.sum(axis=0, dtype=jnp.int32))
        obs, next_obs = (ring.observations_of(state.rows, at, env, self.plan.frames) for at in ends)
        mask, next_mask = (ring.take_rows(state.rows["action_mask"], at, env) for at in ends)
        if new is not None:
            obs, next_obs = (hindsight.with_goal(x, new.goal, new.exchanged) for x in (obs, next_obs))
        ready = places.suffice(state.count, self.plan.learning_starts)
        return Transitions(
            obs=obs,
            action=ring.take_rows(state.rows["action"], row, env),
            action_mask=mask,
            reward=facts["reward"][:-1],
            counts=counts,
            terminated=(counts & facts["terminated"][:-1]).any(axis=0),
            next_obs=next_obs,
            next_mask=next_mask,
            usable=(probability > 0) & counts[0] & ready,
            weight=draws.weights(self.plan, state.tree, state.draws, probability),
            row=row % state.size,
            env=env,
            ready=ready,
            **of_latest(latest),
        )

    @property
    def hidden(self) -> int:
        return self.plan.n_step

    def with_new(self, state: Ring, trajectory: Trajectory, leaf: Array, first: int, new: Array) -> Array:
        # What follows the last row is known with the next rollout.
        after = jnp.concatenate([trajectory.reset[1:], jnp.zeros_like(trajectory.reset[:1])])
        begins = follows(trajectory.terminated, after)
        begins = begins if trajectory.valid is None else begins & trajectory.valid
        if first > 0:  # else the ring holds no more than the rollout
            # Read where the rollout is written already: of what is read before, XLA would copy all rows.
            before = (state.cursor - len(begins) - 1) % state.size
            kept = follows(state.rows["terminated"][before], trajectory.reset[0])
            leaf = leaf.at[:, first - 1].multiply(kept.astype(jnp.float32))
        return leaf.at[:, first : first + len(begins)].set(jnp.where(begins, new, 0.0).T)

    def places(self, state: Ring) -> Places:
        """Rows that may be sampled: neither the newest, which have no successors yet, nor unseen ones."""
        unseen = self.plan.unseen
        complete = jnp.maximum(state.count - self.plan.n_step - unseen, 0)
        return Places(state.rows["reward"].shape[1], state.size, state.oldest + unseen, complete)


@dataclass(frozen=True)
class SequenceReplay(RingMemory):
    """Samples sequences that begin at stored carries, the same number from each group of environments.

    A sequence is sampled once all its rows, and all steps that their returns may need, are in the ring. No
    sequence is twice in a batch; neighbours overlap if they are longer than the interval of the carries.
    """

    @property
    def _sequences(self) -> SequencePlan:
        assert self.plan.sequences is not None
        return self.plan.sequences

    @property
    def _window(self) -> int:
        """Rows that a sequence needs: its own, and those that follow its last."""
        return self._sequences.burn_in + self._sequences.length + self.plan.n_step

    @property
    def hidden(self) -> int:
        return -(-self._window // self._sequences.interval)

    def with_new(self, state: Ring, trajectory: Trajectory, leaf: Array, first: int, new: Array) -> Array:
        return leaf.at[:, first : first + len(trajectory.reward) // self._sequences.interval].set(new)

    def draw(self, state: Ring, latest: Trajectory | None, key: Array) -> SequenceBatch:
        assert latest is not None
        places = self.places(state)
        plan = self._sequences
        env, item, probability = draws.draw(self.plan, places, state.tree, key)
        window = item[None] * plan.interval + jnp.arange(self._window)[:, None]
        names = ("reset", "action", "action_mask", "reward", "terminated", "valid")
        rows = ring.take_rows({name: state.rows[name] for name in names}, window, env)
        learnt = jax.tree.map(lambda x: x[plan.burn_in : plan.burn_in + plan.length], rows)
        following = plan.burn_in + jnp.add.outer(jnp.arange(plan.length), jnp.arange(self.plan.n_step + 1))
        facts = {name: rows[name][following] for name in ("reward", "terminated", "reset", "valid")}
        counts = jax.vmap(counted_steps)(facts["terminated"], facts["reset"], facts["valid"])
        ready = places.suffice(state.count, self.plan.learning_starts)
        return SequenceBatch(
            obs=ring.observations_of(state.rows, window, env, self.plan.frames),
            reset=rows["reset"],
            action_mask=rows["action_mask"],
            carry=ring.take_rows(state.rows[CARRY], item, env),
            action=learnt["action"],
            reward=facts["reward"][:, :-1],
            counts=counts,
            terminated=(counts & facts["terminated"][:, :-1]).any(axis=1),
            usable=counts[:, 0] & (probability > 0)[None] & ready,
            weight=draws.weights(self.plan, state.tree, state.draws, probability),
            row=item % places.size,
            env=env,
            ready=ready,
            **of_latest(latest),
        )

    def places(self, state: Ring) -> Places:
        """The sequences whose rows are all there, with all their frames."""
        interval = self._sequences.interval
        unseen = -(-self.plan.unseen // interval)
        complete = jnp.maximum((state.count - self._window) // interval + 1 - unseen, 0)
        envs = state.rows["reward"].shape[1]
        return Places(envs, state.size // interval, state.oldest // interval + unseen, complete)
