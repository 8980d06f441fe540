"""Steps per second on Craftax-Classic: this trainer and the PPO of Craftax_Baselines, on the same work.

  taskset -c 1 python benchmarks/craftax_baselines.py --baselines=CHECKOUT --envs=256 --updates=2 --rounds=2

CHECKOUT is github.com/MichaelTMatthews/Craftax_Baselines; its `ppo.py` runs as it is, with logging off. Both
have three tanh layers for the policy and three for the value, the same rollouts, minibatches and epochs, and
resets of a part of the environments at a time. Each measurement is a process of its own, in turn; its
compilation is not counted, nor is the first update of either with what comes before. Printed are steps per
second and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import jax

ENV = "Craftax-Classic-Symbolic-v1"
_MINIBATCHES, _EPOCHS = 8, 4


def theirs(arguments: argparse.Namespace) -> float:
    """Steps per second of their `train` after its first update.

    It is one compiled program that makes every world before it begins, which takes seconds, so the time of
    one update is taken from that of more.
    """
    sys.path.insert(0, str(Path(arguments.baselines).resolve()))
    import ppo

    per_update = arguments.envs * arguments.rollout_length
    settings = {
        "ENV_NAME": ENV,
        "NUM_ENVS": arguments.envs,
        "LR": 2e-4,
        "NUM_STEPS": arguments.rollout_length,
        "UPDATE_EPOCHS": _EPOCHS,
        "NUM_MINIBATCHES": _MINIBATCHES,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.8,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 1.0,
        "ANNEAL_LR": True,
        "DEBUG": False,
        "USE_WANDB": False,
        "LAYER_SIZE": arguments.layer_size,
        "USE_OPTIMISTIC_RESETS": True,
        "OPTIMISTIC_RESET_RATIO": 16,
        "TRAIN_ICM": False,
    }

    def seconds(updates: int) -> float:
        key = jax.random.PRNGKey(0)
        train = ppo.make_train(settings | {"TOTAL_TIMESTEPS": updates * per_update})
        compiled = jax.jit(train).lower(key).compile()
        begun = time.perf_counter()
        jax.block_until_ready(compiled(key))
        return time.perf_counter() - begun

    return arguments.updates * per_update / (seconds(1 + arguments.updates) - seconds(1))


def ours(arguments: argparse.Namespace) -> float:
    """Steps per second of `Trainer.fit` between the row of its first update and that of its last."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from jaxrl.config import default_config, resolve
    from jaxrl.reporting.writers import Writer
    from jaxrl.training.assembly import Assembly
    from jaxrl.training.device_count import choose_devices
    from jaxrl.training.trainer import Trainer

    class Rows(Writer):
        """When each row of training came, in environment steps and seconds."""

        def __init__(self) -> None:
            self.seen: list[tuple[int, float]] = []

        def write(self, step: int, scalars: Mapping[str, float]) -> None:
            if "time/steps_per_second" in scalars:
                self.seen.append((step, time.perf_counter()))

    per_update = arguments.envs * arguments.rollout_length
    c = default_config()
    c.env.name = f"craftax:{ENV}"
    c.env.num_envs = arguments.envs
    c.network.core = "none"
    c.network.hidden_sizes = (arguments.layer_size,) * 3
    c.network.activation = "tanh"
    c.network.separate_value = True
    c.ppo.rollout_length = arguments.rollout_length
    c.ppo.num_epochs = _EPOCHS
    c.ppo.num_minibatches = _MINIBATCHES
    c.ppo.learning_rate = 2e-4
    c.ppo.gae_lambda = 0.8
    c.ppo.max_grad_norm = 1.0
    c.evaluate.every_steps = c.checkpoint.every_steps = 0
    c.log.every_steps = per_update
    c.stop.steps = (1 + arguments.updates) * per_update
    rows = Rows()
    config = resolve(c, choose_devices(c))
    Trainer(config, writer=rows, assembly=Assembly.build(config)).fit()
    (first, begun), (last, ended) = rows.seen[0], rows.seen[-1]
    return (last - first) / (ended - begun)


_JOBS = {"theirs": theirs, "ours": ours}


def compare(arguments: argparse.Namespace) -> None:
    """Runs both in turn and prints a row of a table."""
    found: dict[str, list[float]] = {job: [] for job in (_JOBS if arguments.baselines else ("ours",))}
    for _ in range(arguments.rounds):
        for job, rates in found.items():
            command = [sys.executable, __file__, *sys.argv[1:], f"--job={job}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rates.append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{job}: {rates[-1]:,.0f} steps/s", file=sys.stderr, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found) + "\n")
    if not arguments.baselines:
        return
    rates = [statistics.median(x) for x in found.values()]
    ratios = ", ".join(
        f"{ours / theirs:.2f}" for ours, theirs in zip(found["ours"], found["theirs"], strict=True)
    )
    print(
        "| environments | layers | Craftax_Baselines, steps/s | here, steps/s | here / theirs, each round |"
    )
    print("|---|---|---|---|---|")
    print(f"| {arguments.envs} | 3 x {arguments.layer_size} | {rates[0]:,.0f} | {rates[1]:,.0f} | {ratios} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--baselines", help="folder of a checkout of Craftax_Baselines; without one jaxrl alone"
    )
    parser.add_argument("--envs", type=int, default=1024)
    parser.add_argument("--rollout-length", type=int, default=64)
    parser.add_argument("--layer-size", type=int, default=512)
    parser.add_argument("--updates", type=int, default=2, help="that are timed")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="for the steps per second of each round")
    parser.add_argument("--job", choices=_JOBS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        print(json.dumps(_JOBS[arguments.job](arguments)))
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
