"""jaxrl play [GAME]: you play a two-player game, or levels of jaxrl:Platformer.

With a GAME, such as jaxrl:TicTacToe or pgx:connect_four, or with an --opponent
you type the numbers of your moves. Without either the levels begin.

Keys: left and right run, until down stops; up jumps (or a, d, s, w and space);
r starts over, n goes to the next level, q leaves. The clock starts with the
first key that moves you (or down). Reach the switch () and then the exit [],
which it opens; mines are **, and you are @@. A line of FILE has the level's
digest, its category, the actions, a digit a step, and whether they reached the
exit; jaxrl prepare-data --replays=FILE makes episodes of them.
"""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from jaxrl.commands import command_line
from jaxrl.commands.arguments import SEED, TRUST, Argument, CommandArguments, flag
from jaxrl.config.errors import ConfigError, RunError, errors_as
from jaxrl.runs.signals import handled_by

if TYPE_CHECKING:
    from jaxrl.envs.native.platformer.game.record import Attempt
    from jaxrl.envs.native.platformer.game.terminal import Round
    from jaxrl.envs.native.platformer.level import PlatformerLevel

_LABEL = "`jaxrl play`: "
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # SIGINT raises anyway


class _Flags(CommandArguments):
    game = Argument("GAME", "a two-player game, against --opponent; a run as opponent needs none")
    opponent: str = flag(
        "--opponent=RUN",
        "of GAME: the folder of a run, random, greedy, mcts-N, a search with N simulations for each move, "
        "minimax if the game is solved, or baseline, Pgx's own policy (default: {default})",
        "random",
    )
    seat: int = flag("--seat=N", "of GAME: 0 begins (default), 1 does not", 0, within=(0, 1))
    seed: int = replace(SEED, help="of GAME: decides the opponent's moves")
    best_moves: bool = flag("--best-moves", "of GAME: a run plays greedily instead of sampling moves")
    trust: bool = TRUST
    levels: str = flag(
        "--levels=DIR",
        "whose levels: train (default), test, or a folder that jaxrl prepare-data has written, such as "
        "data/levels/train",
        "train",
    )
    category: str = flag(
        "--category=C", "simple (default), medium, complex, mine_heavy, exploration or all", "simple"
    )
    level: int = flag("--level=N", "the first level that is played (default: {default})", 0, within=(0, None))
    record: str = flag("--record=FILE", "appends each attempt to FILE, a line of JSON", "")
    replay: str = flag("--replay=FILE", "shows the attempts of such a FILE; with the same --levels", "")
    speed: float = flag(
        "--speed=X", "steps per second, 1 to 60 (default: {default})", 12.0, within=(1.0, 60.0)
    )


@command_line.command(__doc__, _Flags, positional=True)
def main(flags: _Flags, games: Sequence[str]) -> int:
    if len(games) > 1:
        raise ConfigError(f"one game is played, not {', '.join(games)}")
    if games and Path(games[0]).is_dir():
        raise ConfigError(f"`GAME` (={games[0]!r}) is a folder; to play a run: --opponent={games[0]}")
    if games or flags.opponent != "random":
        return _game(games[0] if games else "", flags)
    if flags.record and flags.replay:
        raise ConfigError("`--record` and `--replay` exclude each other: a recording is there already")
    rounds = _recordings(flags) if flags.replay else _levels(flags)
    record = Path(flags.record) if flags.record else None
    if record is not None:
        _append(record, "")  # before anything is played
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise RunError("`jaxrl play` needs a terminal to draw on and to read keys from")
    return _show(rounds, flags, record)


def _game(game: str, flags: _Flags) -> int:
    """Lets a person play a two-player game on standard input; "": the game of the opponent's run."""
    import jax

    from jaxrl.config.environment import full_name
    from jaxrl.evaluation.tournament.contestants import enter
    from jaxrl.evaluation.tournament.session import GameSession, converse

    named = full_name("GAME", game)[0] if game else ""
    (opponent,) = enter([flags.opponent], named, "GAME", samples=not flags.best_moves, trust=flags.trust)
    session = GameSession(opponent, flags.seat, jax.random.key(flags.seed))
    converse(session, input, command_line.say)
    return 0


def _levels(flags: _Flags) -> list[Round]:
    from jaxrl.envs.native.platformer.game.terminal import KeyMoves, Round

    found = _read_levels(flags.levels, flags.category)
    _require_level(flags.level, len(found), "levels")
    return [Round(level, f"level {n}", KeyMoves) for n, level in enumerate(found)]


def _recordings(flags: _Flags) -> list[Round]:
    """The attempts of `--replay` from number `--level`, with their levels."""
    from jaxrl.envs.native.platformer.game.record import RecordError, read_records
    from jaxrl.envs.native.platformer.game.terminal import RecordedMoves, Round

    label = f"`--replay` (={flags.replay!r})"
    try:
        records = read_records(Path(flags.replay))
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror or error}") from error
    except RecordError as error:
        raise ConfigError(f"{label} {error}") from error
    _require_level(flags.level, len(records), "attempts")
    by_digest = {level.digest: level for level in _read_levels(flags.levels, "all")}
    for number, record in enumerate(records, 1):
        if record.digest not in by_digest:
            raise ConfigError(
                f"{label} line {number} was played in a level that `--levels` (={flags.levels!r}) lacks"
            )
    return [
        Round(by_digest[record.digest], f"attempt {n}", functools.partial(RecordedMoves, record.actions))
        for n, record in enumerate(records)
    ]


def _require_level(level: int, count: int, what: str) -> None:
    if level >= count:
        raise ConfigError(f"`--level` (={level}) must be less than {count}, the number of {what}")


def _read_levels(folder: str, category: str) -> tuple[PlatformerLevel, ...]:
    from jaxrl.envs.native.platformer.level_files import read_levels

    with errors_as(ConfigError, "", ValueError):
        return read_levels(_LABEL, folder, category)


def _show(rounds: Sequence[Round], flags: _Flags, record: Path | None) -> int:
    with errors_as(RunError, "`jaxrl play` needs Python's curses", ImportError):
        import curses
    from jaxrl.envs.native.platformer.game.record import AttemptRecord
    from jaxrl.envs.native.platformer.game.terminal import show

    def keep(attempt: Attempt) -> None:
        if record is not None:
            _append(record, AttemptRecord.of(attempt).line())

    try:
        with handled_by(_end, *_SIGNALS):
            show(rounds, flags.level, not flags.replay, 1 / flags.speed, keep)
    except _Ended as ended:
        return 128 + ended.signum
    except curses.error as error:
        raise RunError(f"this terminal cannot show the game: {error}") from error
    return 0


class _Ended(BaseException):
    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


def _end(signum: int, frame: Any) -> NoReturn:
    """Instead of ending the process a signal raises: the terminal is put back and the attempt kept."""
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # A second one must not interrupt the way out.
    raise _Ended(signum)


def _append(file: Path, line: str) -> None:
    try:
        with file.open("a") as stream:
            stream.write(line)
    except OSError as error:
        raise ConfigError(
            f"`--record` (={str(file)!r}) cannot be written: {error.strerror or error}"
        ) from error
