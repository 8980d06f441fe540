"""How observations become pictures."""

from __future__ import annotations

import numpy as np

from jaxrl.envs.base import Box, Discrete
from jaxrl.envs.pictures import draw, image_of


def test_grey_stacks_show_their_newest_frame() -> None:
    obs = np.arange(4, dtype=np.uint8) * np.ones((3, 5, 1), np.uint8)
    np.testing.assert_array_equal(draw(obs, Box.of(0, 255, obs.shape, np.uint8)), np.full((3, 5, 3), 3))


def test_rgb_stays_as_it_is() -> None:
    obs = np.random.default_rng(0).integers(0, 256, (3, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(draw(obs, Box.of(0, 255, obs.shape, np.uint8)), obs)


def test_planes_get_different_colours_and_the_last_lies_on_top() -> None:
    obs = np.zeros((2, 3, 2), np.float32)
    obs[0, 0, 0] = obs[0, 1, 1] = 1
    obs[0, 2] = 1
    for dtype in (np.float32, np.uint8):
        picture = draw(obs.astype(dtype), Box.of(0, 1, obs.shape, dtype))
        assert (picture[1] == 0).all()
        assert len({tuple(pixel) for pixel in picture[0]}) == 2
        np.testing.assert_array_equal(picture[0, 2], picture[0, 1])


def test_codes_are_bright_where_they_reach_the_bound() -> None:
    obs = np.array([0, 2, 4], np.uint8).reshape(1, 3, 1)
    picture = draw(obs, Box.of(0, 4, obs.shape, np.uint8))
    np.testing.assert_array_equal(picture[0, :, 0], [0, 128, 255])


def test_only_images_are_drawn() -> None:
    assert image_of(Box.of(0, 1, (4, 4, 2)))
    assert not image_of(Box.of(0, 1, (4,)))
    assert not image_of(Discrete(3))
