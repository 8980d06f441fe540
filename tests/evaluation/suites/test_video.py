"""Films as GIF and MP4: their size, and the packages that they need."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from jaxrl.config import ConfigError
from jaxrl.evaluation.suites import video


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(10, 10, (320, 320)), (210, 160, (320, 420)), (101, 321, (320, 101))]
)
def test_films_are_at_least_320_pixels_wide(
    height: int, width: int, expected: tuple[int, int], tmp_path: Path
) -> None:
    image = pytest.importorskip("PIL.Image")
    video.save([np.full((height, width, 3), 80 * i, np.uint8) for i in range(3)], str(tmp_path / "x.gif"))
    with image.open(tmp_path / "x.gif") as film:
        assert film.size == expected
        assert film.n_frames == 3


def test_mp4_has_each_frame_with_even_sides(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    pictures = [np.full((7, 11, 3), 60 * i, np.uint8) for i in range(4)]
    video.save(pictures, str(tmp_path / "x.mp4"))
    with av.open(str(tmp_path / "x.mp4")) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert [frame.shape for frame in frames] == [(210, 330, 3)] * 4
    np.testing.assert_allclose([frame.mean() for frame in frames], [0, 60, 120, 180], atol=6)


@pytest.mark.parametrize(("ending", "module", "package"), [(".gif", "PIL", "pillow"), (".mp4", "av", "av")])
def test_missing_package_names_the_extra(
    ending: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find(name))
    with pytest.raises(ConfigError, match=rf"^`--video` needs the package {package}: .*\[video\]"):
        video.require_packages(ending)
