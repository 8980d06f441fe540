"""Every format acts as the policy does, and an export that does not is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from jax.extend.mlir.dialects import stablehlo as hlo

from jaxrl.commands.export import main
from jaxrl.evaluation import trained_policy
from jaxrl.inference import PolicyFunction, formats
from jaxrl.inference import export as exporting
from jaxrl.inference.equivalence import compare
from jaxrl.inference.numpy_policy import NumpyPolicy
from jaxrl.runs.checkpoint import Checkpointer
from tests.commands.refusals import refused
from tests.envs.numbered_environments import NUMBERED, VECTORS
from tests.inference.runs import observations, policy_of, save_run

FAR = "tests.e2e.environments:FarActions(low=0, high=1000, middle=500, reach=500)"
# Between them: each built-in encoder, core and head, dicts, masks, bytes, separate values, normalised layers.
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": {
        "env__name": "gymnax:CartPole-v1",
        "normalize__observations": True,
        "network__separate_value": True,
    },
    "gru": {"env__name": "jaxrl:ProbeDict", "network__core": "gru", "normalize__observations": True},
    "squashed": {
        "env__name": "gymnax:Pendulum-v1",
        "network__core": "none",
        "network__head": "tanh_gaussian",
        "network__activation": "gelu",
        "normalize__observations": True,
    },
    "mixture": {
        "env__name": "gymnax:Pendulum-v1",
        "network__core": "none",
        "network__head": "gaussian_mixture",
        "network__mixture_components": 3,
    },
    "scaled": {"env__name": FAR, "network__core": "none"},
    "scaled mixture": {"env__name": FAR, "network__core": "none", "network__head": "gaussian_mixture"},
    "clipped": {"env__name": "gymnax:Pendulum-v1", "network__activation": "silu", "network__core": "lru"},
    "impala": {"env__name": "gymnax:Breakout-MinAtar", "network__encoder": "impala", "network__core": "none"},
    "discrete": {
        "env__name": "gymnax:FrozenLake-misc",
        "network__activation": "relu",
        "network__core": "mingru",
        "network__separate_value": True,
    },
    "components": {"env__name": "jaxrl:ProbeMultiDiscrete", "network__encoder": "identity"},
    "whole numbers": {
        "env__name": "tests.envs.wrapped_environments:Whole",
        "network__core": "none",
        "normalize__observations": True,
    },
    "own numbers": {"env__name": NUMBERED, "network__core": "none"},
    "own numbers of components": {"env__name": VECTORS, "network__core": "none"},
    "q of own numbers": {"algorithm": "pqn", "env__name": NUMBERED, "network__core": "none"},
    "masked": {"env__name": "jaxrl:ProbeMask", "network__core": "none"},
    "planes": {
        "env__name": "jaxrl:Platformer(observation='global')",
        "network__encoder": "minatar",
        "network__core": "none",
    },
    "bytes": {
        "env__name": "jaxrl:Platformer(observation=('global', 'local'))",
        "network__encoder": "global=mlp,local=nature",
        "network__core": "none",
    },
    "convolutions": {
        "env__name": "gymnax:Breakout-MinAtar",
        "network__encoder": "minatar",
        "network__core": "none",
        "network__layer_norm": True,
    },
    "channels first": {
        "env__name": "tests.e2e.environments:ChannelsFirst",
        "network__core": "none",
        "normalize__observations": True,
    },
    "q": {
        "algorithm": "pqn",
        "env__name": "gymnax:CartPole-v1",
        "network__core": "none",
        "normalize__observations": True,
    },
    "q masked lstm": {"algorithm": "pqn", "env__name": "jaxrl:ProbeMask", "network__layer_norm": True},
    "dueling masked": {
        "algorithm": "pqn",
        "env__name": "jaxrl:ProbeMask",
        "network__core": "none",
        "network__layer_norm": True,
        "pqn__dueling": True,
    },
    "s5": {"env__name": "gymnax:CartPole-v1", "network__core": "s5", "network__state_size": 6},
    "gated_delta": {"env__name": "gymnax:CartPole-v1", "network__core": "gated_delta"},
    "linear_attention": {"env__name": "gymnax:CartPole-v1", "network__core": "linear_attention"},
    "mamba2": {"env__name": "gymnax:CartPole-v1", "network__core": "mamba2"},
    "mlstm": {"env__name": "gymnax:CartPole-v1", "network__core": "mlstm"},
    "ffm": {"env__name": "gymnax:CartPole-v1", "network__core": "ffm", "network__state_size": 12},
    "slstm": {"env__name": "gymnax:CartPole-v1", "network__core": "slstm"},
    "gtrxl": {"env__name": "gymnax:CartPole-v1", "network__core": "gtrxl", "network__memory_length": 3},
    "layers that are added": {
        "env__name": "gymnax:CartPole-v1",
        "network__core": "mingru",
        "network__core_layers": 3,
        "network__separate_value": True,
    },
    "layers with gates": {
        "env__name": "gymnax:CartPole-v1",
        "network__core": "gtrxl",
        "network__core_layers": 2,
        "network__core_size": 12,  # another size than that of the encoder
        "network__memory_length": 3,
    },
    "dueling lstm": {"algorithm": "pqn", "env__name": "gymnax:CartPole-v1", "pqn__dueling": True},
}
# Memory, values of actions and a mask. The others are tried in the slow tests; those that only join what two
# of these have are long.
FAST = ("q masked lstm",)
LONG = (
    *("scaled", "own numbers of components", "q of own numbers", "planes", "channels first", "q"),
    *("linear_attention", "mamba2", "mlstm", "layers that are added", "layers with gates", "dueling lstm"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The LSTM's."""
    folder = tmp_path_factory.mktemp("run")
    save_run(folder, **NETWORKS["lstm"])
    return folder


def export(workdir: Path, kind: str, *arguments: str) -> int:
    return main(["jaxrl export", f"--workdir={workdir}", f"--format={kind}", *arguments])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=() if name in FAST else pytest.mark.long if name in LONG else pytest.mark.slow
        )
        for name in NETWORKS
    ],
)
def test_every_format_computes_what_the_policy_does(name: str, tmp_path: Path) -> None:
    policy = policy_of(**NETWORKS[name])
    function = PolicyFunction.of(policy)
    runners = {}
    for kind in ("numpy", "safetensors", "onnx", "stablehlo"):
        (tmp_path / kind).mkdir()
        assert exporting.write([policy], function, tmp_path / kind, kind)["batch"] == "any size"
        runners[kind], _ = exporting.read(function, tmp_path / kind, kind)
    # ONNX Runtime warns of each constant that no node reads, on the user's terminal.
    graph = onnx.load(tmp_path / "onnx" / "policy.onnx").graph
    assert {c.name for c in graph.initializer} <= {name for node in graph.node for name in node.input}
    act, rng = jax.jit(function), np.random.default_rng(1)
    for batch in (1, 5):
        _, carry, *_ = function.example(batch)
        carries = dict.fromkeys(runners, jax.device_get(carry))
        for _ in range(6):
            obs, reset = observations(policy.spec.observation_space, batch, rng), rng.random(batch) < 0.3
            mask = (
                [rng.permuted([[True, False, True]] * batch, axis=1)] if policy.spec.has_action_mask else []
            )
            out = jax.device_get(act(obs, carry, reset, *mask))
            carry = out["carry"]
            for kind, run in runners.items():
                found = run(obs, carries[kind], reset, *mask)
                jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), out, found)
                jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), out, found)
                carries[kind] = found["carry"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numpy", "safetensors", "onnx", "stablehlo"])
def test_command_plays_and_says_so(
    run: Path, kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export(run, kind, f"--output={tmp_path}", "--steps=60") == 0, capfd.readouterr().err
    said = capfd.readouterr().out
    assert "the same in all 480 rows" in said
    description = json.loads((tmp_path / "policy.json").read_text())
    assert {*description["files"], "policy.json"} == {p.name for p in tmp_path.iterdir()}
    assert description["check"]["different_actions"] == 0
    assert description["check"]["resets"] > 8  # of episodes that ended too


@pytest.mark.slow
def test_sampled_actions_follow_the_key(run: Path, tmp_path: Path) -> None:
    assert export(run, "stablehlo", "--sample", f"--output={tmp_path}", "--steps=40") == 0
    call = formats.read_stablehlo(tmp_path)
    function = PolicyFunction.of(trained_policy.load(str(run)), sample=True)
    obs, carry, reset, _ = function.example(256)
    drawn = [call(obs, carry, reset, np.array(key, np.uint32))["action"] for key in ([0, 1], [0, 1], [0, 2])]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


def test_description_names_inputs_outputs_and_arrays(tmp_path: Path) -> None:
    policy = policy_of(**NETWORKS["lstm"])
    said = exporting.write([policy], PolicyFunction.of(policy), tmp_path, "numpy")
    assert said["step"] == 7
    assert said["inputs"]["obs"] == {"shape": ["batch", 4], "dtype": "float32"}
    assert said["inputs"]["carry.policy.c"] == said["outputs"]["carry.value.h"]
    assert said["arrays"]["normalizer.obs.std"] == {"shape": [4], "dtype": "float32"}
    assert said == json.loads((tmp_path / "policy.json").read_text())


@pytest.mark.slow
def test_numpy_needs_nothing_of_this_package(run: Path, tmp_path: Path) -> None:
    assert export(run, "numpy", f"--output={tmp_path}", "--steps=10") == 0
    script = (
        "import sys; import numpy as np; from numpy_policy import NumpyPolicy\n"
        "policy = NumpyPolicy('.')\n"
        "out = policy(np.ones((3, 4), np.float32), policy.initial_carry(3), np.ones(3, bool))\n"
        "assert not {'jax', 'jaxrl', 'flax'} & set(sys.modules)\n"
        "print(out['distribution']['logits'].tolist())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.')\n{script}"],
                          cwd=tmp_path, capture_output=True, text=True, check=True)  # fmt: skip
    function = PolicyFunction.of(trained_policy.load(str(run)))
    _, carry, reset = function.example(3)
    ours = jax.jit(function)(np.ones((3, 4), np.float32), carry, reset)
    np.testing.assert_allclose(json.loads(done.stdout), ours["distribution"]["logits"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_an_export_that_acts_otherwise_is_noticed(tmp_path: Path) -> None:
    policy = policy_of(**NETWORKS["lstm"])
    function = PolicyFunction.of(policy)
    exporting.write([policy], function, tmp_path, "numpy")
    right = NumpyPolicy(tmp_path)
    moved, biased = NumpyPolicy(tmp_path), NumpyPolicy(tmp_path)
    moved._arrays["normalizer.obs.mean"] = moved._arrays["normalizer.obs.mean"] + 0.1
    biased._arrays["params.value.bias"] = biased._arrays["params.value.bias"] + 0.01
    wrong = {
        "forgets": lambda obs, carry, reset: right(obs, right.initial_carry(len(reset)), reset),
        "never resets": lambda obs, carry, reset: right(obs, carry, np.zeros_like(reset)),
        "normaliser": moved,
        "value": biased,
    }
    found = compare(function, {"right": right, **wrong}, "gymnax:CartPole-v1", steps=40)
    assert found.pop("right").same
    assert not [name for name, check in found.items() if check.same]
    assert found["forgets"].different_actions > 0
    assert found["value"].different_actions == 0


@pytest.mark.slow
def test_different_actions_write_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    written = formats.arrays_by_name

    def reversed_logits(function: PolicyFunction) -> dict[str, np.ndarray]:
        found = written(function)
        name = "params.head.logits.kernel"
        return found | {name: np.ascontiguousarray(found[name][:, ::-1])}

    monkeypatch.setattr(formats, "arrays_by_name", reversed_logits)
    assert export(run, "numpy", f"--output={tmp_path}/new", "--steps=20") == 1
    assert "does not act as the trained policy; nothing was written" in capfd.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_link_inside_the_run_is_not_followed(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy, outside = Path(shutil.copytree(run, tmp_path / "run")), tmp_path / "outside"
    outside.mkdir()
    (copy / "export").symlink_to(outside)
    assert export(copy, "numpy", "--steps=20") == 2
    assert "it is a symbolic link, which is not followed" in capfd.readouterr().err
    assert list(outside.iterdir()) == []
    assert export(copy, "numpy", f"--output={outside}", "--steps=20") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format=numpy"], "`--workdir` is missing"),
        (["--workdir=x", "--format=tflite"], "`--format` (='tflite') must be one of stablehlo, onnx"),
        (["--workdir=x", "--format=numpy", "--sample"], "`--sample` needs --format=stablehlo"),
        (["--workdir=x", "--format=numpy", "--batch=4"], "`--batch` does not apply to --format=numpy"),
        (["--workdir=x", "--format=numpy", "--output=gs://a/b"], "must be a local folder"),
        (["--workdir=does/not/exist", "--format=numpy"], "is no folder"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capfd, "export", *arguments)


def test_a_missing_package_is_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    assert export(run, "safetensors", f"--output={tmp_path / 'out'}") == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "pip install" in error
    assert "[export]'" in error


@pytest.mark.slow
def test_an_export_acts_as_its_policy_was_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    save_run(run, env__name="gymnax:CartPole-v1")
    checkpoints = Checkpointer(str(run / "checkpoints"), keep=1)
    checkpoints.save_score(7, 1.0, {"mode": "sampled"})
    checkpoints.close()

    def actions(*flags: str) -> tuple[str, str, bool]:
        out = tmp_path / "out"
        assert main(["jaxrl export", str(run), f"--output={out}", "--steps=1", *flags]) == 0
        said = json.loads((out / "policy.json").read_text())
        return said["actions"], said["mode"], "key" in said["inputs"]

    assert actions("--format=stablehlo") == ("sampled", "sampled", True)
    assert actions("--format=stablehlo", "--greedy") == ("greedy", "sampled", False)
    assert "were better sampled" not in capsys.readouterr().out
    assert actions("--format=numpy") == ("greedy", "sampled", False)
    assert "evaluations during training were better sampled" in capsys.readouterr().out
    assert main(["jaxrl export", str(run), "--format=numpy", "--greedy", "--sample"]) == 2


@pytest.mark.slow
def test_stablehlo_is_in_the_form_that_older_versions_of_jax_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_12)
    policy = policy_of(**NETWORKS["lstm"])
    function = PolicyFunction.of(policy)

    def written() -> list[str]:
        exporting.write([policy], function, tmp_path, "stablehlo", None)
        return re.findall("StableHLO_v([0-9.]+)", (tmp_path / "policy.stablehlo").read_text("latin1"))

    assert written() == [oldest]

    def lacks(*arguments: str) -> bytes:
        raise ValueError("failed to serialize module")

    monkeypatch.setattr(hlo, "serialize_portable_artifact_str", lacks)
    assert written() != [oldest]
    exporting.read(function, tmp_path, "stablehlo")
