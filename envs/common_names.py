"""Environments by the names that they have elsewhere: `CartPole-v1`, `procgen-coinrun-v0`, `ALE/Pong-v5`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envs import catalogue, installation
from envs.names import unknown

# Names in suites that are not installed; a suite says its own names only once it is imported.
_PATTERNS = {
    "brax": r"ant|fast|halfcheetah|hopper|humanoid(standup)?|inverted_(double_)?pendulum|pusher|reacher"
    r"|swimmer|walker2d",
    "craftax": r"Craftax-.*",
    "gymnasium": r"(Acrobot|Ant|BipedalWalker|Blackjack|CarRacing|CartPole|CliffWalking|FrozenLake"
    r"|HalfCheetah|Hopper|Humanoid|LunarLander|MountainCar|Pendulum|Pusher|Reacher|Swimmer|Taxi|Walker2d)\w*-v\d+|ALE/.*-v5",
    "jumanji": r"(BinPack|CVRP|Cleaner|Connector|FlatPack|Game2048|GraphColoring|JobShop|Knapsack"
    r"|LevelBasedForaging|MMST|Maze|Minesweeper|MultiCVRP|PacMan|RobotWarehouse|RubiksCube|SearchAndRescue|SlidingTilePuzzle|Snake"
    r"|Sokoban|Sudoku|TSP|Tetris)\S*-v\d+",
    "navix": r"Navix-.*",
    "pgx": r"2048|animal_shogi|backgammon|bridge_bidding|chess|connect_four|gardner_chess|go_\d+x\d+|hex"
    r"|kuhn_poker|leduc_holdem|minatar-.*|othello|shogi|sparrow_mahjong|tic_tac_toe",
    "playground": r"(Acrobot|BallInCup|Cartpole|Cheetah|Finger|Fish|Hopper|Humanoid|Panda|Pendulum"
    r"|PointMass|Reacher|Swimmer|Walker)[A-Z]\w*",
    "popgym_arcade": r"(AutoEncode|BattleShip|BreakOut|CartPole|CountRecall|MineSweeper|Navigator"
    r"|NoisyCartPole|Skittles|Tetris)(Easy|Medium|Hard)",
    "xminigrid": r"(MiniGrid|XLand-MiniGrid)-.*",
}


def find(name: str) -> list[str]:
    """The environments of installed suites with that name, as `suite:Name(arguments)`, the device's first.

    Args:
      name: without a suite, perhaps with arguments; small and capital letters count as the same.
    """
    short, parenthesis, arguments = name.partition("(")
    spellings = {spelling.lower() for spelling in _spellings(short.strip())}
    found = []
    for suite in catalogue.SUITES:
        if suite.is_installed:
            known = [x for x in catalogue.names(suite) if x.lower() in spellings]
            exact = [x for x in known if x == short.strip()]
            found += [f"{suite.name}:{x}{parenthesis}{arguments}" for x in exact or known]
    return found


def missing(name: str) -> list[str]:
    """The suites that are not installed and may have the environment, each with what installs it."""
    short = name.partition("(")[0].strip()
    return [
        f"{suite.name}, which is not installed: {installation.command(suite.extra)}"
        for suite in catalogue.SUITES
        if not suite.is_installed and re.fullmatch(_PATTERNS.get(suite.name, ""), short, re.IGNORECASE)
    ]


def not_found(name: str) -> ValueError:
    """The error of a name that no installed suite has; it says what may have to be installed."""
    if lacking := missing(name):
        return ValueError(f"{name!r} may be an environment of {'; or of '.join(lacking)}")
    short = name.partition("(")[0]
    known = [f"{s.name}:{x}" for s in catalogue.SUITES if s.is_installed for x in catalogue.names(s)]
    near = unknown("environment", short, {x.partition(":")[2] for x in known})
    absent = [suite.name for suite in catalogue.SUITES if not suite.is_installed]
    more = f"; suites that are not installed: {', '.join(absent)} (jaxrl environments)" if absent else ""
    return ValueError(f"{near}{more}")


def _spellings(name: str) -> Iterator[str]:
    """The name, and as envpool spells it: without a namespace, and procgen's games with their mode."""
    yield name
    last = re.split("[:/]", name)[-1]
    if procgen := re.fullmatch(r"procgen-(\w+)-v0", last, re.IGNORECASE):
        yield f"{procgen[1]}Hard-v0"  # procgen's own default
    elif last:
        yield last
