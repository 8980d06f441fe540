"""Training on mazes beside JaxUED: steps per second of both on the same work, in turn.

  python -m venv runs/jaxued && runs/jaxued/bin/pip install -r benchmarks/peers/requirements/jaxued.txt
  python benchmarks/jaxued.py random --jaxued=CHECKOUT --peer-python=runs/jaxued/bin/python
  python benchmarks/jaxued.py plr --jaxued=CHECKOUT --peer-python=runs/jaxued/bin/python

CHECKOUT is github.com/DramaCow/jaxued; its `maze_dr.py` (random) and `maze_plr.py` (plr) run as they are, in
a process of their own that waits between turns. Both have the sizes that are JaxUED's defaults: 32
environments, rollouts of 256 steps, 5 epochs of one minibatch, an LSTM of 256, a buffer of 4,000 levels.
JaxUED evaluates in each program; so one update with an evaluation is measured as well, in a second process,
and subtracted. Prints every round and the medians. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

import outcome
from roster import HERE

ENVS, LENGTH, EPOCHS, CORE = 32, 256, 5, 256
# The forward pass of JaxUED's network takes 0.871 MFLOP: a convolution, the LSTM, and two heads with a layer
# of 32 each. A dense layer of so many units before the LSTM, and heads without layers, take as many.
UNITS = 160
WALLS, CAPACITY = 60, 4000
FILL = 0.02  # so small a part of the buffer is enough, and is filled by the first updates
Turn = Callable[[], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("levels", choices=sorted(_EXAMPLES))
    parser.add_argument("--jaxued", required=True, help="folder of a checkout of JaxUED")
    parser.add_argument("--peer-python", default=sys.executable, help="with JaxUED's packages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4, help="of a turn")
    compare(parser.parse_args())


def compare(arguments: argparse.Namespace) -> None:
    """Measures in turn and prints steps per second, by round and their medians."""
    updates = arguments.updates
    ours, here = jaxrl_turn(arguments.levels, updates)
    many, there = jaxued_turn(arguments, 1 + updates)
    one, _ = jaxued_turn(arguments, 1)
    print(f"jaxrl: {here}\nJaxUED: {outcome.commit(arguments.jaxued)}, {there}")
    turns = (ours, many, one)
    for turn in turns:  # the first is not counted
        turn()
    found = []
    for number in range(arguments.rounds):
        found.append(rates(updates * ENVS * LENGTH, *(turn() for turn in turns)))
        print(row(f"round {number + 1}", found[-1]), flush=True)
    print(row("median", tuple(map(statistics.median, zip(*found, strict=True)))))


def rates(steps: int, ours: float, many: float, one: float) -> tuple[float, float, float]:
    """Steps per second of jaxrl and of JaxUED, and their ratio.

    Args:
      steps: of the updates that are counted.
      ours: seconds that jaxrl takes for them.
      many: seconds that JaxUED takes for them, one update more and an evaluation.
      one: seconds that JaxUED takes for one update and an evaluation.
    """
    theirs = many - one
    return steps / ours, steps / theirs, theirs / ours


def row(name: str, found: tuple[float, ...]) -> str:
    ours, theirs, ratio = found
    return f"{name:<8} jaxrl {ours:10,.0f} steps/s   JaxUED {theirs:10,.0f} steps/s   ratio {ratio:.2f}"


def jaxrl_turn(levels: str, updates: int) -> tuple[Turn, str]:
    """Trains for so many updates at each call, all in one program; with a description."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    import jax

    from jaxrl.config import resolve
    from jaxrl.config.files import load_config
    from jaxrl.parallel.sharding import Topology
    from jaxrl.programs.device_runtime import DeviceRuntime
    from jaxrl.training.device_count import choose_devices

    config = load_config("ppo_maze")
    config.update_from_flattened_dict(_fields(levels))
    devices = choose_devices(config)
    topology = Topology.of(devices)
    resolved = resolve(config, devices)
    runtime = DeviceRuntime(resolved, topology)
    runtime.compile()
    held = [runtime.learning.initial_state()]

    def turn() -> float:
        started = time.perf_counter()
        held[0], _, failed = runtime.advance(held[0], runtime.learning.empty_interval(), updates)
        assert not failed
        jax.block_until_ready(held[0])
        return time.perf_counter() - started

    return turn, f"{topology.description}, jax {jax.__version__}"


def _fields(levels: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "env.name": f"jaxrl:Maze(max_walls={WALLS})",
        "env.num_envs": ENVS,
        "network.hidden_sizes": (UNITS,),
        "network.core_size": CORE,
        "ppo.rollout_length": LENGTH,
        "ppo.num_epochs": EPOCHS,
        "ppo.num_minibatches": 1,
    }
    if levels == "plr":
        fields |= {"curriculum.name": "plr", "levels.capacity": CAPACITY, "levels.fill": FILL}
    return fields


_EXAMPLES = {
    "random": ("maze_dr.py",),
    # As PLR is here, with updates from new levels too.
    "plr": ("maze_plr.py", "--exploratory_grad_updates", f"--minimum_fill_ratio={FILL}"),
}


def jaxued_turn(arguments: argparse.Namespace, updates: int) -> tuple[Turn, str]:
    """Likewise, by JaxUED, with the smallest evaluation that it can make; its first turn is over."""
    example, *flags = _EXAMPLES[arguments.levels]
    if arguments.levels == "plr":
        flags.append(f"--level_buffer_capacity={CAPACITY}")
    flags += [f"--num_train_envs={ENVS}", f"--num_steps={LENGTH}", f"--epoch_ppo={EPOCHS}"]
    flags += ["--num_minibatches=1", f"--n_walls={WALLS}"]
    flags += [f"--eval_freq={updates}", "--num_updates=1000000"]
    flags += ["--checkpoint_save_interval=0", "--eval_num_attempts=1", "--eval_levels", "SixteenRooms"]
    command = [arguments.peer_python, str(HERE / "jaxued_runner.py"), arguments.jaxued, example, *flags]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None

    def outcome_of_turn() -> dict[str, Any]:
        for line in process.stdout:
            found = outcome.read(line)
            if found is not None:
                return found
        raise SystemExit(f"JaxUED's {example} ended with {process.wait()}")

    def turn() -> float:
        process.stdin.write("\n")
        process.stdin.flush()
        return outcome_of_turn()["seconds"]

    versions = outcome_of_turn()["versions"]
    return turn, ", ".join(f"{package} {version}" for package, version in versions.items())


if __name__ == "__main__":
    main()
