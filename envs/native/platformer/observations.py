"""Observations of a level, by modality; of levels as graphs too. Rows of tiles are bits of a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.envs.base import Box, Space
from jaxrl.envs.graphs import GraphSpace, LevelGraphs
from jaxrl.envs.native.platformer import level as tiles
from jaxrl.envs.native.platformer.level import COLUMNS, ROWS, LevelTables, PlatformerLevel
from jaxrl.envs.native.platformer.physics import MAX_FALL, MAX_RUN, SIZE, TILE

_HEIGHT, _WIDTH = ROWS - 2, COLUMNS - 2  # the border is solid
MAX_NODES = _HEIGHT * _WIDTH
MAX_EDGES = 2 * (_HEIGHT * (_WIDTH - 1) + (_HEIGHT - 1) * _WIDTH)  # both directions of each pair
NODE_KINDS = ("empty", "mine", "switch", "exit")
EDGE_KINDS = ("side", "up", "down")
# (rows, columns, kind of the edge to there): below, above, left, right.
_BESIDE = ((1, 0, "down"), (-1, 0, "up"), (0, -1, "side"), (0, 1, "side"))
MODALITIES = ("state", "local", "global", "graph", "way")
PIXELS = 44  # of the local picture, a side
_UNITS_PER_PIXEL = 2
_SEEN_ROWS, _SEEN_COLUMNS = (-4, 5), (-5, 6)  # of the state vector and the way, around the player's tile
_NUM_SEEN = len(range(*_SEEN_ROWS)) * len(range(*_SEEN_COLUMNS))
_FAR = 5  # tiles by which a way is shorter or longer, beyond which the observation tells no difference
_NUM_BODY = 16
_GREY_SOLID, _GREY_MINE, _GREY_SWITCH = 90, 255, 200
_GREY_EXIT, _GREY_CLOSED, _GREY_PLAYER = 160, 50, 128


@dataclass(frozen=True)
class GraphTables:
    """The graphs of N levels, computed once: at a step only the player's node is looked up."""

    graphs: LevelGraphs
    node_of: np.ndarray  # int16[N, ROWS, COLUMNS], the node of a tile; 0 if there is none

    @classmethod
    def of(cls, levels: Sequence[PlatformerLevel]) -> GraphTables:
        found = [_graph_of(level) for level in levels]
        return cls(LevelGraphs.stacked([graph for graph, _ in found]), np.stack([node for _, node in found]))

    @property
    def space(self) -> GraphSpace:
        return GraphSpace.of(self.graphs)

    def observe(self, level: jax.Array, column: jax.Array, row: jax.Array) -> dict[str, jax.Array]:
        """The player at a tile of a level, an element of `space`."""
        return {"agent": jnp.asarray(self.node_of)[level, row, column], "level": level}


def _graph_of(level: PlatformerLevel) -> tuple[LevelGraphs, np.ndarray]:
    """A stack of one graph, and the node of each tile."""
    # The player is nearly as large as a tile, so it never slips through between two corners.
    inside = level.distances_to(tiles.START) < ROWS * COLUMNS
    cells = np.argwhere(inside)
    node_of = np.zeros((ROWS, COLUMNS), np.int16)
    node_of[inside] = np.arange(len(cells))
    solid = level.tiles_of(tiles.SOLID)
    features = [2 * cells[:, ::-1] / (COLUMNS - 1, ROWS - 1) - 1]
    edges = []
    edge_kinds = []
    for rows, columns, kind in _BESIDE:
        there = (cells[:, 0] + rows, cells[:, 1] + columns)
        features.append(solid[there][:, None])
        is_node = inside[there]
        edges.append(np.stack([np.flatnonzero(is_node), node_of[there][is_node]], axis=-1))
        edge_kinds.append(np.full(is_node.sum(), EDGE_KINDS.index(kind)))
    letters = [level.tiles_of(letter)[inside] for letter in (tiles.MINE, tiles.SWITCH, tiles.EXIT)]
    nodes = np.concatenate([*features, *(x[:, None] for x in letters)], axis=1)
    pairs = np.concatenate(edges)
    kinds = np.select(letters, [NODE_KINDS.index(kind) for kind in ("mine", "switch", "exit")], 0)
    graph = LevelGraphs(
        nodes=_padded(nodes, MAX_NODES, np.float32),
        node_mask=_padded(np.ones(len(nodes)), MAX_NODES, np.bool_),
        node_kinds=_padded(kinds, MAX_NODES, np.int8),
        edges=_padded(pairs, MAX_EDGES, np.int16),
        edge_mask=_padded(np.ones(len(pairs)), MAX_EDGES, np.bool_),
        edge_kinds=_padded(np.concatenate(edge_kinds), MAX_EDGES, np.int8),
        kinds_of_nodes=NODE_KINDS,
        kinds_of_edges=EDGE_KINDS,
    )
    return graph, node_of


def _padded(x: np.ndarray, rows: int, dtype: type) -> np.ndarray:
    """[1, rows, ...], zeros after the rows of `x`."""
    return np.pad(x, ((0, rows - len(x)), *((0, 0),) * (x.ndim - 1))).astype(dtype)[None]


@flax.struct.dataclass
class PlatformerState:
    """The player in a level; int32[] each, `on` bool[]."""

    level: jax.Array  # of the environment's levels
    x: jax.Array  # the upper left corner of the player's square, in units of an eighth of a tile
    y: jax.Array
    vx: jax.Array  # units a step
    vy: jax.Array
    on: jax.Array  # the switch has been reached, which opens the exit
    time: jax.Array  # steps so far

    @property
    def tile(self) -> tuple[jax.Array, jax.Array]:
        """(column, row) of the tile under the player's middle."""
        return (self.x + SIZE // 2) // TILE, (self.y + SIZE // 2) // TILE


def spaces_of(modality: str, graphs: GraphTables | None) -> tuple[tuple[str, Space], ...]:
    """The spaces of one modality, by key; only "graph" needs `graphs`."""
    if modality == "graph":
        assert graphs is not None
        return (("graph", graphs.space), ("player", Box.of(-1.0, 1.0, (_NUM_BODY,))))
    if modality == "local":
        return ((modality, Box.of(0, 255, (PIXELS, PIXELS, 1), np.uint8)),)
    if modality == "global":
        return ((modality, Box.of(0, 1, (ROWS, COLUMNS, 5), np.uint8)),)
    size = _NUM_SEEN if modality == "way" else _NUM_BODY + 2 * _NUM_SEEN
    return ((modality, Box.of(-1.0, 1.0, (size,))),)


class Observer:
    """Draws observations of some levels; only the modality "graph" needs `graphs`."""

    def __init__(self, tables: LevelTables, graphs: GraphTables | None):
        self._tables = tables
        # Of all levels to the switch, then of all to the exit.
        self._distances = np.concatenate([tables.to_switch, tables.to_exit]).astype(np.int16).reshape(-1)
        self._num_levels = len(tables.switch)
        self._graphs = graphs

    def observe(self, modality: str, state: PlatformerState, touches: tuple[Any, ...]) -> dict[str, Any]:
        """One modality by the keys of `spaces_of`; `touches`: is there ground below, a wall left, right."""
        if modality == "graph":
            assert self._graphs is not None
            player = jnp.concatenate(self._body(state, touches))
            return {"graph": self._graphs.observe(state.level, *state.tile), "player": player}
        if modality == "state":
            return {modality: self._vector(state, touches)}
        draw = {"local": self._local, "way": self._way, "global": self._whole}[modality]
        return {modality: draw(state)}

    def _vector(self, state: PlatformerState, touches: tuple[jax.Array, ...]) -> jax.Array:
        column, row = state.tile
        rows = row + np.arange(*_SEEN_ROWS, dtype=np.int32)
        columns = jnp.clip(column + np.arange(*_SEEN_COLUMNS, dtype=np.int32), 0, COLUMNS - 1)
        tables = (self._tables.solid, self._tables.mines)
        patches = (_bits(table, state.level, rows, columns) for table in tables)
        seen = [x.astype(jnp.float32).reshape(-1) for x in patches]
        return jnp.concatenate([*self._body(state, touches), *seen])

    def _body(self, state: PlatformerState, touches: tuple[jax.Array, ...]) -> list[jax.Array]:
        """The player itself and the way it has to go, `_NUM_BODY` numbers in all."""
        middle = jnp.stack([state.x, state.y]) + SIZE // 2
        size = np.array([COLUMNS * TILE, ROWS * TILE], np.float32)
        places = (self._tables.switch, self._tables.exit)
        targets = [jnp.asarray(table)[state.level] * TILE + TILE // 2 for table in places]
        ways = [(target - middle).astype(jnp.float32) / size for target in targets]
        return [
            2 * middle.astype(jnp.float32) / size - 1,
            (middle % TILE).astype(jnp.float32) / TILE,
            jnp.stack([state.vx, state.vy]).astype(jnp.float32) / np.array([MAX_RUN, MAX_FALL], np.float32),
            jnp.stack([*touches, state.on]).astype(jnp.float32),
            *ways,
            jnp.where(state.on, ways[1], ways[0]),
        ]

    def _way(self, state: PlatformerState) -> jax.Array:
        """float32[rows * columns]: by how much the way is shorter from the tiles around the player.

        To the switch, or to the exit once it is open; over `_FAR`, from -1, which solid tiles have, to 1.
        """
        column, row = state.tile
        level = state.level + jnp.where(state.on, self._num_levels, 0)
        rows = jnp.clip(row + np.arange(*_SEEN_ROWS, dtype=np.int32), 0, ROWS - 1)
        columns = jnp.clip(column + np.arange(*_SEEN_COLUMNS, dtype=np.int32), 0, COLUMNS - 1)
        distances = jnp.asarray(self._distances)
        here = distances[(level * ROWS + row) * COLUMNS + column]
        there = distances[(level * ROWS + rows[:, None]) * COLUMNS + columns[None]].reshape(-1)
        return jnp.clip((here - there).astype(jnp.float32) / _FAR, -1.0, 1.0)

    def _whole(self, state: PlatformerState) -> jax.Array:
        rows = np.arange(ROWS, dtype=np.int32)
        columns = np.arange(COLUMNS, dtype=np.int32)

        def one(place: Any) -> jax.Array:
            return ((rows[:, None] == place[1]) & (columns[None] == place[0])).astype(jnp.int32)

        planes = [
            *(_bits(x, state.level, rows, columns) for x in (self._tables.solid, self._tables.mines)),
            one(jnp.asarray(self._tables.switch)[state.level]) * (1 - state.on.astype(jnp.int32)),
            one(jnp.asarray(self._tables.exit)[state.level]),
            one(state.tile),
        ]
        return jnp.stack(planes, axis=-1).astype(jnp.uint8)

    def _local(self, state: PlatformerState) -> jax.Array:
        """Grey, the player in the middle; two units a pixel."""
        offset = (np.arange(PIXELS, dtype=np.int32) - PIXELS // 2) * _UNITS_PER_PIXEL + SIZE // 2
        x = state.x + offset
        y = state.y + offset
        row = jnp.clip(y // TILE, 0, ROWS - 1)
        column = jnp.clip(x // TILE, 0, COLUMNS - 1)

        def at(places: np.ndarray) -> jax.Array:
            place = jnp.asarray(places)[state.level]
            return (row[:, None] == place[1]) & (column[None] == place[0])

        tables = (self._tables.solid, self._tables.mines)
        solid, mines = (_bits(table, state.level, row, column) > 0 for table in tables)
        inner = ((y % TILE >= 2) & (y % TILE < 6))[:, None] & ((x % TILE >= 2) & (x % TILE < 6))[None]
        near = np.abs(offset - SIZE // 2) <= SIZE // 2
        grey = jnp.where(solid, _GREY_SOLID, 0)
        grey = jnp.where(mines & inner, _GREY_MINE, grey)
        grey = jnp.where(at(self._tables.switch) & ~state.on, _GREY_SWITCH, grey)
        grey = jnp.where(at(self._tables.exit), jnp.where(state.on, _GREY_EXIT, _GREY_CLOSED), grey)
        return jnp.where(near[:, None] & near[None], _GREY_PLAYER, grey).astype(jnp.uint8)[..., None]


def rows_of(table: np.ndarray, level: jax.Array, rows: jax.Array) -> jax.Array:
    """int32[...], the words of some rows of a level; rows beyond it are its border."""
    return jnp.asarray(table)[level * ROWS + jnp.clip(rows, 0, ROWS - 1)]


def _bits(table: np.ndarray, level: jax.Array, rows: Any, columns: Any) -> jax.Array:
    """int32[rows, columns], 1 where the table's bit of that tile is set."""
    return (rows_of(table, level, rows)[:, None] >> columns[None]) & 1
