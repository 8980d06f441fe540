"""Names of TPU slices."""

from __future__ import annotations

import pytest

from jaxrl.config.errors import ConfigError
from jaxrl.parallel import tpu_slices


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("v5e:4x8", 32),
        ("v5e:1x1", 1),
        ("V6E:16x16", 256),
        ("v3:4x4", 32),
        ("v4:2x2x4", 16),
        ("v5p:4x4x8", 128),
    ],
)
def test_slices_and_their_devices(text: str, devices: int) -> None:
    assert tpu_slices.parse(text).device_count == devices


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("v5e", "must be GENERATION:SHAPE, such as v5e:4x8"),
        ("v9:2x2", "generations: v3, v4, v5e, v5p, v6e"),
        ("v5e-32", "must be GENERATION:SHAPE"),
        ("v5e:3x3", "one of the shapes 1x1, 2x2, 2x4"),
        ("v5e:8x4", "one of the shapes"),
        ("v4:2x2", "one of the shapes 2x2x1"),
        ("v4:4x4x6", "multiples of 4"),
        ("v4:8x4x4", "A <= B <= C"),
    ],
)
def test_what_is_no_slice(text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tpu_slices.parse(text)
    assert rule in str(caught.value)
    assert f"`--topology` (={text!r})" in str(caught.value)


def test_peak_is_what_the_matrix_units_can_do() -> None:
    # Published peaks: matrix units per device x side^2 x 2 operations x clock.
    for name, units in {"v3": 2, "v4": 8, "v5e": 4, "v5p": 8}.items():
        chip = tpu_slices.CHIPS[name]
        assert chip.flops == pytest.approx(units * 128**2 * 2 * chip.clock, rel=0.01), name
