"""The programs of `examples/` do what they say, and the tutorials show those very files."""

from __future__ import annotations

import importlib
import json
import math
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrl
from jaxrl.algorithms.ppo.ppo import PPO
from jaxrl.config import check_config
from jaxrl.config.files import load_config
from jaxrl.config.overrides import override

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
TINY = {
    "env.num_envs": "4",
    "network.hidden_sizes": "(8,)",
    "network.core_size": "8",
    "num_devices": "1",
    "log.layers": "False",
    "evaluate.episodes": "4",
    "log.writers": "jsonl",
}


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports an example by name."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in NAMES:
        sys.modules.pop(name, None)


def commands(name: str) -> list[list[str]]:
    """The commands in the docstring of an example, in words."""
    text = (FOLDER / f"{name}.py").read_text().split('"""')[1].replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^(?:First|Command): +(.*)$", text, re.MULTILINE)]


def shorter(name: str, **more: str) -> Any:
    """The configuration of the command `jaxrl train` of an example, with small numbers."""
    words = next(words for words in commands(name) if words[0] == "jaxrl")
    config = load_config(words[2])
    flags = dict(word.removeprefix("--").split("=", 1) for word in words[3:])
    fields = {key.removeprefix("config."): value for key, value in flags.items() if "." in key}
    if "env" in flags:
        fields["env.name"] = flags["env"]
    algorithm = fields.pop("algorithm", "ppo")
    override(config, "algorithm", algorithm)
    section = "reinforce" if name == "reinforce" else "ppo"
    tiny = TINY | {f"{section}.rollout_length": "8", f"{section}.num_minibatches": "1"}
    for field, value in (fields | tiny | more).items():
        override(config, field, value)
    return config


def first_update(name: str, **more: str) -> dict[str, float]:
    """The metrics of the second iteration: the first may only gather statistics of observations."""
    trainer = jaxrl.Trainer(shorter(name, **more))
    trainer.update(trainer.rollout())
    metrics = trainer.update(trainer.rollout())
    assert all(math.isfinite(metrics[key]) for key in metrics if key.startswith(("loss/", "grad/")))
    return metrics


def test_every_example_says_what_it_shows_and_its_command() -> None:
    for name in NAMES:
        text = (FOLDER / f"{name}.py").read_text()
        assert text.startswith(('"""', 'r"""')), name
        assert len(text.splitlines()) <= (150 if name == "ppo_lstm" else 72), name
        assert commands(name), name
        assert f"({name}.py)" in (FOLDER / "README.md").read_text(), name


@pytest.mark.parametrize("page", ["algorithm"])
def test_tutorials_show_the_examples(page: str) -> None:
    shown = re.findall(
        r"```python\n# (\w+)\.py\n(.*?)```",
        (ROOT / f"docs/tutorials/{page}.md").read_text(),
        flags=re.DOTALL,
    )
    assert len(shown) >= 4
    for name, block in shown:
        assert block == (FOLDER / f"{name}.py").read_text(), name


@pytest.mark.slow
def test_reinforce_updates_with_rewards_to_go(example: Any) -> None:
    metrics = first_update("reinforce")
    assert metrics["grad/norm"] > 0
    assert metrics["reinforce/updates"] == 1  # the first rollout has no statistics to normalise with


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "metric", "weight"),
    [
        ("slow_features", "features/change", 0.01),
        pytest.param("predict_next", "features/prediction_error", 0.1, marks=pytest.mark.long),
    ],
)
def test_auxiliary_losses_are_added_with_their_weight(name: str, metric: str, weight: float) -> None:
    metrics = first_update(name)  # with memory
    assert metrics[metric] > 0
    assert metrics["loss/auxiliary"] == pytest.approx(weight * metrics[metric], rel=1e-5)


def test_a_change_over_the_end_of_an_episode_costs_nothing(example: Any) -> None:
    features = jnp.array([0.0, 1.0, 5.0])[:, None, None]
    batch = ModuleType("batch")
    batch.reset = jnp.array([[True], [False], [True]])  # type: ignore[attr-defined]
    loss, _ = example("slow_features").change(None, features, None, batch)
    np.testing.assert_allclose(loss[:, 0], [0.0, 0.01, 0.0])


def test_the_ratio_may_rise_further_than_it_may_fall(example: Any) -> None:
    class Learner:
        class hyperparams:
            clip_range = jnp.float32(0.2)

    log_prob = jnp.log(jnp.array([1.25, 1.5, 0.5], jnp.float32))
    arguments: Any = (Learner, log_prob, jnp.zeros(3), jnp.array([1.0, 1.0, -1.0]))
    found = example("clip_higher").ClipHigher.policy_loss(None, *arguments)
    np.testing.assert_allclose(found, [-1.25, -1.28, 0.8], rtol=1e-6)
    ppo: Any = PPO.policy_loss
    np.testing.assert_allclose(ppo(None, *arguments), [-1.2, -1.2, 0.8], rtol=1e-6)


def test_a_variant_of_ppo_may_have_fields_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/tutorials/algorithm.md").read_text()
    (block,) = re.findall(r"```python\n(@dataclasses.*?)```", page, flags=re.DOTALL)
    imports = (
        "import dataclasses\nfrom jaxrl.algorithms.ppo.ppo import PPO\n"
        "from jaxrl.config import PPOConfig, field\nfrom jaxrl.config.fields import above\n"
    )
    (tmp_path / "clip_above.py").write_text(imports + block)
    monkeypatch.syspath_prepend(str(tmp_path))
    config = jaxrl.default_config()
    override(config, "algorithm", "clip_above:ClipHigher")
    override(config, "ppo.clip_above", "0.4")
    assert check_config(config).learner.clip_above == 0.4  # type: ignore[attr-defined]


# The loss of the first is above, the cores of the others are checked below, and the wrapper's delay.
@pytest.mark.long
@pytest.mark.parametrize("name", ["clip_higher", "residual_network", "action_delay", "trace_core"])
def test_examples_with_memory_update(name: str) -> None:
    first_update(name)


def test_actions_arrive_one_step_late(example: Any) -> None:
    from jaxrl.envs import registry

    env = registry.make("gymnax:CartPole-v1")
    late = example("action_delay").ActionDelay(env)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    late_state, _ = late.reset(key)
    for action, before in ((1, 0), (1, 1), (0, 1)):
        state, expected = env.step(key, state, jnp.int32(before))
        late_state, found = late.step(key, late_state, jnp.int32(action))
        np.testing.assert_array_equal(found.obs, expected.obs)


@pytest.mark.slow
def test_fading_core_forgets_at_a_reset(example: Any) -> None:
    core = example("residual_network").Fading(4)
    x = jax.random.normal(jax.random.key(1), (3, 1, 2))
    reset = jnp.array([[False], [False], [True]])
    params = jax.jit(core.init)(jax.random.key(0), x, core.initial_carry(1), reset)
    whole, _ = core.apply(params, x, {"average": jnp.ones((1, 4))}, reset)
    alone, _ = core.apply(params, x[2:], core.initial_carry(1), reset[2:])
    np.testing.assert_allclose(whole[2:], alone, rtol=1e-6)


@pytest.mark.slow
def test_cores_of_examples_are_sound(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    jaxrl.check_core("trace_core:Traces")
    jaxrl.check_core(example("residual_network").Fading)


@pytest.mark.slow
def test_environment_is_sound_and_steers_the_control_loop(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jaxrl.check_env("docking:Docking")
    trainer = jaxrl.Trainer(shorter("docking"))
    trainer.update(trainer.rollout())
    trainer.save(tmp_path / "run")
    example("control_loop").main(tmp_path / "run", checkpoint="latest", period=0.0)
    assert re.search(r"^\d+ steps, at -?\d", capsys.readouterr().out)


@pytest.mark.slow
def test_training_loop_saves_a_run(example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("training_loop").main(tmp_path / "run", steps=512)
    assert re.search(r"^(greedy|sampled) return \d", capsys.readouterr().out, re.MULTILINE)
    assert jaxrl.load(tmp_path / "run").step >= 512


# Its parts: tests/search/test_trials.py and tests/training/test_training_stages.py.
@pytest.mark.long
def test_the_workflow_searches_and_trains_through_its_stages(
    example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = {"env.num_envs": 8, "network.hidden_sizes": (8,), "num_devices": 1, "evaluate.episodes": 4}
    tiny |= {
        "ppo.rollout_length": 8,
        "ppo.num_minibatches": 2,
        "log.writers": ("jsonl",),
        "log.layers": False,
    }
    example("workflow").main(str(tmp_path), steps=2048, trials=2, trial_steps=512, **tiny)
    said = capsys.readouterr().out
    assert "best of 2: trial" in said
    assert re.findall(r"stage (\d)", said) == ["1", "2", "3"]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] >= 2048
    assert jaxrl.load(tmp_path).step == rows[-1]["step"]


# tests/programs/test_make_train.py has members; the example itself is a dozen lines.
@pytest.mark.long
def test_seeds_are_one_program(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example("seeds").main(num_seeds=2, steps=8192)
    assert len(capsys.readouterr().out.splitlines()) == 2
