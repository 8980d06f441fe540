"""Epochs times minibatches of PPO over one trajectory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import flax.struct
import jax
import jax.flatten_util
import jax.numpy as jnp

from envs.base import is_large_image
from jaxrl.algorithms import optimizer
from jaxrl.algorithms.ppo import losses
from jaxrl.algorithms.sequences import minibatch_environments, take_carries, take_sequences
from jaxrl.config import Config
from jaxrl.networks import Policy
from jaxrl.types import Array, Axis, Hyperparams, PyTree, Trajectory

# Activations of so many time steps stay in a core's cache between the forward and the backward pass, and
# the products are still large enough (docs/performance.md). The steps of one time are the rows of a
# recurrent core's products, so that it needs more of them; a large image has a thousand rows of its own.
CPU_PART_STEPS = {"recurrent": 2048, "feed-forward": 512, "images": 64}


@flax.struct.dataclass
class Batch:
    """What the loss reads of a trajectory; leaves [T, B, ...], then [L, N, ...] in a minibatch."""

    obs: PyTree
    reset: Array
    action: Array
    action_mask: Array | None
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    valid: Array | None


@flax.struct.dataclass
class Sums:
    """Sums over the valid steps of a minibatch; divided by `count` only after the sum over devices."""

    policy: Array
    value: Array
    entropy: Array
    approx_kl: Array
    clip_fraction: Array
    count: Array


@dataclass(frozen=True)
class Updater:
    """The update phase: static facts once, arrays per call.

    With `watch` every update also reports what in it was not finite: `output/LAYER` and `gradient/PARAMETER`,
    for `jaxrl.training.nonfinite`.
    """

    config: Config
    policy: Policy
    axis: Axis
    watch: bool = False

    def __call__(
        self,
        params: PyTree,
        opt_state: PyTree,
        updates: Array,
        hyperparams: Hyperparams,
        trajectory: Trajectory,
        advantage: Array,
        target: Array,
        key: Array,
    ) -> tuple[PyTree, PyTree, Array, dict[str, Array]]:
        """Runs all epochs.

        Args:
          params, opt_state, updates, hyperparams: as in `TrainState`.
          trajectory: observations already normalised.
          advantage, target: float32[T, B].
          key: one key, the same on all devices; it only shuffles.

        Returns:
          (params, opt_state, updates, metrics). Metrics are averages over the updates that were made;
          `ppo/skipped` counts those that `nonfinite="skip"` dropped, `grad/norm/LAYER` is of the last.
        """
        params, opt_state, updates, gradient, metrics = self.each(
            params, opt_state, updates, hyperparams, trajectory, advantage, target, key
        )
        made, skipped = metrics.pop("made"), metrics.pop("skipped")
        total = made.sum()
        averages = {
            name: jnp.where(made, x, 0.0).sum() / jnp.maximum(total, 1) for name, x in metrics.items()
        }
        averages["ppo/skipped"] = skipped.sum(dtype=jnp.float32)
        if self.config.log.layers:
            averages |= layer_norms(gradient)
        return params, opt_state, updates, averages

    def each(
        self,
        params: PyTree,
        opt_state: PyTree,
        updates: Array,
        hyperparams: Hyperparams,
        trajectory: Trajectory,
        advantage: Array,
        target: Array,
        key: Array,
    ) -> tuple[PyTree, PyTree, Array, PyTree, dict[str, Array]]:
        """Runs all epochs, like a call.

        Returns:
          (params, opt_state, updates, gradient, metrics): the gradient of the last update that was made,
          and the metrics of each: [epochs, minibatches].
        """
        batch = Batch(
            obs=trajectory.obs,
            reset=trajectory.reset,
            action=trajectory.action,
            action_mask=trajectory.action_mask,
            log_prob=trajectory.log_prob,
            value=trajectory.value,
            advantage=advantage,
            target=target,
            valid=trajectory.valid,
        )
        if batch.valid is not None:
            # Rows that do not count may hold anything, and the gradient of `where` lets a NaN pass.
            names = ("log_prob", "value", "advantage", "target")
            batch = dataclasses.replace(
                batch, **{n: jnp.where(batch.valid, getattr(batch, n), 0.0) for n in names}
            )
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        learner = _Learner(flat, opt_state, updates, jnp.zeros((), bool), jnp.zeros_like(flat))

        def epoch(learner: _Learner, key: Array) -> tuple[_Learner, dict[str, Array]]:
            def minibatch(learner: _Learner, environment_CG: Array) -> tuple[_Learner, dict[str, Array]]:
                def run(learner: _Learner) -> tuple[_Learner, dict[str, Array]]:
                    return self._minibatch(
                        learner, unravel, hyperparams, batch, trajectory.carry, environment_CG
                    )

                return run(learner) if self.config.ppo.target_kl is None else _unless_stopped(run, learner)

            return jax.lax.scan(minibatch, learner, self._deal(key))

        keys = jax.random.split(key, self.config.ppo.num_epochs)
        learner, metrics = jax.lax.scan(epoch, learner, keys)
        return unravel(learner.flat), learner.opt_state, learner.updates, unravel(learner.gradient), metrics

    def _deal(self, key: Array) -> Array:
        config = self.config
        minibatches = config.ppo.num_minibatches
        groups = config.envs_per_device // minibatches
        return minibatch_environments(
            key,
            config.num_chunks,
            groups * minibatches * self.axis.size,
            minibatches,
            self.axis.index() * groups,
            groups,
        )

    def _minibatch(
        self,
        learner: _Learner,
        unravel: Callable[[Array], PyTree],
        hyperparams: Hyperparams,
        batch: Batch,
        carry: PyTree,
        environment_CG: Array,
    ) -> tuple[_Learner, dict[str, Array]]:
        params = learner.flat
        gradient, sums = self._gradient(params, unravel, hyperparams, batch, carry, environment_CG)
        # One vector, one all-reduce: gradient and statistics travel together.
        packed, unpack = jax.flatten_util.ravel_pytree((gradient, sums))
        gradient, sums = unpack(self.axis.psum(packed))
        gradient = gradient / sums.count
        means = jax.tree.map(lambda x: x / sums.count, sums)
        ppo = self.config.ppo
        rate = optimizer.learning_rate(
            hyperparams.learning_rate,
            ppo.schedule,
            learner.updates,
            self.config.total_updates,
            ppo.warmup_updates,
        )

        def apply(learner: _Learner) -> _Learner:
            transform = optimizer.optimizer(hyperparams, rate)
            step, opt_state = transform.update(gradient, learner.opt_state)
            return _Learner(learner.flat + step, opt_state, learner.updates + 1, learner.stopped, gradient)

        norm = jnp.sqrt(jnp.sum(jnp.square(gradient)))
        made, skipped = jnp.ones((), bool), jnp.zeros((), bool)
        if ppo.target_kl is not None:
            stopped = learner.stopped | (means.approx_kl > hyperparams.target_kl)
            made, learner = ~stopped, dataclasses.replace(learner, stopped=stopped)
        if self.config.nonfinite == "skip":
            skipped = made & ~jnp.isfinite(norm + means.policy + means.value + means.entropy)
            made = made & ~skipped
        if ppo.target_kl is None and self.config.nonfinite != "skip":
            learner = apply(learner)
        else:
            learner = jax.lax.cond(made, apply, lambda learner: learner, learner)
        metrics = {
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
            metrics |= self._watched(unravel(params), unravel(gradient), batch, carry, environment_CG)
        return learner, metrics

    def _watched(
        self, params: PyTree, gradient: PyTree, batch: Batch, carry: PyTree, environment_CG: Array
    ) -> dict[str, Array]:
        """bool[] by layer in the order of computation, and by parameter: is anything in it not finite?"""
        sequences = take_sequences(batch, environment_CG, self.config.sequence_length)
        carries = take_carries(carry, environment_CG)
        outputs = self.policy.layers(params, sequences.obs, carries, sequences.reset, sequences.action_mask)
        nonfinite = {f"output/{i:03}/{name}": ~jnp.isfinite(x).all() for i, (name, x) in enumerate(outputs)}
        found = {name: x > 0 for name, x in self.axis.psum(jax.tree.map(jnp.int32, nonfinite)).items()}
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found[f"gradient/{name}"] = ~jnp.isfinite(leaf).all()
        return found

    def _gradient(
        self,
        flat: Array,
        unravel: Callable[[Array], PyTree],
        hyperparams: Hyperparams,
        batch: Batch,
        carry: PyTree,
        environment_CG: Array,
    ) -> tuple[Array, Sums]:
        """Gradient of the summed loss over one minibatch, in equal parts."""
        chunk_parts, group_parts = divided = self.parts(batch.obs)
        length = self.config.sequence_length
        gradient = jax.grad(self._loss, has_aux=True)

        def part(environment_CG: Array, first_chunk: Array | int) -> tuple[Array, Sums]:
            sequences = take_sequences(batch, environment_CG, length, first_chunk)
            carries = take_carries(carry, environment_CG, first_chunk)
            return gradient(flat, unravel, hyperparams, sequences, carries)

        if chunk_parts == group_parts == 1:
            return part(environment_CG, 0)
        chunks, groups = (n // parts for n, parts in zip(environment_CG.shape, divided, strict=True))
        by_part = environment_CG.reshape(chunk_parts, chunks, group_parts, groups).swapaxes(1, 2)
        by_part = by_part.reshape(-1, chunks, groups)
        first_chunk = jnp.repeat(jnp.arange(chunk_parts) * chunks, group_parts)
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(part, by_part[0], 0))
        add = lambda total, which: (jax.tree.map(jnp.add, total, part(*which)), None)  # noqa: E731
        return jax.lax.scan(add, zeros, (by_part, first_chunk))[0]

    def parts(self, obs: PyTree) -> tuple[int, int]:
        """How often the chunks in time and the groups of environments of a minibatch are divided.

        By `ppo.gradient_accumulation`, or on CPU so that each part has about `CPU_PART_STEPS` time steps.
        """
        config = self.config
        if config.ppo.gradient_accumulation or self.axis.platform != "cpu":
            return 1, config.ppo.gradient_accumulation or 1
        groups = config.ppo.minibatch_envs(config.envs_per_device)
        most = groups * config.ppo.rollout_length // CPU_PART_STEPS[self._kind_of_work(obs)]
        group_parts = _largest_divisor(groups, most)
        return _largest_divisor(config.num_chunks, most // group_parts), group_parts

    def _kind_of_work(self, obs: PyTree) -> str:
        if any(is_large_image(x.shape[2:]) for x in jax.tree.leaves(obs)):
            return "images"
        return "recurrent" if self.policy.waits_for_the_carry else "feed-forward"

    def _loss(
        self,
        flat: Array,
        unravel: Callable[[Array], PyTree],
        hyperparams: Hyperparams,
        batch: Batch,
        carry: PyTree,
    ) -> tuple[Array, Sums]:
        out = self.policy.apply(unravel(flat), batch.obs, carry, batch.reset, batch.action_mask)
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


def _largest_divisor(n: int, most: int) -> int:
    """The largest divisor of `n` up to `most`, at least 1."""
    return max(d for d in range(1, n + 1) if n % d == 0 and d <= max(1, most))


@flax.struct.dataclass
class _Learner:
    flat: Array
    opt_state: PyTree
    updates: Array
    stopped: Array
    gradient: Array


def layer_norms(gradient: PyTree) -> dict[str, Array]:
    """float32[] by `grad/norm/LAYER`: norms over the arrays of each layer, named as in the parameters."""
    squares: dict[str, Array] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        total = jnp.sum(jnp.square(leaf.astype(jnp.float32)))
        squares[f"grad/norm/{name}"] = squares.get(f"grad/norm/{name}", jnp.float32(0)) + total
    return {name: jnp.sqrt(x) for name, x in squares.items()}


def _unless_stopped(
    run: Callable[[_Learner], tuple[_Learner, dict[str, Array]]], learner: _Learner
) -> tuple[_Learner, dict[str, Array]]:
    """Spends nothing on minibatches after a KL stop. `stopped` is equal on all devices, so `run` may sum."""
    idle = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, learner)[1])
    return jax.lax.cond(learner.stopped, lambda learner: (learner, idle), run, learner)
