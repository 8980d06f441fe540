"""Hundreds of kills, signals and damages at random: `make test-faults`.

Counts and the seed come from the environment, for a try: `JAXRL_FAULTS_KILLS=3 make test-faults`. A table of
what was tried is printed at the end and, with `JAXRL_FAULTS_REPORT=DIR`, written to DIR/faults.json.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrl.config import resolve, versions
from jaxrl.runs.checkpoint import Checkpointer, CheckpointError, state_arrays
from jaxrl.training.assembly import Assembly
from tests.faults.harness import FINDINGS, GRACE, ROOT, Run, Training, differences
from tests.faults.tiny import STEPS, get_config
from tests.runs.checkpoint.test_damage import delete, flip, truncate, zero

KILLS = int(os.environ.get("JAXRL_FAULTS_KILLS", "100"))
SIGNALS = int(os.environ.get("JAXRL_FAULTS_SIGNALS", "20"))
DAMAGES = int(os.environ.get("JAXRL_FAULTS_DAMAGES", "200"))
SEED = int(os.environ.get("JAXRL_FAULTS_SEED", "0"))
REPORT = os.environ.get("JAXRL_FAULTS_REPORT")

KILLS_OF_ONE_RUN = 8
ITERATIONS = 120
LONGER = f"--config.stop.steps={ITERATIONS * STEPS}"
# Without DAgger, which needs the run of a teacher, and configs that need a package which tests do without.
CONFIGS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "configs").glob("*.py")
    if path.stem not in ("dagger", "ippo_overcooked", "ippo_spread")
)

pytestmark = pytest.mark.faults


@pytest.fixture(scope="module")
def report(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, Any]]]:
    """By kind of fault: how many were tried, survived and lost, and more; shown by conftest.py."""
    found = request.config.stash.setdefault(FINDINGS, {})
    yield found
    if REPORT:
        machine = {
            "seed": SEED,
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "versions": versions(),
        }
        file = Path(REPORT) / "faults.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found | machine, indent=2) + "\n")


def test_kills(report: Any, tmp_path: Path) -> None:
    rng = random.Random(f"kills {SEED}")
    straight = {}
    for devices in (1, 2):
        options = (LONGER, f"--config.num_devices={devices}")
        straight[devices] = Run(tmp_path / f"straight{devices}", *options)
        assert straight[devices].train().code == 0
    moments: Counter[str] = Counter()
    lost: list[str] = []
    lost_kills = lost_steps = runs = 0
    while moments.total() < KILLS:
        devices = rng.choice((1, 2))
        run = Run(tmp_path / "run", LONGER, f"--config.num_devices={devices}")
        made, worst = _kill_repeatedly(run, rng, min(KILLS_OF_ONE_RUN, KILLS - moments.total()))
        moments += made
        lost_steps, runs = max(lost_steps, worst), runs + 1
        outcome = run.train()
        wrong = [outcome.stderr] if outcome.code else differences(run, straight[devices])
        if wrong:
            lost += wrong
            lost_kills += made.total()
        shutil.rmtree(run.folder)
        shutil.rmtree(run.notes)
    report["kill -9"] = {
        "tried": moments.total(),
        "survived": moments.total() - lost_kills,
        "lost": lost_kills,
        "runs": runs,
        "moments": dict(moments),
        "most steps made again": lost_steps,
    }
    assert lost == []


def _kill_repeatedly(run: Run, rng: random.Random, kills: int) -> tuple[Counter[str], int]:
    """Starts and kills it; returns how often at what moment, and the most steps that were lost by one.

    Most kills fall into training, some into starting up, and some are aimed into a save.
    """
    moments: Counter[str] = Counter()
    worst = 0
    while moments.total() < kills:
        training = run.start()
        aim = rng.choices(("starting", "training", "saving"), (2, 5, 3))[0]
        going = aim == "starting" or training.comes_to(training.is_training)
        time.sleep(rng.uniform(0.0, 3.0 if aim == "starting" else 1.0) if going else 0.0)
        if aim == "saving":
            training.pause_in_mid_save()
        moment = _moment(training)
        code = training.kill().code
        if code == 0:  # It was done.
            break
        assert code == 137
        moments[moment] += 1
        assert run.damages() == []
        made = max((row["step"] for row in run.rows()), default=0)
        worst = max(worst, made - max(run.checkpoints, default=0))
    return moments, worst


def _moment(training: Training) -> str:
    if training.is_saving():
        return "saving"
    return "training" if training.is_training() else "starting"


def test_signals(report: Any, tmp_path: Path) -> None:
    """With the shipped configs, as users run them: XLA optimises, and every other run compiles anew."""
    rng = random.Random(f"signals {SEED}")
    each, lost = [], []
    for i in range(SIGNALS):
        config = CONFIGS[i % len(CONFIGS)]
        run = Run(tmp_path / f"{i}", "--config.stop.steps=1e9", config=config)
        compiles = i % 2 == 0
        training = run.start("--config.stop.return=none", cached=not compiles, optimized=True)
        if compiles:
            time.sleep(rng.uniform(0.5, 12.0))
        else:
            training.wait_until(training.is_training)
            time.sleep(rng.uniform(0.0, 10.0))
        moment = _moment(training)
        signum = rng.choice((signal.SIGTERM, signal.SIGINT))
        training.send(signum)
        outcome = training.ended()
        saved = max(run.checkpoints, default=None)
        complete = all(line.endswith("}\n") for line in run.lines())
        good = outcome.code == 128 + signum and outcome.seconds < GRACE and complete and not run.damages()
        good = good and (saved is not None or moment == "starting")
        each.append({"config": config, "signal": signum.name, "moment": moment, "code": outcome.code})
        each[-1] |= {"seconds": round(outcome.seconds, 2), "saved at step": saved}
        lost += [] if good else [each[-1]]
    report["signals"] = {
        "tried": len(each),
        "survived": len(each) - len(lost),
        "lost": len(lost),
        "longest seconds": max(x["seconds"] for x in each),
        "moments": dict(Counter(x["moment"] for x in each)),
        "each": each,
    }
    assert lost == []


def test_damages(report: Any, tmp_path: Path) -> None:
    """Of files of the newest of three checkpoints, at times of the older ones too."""
    rng = random.Random(f"damages {SEED}")
    # Arrays that are large enough for files of their own: small ones lie in an index that has checksums.
    config = get_config()
    config.network.core_size = 128
    run = Run(
        tmp_path / "run",
        "--config.network.core_size=128",
        "--config.evaluate.every_steps=0",
    )
    assert run.train().code == 0
    steps = sorted(run.checkpoints, reverse=True)
    assert len(steps) == 3
    abstract = Assembly.build(resolve(config, 1)).runtime.learning.abstract_state()
    originals = {step: _restored(run.folder / "checkpoints", step, abstract) for step in steps}
    outcomes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    wrong: list[str] = []
    for trial in range(DAMAGES):
        folder = Path(shutil.copytree(run.folder / "checkpoints", tmp_path / str(trial) / "checkpoints"))
        touched = steps[: rng.choices((1, 2, 3), (6, 2, 2))[0]]
        done = []
        for step in touched:
            files = sorted(f for f in (folder / str(step)).rglob("*") if f.is_file())
            # Every other time by size: the arrays lie in one large file among many small ones.
            weights = [f.stat().st_size if trial % 2 else 1 for f in files]
            (file,) = rng.choices(files, weights)
            damage = rng.choice((truncate, flip, delete, zero))
            damage(file, rng)
            kinds[damage.__name__] += 1
            done.append(f"{damage.__name__} {file.relative_to(folder)}")
        outcome, problem = _judge(folder, steps, touched, abstract, originals)
        outcomes[outcome] += 1
        wrong += [f"trial {trial}, {done}: {problem}"] if problem else []
        shutil.rmtree(folder.parent)
    report["damages"] = {
        "tried": outcomes.total(),
        "survived": outcomes.total() - len(wrong),
        "lost": len(wrong),
        "outcomes": dict(outcomes),
        "files": dict(kinds),
    }
    assert wrong == []


def _judge(
    folder: Path, steps: list[int], touched: list[int], abstract: Any, originals: dict[int, Any]
) -> tuple[str, str | None]:
    """(what a trainer would go on from, what is wrong with that)."""
    checkpointer = Checkpointer(str(folder), keep=3)
    try:
        found = checkpointer.restore_latest(abstract)
    except CheckpointError as error:
        told = "none that is intact is left" in str(error) and "\n" not in str(error)
        return "refused", None if told and touched == steps else str(error)
    finally:
        checkpointer.close()
    if found is None:
        return "fresh", "a fresh start"
    step, state, meta = found
    outcome = ("newest", "the one before", "the third")[steps.index(step)]
    if any(intact > step for intact in set(steps) - set(touched)):
        return outcome, f"step {step}, though a newer one is intact"
    aside = folder.parent / "corrupt"
    left = {int(path.name) for path in aside.iterdir()} if aside.exists() else set()
    if left != {s for s in steps if s > step}:
        return outcome, f"set aside: {left}"
    return outcome, None if (_bytes_of(state), meta) == originals[
        step
    ] else f"step {step} is not what was saved"


def _restored(folder: Path, step: int, abstract: Any) -> Any:
    checkpointer = Checkpointer(str(folder), create=False)
    state, meta = checkpointer.restore(step, abstract)
    checkpointer.close()
    return _bytes_of(state), meta


def _bytes_of(state: Any) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    arrays = jax.device_get(state_arrays.flat(state_arrays.to_arrays(state)))
    return {name: (str(x.dtype), x.shape, np.asarray(x).tobytes()) for name, x in arrays.items()}
