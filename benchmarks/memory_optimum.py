"""What good policies that know the rules return on three of POPGym's tasks: bounds for docs/memory.md.

  python benchmarks/memory_optimum.py

HigherLowerEasy: guesses by the cards that are left, which is optimal, since a guess changes no card; and by
the rank of the card alone, the best without memory. MultiarmedBanditEasy: Thompson sampling, and an index, a
quantile of the Beta posterior that falls to its mean as the episode ends. NoisyPositionOnlyCartPoleEasy: a
Kalman filter of the linearised dynamics and a linear-quadratic regulator. Beside the mean return stands the
MMER that a fixed policy is expected to have, the largest of the means of so many epochs of 65,536 steps.
Takes a minute.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import solve_discrete_are
from scipy.stats import beta, norm

EPOCH, STEPS = 65_536, 15_000_000
EPISODES = 40_000
RANKS, CARDS = 13, 52
ARMS, PULLS = 10, 200


def main() -> None:
    rng = np.random.default_rng(0)
    for name, returns, length in (
        ("HigherLowerEasy, counting cards", higher_lower(rng, counts=True), CARDS - 1),
        ("HigherLowerEasy, by the rank alone", higher_lower(rng, counts=False), CARDS - 1),
        ("MultiarmedBanditEasy, Thompson sampling", bandit(rng, index=False), PULLS),
        ("MultiarmedBanditEasy, index", bandit(rng, index=True), PULLS),
        ("MultiarmedBanditEasy, the best arm from the start", best_arm(rng), PULLS),
        ("NoisyPositionOnlyCartPoleEasy, filter and regulator", cart_pole(rng, sigma=0.1), 200),
    ):
        error = returns.std() / math.sqrt(len(returns))
        print(f"{name}: {returns.mean():.3f} ± {error:.3f}, MMER {mmer(returns, length):.3f}", flush=True)


def mmer(returns: np.ndarray, length: int) -> float:
    """The expected largest of the mean returns of the paper's epochs, if the policy is the same in all."""
    epochs = STEPS // EPOCH
    largest = norm.ppf((epochs - 0.375) / (epochs + 0.25))  # Blom 1958
    return float(returns.mean() + largest * returns.std() / math.sqrt(EPOCH / length))


def higher_lower(rng: np.random.Generator, counts: bool) -> np.ndarray:
    """Returns of `EPISODES` decks."""
    decks = rng.permuted(np.tile(np.arange(CARDS) % RANKS, (EPISODES, 1)), axis=1)
    left = np.full((EPISODES, RANKS), CARDS // RANKS)
    rows, returns = np.arange(EPISODES), np.zeros(EPISODES)
    for now, following in zip(decks.T, decks.T[1:], strict=False):
        left[rows, now] -= 1
        higher = np.arange(RANKS) > now[:, None]
        lower = np.arange(RANKS) < now[:, None]
        known = left if counts else np.ones_like(left)
        guess = np.where((known * higher).sum(1) >= (known * lower).sum(1), 1, -1)
        returns += guess * np.sign(following - now) / CARDS
    return returns


def bandit(rng: np.random.Generator, index: bool) -> np.ndarray:
    """Returns of `EPISODES` episodes from uniform priors."""
    chances = rng.random((EPISODES, ARMS))
    won, lost = np.ones((EPISODES, ARMS)), np.ones((EPISODES, ARMS))
    rows, returns = np.arange(EPISODES), np.zeros(EPISODES)
    for step in range(PULLS):
        if index:
            # As much optimism as pulls are left to use what is learnt.
            quantile = 0.5 + 0.5 * (1 - 1 / max(1.0, 0.06 * (PULLS - step)))
            score = posterior_quantile(won, lost, quantile)
        else:
            score = rng.beta(won, lost)
        arm = score.argmax(1)
        paid = rng.random(EPISODES) < chances[rows, arm]
        won[rows, arm] += paid
        lost[rows, arm] += ~paid
        returns += np.where(paid, 1, -1) / PULLS
    return returns


def posterior_quantile(won: np.ndarray, lost: np.ndarray, quantile: float) -> np.ndarray:
    """Quantiles of Beta distributions, from a table of the whole counts."""
    most = PULLS + 2
    counts = np.arange(1, most)
    table = beta.ppf(quantile, counts[:, None], counts[None, :])
    return table[won.astype(int) - 1, lost.astype(int) - 1]


def best_arm(rng: np.random.Generator) -> np.ndarray:
    """Returns if the best arm were known."""
    best = rng.random((EPISODES, ARMS)).max(1)
    return 2 * rng.binomial(PULLS, best) / PULLS - 1


def cart_pole(rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Returns of a linear-quadratic-Gaussian controller whose force has two values."""
    transition, push = linearised()
    cost = np.diag([0.1, 0.1, 1.0, 0.1])
    found = solve_discrete_are(transition, push, cost, np.eye(1) * 1e-3)
    gain = np.linalg.solve(push.T @ found @ push + 1e-3, push.T @ found @ transition)
    seen = np.zeros((2, 4))
    seen[0, 0] = seen[1, 2] = 1
    body = rng.uniform(-0.05, 0.05, (EPISODES, 4))
    mean, spread = np.zeros((EPISODES, 4)), np.eye(4) * 0.1**2 / 12
    alive, returns = np.ones(EPISODES, bool), np.zeros(EPISODES)
    for _ in range(200):
        observed = body[:, [0, 2]] + sigma * rng.normal(size=(EPISODES, 2))
        kalman = spread @ seen.T @ np.linalg.inv(seen @ spread @ seen.T + sigma**2 * np.eye(2))
        mean += (observed - mean @ seen.T) @ kalman.T
        spread = (np.eye(4) - kalman @ seen) @ spread
        force = np.where(mean @ gain.T > 0, -10.0, 10.0)
        mean = step(mean, force[:, 0])
        spread = transition @ spread @ transition.T + 1e-7 * np.eye(4)
        body = step(body, force[:, 0])
        returns += alive / 200
        alive &= (np.abs(body[:, 0]) <= 2.4) & (np.abs(body[:, 2]) <= 12 * math.pi / 180)
    return returns


def linearised() -> tuple[np.ndarray, np.ndarray]:
    """(A, B) of `step` around the upright pole."""
    eye, small = np.eye(4), 1e-5
    transition = (step(small * eye, np.zeros(4)) / small).T
    return transition, step(np.zeros((1, 4)), np.ones(1) * small).T / small


def step(body: np.ndarray, force: np.ndarray) -> np.ndarray:
    """Gymnasium's CartPole by Euler's method: [N, 4], place, speed, angle and its speed."""
    _, speed, angle, turn = body.T
    sine, cosine = np.sin(angle), np.cos(angle)
    pushed = (force + 0.05 * turn**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    speeding = pushed - 0.05 * turning * cosine / 1.1
    return body + 0.02 * np.stack([speed, speeding, turn, turning], axis=1)


if __name__ == "__main__":
    main()
