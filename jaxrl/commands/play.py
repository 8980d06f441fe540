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

import contextlib
import functools
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxrl.commands import command_line
from jaxrl.commands.arguments import DEBUG, SEED, TRUST, Argument, help_text, parse
from jaxrl.config import ConfigError
from jaxrl.config.errors import RunError

if TYPE_CHECKING:
    from jaxrl.envs.native.platformer.game.attempt import Attempt
    from jaxrl.envs.native.platformer.game.terminal import Round
    from jaxrl.envs.native.platformer.level import PlatformerLevel

_LABEL = "`jaxrl play`: "
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)  # SIGINT raises anyway
ARGUMENTS = (
    Argument("GAME", "a two-player game, against --opponent; a run as opponent needs none"),
    Argument(
        "--opponent=RUN",
        "of GAME: the folder of a run, random, greedy, mcts-N, a search with N "
        "simulations for each move, minimax if the game is solved, or baseline, Pgx's "
        "own policy (default: {default})",
        str,
        "random",
    ),
    Argument("--seat=N", "of GAME: 0 begins (default), 1 does not", int, 0, low=0, high=1),
    replace(SEED, help="of GAME: decides the opponent's moves"),
    Argument("--best-moves", "of GAME: a run plays greedily instead of sampling moves", bool),
    TRUST,
    Argument(
        "--levels=DIR",
        "whose levels: train (default), test, or a folder that jaxrl prepare-data has written, such as "
        "data/levels/train",
        str,
        "train",
    ),
    Argument(
        "--category=C", "simple (default), medium, complex, mine_heavy, exploration or all", str, "simple"
    ),
    Argument("--level=N", "the first level that is played (default: {default})", int, 0, low=0),
    Argument("--record=FILE", "appends each attempt to FILE, a line of JSON", str, ""),
    Argument("--replay=FILE", "shows the attempts of such a FILE; with the same --levels", str, ""),
    Argument("--speed=X", "steps per second, 1 to 60 (default: {default})", float, 12.0, low=1.0, high=60.0),
    DEBUG,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Lets a person play; returns the exit code (0 left, 1 it failed, 2 bad input)."""
    return command_line.run_job(help_text(__doc__, ARGUMENTS), _job, argv)


def _job(argv: Sequence[str]) -> int:
    chosen, games = parse(ARGUMENTS, argv, positional=True)
    if len(games) > 1:
        raise ConfigError(f"one game is played, not {', '.join(games)}")
    if games or chosen["opponent"] != "random":
        return _game(games[0] if games else "", chosen)
    if chosen["record"] and chosen["replay"]:
        raise ConfigError("`--record` and `--replay` exclude each other: a recording is there already")
    rounds = _recordings(chosen) if chosen["replay"] else _levels(chosen)
    record = Path(chosen["record"]) if chosen["record"] else None
    if record is not None:
        _append(record, "")  # before anything is played
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise RunError("`jaxrl play` needs a terminal to draw on and to read keys from")
    return _show(rounds, chosen, record)


def _game(game: str, chosen: dict[str, Any]) -> int:
    """Lets a person play a game of two on standard input; "" is the game of the run that is the opponent."""
    import jax

    from jaxrl.config.common_names import full_name
    from jaxrl.evaluation.tournament.contestants import EntryTerms, enter
    from jaxrl.evaluation.tournament.session import GameSession, converse

    terms = EntryTerms(
        full_name("GAME", game)[0] if game else "",
        label="GAME",
        samples=not chosen["best-moves"],
        trust=chosen["trust"],
    )
    (opponent,) = enter([chosen["opponent"]], terms)
    session = GameSession(opponent, chosen["seat"], jax.random.key(chosen["seed"]))
    converse(session, input, command_line.say)
    return 0


def _levels(chosen: dict[str, Any]) -> list[Round]:
    """The game of a person, by the values of the flags."""
    from jaxrl.envs.native.platformer.game.terminal import KeyMoves, Round

    found = _read_levels(chosen["levels"], chosen["category"])
    if chosen["level"] >= len(found):
        raise ConfigError(
            f"`--level` (={chosen['level']}) must be less than {len(found)}, the number of levels"
        )
    return [Round(level, f"level {n}", KeyMoves) for n, level in enumerate(found)]


def _recordings(chosen: dict[str, Any]) -> list[Round]:
    """The attempts of `--replay` from number `--level`, with their levels."""
    from jaxrl.envs.native.platformer.game.record import RecordError, read_records
    from jaxrl.envs.native.platformer.game.terminal import RecordedMoves, Round

    label = f"`--replay` (={chosen['replay']!r})"
    try:
        records = read_records(Path(chosen["replay"]))
    except OSError as error:
        raise ConfigError(f"{label} cannot be read: {error.strerror or error}") from error
    except RecordError as error:
        raise ConfigError(f"{label} {error}") from error
    if chosen["level"] >= len(records):
        raise ConfigError(
            f"`--level` (={chosen['level']}) must be less than {len(records)}, the number of attempts"
        )
    by_digest = {level.digest: level for level in _read_levels(chosen["levels"], "all")}
    for number, record in enumerate(records, 1):
        if record.digest not in by_digest:
            raise ConfigError(
                f"{label} line {number} was played in a level that `--levels` (={chosen['levels']!r}) lacks"
            )
    return [
        Round(by_digest[record.digest], f"attempt {n}", functools.partial(RecordedMoves, record.actions))
        for n, record in enumerate(records)
    ]


def _read_levels(folder: str, category: str) -> tuple[PlatformerLevel, ...]:
    from jaxrl.envs.native.platformer.level_files import read_levels

    try:
        return read_levels(_LABEL, folder, category)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _show(rounds: Sequence[Round], chosen: dict[str, Any], record: Path | None) -> int:
    """Lets a person play; returns the exit code."""
    try:
        import curses
    except ImportError as error:
        raise RunError(f"`jaxrl play` needs Python's curses: {error}") from error
    from jaxrl.envs.native.platformer.game.record import AttemptRecord
    from jaxrl.envs.native.platformer.game.terminal import show

    def keep(attempt: Attempt) -> None:
        if record is not None:
            _append(record, AttemptRecord.of(attempt).line())

    endless = not chosen["replay"]
    try:
        with _ending_signals():
            show(rounds, chosen["level"], endless, 1 / chosen["speed"], keep)
    except _Ended as ended:
        return 128 + ended.signum
    except curses.error as error:
        raise RunError(f"this terminal cannot show the game: {error}") from error
    return 0


class _Ended(BaseException):
    """A signal asks to end."""

    def __init__(self, signum: int):
        super().__init__(signum)
        self.signum = signum


@contextlib.contextmanager
def _ending_signals() -> Iterator[None]:
    """Signals that end a process raise instead, so that the terminal is put back and the attempt kept."""

    def end(signum: int, frame: Any) -> None:
        for other in _SIGNALS:
            signal.signal(other, signal.SIG_IGN)  # A second one must not interrupt the way out.
        raise _Ended(signum)

    before = {signum: signal.signal(signum, end) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _append(file: Path, line: str) -> None:
    try:
        with file.open("a") as stream:
            stream.write(line)
    except OSError as error:
        raise ConfigError(
            f"`--record` (={str(file)!r}) cannot be written: {error.strerror or error}"
        ) from error
