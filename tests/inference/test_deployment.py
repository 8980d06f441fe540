"""`jaxrl deploy` and `jaxrl models`: what a model holds, what keeps it back, and what the commands say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jaxrl.commands.deploy import main as deploy
from jaxrl.commands.models import main as models
from jaxrl.config import default_config, resolve
from jaxrl.inference import formats, model_folder
from jaxrl.inference.numpy_policy import NumpyPolicy
from tests.inference.runs import save_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "walker"
    save_run(folder, env__name="gymnax:CartPole-v1", normalize__observations=True)
    (folder / ".run").write_text("abc123\n")
    (folder / "summary.json").write_text(
        json.dumps({"commits": {"jaxrl": {"commit": "f00d", "clean": True}}})
    )
    # It was trained from a run that was trained from a clone, of which it names a checkpoint.
    clone, between = folder.with_name("clone"), folder.with_name("between")
    starts = {folder: between, between: clone / "checkpoints" / "12"}
    for place in (clone, between):
        place.mkdir()
        (place / "config.json").write_text('{"algorithm": "ppo", "ppo": {}}')
    cloning = {"algorithm": "behavior_cloning", "behavior_cloning": {"data": "<script>|x"}}
    (clone / "config.json").write_text(json.dumps(cloning))
    summary = {"episodes": 10, "steps": 4802, "players": ["solver"], "digest": "abcd"}
    (clone / "clone.json").write_text(json.dumps({"passed": True, "data": summary}))
    for place, start in starts.items():
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, "init_from": str(start)}))
    return folder


@pytest.fixture(scope="module")
def registry(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With one version, which production points at."""
    place = tmp_path_factory.mktemp("models")
    arguments = (f"--to={place}", "--stage=production", "--episodes=8", "--gate=mean>=1,mean<=500")
    assert deploy(["jaxrl deploy", str(run), *arguments, "--licence=MIT"]) == 0
    return place


@pytest.mark.slow
def test_a_model_explains_itself(registry: Path) -> None:
    folder = registry / "walker/production"
    record = json.loads((folder / "model.json").read_text())
    assert set(record["forms"]) == {"stablehlo", "onnx", "safetensors"}
    for check in record["checks"].values():
        assert check["steps"] * check["environments"] >= 500
        assert check["different_actions"] == 0
    origin = record["provenance"]
    assert (origin["identity"], origin["step"]) == ("abc123", 7)
    assert origin["trained_from"]["jaxrl"]["commit"] == "f00d"
    assert (record["licence"], record["gates"]) == ("MIT", ["mean>=1", "mean<=500"])
    assert record["evaluation"] == json.loads((folder / "evaluation.json").read_text())
    assert record["evaluation"]["episodes"] == 8
    spaces = json.loads((folder / "spaces.json").read_text())
    assert spaces["action"] == {"type": "discrete", "shape": [], "dtype": "int32", "n": 2}
    assert spaces["observation"]["low"][1] is None or spaces["observation"]["low"][1] < -1e30  # no bound
    out = NumpyPolicy(folder)(
        np.zeros((1, 4), np.float32), NumpyPolicy(folder).initial_carry(1), np.ones(1, bool)
    )
    assert out["action"].shape == (1,)
    card = (folder / "MODEL.md").read_text()
    assert "| licence | MIT |" in card
    assert "f00d" in card
    assert (
        "| data | &lt;script&gt;\\|x, 10 episodes, 4,802 steps, played by solver, digest abcd, learnt" in card
    )
    assert "<script>" not in card
    # A return of what was played before a cut is no return.
    assert "cut off" not in card
    evaluation = {**record["evaluation"], "unfinished": 3.0}
    card = model_folder.card({**record, "evaluation": evaluation}, resolve(default_config(), 1))
    assert "3 of 8 episodes were cut off after 10,000 steps" in card


@pytest.mark.slow
def test_a_closed_gate_deploys_nothing(run: Path, registry: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--to={registry}", "--stage=production", "--episodes=8", "--gate=mean>=501"]
    assert deploy(["jaxrl deploy", str(run), *arguments]) == 3
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "the gate mean>=501 is closed: mean is" in err
    assert [p.name for p in (registry / "walker/versions").iterdir()] == ["1"]


@pytest.mark.slow
def test_a_form_that_acts_differently_deploys_nothing(
    run: Path, registry: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    named = formats.arrays_by_name

    def wrong(function: object) -> dict[str, np.ndarray]:
        return {k: -x if k.startswith("params.head") else x for k, x in named(function).items()}  # type: ignore[arg-type]

    monkeypatch.setattr(formats, "arrays_by_name", wrong)
    assert deploy(["jaxrl deploy", str(run), f"--to={registry}", "--episodes=0"]) == 1
    assert "form does not act as the run" in capfd.readouterr().err
    assert [p.name for p in (registry / "walker/versions").iterdir()] == ["1"]


def test_commands_of_models(registry: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str, code: int = 0) -> str:
        assert models(["jaxrl models", *arguments, f"--registry={registry}"]) == code
        out, err = capfd.readouterr()
        return out + err

    assert "walker" in (listed := said("list"))
    assert "1 version     latest 1, production 1" in listed
    assert '"licence": "MIT"' in said("show", "walker@production")
    assert said("promote", "walker@1", "staging") == "staging of walker is version 1\n"
    assert "has no version before 1" in said("rollback", "walker", "staging", code=2)
    assert said("verify") == "walker version 1: intact\n"
    for arguments in (
        ("lst",), ("show",), ("show", "other"), ("promote", "walker"), ("promote", "walker@1", "prod"),
        ("rollback", "walker@1", "staging"), ("list", "x"), ("promote", "walker@2", "staging"),
    ):  # fmt: skip
        assert said(*arguments, code=2).count("\n") == 1
    (registry / "walker/versions/1/policy.onnx").write_bytes(b"x")
    assert said("verify", "walker", code=1).splitlines()[1] == "  policy.onnx: not as it was deployed"
    assert models(["jaxrl models", "list", f"--registry={registry}/none"]) == 0
    assert "holds no models" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--gate=mean",), "--gate"),
        (("--gate=mean>=1", "--episodes=0"), "--gate"),
        (("--name=../x",), "--name"),
        (("--stage=prod",), "--stage"),
        (("--to=s4://bucket/x",), "--to"),
        (("--gate=meen>=1", "--episodes=1"), "`mean`"),
    ],
)
def test_bad_input_is_one_line(
    run: Path, arguments: tuple[str, ...], named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = arguments if any(x.startswith("--to") for x in arguments) else (f"--to={tmp_path}", *arguments)
    assert deploy(["jaxrl deploy", str(run), *given]) == 2
    err = capfd.readouterr().err
    assert (err.count("\n"), named in err) == (1, True), err
    assert not list(tmp_path.iterdir())


# What is deployed is above; MLflow itself: tests/reporting/writers/test_trackers.py.
@pytest.mark.long
@pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy is deprecated"
)  # MLflow asks SQLAlchemy so
def test_mlflow_holds_the_same_files(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    arguments = [f"--to={tmp_path / 'models'}", "--episodes=4", "--stage=production", f"--mlflow={uri}"]
    for number in (1, 2):
        assert deploy(["jaxrl deploy", str(run), *arguments]) == 0
        assert f"mlflow      walker version {number} at {uri}" in capfd.readouterr().out
    client = mlflow.MlflowClient(uri, uri)
    found = client.get_model_version_by_alias("walker", "production")
    assert (int(found.version), found.tags["step"]) == (2, "7")
    place = Path(client.get_model_version_download_uri("walker", "2").removeprefix("file://"))
    ours = tmp_path / "models/walker/versions/2"
    assert {p.name: p.read_bytes() for p in place.iterdir()} == {
        p.name: p.read_bytes() for p in ours.iterdir()
    }
    # What cannot be used is one line, before or after; the version stays.
    assert deploy(["jaxrl deploy", str(run), *arguments[:2], "--mlflow=ftp://x"]) == 2
    assert deploy(["jaxrl deploy", str(run), *arguments[:2], "--mlflow=http://127.0.0.1:9"]) == 1
    assert [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: `--mlflow`")]
