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
from jaxrl.commands.arguments import CHECKPOINT, SEED, TRUST, Argument, CommandArguments, flag
from jaxrl.config import ConfigError

_MOST_GAMES = 1_000_000


class _Flags(CommandArguments):
    run_player = Argument(
        "RUN|PLAYER...", "two or more: folders of runs, random, greedy, mcts-N, minimax, baseline"
    )
    games: int = flag(
        "--games=N", "of each pair, half from each seat (default: {default})", 400, within=(2, _MOST_GAMES)
    )
    seed: int = replace(SEED, help="decides the games (default: {default})")
    best_moves: bool = flag("--best-moves", "policies play greedily instead of sampling moves")
    checkpoint: str = replace(CHECKPOINT, help="of runs: best (default), latest, or a step")
    game: str = flag("--game=E", "the game, if no run has one, such as jaxrl:TicTacToe", "")
    openskill: bool = flag("--openskill", "rate by OpenSkill too; needs the `openskill` extra")
    output: str | None = flag(
        "--output=DIR", "where tournament.html, tournament.json and tournament.png go (default: nowhere)"
    )
    trust: bool = TRUST


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, names: Sequence[str]) -> int:
    if len(names) < 2:
        raise ConfigError("two players are needed: jaxrl tournament RUN random")
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{twice!r} is named twice")
    if flags.games % 2:
        raise ConfigError(f"`--games` (={flags.games}) must be even: half are from each seat")
    output = flags.output
    if output:
        command_line.require_writable_folder("output", output)

    from jaxrl.evaluation.tournament import tournament
    from jaxrl.evaluation.tournament.contestants import Trained, enter
    from jaxrl.reporting.display import table
    from jaxrl.reporting.pages import tournament as report
    from jaxrl.reporting.pages.page import require_packages

    if output:
        require_packages("compare")
    contestants = enter(
        names, flags.game, checkpoint=flags.checkpoint, samples=not flags.best_moves, trust=flags.trust
    )
    for each in contestants:
        if isinstance(each, Trained):
            command_line.say(f"{each.name}: {each.checkpoint}")
    results = tournament.run(contestants, flags.games, flags.seed, flags.openskill, command_line.say)
    record = results.record()
    for shown in report.tables(record):
        print()
        table.show(shown.headings, shown.rows, names=shown.names, title=shown.title)
    if output:
        command_line.say(f"written to {', '.join(report.write(record, output))}")
    return 0
