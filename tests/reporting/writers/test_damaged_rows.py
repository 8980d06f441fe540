"""Files of rows that others have damaged or replaced by links."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from jaxrl.reporting.writers import CsvWriter, JsonlWriter


def test_lines_that_are_no_rows_are_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    good = [b'{"step": 1, "a": 1.0}\n', b'{"step": 3, "a": 3.0}\n']
    deep = b'{"step": 2, "a": ' + b"[" * 100_000 + b"\n"
    bad = [b'{"step": 2, "a": "\xff"}\n', b'{"step": 1' + b"0" * 5000 + b"}\n", deep, b"[]\n", b"\x00\n"]
    bad += [b'{"step": 1' + b"0" * 400 + b"}\n", b'{"step": NaN}\n', b'{"step": true}\n']
    path.write_bytes(b"".join([good[0], *bad, good[1], b'{"step": 4, "torn']))
    writer = JsonlWriter(path)
    writer.resume_from(3)
    writer.write(5, {"a": 5.0})
    writer.close()
    assert [row["step"] for row in map(json.loads, path.read_text().splitlines())] == [1, 3, 5]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == b"".join(bad)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"8 lines of {path} are no rows: they are now in ")


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    for make in (JsonlWriter, CsvWriter):
        link = tmp_path / "metrics"
        link.symlink_to(tmp_path / "new")
        writer = make(link)
        with contextlib.suppress(OSError):
            writer.write(1, {"a": 1.0})
        writer.close()
        assert not (tmp_path / "new").exists()
        link.unlink()
