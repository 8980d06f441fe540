"""A replay memory of 4 GB trains, saves and goes on after a restart, in processes that may hold 6 GB.

  python benchmarks/large_memory.py
  python benchmarks/large_memory.py --gigabytes=1 --limit=2.5

DQN on frames of 84 x 84 bytes, in two processes: the first fills the memory once and saves it, the second
restores it, goes on for an eighth of its steps and saves it again. No process may have more private memory
than the limit (RLIMIT_DATA): what goes beyond is refused, and training ends with an error. Prints the largest
resident memory of each, the size of the memory on the disk and the seconds. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, JaxEnv, TimeStep

HERE = Path(__file__).parent
GIGABYTE = 10**9
SIDE, ENVS, ROLLOUT = 84, 64, 32
EPISODE = 500  # steps


@flax.struct.dataclass
class FramesState:
    """uint8[], the shade of the picture; int32[], steps of the episode."""

    shade: jax.Array
    steps: jax.Array


class Frames(JaxEnv):
    """uint8 pictures of one channel, whose shade an action changes: brighter is better."""

    def __init__(self) -> None:
        self.spec = EnvSpec("Frames", Box.of(0, 255, (SIDE, SIDE, 1), jnp.uint8), Discrete(3))

    def reset(self, key: jax.Array) -> tuple[FramesState, jax.Array]:
        state = FramesState(jax.random.bits(key, (), jnp.uint8), jnp.int32(0))
        return state, self._picture(state)

    def step(self, key: jax.Array, state: FramesState, action: jax.Array) -> tuple[FramesState, TimeStep]:
        shade = state.shade + action.astype(jnp.uint8)
        state = FramesState(shade, state.steps + 1)
        reward = shade.astype(jnp.float32) / 255.0
        return state, TimeStep(self._picture(state), reward, jnp.array(False), state.steps >= EPISODE)

    def _picture(self, state: FramesState) -> jax.Array:
        """No two rows alike, so that nothing can be shared or packed."""
        place = jnp.arange(SIDE * SIDE, dtype=jnp.uint8).reshape(SIDE, SIDE, 1)
        return place + state.shade + state.steps.astype(jnp.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of the memory's frames")
    parser.add_argument("--limit", type=float, default=6.0, help="gigabytes that a process may hold")
    given = parser.parse_args()
    capacity = round(given.gigabytes * GIGABYTE / SIDE**2)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        for name, steps in (("fills and saves", capacity), ("restores and saves", capacity * 9 // 8)):
            peak, seconds = train(run, capacity, steps, given.limit)
            saved = sum(file.stat().st_size for file in (run / "checkpoints/memory").rglob("*"))
            print(
                f"{name}: at most {peak / GIGABYTE:.2f} GB resident, {seconds:.0f} s, "
                f"memory of {saved / GIGABYTE:.2f} GB on the disk",
                flush=True,
            )


def train(run: Path, capacity: int, steps: int, limit: float) -> tuple[int, float]:
    """(bytes that were resident at most, seconds) of a process that trains until so many steps."""
    fields = {
        "env.num_envs": ENVS,
        "network.encoder": "mlp",
        "network.hidden_sizes": (16,),
        "normalize.observations": False,
        "num_devices": 1,
        "dqn.rollout_length": ROLLOUT,
        "dqn.updates_per_rollout": 1,
        "dqn.batch_size": 32,
        "dqn.capacity": capacity,
        "stop.steps": steps,
        "evaluate.every_steps": 0,
        "checkpoint.every_steps": 100 * capacity,
        "checkpoint.every_seconds": 86_400,
    }
    command = [sys.executable, "-m", "jaxrl", "train", "dqn", "--env=large_memory:Frames", f"--workdir={run}"]
    command += [f"--config.{name}={value}" for name, value in fields.items()]
    bound = round(limit * GIGABYTE)
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=HERE.parent,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (bound, bound)),
    )
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"training did not end well within {limit} GB")
    return usage.ru_maxrss * 1024, time.monotonic() - began


if __name__ == "__main__":
    main()
