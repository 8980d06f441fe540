"""jaxrl tournament RUN|PLAYER...: plays policies of a game, and rates them.

A player is the folder of a run, RUN@latest or RUN@STEP for another checkpoint
of it, or a scripted one: random, greedy (looks one move ahead), mcts-N, such as
mcts-100 (a tree search with 100 simulations for each move), minimax where the
game is solved, and baseline where Pgx has published a policy of it
(docs/selfplay.md). Every pair plays from both seats, with fixed keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxrl.commands import command_line
from jaxrl.commands.arguments import CHECKPOINT, DEBUG, SEED, TRUST, Argument, help_text, parse
from jaxrl.config import ConfigError

_MOST_GAMES = 1_000_000
ARGUMENTS = (
    Argument("RUN|PLAYER...", "two or more: folders of runs, random, greedy, mcts-N, minimax, baseline"),
    Argument(
        "--games=N",
        "of each pair, half from each seat (default: {default})",
        int,
        400,
        low=2,
        high=_MOST_GAMES,
    ),
    replace(SEED, help="decides the games (default: {default})"),
    Argument("--best-moves", "policies play greedily instead of sampling moves", bool),
    replace(CHECKPOINT, help="of runs: best (default), latest, or a step"),
    Argument("--game=E", "the game, if no run has one, such as jaxrl:TicTacToe", str, ""),
    Argument("--openskill", "rate by OpenSkill too; needs the `openskill` extra", bool),
    Argument(
        "--output=DIR",
        "where tournament.html, tournament.json and tournament.png go (default: nowhere)",
        str,
    ),
    TRUST,
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Plays the tournament that `argv` asks for; returns the exit code (2: bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    values, names = parse(ARGUMENTS, argv, positional=True)
    if len(names) < 2:
        raise ConfigError("two players are needed: jaxrl tournament RUN random")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice!r} is named twice")
    if values["games"] % 2:
        raise ConfigError(f"`--games` (={values['games']}) must be even: half are from each seat")
    output = values["output"]
    if output:
        command_line.require_writable_folder("output", output)

    from jaxrl.evaluation.tournament import tournament
    from jaxrl.evaluation.tournament.contestants import EntryTerms, Trained, enter
    from jaxrl.reporting.display import table
    from jaxrl.reporting.pages import tournament as report

    if output:
        report.require_packages()
    entry = EntryTerms(
        values["game"],
        checkpoint=values["checkpoint"],
        samples=not values["best-moves"],
        trust=values["trust"],
    )
    contestants = enter(names, entry)
    for each in contestants:
        if isinstance(each, Trained):
            command_line.say(f"{each.name}: {each.checkpoint}")
    results = tournament.run(
        contestants, values["games"], values["seed"], values["openskill"], command_line.say
    )
    record = results.record()
    for shown in report.tables(record):
        print()
        table.show(shown.headings, shown.rows, names=shown.names, title=shown.title)
    if output:
        command_line.say(f"written to {', '.join(report.write(record, output))}")
    return 0
