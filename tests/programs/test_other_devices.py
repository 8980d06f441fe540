"""Programs as they are traced for GPUs, which need not be there: their forms differ from those of CPUs."""

from __future__ import annotations

from pathlib import Path

import jax
import pytest

from jaxrl import algorithms
from jaxrl.algorithms.suitable_networks import network_on
from jaxrl.config import resolve
from jaxrl.config.files import load_config
from jaxrl.programs.device_runtime import environment
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Axis

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.py"))
GPU = Axis(platform="gpu", runs_triton=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_configs_are_traced_for_gpus(path: Path) -> None:
    config = load_config(str(path))
    suite = config.env.name.partition(":")[0]
    if suite == "envpool":
        pytest.skip("its environments are stepped on the host")
    if suite in ("jaxmarl", "pgx", "xminigrid"):
        pytest.importorskip(suite)
    on_gpus = network_on(resolve(config, 1), GPU, None)
    env, spec = environment(on_gpus)
    iteration = Iteration.build(on_gpus, env, algorithms.build_agent(on_gpus, spec), GPU)
    hyperparams = iteration.learning.algorithm.hyperparameters(on_gpus)
    jax.eval_shape(lambda key: iteration.iterate(iteration.init(key, hyperparams)), jax.random.key(0))
