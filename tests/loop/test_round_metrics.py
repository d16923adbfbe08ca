"""The numbers of a round, by hand."""

from __future__ import annotations

import math

import pytest

from dragonet.learn.metrics import explain_flat, failed_fraction, first_failure, is_flat, round_metrics
from dragonet.testing import scored_group


def test_reward_and_spread_are_those_of_the_scored_rollouts():
    groups = [scored_group([1.0, 0.0, 1.0, 0.0]), scored_group([0.5, None, 0.5, 0.5])]
    row = round_metrics(groups, ["fake"], (0.0, 1.0))
    assert row["reward"] == pytest.approx((2 + 1.5) / 7)
    assert row["reward/fake"] == row["reward"]
    assert row["reward_std"] == pytest.approx((math.sqrt(1 / 3) + 0.0) / 2)
    assert row["flat"] == 0.5
    assert row["failed"] == 1 / 8


def test_flat_groups_split_at_the_middle_of_the_range():
    groups = [scored_group([1.0, 1.0]), scored_group([0.0, 0.0]), scored_group([0.0, 1.0]), scored_group([0.2, 0.2])]
    row = round_metrics(groups, ["fake"], (0.0, 1.0))
    assert (row["flat"], row["flat_high"], row["flat_low"]) == (0.75, 0.25, 0.5)


def test_a_group_with_one_scored_member_is_flat():
    assert is_flat([1.0])
    assert is_flat([])
    assert not is_flat([1.0, 0.0])


def test_lengths_and_entropy_come_from_sampled_tokens():
    row = round_metrics([scored_group([1.0, 0.0], lengths=[1, 3])], ["fake"], (0.0, 1.0))
    assert row["completion_len"] == 2.0
    assert row["entropy"] == 1.0  # the fake's log-probabilities are all -1


def test_failures_are_counted_and_the_first_one_is_named():
    groups = [scored_group([1.0, None])]
    assert failed_fraction(groups) == 0.5
    found = first_failure(groups)
    assert found is not None
    assert found[1] == "fake"
    assert first_failure([scored_group([1.0, 0.0])]) is None


@pytest.mark.parametrize(("flat_high", "word"), [(1.0, "harder prompts"), (0.0, "easier prompts")])
def test_flat_steps_are_explained_with_what_to_change(flat_high, word):
    row = {"flat": 1.0, "flat_high": flat_high, "flat_low": 1.0 - flat_high}
    assert word in (explain_flat(row, 1) or "")
    assert "3 steps in a row" in (explain_flat(row, 3) or "")
    assert explain_flat(row, 2) is None  # not at every step
    assert explain_flat(row, 0) is None
