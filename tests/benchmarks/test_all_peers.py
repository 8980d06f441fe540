"""benchmarks/all_peers.py: resumed commands, missing peers, ratios."""

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "peers"))

import all_peers
import all_rows
import rows

# Counts its runs, and fails while the file `broken` lies in the current folder, the root of a build.
_BENCHMARK = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
if pathlib.Path("broken").exists():
    sys.exit("it broke")
speed = float(pathlib.Path("speed").read_text())
found = {"jaxrl": speed} | ({} if "alone" in sys.argv else {"peer": 2.0})
(folder / "found.json").write_text(json.dumps(found))
"""


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Options of `run`, with one row, `own`, and folders that stand for two builds."""
    script = tmp_path / "benchmark.py"
    script.write_text(_BENCHMARK)
    for build, speed in (("this", 6.0), ("earlier", 4.0)):
        (tmp_path / build / "benchmarks").mkdir(parents=True)
        (tmp_path / build / "speed").write_text(str(speed))
    row = rows.Row(
        "own",
        "own work",
        (rows.Figure("", "steps/s", "3.0", flops=5.0),),
        lambda job: [str(script), str(job.folder), *(["alone"] if job.alone else [])],
        lambda folder: {"": json.loads((folder / "found.json").read_text())},
        (rows.Need("a peer", lambda given: given.peer, "make peer"),),
    )
    monkeypatch.setattr(all_peers, "ROWS", {"own": row})
    monkeypatch.setattr(all_peers, "ROOT", tmp_path / "this")
    monkeypatch.setattr(all_peers, "_matmul_flops", lambda: 60.0)
    options = {"output": tmp_path / "out", "rows": ["own"], "rounds": 2, "quick": False, "peer": "1.0"}
    return argparse.Namespace(**options, earlier=tmp_path / "earlier")


def taken(given, capsys):
    """(round, build) of what a command measures."""
    all_peers.Session(given).run()
    printed = capsys.readouterr().out
    return [(int(x), build) for build, x in re.findall(r"own, (\w+) build, round (\d) of \d: \d+ s", printed)]


def test_the_same_command_measures_what_has_no_result(given, capsys):
    assert taken(given, capsys) == [(1, "this"), (1, "earlier"), (2, "this"), (2, "earlier")]
    assert taken(given, capsys) == []
    path = given.output / "rows.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[2] + lines[3][:40])  # cut off while it wrote the last one
    assert taken(given, capsys) == [(1, "earlier"), (2, "earlier")]
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(x["round"], x["build"]) for x in found} == {(x, y) for x in (0, 1) for y in all_peers.BUILDS}
    assert found[0]["versions"]["a peer"] == "1.0"
    given.quick, given.rounds, given.earlier = True, 1, None
    assert taken(given, capsys) == [(1, "this")]  # results of other lengths do not count


def test_each_build_runs_with_its_own_package_and_what_fails_is_tried_again(given, capsys):
    given.rounds = 1
    broken = given.earlier / "broken"
    broken.touch()
    assert taken(given, capsys) == [(1, "this")]
    assert "it broke" in (given.output / "raw/own-earlier-0/log.txt").read_text()
    broken.unlink()
    assert taken(given, capsys) == [(1, "earlier")]
    table = all_peers.table(all_peers.results(given.output))
    assert "| own work | 6 steps/s | peer | 2 steps/s | 3.00 | 1 | 50% | 3.0 |" in table
    assert "| own work | 6 steps/s | the earlier build | 4 steps/s | 1.50 | 1 | 50% | 3.0 |" in table
    assert "- Earlier build: " in table
    assert "- a peer: 1.0." in table


def test_a_row_without_its_peer_is_left_out_with_the_command_that_installs_it(given, capsys):
    given.peer = None
    assert taken(given, capsys) == []
    all_peers.Session(given).run()
    assert capsys.readouterr().out == "own: left out until you have run: make peer\n"


def test_a_peer_that_fails_within_its_benchmark_leaves_no_result(given, capsys, monkeypatch):
    row = all_peers.ROWS["own"]
    alone = dataclasses.replace(row, command=lambda job: [*row.command(job), "alone"])
    monkeypatch.setitem(all_peers.ROWS, "own", alone)
    given.earlier = None
    assert taken(given, capsys) == []
    assert all_peers.results(given.output) == []


def line(count, build="this", **found):
    return {"round": count, "build": build, "figures": {"p99": found}}


def test_ratios_are_those_of_the_same_round_and_say_how_many_times_better():
    found = [line(0, jaxrl=2.0, peer=8.0), line(1, jaxrl=4.0, peer=8.0), line(2, jaxrl=3.0)]
    found += [line(0, "earlier", jaxrl=1.0), line(1, "earlier", jaxrl=6.0)]
    less, more = (rows.Figure("p99", "ms", "", more=more) for more in (False, True))
    assert list(all_peers.compared(less, found)) == [
        ["3 ms", "peer", "8 ms", "3.00 (2.00 to 4.00)", "2"],
        ["3 ms", "the earlier build", "3.5 ms", "1.00 (0.50 to 1.50)", "2"],
    ]
    assert [x[3] for x in all_peers.compared(more, found)] == ["0.38 (0.25 to 0.50)", "1.33 (0.67 to 2.00)"]
    assert list(all_peers.compared(less, [line(0, jaxrl=250.0)])) == [["250 ms", "", "", "", "1"]]


def test_a_bound_is_no_trainer_and_has_a_share():
    serving = rows.Figure("p99", "requests/s", "")
    found = [line(0, jaxrl=3.0, bound=4.0), line(1, jaxrl=1.0, bound=4.0), line(2, jaxrl=2.0, bound=4.0)]
    found = [{**x, "machine": {"matmul_flops": 1.0}} for x in found]
    assert list(all_peers.compared(serving, found)) == [["2 requests/s", "", "", "", "3"]]
    assert all_peers.bound(serving, found) == "50%"
    assert all_peers.bound(serving, [{**line(0, jaxrl=3.0), "machine": {"matmul_flops": 1.0}}]) == ""


def test_the_arithmetic_of_a_step_is_that_of_the_networks_written_out():
    flops = {name: row.figures[0].flops for name, row in all_rows.ROWS.items()}
    # Two networks of 4 x 64, 64 x 64 and a head, 13 passes.
    mlp = 2 * 13 * (2 * (4 * 64 + 64 * 64) + 64 * 2 + 64)
    assert flops["ppo-mlp-64"] == flops["seeds-mlp"] == mlp
    # SAC's sixteen passes of a network per row: 4 of the actor, 12 of the critics, and one to act.
    actor, critic = 3 * 256 + 256 * 256 + 256 * 2, 4 * 256 + 256 * 256 + 256
    assert flops["sac"] == 2 * (actor + 256 * (4 * actor + 12 * critic))
    # 32 sequences of 20 + 40 steps in 64 steps of the environments.
    assert flops["r2d2"] == 2 * (4 * 128 + 256 * 512 + 128 * 2) * (1 + 32 * (20 * 2 + 40 * 4) / 64)
    assert flops["minatar"] == 2 * (36 * 16 * 64 + 1024 * 128 + 128 * 3) * (1 + 32)
    # Two cooks with 520 features each.
    assert flops["overcooked"] == 2 * 2 * 13 * (2 * (520 * 64 + 64 * 64) + 64 * 6 + 64)
    assert flops["ring"] is flops["dqn_minatar"] is flops["serve"] is None


@pytest.mark.parametrize("name", all_rows.ROWS)
@pytest.mark.parametrize("alone", [False, True])
def test_benchmarks_have_the_options_that_rows_give_them(name, alone, tmp_path):
    checkouts = dict.fromkeys(rows.CHECKOUTS, "PATH")
    given = argparse.Namespace(quick=alone, venvs=tmp_path, **checkouts)
    script, *arguments = all_rows.ROWS[name].command(rows.Job(given, tmp_path, 0, alone))
    source = (Path(all_peers.__file__).parent / script).read_text()
    generated = {"--rejax", "--rejax-python"}  # of time_to_score.py, from the roster
    for option in {x.partition("=")[0] for x in arguments if x.startswith("--")} - generated:
        assert f'"{option}"' in source
    assert "None" not in " ".join(arguments)


@pytest.mark.parametrize(
    ("parse", "text"), [(all_peers._folder, "absent"), (all_peers.some_of(all_peers.ROWS), "ring,absent")]
)
def test_names_of_nothing_are_refused(parse, text):
    with pytest.raises(argparse.ArgumentTypeError, match="absent"):
        parse(text)
