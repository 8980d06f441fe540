"""Models from anyone: served, or refused in one line; a server never starts with one that cannot act."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from jaxrl.config import ConfigError
from jaxrl.inference.serving import Refusal, ServerOptions, openapi, served_policy
from jaxrl.inference.serving.service import PolicyService
from jaxrl.runs.registry import write_checksums
from tests.commands.test_fuzz import limited
from tests.commands.test_hostile_runs import changed
from tests.inference.serving.models import write_model

OPTIONS = ServerOptions(largest_batch=2, sessions=3, token="")
FILES = ("policy.json", "spaces.json", "model.json")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_model(tmp_path_factory.mktemp("model") / "walker", env__name="gymnax:CartPole-v1")
    for name in ("policy.onnx", "policy.stablehlo"):  # numpy's runtime reads the most JSON
        (folder / name).unlink()
    return folder


async def use(policy: served_policy.ServedPolicy) -> None:
    service = PolicyService(policy, OPTIONS)
    await service.reset({"session": "a"})
    for content in ({"session": "a", "obs": [0.0] * 4}, {"obs": [0.0] * 4}):
        with contextlib.suppress(Refusal):
            await service.act(content)
    json.dumps(openapi.document(openapi.describe(policy, OPTIONS, 1)))


def try_one(model: Path, folder: Path, seed: int) -> str:
    """Changes one value of a file; returns the refusal, "" if the model was served all the same."""
    rng = random.Random(seed)
    shutil.copytree(model, folder)
    file = folder / rng.choice(FILES)
    content: Any = changed(json.loads(file.read_text()), rng)
    file.write_text(json.dumps(content))
    write_checksums(folder)
    with limited(20):
        try:
            policy = served_policy.read(folder, "m", "numpy", 2, 3)
        except ConfigError as error:
            return str(error)
        asyncio.run(use(policy))
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("start", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_changed_files_are_served_or_refused_in_one_line(model: Path, tmp_path: Path, start: int) -> None:
    said = [try_one(model, tmp_path / str(seed), seed) for seed in range(start, start + 100)]
    assert not [line for line in said if "\n" in line or len(line) > 2000]
    assert 5 < said.count("") < 95  # both happen
