"""Bad values on the command line: exit code 2 and one line that names the field, its value and the rule."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrl.config import declared_fields
from jaxrl.config.configuration import BUILT_IN
from jaxrl.config.fields import Field
from tests.commands.refusals import refused

ROOT = Path(__file__).parents[2]
CONFIG = f"--config={ROOT / 'configs/ppo.py'}"

# override, what the message must say beside field and value
BAD_OVERRIDES = [
    # types
    ("seed=true", "must be an integer"),
    ("seed=1.5", "must be an integer"),
    ("seed=none", "must be an integer"),
    ("num_devices=all", "must be an integer"),
    ("env.num_envs=many", "must be an integer"),
    ("env.stagger=1", "must be true or false"),
    ("env.success=often", "must be a comparison such as `return >= 195`"),
    ("env.wrappers=(1,)", "must be a tuple in which each element is a string"),
    ("network.hidden_sizes=(64.5,)", "must be a tuple in which each element is an integer"),
    ("network.hidden_sizes=(64,", "must be a tuple"),
    ("network.core_size=(64,)", "must be an integer"),
    ("network.separate_value=maybe", "must be true or false"),
    ("network.remat=maybe", "must be true or false"),
    ("network.central_value=maybe", "must be true or false"),
    ("network.layer_norm=maybe", "must be true or false"),
    ("network.frozen=(1,)", "must be a tuple in which each element is a string"),
    ("normalize.observations=0", "must be true or false"),
    ("normalize.rewards=2", "must be true or false"),
    ("ppo.normalize_advantages=never", "must be true or false"),
    ("ppo.learning_rate=small", "must be a finite number"),
    ("ppo.learning_rate=true", "must be a finite number"),
    ("ppo.gamma=nan", "must be a finite number"),
    ("ppo.clip_range=inf", "must be a finite number"),
    ("ppo.value_coef=1e999", "must be a finite number"),
    ("ppo.clip_value=none", "must be true or false"),
    ("ppo.refresh_carries=twice", "must be true or false"),
    ("ppo.target_kl=(0.1,)", "must be a finite number or none"),
    ("stop.return=high", "must be a finite number or none"),
    ("stop.seconds=soon", "must be a finite number or none"),
    ("log.writers=wandbb", "must be one of tensorboard, jsonl, csv, wandb, mlflow, neptune"),
    ("log.writers=('csv', 'csv')", "must hold no element twice"),
    ("init_names=(1,)", "must be a tuple in which each element is a string"),
    # ranges
    ("seed=-1", "must lie between 0 and 4294967295"),
    ("num_devices=-1", "must be at least 0"),
    ("algorithm=td3", "must be an algorithm's name"),
    ("hardware_profile=fast", "must be one of none, auto"),
    ("nonfinite=ignore", "must be one of halt, skip, rollback"),
    ("nonfinite=HALT", "must be one of halt, skip, rollback"),
    ("env.num_envs=0", "must be at least 1"),
    ("network.hidden_sizes=0", "must hold elements that each must be at least 1"),
    ("network.core_size=0", "must be at least 1"),
    ("network.compute_dtype=float16", "must be one of float32, bfloat16"),
    ("network.matmul_precision=tf32", "must be one of default, tensorfloat32, float32"),
    ("network.recurrence=kernel", "must be one of auto, scan, pallas"),
    ("normalize.clip_observations=0", "must be above 0"),
    ("normalize.clip_rewards=-1", "must be at least 0"),
    ("ppo.rollout_length=0", "must be at least 1"),
    ("ppo.num_epochs=0", "must be at least 1"),
    ("ppo.num_minibatches=0", "must be at least 1"),
    ("ppo.sequence_length=-1", "must be at least 0"),
    ("ppo.learning_rate=-1e-3", "must be at least 0"),
    ("ppo.schedule=step", "must be one of constant, linear, cosine"),
    ("ppo.shard_optimizer=maybe", "must be one of auto, on, off"),
    ("ppo.entropy_schedule=step", "must be one of constant, linear, cosine"),
    ("ppo.warmup_updates=-1", "must be at least 0"),
    ("ppo.gamma=1.01", "must lie between 0 and 1"),
    ("ppo.gae_lambda=-0.1", "must lie between 0 and 1"),
    ("ppo.clip_range=0", "must be above 0"),
    ("ppo.entropy_coef=-0.1", "must be at least 0"),
    ("ppo.value_coef=-1", "must be at least 0"),
    ("ppo.max_grad_norm=0", "must be above 0"),
    ("ppo.target_kl=0", "must be above 0"),
    ("stop.steps=0", "must be at least 1"),
    ("stop.steps=1,000,000", "(='1,000,000') must be an integer or none"),
    ("stop.seconds=0", "must be above 0"),
    ("stop.wall_seconds=0", "must be above 0"),
    ("log.every_steps=-1", "must be at least 0"),
    ("evaluate.every_steps=-1", "must be at least 0"),
    ("evaluate.episodes=0", "must be at least 1"),
    ("evaluate.modes=often", "must hold elements that each must be one of greedy, sampled"),
    ("evaluate.modes=greedy,greedy", "must hold no element twice"),
    ("stop.every_mode=often", "must be true or false"),
    ("checkpoint.every_steps=-1", "must be at least 0"),
    ("checkpoint.every_seconds=-1", "must be at least 0"),
    ("checkpoint.keep=0", "must be at least 1"),
    ("profile.start=-1", "must be at least 0"),
    ("profile.steps=-1", "must be at least 0"),
    ("log.layers=some", "must be true or false"),
    ("host.overlap=maybe", "must be true or false"),
    ("host.fused=maybe", "must be true or false"),
    ("host.num_groups=0", "must be at least 1"),
    ("host.num_workers=-1", "must be at least 0"),
    ("host.timeout=0", "must be above 0"),
    ("profile.host=often", "must be true or false"),
    ("levels.capacity=0", "must be at least 1"),
    ("levels.replay=1.1", "must lie between 0.0 and 1.0"),
    ("levels.fill=-0.1", "must lie between 0.0 and 1.0"),
    ("levels.score=td_error", "must be one of"),
    ("levels.prioritization=best", "must be one of"),
    ("levels.temperature=0.0", "must be above 0.0"),
    ("levels.staleness=2.0", "must lie between 0.0 and 1.0"),
    ("levels.refresh_iterations=0", "must be at least 1"),
    ("levels.candidates=0", "must be at least 1"),
    ("levels.kept=0", "must be at least 1"),
    ("levels.episodes=1", "must be at least 2"),
    # more than 32 bits, float32 or any machine holds
    ("env.num_agents=-1", "must be at least 0"),
    ("env.num_envs=4294967296", "must be at most 2147483647"),
    ("network.core_size=100000", "must be at most 65536"),
    ("network.core_layers=5", "must be at most 4"),
    ("network.core_heads=0", "must be at least 1"),
    ("network.mixture_components=0", "must be at least 1"),
    ("network.policy_gain=0", "must be above 0"),
    ("network.policy_std=0", "must be above 0"),
    ("network.memory_length=0", "must be at least 1"),
    ("network.state_size=-1", "must be at least 0"),
    ("network.fusion=sum", "must be one of "),
    ("network.fusion_size=-1", "must be at least 0"),
    ("network.global_channels=(0,)", "must hold elements that each must be at least 1"),
    ("network.local_channels=(0,)", "must hold elements that each must be at least 1"),
    ("network.state_sizes=(0,)", "must hold elements that each must be at least 1"),
    ("network.graph_heads=0", "must be at least 1"),
    ("network.graph_layers=0", "must be at least 1"),
    ("network.graph_width=0", "must be at least 1"),
    ("network.sees=('states',)", "must hold elements that each must be one of state"),
    ("ppo.teacher_coef=-1", "must be at least 0"),
    ("ppo.teacher_fraction=2", "must lie between 0 and 1"),
    ("ppo.value_warmup=-1", "must be at least 0"),
    ("network.hidden_sizes=(8, 100000)", "must hold elements that each must be at most 65536"),
    ("ppo.num_epochs=1e9", "must be at most 10000"),
    ("ppo.learning_rate=1e300", "as float32 holds"),
    ("ppo.clip_range=1e-300", "as float32 holds"),
    ("stop.steps=99999999999999999999", "must be at most 9007199254740992 in magnitude"),
    ("host.timeout=1e30", "must be at most 1000000.0"),
    # what does not go together
    ("env.num_envs=67108864", "must be at most 2147483647 on each of 1 devices"),
    ("ppo.num_minibatches=3", "must divide `env.num_envs` (=64)"),
    ("ppo.gradient_accumulation=3", "must divide"),
    ("ppo.sequence_length=48", "must divide `ppo.rollout_length` (=64)"),
    ("evaluate.every_steps=0", "needs evaluations"),
    ("init_from=/nowhere", "must be a folder"),
    ("storage.sync_to=s3://bucket", "must be s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"),
    ("storage.sync_every_steps=0", "must be at least 1"),
    ("population.seeds=0", "must be at least 1"),
    ("resume_from=/nowhere", "must be a folder"),
    ("hardware_profile=best", "must be one of"),
    ("selfplay.pool_size=0", "must be at least 1"),
    ("selfplay.every_steps=0", "must be at least 1"),
    ("selfplay.win_rate=2", "must lie between 0.0 and 1.0"),
    ("selfplay.games=0", "must be at least 1"),
    ("selfplay.latest_share=-1", "must lie between 0.0 and 1.0"),
    ("selfplay.random_moves=1.5", "must lie between 0.0 and 1.0"),
    ("selfplay.groups=0", "must be at least 1"),
    ("selfplay.swap_steps=0", "must be at least 1"),
    ("selfplay.opponents=strong", "must be one of uniform, prioritized"),
    ("selfplay.drop=newest", "must be one of weakest, oldest"),
    ("selfplay.first_rating=1e9", "must be at most"),
]
# Names that are looked up where they are registered, which takes jax, but before anything is written.
BAD_NAMES = [
    ("env.name=gymnax:CartPol-v1", "did you mean gymnax:CartPole-v1"),
    ("env.name=nosuite:Ant", "(valid: "),
    ("env.name=os:system", "unknown class of the module os: 'system'"),
    ("env.name=gymnax:CartPole-v1(speed=2)", "speed"),
    ("env.wrappers=select_observatio(indices=(0,))", "did you mean select_observation"),
    ("network.encoder=mpl", "did you mean `mlp`"),
    ("network.core=flax.linen:Module", "is a base class; name a core derived from it"),
    ("network.core=lsm", "did you mean `lstm`"),
    ("network.architecture=full_htg", "did you mean"),
    ("ppo.teacher=/nowhere", "/nowhere"),
    ("network.activation=tan", "tanh"),
    ("network.head=gausian", "did you mean `gaussian`"),
    ("network.encoder=nowhere:encoder", "cannot be imported"),
    ("ppo.auxiliary_loss=losses.mine", "must be of the form path.to.module:name"),
    ("network.dense=pallas", "is a kernel for NVIDIA GPUs since Ampere"),
    ("network.recurrence=pallas", "is a kernel for TPUs and GPUs; on cpu it must be scan or auto"),
    ("init_from=/etc", "holds no checkpoint"),
    ("evaluate.unseen=gymnax:CartPol-v1", "did you mean gymnax:CartPole-v1"),
    ("selfplay.enabled=True", "is not a two-player game"),
    ("evaluate.suite=cartpol", "cannot be read: No such file or directory; did you mean `cartpole`"),
    ("curriculum.name=stage", "must be stages, plr, robust_plr, accel, learnability, or module:Class"),
    ("curriculum.file=navigatio", "cannot be read: No such file or directory; did you mean `navigation`"),
    ("curriculum.stages=7", "must be a tuple in which each element is a string"),
    ("stages=no.yaml", "cannot be read: No such file or directory"),
    ("env.tasks=gymnax:CartPol-v1", "did you mean gymnax:CartPole-v1"),
    ("env.task_shares=2", "must be one number for each of the 0 of `env.tasks`"),
    ("curriculum.start_stage=2", "must be at most 1, the number of stages"),
    ("curriculum.difficulties=easy", "must be a tuple in which each element is a finite number"),
    ("curriculum.parameter=a-b", "must be a name"),
    ("curriculum.iterations=0", "must be at least 1"),
    ("curriculum.num_stages=-1", "must be at least 0"),
]
# Any text is a name; whether there is such a thing is looked up, see above.
LOOKED_UP = {override.partition("=")[0] for override, _ in BAD_NAMES}
# Any text will do.
TEXT = {"log.name", "log.project", "notes"}


def given(override: str) -> str:
    """`field` of `field=text`, as messages quote it."""
    return f"`{override.partition('=')[0]}`"


def test_enough_of_them_and_of_every_field() -> None:
    assert len(BAD_OVERRIDES) + len(BAD_NAMES) >= 60
    tried = {override.partition("=")[0] for override, _ in BAD_OVERRIDES}
    others = tuple(f"{name}." for name in BUILT_IN.keys() - {"ppo"})
    assert tried | LOOKED_UP | TEXT == {name for name in declared_fields() if not name.startswith(others)}


@pytest.mark.parametrize("algorithm", sorted(BUILT_IN.keys() - {"ppo"}))
def test_fields_of_other_algorithms_have_the_rules_of_those_above(algorithm: str) -> None:
    declared = declared_fields()
    own = {name: field for name, field in declared.items() if name.startswith(f"{algorithm}.")}
    for name, field in own.items():
        like = declared.get(f"ppo.{field.attribute}")
        assert like is None or (field.kind, texts(field)) == (like.kind, texts(like)), name
        assert field.kind in (bool, str) or texts(field), name


def texts(field: Field) -> list[str]:
    return [rule.text for rule in field.rules]


@pytest.mark.parametrize(("override", "rule"), BAD_OVERRIDES)
def test_bad_override(override: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _assert_refused([f"--config.{override}"], override, rule, tmp_path / "run", capsys)


@pytest.mark.parametrize(("override", "rule"), BAD_NAMES)
def test_unknown_name(override: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [f"--config.{override}", "--config.num_devices=1"]
    _assert_refused(arguments, override, rule, tmp_path / "run", capsys)


def _assert_refused(
    arguments: list[str], override: str, rule: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(capsys, "train", CONFIG, f"--workdir={workdir}", *arguments)
    assert given(override) in error
    assert rule in error
    assert not workdir.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("override", "rule"), [BAD_OVERRIDES[0], BAD_NAMES[0]])
def test_processes_say_the_same(override: str, rule: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "jaxrl.main",
        CONFIG,
        f"--config.{override}",
        f"--workdir={tmp_path / 'run'}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert given(override) in done.stderr
    assert rule in done.stderr


_ALL = """
import json, sys
from jaxrl.main import main
codes = [main(["jaxrl", sys.argv[1], f"--config.{override}"]) for override in json.loads(sys.argv[2])]
sys.exit(codes != [2] * len(codes) or "jax" in sys.modules)
"""


def test_values_are_judged_without_jax() -> None:
    # Within the time of an import, that is: a typing mistake must not take the seconds that jax does.
    overrides = json.dumps([override for override, _ in BAD_OVERRIDES])
    command = [sys.executable, "-c", _ALL, CONFIG, overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stderr.count("\n") == len(BAD_OVERRIDES)


WRONG_HOST_NAMES = [
    ("envpool:Pon-v5", "did you mean envpool:Pong-v5"),
    ("envpool:Pong-v5(frames=3)", "unknown argument of envpool:Pong-v5 'frames'"),
    ("gymnasium:CartPol-v1", "did you mean gymnasium:CartPole-v1"),
    ("gymnasium:CartPole-v1(gravity=1)", "making it raised TypeError"),
    ("gymnasium:no_such_module:Thing-v0", "no_such_module"),
]


# Every name by one command, and every command with a name of each suite.
@pytest.mark.parametrize(
    ("command", "name", "rule"),
    [
        *(("train", *wrong) for wrong in WRONG_HOST_NAMES),
        *((command, *WRONG_HOST_NAMES[i]) for command in ("benchmark", "preflight") for i in (0, 2)),
    ],
)
def test_wrong_host_environments_are_one_line(
    command: str, name: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The number of devices is left to the program, which asks what the environment shows to choose it.
    arguments = [command, CONFIG, f"--config.env.name={name}", "--config.env.wrappers=()"]
    if command == "train":
        arguments.append(f"--workdir={tmp_path / 'run'}")
    error = refused(capsys, *arguments)
    assert error.startswith(f"error: `env.name` (={name!r}): ")
    assert rule in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_platform_that_does_not_start(tmp_path: Path) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cuda", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "jaxrl", "train", "ppo", f"--workdir={tmp_path / 'run'}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "`JAX_PLATFORMS` (=cuda) names no device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
