"""TMaze, LabyrinthEscape and LabyrinthExplore: mazes that an agent sees a part of."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from jaxrl.envs.base import Box, Discrete, EnvSpec, InfoMetric, JaxEnv, MultiDiscrete, TimeStep
from jaxrl.envs.names import changed_call, check_positive, check_whole
from jaxrl.envs.native.random_words import choose, random_words

_LONGEST = 2**24
_NORTH, _EAST, _SOUTH, _WEST = range(4)
_NO_ACTION = 4
FREE, WALL, START, GOAL = range(4)
_CELLS = 5  # what a square can be; the last, hidden, is never seen
_LARGEST_MAZE = 64
_RESET_RATIO = 64


@flax.struct.dataclass
class TMazeState:
    """bool[], whether the goal is in the north; int32[], squares from the start; int32[], steps so far."""

    north: jax.Array
    place: jax.Array
    time: jax.Array


class TMaze(JaxEnv):
    """The T-maze of Bakker (2001, "Reinforcement Learning with Long Short-Term Memory").

    Observation float32[3]: (0, 1, 1) at the start if the goal is in the north and (1, 1, 0) if it is in the
    south, (1, 0, 1) in the corridor, (0, 1, 0) at the junction. Action Discrete(4): north, east, south, west.
    The junction is `length` squares east of the start. To turn there terminates the episode, with a reward of
    4 towards the goal and -0.1 away from it. Standing still before a wall has -0.1 as well. The best
    return is 4; without memory half of the turns are right, 1.95. `env/success_rate` is of turns that were.

    Args:
      length: of the corridor.
      max_steps: an episode is truncated after so many; None is 2 * length + 10.
    """

    def __init__(self, length: int = 10, max_steps: int | None = None):
        label = "jaxrl:memory/TMaze"
        self._length = check_positive(f"{label}: length", length, _LONGEST)
        limit = 2 * length + 10 if max_steps is None else max_steps
        self._limit = check_positive(f"{label}: max_steps", limit)
        self.spec = EnvSpec(
            name=changed_call(label, TMaze, locals()),
            observation_space=Box.of(0.0, 1.0, (3,)),
            action_space=Discrete(4),
            max_episode_steps=limit,
            reports=(InfoMetric("success", "max"),),
            has_solver=True,
        )

    def reset(self, key: jax.Array) -> tuple[TMazeState, jax.Array]:
        zero = jnp.zeros((), jnp.int32)
        state = TMazeState(random_words(key, 1)[0] >> 31 == 1, zero, zero)
        return state, self._observe(state)

    def step(self, key: jax.Array, state: TMazeState, action: jax.Array) -> tuple[Any, TimeStep]:
        move = jnp.where(action == _EAST, 1, jnp.where(action == _WEST, -1, 0))
        turns = (state.place == self._length) & (move == 0)
        right = turns & (state.north == (action == _NORTH))
        place = jnp.clip(state.place + move, 0, self._length)
        still = ~turns & (place == state.place)
        state = TMazeState(state.north, place, state.time + 1)
        return state, TimeStep(
            obs=self._observe(state),
            reward=jnp.where(right, 4.0, jnp.where(turns | still, -0.1, 0.0)).astype(jnp.float32),
            terminated=turns,
            truncated=state.time >= self._limit,
            info={"success": right},
        )

    def solve(self, state: TMazeState) -> jax.Array:
        """int32[]: east, and at the junction towards the goal."""
        turn = jnp.where(state.north, _NORTH, _SOUTH)
        return jnp.where(state.place == self._length, turn, _EAST).astype(jnp.int32)

    def _observe(self, state: TMazeState) -> jax.Array:
        sign = jnp.where(state.north, jnp.array([0.0, 1.0, 1.0]), jnp.array([1.0, 1.0, 0.0]))
        corridor = jnp.array([1.0, 0.0, 1.0])
        junction = jnp.array([0.0, 1.0, 0.0])
        within = jnp.where(state.place == self._length, junction, corridor)
        return jnp.where(state.place == 0, sign, within)


def words_of_maze(side: int) -> int:
    return 2 * side**2 - 1


def hunt_and_kill(words: jax.Array, side: int) -> jax.Array:
    """int8[2 * side + 1] squared, FREE or WALL: a maze of side by side cells, each pair joined by one path.

    From a random cell the walk goes to random neighbours that were not visited, until there is none. Then it
    continues from a random visited cell that has one (the random order of mazelib's HuntAndKill, which
    stops after a number of trials, so that very few of its mazes lack cells). Of uint32[words_of_maze(side)].
    """
    cells = jnp.arange(side * side)
    row = cells // side
    column = cells % side
    # Right, down, left, up; whether there is a cell, and how far it is.
    inside = jnp.stack([column < side - 1, row < side - 1, column > 0, row > 0])
    moves = jnp.array([1, side, -1, -side])

    def visit(i: jax.Array, walk: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        visited, right, down, here = walk
        unvisited = jnp.stack([jnp.roll(~visited, -move) for move in (1, side, -1, -side)]) & inside
        goes_on = unvisited.any(axis=0)
        hunted = choose(words[2 * i - 1], visited & goes_on)
        here = jnp.where(goes_on[here], here, hunted)
        way = choose(words[2 * i], unvisited[:, here])
        there = here + moves[way]
        # A passage belongs to its left or upper cell.
        owner = cells == jnp.minimum(here, there)
        across = way % 2 == 0
        return visited | (cells == there), right | (owner & across), down | (owner & ~across), there

    start = choose(words[0], jnp.ones(side * side, bool))
    none = jnp.zeros(side * side, bool)
    _, right, down, _ = jax.lax.fori_loop(1, side * side, visit, (cells == start, none, none, start))
    blocks = jnp.stack([jnp.ones_like(right), right, down, none]).reshape(2, 2, side, side)
    free = blocks.transpose(2, 0, 3, 1).reshape(2 * side, 2 * side)
    return jnp.where(jnp.pad(free, ((1, 0), (1, 0))), FREE, WALL).astype(jnp.int8)


def entrances(words: jax.Array, side: int) -> tuple[jax.Array, jax.Array]:
    """Two places int32[2] (row, column) in opposite outer walls, before random cells; of uint32[3]."""
    cells = jnp.ones(side, bool)
    first, second = (2 * choose(word, cells) + 1 for word in words[:2])
    which = choose(words[2], jnp.ones(4, bool))
    near = jnp.where(which % 2 == 0, 0, 2 * side)
    far = jnp.where(which % 2 == 0, 2 * side, 0)
    vertical = which < 2
    start = jnp.where(vertical, jnp.stack([near, first]), jnp.stack([first, near]))
    return start, jnp.where(vertical, jnp.stack([far, second]), jnp.stack([second, far]))


@flax.struct.dataclass
class LabyrinthState:
    """A maze in the middle of an episode."""

    maze: jax.Array  # int8[N + 1, N + 1]: 0 free, 1 wall, 2 start, 3 goal
    position: jax.Array  # int32[2], row and column
    time: jax.Array  # int32[], steps so far


@flax.struct.dataclass
class ExploredState:
    """A maze; bool[N + 1, N + 1], the squares where the agent was; int32[], how many are left."""

    labyrinth: LabyrinthState
    explored: jax.Array
    left: jax.Array


class _Labyrinth(JaxEnv):
    """A maze, and moves in it. Actions are left, right, up, down; a wall stops the agent."""

    _has_goal: bool

    def __init__(self, maze_dims: Any = (10, 10), episode_length: int = 1024):
        label = f"jaxrl:memory/{type(self).__name__}"
        square = isinstance(maze_dims, tuple | list) and len(maze_dims) == 2 and len({*maze_dims}) == 1
        if not square or not isinstance(maze_dims[0], int) or maze_dims[0] % 2:
            rule = "must be an even number twice, as in (10, 10)"
            raise ValueError(f"{label}: maze_dims (={maze_dims!r}) {rule}")
        self._side = check_whole(f"{label}: maze_dims", maze_dims[0], 6, _LARGEST_MAZE) // 2
        # As POPGym does it, the limit is one step short.
        self._limit = check_whole(f"{label}: episode_length", episode_length, 2, 2**24) - 1
        self._cost = -1 / episode_length
        self.spec = EnvSpec(
            name=changed_call(label, type(self), locals()),
            observation_space=MultiDiscrete((_CELLS,) * 9 + (_NO_ACTION + 1,)),
            action_space=Discrete(_NO_ACTION),
            max_episode_steps=self._limit,
            reset_ratio=_RESET_RATIO,
        )

    def _begin(self, key: jax.Array) -> LabyrinthState:
        words = random_words(key, words_of_maze(self._side) + 3)
        maze = hunt_and_kill(words[3:], self._side)
        start, goal = entrances(words[:3], self._side)
        maze = jnp.where(self._at(start), jnp.int8(START), maze)
        if self._has_goal:
            maze = jnp.where(self._at(goal), jnp.int8(GOAL), maze)
        return LabyrinthState(maze, start, jnp.zeros((), jnp.int32))

    def _move(self, state: LabyrinthState, action: jax.Array) -> LabyrinthState:
        moves = jnp.array([(0, -1), (0, 1), (-1, 0), (1, 0)], jnp.int32)
        there = jnp.clip(state.position + moves[action], 0, 2 * self._side)
        position = jnp.where(state.maze[there[0], there[1]] == WALL, state.position, there)
        return LabyrinthState(state.maze, position, state.time + 1)

    def _at(self, place: jax.Array) -> jax.Array:
        """bool[N + 1, N + 1], True at one place."""
        lines = jnp.arange(2 * self._side + 1)
        return (lines == place[0])[:, None] & (lines == place[1])

    def _observe(self, state: LabyrinthState, action: jax.Array | int) -> jax.Array:
        """int32[10]: 3 by 3 squares by row, and the action that led here.

        The agent is in the middle, but at the left and the upper edge it is in the first column or row: there
        the view has two squares, and the missing ones are filled with walls at the other end.
        """
        rows, columns = (jnp.maximum(x - 1, 0) + jnp.arange(3) for x in state.position)
        last = 2 * self._side
        view = state.maze[jnp.minimum(rows, last)[:, None], jnp.minimum(columns, last)]
        seen_rows, seen_columns = (
            (lines <= x + 1) & (lines <= last)
            for lines, x in zip((rows, columns), state.position, strict=True)
        )
        view = jnp.where(seen_rows[:, None] & seen_columns, view.astype(jnp.int32), WALL)
        return jnp.concatenate([view.ravel(), jnp.asarray(action, jnp.int32)[None]])


class LabyrinthEscape(_Labyrinth):
    """Find the way out of a maze: from a place in an outer wall to one in the wall opposite.

    Observation MultiDiscrete[5 * 9, 5]: the 3 by 3 squares around the agent (0 free, 1 wall, 2 start,
    3 goal) and the action before (4 at the start); action Discrete(4): left, right, up, down. A step has a
    reward of -1 / T, the goal 1 more, and terminates the episode; it is truncated after T - 1 steps.

    Args:
      maze_dims: twice the cells a side, twice: (10, 10) has 5 by 5 cells and 11 by 11 squares.
      episode_length: T.
    """

    _has_goal = True

    def reset(self, key: jax.Array) -> tuple[LabyrinthState, jax.Array]:
        state = self._begin(key)
        return state, self._observe(state, _NO_ACTION)

    def step(self, key: jax.Array, state: LabyrinthState, action: jax.Array) -> tuple[Any, TimeStep]:
        state = self._move(state, action)
        found = state.maze[state.position[0], state.position[1]] == GOAL
        return state, TimeStep(
            obs=self._observe(state, action),
            reward=self._cost + found.astype(jnp.float32),
            terminated=found,
            truncated=state.time >= self._limit,
        )


class LabyrinthExplore(_Labyrinth):
    """Visit every square of a maze.

    Arguments, observations and actions are as in `LabyrinthEscape`, without a goal. A step to a new square
    has a reward of 1 / (free squares but the start), so that all of them have 1; any other has -1 / T. The
    episode terminates when no square is left, and is truncated after T - 1 steps.
    """

    _has_goal = False

    def reset(self, key: jax.Array) -> tuple[ExploredState, jax.Array]:
        state = self._begin(key)
        left = jnp.asarray(self._squares, jnp.int32)
        return ExploredState(state, self._at(state.position), left), self._observe(state, _NO_ACTION)

    def step(self, key: jax.Array, state: ExploredState, action: jax.Array) -> tuple[Any, TimeStep]:
        labyrinth = self._move(state.labyrinth, action)
        new = ~state.explored[labyrinth.position[0], labyrinth.position[1]]
        left = state.left - new
        return ExploredState(labyrinth, state.explored | self._at(labyrinth.position), left), TimeStep(
            obs=self._observe(labyrinth, action),
            reward=jnp.where(new, 1 / self._squares, self._cost).astype(jnp.float32),
            terminated=left == 0,
            truncated=labyrinth.time >= self._limit,
        )

    @property
    def _squares(self) -> int:
        """The free squares but the start: a maze of n cells without loops has n - 1 passages."""
        return 2 * self._side**2 - 1
