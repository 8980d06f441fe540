"""All rows of `all_peers.py`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from replay_flops import flops_per_step
from roster import PEERS, interpreter
from rows import BOUND, Figure, Figures, Job, Need, Row, checkout, module, packages_of
from works import WORKS


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def _speed(
    name: str,
    title: str,
    aim: str,
    case: tuple[str, int],
    steps: tuple[int, int],
    peer: str,
    path: str = "",
    *needs: Need,
    members: int = 0,
) -> Row:
    """Of `peers.py`: steps per second of a work with so many environments, beside a peer.

    With `members`, of so many seeds in one program, all together.
    """
    work, envs = case

    def command(job: Job) -> list[str]:
        found = ["peers.py", f"--work={work}", f"--envs={envs}", "--repeats=1", "--no-floor"]
        found += [f"--venvs={job.given.venvs}", f"--output={job.folder}", f"--steps={steps[job.given.quick]}"]
        found += [f"--members={members}"] if members else []
        if job.alone:
            return [*found, "--peers=jaxrl"]
        given = [f"--{path}={getattr(job.given, path)}"] if path else []
        return [*found, f"--peers=jaxrl,{peer}", *given]

    def read(folder: Path) -> Figures:
        samples = _json(folder / f"{work}.json")["samples"]
        return {"": {x["peer"]: x["steps"] / x["seconds"] for x in samples}}

    needed = (*needs, packages_of(peer), *([checkout(path)] if path else []))
    figure = Figure("", "steps/s", aim, flops=WORKS[work].flops_per_step)
    return Row(name, title, (figure,), command, read, needed)


def _replay(name: str, title: str, aim: str, steps: tuple[int, int], peer: str = "", path: str = "") -> Row:
    """Of `replay_peers.py`: steps per second of training."""

    def command(job: Job) -> list[str]:
        found = ["replay_peers.py", name, "--repeats=1", f"--steps={steps[job.given.quick]}"]
        found.append(f"--json={job.folder / 'samples.json'}")
        if job.alone:
            return [*found, "--alone"]
        python = [f"--peer-python={interpreter(PEERS[peer], job.given.venvs)}"] if peer else []
        return [*found, *python, *([f"--checkout={getattr(job.given, path)}"] if path else [])]

    def read(folder: Path) -> Figures:
        return {"": {x: 1e6 / found[0] for x, found in _json(folder / "samples.json")[name].items()}}

    needed = (*([packages_of(peer)] if peer else []), *([checkout(path)] if path else []))
    figure = Figure("", "steps/s", aim, flops=flops_per_step(name))
    return Row(name, title, (figure,), command, read, needed)


def _ring_command(job: Job) -> list[str]:
    found = ["replay_peers.py", "ring", "--repeats=5"]  # a measurement takes milliseconds
    return [*found, f"--json={job.folder / 'samples.json'}", *(["--alone"] if job.alone else [])]


def _ring_read(folder: Path) -> Figures:
    start = "draw of 256 by priority, capacity "
    found = _json(folder / "samples.json")
    return {
        title.removeprefix(start): {trainer: statistics.median(x) for trainer, x in trainers.items()}
        for title, trainers in found.items()
        if title.startswith(start)
    }


def _score_command(job: Job) -> list[str]:
    found = ["time_to_score.py", "--tasks=cartpole", f"--seeds={job.round}", f"--output={job.folder}"]
    if job.alone:
        return [*found, "--trainers=jaxrl"]
    python = interpreter(PEERS["rejax"], job.given.venvs)
    return [*found, "--trainers=jaxrl,rejax-ppo", f"--rejax={job.given.rejax}", f"--rejax-python={python}"]


def _score_read(folder: Path) -> Figures:
    """Of the processes that reached the score."""
    samples = [x for x in _json(folder / "time_to_score.json")["samples"] if x["reached"]]
    return {
        name: {x["trainer"].split("-")[0]: x["wall_seconds"] for x in samples if x["cache"] == state}
        for state, name in (("cold", "empty cache"), ("warm", "filled cache"))
    }


def _craftax_command(job: Job) -> list[str]:
    sizes = (
        ["--envs=64", "--rollout-length=16", "--updates=1"]
        if job.given.quick
        else ["--envs=256", "--updates=2"]
    )
    found = ["craftax_baselines.py", *sizes, "--rounds=1", f"--json={job.folder / 'rates.json'}"]
    return [*found, *([] if job.alone else [f"--baselines={job.given.baselines}"])]


def _craftax_read(folder: Path) -> Figures:
    names = {"ours": "jaxrl", "theirs": "Craftax_Baselines"}
    return {"": {names[job]: rates[0] for job, rates in _json(folder / "rates.json").items()}}


def _memory_command(job: Job) -> list[str]:
    steps = 20_000 if job.given.quick else 100_000
    return ["resident_memory.py", f"--steps={steps}", f"--json={job.folder / 'memory.json'}"]


def _memory_read(folder: Path) -> Figures:
    return {name: {"jaxrl": mebibytes} for name, mebibytes in _json(folder / "memory.json").items()}


def _serve_command(job: Job) -> list[str]:
    seconds = 2 if job.given.quick else 10
    found = ["serving.py", "--networks=lstm", "--clients=100", "--within=5", f"--seconds={seconds}"]
    return [*found, "--empty", f"--output={job.folder}"]


def _serve_read(folder: Path) -> Figures:
    found = {x["way"]: x["rate"] for x in _json(folder / "serving.json")["rows"]}
    waiting = {"jaxrl": found["serve"], BOUND: found["empty"]}
    return {"p99 within 5 ms": {"jaxrl": found["rate"]}, "waiting clients": waiting}


# A forward pass of policy and value, with 1,345 features and 17 actions, and three in each of four epochs.
_CRAFTAX_FLOPS = (1 + 3 * 4) * 2 * (2 * (1_345 * 512 + 2 * 512 * 512) + 512 * (17 + 1))
_PPO_MLP, _PPO_LSTM = "PPO, MLP, CartPole", "PPO, LSTM 128, CartPole"
# Of two numbers of steps the second is for `--quick`.
_MLP, _LSTM = (2_000_000, 200_000), (400_000, 40_000)
_DRAWS = (Figure("10,000", "us", "1.5", more=False), Figure("100,000", "us", "2.5", more=False))
_SCORES = (
    Figure("empty cache", "s", "5.5 s, before rejax", more=False),
    Figure("filled cache", "s", "3.0 s, before rejax", more=False),
)
ROWS = {
    row.name: row
    for row in (
        _speed("ppo-mlp-64", f"{_PPO_MLP}, 64 environments", "3.0", ("cartpole-mlp", 64), _MLP, "rejax"),
        _speed(
            "ppo-mlp-1024", f"{_PPO_MLP}, 1,024 environments", "3.6", ("cartpole-mlp", 1024), _MLP, "rejax"
        ),
        _speed(
            "ppo-lstm-64",
            f"{_PPO_LSTM}, 64 environments",
            "3.0",
            ("cartpole-lstm", 64),
            _LSTM,
            "purejaxrl",
            "purejaxrl",
        ),
        _speed(
            "ppo-lstm-1024",
            f"{_PPO_LSTM}, 1,024 environments",
            "1.72",
            ("cartpole-lstm", 1024),
            _LSTM,
            "purejaxrl",
            "purejaxrl",
        ),
        _speed(
            "overcooked",
            "IPPO, Overcooked, 16 environments",
            "1.5",
            ("overcooked-mlp", 16),
            (200_000, 20_000),
            "jaxmarl",
            "jaxmarl",
            module("jaxmarl"),
        ),
        _replay(
            "minatar",
            "DQN, CNN, MinAtar Breakout, an update in 4 steps",
            "2",
            (20_000, 2_000),
            "purejaxrl",
            "purejaxrl",
        ),
        _replay("dqn_minatar", "`dqn_minatar` as shipped", "3 times the earlier build", (20_000, 2_000)),
        _replay("sac", "SAC, 256 x 256, Pendulum", "1.3", (3_000, 1_000), "sbx"),
        _replay("r2d2", "R2D2, LSTM 128, CartPole", "3", (6_400, 6_400), "memorax"),
        Row(
            "ring",
            "256 sampled by priority from a memory of",
            (*_DRAWS, Figure("1,000,000", "us", "3.5", more=False)),
            _ring_command,
            _ring_read,
            (module("flashbax"),),
        ),
        Row(
            "craftax",
            "PPO, Craftax-Classic, 256 environments",
            (Figure("", "steps/s", "1.5", flops=_CRAFTAX_FLOPS),),
            _craftax_command,
            _craftax_read,
            (module("craftax"), module("wandb"), checkout("baselines")),
        ),
        _speed(
            "seeds-mlp",
            "eight seeds in one program, MLP, CartPole",
            "3.0",
            ("cartpole-mlp", 64),
            (1_000_000, 100_000),
            "rejax",
            members=8,
        ),
        _speed(
            "seeds-lstm",
            "eight seeds in one program, LSTM, CartPole",
            "3.5",
            ("cartpole-lstm", 64),
            (200_000, 40_000),
            "purejaxrl",
            "purejaxrl",
            members=8,
        ),
        Row(
            "score",
            "seconds to 475 on CartPole",
            _SCORES,
            _score_command,
            _score_read,
            (packages_of("rejax"), checkout("rejax")),
        ),
        Row(
            "memory",
            "resident memory",
            tuple(
                Figure(name, "MiB", "1.43: 0.7 of the earlier build's", more=False)
                for name in ("make train", "resumed")
            ),
            _memory_command,
            _memory_read,
        ),
        Row(
            "serve",
            "`jaxrl serve`, LSTM, 100 sessions",
            (
                Figure("p99 within 5 ms", "requests/s", "1.5 times the earlier build"),
                Figure("waiting clients", "requests/s", "1.5 times the earlier build"),
            ),
            _serve_command,
            _serve_read,
        ),
    )
}
