"""Digests: they tell every difference, depend on nothing else, and stay the same for ever."""

from __future__ import annotations

import json

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl.runs.checkpoint import checkpoint_record

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_digests_are_those_of_earlier_versions() -> None:
    # Changing this makes every checkpoint in the world look corrupt.
    assert checkpoint_record.describe({"params/w": ARRAY}) == {
        "params/w": {"dtype": "float32", "shape": [2, 3], "digest": "812324c558e801c6e1ad77af1f49f6d2"}
    }


@pytest.mark.parametrize(
    "array",
    [
        np.array(2.5, np.float32),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.asarray(jnp.arange(4, dtype=jnp.bfloat16)),
        ARRAY[:, ::2],
        np.asfortranarray(ARRAY),
    ],
    ids=["scalar", "empty", "bool", "bfloat16", "strided", "fortran"],
)
def test_layout_in_memory_does_not_count(array: np.ndarray) -> None:
    copy = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    assert checkpoint_record.describe({"a": array}) == checkpoint_record.describe({"a": copy})
    assert checkpoint_record.describe({"a": array})["a"]["shape"] == list(array.shape)


def test_name_dtype_shape_and_every_bit_count() -> None:
    def digest(name: str, array: np.ndarray) -> str:
        return checkpoint_record.describe({name: array})[name]["digest"]

    others = {digest("b", ARRAY), digest("a", ARRAY.view(np.int32)), digest("a", ARRAY.reshape(3, 2))}
    for bit in range(ARRAY.nbytes * 8):
        flipped = np.frombuffer(ARRAY.tobytes(), np.uint8).copy()
        flipped[bit // 8] ^= 1 << bit % 8
        others.add(digest("a", flipped.view(np.float32).reshape(ARRAY.shape)))
    assert len(others) == 3 + ARRAY.nbytes * 8
    assert digest("a", ARRAY) not in others


def test_sealed_content_comes_back_as_plain_json() -> None:
    sealed = checkpoint_record.seal({"steps": (1, 2), "score": 0.1 + 0.2, "none": None, "by": {3: "x"}})
    content = {"steps": [1, 2], "score": 0.1 + 0.2, "none": None, "by": {"3": "x"}}
    assert checkpoint_record.unseal(json.dumps(sealed)) == content
    # Neither the order of keys nor white space means anything.
    assert checkpoint_record.unseal(json.dumps(dict(reversed(sealed.items())), indent=3)) == content


def test_a_flipped_bit_is_never_read_as_something_else() -> None:
    content = {
        "iteration": 12,
        "seconds": 1.5,
        "config": {"env": "probe", "sizes": [64, 64]},
        "evaluation": None,
    }
    text = json.dumps(checkpoint_record.seal(content)).encode()
    refused = 0
    for bit in range(len(text) * 8):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert checkpoint_record.unseal(flipped.decode()) == content
        except ValueError:
            refused += 1
    assert refused > 0.95 * len(text) * 8  # the rest is white space that became other white space


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"digest": null}', '{"a": 1, "digest": "00"}'])
def test_what_was_not_sealed_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        checkpoint_record.unseal(text)


def test_content_must_be_json() -> None:
    with pytest.raises(TypeError):
        checkpoint_record.seal({"array": ARRAY})
