"""Rollouts to rows. Token layout of the two-turn rollout below:

ids   10 11   20 21   30 31   40      50
what  prompt  turn 1  env     turn 2  env (cut off: nothing follows it)
span           0  1    2  3    4
"""

from __future__ import annotations

import numpy as np
import pytest
from learn_helpers import given, random_round, rollout, sampled, scored

from dragonet.errors import ConfigError
from dragonet.learn.batch import make_batch, pack
from dragonet.types import NA, Group, Prompt, Score, ScoredGroup, StopReason

TWO_TURNS = (
    given(10, 11),
    sampled(20, 21, logprobs=[-0.1, -0.2]),
    given(30, 31),
    sampled(40, logprobs=[-0.3]),
    given(50),
)


def test_layout_of_a_rollout_with_two_turns() -> None:
    row = make_batch([scored([1.0], [rollout(*TWO_TURNS)])]).rows[0]
    assert row.ids.tolist() == [10, 11, 20, 21, 30, 31, 40]
    assert row.start == 2
    assert row.mask.tolist() == [True, True, False, False, True]
    np.testing.assert_array_equal(row.sampler_logp, [-0.1, -0.2, np.nan, np.nan, -0.3])
    assert row.n_sampled == 3


def test_what_an_estimator_sees() -> None:
    groups = [
        scored([1.0, None], [rollout(*TWO_TURNS), rollout(given(10), sampled(5))]),
        scored([0.25], [rollout(given(7), sampled(8, 9))]),
    ]
    seen = make_batch(groups, weights=[2.0]).group_batch()
    np.testing.assert_array_equal(seen.rewards_P_G, [[1.0, np.nan], [0.25, np.nan]])
    np.testing.assert_array_equal(
        seen.mask_P_G_T, [[[1, 1, 0, 0, 1], [1, 0, 0, 0, 0]], [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]]
    )
    np.testing.assert_array_equal(seen.scores_P_G_K, [[[1.0], [np.nan]], [[0.25], [np.nan]]])
    assert seen.weights_K is not None
    assert seen.weights_K.tolist() == [2.0]


def test_a_penalty_is_taken_off_the_rewards() -> None:
    batch = make_batch(random_round([[1.0, 0.0], [None, 2.0]]))
    batch.penalty = np.array([0.5, 0.25, 9.0, 0.0])
    np.testing.assert_array_equal(batch.group_batch().rewards_P_G, [[0.5, -0.25], [np.nan, 2.0]])


def test_truncated_rollouts() -> None:
    cut = [rollout(given(1), sampled(2, 3), stop=stop) for stop in (StopReason.LENGTH, StopReason.EOS)]
    cut.append(rollout(given(1), sampled(4, 5, 6), stop=StopReason.BUDGET))
    groups = [scored([1.0, 0.5, None], cut)]
    train, mask, zero = (make_batch(groups, truncated=t) for t in ("train", "mask", "zero"))
    assert train.loss_lengths() == {0: 2, 1: 2}  # the unscored one is as if never sampled
    assert mask.loss_lengths() == {0: 0, 1: 2}  # counts as a sequence, not as tokens
    np.testing.assert_array_equal(mask.group_batch().rewards_P_G, [[1.0, 0.5, np.nan]])
    assert mask.group_batch().mask_P_G_T[0, 0].tolist() == [1, 1, 0]
    np.testing.assert_array_equal(zero.group_batch().rewards_P_G, [[0.0, 0.5, np.nan]])
    with pytest.raises(ConfigError, match="did you mean 'mask'"):
        make_batch(groups, truncated="masks")


def test_a_failed_rollout_without_samples_is_carried_along() -> None:
    batch = make_batch(
        [scored([None, 1.0], [rollout(given(1, 2), stop=StopReason.ERROR), rollout(given(1), sampled(3))])]
    )
    assert batch.rows[0].n_sampled == 0
    assert not batch.rows[0].in_loss
    assert batch.group_batch().mask_P_G_T.tolist() == [[[0.0], [1.0]]]
    assert batch.loss_lengths() == {1: 1}


def test_a_reward_that_does_not_apply_is_unscored() -> None:
    group = Group(Prompt(()), (rollout(given(1), sampled(2)),))
    assert NA is not None
    batch = make_batch([ScoredGroup(group, ((Score(),),), (None,))])
    assert batch.loss_lengths() == {}
    assert np.isnan(batch.group_batch().rewards_P_G).all()


def test_an_empty_round_is_an_empty_batch() -> None:
    batch = make_batch([])
    assert batch.group_batch().mask_P_G_T.shape == (0, 0, 1)


def test_rollouts_that_cannot_be_trained_on() -> None:
    with pytest.raises(ValueError, match="2 tokens and 1 log-probabilities"):
        make_batch([scored([1.0], [rollout(given(1), sampled(2, 3, logprobs=[-1.0]))])])
    with pytest.raises(ValueError, match="a prompt comes first"):
        make_batch([scored([1.0], [rollout(sampled(2, 3))])])
    with pytest.raises(ValueError, match="advantages are not set"):
        make_batch(random_round([[1.0]])).row_advantages(0)


def test_rows_are_packed_longest_first() -> None:
    lengths = {0: 5, 1: 9, 2: 9, 3: 1, 7: 6}
    assert pack([0, 1, 2, 3, 7], lengths, 2, 100) == [[1, 2], [7, 0], [3]]
    assert pack([], lengths, 2, 100) == []
    assert pack(list(lengths), lengths, "auto", 18) == [[1, 2], [7, 0, 3]]
    assert pack(list(lengths), lengths, "auto", 17) == [[1], [2], [7, 0], [3]]
    assert pack(list(lengths), lengths, "auto", 1) == [[1], [2], [7], [0], [3]]
