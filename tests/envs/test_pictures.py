"""How observations become pictures."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrl.envs.base import Box, Dict, Discrete
from jaxrl.envs.pictures import draw, image_of, layout_notes, picture_shape


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


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((84, 84, 4), (84, 84, 4)),
        ((4, 84, 84), (84, 84, 4)),  # envpool's Atari, and Gymnasium's FrameStackObservation of grey pictures
        ((3, 96, 320), (96, 320, 3)),
        ((1, 10, 10), (10, 10, 1)),
        ((4, 96, 96, 3), (96, 96, 12)),  # FrameStackObservation of CarRacing
        ((4, 3, 64, 64), (64, 64, 12)),
        ((10, 10, 7), (10, 10, 7)),  # MinAtar
        ((8, 8, 119), (8, 8, 119)),  # Pgx's chess
        ((4, 5, 26), (4, 5, 26)),  # Overcooked's cramped room: more planes than rows
        ((9, 11, 83), (9, 11, 83)),
        ((4, 3, 194), (4, 3, 194)),  # Pgx's animal shogi
        ((6, 7, 2), (6, 7, 2)),
        ((4, 8), None),
        ((4, 5, 6, 7), None),
        ((84,), None),
    ],
)
def test_height_width_and_channels_are_found_in_any_order(shape, picture) -> None:
    assert picture_shape(shape) == picture
    assert image_of(Box.of(0, 1, shape)) == (picture is not None)
    notes = list(layout_notes(Dict((("eye", Box.of(0, 1, shape)), ("n", Discrete(2))))))
    assert len(notes) == (picture not in (None, shape))
    if notes:
        first = "channels" if len(shape) == 3 else "frames"
        words = f"have their {first} first: convolutions read them as {list(picture)}"
        assert notes == [f"observations eye {list(shape)} {words}"]


def test_pictures_with_channels_first_are_drawn() -> None:
    obs = np.random.default_rng(0).integers(0, 256, (6, 5, 3)).astype(np.uint8)
    first = obs.transpose(2, 0, 1)
    np.testing.assert_array_equal(draw(first, Box.of(0, 255, first.shape, np.uint8)), obs)
