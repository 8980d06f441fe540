"""How far apart the same sums may be in float32, where one program or processor adds in another order."""

from __future__ import annotations

UNIT = 2.0**-24  # what one operation may be wrong by, relative to its result


def of_sums(*terms: int, size: float = 1.0) -> float:
    """The most by which two results differ of a chain of sums, each of so many terms that are up to `size`.

    A sum of n terms rounds n - 1 times and each of its products once, on either side.
    """
    return 2 * sum(terms) * UNIT * size
