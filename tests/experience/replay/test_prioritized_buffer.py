"""The prioritised buffer for loops of one's own beside plain lists, and what its programs copy."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.experience.replay import HindsightReplayBuffer, PrioritizedReplayBuffer


class LoopBuffer:
    """Prioritised replay of Schaul et al. as plain lists."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.items, self.priority, self.at = capacity, [], [], 0  # type: ignore[var-annotated]

    def add(self, items: list[int]) -> None:
        largest = max(self.priority, default=1.0)
        for item in items:
            if len(self.items) < self.capacity:
                self.items.append(item)
                self.priority.append(largest)
            else:
                self.items[self.at], self.priority[self.at] = item, largest
            self.at = (self.at + 1) % self.capacity

    def weights(self, index: Any, beta: float) -> np.ndarray:
        p = np.array(self.priority) ** 0.6
        raw = (len(p) * p[index] / p.sum()) ** -beta
        return raw / raw.max()


@pytest.mark.slow
def test_buffer_beside_a_loop() -> None:
    buffer, loop = PrioritizedReplayBuffer(8, beta_frames=10), LoopBuffer(8)
    state = buffer.init(jnp.int32(0))
    add, sample = jax.jit(buffer.add), jax.jit(buffer.sample, static_argnums=2)
    update, random = jax.jit(buffer.update_priorities), np.random.default_rng(0)
    for i in range(12):
        new = list(range(3 * i, 3 * i + 3))
        loop.add(new)
        state = add(state, jnp.array(new, jnp.int32))
        state, items, index, weight = sample(state, jax.random.key(i), 3)
        assert len(set(np.asarray(index).tolist())) == 3
        assert [loop.items[j] for j in index] == np.asarray(items).tolist()
        expected = loop.weights(np.asarray(index), 0.4 + 0.6 * min(i / 10, 1.0))
        np.testing.assert_allclose(weight, expected, rtol=1e-4)
        error = random.normal(size=3) * 10.0 ** random.integers(-3, 3)
        for j, e in zip(index, error, strict=True):
            loop.priority[j] = abs(e) + 1e-5
        state = update(state, index, jnp.float32(error))
        assert int(state.count) == len(loop.items)


@pytest.mark.slow
def test_buffer_that_holds_less_than_a_batch() -> None:
    buffer = PrioritizedReplayBuffer(4)

    @jax.jit
    def play(key: jax.Array) -> Any:
        state = buffer.add(buffer.init(jnp.int32(0)), jnp.array([7], jnp.int32))
        state, *drawn, index, weight = buffer.sample(state, key, 3)
        return (
            *drawn,
            index,
            weight,
            buffer.update_priorities(state, index, jnp.full(3, 5.0)).tree.leaf[0, :4],
        )

    items, index, weight, leaf = play(jax.random.key(0))
    assert (index.tolist(), weight.tolist(), int(items[0])) == ([0, 4, 4], [1.0, 0.0, 0.0], 7)
    np.testing.assert_allclose(leaf, [5.00001**0.6, 0.0, 0.0, 0.0], rtol=1e-6)


def test_errors_say_what_does_not_fit() -> None:
    buffer = PrioritizedReplayBuffer(4)
    state = buffer.init(jnp.zeros(2))
    with pytest.raises(ValueError, match="is below a batch of 5"):
        buffer.sample(state, jax.random.key(0), 5)
    with pytest.raises(ValueError, match="5 items do not fit"):
        buffer.add(state, jnp.zeros((5, 2)))
    index = jnp.array([4, 2, 1], jnp.int32)  # the first is none
    with pytest.raises(ValueError, match="^`errors` must be finite: 1 of 3 .* inf of the item 1$"):
        buffer.update_priorities(state, index, jnp.array([jnp.nan, 1.0, jnp.inf]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("capacity", 0),
        ("capacity", 4.5),
        ("capacity", True),
        ("alpha", float("nan")),
        ("alpha", float("inf")),
        ("alpha", -0.1),
        ("alpha", "0.6"),
        ("beta_start", float("nan")),
        ("beta_start", 1.5),
        ("beta_frames", 1e5),
        ("beta_frames", 0),
    ],
)
def test_settings_that_are_refused(name: str, value: Any) -> None:
    message = f"^`{name}` .={re.escape(repr(value))}. must be a .*$"
    with pytest.raises(ValueError, match=message):
        PrioritizedReplayBuffer(**{"capacity": 4, name: value})
    with pytest.raises(ValueError, match=message):
        HindsightReplayBuffer(**{"capacity": 4, name: value})


def pixels(count: int, **parts: Any) -> dict[str, Any]:
    return {"obs": np.zeros((count, 2), np.uint8), "reward": np.zeros(count, np.float32)} | parts


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"obs": np.zeros((3, 2), np.uint8)}, "must have `['reward']`"),
        (pixels(3, done=np.zeros(3)), "has `['done']`, which the buffer has not"),
        (pixels(3, obs=np.full((3, 2), 300)), "`batch['obs']` is int32; it must be uint8"),
        (pixels(3, reward=np.zeros(3, np.int32)), "`batch['reward']` is int32; it must be float32"),
        (pixels(3, obs=np.zeros((3, 4), np.uint8)), "`batch['obs']` has the shape [3, 4]; it must be [N, 2]"),
        (pixels(3, reward=np.float32(0.0)), "`batch['reward']` has the shape []; it must be [N]"),
        (pixels(3, reward=np.zeros(4, np.float32)), "must be equally long, not 3, 4"),
        (pixels(0), "must hold an item"),
        (pixels(5), "5 items do not fit"),
    ],
)
def test_batches_that_are_refused(batch: Any, message: str) -> None:
    buffer = PrioritizedReplayBuffer(4)
    state = buffer.init(jax.tree.map(lambda x: x[0], pixels(1)))
    for add in (buffer.add, jax.jit(buffer.add)):
        with pytest.raises(ValueError, match=f"(?m)^.*{re.escape(message)}.*$"):
            add(state, batch)


def test_other_trees_are_refused() -> None:
    buffer = PrioritizedReplayBuffer(4)
    with pytest.raises(ValueError, match="must hold an array"):
        buffer.init({})
    with pytest.raises(ValueError, match="^a batch is a .*; it must be a .*, as in the buffer$"):
        buffer.add(buffer.init((np.zeros(2), np.zeros(2))), [np.zeros((3, 2)), np.zeros((3, 2))])
    state = buffer.init(np.zeros(2))
    with pytest.raises(ValueError, match=r"must both be \[N\], not \[2\] and \[2, 1\]"):
        buffer.update_priorities(state, jnp.zeros(2, jnp.int32), jnp.zeros((2, 1)))
    with pytest.raises(ValueError, match="`batch_size` .=0. must be a whole number"):
        buffer.sample(state, jax.random.key(0), 0)


def test_errors_that_are_not_finite_do_not_enter_in_a_compiled_program() -> None:
    buffer = PrioritizedReplayBuffer(4)

    @jax.jit
    def updated(error: jax.Array) -> jax.Array:
        state = buffer.add(buffer.init(jnp.int32(0)), jnp.arange(4, dtype=jnp.int32))
        return buffer.update_priorities(state, jnp.array([2, 0, 1]), error).tree.leaf[0, :4]

    found = updated(jnp.array([jnp.nan, jnp.inf, -3.0]))
    np.testing.assert_allclose(found, [1.0, (3 + 1e-5) ** 0.6, 1.0, 1.0], rtol=1e-6)


@pytest.mark.slow
def test_draws_follow_the_errors_that_were_told() -> None:
    # Pairs, so that also the second of a batch is in proportion to what is left.
    buffer, count = PrioritizedReplayBuffer(6, alpha=0.5), 20_000
    error = np.array([4.0, 0.0, 9.0, 1.0, 25.0, 1.0], np.float32)

    @jax.jit
    def play(keys: jax.Array) -> jax.Array:
        state = buffer.add(buffer.init(jnp.int32(0)), jnp.arange(6, dtype=jnp.int32))
        state = buffer.update_priorities(state, jnp.arange(6), jnp.asarray(error))
        return jax.vmap(lambda key: buffer.sample(state, key, 2)[2])(keys)

    drawn = np.asarray(play(jax.random.split(jax.random.key(0), count)))
    p = np.sqrt(error + 1e-5)
    p /= p.sum()
    expected = count * p[:, None] * p[None] / (1 - p[:, None])
    seen = np.zeros((6, 6))
    np.add.at(seen, (drawn[:, 0], drawn[:, 1]), 1)
    assert np.trace(seen) == 0
    # Rare pairs together are one cell.
    often = (expected > 5) & ~np.eye(6, dtype=bool)
    rare = ~often & ~np.eye(6, dtype=bool)
    seen, expected = (np.append(x[often], x[rare].sum()) for x in (seen, expected))
    statistic, degrees = ((seen - expected) ** 2 / expected).sum(), len(expected) - 1
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [3, 200])
def test_large_batches_hold_no_item_twice(batch_size: int) -> None:
    # 200 of 210: so many that draws are repeated, are sorted, and at last race.
    buffer = PrioritizedReplayBuffer(300)

    @jax.jit
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = buffer.add(buffer.init(jnp.int32(0)), jnp.arange(210, dtype=jnp.int32))
        state = buffer.update_priorities(state, jnp.array([7]), jnp.array([1e9]))
        return buffer.sample(state, key, batch_size)[1:3]

    items, index = map(np.asarray, play(jax.random.key(0)))
    assert len(set(index.tolist())) == batch_size
    assert index[0] == 7
    assert index.max() < 210
    np.testing.assert_array_equal(items, index)


CAPACITY, WIDTH = 1_000_000, 64


@pytest.mark.slow
@pytest.mark.parametrize("method", ["add", "sample", "update_priorities"])
def test_a_donated_state_is_not_copied(method: str) -> None:
    buffer = PrioritizedReplayBuffer(CAPACITY)
    index = jnp.arange(32)
    given: dict[str, tuple[Any, ...]] = {
        "add": ({"obs": jnp.ones((32, WIDTH)), "reward": jnp.ones(32)},),
        "sample": (jax.random.key(0), 32),
        "update_priorities": (index, jnp.ones(32)),
    }
    state = jax.eval_shape(buffer.init, {"obs": jnp.zeros(WIDTH), "reward": jnp.float32(0.0)})
    static = 2 if method == "sample" else ()
    program = jax.jit(getattr(buffer, method), donate_argnums=0, static_argnums=static)
    found = program.lower(state, *given[method]).compile().memory_analysis()
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert found.alias_size_in_bytes >= size
    # A quarter of the leaves: a draw has sums of the sums of blocks, and the blocks that would race.
    assert found.temp_size_in_bytes < CAPACITY


@pytest.mark.slow
def test_states_can_be_donated() -> None:
    buffer = PrioritizedReplayBuffer(4)
    state = jax.jit(buffer.add, donate_argnums=0)(buffer.init(np.zeros(2)), np.ones((3, 2), np.float32))
    state, *_ = jax.jit(buffer.sample, donate_argnums=0, static_argnums=2)(state, jax.random.key(0), 2)
    state = jax.jit(buffer.update_priorities, donate_argnums=0)(state, jnp.arange(2), jnp.ones(2))
    assert (int(state.count), int(state.draws), int(state.cursor)) == (3, 1, 3)


def played(buffer: PrioritizedReplayBuffer, first: Any, key: Any) -> Any:
    """What is drawn, and the state after that."""
    state = buffer.add(buffer.init(jnp.int32(0)), first + jnp.arange(40, dtype=jnp.int32))
    state = buffer.update_priorities(state, jnp.arange(4), jnp.array([5.0, 0.1, 2.0, 1e6]))
    state, *drawn = buffer.sample(state, key, 12)
    return drawn, state


@pytest.mark.slow
def test_states_under_vmap_are_each_like_one() -> None:
    buffer, keys = PrioritizedReplayBuffer(50), jax.random.split(jax.random.key(0), 3)
    first = jnp.arange(3) * 100
    together = jax.jit(jax.vmap(lambda *xs: played(buffer, *xs)))(first, keys)
    alone = jax.jit(lambda *xs: played(buffer, *xs))
    assert together[1].count.tolist() == [40, 40, 40]
    for i in range(3):
        part = jax.tree.map(lambda x, i=i: x[i], together)
        jax.tree.map(np.testing.assert_array_equal, part, alone(first[i], keys[i]))


def on_two_devices() -> None:
    buffer, keys = PrioritizedReplayBuffer(50), jax.random.split(jax.random.key(0), 2)
    first, mesh, spec = jnp.arange(2) * 100, jax.sharding.Mesh(jax.devices(), ("devices",)), jax.P("devices")

    def of_device(first: Any, key: Any) -> Any:
        return jax.tree.map(lambda x: x[None], played(buffer, first[0], key[0]))

    shared = jax.shard_map(of_device, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    together, alone = jax.jit(shared)(first, keys), jax.jit(lambda *xs: played(buffer, *xs))
    assert len(together[1].cursor.sharding.device_set) == 2
    for i in range(2):
        part = jax.tree.map(lambda x, i=i: x[i], together)
        jax.tree.map(np.testing.assert_array_equal, part, alone(first[i], keys[i]))


if __name__ == "__main__":
    on_two_devices()
