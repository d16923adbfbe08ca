"""Intervals against hand-computed and exactly known numbers."""

from __future__ import annotations

import numpy as np
import pytest

from dragonet.stats import bootstrap_mean, paired_bootstrap, wilson


def test_constant_values_have_an_interval_without_width() -> None:
    assert bootstrap_mean([0.25] * 40) == (0.25, 0.25, 0.25)
    assert bootstrap_mean([3.0]) == (3.0, 3.0, 3.0)


def test_the_interval_of_two_values_is_their_range() -> None:
    # means of two draws are 0, 1/2, 1 with probability 1/4, 1/2, 1/4: both tails exceed 2.5 %
    assert bootstrap_mean([0.0, 1.0]) == (0.5, 0.0, 1.0)


def test_the_interval_of_many_values_agrees_with_the_normal_one() -> None:
    values = np.repeat([0.0, 1.0], 200)  # standard error 0.5 / sqrt(400) = 0.025
    mean, lo, hi = bootstrap_mean(values, seed=3)
    assert mean == 0.5
    assert lo == pytest.approx(0.5 - 1.96 * 0.025, abs=0.003)
    assert hi == pytest.approx(0.5 + 1.96 * 0.025, abs=0.003)


def test_pairs_are_resampled_together() -> None:
    before = np.linspace(0, 1, 50)  # spread far wider than the gain, which is the same for each prompt
    mean, lo, hi = paired_bootstrap(before, before + 0.25)
    assert (mean, lo, hi) == pytest.approx((0.25, 0.25, 0.25))


def test_the_difference_is_after_minus_before() -> None:
    assert paired_bootstrap([0.0, 0.0], [1.0, 0.0]).mean == 0.5
    assert paired_bootstrap([1.0, 0.0], [0.0, 0.0]).mean == -0.5


def test_same_seed_same_interval_and_chunks_cover_every_draw() -> None:
    values = list(np.random.default_rng(0).normal(size=3000))  # 349 draws a chunk, so several chunks
    first = bootstrap_mean(values, draws=1000, seed=1)
    assert first == bootstrap_mean(values, draws=1000, seed=1)
    assert first != bootstrap_mean(values, draws=1000, seed=2)
    assert first.lo < first.mean < first.hi


def test_draws_of_any_number_are_made() -> None:
    assert bootstrap_mean([0.0, 1.0], draws=1).lo in (0.0, 0.5, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_mean([]), "values must be a non-empty list"),
        (lambda: bootstrap_mean([1.0, float("nan")]), "not finite at position 1"),
        (lambda: bootstrap_mean([1.0], draws=0), "draws must be at least 1"),
        (lambda: paired_bootstrap([1.0], [1.0, 2.0]), "must pair up, got 1 and 2"),
        (lambda: paired_bootstrap([1.0], [float("inf")]), "after holds a number that is not finite at position 0"),
        (lambda: wilson(3, 2), "got 3 of 2"),
        (lambda: wilson(0, 0), "got 0 of 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_wilson_by_hand() -> None:
    # p = 0.5, n = 10, z² = 3.8415: centre 0.5, half = 1.96 / 1.38415 * sqrt(0.025 + 0.0096036) = 0.26341
    assert wilson(5, 10) == pytest.approx((0.5, 0.23659, 0.76341), abs=1e-5)
    # the upper end for no success is z² / (n + z²)
    assert wilson(0, 20) == pytest.approx((0.0, 0.0, 3.841459 / 23.841459), abs=1e-6)
    assert wilson(20, 20).lo == pytest.approx(20 / 23.841459, abs=1e-6)
    assert wilson(20, 20).hi == 1.0
