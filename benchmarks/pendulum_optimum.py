"""The return of the best possible policy on Pendulum: a bound for the results of docs/results.md.

  python benchmarks/pendulum_optimum.py

Dynamic programming over the 200 steps of an episode, on a grid of angles and speeds with linear interpolation
in between; dynamics, rewards and starts as in gymnax's and Gymnasium's Pendulum-v1. Two grids show how far
the answer still depends on the resolution. Takes a minute.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import map_coordinates

STEPS, GRAVITY, DT, MAX_SPEED, MAX_TORQUE = 200, 10.0, 0.05, 8.0, 2.0


def optimal_return(angles: int, speeds: int, torques: int) -> float:
    """The mean return of the best policy over starts uniform in [-pi, pi] x [-1, 1]."""
    theta = np.linspace(-np.pi, np.pi, angles, endpoint=False)[:, None]
    speed = np.linspace(-MAX_SPEED, MAX_SPEED, speeds)[None, :]
    value = np.zeros((angles, speeds))
    for _ in range(STEPS):
        best = np.full_like(value, -np.inf)
        for torque in np.linspace(-MAX_TORQUE, MAX_TORQUE, torques):
            reward = -(theta**2 + 0.1 * speed**2 + 0.001 * torque**2)
            faster = speed + (1.5 * GRAVITY * np.sin(theta) + 3.0 * torque) * DT
            faster = np.clip(faster, -MAX_SPEED, MAX_SPEED)
            row = (theta + faster * DT + np.pi) / (2 * np.pi) * angles
            column = (faster + MAX_SPEED) / (2 * MAX_SPEED) * (speeds - 1)
            # One more row, equal to the first: the interpolation crosses from pi to -pi.
            around = np.concatenate([value, value[:1]])
            following = map_coordinates(around, [row % angles, column], order=1, mode="nearest")
            best = np.maximum(best, reward + following)
        value = best
    return float(value[:, np.abs(speed[0]) <= 1.0].mean())


def main() -> None:
    for angles, speeds, torques in ((201, 161, 11), (402, 321, 21)):
        found = optimal_return(angles, speeds, torques)
        print(f"{angles} angles x {speeds} speeds x {torques} torques: {found:.1f}", flush=True)


if __name__ == "__main__":
    main()
