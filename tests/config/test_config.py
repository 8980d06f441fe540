"""Every check of the configuration, and every derived count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from jaxrl.config import (
    ConfigError,
    check_config,
    declared_fields,
    default_config,
    fixed_fields,
    largest_device_count,
    resolve,
    versions,
)


def changed(**fields: Any) -> ConfigDict:
    """The defaults with `section__field=value`."""
    config = default_config()
    with config.unlocked():
        for name, value in fields.items():
            *section, field = name.split("__")
            target = config[section[0]] if section else config
            target[field] = value
    return config


# field, bad value, what the message must say beside the field
BAD_FIELDS = [
    # types
    ("seed", True, "an integer"),
    ("seed", 1.0, "an integer"),
    ("seed", "0", "an integer"),
    ("seed", None, "an integer"),
    ("env.name", 3, "a string"),
    ("env.num_envs", 64.0, "an integer"),
    ("env.wrappers", "flatten_observation", "a tuple"),
    ("env.wrappers", (1,), "a tuple in which each element is a string"),
    ("env.stagger", 1, "true or false"),
    ("network.hidden_sizes", 64, "a tuple"),
    ("network.hidden_sizes", (64.0,), "a tuple in which each element is an integer"),
    ("network.core", None, "a string"),
    ("ppo.learning_rate", "1e-3", "a finite number"),
    ("ppo.learning_rate", True, "a finite number"),
    ("ppo.gamma", float("nan"), "a finite number"),
    ("ppo.clip_range", float("inf"), "a finite number"),
    ("ppo.value_coef", 10**400, "a finite number"),
    ("ppo.target_kl", "small", "a finite number or none"),
    ("stop.return", "high", "a finite number or none"),
    ("log.writers", "csv", "a tuple"),
    # ranges
    ("seed", -1, "between 0 and 4294967295"),
    ("seed", 2**32, "between 0 and 4294967295"),
    ("num_devices", -1, "at least 0"),
    ("env.num_envs", 0, "at least 1"),
    ("network.hidden_sizes", (64, 0), "at least 1"),
    ("network.core_size", 0, "at least 1"),
    ("network.compute_dtype", "float16", "one of float32, bfloat16"),
    ("network.recurrence", "triton", "one of auto, scan, pallas"),
    ("normalize.clip_observations", 0.0, "above 0"),
    ("normalize.clip_rewards", -1.0, "at least 0"),
    ("ppo.rollout_length", 0, "at least 1"),
    ("ppo.num_epochs", 0, "at least 1"),
    ("ppo.num_minibatches", 0, "at least 1"),
    ("ppo.sequence_length", -1, "at least 0"),
    ("ppo.gradient_accumulation", -1, "at least 0"),
    ("ppo.learning_rate", -1e-3, "at least 0"),
    ("ppo.schedule", "step", "one of constant, linear, cosine"),
    ("ppo.warmup_updates", -1, "at least 0"),
    ("ppo.gamma", 1.01, "between 0 and 1"),
    ("ppo.gae_lambda", -0.1, "between 0 and 1"),
    ("ppo.clip_range", 0.0, "above 0"),
    ("ppo.entropy_coef", -0.1, "at least 0"),
    ("ppo.value_coef", -0.1, "at least 0"),
    ("ppo.max_grad_norm", 0.0, "above 0"),
    ("ppo.target_kl", 0.0, "above 0"),
    ("stop.steps", 0, "at least 1"),
    ("stop.steps", -1000, "at least 1"),
    ("stop.seconds", -1.0, "above 0"),
    ("log.every_steps", -1, "at least 0"),
    ("log.writers", ("json",), "one of tensorboard, jsonl, csv, wandb, mlflow, neptune"),
    ("log.writers", ("csv", "jsonl", "csv"), "hold no element twice"),
    ("evaluate.every_steps", -1, "at least 0"),
    ("evaluate.episodes", 0, "at least 1"),
    ("checkpoint.every_steps", -1, "at least 0"),
    ("checkpoint.keep", 0, "at least 1"),
    ("profile.start", -1, "at least 0"),
    ("profile.steps", -1, "at least 0"),
    # counts that do not divide; 64 environments, 128 steps, 4 minibatches
    ("ppo.num_minibatches", 3, "must divide `env.num_envs` (=64)"),
    ("ppo.num_minibatches", 192, "3 of them do not divide `ppo.rollout_length` (=128)"),
    ("ppo.num_minibatches", 16_384, "must divide `env.num_envs` (=64) times the sequences of each"),
    ("ppo.gradient_accumulation", 3, "must divide `env.num_envs` (=64) / `ppo.num_minibatches` (=4)"),
    ("ppo.sequence_length", 48, "must divide `ppo.rollout_length` (=128)"),
    ("ppo.sequence_length", 256, "must divide `ppo.rollout_length` (=128)"),
    # keys
    ("ppo.learning_rat", 1.0, "did you mean `ppo.learning_rate`?"),
    ("pppo.gamma", 1.0, "did you mean `ppo.gamma`?"),
    ("sed", 1, "did you mean `seed`?"),
    ("env", 3, "must be a section"),
]


@pytest.mark.parametrize(("field", "value", "rule"), BAD_FIELDS, ids=lambda x: str(x)[:40])
def test_bad_field_is_named_with_its_value_and_rule(field: str, value: Any, rule: str) -> None:
    data = default_config().to_dict()
    section, _, name = field.rpartition(".")
    target = data.setdefault(section, {}) if section else data
    target[name] = value
    with pytest.raises(ConfigError) as caught:
        check_config(ConfigDict(data))
    message = str(caught.value)
    assert message.startswith(f"`{field}`")
    assert rule in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("fields", "device_count", "message"),
    [
        ({"env__num_envs": 64}, 3, "`num_devices` (=3) must divide `env.num_envs` (=64)"),
        ({"env__num_envs": 4, "ppo__num_minibatches": 1}, 8, "`num_devices` (=8) must divide"),
        # 64 environments divide into 32 minibatches, the 16 of one device do not.
        (
            {"ppo__num_minibatches": 32},
            4,
            "`ppo.num_minibatches` (=32) must divide `env.num_envs` (=64) / devices (=4)",
        ),
        (
            {"ppo__gradient_accumulation": 8},
            4,
            "`ppo.gradient_accumulation` (=8) must divide "
            "`env.num_envs` (=64) / devices (=4) / `ppo.num_minibatches` (=4)",
        ),
    ],
)
def test_counts_are_checked_for_each_device(fields: dict[str, int], device_count: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(changed(**fields), device_count)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("device_count", [0, -1])
def test_device_count_must_be_positive(device_count: int) -> None:
    with pytest.raises(ConfigError, match="device_count"):
        resolve(default_config(), device_count)


@pytest.mark.parametrize(
    ("fields", "field", "nearest"),
    [
        ({"env__name": "gymnax:CartPol-v1"}, "env.name", "gymnax:CartPole-v1"),
        ({"env__name": "gymnasium_suite:Ant"}, "env.name", "did you mean gymnasium"),
        ({"env__wrappers": ("select_observatio",)}, "env.wrappers", "select_observation"),
    ],
)
def test_unknown_environment_names_the_nearest(fields: dict[str, Any], field: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(changed(**fields), 1)
    assert str(caught.value).startswith(f"`{field}`")
    assert nearest in str(caught.value)


def test_every_field_is_declared_with_a_meaning_and_an_allowed_default() -> None:
    declared = declared_fields()
    assert len(declared) > 60
    for name, field in declared.items():
        assert field.check(field.default) == field.default
        assert field.help, name
        assert field.help[-1] != ".", name


def test_what_a_resumed_run_must_keep() -> None:
    there = resolve(changed(seed=1, ppo__rollout_length=64, ppo__gamma=0.9), 1)
    now = resolve(changed(seed=2, stop__steps=5), 1)
    kept = {name: (theirs, ours) for name, theirs, ours in fixed_fields(there, now)}
    env = {f"env.{name}" for name in ("name", "num_envs", "wrappers", "stagger", "success")}
    env |= {"env.tasks", "env.task_shares", "env.num_agents"}
    network = {name for name in declared_fields() if name.startswith("network.")} - {
        "network.recurrence",
        "network.dense",
        "network.frozen",
        "network.matmul_precision",
        "network.remat",
    }
    others = {"algorithm", "seed", "ppo.rollout_length", "normalize.observations", "normalize.rewards"}
    others |= {"ppo.auxiliary_loss", "ppo.teacher"}
    others |= {f"curriculum.{name}" for name in ("name", "stages", "start_stage")}
    others |= {"levels.capacity", "levels.kept"}
    others |= {f"selfplay.{name}" for name in ("enabled", "pool_size", "groups")}
    assert kept.keys() == env | network | others | {"population.seeds"}
    assert kept["seed"] == (1, 2)
    assert kept["ppo.rollout_length"] == (64, 128)
    assert kept["env.name"] == ("gymnax:CartPole-v1",) * 2


def test_derived_counts() -> None:
    config = changed(
        env__num_envs=48,
        ppo__rollout_length=20,
        ppo__sequence_length=5,
        ppo__num_minibatches=4,
        ppo__num_epochs=3,
        ppo__gradient_accumulation=2,
        stop__steps=10_000,
        log__every_steps=960,
        evaluate__every_steps=961,
        checkpoint__every_steps=0,
    )
    c = resolve(config, 2)
    assert c.device_count == 2
    assert c.envs_per_device == 24
    assert c.sequence_length == 5
    assert c.num_chunks == 4
    assert (c.ppo.minibatch_envs(48), c.ppo.minibatch_chunks(48)) == (4, 1)
    assert c.envs_per_device // c.ppo.minibatch_envs(48) == 6  # environments of a minibatch
    assert c.steps_per_iteration == 960
    assert c.num_iterations == 11  # 10 iterations make 9,600 steps
    assert c.updates_per_iteration == 12
    assert c.steps_per_update == 240  # of 12 environments
    assert c.total_updates == 132
    assert c.log_iterations == 1
    assert c.evaluate_iterations == 2  # rounded up to whole iterations
    assert c.checkpoint_iterations == 0  # only at the end


def test_sequence_length_zero_is_the_whole_rollout() -> None:
    c = resolve(changed(ppo__sequence_length=0, ppo__rollout_length=32), 1)
    assert (c.sequence_length, c.num_chunks) == (32, 1)


@pytest.mark.parametrize(
    ("num_envs", "num_minibatches", "given", "length", "envs_multiple"),
    [
        (64, 128, 0, 64, 64),  # two chunks of each environment
        (64, 128, 32, 32, 64),  # two of its four
        (64, 64 * 128, 0, 1, 64),
        (16, 64, 0, 32, 16),
        (24, 64, 0, 16, 8),  # groups of 8 environments and 8 chunks
        (1, 32, 0, 4, 1),
        (64, 4, 0, 128, 4),
    ],
)
def test_minibatches_may_outnumber_the_environments(
    num_envs: int, num_minibatches: int, given: int, length: int, envs_multiple: int
) -> None:
    fields = {"env__num_envs": num_envs, "ppo__num_minibatches": num_minibatches}
    c = resolve(changed(ppo__rollout_length=128, ppo__sequence_length=given, **fields), 1)
    assert (c.sequence_length, c.num_chunks) == (length, 128 // length)
    assert c.ppo.envs_multiple(num_envs) == envs_multiple
    assert c.ppo.minibatch_envs(num_envs) * c.ppo.minibatch_chunks(num_envs) == num_minibatches
    assert c.num_chunks % c.ppo.minibatch_chunks(num_envs) == 0
    assert c.updates_per_iteration == c.ppo.num_epochs * num_minibatches
    assert c.steps_per_update == num_envs * 128 // num_minibatches


def test_widening_is_silent() -> None:
    config = default_config()
    config.seed, config.normalize.observations = np.int64(3), np.bool_(True)
    config.ppo.gamma, config.ppo.clip_range, config.network.hidden_sizes = 1, np.float32(0.5), [8, 8]
    c = resolve(config, 1)
    assert (type(c.seed), c.seed, c.normalize.observations) == (int, 3, True)
    assert (type(c.ppo.gamma), c.ppo.gamma) == (float, 1.0)
    assert (type(c.ppo.clip_range), c.ppo.clip_range) == (float, 0.5)
    assert c.network.hidden_sizes == (8, 8)


def test_missing_fields_take_their_defaults() -> None:
    c = resolve(ConfigDict({"seed": 5, "ppo": {"gamma": 0.5}}), 1)
    assert (c.seed, c.ppo.gamma) == (5, 0.5)
    assert c.env.num_envs == default_config().env.num_envs


@pytest.mark.parametrize(
    ("num_envs", "num_minibatches", "accumulation", "available", "expected"),
    [
        (64, 4, 1, 8, 8),
        (64, 4, 1, 7, 4),  # 16 groups of 4: 5, 6 and 7 devices do not divide them
        (64, 4, 4, 8, 4),  # 4 groups of 16
        (60, 4, 1, 16, 15),
        (64, 64, 1, 8, 1),
        (64, 4, 1, 1, 1),
    ],
)
def test_largest_device_count(
    num_envs: int, num_minibatches: int, accumulation: int, available: int, expected: int
) -> None:
    config = changed(
        env__num_envs=num_envs, ppo__num_minibatches=num_minibatches, ppo__gradient_accumulation=accumulation
    )
    assert largest_device_count(config, available) == expected
    resolve(config, expected)
    for more in range(expected + 1, available + 1):
        with pytest.raises(ConfigError):
            resolve(config, more)


def test_processes_share_the_environments_evenly() -> None:
    config = changed(env__num_envs=24, ppo__num_minibatches=4)  # 6 groups of 4
    assert largest_device_count(config, 4, processes=2) == 2
    assert largest_device_count(config, 6, processes=2) == 6
    with pytest.raises(ConfigError) as caught:
        largest_device_count(config, 8, processes=4)
    assert str(caught.value).startswith("`env.num_envs` (=24) cannot be shared by 4 processes")
    assert str(caught.value).endswith("multiple of 4 (see `ppo`), so the number of processes must divide 6")


def test_resolved_config_can_be_a_static_argument() -> None:
    # jax.jit hashes static arguments and compares them by value.
    assert hash(resolve(default_config(), 1)) == hash(resolve(default_config(), 1))
    assert resolve(default_config(), 1) != resolve(changed(seed=1), 1)


def test_versions_names_what_decides_results() -> None:
    assert {"python", "jax", "jaxlib", "flax", "optax", "gymnax", "numpy"} <= set(versions())
