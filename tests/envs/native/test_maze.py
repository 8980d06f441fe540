"""`jaxrl:Maze`: rule by rule against plain Python, random levels, edits, distances, mazes with names."""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl import envs
from jaxrl.envs.native import maze_levels as levels
from jaxrl.envs.native.maze_levels import LAYOUTS, parse
from tests.envs.native import conformance

NAME = "jaxrl:Maze"
STEPS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up


class PlainMaze:
    """The rules again, with sets of cells."""

    def __init__(self, level, max_steps):
        walls = np.asarray(level["walls"])
        self.walls = {(x, y) for y in range(13) for x in range(13) if int(walls[y]) >> x & 1}
        self.at, self.goal = (divmod(int(level[name]), 13)[::-1] for name in ("agent", "goal"))
        self.direction, self.time, self.max_steps = int(level["direction"]), 0, max_steps

    def is_wall(self, cell):
        return cell in self.walls or not (0 <= cell[0] < 13 and 0 <= cell[1] < 13)

    def step(self, action):
        self.time += 1
        if action in (0, 1):
            self.direction = (self.direction + (1 if action else -1)) % 4
            return 0.0, False, self.time >= self.max_steps
        dx, dy = STEPS[self.direction]
        ahead = (self.at[0] + dx, self.at[1] + dy)
        if not self.is_wall(ahead):
            self.at = ahead
        success = self.at == self.goal
        reward = 1 - 0.9 * self.time / self.max_steps if success else 0.0
        return reward, success, self.time >= self.max_steps

    def see(self):
        dx, dy = STEPS[self.direction]
        right = STEPS[(self.direction + 1) % 4]
        cells = [
            (self.at[0] + ahead * dx + aside * right[0], self.at[1] + ahead * dy + aside * right[1])
            for ahead in (4, 3, 2, 1, 0)
            for aside in (-2, -1, 0, 1, 2)
        ]
        seen = [self.is_wall(cell) for cell in cells] + [cell == self.goal for cell in cells]
        return np.array(seen + [i == self.direction for i in range(4)], np.float32)

    def distance(self):
        found, queue = {self.at: 0}, deque([self.at])
        while queue:
            cell = queue.popleft()
            for dx, dy in STEPS:
                after = (cell[0] + dx, cell[1] + dy)
                if not self.is_wall(after) and after not in found:
                    found[after] = found[cell] + 1
                    queue.append(after)
        return found.get(self.goal, -1)


@pytest.fixture(scope="module")
def env():
    return envs.make(f"{NAME}(max_steps=60)")


@pytest.fixture(scope="module")
def random_levels(env):
    """In the host's memory: tests look at each by itself."""
    return jax.device_get(jax.jit(jax.vmap(env.draw_task))(jax.random.split(jax.random.key(3), 500)))


def row(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


@pytest.mark.slow
def test_every_rule_is_that_of_a_plain_game(env, random_levels):
    reset, step, rng = jax.jit(env.reset), jax.jit(env.step), np.random.default_rng(0)
    tasks = [row(random_levels, i) for i in range(12)] + list(env.named_tasks.values())
    ends = set()
    for task in tasks:
        plain = PlainMaze(task, 60)
        state, obs = reset(jax.random.key(0), jax.tree.map(jnp.asarray, task))
        np.testing.assert_array_equal(obs, plain.see())
        while True:
            # Mostly ahead, or nothing would ever be reached.
            action = int(rng.choice(3, p=(0.2, 0.2, 0.6)))
            state, timestep = step(jax.random.key(0), state, action)
            reward, terminated, truncated = plain.step(action)
            assert float(timestep.reward) == pytest.approx(reward, abs=1e-6)
            assert (bool(timestep.terminated), bool(timestep.truncated)) == (terminated, truncated)
            assert bool(timestep.info["success"]) == terminated
            np.testing.assert_array_equal(timestep.obs, plain.see())
            if terminated or truncated:
                ends.add((terminated, truncated))
                break
    assert {(True, False), (False, True)} <= ends


def test_distances_are_those_of_a_plain_search(random_levels):
    found = np.asarray(jax.jit(jax.vmap(levels.distance))(random_levels))
    assert found.tolist() == [PlainMaze(row(random_levels, i), 1).distance() for i in range(500)]
    assert 0 < (found == -1).sum() < 100


def test_random_levels_keep_the_rules(random_levels):
    plain = [PlainMaze(row(random_levels, i), 1) for i in range(500)]
    counts = np.array([len(maze.walls) for maze in plain])
    assert counts.max() <= 60
    assert counts.min() < 5 < 40 < counts.max()
    assert all(maze.at != maze.goal and not {maze.at, maze.goal} & maze.walls for maze in plain)
    assert np.unique([maze.direction for maze in plain]).tolist() == [0, 1, 2, 3]
    # Each cell is a goal about as often as every other one: 500 / 169 with a Poisson deviation.
    assert np.bincount(np.asarray(random_levels["goal"]), minlength=169).max() < 15


def test_edits_change_a_few_cells_and_never_bury_the_agent_or_the_goal(env, random_levels):
    keys = jax.random.split(jax.random.key(9), 500)
    edited = jax.device_get(jax.jit(jax.vmap(env.mutate))(keys, random_levels))
    moved, turned = 0, []
    for i in range(500):
        before, after = PlainMaze(row(random_levels, i), 1), PlainMaze(row(edited, i), 1)
        assert before.at == after.at
        assert after.at != after.goal
        assert not {after.at, after.goal} & after.walls
        moved += before.goal != after.goal
        turned.append(len(before.walls ^ after.walls))
    # Of five edits a third moves the goal and a third turns a cell.
    assert 1 - (2 / 3) ** 5 - 0.1 < moved / 500 < 1 - (2 / 3) ** 5 + 0.1
    assert max(turned) <= 5
    assert 1.3 < np.mean(turned) < 2.3


def test_a_task_whose_goal_lies_on_its_agent_is_a_random_level(env):
    reset = jax.jit(env.reset)
    one, two = (reset(jax.random.key(k), env.default_task)[0] for k in (1, 2))
    assert (one.walls != two.walls).any()
    drawn, _ = reset(jax.random.key(0), jax.jit(env.draw_task)(jax.random.key(1)))
    np.testing.assert_array_equal(one.walls, drawn.walls)


@pytest.mark.slow
def test_mazes_with_names_can_be_solved_and_played(env):
    assert len(LAYOUTS) == 8
    for name, task in env.named_tasks.items():
        assert PlainMaze(task, 1).distance() > 10
        named = envs.make(f"{NAME}(level={name!r})")
        state, _ = named.reset(jax.random.key(5), named.default_task)
        assert (int(state.goal_y) * 13 + int(state.goal_x)) == int(parse(LAYOUTS[name])["goal"])


@pytest.mark.slow
def test_conforms_and_renders(env):
    conformance.check(f"{NAME}(max_steps=30)", 90)
    picture = env.render(env.reset(jax.random.key(0), env.named_tasks["spiral"])[0])
    assert picture.shape == (208, 208, 3)
    assert picture[8, 8].tolist() == [40, 90, 200]  # the agent starts in the corner


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("level='castle'", "level"),
        ("max_walls=0", "max_walls"),
        ("edits=0", "edits"),
        ("max_steps=0", "max_s"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        envs.make(f"{NAME}({arguments})")
