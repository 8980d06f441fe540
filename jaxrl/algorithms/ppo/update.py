"""Epochs times minibatches of PPO over one trajectory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp

from jaxrl.algorithms import optimizer
from jaxrl.algorithms.ppo import losses
from jaxrl.algorithms.ppo.accumulation import parts
from jaxrl.algorithms.ppo.batch import Batch
from jaxrl.algorithms.ppo.reports import PackedReports, Reports
from jaxrl.algorithms.ppo.state import PPOHyperparams, PPOState
from jaxrl.algorithms.sequences import minibatch_environments
from jaxrl.config import Config
from jaxrl.networks import Policy
from jaxrl.types import Array, Axis, PyTree


@flax.struct.dataclass
class Sums:
    """Sums over the valid steps of a minibatch; divided by `count` only after the sum over devices."""

    policy: Array
    value: Array
    entropy: Array
    approx_kl: Array
    clip_fraction: Array
    count: Array


@flax.struct.dataclass
class Loop:
    """What one update hands to the next.

    Attributes:
      flat: float32[P], the parameters as one vector.
      opt_state: of the optimiser over that vector.
      updates: int32[], gradient steps made since the start of the run.
      stopped: bool[], whether `target_kl` has ended the updates of this trajectory.
      gradient: float32[P], the last one that was applied.
    """

    flat: Array
    opt_state: PyTree
    updates: Array
    stopped: Array
    gradient: Array


@dataclass(frozen=True)
class Updater:
    """Epochs times minibatches; static facts once, arrays per call.

    With `watch` every update also reports what in it was not finite; see `Algorithm.inspect`.
    """

    config: Config
    policy: Policy
    axis: Axis
    watch: bool = False

    def __call__(self, learner: PPOState, batch: Batch, key: Array) -> tuple[PPOState, PyTree, Reports]:
        """Runs all epochs.

        Args:
          learner: before the updates.
          batch: the trajectory of this device.
          key: one key, the same on all devices; it only shuffles.

        Returns:
          (learner, gradient, reports): the gradient of the last update that was made, and what each update
          reports, [epochs, minibatches]; `made` and `skipped` say which count.
        """
        flat, unravel = jax.flatten_util.ravel_pytree(learner.policy.params)
        run = _Run(self.config, self.policy, self.axis, self.watch, learner.hyperparams, unravel, batch)
        start = Loop(flat, learner.opt_state, learner.updates, jnp.zeros((), bool), jnp.zeros_like(flat))
        keys = jax.random.split(key, self.config.ppo.num_epochs)
        loop, reports = jax.lax.scan(run.epoch, start, keys)
        if isinstance(reports, PackedReports):
            reports = reports.unpack()
        policy = dataclasses.replace(learner.policy, params=unravel(loop.flat))
        learner = dataclasses.replace(learner, policy=policy, opt_state=loop.opt_state, updates=loop.updates)
        return learner, unravel(loop.gradient), reports


@dataclass(frozen=True, eq=False)  # hashed by identity, as scan asks of functions
class _Run:
    """The updates on one trajectory."""

    config: Config
    policy: Policy
    axis: Axis
    watch: bool
    hyperparams: PPOHyperparams
    unravel: Callable[[Array], PyTree]
    batch: Batch

    def epoch(self, loop: Loop, key: Array) -> tuple[Loop, Reports | PackedReports]:
        config = self.config
        minibatches = config.ppo.num_minibatches
        groups = config.envs_per_device // minibatches
        environment_MCG = minibatch_environments(
            key,
            config.num_chunks,
            groups * minibatches * self.axis.size,
            minibatches,
            self.axis.index() * groups,
            groups,
        )
        return jax.lax.scan(self._stored, loop, environment_MCG)

    def _stored(self, loop: Loop, environment_CG: Array) -> tuple[Loop, Reports | PackedReports]:
        loop, reports = self._unless_stopped(loop, environment_CG)
        return loop, PackedReports.of(reports) if self.axis.pays_for_launches else reports

    def _unless_stopped(self, loop: Loop, environment_CG: Array) -> tuple[Loop, Reports]:
        """Spends nothing on minibatches after a KL stop; `stopped` is equal on all devices."""
        if self.config.ppo.target_kl is None:
            return self._minibatch(loop, environment_CG)

        def run(loop: Loop) -> tuple[Loop, Reports]:
            return self._minibatch(loop, environment_CG)

        idle = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, loop)[1])
        return jax.lax.cond(loop.stopped, lambda loop: (loop, idle), run, loop)

    def _minibatch(self, loop: Loop, environment_CG: Array) -> tuple[Loop, Reports]:
        params = loop.flat
        gradient, sums = self._gradient(params, environment_CG)
        # One vector, one all-reduce: gradient and statistics travel together.
        packed, unpack = jax.flatten_util.ravel_pytree((gradient, sums))
        gradient, sums = unpack(self.axis.psum(packed))
        # Among sequences of one step there may be none that counts; longer ones hold one at least.
        may_be_empty = self.batch.valid is not None and self.config.sequence_length == 1
        count = jnp.maximum(sums.count, 1.0) if may_be_empty else sums.count
        gradient = gradient / count
        means = jax.tree.map(lambda x: x / count, sums)
        ppo = self.config.ppo
        rate = optimizer.learning_rate(
            self.hyperparams.learning_rate,
            ppo.schedule,
            loop.updates,
            self.config.total_updates,
            ppo.warmup_updates,
        )

        def apply(loop: Loop) -> Loop:
            transform = optimizer.optimizer(self.hyperparams.max_grad_norm, rate)
            step, opt_state = transform.update(gradient, loop.opt_state)
            return Loop(loop.flat + step, opt_state, loop.updates + 1, loop.stopped, gradient)

        norm = jnp.sqrt(jnp.sum(jnp.square(gradient)))
        made, skipped = jnp.ones((), bool), jnp.zeros((), bool)
        if ppo.target_kl is not None:
            stopped = loop.stopped | (means.approx_kl > self.hyperparams.target_kl)
            made, loop = ~stopped, dataclasses.replace(loop, stopped=stopped)
        if may_be_empty:
            made = made & (sums.count > 0)
        if self.config.nonfinite == "skip":
            skipped = made & ~jnp.isfinite(norm + means.policy + means.value + means.entropy)
            made = made & ~skipped
        if ppo.target_kl is None and self.config.nonfinite != "skip" and not may_be_empty:
            loop = apply(loop)
        else:
            loop = jax.lax.cond(made, apply, lambda loop: loop, loop)
        reports = {
            "made": made,
            "skipped": skipped,
            "loss/policy": means.policy,
            "loss/value": means.value,
            "loss/entropy": means.entropy,
            "ppo/approx_kl": means.approx_kl,
            "ppo/clip_fraction": means.clip_fraction,
            "ppo/learning_rate": rate,
            "grad/norm": norm,
        }
        if self.watch:
            reports |= self._watched(self.unravel(params), self.unravel(gradient), environment_CG)
        return loop, reports

    def _watched(self, params: PyTree, gradient: PyTree, environment_CG: Array) -> Reports:
        """bool[] by layer in the order of computation, and by parameter: is anything in it not finite?"""
        part = self.batch.take(environment_CG, self.config.sequence_length)
        outputs = self.policy.layers(params, part.obs, part.carry, part.reset, part.action_mask)
        nonfinite = {f"output/{i:03}/{name}": ~jnp.isfinite(x).all() for i, (name, x) in enumerate(outputs)}
        found = {name: x > 0 for name, x in self.axis.psum(jax.tree.map(jnp.int32, nonfinite)).items()}
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found[f"gradient/{name}"] = ~jnp.isfinite(leaf).all()
        return found

    def _gradient(self, flat: Array, environment_CG: Array) -> tuple[Array, Sums]:
        """Gradient of the summed loss over one minibatch, in equal parts."""
        chunk_parts, group_parts = divided = parts(self.config, self.policy, self.axis, self.batch.obs)
        length = self.config.sequence_length
        gradient = jax.grad(self._loss, has_aux=True)

        def part(environment_CG: Array, first_chunk: Array | int) -> tuple[Array, Sums]:
            return gradient(flat, self.batch.take(environment_CG, length, first_chunk))

        if chunk_parts == group_parts == 1:
            return part(environment_CG, 0)
        chunks, groups = (n // k for n, k in zip(environment_CG.shape, divided, strict=True))
        by_part = environment_CG.reshape(chunk_parts, chunks, group_parts, groups).swapaxes(1, 2)
        by_part = by_part.reshape(-1, chunks, groups)
        first_chunk = jnp.repeat(jnp.arange(chunk_parts) * chunks, group_parts)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(part, by_part[0], 0))
        add = lambda total, which: (jax.tree.map(jnp.add, total, part(*which)), None)  # noqa: E731
        return jax.lax.scan(add, zeros, (by_part, first_chunk))[0]

    def _loss(self, flat: Array, batch: Batch) -> tuple[Array, Sums]:
        params, hyperparams = self.unravel(flat), self.hyperparams
        out = self.policy.apply(params, batch.obs, batch.carry, batch.reset, batch.action_mask)
        log_prob = out.distribution.log_prob(batch.action)
        clip = hyperparams.clip_range
        if self.config.ppo.clip_value:
            value = losses.clipped_value_loss(out.value, batch.value, batch.target, clip)
        else:
            value = losses.value_loss(out.value, batch.target)
        total = lambda x: x.sum() if batch.valid is None else jnp.where(batch.valid, x, 0.0).sum()  # noqa: E731
        sums = Sums(
            policy=total(losses.policy_loss(log_prob, batch.log_prob, batch.advantage, clip)),
            value=total(value),
            entropy=total(out.distribution.entropy()),
            approx_kl=total(losses.approx_kl(log_prob, batch.log_prob)),
            clip_fraction=total(losses.clip_fraction(log_prob, batch.log_prob, clip)),
            count=total(jnp.ones_like(log_prob)),
        )
        loss = sums.policy + hyperparams.value_coef * sums.value - hyperparams.entropy_coef * sums.entropy
        return loss, sums


def layer_norms(gradient: PyTree) -> dict[str, Array]:
    """float32[] by `grad/norm/LAYER`: norms over the arrays of each layer, named as in the parameters."""
    squares: dict[str, Array] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        total = jnp.sum(jnp.square(leaf.astype(jnp.float32)))
        squares[f"grad/norm/{name}"] = squares.get(f"grad/norm/{name}", jnp.float32(0)) + total
    return {name: jnp.sqrt(x) for name, x in squares.items()}
