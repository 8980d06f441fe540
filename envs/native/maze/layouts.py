"""Named mazes, which training on random levels never shows; designed for this project.

`#` is a wall, `G` the goal, and `>`, `v`, `<` or `^` the agent and where it looks.
"""

from __future__ import annotations

import numpy as np

from jaxrl.envs.native.maze.level import SIDE

_AGENT = ">v<^"  # by direction

_TEETH = ".#.#.#.#.#.#. "
_TURNS = "############. ............. .############ ............. "

LAYOUTS = {
    "four_rooms": """
        >.....#......
        ......#......
        ......#......
        .............
        ......#......
        ......#......
        ##.######.###
        ......#......
        ......#......
        ......#......
        .............
        ......#......
        ......#.....G
    """,
    "sixteen_rooms": """
        v..#..#..#...
        .............
        ...#..#..#...
        #.##.###.##.#
        .............
        ...#..#..#...
        #.##.###.##.#
        ...#..#..#...
        .............
        #.##.###.##.#
        ...#..#..#...
        .............
        ...#..#..#..G
    """,
    "comb": f".#.#.#.#G#.#. {_TEETH * 5} >............ {_TEETH * 6}",
    "comb_below": f"{_TEETH * 6} ............< {_TEETH * 5} .#G#.#.#.#.#.",
    "zigzag": f">............ {_TURNS * 2} ############. ............. .############ ............G",
    "spiral": """
        >............
        ############.
        ...........#.
        .#########.#.
        .#.......#.#.
        .#.#####.#.#.
        .#.#G..#.#.#.
        .#.###.#.#.#.
        .#.....#.#.#.
        .#######.#.#.
        .........#.#.
        ##########.#.
        .............
    """,
    "rings": """
        .............
        .###########.
        .#.........#.
        .#.#######.#.
        .#.#.....#.#.
        .#.#.###.#.#.
        ...#.#G#.#...
        .#.#.#.#.#.#.
        .#.#.....#.#.
        .#.###.###.#.
        .#.........#.
        .#####.#####.
        >............
    """,
    "labyrinth": """
        >#.....#.....
        .#.###.#.###.
        .#.#...#.#...
        .#.#.###.#.##
        ...#.....#...
        .#########.#.
        .......#...#.
        ######.#.###.
        .....#.#.#...
        .###.#.#.#.##
        .#...#...#...
        .#.#########.
        .#..........G
    """,
}


def parse(text: str) -> dict[str, np.ndarray]:
    """The level that a drawing of 13 lines shows, see `jaxrl.envs.native.maze.level`."""
    lines = text.split()
    if len(lines) != SIDE or any(len(line) != SIDE for line in lines):
        raise ValueError(f"a maze is {SIDE} lines of {SIDE} characters")
    joined = "".join(lines)
    (agent,) = (i for i, c in enumerate(joined) if c in _AGENT)
    words = [sum(1 << x for x, c in enumerate(line) if c == "#") for line in lines]
    return {
        "agent": np.int32(agent),  # type: ignore[dict-item]
        "direction": np.int32(_AGENT.index(joined[agent])),  # type: ignore[dict-item]
        "goal": np.int32(joined.index("G")),  # type: ignore[dict-item]
        "walls": np.array(words, np.int32),
    }
