"""Readers of JSON, JSON lines and YAML take nothing that is too large, too deep or no file."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import data_files

READERS: dict[str, Callable[[Path], Any]] = {
    "json": data_files.read_json,
    "lines": data_files.read_lines,
    "yaml": data_files.read_yaml,
}
DEEP = 1_000_000


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    return READERS[request.param]


def test_a_pipe_is_refused_at_once(read: Callable[[Path], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no regular file"):
        read(tmp_path / "pipe")


def test_a_device_is_refused(read: Callable[[Path], Any]) -> None:
    with pytest.raises(OSError, match=r"no regular file: '/dev/zero'"):
        read(Path("/dev/zero"))


def test_a_folder_is_refused(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read(tmp_path)


def test_a_missing_file_says_so(read: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def test_a_huge_file_is_refused_before_it_fills_the_memory(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    file = tmp_path / "huge"
    with file.open("wb") as stream:
        stream.truncate(2**40)  # a hole, which takes no room
    with pytest.raises(OSError, match=r"larger than \d+ MiB: '.*huge'"):
        read(file)


def test_the_bound_counts_from_the_start_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "ten").write_bytes(b"0123456789")
    assert data_files.read_bytes(tmp_path / "ten", largest=10, offset=8) == b"89"
    assert data_files.read_bytes(tmp_path / "ten", largest=10, offset=12) == b""
    with pytest.raises(OSError, match="larger"):
        data_files.read_bytes(tmp_path / "ten", largest=9, offset=8)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[" * DEEP, "[" * 500 + "]" * 500, '{"a":' * 101 + "0" + "}" * 101])
def test_deep_nesting_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "deep").write_text(text)
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        data_files.parse_json(text)
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        data_files.read_yaml(tmp_path / "deep")
    assert data_files.parse_line(text.encode()) is None


def test_what_is_wide_is_not_deep() -> None:
    rows = [[{"a": [i]}] for i in range(1000)]
    assert data_files.parse_json(json.dumps(rows)) == rows


def test_numbers_that_are_not_finite_stay() -> None:
    found = data_files.parse_json('{"a": NaN, "b": -Infinity}')
    assert math.isnan(found["a"])
    assert found["b"] == -math.inf


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": \xff}', b"9" * 5000])
def test_no_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        data_files.parse_json(text)


def test_errors_of_yaml_name_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("ppo:\n\tgamma: 0.9\n")
    with pytest.raises(ValueError, match=r"'\\t' that cannot start any token in \"mine.yaml\", line 2"):
        data_files.read_yaml(tmp_path / "mine.yaml")


def test_an_object_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(ValueError, match="it must hold a JSON object"):
        data_files.read_object(tmp_path / "list.json")


def test_torn_damaged_and_endless_lines_are_left_out(tmp_path: Path) -> None:
    endless = b'{"a": "' + b"x" * data_files.LONGEST_LINE + b'"}'
    lines = (b'{"a": 1}', b"[2]", b"{", endless, b"[" * 10_000, b'{"a": NaN}', b'{"a": ')
    (tmp_path / "rows").write_bytes(b"\n".join(lines))
    first, second = data_files.read_objects(tmp_path / "rows")
    assert first == {"a": 1}
    assert math.isnan(second["a"])


def test_aliases_that_stand_for_billions_are_refused(tmp_path: Path) -> None:
    laughs = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    laughs += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "laughs.yaml").write_text("\n".join(laughs))
    started = time.perf_counter()
    with pytest.raises(ValueError, match="more than 100,000 values"):
        data_files.read_yaml(tmp_path / "laughs.yaml")
    assert time.perf_counter() - started < 5


def test_aliases_that_nest_are_refused(tmp_path: Path) -> None:
    chain = ["- &a0 [x]", *(f"- &a{i} [*a{i - 1}]" for i in range(1, 200))]
    (tmp_path / "chain.yaml").write_text("\n".join(chain))
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        data_files.read_yaml(tmp_path / "chain.yaml")


def test_an_alias_of_what_it_stands_in_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").write_text("&a [*a]")
    with pytest.raises(ValueError, match="an alias stands inside of what it names"):
        data_files.read_yaml(tmp_path / "loop.yaml")


def test_few_aliases_and_merges_are_read(tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text("a: &a {x: 1, y: [2]}\nb: {<<: *a, x: 3}\nc: *a\n")
    a = {"x": 1, "y": [2]}
    assert data_files.read_yaml(tmp_path / "few.yaml") == {"a": a, "b": {"x": 3, "y": [2]}, "c": a}


@pytest.mark.parametrize("text", ["a: 1." + "9" * 100_000, "9" * 50_000, "a: b: c", "\0", "? [a]\n: 1"])
def test_no_yaml_is_a_value_error_at_once(text: str, tmp_path: Path) -> None:
    (tmp_path / "no.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        data_files.read_yaml(tmp_path / "no.yaml")


def test_plain_values_mean_what_yaml_1_2_says(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(
        "[010, 1:30, off, 2026-01-02, 1e-3, .5, -1_000, 0x10, true, ~, .inf, 1.5e3, '1']"
    )
    assert data_files.read_yaml(tmp_path / "plain.yaml") == [
        *("010", "1:30", "off", "2026-01-02", 1e-3, 0.5, -1000, 16, True, None, float("inf"), 1500.0, "1")
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_file_of_yaml_is_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text(text)
    assert data_files.read_yaml(tmp_path / "empty.yaml") is None
