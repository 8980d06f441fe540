"""Prioritised level replay in plain numpy and Python: loops over levels, environments and steps."""

from __future__ import annotations

import dataclasses

import numpy as np


def rank_chances(scores, temperature):
    """The chance of each score; ties share what their ranks have together."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    weight = [0.0] * len(scores)
    for rank, i in enumerate(order, 1):
        weight[i] = rank ** (-1 / temperature)
    shared = [np.mean([weight[j] for j in range(len(scores)) if scores[j] == x]) for x in scores]
    return [x / sum(shared) for x in shared]


def proportional_chances(scores, temperature):
    weight = [max(x, 0.0) ** (1 / temperature) for x in scores]
    return [x / sum(weight) if sum(weight) else 1 / len(scores) for x in weight]


def chances(scores, ages, temperature, staleness, prioritization="rank"):
    """P = (1 - staleness) P_S + staleness P_C of filled levels."""
    of_scores = {"rank": rank_chances, "proportional": proportional_chances}[prioritization]
    by_score = of_scores(scores, temperature)
    total = sum(ages)
    by_age = [x / total if total else 1 / len(ages) for x in ages]
    return [(1 - staleness) * p + staleness * q for p, q in zip(by_score, by_age, strict=True)]


@dataclasses.dataclass
class PlainLevel:
    level: int
    score: float
    best: float
    played: int
    born: int


class PlainReplay:
    """A buffer of C places; `rollout` takes the rows of one rollout, [T, N] arrays by name."""

    def __init__(self, capacity, num_envs, kind, temperature, staleness, pool=False):
        self.places: list[PlainLevel | None] = [None] * capacity
        self.kind, self.temperature, self.staleness, self.pool = kind, temperature, staleness, pool
        self.running = [[] for _ in range(num_envs)]
        self.iteration = self.next_born = 0

    def chances(self):
        """By place; 0 where there is no level."""
        filled = [i for i, x in enumerate(self.places) if x is not None]
        found = [0.0] * len(self.places)
        if filled:
            scores = [self.places[i].score for i in filled]
            ages = [self.iteration - self.places[i].played for i in filled]
            for i, p in zip(filled, chances(scores, ages, self.temperature, self.staleness), strict=True):
                found[i] = p
        return found

    def score(self, numbers, best):
        if self.kind == "positive_value_loss":
            return np.mean([max(x, 0.0) for x in numbers])
        if self.kind == "l1_value_loss":
            return np.mean([abs(x) for x in numbers])
        return best - np.mean(numbers)

    def rollout(self, rows, most_new):
        length, num_envs = rows["done"].shape
        scored, bests, seen, new = {}, {}, set(), []
        for n in range(num_envs):
            for t in range(length):
                slot, born = int(rows["slot"][t, n]), int(rows["born"][t, n])
                place = self.places[slot] if slot >= 0 else None
                owns = slot >= 0 and (self.pool or (place is not None and place.born == born))
                if owns:
                    seen.add(slot)
                self.running[n].append(float(rows["signal"][t, n]))
                if not rows["done"][t, n]:
                    continue
                numbers, self.running[n] = self.running[n], []
                if not rows["ended"][t, n]:
                    continue
                result = float(rows["return"][t, n])
                best = max(result, place.best) if place is not None else result
                score = self.score(numbers, best)
                if owns:
                    scored.setdefault(slot, []).append(score)
                    bests[slot] = max(bests.get(slot, -np.inf), result)
                if slot < 0:
                    new.append((score, int(rows["level"][t, n]), result))
        for slot in scored:
            if self.places[slot] is None:
                self.places[slot] = PlainLevel(slot, 0.0, -np.inf, 0, self.iteration)
            self.places[slot].score = float(np.mean(scored[slot]))
            self.places[slot].best = max(self.places[slot].best, bests[slot])
        for slot in seen:
            if self.places[slot] is not None:
                self.places[slot].played = self.iteration
        if not self.pool:
            self.insert(new, min(most_new, length * num_envs))
        self.iteration += 1

    def insert(self, new, most):
        there = {x.level for x in self.places if x is not None}
        fresh = []
        for score, level, result in sorted(new, key=lambda x: -x[0])[:most]:
            if level not in there:
                there.add(level)
                fresh.append((score, level, result))
        chances = self.chances()
        order = sorted(range(len(self.places)), key=lambda i: -1.0 if self.places[i] is None else chances[i])
        for i, (score, level, result) in enumerate(fresh[: len(order)]):
            place = self.places[order[i]]
            if place is None or score > place.score:
                self.places[order[i]] = PlainLevel(
                    level, float(score), result, self.iteration, self.next_born + i
                )
        self.next_born += min(len(new), most)
