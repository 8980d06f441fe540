"""The engine of learning by epochs times minibatches over one batch of sequences.

An algorithm gives it a loss. The engine deals sequences out to minibatches, takes gradients in parts, sums
them over devices, clips, optimises, freezes parameters, stops early, skips updates that are not finite, and
reports.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.agent import Agent
from jaxrl.algorithms.optimizer import OptimizerShards, fits
from jaxrl.algorithms.reports import Epochs, PackedReports, Reports, nonfinite
from jaxrl.algorithms.sequences import Batch, Dealing, Sequences, parts, put_sequences, sum_of_parts
from jaxrl.config import Config
from jaxrl.config.minibatches import MinibatchConfig
from jaxrl.types import Array, Axis, LearnerState, PyTree

# (params, minibatch, key) -> (the sum of the loss over the steps that count; by metric, such sums of what the
# update reports; a tree of [L, N, ...] that `Epochs.per_row` gathers, or None).
Loss = Callable[[PyTree, Batch, Array], tuple[Array, dict[str, Array], PyTree]]
# Averages of the sums of a minibatch, by metric -> bool[], True if the updates on this batch end before it.
Stop = Callable[[Mapping[str, Array]], Array]

_LOSS_KEY = 0x4C4F5353  # keeps the keys of losses apart from the keys of the shuffle


@flax.struct.dataclass
class MinibatchState(LearnerState):
    """The state of learners that the engine updates. `opt_state` is of the flattened parameter vector, or
    of this device's part of it (`OptimizerShards`).
    """

    opt_state: PyTree


@flax.struct.dataclass
class UpdateLoop:
    """The values that one update hands to the next.

    Attributes:
      flat: float32[P], the parameters as one vector, padded if the optimiser is sharded.
      opt_state: of the optimiser over that vector.
      updates: int32[], gradient steps made since the start of the run.
      stopped: bool[], True if the algorithm has ended the updates on this batch.
      gradient: float32[P], the last one that was applied, or this device's part of it.
    """

    flat: Array
    opt_state: PyTree
    updates: Array
    stopped: Array
    gradient: Array


@dataclass(frozen=True)
class Minibatches:
    """Epochs times minibatches; static facts once, arrays per call.

    Attributes:
      config: resolved; its algorithm has a `MinibatchConfig`.
      stop: ends the updates on a batch; None: nothing does.
      rates: (pattern of names of parameters, hyperparameter that is their learning rate); the first that fits
        counts, and parameters that fit none have `learning_rate`.
      padded: True if whole sequences may hold no step that counts; a minibatch of only such sequences makes
        no update.
      watch: every update also reports what in it was not finite; see `Algorithm.inspect`.
    """

    config: Config
    agent: Agent
    axis: Axis
    loss: Loss
    stop: Stop | None = None
    rates: tuple[tuple[str, str], ...] = ()
    padded: bool = False
    watch: bool = False

    def __call__(self, learner: Any, batch: Batch, key: Array) -> Epochs:
        """Runs all epochs, on a learner whose class derives from `MinibatchState`, and this device's batch.

        The key is the same on all devices, for shuffling and for losses that sample.
        """
        flat, _ = jax.flatten_util.ravel_pytree(learner.policy.params)
        shards = OptimizerShards.of(self.section, self.axis, flat.size)
        unravel = shards.unravel(learner.policy.params)
        run = _Run(self, learner, unravel, batch, shards)
        start = UpdateLoop(
            shards.pad(flat), learner.opt_state, learner.updates, jnp.zeros((), bool), shards.empty()
        )
        keys = jax.random.split(key, self.section.num_epochs)
        epochs = (jnp.arange(self.section.num_epochs), keys)
        loop, (reports, per_row) = jax.lax.scan(run.epoch, start, epochs)
        if isinstance(reports, PackedReports):
            reports = reports.unpack()
        policy = dataclasses.replace(learner.policy, params=unravel(loop.flat))
        learner = dataclasses.replace(learner, policy=policy, opt_state=loop.opt_state, updates=loop.updates)
        last = jax.tree.map(lambda x: x[-1], per_row)
        # Nothing else needs it, and it may have to be gathered.
        gradient = unravel(shards.whole(loop.gradient)) if self.config.log.layers else None
        return Epochs(learner, gradient, reports, last)

    @property
    def section(self) -> MinibatchConfig:
        """The fields of the algorithm."""
        return self.config.learner_as(MinibatchConfig)

    def rate(self, learner: Any, base: Array, updates: Array) -> Array:
        """The learning rate of the update after `updates`, whose peak is `base`."""
        section = self.section
        total = optimizer.planned_updates(self.config, learner)
        return base * optimizer.schedule_factor(
            section.schedule, updates, total, section.warmup_updates, learner.elapsed
        )

    @property
    def dealing(self) -> Dealing:
        """The order in which sequences are dealt out to minibatches."""
        return Dealing(
            num_chunks=self.config.num_chunks,
            num_envs=self.config.rows_per_device * self.axis.size,
            group_envs=self.section.minibatch_envs(self.config.env.rows),
            group_chunks=self.section.minibatch_chunks(self.config.env.rows),
        )


@dataclass(frozen=True, eq=False)  # hashed by identity, as scan asks of functions
class _Run:
    """The updates on one batch."""

    engine: Minibatches
    learner: Any
    unravel: Callable[[Array], PyTree]
    batch: Batch
    shards: OptimizerShards

    def epoch(
        self, loop: UpdateLoop, number_and_key: tuple[Array, Array]
    ) -> tuple[UpdateLoop, tuple[Reports | PackedReports, PyTree]]:
        engine = self.engine
        (number, key) = number_and_key
        run = self._with_fresh_carries(loop, number) if engine.section.refresh_carries else self
        groups = engine.config.rows_per_device // engine.dealing.group_envs
        sequences = engine.dealing.deal(key, engine.axis.index() * groups, groups)
        loss_key = jax.random.fold_in(key, _LOSS_KEY)

        def minibatch(loop: UpdateLoop, taken: Sequences) -> tuple[UpdateLoop, Any]:
            loop, reports, per_row = run._skip_after_stop(loop, taken, loss_key)
            packs = engine.axis.pays_for_launches
            return loop, (PackedReports.of(reports) if packs else reports, per_row)

        loop, (reports, rows) = jax.lax.scan(minibatch, loop, sequences)
        length = engine.config.sequence_length
        num_envs = engine.config.rows_per_device
        return loop, (reports, jax.tree.map(lambda x: put_sequences(x, sequences, length, num_envs), rows))

    def _with_fresh_carries(self, loop: UpdateLoop, number: Array) -> _Run:
        """The run of epoch `number`, whose sequences begin from the carries of the present parameters.

        The first epoch takes the carries of the policy that acted, one iteration older with `host.overlap`.
        """
        agent = self.engine.agent
        length = self.engine.config.sequence_length
        acting = dataclasses.replace(self.learner.policy, params=self.unravel(loop.flat))
        split = lambda x: x.reshape(-1, length, *x.shape[1:])  # noqa: E731
        chunks = jax.tree.map(split, (self.batch.obs, self.batch.reset, self.batch.action_mask))

        def advance(carry: PyTree, chunk: tuple[PyTree, Array, Array | None]) -> tuple[PyTree, PyTree]:
            obs, reset, mask = chunk
            return agent.apply(acting, obs, carry, reset, mask).carry, carry

        def fresh() -> PyTree:
            first = jax.tree.map(lambda x: x[0], self.batch.carry)
            return jax.lax.scan(advance, first, chunks)[1]

        carry = jax.lax.cond(number > 0, fresh, lambda: self.batch.carry)
        return dataclasses.replace(self, batch=dataclasses.replace(self.batch, carry=carry))

    def _skip_after_stop(
        self, loop: UpdateLoop, taken: Sequences, key: Array
    ) -> tuple[UpdateLoop, Reports, PyTree]:
        """Spends nothing on minibatches after a stop; `stopped` is equal on all devices."""
        if self.engine.stop is None:
            return self._minibatch(loop, taken, key)

        run = functools.partial(self._minibatch, taken=taken, key=key)
        idle = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, loop)[1:])
        return jax.lax.cond(loop.stopped, lambda loop: (loop, *idle), run, loop)

    def _minibatch(
        self, loop: UpdateLoop, taken: Sequences, key: Array
    ) -> tuple[UpdateLoop, Reports, PyTree]:
        """One minibatch: its gradient over all devices, and the update, if one is made."""
        engine = self.engine
        key = jax.random.fold_in(key, loop.updates)
        (gradient, sums, count), per_row = self._gradient(loop.flat, taken, key)
        gradient, sums, count, norm = self._over_devices(gradient, sums, count)
        divisor = self._divisor(count)
        found = {name: x / divisor for name, x in sums.items()}
        base = self.learner.hyperparams.learning_rate
        found[self._rate_name] = engine.rate(self.learner, base, loop.updates)
        found["grad/norm"] = norm
        after, made, skipped = self._update(loop, gradient, count, found)
        reports = {"made": made, "skipped": skipped, **found}
        if engine.watch:
            whole = self.unravel(self.shards.whole(gradient))
            part = self.batch.take(taken, engine.config.sequence_length)
            inputs = (part.obs, part.carry, part.reset, part.action_mask)
            layers = engine.agent.network.layers(self.unravel(loop.flat), *inputs)
            reports |= nonfinite(layers, whole, engine.axis)
        return after, reports, per_row

    def _over_devices(
        self, gradient: Array, sums: dict[str, Array], count: Array
    ) -> tuple[Array, dict[str, Array], Array, Array]:
        """(mean gradient or this device's part of it, sums, count, norm of the mean gradient)."""
        axis = self.engine.axis
        if not self.shards.sharded:
            # One vector, one all-reduce: gradient and statistics travel together.
            packed, unpack = jax.flatten_util.ravel_pytree((gradient, sums, count))
            gradient, sums, count = unpack(axis.psum(packed))
            gradient = self._without_frozen(gradient / self._divisor(count))
            return gradient, sums, count, jnp.sqrt(jnp.sum(jnp.square(gradient)))
        own = self._without_frozen(axis.scatter_sum(gradient))
        # The squares travel with the statistics, before anything is divided.
        squares, sums, count = axis.psum((jnp.sum(jnp.square(own)), sums, count))
        divisor = self._divisor(count)
        return own / divisor, sums, count, jnp.sqrt(squares) / divisor

    def _divisor(self, count: Array) -> Array:
        return jnp.maximum(count, 1.0) if self._may_be_empty else count

    def _update(
        self, loop: UpdateLoop, gradient: Array, count: Array, found: Reports
    ) -> tuple[UpdateLoop, Array, Array]:
        """(the values after a minibatch, bool[] an update was made, bool[] it was skipped: not finite).

        Args:
          gradient: float32[P], the mean over the minibatch, or this device's part of it.
          count: float32[], steps that count.
        """
        engine = self.engine
        skips = engine.config.nonfinite == "skip"

        def apply(loop: UpdateLoop) -> UpdateLoop:
            rates = self._rates(loop, found[self._rate_name])
            norm = found["grad/norm"] if self.shards.sharded else None
            transform = optimizer.optimizer(self.learner.hyperparams.max_grad_norm, rates, norm)
            step, opt_state = transform.update(gradient, loop.opt_state)
            step = self._without_frozen(step)  # Moments from before they were frozen would go on moving them.
            flat = self.shards.whole(self.shards.own(loop.flat) + step)
            return UpdateLoop(flat, opt_state, loop.updates + 1, loop.stopped, gradient)

        made = jnp.ones((), bool)
        skipped = jnp.zeros((), bool)
        if engine.stop is not None:
            stopped = loop.stopped | engine.stop(found)
            made = ~stopped
            loop = dataclasses.replace(loop, stopped=stopped)
        if self._may_be_empty:
            made = made & (count > 0)
        if skips:
            losses = [x for name, x in found.items() if name.startswith("loss/")]
            skipped = made & ~jnp.isfinite(sum(losses, found["grad/norm"]))
            made = made & ~skipped
        if engine.stop is None and not skips and not self._may_be_empty:
            return apply(loop), made, skipped
        return jax.lax.cond(made, apply, lambda loop: loop, loop), made, skipped

    @property
    def _may_be_empty(self) -> bool:
        """True if no step of a minibatch may count."""
        config = self.engine.config
        # Among sequences of one step there may be none that counts; longer ones hold one at least, unless
        # whole episodes are left out, or an agent has gone long before its environment's episode is over.
        leaves_out = config.curriculum.masks_rows or bool(self.engine.agent.spec.agents)
        short = config.sequence_length == 1 or leaves_out
        may_be_empty = self.engine.padded or (self.batch.valid is not None and short)
        return may_be_empty or self.batch.weight is not None  # A task may count for nothing.

    @property
    def _rate_name(self) -> str:
        return f"{self.engine.config.section}/learning_rate"

    def _rates(self, loop: UpdateLoop, rate: Array) -> Array:
        """The learning rate float32[], or one for each parameter if groups of them have their own."""
        found: Array = rate
        for pattern, name in reversed(self.engine.rates):
            own = self.engine.rate(self.learner, getattr(self.learner.hyperparams, name), loop.updates)
            found = jnp.where(self._fits((pattern,)), own, found)
        return found

    def _without_frozen(self, gradient: Array) -> Array:
        """With 0 for frozen parameters."""
        frozen = self.engine.config.network.frozen
        return jnp.where(self._fits(frozen), 0.0, gradient) if frozen else gradient

    def _fits(self, patterns: tuple[str, ...]) -> Array:
        """bool, as the optimiser's vectors: True for parameters whose names fit one of the patterns."""
        return self.shards.own(self.shards.pad(fits(self.learner.policy.params, patterns)))

    def _gradient(
        self, flat: Array, taken: Sequences, key: Array
    ) -> tuple[tuple[Array, dict[str, Array], Array], PyTree]:
        """((gradient, sums and count of the summed loss), per_row [L, N, ...]) of a minibatch, in parts."""
        engine = self.engine
        length = self.engine.config.sequence_length
        chunks, environments = taken.environment.shape
        divided = parts(
            engine.section.gradient_accumulation,
            chunks=chunks,
            environments=environments,
            length=length,
            agent=engine.agent,
            axis=engine.axis,
            obs=self.batch.obs,
        )

        def loss(flat: Array, part: Batch) -> tuple[Array, Any]:
            total, sums, per_row = engine.loss(self.unravel(flat), part, key)
            return total, (sums, part.total(jnp.ones(part.reset.shape, jnp.float32)), per_row)

        def gradient(part: Sequences) -> tuple[tuple[Array, dict[str, Array], Array], PyTree]:
            found, (sums, count, per_row) = jax.grad(loss, has_aux=True)(flat, self.batch.take(part, length))
            return (found, sums, count), per_row

        return sum_of_parts(gradient, taken, divided)
