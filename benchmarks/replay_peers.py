"""Replay beside its peers on the same work, interleaved: the ring, DQN, SAC, R2D2.

  python benchmarks/replay_peers.py ring --capacities=10000,100000,1000000
  python benchmarks/replay_peers.py dqn --peer-python=PYTHON
  python benchmarks/replay_peers.py minatar --peer-python=PYTHON --checkout=PATH
  python benchmarks/replay_peers.py sac --peer-python=PYTHON
  python benchmarks/replay_peers.py r2d2 --peer-python=PYTHON
  python benchmarks/replay_peers.py dqn_minatar

`ring` measures adding rollouts and sampling batches, uniform and by priority, beside flashbax, each as a loop
of calls inside one compiled program, as training has it; it needs flashbax beside jaxrl. `dqn` measures
training steps beside rejax, `minatar` beside PureJaxRL, `sac` beside SBX, `r2d2` beside memorax, in another
Python (all but SBX need an older gymnax); `dqn_minatar` is the shipped config, alone. Prints medians, ranges
and ratios (the peer's time over jaxrl's: above 1 jaxrl is faster). Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import jax
import jax.numpy as jnp
from replay_works import TRAINED

from jaxrl.algorithms.replay import PriorityPlan, ReplayFeedback, ReplayPlan
from jaxrl.config import resolve
from jaxrl.experience.replay import Replay
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
from jaxrl.training.device_count import choose_devices
from jaxrl.types import Axis, Trajectory

ENVS, LENGTH, FEATURES, BATCH = 64, 4, 16, 256
ALPHA, BETA = 0.6, 0.4
CALLS = 100  # in one program
STEPS = 40_000  # of training
Runs = dict[str, Callable[[], float]]  # by name, the seconds of one measurement


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", choices=("ring", *TRAINED))
    parser.add_argument("--capacities", default="10000,100000,1000000", help="of `ring`, steps")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-python", default=sys.executable, help="with the peer of a work of training")
    parser.add_argument("--checkout", default="", help="folder of a checkout of PureJaxRL, for `minatar`")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training")
    parser.add_argument("--alone", action="store_true", help="jaxrl without its peers")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="for all samples, by measurement and trainer"
    )
    given = parser.parse_args()
    samples = {}
    for title, count, unit, runs in measurements(given):
        if not samples:  # the devices have been chosen now
            device = jax.devices()[0].device_kind
            print(f"jax {jax.__version__}, {jax.device_count()} x {device}, {given.repeats} repeats in turn")
        samples[title] = measured(title, runs, given.repeats, count, unit)
    if given.json:
        given.json.write_text(json.dumps(samples, indent=1) + "\n")


def measurements(given: argparse.Namespace) -> Iterator[tuple[str, int, str, Runs]]:
    """(title, number of calls or steps of a measurement, unit, what is measured)."""
    if given.work == "ring":
        for capacity in map(int, given.capacities.split(",")):
            for what, runs in ring(capacity, given.alone).items():
                yield f"{what}, capacity {capacity:,}", CALLS, "us per call", runs
        return
    config, peer = TRAINED[given.work]
    runs = {"jaxrl": jaxrl_training(config(given.steps), given.steps)}
    if peer and not given.alone:
        runs[peer] = peer_training(given)
    yield given.work, given.steps, "us per step", runs


def measured(title: str, runs: Runs, repeats: int, count: int, unit: str) -> dict[str, list[float]]:
    """Measures in turn and prints a line for each; the first of `runs` is jaxrl. Microseconds by trainer."""
    for run in runs.values():
        run()  # compiles
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run() * 1e6 / count)
    medians = {name: statistics.median(x) for name, x in found.items()}
    first = next(iter(medians.values()))
    print(f"\n{title}")
    for name, x in found.items():
        ratio = f"{medians[name] / first:.2f}"
        print(
            f"  {name:28} {medians[name]:10.1f} ({min(x):.1f} to {max(x):.1f}) {unit}, ratio {ratio}",
            flush=True,
        )
    return found


def ring(capacity: int, alone: bool) -> dict[str, Runs]:
    """Adding, uniform draws, and draws by priority with the priorities that come back."""
    key = jax.random.key(0)
    obs = jax.random.normal(key, (LENGTH, ENVS, FEATURES))
    flags = jnp.zeros((LENGTH, ENVS), bool)
    rollout = Trajectory(
        obs=obs,
        reset=flags,
        action=jnp.zeros((LENGTH, ENVS), jnp.int32),
        action_mask=None,
        reward=obs[..., 0],
        terminated=flags,
        truncated=flags,
        carry=None,
        next_obs=None,
        extras={},
        valid=~flags,
    )
    plan = ReplayPlan(
        rows=capacity // ENVS // LENGTH * LENGTH,
        batch_size=BATCH,
        groups=ENVS,
        n_step=1,
        learning_starts=0,
        axis=Axis(platform=jax.default_backend()),
    )
    priorities = PriorityPlan(ALPHA, BETA, 100_000)
    found: dict[str, Runs] = {}
    for prioritised, add, draw in (
        (False, "add", "uniform draw of 256"),
        (True, "add with priorities", "draw of 256 by priority"),
    ):
        own = dataclasses.replace(plan, priorities=priorities if prioritised else None)
        trainers = {"jaxrl": jaxrl_ring(own, rollout)}
        if not alone:
            trainers["flashbax"] = flashbax_ring(capacity, rollout, prioritised)
        found[add] = {name: runs["add"] for name, runs in trainers.items()}
        found[draw] = {name: runs["draw"] for name, runs in trainers.items()}
    return found


def repeated(state: Any, step: Callable[[Any, jax.Array], tuple[Any, jax.Array]]) -> Callable[[], float]:
    """Measures `CALLS` steps in one program that takes and returns the state in place."""

    def loop(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return jax.lax.scan(step, state, jax.random.split(key, CALLS))

    compiled, held = jax.jit(loop, donate_argnums=0), [jax.tree.map(jnp.copy, state)]

    def run() -> float:
        started = time.perf_counter()
        held[0], seen = compiled(held[0], jax.random.key(int(started * 1e6) % 2**31))
        jax.block_until_ready((held[0], seen))
        return time.perf_counter() - started

    return run


def everything(tree: Any) -> jax.Array:
    """A number that needs every array of a batch, so that none is left out."""
    return sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(tree))


def jaxrl_ring(plan: ReplayPlan, rollout: Trajectory) -> Runs:
    memory = Replay(plan)
    fill = jax.jit(
        lambda state: jax.lax.fori_loop(0, plan.rows // LENGTH, lambda _, s: memory.add(s, rollout), state)
    )
    state = fill(memory.init(rollout))

    def add(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return memory.add(state, rollout), jnp.float32(0)

    def draw(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        found = memory.draw(state, rollout, key)
        seen = everything(
            (found.obs, found.action, found.reward, found.terminated, found.next_obs, found.weight)
        )
        if plan.priorities is not None:
            error = jax.random.uniform(key, (BATCH,))
            told = ReplayFeedback(error, found.usable, found.row, found.env, found.ready)
            state = memory.feedback(state, told)
        return state, seen

    return {"add": repeated(state, add), "draw": repeated(state, draw)}


def flashbax_ring(capacity: int, rollout: Trajectory, prioritised: bool) -> Runs:
    import flashbax

    sizes = {"max_length": capacity, "min_length": BATCH, "sample_batch_size": BATCH}
    options: dict[str, Any] = {"add_sequences": True, "add_batch_size": ENVS, **sizes}
    if prioritised:
        device = jax.default_backend()
        buffer = flashbax.make_prioritised_flat_buffer(priority_exponent=ALPHA, device=device, **options)
    else:
        buffer = flashbax.make_flat_buffer(**options)
    named = {
        "obs": rollout.obs,
        "action": rollout.action,
        "reward": rollout.reward,
        "done": rollout.terminated,
    }
    batch = jax.tree.map(lambda x: x.swapaxes(0, 1), named)
    one = jax.tree.map(lambda x: x[0, 0], batch)
    count = capacity // ENVS // LENGTH
    fill = jax.jit(lambda state: jax.lax.fori_loop(0, count, lambda _, s: buffer.add(s, batch), state))
    state = fill(buffer.init(one))

    def add(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        return buffer.add(state, batch), jnp.float32(0)

    def draw(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        found = buffer.sample(state, key)
        first, second = found.experience.first, found.experience.second
        seen = everything((first, second["obs"]))
        if prioritised:
            # As |TD| + 1e-5; weights as in the paper, which the buffer leaves to its user.
            weight = (found.probabilities * capacity) ** -BETA
            seen += (weight / weight.max()).sum()
            state = buffer.set_priorities(state, found.indices, jax.random.uniform(key, (BATCH,)) + 1e-5)
        return state, seen

    return {"add": repeated(state, add), "draw": repeated(state, draw)}


def jaxrl_training(config: Any, steps: int) -> Callable[[], float]:
    """Training without evaluations, all of it one program, on as many devices as a run would take."""
    resolved = resolve(config, choose_devices(config))
    runtime = DeviceRuntime(resolved, Topology.of(resolved.device_count))
    runtime.compile()
    held = [runtime.learning.initial_state()]
    count = steps // resolved.steps_per_iteration

    def run() -> float:
        started = time.perf_counter()
        held[0], _, failed = runtime.advance(held[0], runtime.learning.empty_interval(), count)
        assert not failed
        jax.block_until_ready(held[0].learner)
        return time.perf_counter() - started

    return run


def peer_training(given: argparse.Namespace) -> Callable[[], float]:
    """Training by the peer, in a process of its own that waits between measurements."""
    runner = str(Path(__file__).parent / "peers/replay_runner.py")
    command = [given.peer_python, runner, given.work, str(given.steps), given.checkout]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    return run


if __name__ == "__main__":
    main()
