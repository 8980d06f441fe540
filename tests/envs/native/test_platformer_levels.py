"""Levels of `jaxrl:Platformer` as JSON and as arrays, and what is none."""

from __future__ import annotations

import dataclasses
import io
import json
import re

import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.native.platformer.level import LevelError, from_json, from_npz
from tests.envs.native.test_platformer import MINED, NAME, ROOM, folder_of, level


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROOM[:-1], "the border of a level must be solid"),
        ((*ROOM[:-2], "#S..K..xQ#", ROOM[-1]), "rows hold 'Q'"),
        ((*ROOM[:-2], "#S..K....#", ROOM[-1]), "rows must hold 'E' once, not 0 times"),
        (("##", "##"), "rows must be 3 to 16 strings"),
        ((*ROOM[:-1], "###"), "rows must be 3 to 16 strings of one length"),
    ],
)
def test_what_is_no_level(rows, message):
    with pytest.raises(LevelError, match=re.escape(message)):
        level(rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object with category, rows, seed, solution"),
        (json.dumps({"rows": 3, "category": "simple", "seed": 0, "solution": ""}), "rows must be a list"),
        (
            json.dumps({"rows": list(ROOM), "category": "hard", "seed": 0, "solution": ""}),
            "category (='hard')",
        ),
        (json.dumps({"rows": list(ROOM), "category": "simple", "seed": 0.5, "solution": ""}), "seed (=0.5)"),
        (
            json.dumps({"rows": list(ROOM), "category": "simple", "seed": 0, "solution": "9"}),
            "solution must be",
        ),
    ],
)
def test_what_is_no_file_of_a_level(text, message):
    with pytest.raises(LevelError, match=re.escape(message)):
        from_json(text)


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def test_levels_as_arrays(tmp_path):
    fields = dataclasses.asdict(level(ROOM, solution="0123"))
    folder = folder_of(tmp_path, level(MINED))
    (folder / "simple" / "0001.npz").write_bytes(npz(**fields))
    env = envs.make(f"{NAME}(levels='{folder}')")
    assert [one.rows for one in env.levels] == [tuple(MINED), tuple(ROOM)]
    assert env.levels[1].solution == "0123"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK", "is not .npz"),
        (npz(rows=np.array(["###", None], object), category="simple", seed=0, solution=""), "is not .npz"),
        (npz(rows=np.zeros(10**6)), "holds more than 1,000,000 bytes"),
        (npz(rows=list(ROOM), category="simple", seed=0.5, solution=""), "seed (=0.5)"),
        (npz(rows=list(ROOM), category="simple", seed=0), "must be an object with category, rows, seed"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_level(content, message):
    with pytest.raises(LevelError, match=re.escape(message)):
        from_npz(content)


def test_a_damaged_folder_is_one_line(tmp_path):
    folder = folder_of(tmp_path, level(ROOM))
    (folder / "simple" / "0001.json").write_text("{}")
    with pytest.raises(ValueError, match=r"0001\.json: must be an object") as error:
        envs.make(f"{NAME}(levels='{folder}')")
    assert "\n" not in str(error.value)
