"""The environments and episodes that a window is made of, by hand."""

from __future__ import annotations

from jaxrl.experience.curriculum.window import WindowShape


def test_fewer_episodes_than_environments_are_of_a_part_of_them() -> None:
    shape = WindowShape(size=2, num_envs=6)
    assert (shape.watched, shape.rows, shape.indices.tolist()) == (2, 1, [0, 3])
    assert shape.slots([1, 2]).tolist() == [[[True, False]], [[True, True]]]


def test_more_episodes_than_environments_are_the_latest_of_each() -> None:
    shape = WindowShape(size=5, num_envs=2)
    assert (shape.watched, shape.rows, shape.indices.tolist()) == (2, 3, [0, 1])
    assert shape.slots([5]).tolist() == [[[True, True], [True, True], [True, False]]]
