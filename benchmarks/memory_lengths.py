"""Finds how long each core remembers: delays of 4 to 1,024 steps, PPO and PQN, three seeds.

  python benchmarks/memory_lengths.py run --out=runs/memory_lengths
  python benchmarks/memory_lengths.py table --out=runs/memory_lengths
  python benchmarks/memory_lengths.py figure --out=runs/memory_lengths --pictures=docs/img

`run` trains one seed of a core at one delay after another and appends a line to OUT/runs.jsonl for each; the
same command continues where it was cut off. A run ends if 95% of its latest answers in training are right,
or when it has used both budgets, --steps and --seconds, or --limit seconds. Seconds are of the processor, not
of the clock, and without compilation, so that other programs matter little; pin the command to one core
(`taskset -c 0`), as threads add up. A seed that has failed at a delay is not trained at longer ones.
docs/memory_lengths.md has the results.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import jax.numpy as jnp
import memory_lengths_page

from jaxrl import algorithms
from jaxrl.algorithms.suitable_networks import network_on
from jaxrl.config import resolve
from jaxrl.config.files import load_config
from jaxrl.config.selection import known_environment
from jaxrl.envs import registry
from jaxrl.envs.adapters.suite import implicit_promotion
from jaxrl.envs.base import JaxEnv, TimeStep
from jaxrl.networks.cores import CORES
from jaxrl.parallel.compilation import use_compilation_cache
from jaxrl.programs.iteration import Iteration
from jaxrl.types import Array, Axis, TrainState

DELAYS = (4, 16, 64, 256, 1024)
SOLVED = 0.95
BETWEEN = 16_384  # steps from one look at the answers to the next


@dataclasses.dataclass(frozen=True)
class Series:
    """A column of the page: a task and a learner with its rollouts.

    Attributes:
      config: the configuration whose settings hold, but for the task, the core and a constant learning rate.
      task: `chain` for MemoryChain, `repeat` for RepeatPrevious.
      window: the latest episodes that are looked at; each has one answer in `chain`, 90 or more in `repeat`.
      rollouts: by delay, (steps, environments).
    """

    config: str
    task: str
    window: int
    rollouts: dict[int, tuple[int, int]]


_COVERING = {64: (512, 16), 256: (512, 16), 1024: (2048, 8)}
SERIES = {
    "ppo": Series("ppo_memory", "chain", 256, dict.fromkeys(DELAYS, (64, 128))),
    "ppo_covering": Series("ppo_memory", "chain", 256, _COVERING),
    "pqn": Series("pqn_memory", "chain", 256, dict.fromkeys(DELAYS, (64, 64))),
    "ppo_repeat": Series("ppo_memory", "repeat", 16, dict.fromkeys(DELAYS, (64, 64))),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run: a seed of a core at a delay."""

    series: str
    core: str
    delay: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Budget:
    """What a run may use: so many steps and seconds, both, but never more than `limit` seconds."""

    steps: int
    seconds: float
    limit: float

    def is_used(self, steps: int, seconds: float) -> bool:
        return (steps >= self.steps and seconds >= self.seconds) or seconds >= self.limit


class Chain(JaxEnv):
    """gymnax's MemoryChain, whose delay a compiled program takes as an argument.

    An episode shows a cue and asks for it `delay` steps later: a reward of 1 or -1, then it terminates.

    Args:
      delay: int32[], at most the longest of `DELAYS`.
    """

    def __init__(self, delay: Array | int):
        import gymnax

        longest = max(DELAYS)
        name = f"gymnax:MemoryChain-bsuite(memory_length={longest},max_steps_in_episode={longest + 1})"
        self.spec = registry.spec_of(name)
        self._env, params = gymnax.make("MemoryChain-bsuite")
        self._params = params.replace(memory_length=delay, max_steps_in_episode=longest + 1)

    def reset(self, key: Array) -> tuple[Any, Array]:
        with implicit_promotion():
            obs, state = self._env.reset_env(key, self._params)
        return state, obs

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, TimeStep]:
        with implicit_promotion():
            obs, state, reward, terminated, _ = self._env.step_env(key, state, action, self._params)
        reward = jnp.asarray(reward, jnp.float32)
        return state, TimeStep(obs=obs, reward=reward, terminated=terminated, truncated=jnp.zeros((), bool))


@dataclasses.dataclass(frozen=True)
class Program:
    """A core's training, compiled once for all delays of `Chain`.

    Attributes:
      steps: of one call of `advance`.
      start: (delay, key) -> the state before the first iteration.
      advance: (delay, state) -> (state, right answers, episodes): float32[] sums over the call.
    """

    steps: int
    start: Callable[..., TrainState]
    advance: Callable[..., tuple[TrainState, Array, Array]]


def program(cell: Cell, budget: Budget) -> Program:
    """The compiled program of a cell."""
    series = SERIES[cell.series]
    repeated = cell.delay if series.task == "repeat" else 0
    return _program(series.config, cell.core, series.rollouts[cell.delay], repeated, budget.steps)


@functools.lru_cache(maxsize=2)
def _program(shipped: str, core: str, rollout: tuple[int, int], repeated: int, steps: int) -> Program:
    config = load_config(shipped)
    section = config.algorithm
    fields: dict[str, Any] = {"network.core": core, "env.num_envs": rollout[1], "stop.steps": steps}
    fields |= {
        f"{section}.rollout_length": rollout[0],
        f"{section}.schedule": "constant",
        "log.layers": False,
    }
    if repeated:
        decks = max(2, -(-2 * repeated // 52))  # At least half of the answers count.
        name = f"jaxrl:memory/RepeatPrevious(num_decks={decks}, k={repeated})"
        known = known_environment(name)  # as `jaxrl train --env` takes it
        fields = {**(known.settings if known else {}), **fields, "env.name": name}
    config.update_from_flattened_dict(fields)
    resolved = resolve(config, 1)
    env = registry.make(config.env.name) if repeated else Chain(1)
    agent = algorithms.build_agent(network_on(resolved, Axis(), None), env.spec)
    iterations = max(1, BETWEEN // (rollout[0] * rollout[1]))

    def iteration(delay: Array) -> Iteration:
        return Iteration.build(resolved, env if repeated else Chain(delay), agent, Axis())

    def start(delay: Array, key: Array) -> TrainState:
        made = iteration(delay)
        state = made.init(key, made.learning.algorithm.hyperparameters(resolved))
        return state if repeated else _staggered(state, delay)

    def advance(delay: Array, state: TrainState) -> tuple[TrainState, Array, Array]:
        state, metrics = jax.lax.scan(
            lambda state, _: iteration(delay).iterate(state), state, length=iterations
        )
        count = metrics["episode/count"].value()
        # A return is the share of right answers less that of the wrong ones.
        returned = jnp.nansum(metrics["episode/return"].value() * count)
        return state, (returned + count.sum()) / 2, count.sum()

    given, key = jnp.int32(DELAYS[0]), jax.random.key(0)
    started = jax.jit(start).lower(given, key).compile()
    advanced = jax.jit(advance, donate_argnums=1).lower(given, jax.eval_shape(start, given, key)).compile()
    return Program(iterations * rollout[0] * rollout[1], started, advanced)


def _staggered(state: TrainState, delay: Array) -> TrainState:
    """`state` with first episodes cut off as for this delay; those of the longest would hardly be."""
    collector = state.collector
    assert collector is not None
    left = collector.env_state.first_episode_left
    env_state = dataclasses.replace(collector.env_state, first_episode_left=(left - 1) % (delay + 1) + 1)
    return dataclasses.replace(state, collector=dataclasses.replace(collector, env_state=env_state))


def train(cell: Cell, budget: Budget) -> dict[str, Any]:
    """Trains one cell to its end; the line that is kept of it."""
    made, delay = program(cell, budget), jnp.int32(cell.delay)
    state = jax.block_until_ready(made.start(delay, jax.random.key(cell.seed)))
    curve: list[tuple[int, float, float, float]] = []
    steps, seconds, share = 0, 0.0, None
    while not budget.is_used(steps, seconds) and not (share and share >= SOLVED):
        before = time.process_time()
        state, right, episodes = jax.block_until_ready(made.advance(delay, state))
        seconds += time.process_time() - before
        steps += made.steps
        curve.append((steps, round(seconds, 3), float(right), float(episodes)))
        share = latest_share(curve, SERIES[cell.series].window)
    ended = {"solved": bool(share and share >= SOLVED), "share": share, "steps": steps, "seconds": seconds}
    return dataclasses.asdict(cell) | ended | {"curve": curve}


def latest_share(curve: Sequence[tuple[int, float, float, float]], window: int) -> float | None:
    """The share of right answers in the last `window` episodes or a few more; None if there are fewer."""
    right = episodes = 0.0
    for *_, some_right, some in reversed(curve):
        right, episodes = right + some_right, episodes + some
        if episodes >= window:
            return right / episodes
    return None


def cells(series: Sequence[str], cores: Sequence[str], seeds: int) -> Iterator[Cell]:
    """All cells, one seed of everything before the next, so that a run that is cut off compares all cores."""
    for seed, name, core in itertools.product(range(seeds), series, cores):
        yield from (Cell(name, core, delay, seed) for delay in SERIES[name].rollouts)


def is_hopeless(cell: Cell, runs: dict[Cell, dict[str, Any]]) -> bool:
    """True if the same seed has failed at a shorter delay."""
    shorter = [dataclasses.replace(cell, delay=x) for x in SERIES[cell.series].rollouts if x < cell.delay]
    return any(not runs[each]["solved"] for each in shorter if each in runs)


def read(out: Path) -> dict[Cell, dict[str, Any]]:
    """The lines of a folder, by cell; a line that was cut off is left out."""
    file = out / "runs.jsonl"
    found = {}
    for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
        if line.endswith("\n"):
            run = json.loads(line)
            found[Cell(*(run[field.name] for field in dataclasses.fields(Cell)))] = run
    return found


def run(out: Path, wanted: Iterator[Cell], budget: Budget) -> None:
    """Trains the cells that the folder does not have."""
    out.mkdir(parents=True, exist_ok=True)
    runs = read(out)
    file = out / "runs.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in runs.values()))
    for cell in wanted:
        if cell in runs or is_hopeless(cell, runs):
            continue
        runs[cell] = train(cell, budget)
        with file.open("a") as lines:
            lines.write(json.dumps(runs[cell]) + "\n")
        print(memory_lengths_page.described(runs[cell]), flush=True)


def main() -> None:
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=["run", "table", "figure"])
    parser.add_argument("--out", type=Path, default=Path("runs/memory_lengths"))
    parser.add_argument("--pictures", type=Path, default=Path("docs/img"))
    parser.add_argument("--series", default=",".join(SERIES))
    parser.add_argument("--cores", default=",".join(CORES.names()))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=31 * BETWEEN)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--limit", type=float, default=40.0)
    given = parser.parse_args()
    budget = Budget(given.steps, given.seconds, given.limit)
    if given.job == "run":
        jax.config.update("jax_platforms", "cpu")  # whose seconds are counted
        use_compilation_cache()
        run(given.out, cells(given.series.split(","), given.cores.split(","), given.seeds), budget)
        return
    runs = [*read(given.out).values()]
    columns = {name: [*series.rollouts] for name, series in SERIES.items()}
    if given.job == "table":
        print(memory_lengths_page.tables(runs, columns, budget.steps, budget.seconds))
    else:
        memory_lengths_page.draw(runs, columns, given.pictures)


if __name__ == "__main__":
    main()
