"""Whole config files as other trainers' guides show them: what each key becomes, and what is left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from jaxrl.config import ConfigError, check_config, default_config
from jaxrl.config.declarations import flatten
from jaxrl.config.files import Remarks, load_config

LAYOUTS = Path(__file__).parent / "layouts"
CHANGES: dict[str, dict[str, Any]] = {
    "tpu_trainer": {
        "seed": 42,
        "env.name": "CartPole-v1",
        "env.num_envs": 32,
        "network.hidden_sizes": (256,),
        "network.core_size": 256,
        "network.layer_norm": True,
        "network.compute_dtype": "bfloat16",
        "normalize.observations": True,
        "ppo.num_epochs": 10,
        "ppo.learning_rate": 3e-4,
        # 32 x 128 steps in batches of 256, four of which make an update: 4096 / 1024 minibatches. Of each
        # of these, 8 devices have one environment each: there is nothing left to divide.
        "ppo.num_minibatches": 4,
        "ppo.gradient_accumulation": 1,
        # 10, 50 and 100 rollouts of 4096 steps.
        "log.every_steps": 40_960,
        "evaluate.every_steps": 204_800,
        "checkpoint.every_steps": 409_600,
        "evaluate.episodes": 10,
        "log.writers": ("jsonl", "tensorboard"),
        "checkpoint.keep": 5,
    },
    "parallel_trainer": {
        "env.name": "CoinrunEasy-v0",
        "env.num_envs": 64,  # 4 x 16
        "host.num_workers": 4,
        "network.encoder": "impala",
        "network.core": "none",
        "network.hidden_sizes": (256,),
        "network.core_size": 256,
        "ppo.learning_rate": 3e-4,
        "ppo.gamma": 0.999,
        "ppo.num_epochs": 3,
        "ppo.rollout_length": 128,  # 8192 / 64
        "ppo.num_minibatches": 16,  # 8192 / 512
        "evaluate.every_steps": 100_000,
        "evaluate.episodes": 20,
        "evaluate.modes": ("greedy",),
        "log.writers": ("jsonl", "wandb"),
        "log.project": "coinrun",
        "log.name": "parallel-baseline",
        "checkpoint.every_steps": 50_000,
    },
    "value_trainer": {
        "algorithm": "dqn",
        "seed": 7,
        "env.name": "CartPole-v1",
        "env.num_envs": 8,
        "network.core": "none",
        "network.hidden_sizes": (128, 64),
        "network.activation": "relu",
        "dqn.learning_rate": 5e-4,
        "dqn.batch_size": 64,
        "dqn.capacity": 50_000,
        "dqn.exploration_end": 0.02,
        "dqn.exploration_fraction": 0.2,
        "dqn.target_period": 50,  # 500 steps, with 8 updates for each 8 x 10 of them
        "stop.steps": 500_000,
        "log.writers": ("jsonl", "csv"),
        "log.name": "cartpole-dqn",
        "log.every_steps": 5_000,
        "checkpoint.every_steps": 20_000,
    },
}
LEFT_OUT = {
    "tpu_trainer": "deployment model.dropout environment.max_episode_steps environment.frame_stack "
    "environment.render training.optimizer training.weight_decay training.early_stopping tpu.enabled "
    "tpu.zone tpu.accelerator_type tpu.preemptible logging.level logging.log_dir checkpointing.directory",
    "parallel_trainer": "environment.num_levels environment.start_level environment.distribution_mode "
    "parallel.num_cpus_per_worker parallel.backend logging.wandb_entity",
    "value_trainer": "device training.clip_range",
}
MOST_DEVICES = {"tpu_trainer": 8, "parallel_trainer": 2, "value_trainer": 0}


def read(file: Path | str) -> tuple[ConfigDict, Remarks]:
    remarks = Remarks()
    return load_config(str(file), remarks), remarks


@pytest.mark.parametrize("name", CHANGES)
def test_whole_file_becomes_what_its_keys_mean(name: str) -> None:
    config, remarks = read(LAYOUTS / f"{name}.yaml")
    expected = default_config(str(CHANGES[name].get("algorithm", "ppo")))
    with expected.unlocked():
        expected.update_from_flattened_dict(CHANGES[name])
    assert flatten(config.to_dict()) == flatten(expected.to_dict())
    check_config(config)
    listed = remarks.lines[0].partition("left out: ")[2]
    names = [part.split()[0] for part in re.sub(r" \(.*?\)", "", listed).split(", ")]
    assert names == LEFT_OUT[name].split()
    assert remarks.most_devices == MOST_DEVICES[name]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def written(text: str) -> str:
        (tmp_path / "mine.yaml").write_text(text)
        return str(tmp_path / "mine.yaml")

    return written


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        # A key means nothing of another section that ends in the same word.
        ("tpu: {enabled: true}", {}),
        ("training: {episodes: 500, overlap: 3, name: x, groups: 4}", {}),
        ("hardware: {timeout: 5, seeds: 3, steps: 2}", {}),
        ("logging: {s3_bucket: mine}", {}),  # runs cannot be copied there
        ("model: {architecture: ppo}", {}),
        ("model: {architecture: A2C}", {"algorithm": "a2c"}),
        ("model: {type: mlp, use_lstm: true}", {}),
        ("model: {type: mlp}", {"network.core": "none"}),
        ("model: {type: RecurrentPPO}", {}),
        (
            "model: {hidden_layers: 32, num_layers: 2, type: mlp}",
            {"network.core": "none", "network.hidden_sizes": (32, 32)},
        ),
        # 64 x 128 steps are 8192; 3000 comes to 2.7 minibatches, of which 2 or 4 divide: 2.7 x 1.4 < 4
        ("training: {batch_size: 3000}", {"ppo.num_minibatches": 2}),
        ("training: {batch_size: 16384}", {"ppo.rollout_length": 256}),  # more than a rollout: the rollout
        (
            "training: {batch_size: 2048, minibatch_size: 128}",
            {"ppo.rollout_length": 32, "ppo.num_minibatches": 16},
        ),
        ("training: {gradient_accumulation_steps: 4}", {"ppo.gradient_accumulation": 4}),
        (
            "training: {num_minibatches: 4, accumulation_steps: 2}",
            {"ppo.num_minibatches": 2, "ppo.gradient_accumulation": 2},
        ),
        ("tpu: {num_cores: 1}", {"num_devices": 1}),
        ("parallel: {num_workers: 0, num_envs_per_worker: 8}", {"env.num_envs": 8}),
        (
            "parallel: {num_workers: 3, num_envs_per_worker: 4}",
            {"env.num_envs": 12, "host.num_workers": 3, "host.num_groups": 1},
        ),
        (
            "environment: {num_envs: 9}\ntraining: {n_steps: 125}",
            {"env.num_envs": 9, "host.num_groups": 1, "ppo.rollout_length": 125, "ppo.num_minibatches": 5},
        ),
    ],
)
def test_what_a_key_becomes(text: str, changes: dict[str, Any], write: Callable[[str], str]) -> None:
    config, _ = read(write(text))
    default = flatten(default_config().to_dict())
    assert {name: x for name, x in flatten(config.to_dict()).items() if x != default[name]} == changes
    check_config(config)


def test_two_keys_may_say_the_same_but_not_different_things(write: Callable[[str], str]) -> None:
    config, _ = read(write("training: {seed: 3}\nenvironment: {seed: 3}"))
    assert config.seed == 3
    with pytest.raises(ConfigError, match=r"`environment.seed` and `training.seed` both set `seed`"):
        read(write("training: {seed: 3}\nenvironment: {seed: 4}"))


@pytest.mark.parametrize(
    ("environment", "changes"),
    [
        (
            "CartPole-v1",
            {
                "env.name": "CartPole-v1",
                "env.num_envs": 8,
                "ppo.rollout_length": 32,
                "ppo.num_minibatches": 1,  # 8 x 32 / 256
                "ppo.num_epochs": 20,
                "ppo.learning_rate": 1e-3,
                "ppo.gamma": 0.98,
                "ppo.gae_lambda": 0.8,
            },
        ),
        # What the section leaves out is as Stable-Baselines3 has it: 4 x 2048 / 64 minibatches.
        (
            "gymnax:Pendulum-v1(max_torque=1)",
            {
                "env.name": "gymnax:Pendulum-v1(max_torque=1)",
                "env.num_envs": 4,
                "ppo.rollout_length": 2048,
                "ppo.num_minibatches": 128,
                "ppo.num_epochs": 10,
                "ppo.learning_rate": 3e-4,
                "ppo.schedule": "constant",
                "normalize.observations": True,
                "normalize.rewards": True,
            },
        ),
        # Games of Atari share a section, and a network of convolutions.
        *(
            (
                name,
                {
                    "env.name": name,
                    "env.num_envs": 8,
                    "network.hidden_sizes": (512,),
                    "network.activation": "relu",
                    "network.separate_value": False,
                    "ppo.entropy_coef": 0.01,
                    "ppo.clip_range": 0.1,
                    "stop.steps": 10_000_000,
                },
            )
            for name in ("envpool:Pong-v5", "gymnasium:ALE/Pong-v5")
        ),
    ],
)
def test_section_of_an_environment_of_rl_zoo(environment: str, changes: dict[str, Any]) -> None:
    remarks = Remarks()
    config = load_config(str(LAYOUTS / "ppo.yml"), remarks, environment=environment)
    expected = {
        "network.core": "none",
        "network.hidden_sizes": (64, 64),
        "network.separate_value": True,
        "ppo.entropy_coef": 0.0,
        "ppo.value_coef": 1.0,  # the loss of SB3's vf_coef, 0.5, is the squared error, not half of it
        "stop.steps": 100_000,
        **changes,
    }
    default = flatten(default_config().to_dict())
    found = {name: x for name, x in flatten(config.to_dict()).items() if x != default[name]}
    assert found == {name: x for name, x in expected.items() if x != default[name]}
    left = {
        "CartPole-v1": "clip_range falling to 0",
        "gymnax:Pendulum-v1(max_torque=1)": "use_sde, training.policy_kwargs",
    }
    atari = "env_wrapper, training.frame_stack, training.clip_range falling to 0"
    assert remarks.lines[0].endswith(f"left out: training.{left.get(environment, atari)}")


@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "ppo_lstm", "sac"])
def test_every_algorithm_of_rl_zoo_can_be_trained(algorithm: str, tmp_path: Path) -> None:
    file = tmp_path / f"{algorithm}.yml"
    file.write_text("CartPole-v1: {n_timesteps: 5e4, policy: MlpPolicy}\n")
    config = check_config(load_config(str(file), environment="CartPole-v1"))
    assert config.algorithm == algorithm.removesuffix("_lstm")
    assert config.network.core == ("lstm" if algorithm == "ppo_lstm" else "none")


RATES = ("learning_rate", "critic_rate", "temperature_rate")


@pytest.mark.parametrize(
    ("algorithm", "section", "expected", "left"),
    [
        # Stable-Baselines3 weighs the whole squared error, and ends updates beyond 1.5 times target_kl.
        ("ppo", "vf_coef: 0.19, target_kl: 0.02", {"value_coef": 0.38, "target_kl": 0.03}, ""),
        ("a2c", "vf_coef: 0.4", {"value_coef": 0.8}, ""),
        # It has one rate for the policy, the critics and the temperature, whose weight is ent_coef.
        (
            "sac",
            "learning_rate: 7.3e-4, ent_coef: auto",
            {**dict.fromkeys(RATES, 7.3e-4), "temperature": 1.0, "learn_temperature": True},
            "",
        ),
        (
            "sac",
            "ent_coef: auto_0.1, target_entropy: auto",
            {
                **dict.fromkeys(RATES, 3e-4),
                "temperature": 0.1,
                "learn_temperature": True,
                "target_entropy": None,
            },
            "",
        ),
        ("sac", "ent_coef: 0.005", {"temperature": 0.005, "learn_temperature": False}, ""),
        (
            "sac",
            "train_freq: [1, episode], gradient_steps: -1, n_envs: 2",
            {"rollout_length": 1, "updates_per_rollout": 2},
            "training.train_freq in episodes",
        ),
    ],
)
def test_numbers_of_rl_zoo_that_mean_something_else_here(
    algorithm: str, section: str, expected: dict[str, Any], left: str, tmp_path: Path
) -> None:
    file, remarks = tmp_path / f"{algorithm}.yml", Remarks()
    file.write_text(f"Pendulum-v1: {{n_timesteps: 5e4, policy: MlpPolicy, {section}}}\n")
    config = check_config(load_config(str(file), remarks, environment="gymnax:Pendulum-v1"))
    learner = {name: getattr(config.learner, name) for name in expected}
    assert learner == pytest.approx(expected)
    assert remarks.lines[0].endswith(left) if left else not any("left out" in x for x in remarks.lines)


@pytest.mark.parametrize(
    ("name", "environment", "rule"),
    [
        ("ppo.yml", "", "it has a section for each environment of rl-zoo: choose one by --env=NAME"),
        ("ppo.yml", "CartPole-v2", "did you mean `CartPole-v1`?"),
        ("ppo.yml", "envpool:Pendulum-v5", "did you mean `Pendulum-v1`?"),  # no game of Atari
        (
            "tqc.yml",
            "CartPole-v1",
            "must be an algorithm, one of ppo, ppo_lstm, a2c, dqn, sac, not 'tqc'",
        ),
    ],
)
def test_file_of_rl_zoo_that_cannot_be_read(name: str, environment: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text((LAYOUTS / "ppo.yml").read_text())
    with pytest.raises(ConfigError) as caught:
        load_config(str(tmp_path / name), environment=environment)
    assert rule in str(caught.value)
