"""Held-out evaluation: pairing, failures and the round trip through the run folder."""

from __future__ import annotations

import json

import pytest

from dragonet.learn.evaluate import Evaluation, compare, evaluation, gain
from dragonet.testing import scored_group


def _evaluation(step: int, rewards: list[float | None]) -> Evaluation:
    return evaluation(step, [scored_group([r]) for r in rewards], ["fake"], n_samples=2)


def test_only_prompts_scored_both_times_are_compared():
    gain = compare(_evaluation(0, [0.0, 0.0, None, 1.0]), _evaluation(5, [1.0, 1.0, 1.0, None]))
    assert gain["reward"]["before"] == 0.0
    assert gain["reward"]["after"] == 1.0
    assert gain["reward"]["n"] == 2
    assert gain["reward"]["ci95"] == [1.0, 1.0]
    assert gain["per_reward"]["fake"] == gain["reward"]


def test_the_interval_is_of_the_paired_difference():
    before, after = _evaluation(0, [0.0] * 20 + [1.0] * 20), _evaluation(9, [1.0] * 20 + [1.0] * 20)
    low, high = compare(before, after)["reward"]["ci95"]
    assert 0.3 < low < 0.5 < high < 0.7  # binomial(40, 1/2) / 40: standard error 0.079


def test_no_common_prompt_gives_no_number():
    gain = compare(_evaluation(0, [None]), _evaluation(1, [1.0]))
    assert gain["reward"] == {"before": None, "after": None, "ci95": None, "n": 0}


def test_failures_are_counted_apart_from_zeros():
    seen = _evaluation(0, [0.0, None])
    assert seen.reward == 0.0
    assert seen.failed == 1
    assert seen.first_failure == "fake"
    assert len(seen.samples) == 2


def test_an_evaluation_reads_back_from_json():
    seen = _evaluation(3, [0.25, None, 1.0])
    again = Evaluation.from_json(json.loads(json.dumps(seen.to_json())))
    assert again.rewards_P == seen.rewards_P
    assert again.scores_K_P == seen.scores_K_P
    assert compare(seen, again)["reward"]["before"] == pytest.approx(0.625)


def test_a_single_evaluation_claims_no_gain():
    alone = gain([_evaluation(0, [0.0, 1.0, None])])
    assert alone["reward"] == {"before": 0.5, "after": None, "ci95": None, "n": 2}
    assert alone["per_reward"]["fake"] == alone["reward"]
    assert gain([])["reward"] == {"before": None, "after": None, "ci95": None, "n": 0}
    assert gain([_evaluation(0, [0.0]), _evaluation(4, [1.0])])["reward"]["after"] == 1.0
