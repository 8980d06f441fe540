"""The writers of files, and several writers as one."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrl.algorithms.ppo.ppo import PPO
from jaxrl.config import default_config, resolve, to_json
from jaxrl.reporting.writers import JsonlWriter, MultiWriter, TensorBoardWriter, Writer, open_writers
from jaxrl.reporting.writers.tensorboard import layout
from tests.runs.checkpoint.checkpoints import file_size_limit


def rows_of(path: Path) -> list[dict[str, float]]:
    # parse_constant: Python's reader would accept NaN, which is not JSON.
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


class Recorder(Writer):
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        self.closed = True


class FullDisk(Writer):
    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


class TestMultiWriter:
    def test_a_full_disk_warns_once_and_stops_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        before, after = Recorder(), Recorder()
        writer = MultiWriter([before, FullDisk(), after])
        writer.write(1, {"a": 1.0})
        writer.write(2, {"a": 2.0})
        writer.close()
        assert before.rows == after.rows == [(1, {"a": 1.0}), (2, {"a": 2.0})]
        assert before.closed
        assert after.closed
        assert [record.getMessage() for record in caplog.records] == [
            "FullDisk lost metrics, training continues: [Errno 28] No space left on device"
        ]

    def test_a_value_that_a_writer_cannot_take_stops_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        class Picky(Recorder):
            def write(self, step: int, scalars: Mapping[str, float]) -> None:
                raise ValueError("autodetected range of [nan, nan]\nis not finite")

        after = Recorder()
        MultiWriter([Picky(), after]).write(1, {"a": math.nan})
        assert len(after.rows) == 1
        assert [record.getMessage() for record in caplog.records] == [
            "Picky lost metrics, training continues: autodetected range of [nan, nan] is not finite"
        ]

    def test_writers_get_the_finite_values_of_a_distribution(self) -> None:
        class Bins(Recorder):
            def histograms(self, step: int, samples: Mapping[str, Any]) -> None:
                self.rows.append((step, dict(samples)))

        bins = Bins()
        MultiWriter([bins]).histograms(
            7, {"a": np.array([1.0, math.nan, 2.0, math.inf]), "b": np.array([math.nan])}
        )
        assert bins.rows == [(7, {"a": [1.0, 2.0]})]

    def test_a_bug_in_a_writer_is_not_hidden(self) -> None:
        with pytest.raises(NotImplementedError):
            MultiWriter([Writer()]).write(1, {})


def test_tensorboard_in_a_folder_that_is_named_like_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = TensorBoardWriter("gs:/tensorboard")
    writer.write(1, {"a": 1.0})
    writer.histograms(1, {"b": [math.nan, 1.0], "c": [math.inf]})
    writer.close()
    assert len(list((tmp_path / "gs:" / "tensorboard").iterdir())) == 1


class TestJsonl:
    def test_rows_are_valid_json_and_there_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        writer = JsonlWriter(path)
        values = {"steps": 64, "x": np.float32(0.5), "nan": math.nan, "inf": -math.inf}
        writer.write(64, values)
        # Read before close: a killed run must not lose rows.
        (row,) = rows_of(path)
        writer.close()
        assert row.pop("time") > 1.6e9
        assert row == {"step": 64, "steps": 64, "x": 0.5, "nan": None, "inf": None}

    def test_steps_continue_exactly_after_a_resume(self, tmp_path: Path) -> None:
        # Correctness 18: the rows made after the last checkpoint are made again by the resumed run.
        path = tmp_path / "metrics.jsonl"
        first = JsonlWriter(path)
        for step in (10, 20, 30, 40):
            first.write(step, {"run": 1})
        first.close()
        second = JsonlWriter(path)
        second.resume_from(20)
        for step in (30, 40, 50):
            second.write(step, {"run": 2})
        second.close()
        assert [(row["step"], row["run"]) for row in rows_of(path)] == [
            (10, 1),
            (20, 1),
            (30, 2),
            (40, 2),
            (50, 2),
        ]

    def test_a_row_torn_by_a_crash_is_dropped(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_text('{"step": 10, "x": 1}\n{"step": 20, "x"')
        writer = JsonlWriter(path)
        writer.resume_from(20)
        writer.write(30, {})
        writer.close()
        assert [row["step"] for row in rows_of(path)] == [10, 30]

    def test_a_new_run_in_the_folder_of_a_dead_one_starts_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "metrics.jsonl"
        path.write_text('{"step": 10, "x": 1}\n')
        writer = JsonlWriter(path)
        writer.write(10, {"x": 2})
        writer.close()
        assert [row["x"] for row in rows_of(path)] == [2]

    def test_a_file_that_is_lost_is_told_once_and_made_anew(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = tmp_path / "run"
        folder.mkdir()
        writer = MultiWriter([JsonlWriter(folder / "metrics.jsonl")])
        writer.write(10, {})
        folder.rename(tmp_path / "moved")
        writer.write(20, {})
        writer.write(30, {})
        folder.mkdir()
        writer.write(40, {})
        writer.close()
        (message,) = [record.getMessage() for record in caplog.records]
        assert message.startswith("JsonlWriter lost metrics, training continues: [Errno 2]")
        assert [row["step"] for row in rows_of(tmp_path / "moved" / "metrics.jsonl")] == [10]
        assert [row["step"] for row in rows_of(folder / "metrics.jsonl")] == [40]


class TestTensorBoard:
    def test_events_hold_the_scalars_and_purge_what_a_resume_makes_again(self, tmp_path: Path) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog

        writer = TensorBoardWriter(tmp_path)
        writer.resume_from(100)
        writer.write(128, {"loss/policy": 0.25, "grad/norm": np.float32(2.0)})
        writer.flush()
        writer.close()
        (path,) = tmp_path.glob("events.out.tfevents.*")
        assert _scalars_of(path) == {("loss/policy", 128, 0.25), ("grad/norm", 128, 2.0)}
        (start,) = [e for e in _events_of(path) if e.session_log.status == SessionLog.START]
        assert start.step == 101

    def test_a_full_disk_costs_rows_and_neither_blocks_nor_ends_training(self, tmp_path: Path) -> None:
        writer = TensorBoardWriter(tmp_path)
        writer.write(1, {"a": 1.0})
        writer.flush()
        with file_size_limit(2000):
            for step in range(2, 400):
                with contextlib.suppress(OSError):
                    writer.write(step, {"a": 2.0, "b": 3.0})
            with pytest.raises(OSError, match="File too large"):
                writer.write(step, {"x" * 10_000: 1.0})
        writer.write(500, {"a": 5.0})
        writer.close()
        files = sorted(tmp_path.glob("events.out.tfevents.*"), key=lambda path: int(path.suffix[1:]))
        assert ("a", 1, 1.0) in _scalars_of(files[0])
        assert _scalars_of(files[-1]) == {("a", 500, 5.0)}
        # What came after is no new beginning: TensorBoard would hide the first file.
        assert [
            len([e for e in _events_of(f) if e.HasField("session_log")]) for f in (files[0], files[-1])
        ] == [1, 0]

    def test_shows_configuration_hyperparameters_and_a_layout(self, tmp_path: Path) -> None:
        from tensorboardX.proto.layout_pb2 import Layout
        from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

        config = default_config()
        config.ppo.gamma = 0.9
        writer = TensorBoardWriter(tmp_path, to_json(resolve(config, 1)))
        writer.write(64, {"steps": 64, "episode/return": 20.0})
        writer.histograms(64, {"eval/returns": [1.0, 2.0, 2.0, 500.0]})
        writer.finish({"steps": 64})
        writer.close()
        (path,) = tmp_path.glob("events.out.tfevents.*")
        values = {v.tag: v for e in _events_of(path) for v in e.summary.value}
        table = values["config/text_summary"].tensor.string_val[0].decode().splitlines()
        assert table[2] == "| **ppo.gamma** | **0.9** | 0.99 |"
        assert "| env.wrappers | [] | |" in table
        plugin = {
            name: HParamsPluginData.FromString(values[f"_hparams_/{name}"].metadata.plugin_data.content)
            for name in ("experiment", "session_start_info", "session_end_info")
        }
        start = plugin["session_start_info"].session_start_info
        assert start.hparams["ppo.gamma"].number_value == 0.9
        assert start.hparams["env.name"].string_value == "gymnax:CartPole-v1"
        assert "stop.steps" not in start.hparams
        names = [info.name for info in plugin["experiment"].experiment.hparam_infos]
        assert set(names) == set(start.hparams)
        assert names[:2] == ["seed", "ppo.learning_rate"]
        (layout,) = [v for tag, v in values.items() if tag.startswith("custom_scalars__config")]
        charts = Layout.FromString(layout.tensor.string_val[0]).category
        assert [category.title for category in charts] == ["Learning", "Environment", "Health", "Speed"]
        histogram = values["eval/returns"].histo
        assert (histogram.num, histogram.min, histogram.max, sum(histogram.bucket)) == (4, 1.0, 500.0, 4)
        # The x-axis is no curve.
        assert "steps" not in values

    def test_the_layout_names_keys_that_are_documented(self) -> None:
        text = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
        documented = re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)
        charts = layout(PPO.highlights)
        tags = [tag for group in charts.values() for tags in group.values() for tag in tags]
        assert not [tag for tag in tags if not any(re.match(tag, key) for key in documented)]

    def test_a_second_file_of_one_second_is_another(self, tmp_path: Path) -> None:
        writer = TensorBoardWriter(tmp_path)
        writer.write(1, {"a": 1.0})
        writer.resume_from(1)  # rolled back
        writer.write(2, {"a": 2.0})
        writer.close()
        assert set().union(*map(_scalars_of, tmp_path.glob("events.*"))) == {("a", 1, 1.0), ("a", 2, 2.0)}


def _events_of(path: Path) -> list[Any]:
    from tensorboardX.proto.event_pb2 import Event

    return [Event.FromString(record) for record in _records(path.read_bytes())]


def _scalars_of(path: Path) -> set[tuple[str, int, float]]:
    return {(v.tag, e.step, v.simple_value) for e in _events_of(path) for v in e.summary.value}


def _records(data: bytes) -> list[bytes]:
    """The payloads of a TFRecord file: uint64 length, uint32 checksum, payload, uint32 checksum.

    A record that is torn at the end of the file is left out.
    """
    records, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        if at + 16 + length > len(data):
            break
        records.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    return records


def test_a_run_fills_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = default_config()
    config.log.writers = ("tensorboard", "jsonl", "csv")
    with open_writers(tmp_path, resolve(config, 1)) as writer:
        writer.write(50_000, {"time/steps_per_second": 1000.0, "episode/return": 20.0})
    assert (tmp_path / "train.log").exists()
    assert rows_of(tmp_path / "metrics.jsonl")[0]["episode/return"] == 20.0
    assert list((tmp_path / "tensorboard").glob("events.*"))
    assert (tmp_path / "metrics.csv").read_text().startswith("step,time,")
    shown = capsys.readouterr().out
    assert "gymnax:CartPole-v1" in shown
    assert "50,000" in shown


def test_a_run_without_writers_only_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = default_config()
    config.log.writers = ()
    with open_writers(tmp_path, resolve(config, 1)) as writer:
        writer.write(50_000, {"time/steps_per_second": 1000.0, "episode/return": 20.0})
    assert {path.name for path in tmp_path.iterdir()} == {"train.log"}
    assert "50,000" in capsys.readouterr().out
