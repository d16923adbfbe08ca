"""Intervals that say how sure a measured mean is: bootstrap over prompts, Wilson for shares.

Knows numbers only: no prompts, no rewards, no files. Leaving out what was not scored is the caller's work, so anything
that is not finite is a ValueError here. Percentile bootstrap after Efron (1979); score interval after Wilson (1927).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "bootstrap_mean", "paired_bootstrap", "wilson"]

_CHUNK = 1 << 20  # indices drawn at once: 8 MiB, whatever the number of prompts
_Z95 = 1.959963984540054  # 97.5 % quantile of the standard normal


class Interval(NamedTuple):
    """An estimate with the two ends of its 95 % interval."""

    mean: float
    lo: float
    hi: float


def bootstrap_mean(values: Sequence[float] | npt.ArrayLike, draws: int = 10_000, seed: int = 0) -> Interval:
    """Return the mean of `values` with its 95 % percentile bootstrap interval.

    Raises ValueError when there is no value, one is not finite, or `draws` is below 1.
    """
    array = _finite(values, "values")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    n = len(array)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // n)
    means = np.empty(draws)
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        means[start : start + size] = array[rng.integers(0, n, size=(size, n))].mean(axis=1)
    lo, hi = np.quantile(means, [0.025, 0.975])
    return Interval(float(array.mean()), float(lo), float(hi))


def paired_bootstrap(
    before: Sequence[float] | npt.ArrayLike,
    after: Sequence[float] | npt.ArrayLike,
    draws: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Return the mean of after minus before with its 95 % interval; prompts are resampled as pairs.

    `before[i]` and `after[i]` belong to the same prompt. Raises ValueError when the lengths differ.
    """
    first, second = _finite(before, "before"), _finite(after, "after")
    if len(first) != len(second):
        raise ValueError(f"before and after must pair up, got {len(first)} and {len(second)} values")
    return bootstrap_mean(second - first, draws=draws, seed=seed)


def wilson(successes: int, n: int) -> Interval:
    """Return the share `successes / n` with its 95 % score interval.

    p = s/n, centre = (p + z²/2n) / (1 + z²/n), half width = z/(1 + z²/n) · sqrt(p(1-p)/n + z²/4n²).
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"a share needs 0 <= successes <= n and n >= 1, got {successes} of {n}")
    share = successes / n
    scale = 1 + _Z95**2 / n
    centre = (share + _Z95**2 / (2 * n)) / scale
    half = _Z95 * math.sqrt(share * (1 - share) / n + _Z95**2 / (4 * n * n)) / scale
    # at the ends the formula gives exactly 0 or 1; floating point may miss it by a hair
    return Interval(share, 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half)


def _finite(values: Sequence[float] | npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty list of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a number that is not finite at position {int(np.argmin(np.isfinite(array)))}")
    return array
