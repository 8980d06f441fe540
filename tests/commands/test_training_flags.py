"""Flags of `jaxrl train` for curricula, several tasks and quick runs, and the configs of CoinRun."""

from __future__ import annotations

import pytest

from jaxrl.commands import run_arguments
from jaxrl.config import ConfigError, check_config
from jaxrl.config.files import load_config


@pytest.mark.parametrize("flags", [["--curriculum", "--stages=2"], ["--stages", "2", "--curriculum"]])
def test_curriculum_alone_is_that_of_the_environment(flags: list[str]) -> None:
    config = run_arguments.parse_training(["jaxrl train", "ppo_platformer", *flags]).config
    assert (config.curriculum.file, config.curriculum.num_stages) == ("auto", 2)
    assert len(check_config(config).curriculum.stages) == 2
    started = run_arguments.parse_training(
        ["jaxrl train", "ppo_platformer", *flags, "--curriculum-start-level=2"]
    ).config
    assert started.curriculum.start_stage == 2


@pytest.mark.parametrize(("flag", "seconds"), [("--minutes=2", 120), ("--duration=0.5", 1800)])
def test_time_is_given_in_minutes_or_hours(flag: str, seconds: float) -> None:
    config = run_arguments.parse_training(["jaxrl train", "ppo_mlp", flag]).config
    assert config.stop.seconds == seconds


def test_tasks_of_one_policy() -> None:
    tasks = "['CartPole-v1', 'Acrobot-v1']"
    for flags in ([f"--task-list={tasks}"], ["--multi-task", "--task-list", tasks]):
        config = run_arguments.parse_training(["jaxrl train", "ppo_mlp", *flags]).config
        assert config.env.tasks == ("CartPole-v1", "Acrobot-v1")
    plain = "jaxrl:Maze(max_steps=9,edits=2), CartPole-v1"  # commas in brackets separate nothing
    config = run_arguments.parse_training(["jaxrl train", "ppo_mlp", f"--task-list={plain}"]).config
    assert config.env.tasks == ("jaxrl:Maze(max_steps=9,edits=2)", "CartPole-v1")
    with pytest.raises(ConfigError, match="`--multi-task` needs `--task-list`"):
        run_arguments.parse_training(["jaxrl train", "ppo_mlp", "--multi-task"])


def test_tasks_alone_take_their_config_and_fit_its_environments() -> None:
    tasks = "CartPole-v1,Acrobot-v1,MountainCar-v0,DiscountingChain-bsuite,MemoryChain-bsuite"
    arguments = run_arguments.parse_training(["jaxrl train", "--multi-task", f"--task-list={tasks}"])
    config = check_config(arguments.config)
    assert (len(config.env.tasks), config.env.num_envs) == (5, 100)  # 96 in ppo_tasks
    assert config.network.encoder == "joint"
    assert arguments.workdir.startswith("runs/ppo_tasks/")
    assert arguments.notes[:2] == (
        "the config is ppo_tasks; choose another with CONFIG or --env",
        "env.num_envs is 100, not 96: a multiple for the 5 tasks",
    )
    # A number that is given stays, and is refused.
    with pytest.raises(ConfigError, match=r"`env.num_envs` \(=96\) on 1 devices must be a multiple of 5"):
        run_arguments.parse_training(["jaxrl train", f"--task-list={tasks}", "--num-envs=96"])


@pytest.mark.parametrize(
    ("flags", "environment", "stages"),
    [
        (["--curriculum", "--stages", "4"], "Navigation", 4),
        (["--stages=2", "--curriculum=navigation"], "Navigation", 2),
        (["--stages=3"], "Navigation", 3),
        (["--curriculum=platformer", "--stages=2"], "Platformer", 2),
    ],
)
def test_curriculum_alone_takes_its_config(flags: list[str], environment: str, stages: int) -> None:
    arguments = run_arguments.parse_training(["jaxrl train", *flags])
    config = check_config(arguments.config)
    assert config.env.name.startswith(f"jaxrl:{environment}")
    assert len(config.curriculum.stages) == stages
    assert arguments.notes[0].startswith(f"the config is ppo_{environment.lower()};")
    with pytest.raises(ConfigError, match="`--config` is missing"):
        run_arguments.parse_training(["jaxrl train", "--curriculum=mine.yaml"])


def test_short_form_of_a_config() -> None:
    whole, quick = (
        run_arguments.parse_training(["jaxrl train", "ppo_parallel", *flags, "--seed=3"]).config
        for flags in ((), ("--quick",))
    )
    assert (whole.env.num_envs, whole.host.num_workers, whole.stop.steps) == (32, 4, 25_000_000)
    assert (quick.env.num_envs, quick.host.num_workers, quick.stop.steps) == (16, 2, 500_000)
    assert quick.seed == 3


@pytest.mark.parametrize(("name", "minibatch", "workers"), [("sequential", 1024, 1), ("parallel", 2048, 4)])
def test_coinrun_as_its_users_know_it(name: str, minibatch: int, workers: int) -> None:
    config = check_config(load_config(f"ppo_{name}"))
    assert (config.env.num_envs, config.ppo.rollout_length, config.ppo.num_epochs) == (32, 128, 4)
    assert 32 * 128 // config.ppo.num_minibatches == minibatch
    assert (config.ppo.learning_rate, config.ppo.schedule, config.ppo.gamma) == (3e-4, "constant", 0.99)
    assert (config.network.encoder, config.network.core) == ("nature", "none")
    assert config.host.num_workers == workers
    if name == "sequential":
        assert (config.host.num_groups, config.host.overlap) == (1, False)


def test_environments_of_each_worker_are_multiplied() -> None:
    given = ["jaxrl train", "ppo_parallel", "--num-envs-per-worker=8", "--num-workers", "3"]
    arguments = run_arguments.parse_training(given)
    assert (arguments.config.env.num_envs, arguments.config.host.num_workers) == (24, 3)
    assert "--num-envs-per-worker=8 of 3 workers: 24 environments" in arguments.notes
    own = run_arguments.parse_training(["jaxrl train", "ppo_parallel", "--num-envs-per-worker=8"]).config
    assert own.env.num_envs == 32  # of the 4 workers of that config
    with pytest.raises(ConfigError, match="`--num-envs` and `--num-envs-per-worker` both set `env.num_envs`"):
        run_arguments.parse_training([*given, "--num-envs=5"])
    with pytest.raises(ConfigError, match=r"`--num-envs-per-worker` \(=0\) must be at least 1"):
        run_arguments.parse_training(["jaxrl train", "ppo_parallel", "--num-envs-per-worker=0"])
