"""Bad input on the command line: exit code 2, one line on stderr, no traceback, before jax is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jaxrl
from jaxrl.commands import benchmark, preflight, run_arguments
from jaxrl.config import ConfigError, check_config
from jaxrl.config.files import load_config
from jaxrl.main import main
from tests.commands.refusals import refused
from tests.runs.storage.gcs_server import GcsServer

ROOT = Path(__file__).parents[2]
PPO = str(ROOT / "configs/ppo.py")


def run_main(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jaxrl.main", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def config_file(tmp_path: Path) -> Any:
    def write(text: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def parsed(*arguments: str) -> run_arguments.Arguments:
    return run_arguments.parse_training(["jaxrl", f"--config={PPO}", *arguments])


def field(config: Any, name: str) -> Any:
    for key in name.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.ppo.learning_rat=1"], "did you mean `config.ppo.learning_rate`?"),
        (["--config.env.num_envs=x"], "`env.num_envs` (='x') must be an integer"),
    ],
)
def test_process_answers_bad_input_with_one_line(arguments: list[str], message: str) -> None:
    result = run_main(f"--config={PPO}", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_debug_shows_the_traceback() -> None:
    result = run_main("--debug", "--config=nowhere.py")
    assert result.returncode == 2
    assert "Traceback" in result.stderr
    assert "ConfigError: `--config` (='nowhere.py')" in result.stderr


def test_command_line_is_read_without_jax() -> None:
    # A typing mistake must not take the seconds that importing jax does.
    reads = "from jaxrl.commands import run_arguments; run_arguments.parse_training(sys.argv)"
    code = f"import sys; {reads}; sys.exit('jax' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code, f"--config={PPO}"], cwd=ROOT, timeout=60)
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "`--config` is missing"),
        (["--config="], "`--config=` is empty; is a variable of the shell not set?"),
        ([f"--config={ROOT}/configs/ppo_mpl.py"], "configs/ppo_mlp.py`?"),
        (["--config=README"], "`--config` (='README') is neither a file nor"),
        (["evaluate", "--episodes=5"], "`evaluate` is a command and no config: `jaxrl evaluate`"),
        (
            ["ppo_minatr"],
            "`--config` (='ppo_minatr') is neither a file nor a shipped config; did you mean `ppo_minatar`?",
        ),
        (["nowhere/ppo_mlp.py"], "`--config` (='nowhere/ppo_mlp.py') is no file; did you mean `ppo_mlp`?"),
        (["ppo", "ppo_mlp"], "`ppo_mlp` is no flag"),
        pytest.param(
            ["--env=gymnax:CartPol-v1"],
            "`--env` (='gymnax:CartPol-v1'): unknown environment",
            marks=pytest.mark.slow,  # A process is asked, which takes four seconds.
        ),
        (["--env=gymnax:CartPole-v1", "--config.seed=x"], "`seed` (='x') must be an integer"),
        (["ppo", "--print-config", "--config.seed=x"], "`seed` (='x') must be an integer"),
        (["ppo", "--print-config=1"], "`--print-config` (='1') must be yaml or json"),
        ([f"--config={PPO}", "--wrkdir=x"], "unknown flag `--wrkdir`; did you mean `--workdir`?"),
        (["ppo", "--steps=abc"], "`stop.steps` (='abc') must be an integer"),
        (["ppo", "--steps"], "`--steps` needs a value"),
        (["ppo", "--num_processes=two"], "`--num_processes` (='two') must be an integer"),
        (["--task-list="], "`--config` is missing"),
        (["ppo", "--task-list=", "--steps=abc"], "`stop.steps` (='abc') must be an integer"),
        (["ppo", "--minutes=soon"], "`--minutes` (='soon') must be a number"),
        (["ppo", "--minutes=1", "--duration=1"], "`--minutes` and `--duration` both set `stop.seconds`"),
        (["ppo", "--lr=1", "--config.ppo.learning_rate=1"], "both set `ppo.learning_rate`"),
        (["ppo", "--workdir=a", "--output-dir=b"], "both name a folder"),
        (["ppo", "--quick"], "`--config` (='ppo') has no short form for `--quick`"),
        (["--env=CartPole-v1", "--quick"], "`--quick` needs a config that has a short form"),
        (["ppo", "--total_timesteps=1"], "unknown flag `--total_timesteps`; here it is `--steps=N`"),
        (
            ["ppo", "--foo=1", "--total_timesteps=1"],
            "(the nearest is `--resume-from`), `--total_timesteps` (here it is `--steps=N`)",
        ),
        (["--algo", "ppo"], "unknown flag `--algo`; here it is `--config.algorithm=VALUE`"),
        (["ppo", "--optimizer", "optuna"], "jaxrl search has `--method=optuna`"),
        (["ppo", "--profile"], "unknown flag `--profile`; here it is `--config.profile.steps=N`"),
        (["CartPole-v1"], "(='CartPole-v1') is an environment: name it by --env=CartPole-v1"),
        (["gymnax:Catch-bsuite"], "is an environment: name it by --env=gymnax:Catch-bsuite"),
        (["ppo", "--train.total-timesteps=1"], "here it is `--steps=N`"),
        (["ppo", "--n-envs=1"], "here it is `--num-envs=N`"),
        (["ppo", "--batch_size=64"], "here it is `--config.ppo.num_minibatches=VALUE`, a count"),
        (["ppo", "--ent-coef=0"], "here it is `--config.ppo.entropy_coef=VALUE`"),
        (["ppo", "--gamma=0"], "here it is `--config.ppo.gamma=VALUE`"),
        (["ppo", "--num-gpus=1"], "here it is `--config.num_devices=VALUE`"),
        (["ppo", "--device=cuda"], "here it is `JAX_PLATFORMS`, an environment variable"),
        (
            ["ppo", "--optimizer", "optuna"],
            "every algorithm has Adam, with its field learning_rate; jaxrl search has",
        ),
        (["ppo", "--foo", "--algo=dqn"], "unknown flags: `--foo` ("),
        (["ppo", "--foo", "--algo=dqn"], "`--algo` (here it is `--config.algorithm=VALUE`)"),
        (["ppo", "--profile"], "here it is `--config.profile.steps=N`"),
        (["CartPole-v1"], "is an environment: name it by --env=CartPole-v1"),
        (["navix:Navix-Empty-5x5-v0"], "is an environment: name it by --env=navix:Navix-Empty-5x5-v0"),
        (
            ["ppo", "--config.batch_size=64"],
            "is no field; here it is `ppo.num_minibatches`",
        ),
        ([f"--config={PPO}", "--workdir"], "--workdir"),
        ([f"--config={PPO}", "--debug=1"], "`--debug` takes no value"),
        ([f"--config={PPO}", "extra"], "`extra` is no flag"),
        ([f"--config={PPO}", "--config.seed"], "`--config.seed` needs a value"),
        ([f"--config={PPO}", "--config.seed", "--config.ppo.gamma=1"], "`--config.seed` needs a value"),
        ([f"--config={PPO}", "--config.ppo=3"], "`config.ppo` is a section"),
        ([f"--config={PPO}", "--config.pppo.gamma=1"], "did you mean `config.ppo.gamma`?"),
        # By its letters `sac.checkpoint` is nearer, but this run does not read it.
        (["dqn", "--config.replay.checkpoint=False"], "did you mean `config.dqn.checkpoint`?"),
        (["dqn", "--config.learning_rate=1"], "did you mean `config.dqn.learning_rate`?"),
        (["dqn", "--config.dqn.prioritized=1"], "did you mean `config.dqn.prioritised`?"),
        (["ppo", "--config.dqn.checkpont=1"], "did you mean `config.dqn.checkpoint`?"),
        ([f"--config={PPO}", "--config.ppo.num_minibatches=3"], "must divide `env.num_envs` (=64)"),
        ([f"--config={PPO}", "--config.ppo.gamma=2"], "`ppo.gamma` (=2) must lie between 0 and 1"),
        ([f"--config={PPO}", "--config.env.stagger=maybe"], "`env.stagger` (='maybe')"),
        ([f"--config={PPO}", "--config.network.hidden_sizes=(64,"], "`network.hidden_sizes`"),
        ([f"--config={PPO}", f"--workdir={PPO}"], "must be a folder"),
        ([f"--config={PPO}", f"--workdir={PPO}/below"], "ppo.py is a file"),
    ],
)
def test_bad_argument(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "train", *arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def get_config():\n    raise RuntimeError('broken\\nhere')",
            "RuntimeError: broken here (line 2: raise",
        ),
        ("def get_config():\n    return {}[1]", "raised KeyError: 1 (line 2: return {}[1])"),
        ("def get_config(:", "raised SyntaxError"),
        ("def get_config():\n    raise SystemExit(0)", "SystemExit: 0 (line 2: raise SystemExit(0))"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere' (line 1: import nowhere)"),
        ("x = 1", "must define get_config()"),
        ("def get_config():\n    return None", "must define get_config()"),
        (
            "from jaxrl.config import default_config\n"
            "def get_config():\n    c = default_config()\n    c.env.num_envs = 'many'\n    return c",
            "num_envs",
        ),
        (
            "from jaxrl.config import default_config\n"
            "def get_config():\n    c = default_config()\n    c.ppo.lambda_ = 1\n    return c",
            "`ppo.lambda_` is no field",
        ),
    ],
)
def test_bad_config_file(
    text: str, message: str, config_file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "train", f"--config={config_file(text)}")


def test_config_file_of_another_form_names_those_there_are(config_file: Any) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.py, \.yaml, \.yml, \.json$"):
        load_config(config_file("seed = 1", "mine.toml"))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("seed", "7", 7),
        ("env.name", "gymnax:Acrobot-v1", "gymnax:Acrobot-v1"),
        ("notes", "5", "5"),  # a string field takes any text as it stands
        ("env.wrappers", "select_observation(indices=(0,2))", ("select_observation(indices=(0,2))",)),
        ("env.wrappers", "('a(x=1)', 'b')", ("a(x=1)", "b")),
        ("env.wrappers", "a(x=(1,2),y=3),b", ("a(x=(1,2),y=3)", "b")),
        ("env.wrappers", "()", ()),
        ("network.hidden_sizes", "64", (64,)),
        ("network.hidden_sizes", "64,32", (64, 32)),
        ("network.hidden_sizes", "[64, 32]", (64, 32)),
        ("ppo.learning_rate", "1e-3", 1e-3),
        ("ppo.gamma", "1", 1.0),
        ("ppo.target_kl", "0.02", 0.02),
        ("ppo.target_kl", "none", None),
        ("stop.steps", "1e6", 1_000_000),
        ("stop.steps", "2_000_000", 2_000_000),
        ("stop.return", "475", 475.0),  # a word that Python reserves
        ("env.stagger", "false", False),
        ("env.stagger", "True", True),
        ("log.writers", "csv", ("csv",)),
        ("log.writers", "jsonl, wandb", ("jsonl", "wandb")),
        ("log.writers", "none", ()),
        ("log.writers", "", ()),
    ],
)
def test_override(name: str, text: str, value: Any) -> None:
    got = field(parsed(f"--config.{name}={text}").config, name)
    assert got == value
    assert type(got) is type(value)


def test_short_flags_set_fields() -> None:
    given = ["--steps=2e4", "--num_envs", "16", "--learning-rate=1e-3", "--seed", "3", "--duration=0.5"]
    arguments = run_arguments.parse_training(["jaxrl train", "pqn", *given, "--output-dir=/tmp/a"])
    config = arguments.config
    assert (config.stop.steps, config.env.num_envs, config.seed) == (20_000, 16, 3)
    assert (config.pqn.learning_rate, config.stop.seconds) == (1e-3, 1800)
    assert arguments.workdir == "/tmp/a"
    assert run_arguments.parse_training(["jaxrl train", "ppo", "--minutes=2"]).config.stop.seconds == 120


def test_override_with_the_value_as_its_own_argument() -> None:
    arguments = parsed("--config.seed", "3", "--workdir", "somewhere", "--config.stop.return", "-150")
    assert arguments.config.seed == 3
    assert arguments.config.stop["return"] == -150.0
    assert arguments.workdir == "somewhere"


def test_last_override_holds() -> None:
    assert parsed("--config.seed=1", "--config.seed=2").config.seed == 2


@pytest.mark.parametrize(
    "arguments", [["ppo_minatar"], ["--config=ppo_minatar"], ["--config", "ppo_minatar"]]
)
def test_shipped_config_goes_by_its_name_in_any_folder(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_arguments.parse_training(["jaxrl train", *arguments, "--config.seed=3"])
    expected = load_config(str(ROOT / "configs/ppo_minatar.py"))
    expected.seed = 3
    assert found.config == expected
    assert Path(found.workdir).parts[:2] == ("runs", "ppo_minatar")


def test_environment_changes_a_named_config() -> None:
    found = run_arguments.parse_training(["jaxrl train", "ppo_mlp", "--env=gymnax:Acrobot-v1"])
    expected = load_config("ppo_mlp")
    expected.env.name = "gymnax:Acrobot-v1"
    assert found.config == expected


@pytest.mark.parametrize("flag", ["--env", "--config.env.name"])
def test_another_environment_says_what_of_the_config_it_leaves_out(flag: str) -> None:
    wrappers = "--config.env.wrappers=time_limit(steps=9)"
    arguments = run_arguments.parse_training(["jaxrl train", "ppo", f"{flag}=gymnax:Acrobot-v1", wrappers])
    found = arguments.config
    assert found.env.name == "gymnax:Acrobot-v1"
    assert found.env.wrappers == ("time_limit(steps=9)",)
    assert found.stop["return"] is None
    (note,) = arguments.notes
    assert note.startswith("gymnax:Acrobot-v1 with the config ppo: left out fields of")
    assert "stop.return=475.0" in note
    assert "wrappers" not in note


def test_log_level_is_one_of_four() -> None:
    assert parsed().log_level == "info"
    assert parsed("--log-level=debug").log_level == "debug"
    with pytest.raises(ConfigError, match=r"^`--log-level` \(='loud'\) must be one of debug, info, warning"):
        parsed("--log-level=loud")


def test_environment_alone_says_which_config_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_arguments.parse_training(["jaxrl train", "--env=gymnax:Pendulum-v1", "--config.seed=3"])
    assert (found.config.env.name, found.config.seed) == ("gymnax:Pendulum-v1", 3)
    assert found.config.network.separate_value  # as in ppo_continuous
    assert Path(found.workdir).parts[:2] == ("runs", "ppo_continuous")
    found.announce()
    output, error = capsys.readouterr()
    assert output == ""
    assert "the config is ppo_continuous" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_config_printed_in_another_form_is_what_would_be_trained(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["jaxrl", "ppo", f"--print-config={form}", "--config.ppo.gamma=0.5"]) == 0
    Path(f"mine.{form}").write_text(capsys.readouterr().out)
    mine = run_arguments.parse_training(["jaxrl train", f"mine.{form}"])
    assert check_config(mine.config) == check_config(parsed("--config.ppo.gamma=0.5").config)
    assert Path(mine.workdir).parts[:2] == ("runs", "mine")


def test_keys_without_a_counterpart_are_one_line(
    config_file: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config_file("training: {lr: 1e-3}\ntpu: {zone: b}\n", "mine.yaml")
    arguments = run_arguments.parse_training(["jaxrl train", file])
    assert arguments.config.ppo.learning_rate == 1e-3
    line = f"{file}: without a counterpart here, and left out: tpu.zone\n"
    arguments.announce()
    assert capsys.readouterr().err == line
    assert main(["jaxrl", file, "--print-config"]) == 0
    assert capsys.readouterr().err == line


def test_printed_config_is_what_would_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["jaxrl", "ppo", "--print-config", "--config.ppo.gamma=0.5", "--config.log.writers=csv"]) == 0
    Path("mine.py").write_text(capsys.readouterr().out)
    mine = run_arguments.parse_training(["jaxrl train", "mine.py"])
    named = parsed("--config.ppo.gamma=0.5", "--config.log.writers=csv")
    assert check_config(mine.config) == check_config(named.config)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}  # nothing was trained


def test_default_workdir_names_config_time_and_process() -> None:
    """Two runs of one config that start within the same second are two folders."""
    parts = Path(parsed().workdir).parts
    assert parts[:2] == ("runs", "ppo")
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{os.getpid()}", parts[2])


def test_remote_workdir_is_taken_as_it_is(gcs: GcsServer) -> None:
    assert parsed("--workdir=gs://runs/mine").workdir == "gs://runs/mine"
    with pytest.raises(ConfigError, match=r"^`--workdir` \(='gs://none/mine'\) cannot be used: there is no"):
        parsed("--workdir=gs://none/mine")
    with pytest.raises(ConfigError, match=r"^`init_from` \(='gs://runs/none'\) must be a folder; there"):
        parsed("--config.init_from=gs://runs/none")


@pytest.mark.parametrize("program", ["jaxrl train", "/somewhere/jaxrl/main.py"])
def test_help_lists_the_flags(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    # `python -m jaxrl.main` is called by the path of a file, which is no config.
    assert main([program, "--help"]) == 0
    output = capsys.readouterr().out
    for flag in ("--config", "--workdir", "--debug"):
        assert flag in output


def test_package_exposes_its_names_and_no_others() -> None:
    assert jaxrl.default_config().seed == 0
    assert {"make_train", "Trainer", "default_config"} <= set(dir(jaxrl))
    with pytest.raises(AttributeError, match="make_trian"):
        _ = jaxrl.make_trian


@pytest.mark.parametrize("job", [benchmark, preflight])
def test_what_looks_at_one_run_refuses_a_population(job: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert job.main(["jaxrl", "ppo", "--config.population.seeds=8"]) == 2
    assert "`population.seeds` (=8)" in capsys.readouterr().err
