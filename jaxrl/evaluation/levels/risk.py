"""Risk (CVaR): results in the levels that a policy does worst in, as Rutherford et al. 2024 measure it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

PERCENTAGES = (1, 2, 5, 10, 20, 50, 100)


def worst_mean(chosen_by: np.ndarray, rates: np.ndarray, percent: float) -> float:
    """The mean of `rates` over the `percent` of the levels, at least one, that `chosen_by` has lowest.

    Both are float64[N], from rollouts of different seeds: rates of levels that are chosen by the same
    rollouts would be too low. Equal ones are chosen in the order of the levels, which are random themselves.
    """
    if chosen_by.shape != rates.shape:
        raise ValueError(f"rates of {chosen_by.shape} and {rates.shape} levels cannot be compared")
    count = max(1, math.ceil(len(rates) * percent / 100))
    return float(rates[np.argsort(chosen_by, kind="stable")[:count]].mean())


def curve(
    chosen_by: np.ndarray, rates: np.ndarray, percentages: Sequence[float] = PERCENTAGES
) -> dict[str, float]:
    """`worst_mean` by percentage, such as "10"."""
    return {f"{percent:g}": worst_mean(chosen_by, rates, percent) for percent in percentages}
