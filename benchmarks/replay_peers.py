"""Replay beside its peers on the same work, interleaved: the ring, DQN, SAC, R2D2.

  python benchmarks/replay_peers.py ring --capacities=10000,100000,1000000
  python benchmarks/replay_peers.py dqn --peer-python=PYTHON
  python benchmarks/replay_peers.py sac --peer-python=PYTHON
  python benchmarks/replay_peers.py r2d2 --peer-python=PYTHON

`ring` measures adding rollouts and sampling batches, uniform and by priority, beside flashbax, each as a loop
of calls inside one compiled program, as training has it. `dqn` measures training steps beside rejax, `sac`
beside SBX, `r2d2` beside memorax, in another Python (rejax and memorax need an older gymnax). Needs flashbax
beside jaxrl for `ring`. Prints medians, ranges and ratios (the peer's time over jaxrl's: above 1 jaxrl is
faster). Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxrl.algorithms.replay import PriorityPlan, ReplayFeedback, ReplayPlan
from jaxrl.config import default_config, resolve
from jaxrl.experience.replay import Replay
from jaxrl.parallel.sharding import Topology
from jaxrl.programs.device_runtime import DeviceRuntime
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
    parser.add_argument(
        "--peer-python", default=sys.executable, help="with the peer of `dqn`, `sac` or `r2d2`"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="of training")
    given = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {given.repeats} repeats in turn")
    if given.work == "ring":
        for capacity in map(int, given.capacities.split(",")):
            for what, runs in ring(capacity).items():
                show(f"{what}, capacity {capacity:,}", runs, given.repeats, CALLS, "us per call", 1e6)
    else:
        config, name = TRAINED[given.work][0](given.steps), TRAINED[given.work][1]
        runs = {
            "jaxrl": jaxrl_training(config, given.steps),
            name: peer_training(given.peer_python, given.work, given.steps),
        }
        show(given.work, runs, given.repeats, given.steps, "us per step", 1e6)


def show(title: str, runs: Runs, repeats: int, count: int, unit: str, scale: float) -> None:
    """Measures in turn and prints a line for each; the first of `runs` is jaxrl."""
    for run in runs.values():
        run()  # compiles
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            found[name].append(run() * scale / count)
    medians = {name: statistics.median(x) for name, x in found.items()}
    first = next(iter(medians.values()))
    print(f"\n{title}")
    for name, x in found.items():
        ratio = f"{medians[name] / first:.2f}"
        print(
            f"  {name:28} {medians[name]:10.1f} ({min(x):.1f} to {max(x):.1f}) {unit}, ratio {ratio}",
            flush=True,
        )


def ring(capacity: int) -> dict[str, Runs]:
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
    ours, theirs = jaxrl_ring(plan, rollout), flashbax_ring(capacity, rollout, prioritised=False)
    ours_first, theirs_first = (
        jaxrl_ring(dataclasses.replace(plan, priorities=priorities), rollout),
        flashbax_ring(capacity, rollout, prioritised=True),
    )
    return {
        "add": {"jaxrl": ours["add"], "flashbax": theirs["add"]},
        "uniform draw of 256": {"jaxrl": ours["draw"], "flashbax": theirs["draw"]},
        "add with priorities": {"jaxrl": ours_first["add"], "flashbax": theirs_first["add"]},
        "draw of 256 by priority": {"jaxrl": ours_first["draw"], "flashbax": theirs_first["draw"]},
    }


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
    """Training without evaluations, all of it one program."""
    resolved = resolve(config, 1)
    runtime = DeviceRuntime(resolved, Topology.of(1))
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


def dqn(steps: int) -> Any:
    """The configuration of the work that the peer's runner describes."""
    config = default_config()
    config.algorithm = "dqn"
    config.num_devices = 1
    config.env.update(name="gymnax:CartPole-v1", num_envs=8)
    config.network.update(core="none", hidden_sizes=(64, 64), activation="relu")
    config.normalize.observations = False
    config.dqn.update(rollout_length=1, updates_per_rollout=1, batch_size=128, capacity=10_000, n_step=1)
    config.dqn.update(learning_starts=1_000, target_period=50)
    config.stop.steps = steps
    return config


def sac(steps: int) -> Any:
    """Likewise. SBX steps Gymnasium's Pendulum; gymnax's, in the program, takes next to no time."""
    config = default_config()
    config.algorithm = "sac"
    config.num_devices = 1
    config.env.update(name="gymnax:Pendulum-v1", num_envs=4)
    config.network.update(core="none", hidden_sizes=(256, 256), activation="relu")
    config.normalize.observations = False
    config.sac.update(rollout_length=4, updates_per_rollout=16, batch_size=256, learning_starts=1_000)
    config.stop.steps = steps
    return config


def r2d2(steps: int) -> Any:
    """Likewise. memorax samples sequences from any step of the memory, jaxrl every twentieth."""
    config = default_config()
    config.algorithm = "r2d2"
    config.num_devices = 1
    config.env.update(name="gymnax:CartPole-v1", num_envs=16)
    config.network.update(core="lstm", hidden_sizes=(128,), core_size=128, activation="relu")
    config.normalize.observations = False
    config.r2d2.update(rollout_length=20, updates_per_rollout=5, batch_size=32, capacity=40_000)
    config.r2d2.update(learning_starts=4_000, burn_in=20, trace_length=40, overlap=20, n_step=5)
    config.r2d2.update(dueling=False, exploration="linear", value_rescaling=False, target_period=25)
    config.stop.steps = steps
    return config


TRAINED = {"dqn": (dqn, "rejax"), "sac": (sac, "SBX"), "r2d2": (r2d2, "memorax")}


def peer_training(python: str, work: str, steps: int) -> Callable[[], float]:
    """Training by the peer, in a process of its own that waits between measurements."""
    command = [python, str(Path(__file__).parent / "peers/replay_runner.py"), work, str(steps)]
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
