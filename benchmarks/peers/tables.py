"""Markdown from the samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roster import PEERS
from works import EVALUATE_EVERY, SOLVED_RETURN, WORKS, Work

Sample = Mapping[str, Any]


def markdown(record: Mapping[str, Any]) -> str:
    """The whole page: machine, tables, versions, command."""
    samples = record["samples"]
    work = WORKS.get(record["work"])
    body = _throughput(work, samples) if work else _solve_table(samples)
    hardware = record["hardware"]
    lines = [
        f"# {record['work']}",
        "",
        f"- Machine: {hardware['cpu']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, "
        f"{hardware['os']}.",
        f"- Date: {record['date']}. Load average when it started: {hardware['load']}.",
        f"- Command: `{record['command']}`",
        *body,
        *_failures(record["failures"]),
        "",
        "Versions:",
        "",
    ]
    for name in _names(samples):
        found = next(sample["versions"] for sample in samples if sample["peer"] == name)
        lines.append(f"- {name}: " + ", ".join(f"{package} {version}" for package, version in found.items()))
    return "\n".join(lines) + "\n"


def _throughput(work: Work, samples: Sequence[Sample]) -> list[str]:
    lines = [
        f"- Work: {work.algorithm.upper()} on {work.env}, {work.rollout_length} steps a rollout, "
        f"{work.epochs} epochs, {work.num_minibatches} minibatches, float32. Steps per second include the "
        "updates, but not imports and compilation.",
    ]
    for num_envs, members in sorted({(sample["num_envs"], sample["members"]) for sample in samples}):
        here = [s for s in samples if (s["num_envs"], s["members"]) == (num_envs, members)]
        seeds = f", {members} seeds in one program, steps of all of them" if members else ""
        lines += ["", f"## {num_envs} environments{seeds}", "", *_rates(work, here)]
        lines += ["", *_floor(work, here)]
    return lines


def _rates(work: Work, samples: Sequence[Sample]) -> list[str]:
    ours = [_rate(sample) for sample in _of("jaxrl", samples)]
    columns = "trainer|steps/s, median|min to max|n|jaxrl / it|compile s|import s|peak GB|parameters|network"
    lines = header(columns)
    for name in _names(samples):
        if name == "floor":
            continue
        mine = _of(name, samples)
        rates = [_rate(sample) for sample in mine]
        ratio = f"{statistics.median(ours) / statistics.median(rates):.2f}" if ours else ""
        cells = [
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            str(len(rates)),
            ratio,
            f"{_median(mine, 'compile_seconds'):.1f}",
            f"{_median(mine, 'import_seconds'):.1f}",
            f"{_median(mine, 'peak_bytes') / 1e9:.2f}",
            f"{mine[0]['parameters']:,}",
            PEERS[name].notes[work.name],
        ]
        lines.append(row(cells))
    return lines


def _floor(work: Work, samples: Sequence[Sample]) -> list[str]:
    floor = _of("floor", samples)
    if not floor:
        return []
    matmul, env = _median(floor, "matmul_flops"), _median(floor, "env_steps_per_second")
    bound = matmul / work.flops_per_step
    both = 1 / (1 / bound + 1 / env)
    lines = [
        f"The floor: a forward pass is {work.forward_flops:,} FLOPs an observation, matrix products only. A "
        "step costs one of them in the rollout and three in each epoch, forward and backward: "
        f"(1 + 3 x {work.epochs}) x {work.forward_flops:,} = {work.flops_per_step / 1e6:.2f} MFLOP.",
        "",
        *header("bound|steps/s|jaxrl reaches"),
    ]
    ours = [_rate(sample) for sample in _of("jaxrl", samples)]
    for name, rate in (
        (f"matrix products at {matmul / 1e9:,.0f} GFLOP/s (measured)", bound),
        (f"the environment alone, random actions, {floor[0]['devices']} devices", env),
        ("both, one after the other", both),
    ):
        reached = f"{statistics.median(ours) / rate:.0%}" if ours else ""
        lines.append(row([name, f"{rate:,.0f}", reached]))
    return lines


def _solve_table(samples: Sequence[Sample]) -> list[str]:
    lines = [
        "- Work: from the start of the process to its end, when a greedy evaluation of CartPole has returned "
        f"{SOLVED_RETURN:g} or the budget is used up. Cold: an empty compilation cache; warm: the one that "
        f"the run before it filled. Evaluated every {EVALUATE_EVERY:,} steps, if the trainer can be.",
        "",
        *header("trainer|cold s, median|min to max|warm s, median|min to max|solved|steps, median|settings"),
    ]
    for name in _names(samples):
        mine = _of(name, samples)
        cells = [name]
        for cache in ("cold", "warm"):
            walls = [sample["wall_seconds"] for sample in mine if sample["cache"] == cache]
            cells += (
                [f"{statistics.median(walls):.1f}", f"{min(walls):.1f} to {max(walls):.1f}"]
                if walls
                else ["", ""]
            )
        solved = sum(sample["eval_return"] >= SOLVED_RETURN for sample in mine)
        cells += [f"{solved} of {len(mine)}", f"{_median(mine, 'steps'):,.0f}", PEERS[name].solve]
        lines.append(row(cells))
    return lines


def _failures(failures: Sequence[Mapping[str, Any]]) -> list[str]:
    if not failures:
        return []
    lines = [f"- {f['peer']}, {_where(f)}: {f['reason']}" for f in failures]
    return ["", "Failed (the whole output is in the JSON):", "", *lines]


def _where(failure: Mapping[str, Any]) -> str:
    members = f" x {failure['members']} seeds" if failure["members"] else ""
    return f"{failure['num_envs']} environments{members}"


def _rate(sample: Sample) -> float:
    return sample["steps"] / sample["seconds"]


def _median(samples: Iterable[Sample], field: str) -> float:
    return statistics.median(sample[field] for sample in samples)


def _of(name: str, samples: Iterable[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample["peer"] == name]


def _names(samples: Iterable[Sample]) -> list[str]:
    return list(dict.fromkeys(sample["peer"] for sample in samples))


def header(columns: str) -> list[str]:
    """The first two lines of a table, of names with bars between."""
    names = columns.split("|")
    return [row(names), "|" + "---|" * len(names)]


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"
