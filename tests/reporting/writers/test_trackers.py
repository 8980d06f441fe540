"""Trackers with their real packages, offline: what is stored is read back with their own tools."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError, default_config, resolve
from jaxrl.reporting.writers import Background, MlflowTracker, NeptuneTracker, WandbTracker, require_packages
from jaxrl.reporting.writers import tracker as tracker_module

CONFIG = {"seed": 3, "env": {"name": "gymnax:CartPole-v1", "wrappers": ["a"]}, "stop": {"return": None}}
SUMMARY = {"stop_reason": "steps", "steps": 20, "eval_return": 500.0, "versions": {"jax": "0.10"}}
# What the packages' own dependencies warn of is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def package(name: str) -> Any:
    reason = f"{name} is not installed: pip install -e '.[{name}]'"
    return pytest.importorskip(name, reason=reason, exc_type=ImportError)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to make a database: that is not what these tests are about."""
    monkeypatch.setattr(tracker_module, "CLOSE_SECONDS", 120.0)
    monkeypatch.setattr(tracker_module, "CLOSE_SECONDS_AFTER_SIGNAL", 120.0)


def train(tracker: Any, resume_from: int | None, steps: tuple[int, ...], finish: bool = True) -> None:
    """The rows that a run gives to a tracker."""
    writer = Background(tracker, every=0.01)
    if resume_from is not None:
        writer.resume_from(resume_from)
    writer.status("compiling the training program")
    for step in steps:
        writer.write(step, {"steps": step, "loss/policy": step / 2, "odd": math.nan})
        writer.histograms(step, {"eval/returns": [1.0, 2.0, 2.0]})
    if finish:
        writer.finish(SUMMARY)
    writer.close()


class TestMlflow:
    @pytest.fixture(autouse=True)
    def _installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package("mlflow")
        package("sqlalchemy")
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    @pytest.mark.slow
    def test_a_resumed_run_goes_on_in_its_database(self, tmp_path: Path) -> None:
        from mlflow import MlflowClient

        folder = tmp_path / "run"
        folder.mkdir()
        train(MlflowTracker(str(folder), "project", "", CONFIG), None, (5, 10, 15), finish=False)
        train(MlflowTracker(str(folder), "project", "", CONFIG | {"seed": 4}), 10, (15, 20))
        client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
        experiment = client.get_experiment_by_name("project")
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.info.run_name == f"{tmp_path.name}/run"
        assert run.info.status == "FINISHED"
        history = client.get_metric_history(run.info.run_id, "loss/policy")
        # Step 15 was there already; made again, it is not drawn twice.
        assert [(x.step, x.value) for x in history] == [(5, 2.5), (10, 5.0), (15, 7.5), (20, 10.0)]
        assert abs(history[-1].timestamp / 1000 - time.time()) < 60
        assert math.isnan(run.data.metrics["odd"])
        assert run.data.metrics["summary/eval_return"] == 500.0
        assert run.data.tags["stop_reason"] == "steps"
        assert run.data.params["env.name"] == "gymnax:CartPole-v1"
        assert run.data.params["seed"] == "3"  # parameters are final
        assert {path.name for path in folder.iterdir()} == {"mlflow.db", "trackers"}

    @pytest.mark.slow
    def test_a_new_run_in_the_folder_of_a_dead_one_is_another(self, tmp_path: Path) -> None:
        from mlflow import MlflowClient

        for steps in ((5, 10), (5,)):
            train(MlflowTracker(str(tmp_path), "project", "name", CONFIG), None, steps)
        client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        runs = client.search_runs([client.get_experiment_by_name("project").experiment_id])
        assert len(runs) == 2

    @pytest.mark.slow
    def test_a_server_out_of_reach_costs_one_warning(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        train(MlflowTracker(str(tmp_path), "project", "", CONFIG), None, (5, 10))
        ours = [
            r.getMessage() for r in caplog.records if r.name.startswith("jaxrl") and "waiting" not in r.msg
        ]
        (message,) = ours
        assert message.startswith(
            "mlflow fails, training continues: MlflowException: API request to http://127"
        )


class TestWandb:
    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package("wandb")
        monkeypatch.setenv("WANDB_MODE", "offline")

    @pytest.mark.slow
    def test_a_resumed_run_goes_on_under_its_id(self, tmp_path: Path) -> None:
        train(WandbTracker(str(tmp_path), "project", "baseline", CONFIG), None, (5, 10), finish=False)
        train(WandbTracker(str(tmp_path), "project", "baseline", CONFIG), 10, (15, 20))
        first, second = sorted(
            tmp_path.glob("wandb/offline-run-*/run-*.wandb"), key=lambda p: p.stat().st_mtime
        )
        deadline = time.monotonic() + 60
        while True:
            records = [*_records(first), *_records(second)]
            rows = [_row(record.history) for record in records if record.HasField("history")]
            # W&B's own process may still be writing when a run is said to be finished.
            if len(rows) >= 4 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        runs = [record.run for record in records if record.HasField("run")]
        stored = json.loads((tmp_path / "trackers" / "wandb.json").read_text())["id"]
        assert {(run.run_id, run.project, run.display_name) for run in runs} == {
            (stored, "project", "baseline")
        }
        config = {item.key: json.loads(item.value_json) for item in runs[0].config.update}
        assert config["env"]["name"] == "gymnax:CartPole-v1"
        assert [(row["_step"], row["loss/policy"]) for row in rows] == [
            (5, 2.5),
            (10, 5),
            (15, 7.5),
            (20, 10),
        ]
        assert rows[0]["eval/returns"]["_type"] == "histogram"
        summary = [_row(record.summary, "update") for record in records if record.HasField("summary")]
        assert {k: v for row in summary for k, v in row.items()}["summary/eval_return"] == 500.0

    @pytest.mark.slow
    def test_nobody_is_asked_for_a_key(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.delenv("WANDB_API_KEY", raising=False)
        monkeypatch.setenv("NETRC", str(tmp_path / "none"))
        train(WandbTracker(str(tmp_path), "project", "", CONFIG), None, (5,))
        (message,) = [record.getMessage() for record in caplog.records if record.name.startswith("jaxrl")]
        assert message.startswith(
            "wandb fails, training continues: RuntimeError: no API key: run `wandb login`"
        )


def _row(message: Any, field: str = "item") -> dict[str, Any]:
    """The values of a record of history or summary."""
    values: dict[str, Any] = defaultdict(dict)
    for item in getattr(message, field):
        value = json.loads(item.value_json.replace("NaN", "null"))
        if len(item.nested_key) > 1:
            values[item.nested_key[0]][item.nested_key[1]] = value
        else:
            values[item.key or item.nested_key[0]] = value
    return values


def _records(path: Path) -> Iterator[Any]:
    """The records of a W&B file: LevelDB's log format, blocks of 32 kB, after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


class TestNeptune:
    def test_a_resumed_run_goes_on_under_its_id(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package("neptune")
        monkeypatch.setenv("NEPTUNE_MODE", "offline")
        monkeypatch.delenv("NEPTUNE_DATA_DIRECTORY", raising=False)
        train(NeptuneTracker(str(tmp_path), "project", "baseline", CONFIG), None, (5, 10), finish=False)
        train(NeptuneTracker(str(tmp_path), "project", "baseline", CONFIG), 10, (15,))
        folders = list(tmp_path.glob(".neptune/offline/run__*"))
        assert len(folders) == 2
        operations = [
            json.loads(line)["obj"]
            for folder in sorted(folders, key=lambda f: f.stat().st_mtime)
            for line in (folder / "data-1.log").read_text().splitlines()
        ]
        values = {"/".join(x["path"]): x.get("value") for x in operations}
        points = [
            (v["step"], v["value"])
            for x in operations
            if x["path"] == ["metrics", "loss", "policy"]
            for v in x["values"]
        ]
        assert points == [(5, 2.5), (10, 5.0), (15, 7.5)]
        assert values["config/env.name"] == "gymnax:CartPole-v1"
        assert values["summary/eval_return"] == 500.0


def test_a_tracker_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = default_config()
    config.log.writers = ("jsonl", "mlflow")
    with pytest.raises(ConfigError, match=r"`log.writers` \(=\('jsonl', 'mlflow'\)\) .* '.\[mlflow\]'"):
        require_packages(resolve(config, 1).log.writers)
