"""The replay memory of recurrent learners: sequences from a ring, with the carries that acting had."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import SequenceBatch, SequencePlan
from jaxrl.experience.replay import draws, ring
from jaxrl.experience.replay.places import Places
from jaxrl.experience.replay.ring import CARRY, Ring
from jaxrl.experience.replay.ring_memory import RingMemory, counted_steps, of_latest
from jaxrl.types import Array, Trajectory


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

    def init(self, example: Trajectory | None) -> Ring:
        assert example is not None
        prioritised = self.plan.priorities is not None
        interval = self._sequences.interval
        frames = self.plan.frames
        return ring.empty(example, self.plan.rows, prioritised, interval=interval, num_frames=frames)

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
        ready = (state.count >= self.plan.learning_starts) & (places.complete > 0)
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
