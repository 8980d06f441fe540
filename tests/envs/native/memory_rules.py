"""The rules of `jaxrl:memory/` in plain Python, written from POPGym's and not from the environments.

Each class is one episode with given draws: `observe()` at its start, `step(action)`, which returns
(observation, reward, terminated, truncated), and `answer()`, a good action for one who knows the draws.
"""

from __future__ import annotations

import math

import numpy as np


class RepeatFirst:
    def __init__(self, cards):
        self.cards, self.t = cards, 0

    def observe(self):
        return self.cards[self.t]

    def answer(self):
        return self.cards[0]

    def step(self, action):
        reward = 1 / (len(self.cards) - 1) * (1 if action == self.cards[0] else -1)
        self.t += 1
        return self.observe(), reward, self.t == len(self.cards) - 1, False


class RepeatPrevious:
    def __init__(self, cards, k=4):
        self.cards, self.k, self.t = cards, k, 0

    def observe(self):
        return self.cards[self.t]

    def answer(self):
        return self.cards[max(self.t - self.k + 1, 0)]

    def step(self, action):
        reward = 0.0
        if self.t >= self.k - 1:
            reward = 1 / (len(self.cards) - self.k) * (1 if action == self.answer() else -1)
        self.t += 1
        return self.observe(), reward, self.t == len(self.cards) - 1, False


class Autoencode:
    def __init__(self, cards):
        self.cards, self.hand = list(cards), [cards[0]]
        self.watching = True

    def observe(self):
        return (int(self.watching), self.hand[-1])

    def answer(self):
        return self.hand[-1]

    def step(self, action):
        if self.watching:
            self.hand.append(self.cards[len(self.hand)])
            self.watching = len(self.hand) < len(self.cards)
            return self.observe(), 0.0, False, False
        reward = (1 if action == self.hand.pop() else -1) / len(self.cards)
        return (0, 0), reward, not self.hand, False


class CountRecall:
    def __init__(self, values, queries):
        self.values, self.queries, self.t = values, queries, 0

    def observe(self):
        return (self.values[self.t], self.queries[self.t])

    def answer(self):
        return list(self.values[: self.t + 1]).count(self.queries[self.t])

    def step(self, action):
        reward = (1 if action == self.answer() else -1) / (len(self.values) - 1)
        self.t += 1
        return self.observe(), reward, self.t == len(self.values) - 1, False


class HigherLower:
    def __init__(self, cards):
        self.cards, self.t = cards, 0

    def observe(self):
        return self.cards[self.t]

    def answer(self):
        return int(self.cards[self.t + 1] < self.cards[self.t])

    def step(self, action):
        here, there = self.cards[self.t], self.cards[self.t + 1]
        reward = 0.0
        if here != there:
            reward = (1 if (there > here) == (action == 0) else -1) / len(self.cards)
        self.t += 1
        return self.observe(), reward, self.t == len(self.cards) - 1, False


class Concentration:
    def __init__(self, cards, kinds):
        self.cards, self.kinds, self.t = cards, kinds, 0
        self.up, self.hand = [], []
        n = len(cards)
        self.limit = math.ceil(2 * n - n / (2 * n - 1))

    def observe(self):
        return [c if i in self.up + self.hand else self.kinds for i, c in enumerate(self.cards)]

    def answer(self):
        down = [i for i in range(len(self.cards)) if i not in self.up + self.hand]
        if not self.hand:
            return down[0]
        return next(i for i in down if self.cards[i] == self.cards[self.hand[0]])

    def step(self, action):
        self.t += 1
        self.hand.append(int(action))
        seen, reward = self.observe(), 0.0
        if any(i in self.up for i in self.hand):
            reward, self.hand = -len(self.hand) / self.limit, []
        elif len(self.hand) == 2:
            a, b = self.hand
            if a != b and self.cards[a] == self.cards[b]:
                reward = 1 / (len(self.cards) // 2)
                self.up += self.hand
            else:
                reward = -2 / self.limit
            self.hand = []
        return seen, reward, len(self.up) == len(self.cards), self.t >= self.limit


class MineSweeper:
    def __init__(self, mines):
        self.mines, self.opened, self.t = mines, set(), 0
        self.free = int((~mines).sum())

    def observe(self):
        return 0

    def answer(self):
        closed = [tuple(x) for x in np.argwhere(~self.mines) if tuple(x) not in self.opened]
        return closed[0]

    def step(self, action):
        square = tuple(int(x) for x in action)
        self.t += 1
        terminated = bool(self.mines[square])
        if terminated:
            reward = -0.5 - 1 / self.free
        elif square in self.opened:
            reward = -0.5 / (self.free - 2)
        else:
            reward = 1 / self.free
            self.opened.add(square)
        terminated |= len(self.opened) == self.free
        around = self.mines[max(square[0] - 1, 0) : square[0] + 2, max(square[1] - 1, 0) : square[1] + 2]
        return int(around.sum()), reward, terminated, self.t == self.free and not terminated


class Battleship:
    def __init__(self, ships):
        self.ships, self.shots, self.t = ships, set(), 0
        self.left = self.squares = int(ships.sum())

    def observe(self):
        return 0

    def answer(self):
        return next(tuple(x) for x in np.argwhere(self.ships) if tuple(x) not in self.shots)

    def step(self, action):
        square = tuple(int(x) for x in action)
        self.t += 1
        hit = bool(self.ships[square]) and square not in self.shots
        self.shots.add(square)
        self.left -= hit
        reward = 1 / self.squares if hit else -1 / (self.ships.size - self.squares)
        return int(hit), reward, self.left == 0, self.t >= self.ships.size


class MultiarmedBandit:
    def __init__(self, paid):
        self.paid, self.t = paid, 0

    def observe(self):
        return 0

    def answer(self):
        return 0

    def step(self, action):
        paid = int(self.paid[self.t])
        self.t += 1
        return paid, (2 * paid - 1) / len(self.paid), False, self.t == len(self.paid)


class Labyrinth:
    """Of a maze with its start and, for an escape, its goal."""

    MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))

    def __init__(self, maze, explore, length=1024):
        self.maze, self.explore, self.length, self.t = maze, explore, length, 0
        self.place = tuple(int(x) for x in np.argwhere(maze == 2)[0])
        self.seen, self.back = {self.place}, []

    def observe(self, action=4):
        y, x = self.place
        view = np.ones((3, 3), int)
        part = self.maze[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        view[: part.shape[0], : part.shape[1]] = part
        return [*view.ravel(), action]

    def answer(self):
        """The next move of a depth-first walk."""
        for action in range(4):
            there = self._there(action)
            if there not in self.seen and there != self.place:
                self.back.append((1, 0, 3, 2)[action])
                return action
        return self.back.pop()

    def _there(self, action):
        last = len(self.maze) - 1
        there = tuple(min(max(p + m, 0), last) for p, m in zip(self.place, self.MOVES[action], strict=True))
        return self.place if self.maze[there] == 1 else there

    def step(self, action):
        self.t += 1
        self.place = self._there(int(action))
        new = self.place not in self.seen
        self.seen.add(self.place)
        truncated, obs = self.t == self.length - 1, self.observe(int(action))
        if self.explore:
            reward = 1 / int((self.maze == 0).sum()) if new else -1 / self.length
            return obs, reward, len(self.seen) == int((self.maze != 1).sum()), truncated
        found = self.maze[self.place] == 3
        return obs, -1 / self.length + (1.0 if found else 0.0), bool(found), truncated


class CartPole:
    def __init__(self, body, length, velocities=False):
        self.body, self.length, self.velocities, self.t = [float(x) for x in body], length, velocities, 0

    def observe(self):
        return [self.body[0], self.body[2]]

    def answer(self):
        return int(self.body[2] + 0.5 * self.body[3] > 0)

    def step(self, action):
        x, dx, angle, turn = self.body
        force = 10.0 if action == 1 else -10.0
        pushed = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        turning = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        speeding = pushed - 0.05 * turning * math.cos(angle) / 1.1
        self.body = [x + 0.02 * dx, dx + 0.02 * speeding, angle + 0.02 * turn, turn + 0.02 * turning]
        self.t += 1
        fallen = abs(self.body[0]) > 2.4 or abs(self.body[2]) > math.radians(12)
        seen = [self.body[1], self.body[3]] if self.velocities else self.observe()
        return seen, 1 / self.length, fallen, self.t >= self.length


class Pendulum:
    def __init__(self, angle, speed, length=200):
        self.angle, self.speed, self.length, self.t = float(angle), float(speed), length, 0

    def observe(self):
        return [math.cos(self.angle), math.sin(self.angle)]

    def answer(self):
        return [2.0 if self.speed > 0 else -2.0]

    def step(self, action):
        torque = min(max(float(action[0]), -2.0), 2.0)
        off = math.atan2(math.sin(self.angle), math.cos(self.angle))
        worst = 16.2736044
        reward = -(off**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed += (15.0 * math.sin(self.angle) + 3.0 * torque) * 0.05
        self.speed = min(max(self.speed, -8.0), 8.0)
        self.angle += self.speed * 0.05
        self.t += 1
        reward = (reward + worst / 2) / (worst / 2) / self.length
        return self.observe(), reward, False, self.t >= self.length


class TMaze:
    def __init__(self, north, length, limit):
        self.north, self.length, self.limit, self.place, self.t = bool(north), length, limit, 0, 0

    def observe(self):
        if self.place == 0:
            return [0, 1, 1] if self.north else [1, 1, 0]
        return [0, 1, 0] if self.place == self.length else [1, 0, 1]

    def answer(self):
        if self.place < self.length:
            return 1
        return 0 if self.north else 2

    def step(self, action):
        self.t += 1
        late = self.t >= self.limit
        if self.place == self.length and action in (0, 2):
            return self.observe(), 4.0 if (action == 0) == self.north else -0.1, True, late
        there = min(max(self.place + {1: 1, 3: -1}.get(int(action), 0), 0), self.length)
        reward = -0.1 if there == self.place else 0.0
        self.place = there
        return self.observe(), reward, False, late
